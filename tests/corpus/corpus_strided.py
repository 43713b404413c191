"""Convolutions with strides: pixels of a stride that are joined; volumes. Channels first, what is rearranged once its channels lie
together, with SINTER_REARRANGE=first on small shapes."""
from corpus_convolution import directions, image_of_lines
from corpus_graph import Graph

# Few channels, joined where they lie; filters copied for blocks of a data gradient's pixels.
directions("infinite_32_channels_stride_2_gradient", [2, 32, 14, 18], [72, 32, 3, 3], stride=[2, 2],
           pre=[1, 1], which="d", infinite=4993)
directions("24_channels_3d_stride_2", [2, 24, 5, 8, 10], [40, 24, 3, 3, 3], stride=[2, 2, 2],
           pre=[1, 1, 1], io="f16")
# Boxes of frames, with SINTER_DEPTHWISE=rows; its data gradient's frames have phases.
directions("depthwise_3d_strided", [2, 48, 7, 8, 9], [48, 1, 5, 3, 2], stride=[2, 1, 2], dilation=[1, 2, 1],
           pre=[2, 2, 1], post=[1, 2, 0], groups=48, io="f16", which="fd")


def gradient_channels_first_and_residual():
    """Sums that lie with their channels together, and a bias and a residual behind them."""
    g = Graph("convolution_channels_first_stride_2_residual", "bf16")
    g.tensor("dy", [3, 64, 9, 11])
    g.tensor("w", [64, 72, 3, 3])
    g.tensor("dx", [3, 72, 18, 21])
    g.tensor("bias", [1, 72, 1, 1])
    g.tensor("residual", [3, 72, 18, 21])
    g.node("conv_dgrad", {"DY": "dy", "W": "w"}, {"DX": "dx"}, groups=1, pre_padding=[1, 1], post_padding=[1, 1],
           stride=[2, 2], dilation=[1, 1])
    g.pointwise("add", "sum", g.pointwise("add", "biased", "dx", "bias"), "residual")
    g.output("sum")


gradient_channels_first_and_residual()

directions("channels_first_patches", [2, 3, 16, 24], [24, 3, 4, 4], stride=[4, 4], lay=image_of_lines, which="d")
directions("channels_first_3_filters", [2, 64, 9, 16], [3, 64, 3, 3], pre=[1, 1], lay=image_of_lines, which="f")
directions("channels_first_1_filter", [2, 40, 9, 16], [1, 40, 3, 3], pre=[1, 1], lay=image_of_lines, which="fd")
directions("channels_first_volume_stride_1_2_2", [1, 3, 4, 12, 10], [16, 3, 3, 7, 7], stride=[1, 2, 2], pre=[1, 3, 3], io="f16",
           lay=image_of_lines, which="d")
directions("channels_first_volume_stride_2", [1, 32, 4, 6, 16], [24, 32, 3, 3, 3], stride=[2, 2, 2], pre=[1, 1, 1],
           lay=image_of_lines, which="fd")


def gradient_of_25_filters():
    """No copy makes whole pieces of 16 bytes of 25 filters."""
    g = Graph("convolution_channels_first_25_filters", "f16")
    g.tensor("dy", [1, 25, 1, 2])
    g.tensor("x", [1, 16, 2, 6], stride=[192, 1, 96, 16])
    g.node("conv_wgrad", {"DY": "dy", "X": "x"}, {"DW": "dw"}, pre_padding=[0, 1], post_padding=[0, 0], stride=[1, 4],
           dilation=[1, 1])
    g.output("dw", dim=[25, 16, 2, 2])


gradient_of_25_filters()
