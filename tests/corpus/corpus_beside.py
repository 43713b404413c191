"""Results that lie, or are stored, as the product behind them wants it."""
from corpus_graph import Graph


def products_beside_f32():
    """A norm between a product and a residual, and gradients that are joined, summed to those of a
    bias and multiplied twice."""
    g = Graph("norm_to_product_and_residual", "bf16")
    rows, k, n = 72, 64, 96
    g.tensor("x", [1, rows, k])
    g.tensor("scale", [1, 1, k])
    g.tensor("w1", [1, k, n])
    g.tensor("b1", [1, 1, n])
    g.tensor("w2", [1, n, k])
    g.node("rmsnorm", {"X": "x", "SCALE": "scale", "epsilon": g.value("epsilon", 1e-5)}, "norm")
    g.pointwise("relu_fwd", "active", g.linear("norm", "w1", "b1", "up"))
    g.pointwise("add", "y", g.matmul("active", "w2", "down"), "norm")
    g.output("y")
    g = Graph("gradients_of_joined_heads", "bf16")
    g.tensor("x", [rows, k])
    g.tensor("w", [k, 2 * k])
    for t in "ab":
        g.tensor("given_" + t, [rows, k])
        g.tensor("sine_" + t, [rows, k], data_type="f32")
        g.pointwise("mul", "part_" + t, "given_" + t, "sine_" + t)
    g.node("concatenate", {"IN_0": "part_a", "IN_1": "part_b"}, "d", axis=1)
    g.matmul(g.transpose("x", "columns", [1, 0]), "d", "dw")
    g.matmul("d", g.transpose("w", "turned", [1, 0]), "dx")
    g.reduction("add", "d", "db", [1, 2 * k])
    g.output("dw", "dx")
    g.output("db", data_type="f32")


products_beside_f32()


def groups_before_convolution():
    """Groups of an image whose channels are last: so they stay for the convolution behind the norm."""
    n, c, h, k = 2, 40, 9, 16
    last = {"stride": [h * h * c, 1, h * c, c]}
    g = Graph("groupnorm_channels_last_convolution", "bf16")
    g.tensor("x", [n, c, h, h], **last)
    for t in ("scale", "shift"):
        g.tensor(t, [1, c, 1, 1])
    g.tensor("w", [k, c, 3, 3], stride=[9 * c, 1, 3 * c, c])
    g.node("groupnorm", {"X": "x", "SCALE": "scale", "BIAS": "shift",
                         "epsilon": g.value("epsilon", 1e-5)}, "norm", groups=4)
    g.conv(g.pointwise("swish_fwd", "active", "norm"), "w", "y", pre_padding=[1, 1], post_padding=[1, 1])
    g.output("y", stride=[h * h * k, 1, h * k, k])


groups_before_convolution()
