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
