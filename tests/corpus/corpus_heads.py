"""Heads of a projection that are normalised, turned and rotated, in the orders that models have."""
from corpus_graph import Graph


def normed_heads(name, intermediate, turned_first, statistics=False):
    b, s, h, d = 2, 9, 3, 32
    g = Graph("heads_normed_rotated_" + name, "bf16", intermediate)
    g.tensor("x", [b, s, 40])
    g.tensor("w", [1, 40, (h + 1) * d])
    g.tensor("scale", [1, 1, 1, d])
    for t in ("cosine", "sine"):
        g.tensor(t, [1, 1, s, d])
    g.value("epsilon", 1e-5)
    all_heads = g.reshape(g.matmul("x", "w", "product"), "all", [b, s, h + 1, d])
    results = {"Y": "normal"}
    if statistics:
        g.output("inv", data_type="f32")
        results["INV_VARIANCE"] = "inv"
    norm = lambda t: g.node("rmsnorm", {"X": t, "SCALE": "scale", "epsilon": "epsilon"}, results,
                            forward_phase="training" if statistics else "inference")
    q = g.slice(all_heads, "q", [0, 0, 0, 0], [b, s, h, d])
    if turned_first:
        norm(g.transpose(q, "turned", [0, 2, 1, 3]))
        y = "normal"
    else:
        norm(q)
        y = g.transpose("normal", "turned", [0, 2, 1, 3])
    g.slice(y, "first", [0, 0, 0, 0], [b, h, s, d // 2])
    g.slice(y, "second", [0, 0, 0, d // 2], [b, h, s, d])
    g.pointwise("neg", "minus", "second")
    g.node("concatenate", {"IN_0": "minus", "IN_1": "first"}, "swapped", axis=-1)
    g.pointwise("add", "rotated", g.pointwise("mul", "a", y, "cosine"), g.pointwise("mul", "b", "swapped", "sine"))
    g.output("rotated")
    v = g.slice(all_heads, "v", [0, 0, h, 0], [b, s, h + 1, d])
    g.output(g.transpose(v, "v_turned", [0, 2, 1, 3]))


normed_heads("behind", "f32", turned_first=True)
normed_heads("before", "f32", turned_first=False)
normed_heads("before_bf16", "bf16", turned_first=False)
normed_heads("before_training", "bf16", turned_first=False, statistics=True)


def rotated_back(g, y, cosine, sine, half):
    """The gradient of a rotary embedding by halves, of [.., 2 * half]."""
    *rows, d = half
    zeros = [0] * len(rows)
    g.pointwise("mul", "by_sine", y, sine)
    g.slice("by_sine", "of_first", [*zeros, 0], [*rows, d])
    g.slice("by_sine", "of_second", [*zeros, d], [*rows, 2 * d])
    g.node("concatenate", {"IN_0": "of_second", "IN_1": g.pointwise("neg", "minus", "of_first")}, "back", axis=-1)
    return g.pointwise("add", "unrotated", g.pointwise("mul", "by_cosine", y, cosine), "back")


def gradients_of_rotated_heads(name, op, io, half, turned):
    b, h, s = 2, 3, 13
    d = 2 * half
    g = Graph("heads_gradients_rotated_" + name, io)
    for t in ("dy", "x"):
        g.tensor(t, [b, h, s, d])
    g.tensor("scale", [1, 1, 1, d])
    for t in ("cosine", "sine"):
        g.tensor(t, [1, 1, s, d])
    g.tensor("inv", [b, h, s, 1], data_type="f32")
    statistics = {"INV_VARIANCE": "inv"}
    results = {"DX": "dx", "DSCALE": "dscale"}
    if op == "layernorm_backward":
        statistics["MEAN"] = g.tensor("mean", [b, h, s, 1], data_type="f32")
        results["DBIAS"] = "dbias"
    dy = rotated_back(g, "dy", "cosine", "sine", [b, h, s, half])
    g.node(op, {"DY": dy, "X": "x", "SCALE": "scale", **statistics}, results)
    g.output(*list(results.values())[1:], data_type="f32")
    g.output(g.reshape(g.transpose("dx", "turned", [0, 2, 1, 3]), "joined", [b, s, h * d]) if turned else "dx")


gradients_of_rotated_heads("rms", "rmsnorm_backward", "bf16", 32, turned=True)
gradients_of_rotated_heads("rms_odd", "rmsnorm_backward", "f16", 7, turned=False)
gradients_of_rotated_heads("layernorm_f32", "layernorm_backward", "f32", 16, turned=True)


def heads_with_bias(name, half):
    b, s, h = 2, 9, 3
    d = 2 * half
    g = Graph("heads_biased_rotated_" + name, "bf16")
    g.tensor("x", [b, s, 40])
    g.tensor("w", [1, 40, h * d])
    g.tensor("bias", [1, 1, h * d])
    for t in ("cosine", "sine"):
        g.tensor(t, [1, 1, s, d])
    y = g.transpose(g.reshape(g.linear("x", "w", "bias", "projected"), "heads", [b, s, h, d]), "q", [0, 2, 1, 3])
    g.slice(y, "first", [0, 0, 0, 0], [b, h, s, half])
    g.slice(y, "second", [0, 0, 0, half], [b, h, s, d])
    g.node("concatenate", {"IN_0": g.pointwise("neg", "minus", "second"), "IN_1": "first"}, "swapped", axis=-1)
    g.pointwise("add", "rotated", g.pointwise("mul", "a", y, "cosine"), g.pointwise("mul", "b", "swapped", "sine"))
    g.output("rotated")


heads_with_bias("32", 16)
heads_with_bias("odd", 7)
