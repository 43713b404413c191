"""Pooling by 2 x 2 that a convolution's kernel does: windows in blocks of the image."""
from corpus_graph import Graph, channels_last


def pool_in_convolution(name, io, channels, filters, height, width, images=1, both=False,
                        residual=False, pad=1, mode="maxpool"):
    """The largest of 2 x 2 pixels, or their average, which the convolution's kernel stores, with the pixels where others read them."""
    g = Graph("pool_in_convolution_" + name, io)

    def image(name, c, h, w, **more):
        g.tensor(name, [images, c, h, w], stride=[h * w * c, 1, w * c, c], **more)

    h, w = height + 2 * pad - 2, width + 2 * pad - 2
    image("x", channels, height, width)
    g.tensor("w", [filters, channels, 3, 3], stride=[9 * channels, 1, 3 * channels, channels])
    g.conv("x", "w", "c", pre_padding=[pad, pad], post_padding=[pad, pad])
    last = "c"
    if residual:
        image("r", filters, h, w)
        g.pointwise("add", "s", "c", "r")
        last = "s"
    if both:
        image("y", filters, h, w, output=True)
    g.pointwise("relu_fwd", "y", last)
    g.node("resample", {"X": "y"}, "p", mode=mode, window=[2, 2], stride=[2, 2],
           pre_padding=[0, 0], post_padding=[0, 0])
    image("p", filters, h // 2, w // 2, output=True)


pool_in_convolution("both", "bf16", 32, 64, 10, 12, images=2, both=True)
pool_in_convolution("residual", "f16", 16, 136, 8, 18, both=True, residual=True)
pool_in_convolution("columns", "bf16", 64, 72, 20, 36, pad=0)
pool_in_convolution("residual_alone", "bf16", 16, 136, 24, 18, images=2, residual=True)
pool_in_convolution("odd_rows", "bf16", 32, 64, 11, 12)
pool_in_convolution("average", "bf16", 32, 64, 10, 12, images=2, both=True, mode="avgpool_include_padding")
pool_in_convolution("average_residual", "f16", 16, 136, 8, 18, both=True, residual=True, mode="avgpool_exclude_padding")


def pools_in_a_row(name, io, c, r):
    """The largest of windows, of windows of these, and so on, all joined for a product."""
    g = Graph("pools_in_a_row_" + name, io)
    dim = [2, c, r, r]
    g.tensor("x", dim, stride=channels_last(dim))
    pools = ["x"]
    for i in range(3):
        pools.append(g.node("resample", {"X": pools[-1]}, f"pool_{i}", mode="maxpool", window=[5, 5], stride=[1, 1],
                            pre_padding=[2, 2], post_padding=[2, 2]))
    g.node("concatenate", {f"IN_{i}": t for i, t in enumerate(pools)}, "joined", axis=1)
    g.tensor("w", [8, 4 * c, 1, 1], stride=channels_last([8, 4 * c, 1, 1]))
    g.output(g.pointwise("swish_fwd", "y", g.conv("joined", "w", "product")))


pools_in_a_row("f16", "f16", 16, 9)
pools_in_a_row("bf16_odd", "bf16", 12, 7)
