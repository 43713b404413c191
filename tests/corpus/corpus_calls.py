"""Numbers that come with each call, and outputs in the memory of inputs."""
from corpus_graph import Graph


def number(g, name, data_type="f32"):
    return g.tensor(name, pass_by_value=True, data_type=data_type)


def update_in_place():
    """Momentum: both parameters in place, rate and momentum by value."""
    g = Graph("update_in_place")
    for t in ("p", "v", "g"):
        g.tensor(t, [1027])
    g.pointwise("mul", "kept", "v", number(g, "momentum", "bf16"))
    g.pointwise("add", "next_v", "kept", "g")
    g.pointwise("mul", "step", "next_v", number(g, "rate"))
    g.pointwise("sub", "next_p", "p", "step")
    g.output("next_v", alias="v")
    g.output("next_p", alias="p")


def updates_in_place():
    """Adam's step of two layers, in place, with a rate of each call: one kernel for each size of parameters."""
    g = Graph("updates_in_place")
    rate, decay = number(g, "rate"), g.value("decay", 0.99)
    for i, dim in enumerate(([24, 36], [1, 36], [24, 36], [1, 36])):
        w, v, dw = (g.tensor(f"{t}_{i}", dim) for t in ("w", "v", "dw"))
        squares = g.pointwise("mul", f"squares_{i}", dw, dw)
        g.pointwise("add", f"next_v_{i}", g.pointwise("mul", f"kept_{i}", v, decay), squares)
        length = g.pointwise("sqrt", f"length_{i}", f"next_v_{i}")
        scaled = g.pointwise("div", f"scaled_{i}", dw, g.pointwise("add", f"some_{i}", length, g.value("epsilon", 1e-3)))
        g.pointwise("sub", f"next_w_{i}", w, g.pointwise("mul", f"step_{i}", scaled, rate))
        g.output(f"next_w_{i}", alias=w)
        g.output(f"next_v_{i}", alias=v)


def residual_in_place():
    """A product added to the stream of residuals where that lies, scaled by a number."""
    g = Graph("residual_in_place", "bf16")
    g.tensor("x", [1, 72, 136])
    g.tensor("h", [1, 72, 64])
    g.tensor("w", [1, 64, 136], stride=[8704, 1, 64])
    g.pointwise("mul", "scaled", g.matmul("h", "w", "product"), number(g, "scale"))
    g.pointwise("add", "y", "x", "scaled")
    g.output("y", alias="x")


def norm_in_place():
    """The residual stream and what is added to it, both overwritten: by their sum and its norm."""
    g = Graph("norm_in_place", "bf16")
    g.tensor("x", [70, 264])
    g.tensor("residual", [70, 264])
    g.tensor("w", [1, 264])
    g.pointwise("add", "h", "x", "residual")
    g.node("rmsnorm", {"X": "h", "SCALE": "w", "epsilon": g.value("epsilon", 1e-5)}, "y")
    g.output("h", alias="x")
    g.output("y", alias="residual")


def softmax_in_place():
    """Rows too long for registers, as four tensors are read: the last of three walks over them stores."""
    g = Graph("softmax_in_place")
    for name in "xabc":
        g.tensor(name, [4, 70000])
    g.pointwise("add", "scores", g.pointwise("mul", "scaled", "x", "a"), g.pointwise("mul", "bias", "b", "c"))
    g.node("softmax", {"X": "scores"}, "y")
    g.output("y", alias="x")


def seeds_by_value():
    """Dropout whose seed, offset and scale change from call to call."""
    g = Graph("seeds_by_value")
    g.tensor("x", [5, 130])
    g.tensor("mask", [5, 130])
    g.node("rng", {"Seed": number(g, "seed", "i64"), "Offset": number(g, "offset", "i64")}, "mask",
           distribution="bernoulli", probability=0.75)
    g.pointwise("mul", "kept", "x", "mask")
    g.pointwise("mul", "y", "kept", number(g, "scale", "f64"))
    g.output("y")


def scale_by_value():
    """Attention written out, with a scale of each call."""
    g = Graph("attention_scale_by_value", "bf16")
    for t in ("q", "k", "v"):
        g.tensor(t, [1, 2, 40, 64])
    g.transpose("k", "kt", [0, 1, 3, 2])
    g.pointwise("mul", "scores", g.matmul("q", "kt", "products"), number(g, "scale"))
    g.node("softmax", {"X": "scores"}, "weights")
    g.matmul("weights", "v", "o")
    g.output("o")


def attention(name, q, kv, numbers, io="bf16", **attributes):
    """One sequence, whose lengths and tables are numbers: each call's (a type), or the graph's (with a value)."""
    g = Graph(f"attention_{name}", io)
    ports = {"Q": g.tensor("q", q), "K": g.tensor("k", kv), "V": g.tensor("v", kv)}
    for port, given in numbers.items():
        ports[port] = number(g, port, given) if isinstance(given, str) else g.value(port, given[1], given[0])
        g.tensor(port, [1, 1, 1, 1])
    g.node("sdpa", ports, {"O": "o"}, attn_scale=0.125, **attributes)
    g.output("o")


def attention_backward(name, numbers, **attributes):
    g = Graph(f"attention_backward_{name}", "bf16")
    ports = {p: g.tensor(p, [1, 2, 40, 64]) for p in ("Q", "K", "V", "dO")}
    lengths = {p: g.tensor(number(g, p, t), [1, 1, 1, 1]) for p, t in numbers.items()}
    forward = {p: ports[p] for p in "QKV"}
    g.node("sdpa", forward | lengths, {"O": "O", "Stats": "Stats"}, attn_scale=0.125, **attributes)
    g.node("sdpa_backward", ports | lengths | {"O": "O", "Stats": "Stats"}, {"dQ": "dQ", "dK": "dK", "dV": "dV"},
           attn_scale=0.125, **attributes)
    g.output("O", "dQ", "dK", "dV")


update_in_place()
updates_in_place()
residual_in_place()
norm_in_place()
softmax_in_place()
seeds_by_value()
scale_by_value()
attention("lengths_by_value", [1, 4, 1, 64], [1, 2, 130, 64], {"SEQ_LEN_Q": ("i32", 1), "SEQ_LEN_KV": "i32"}, padding_mask=True)
attention("lengths_held", [1, 2, 40, 64], [1, 2, 150, 64], {"SEQ_LEN_Q": ("i64", 33), "SEQ_LEN_KV": ("i32", 117)},
          padding_mask=True, causal_mask_bottom_right=True)
attention("mask_by_value", [1, 1, 24, 26], [1, 1, 24, 26],
          {"SEQ_LEN_Q": "i64", "SEQ_LEN_KV": "i32", "Block_mask": "u8", "SINK_TOKEN": "f32"}, io="f16", padding_mask=True,
          causal_mask=True, causal_mask_bottom_right=True)
attention("pages_by_value", [1, 2, 7, 64], [1, 2, 48, 64], {"Page_table_K": "i32", "Page_table_V": ("i64", 0)})
attention_backward("lengths_by_value", {"SEQ_LEN_Q": "i32", "SEQ_LEN_KV": "i64"}, padding_mask=True, causal_mask=True)


def offset_computed():
    """Dropout of packed sequences, at an offset that a node computes of the call's step."""
    g = Graph("attention_offset_computed", "bf16")
    ports = {t: g.tensor(t.lower(), [1, 1, 127 if t == "Q" else 64, 16]) for t in "QKV"}
    for port in ("CU_SEQ_LEN_Q", "CU_SEQ_LEN_KV"):
        ports[port] = g.tensor(port, [7, 1, 1, 1], data_type="i64")
    g.pointwise("identity", "offset", number(g, "step", "i32"))
    g.tensor("offset", data_type="i32")
    g.node("sdpa", ports | {"Seed": number(g, "seed", "i64"), "Offset": "offset"}, {"O": "o"}, attn_scale=0.25,
           dropout_probability=0.5)
    g.output("o")


offset_computed()
