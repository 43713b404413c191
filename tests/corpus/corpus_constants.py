"""Divisions by numbers of the graph: of elements and of results of products."""
from corpus_graph import Graph, channels_last

NUMBERS = {"six": 6.0, "tenth": 0.1, "minus_seven": -7.0, "large": 1e30, "huge": 3e38, "tiny": 1e-38, "zero": 0.0}


def elements(name, io, dim, numbers=NUMBERS):
    g = Graph("divided_by_" + name, io)
    g.tensor("x", dim)
    g.pointwise("relu_fwd", "positive", "x")  # with zeros
    for number in numbers:
        g.value(number, NUMBERS[number])
        g.output(g.pointwise("div", "by_" + number, "positive", number))


elements("numbers", "f32", [3, 5, 40])
elements("numbers_odd", "bf16", [7, 33], ["six", "tenth", "minus_seven"])


def hard_swish(g, x, out):
    """x * min(max(x + 3, 0), 6) / 6"""
    g.value("three", 3.0)
    g.value("six", 6.0)
    clipped = g.pointwise("relu_fwd", out + "_clipped", g.pointwise("add", out + "_plus", x, "three"), relu_upper_clip=6.0)
    return g.pointwise("mul", out, x, g.pointwise("div", out + "_share", clipped, "six"))


def convolution(name, io, c, k, image):
    g = Graph("divided_by_six_" + name, io)
    g.tensor("x", [2, c, image, image], stride=channels_last([2, c, image, image]))
    g.tensor("w", [k, c, 1, 1])
    for v in ("mean", "inv_variance", "scale", "bias"):
        g.tensor(v, [1, k, 1, 1], data_type="f32")
    sums = g.conv("x", "w", "sums", pre_padding=[0, 0], post_padding=[0, 0], stride=[1, 1], dilation=[1, 1])
    norm = g.node("batchnorm_inference", {"X": sums, "MEAN": "mean", "INV_VARIANCE": "inv_variance", "SCALE": "scale",
                                          "BIAS": "bias"}, "norm")
    g.output(hard_swish(g, norm, "y"), dim=[2, k, image, image], stride=channels_last([2, k, image, image]))


convolution("convolution", "f16", 40, 240, 12)
convolution("odd_convolution", "bf16", 12, 29, 9)


def product(name, io):
    g = Graph("divided_by_six_" + name, io)
    g.tensor("a", [1, 70, 33])
    g.tensor("b", [1, 33, 45])
    g.output(hard_swish(g, g.matmul("a", "b", "sums"), "y"))


product("product", "bf16")
product("f32_product", "f32")
