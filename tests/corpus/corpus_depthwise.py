"""What leaves depthwise convolutions on tensor cores: results of other types, epilogues that read tensors."""
from corpus_convolution import directions, image
from corpus_graph import Graph

# With SINTER_DEPTHWISE=mma on sm_90a: results of 32 and 8 bits in boxes, channels and rows that end anywhere.
directions("depthwise_two_rows_f32", [5, 40, 13, 27], [40, 1, 7, 7], pre=[3, 3], groups=40, which="fd", results="f32",
           infinite=97)
directions("depthwise_two_rows_f8", [3, 48, 13, 14], [48, 1, 7, 7], pre=[3, 3], groups=48, which="fd", results="f8e4m3")
# A thread block's walk goes on from one image to the next.
directions("depthwise_images_7x7", [13, 32, 9, 27], [32, 1, 7, 7], pre=[3, 3], groups=32, which="fd", infinite=97)
directions("depthwise_images_of_7_tiles", [5, 32, 10, 51], [32, 1, 7, 7], pre=[3, 3], groups=32, which="fd", infinite=97)
directions("depthwise_images_5x5", [17, 32, 6, 30], [32, 1, 5, 5], pre=[2, 2], groups=32, which="fd")
directions("depthwise_images_of_3_rows", [17, 32, 3, 30], [32, 1, 7, 5], pre=[3, 2], groups=32, which="fd")
directions("depthwise_images_dilated", [17, 32, 7, 30], [32, 1, 3, 3], pre=[2, 2], dilation=[2, 2], groups=32, which="fd")
directions("depthwise_images_padded_above", [17, 32, 7, 30], [32, 1, 5, 5], pre=[3, 2], post=[1, 2], groups=32, which="fd")
directions("depthwise_1d_taps_f32", [3, 40, 90], [40, 1, 19], pre=[9], groups=40, results="f32", which="fd")


def depthwise_residuals():
    """Up to three tensors that lie like the result, of which the first that is as wide comes to where that waits; four, for
    which pixels do not come by TMA."""
    for name, io, types, results in (("residual", "bf16", ["bf16"], "bf16"), ("residual_f32", "bf16", ["f32"], "f32"),
                                     ("residual_wider", "bf16", ["f32"], "bf16"), ("two_residuals", "f16", ["f16"] * 2, "f16"),
                                     ("three_residuals", "bf16", ["f8e4m3", "bf16", "f32"], "bf16"),
                                     ("two_narrower", "f16", ["f16"] * 2, "f32"), ("four_residuals", "bf16", ["bf16"] * 4, "bf16")):
        g = Graph("convolution_depthwise_" + name, io)
        channels = 48 if "f8e4m3" in types else 40  # whole pieces of 16 bytes
        dim = [5, channels, 15, 27]
        type_of = lambda t: {} if t == io else {"data_type": t}
        image(g, "x", dim)
        image(g, "w", [channels, 1, 7, 7])
        g.tensor("bias", [1, channels, 1, 1])
        g.conv("x", "w", "c", pre_padding=[3, 3], post_padding=[3, 3], groups=channels)
        g.pointwise("add", "s0", "c", "bias")
        for i, t in enumerate(types):
            image(g, f"r{i}", dim, **type_of(t))
            g.pointwise("add", f"s{i + 1}", f"s{i}", f"r{i}")
        g.pointwise("relu_fwd", "y", f"s{len(types)}")
        image(g, "y", dim, output=True, **type_of(results))


depthwise_residuals()


def depthwise_residual_of_lines():
    """Tiles that reach over the lines of 36 results: what they would read beside these lies past the kernel's memory."""
    g = Graph("convolution_depthwise_residual_of_lines", "bf16")
    dim = [19, 64, 1, 36]
    image(g, "x", dim)
    image(g, "w", [64, 1, 1, 11])
    g.tensor("bias", [1, 64, 1, 1])
    image(g, "r", dim, data_type="f32")
    g.conv("x", "w", "c", pre_padding=[0, 5], post_padding=[0, 5], groups=64)
    g.pointwise("add", "biased", "c", "bias")
    g.pointwise("add", "sum", "biased", "r")
    g.pointwise("relu_fwd", "y", "sum")
    image(g, "y", dim, output=True)


depthwise_residual_of_lines()
