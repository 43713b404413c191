"""Rows of which several nodes compute the same values."""
from corpus_graph import Graph


def log_softmax(g, x, rows, name):
    g.tensor(name + "_max", [rows, 1])
    g.node("reduction", {"X": x}, name + "_max", mode="max")
    g.pointwise("sub", name + "_centred", x, name + "_max")
    g.pointwise("exp", name + "_exp", name + "_centred")
    g.tensor(name + "_sum", [rows, 1])
    g.node("reduction", {"X": name + "_exp"}, name + "_sum", mode="add")
    g.pointwise("log", name + "_log", name + "_sum")
    g.pointwise("sub", name + "_again", x, name + "_max")
    return g.pointwise("sub", name, name + "_again", name + "_log")


def divergence(name, rows, columns, io):
    """Of two softmaxes, with its gradient; one of them is a node, too."""
    g = Graph("divergence_" + name, io)
    for t in ("a", "b"):
        g.tensor(t, [rows, columns])
    g.node("softmax", {"X": "a"}, "p", axis=-1)
    log_p, log_q = log_softmax(g, "a", rows, "log_p"), log_softmax(g, "b", rows, "log_q")
    g.pointwise("sub", "apart", log_p, log_q)
    g.pointwise("mul", "weighted", "p", "apart")
    g.tensor("loss", [rows, 1], data_type="f32")
    g.node("reduction", {"X": "weighted"}, "loss", mode="add")
    g.output("loss")
    g.pointwise("exp", "q", log_q)
    g.output(g.pointwise("sub", "gradient", "q", "p"))


divergence("bf16", 37, 136, "bf16")
divergence("odd_f16", 5, 333, "f16")
divergence("f32", 3, 9000, "f32")
