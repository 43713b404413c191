"""Graphs in f64."""
from corpus_graph import Graph


def double_precision():
    g = Graph("double_precision", "f64", "f64", "f64")
    g.tensor("a", [2, 19, 23])
    g.tensor("b", [23, 17])
    g.matmul("a", "b", "c")
    g.node("softmax", {"X": "c"}, {"Y": "p"}, axis=1)
    g.pointwise("log", "logs", "p")
    g.pointwise("mul", "terms", "p", "logs")
    g.reduction("add", "terms", "entropy", [2, 1, 17])
    g.output("c", "entropy")


double_precision()


def double_product(name, m, n, k, a_along_m=False, b_along_n=False, bias=False):
    """Tensor cores multiply f64, in tiles of 64 x 64 and steps of 16."""
    g = Graph("double_product_" + name, "f64", "f64", "f64")
    g.tensor("a", [2, m, k], stride=[m * k, 1, m] if a_along_m else [m * k, k, 1])
    g.tensor("b", [2, k, n], stride=[n * k, n, 1] if b_along_n else [n * k, 1, k])
    g.matmul("a", "b", "c")
    if bias:
        g.tensor("bias", [1, 1, n])
        g.pointwise("add", "sum", "c", "bias")
        g.pointwise("gelu_fwd", "y", "sum")
    g.output("y" if bias else "c")


double_product("of_odd_tiles", 65, 63, 33)
double_product("along_rows", 64, 128, 16, a_along_m=True, b_along_n=True)
double_product("of_one_step", 17, 130, 5, a_along_m=True, bias=True)
double_product("of_a_long_sum", 33, 40, 1100, b_along_n=True)


def double_convolution():
    g = Graph("double_convolution", "f64", "f64", "f64")
    g.tensor("x", [2, 5, 9, 8])
    g.tensor("w", [7, 5, 3, 3])
    g.tensor("dx", [2, 5, 9, 8])
    g.tensor("dw", [7, 5, 3, 3])
    places = dict(pre_padding=[1, 1], post_padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    g.node("conv_fprop", {"X": "x", "W": "w"}, {"Y": "y"}, **places)
    g.node("conv_dgrad", {"DY": "y", "W": "w"}, {"DX": "dx"}, **places)
    g.node("conv_wgrad", {"DY": "y", "X": "x"}, {"DW": "dw"}, **places)
    g.output("y", "dx", "dw")


double_convolution()
