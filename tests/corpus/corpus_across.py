"""Tensors that lie across the rows of a norm or softmax, and layouts that what reads them asks for."""
from corpus_graph import Graph
from corpus_regions import layernorm, windows


def channels_last(n, c, h, w):
    return [c * h * w, 1, w * c, c]


def tokens_norm(g, x, channels, out="y"):
    for t in ("scale", "bias"):
        g.tensor(t, [1, 1, channels])
    g.value("epsilon", 1e-5)
    g.node("layernorm", {"X": x, "SCALE": "scale", "BIAS": "bias", "epsilon": "epsilon"}, out)
    g.output(out)


def turned_rows():
    """Of so many elements what lies across is turned by a kernel in front or behind."""
    images, channels, pixels = 2, 136, 984
    g = Graph("across_norm_reads", "bf16")
    g.tensor("image", [images, channels, pixels])
    g.tensor("tokens", [images, pixels, channels])
    g.transpose("image", "turned", [0, 2, 1])
    g.output(g.pointwise("add", "sum", "tokens", "turned"))
    tokens_norm(g, "sum", channels)

    g = Graph("across_norm_writes", "bf16")
    g.tensor("x", [images, pixels, channels])
    for t in ("scale", "bias"):
        g.tensor(t, [1, 1, channels])
    g.value("epsilon", 1e-5)
    g.node("layernorm", {"X": "x", "SCALE": "scale", "BIAS": "bias", "epsilon": "epsilon"}, "normal")
    g.output(g.transpose("normal", "y", [0, 2, 1]))

    # Rows that lie together, beside one tensor that does not.
    g = Graph("across_softmax", "bf16")
    g.tensor("x", [images, channels, pixels])
    g.tensor("mask", [images, pixels, channels])
    g.transpose("mask", "turned", [0, 2, 1])
    g.node("softmax", {"X": g.pointwise("add", "masked", "x", "turned")}, "y", axis=1)
    g.output("y")


def patches():
    """Patches of images as tokens: results whose channels are last, whatever the image's order."""
    for name, last in (("last", True), ("first", False)):
        g = Graph(f"across_patches_{name}", "bf16")
        image, filters, patch = [5, 3, 112, 96], 192, 16
        taps = [filters, 3, patch, patch]
        g.tensor("x", image, **({"stride": channels_last(*image)} if last else {}))
        g.tensor("w", taps, **({"stride": channels_last(*taps)} if last else {}))
        g.tensor("b", [1, filters, 1, 1])
        g.conv("x", "w", "sums", stride=[patch] * 2, pre_padding=[0, 0], post_padding=[0, 0], dilation=[1, 1])
        g.pointwise("add", "biased", "sums", "b")
        g.tensor("biased", data_type="bf16")
        g.reshape("biased", "pixels", [5, filters, 42])
        g.transpose("pixels", "tokens", [0, 2, 1])
        g.tensor("position", [1, 42, filters])
        g.output(g.pointwise("add", "sum", "tokens", "position"))
        tokens_norm(g, "sum", filters)


def patches_in_no_lines():
    """Patches whose lines, and which themselves, begin where TMA may not; positions of tokens without a norm."""
    g = Graph("across_patches_21", "f16")
    g.tensor("x", [100, 1, 42, 21])
    g.tensor("w", [64, 1, 21, 21])
    g.tensor("b", [1, 64, 1, 1])
    g.conv("x", "w", "sums", stride=[21] * 2, pre_padding=[0, 0], post_padding=[0, 0], dilation=[1, 1])
    g.pointwise("add", "biased", "sums", "b")
    g.reshape("biased", "pixels", [100, 64, 2])
    g.transpose("pixels", "tokens", [0, 2, 1])
    g.tensor("position", [1, 2, 64])
    g.output(g.pointwise("add", "sum", "tokens", "position"))


def distances():
    """Vectors that are read for all of the others; results lie across what is summed."""
    g = Graph("across_distances", "f32")
    g.tensor("x", [45, 1, 16])
    g.tensor("y", [1, 38, 16])
    g.pointwise("abs", "size", g.pointwise("sub", "difference", "x", "y"))
    g.reduction("add", "size", "distance", [45, 38, 1])
    g.output("distance")


def windows_of_products():
    """A norm's windows that a product reads, and a residual of windows that another is added to."""
    dim = [2, 4, 6, 16]
    g = Graph("across_windows_product", "bf16")
    g.tensor("x", dim)
    layernorm(g, "x", "normal", dim[-1])
    g.tensor("w", [1, 16, 24])
    g.output(g.matmul(windows(g, "normal", "rows", dim), "w", "y"))

    g = Graph("across_windows_residual", "bf16")
    g.tensor("o", [12, 4, 16])
    g.tensor("x", [2, 24, 16])
    windows(g, "o", "image", dim, back=True)
    g.reshape("image", "tokens", [2, 24, 16])
    g.pointwise("add", "sum", "x", "tokens")
    g.tensor("sum", data_type="bf16")
    g.tensor("scale", [1, 1, 16])
    g.value("epsilon", 1e-5)
    g.node("rmsnorm", {"X": "sum", "SCALE": "scale", "epsilon": "epsilon"}, "normal")
    g.tensor("w", [1, 16, 16])
    g.tensor("b", [1, 1, 16])
    g.output(g.pointwise("add", "y", "sum", g.linear("normal", "w", "b", "z")))


def joined_norm():
    """Channels that are joined and normalised in groups which both parts have a share of."""
    g = Graph("across_joined_groupnorm", "bf16")
    for t, c in (("a", 40), ("s", 24)):
        g.tensor(t, [2, c, 6, 5], stride=channels_last(2, c, 6, 5))
    g.node("concatenate", {"IN_0": "a", "IN_1": "s"}, "joined", axis=1)
    for t in ("scale", "bias"):
        g.tensor(t, [1, 64, 1, 1])
    g.value("epsilon", 1e-5)
    g.node("groupnorm", {"X": "joined", "SCALE": "scale", "BIAS": "bias", "epsilon": "epsilon"}, "normal", groups=16)
    g.tensor("w", [24, 64, 3, 3], stride=channels_last(24, 64, 3, 3))
    options = dict(stride=[1, 1], pre_padding=[1, 1], post_padding=[1, 1], dilation=[1, 1])
    g.output(g.conv(g.pointwise("swish_fwd", "active", "normal"), "w", "y", **options))
    g.tensor("w1", [24, 64, 1, 1])
    g.output(g.conv("joined", "w1", "skip", **{**options, "pre_padding": [0, 0], "post_padding": [0, 0]}))


def two_softmaxes():
    """Exponentials of both are kept, in more threads than one would have."""
    g = Graph("across_two_softmaxes", "bf16")
    for t in ("a", "b"):
        g.tensor(t, [300, 1000])
        g.node("softmax", {"X": t}, t + "_weights", axis=1)
    g.output(g.pointwise("sub", "y", "a_weights", "b_weights"))


turned_rows()
patches()
patches_in_no_lines()
distances()
windows_of_products()
joined_norm()
two_softmaxes()
