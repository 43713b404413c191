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

# Reductions over one element each: elementwise but for the last two.
for mode in ("add", "avg", "min", "max", "mul", "amax", "norm1", "norm2", "mul_no_zeros"):
    g = Graph("reduction_of_one_" + mode, "bf16")
    g.tensor("x", [3, 1, 130, 24])
    g.pointwise("mul", "y", g.reduction(mode, g.pointwise("sub", "centred", "x", g.tensor("bias", [1, 1, 1, 24])), "of_one", [3, 1, 130, 24]),
                g.value("scale", 0.75))
    g.output("y")
# A softmax over one column, and a sum over a batch of one beside what it sums.
g = Graph("rows_of_one", "f16")
g.tensor("x", [1, 70, 33], stride=[2310, 1, 70])
g.node("softmax", {"X": g.reshape("x", "column", [70, 33, 1])}, "p", axis=2)
g.pointwise("exp", "e", "x")
g.pointwise("add", "y", g.reduction("add", "e", "sum", [1, 70, 33]), "e")
g.output("p", "y")


def mean_of_rows_of_three():
    """A mean over more than its kernel's rows, each of three elements: divided once, not by 3 and then by 40."""
    g = Graph("mean_of_rows_of_three", "f32")
    g.tensor("x", [1, 40, 3])
    g.reduction("max", "x", "largest", [1, 40, 1])
    g.output(g.pointwise("mul", "y", "x", "largest"))
    g.reduction("avg", "y", "mean", [1, 1, 1])
    g.output("mean")


mean_of_rows_of_three()


def uneven_parts(name, dim, row, io, **data):
    """Rows that no number of parts divides: even parts, and what they leave; what is reduced is stored, too."""
    g = Graph("rows_in_uneven_parts_" + name, io)
    g.tensor("x", dim, **data)
    g.pointwise("mul", "y", "x", g.tensor("scale", [1] * (len(dim) - 1) + dim[-1:]))
    g.output("y")
    for mode in ("add", "norm2", "max"):
        g.output(g.reduction(mode, "y", mode, row))


uneven_parts("bf16", [2, 100003], [2, 1], "bf16")
uneven_parts("two_axes", [3, 2, 50021], [1, 2, 1], "f16", stride=[100060, 50030, 1])


def short_odd_rows(name, rows, columns, io, **x):
    """Enough short rows that start anywhere for blocks to bring theirs to shared memory at once; the last block has fewer."""
    g = Graph("short_odd_rows_" + name, io)
    g.tensor("x", [rows, columns], **x)
    return g


for name, rows, columns, io in (("f16", 32801, 17, "f16"), ("even", 32789, 10, "bf16"), ("f32", 32901, 7, "f32")):
    g = short_odd_rows(name, rows, columns, io)
    g.pointwise("mul", "weighted", "x", g.tensor("w", [1, columns]))
    g.output(g.reduction("add", "weighted", "sum", [rows, 1]), g.reduction("max", "x", "largest", [rows, 1]))
g = short_odd_rows("of_several", 16411, 35, "bf16")
g.tensor("largest", [16411, 1])
g.node("reduction", {"X": "x"}, "largest", mode="max")
g.pointwise("exp", "e", g.pointwise("sub", "centred", "x", "largest"))
g.pointwise("mul", "both", "e", g.tensor("z", [16411, 35]))
g.output(g.reduction("add", "both", "sum", [16411, 1]))
g = short_odd_rows("of_integers", 32771, 3, "i32")
g.output(g.reduction("min", "x", "least", [32771, 1]), g.reduction("max", "x", "largest", [32771, 1]))


# More than one kernel has room for: each computes some of them to their end.
g = Graph("softmaxes_of_one_input", "bf16")
g.tensor("x", [10, 72])
for i in range(40):
    g.node("softmax", {"X": "x"}, {"Y": f"p{i}"}, axis=1)
    g.output(g.pointwise("mul", f"y{i}", f"p{i}", g.value(f"factor{i}", 0.25 + i / 16)))
