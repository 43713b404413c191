"""Conversions that round nothing, in front of products and of what is computed element by element."""
from corpus_graph import Graph


def converted_weights(name, rows, weights, to, scaled=False, k=64, n=48):
    g = Graph("unconverted_" + name, "bf16")
    g.tensor("x", [1, rows, k])
    g.tensor("w", [1, k, n], stride=[k * n, 1, k], data_type=weights)
    g.tensor("scale", [1, 1, n], data_type="f32")
    g.tensor("wide", data_type=to)
    w = g.pointwise("identity", "wide", "w")
    if scaled:
        g.output(g.matmul("x", g.pointwise("mul", "scaled", w, "scale"), "y"))
    else:
        g.output(g.pointwise("mul", "y", g.matmul("x", w, "product"), "scale"))


converted_weights("i8_to_bf16", 5, "i8", "bf16")
converted_weights("i8_scaled", 3, "i8", "f32", scaled=True)
converted_weights("f8_scaled", 3, "f8e4m3", "bf16", scaled=True)
converted_weights("i8_many_rows", 130, "i8", "f32", scaled=True)
converted_weights("f32_odd", 7, "f8e5m2", "f32", k=33, n=29)


def gate(name, weights):
    """A router that is computed in f32."""
    t, e, x = 37, 64, 16
    g = Graph("unconverted_gate_" + name, "bf16")
    g.tensor("x", [1, t, e])
    g.tensor("w", [1, e, x], data_type=weights)
    tokens = g.pointwise("identity", "tokens", "x")
    w = "w" if weights == "f32" else g.pointwise("identity", "wide", "w")
    g.output(g.pointwise("sigmoid_fwd", "p", g.matmul(tokens, w, "logits")), data_type="f32")


gate("bf16", "bf16")
gate("f32", "f32")
