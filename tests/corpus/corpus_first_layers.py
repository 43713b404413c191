"""Convolutions of few channels in the forms that first layers and patches have: one channel, channels first, tf32."""
from corpus_convolution import directions, image, image_of_lines, quantised
from corpus_graph import Graph


def images_apart(g, name, dim, **fields):
    """Between lines of samples about half as much room as they take."""
    image(g, name, dim, **fields)
    if name == "x":
        g.tensors[name]["stride"][0] += dim[-1] // 16 * 8


# One channel has no index in any operand.
directions("spectrogram", [2, 1, 9, 14], [16, 1, 5, 3], stride=[2, 2], pre=[2, 1])
directions("samples", [2, 1, 60], [24, 1, 10], stride=[5], lay=image_of_lines, which="dw")
directions("spectrogram_infinite", [2, 1, 9, 14], [16, 1, 5, 3], stride=[2, 2], pre=[2, 1], which="f", infinite=23)
directions("few_channels_tf32", [2, 3, 12, 14], [16, 3, 5, 3], io="f32", compute="tf32", stride=[2, 2], pre=[2, 1], which="fd")
# Windows that lie side by side: each pixel of the gradient has one tap.
directions("patches", [2, 3, 16, 24], [16, 3, 8, 8], stride=[8, 8], which="d")
# Of few channels: rows and images that end behind the last patch, and zeros of the filter beside a patch's row.
directions("patches_of_4", [2, 3, 14, 72], [48, 3, 4, 4], stride=[4, 4], post=[0, 0], which="f")
directions("patches_of_4_infinite", [3, 3, 12, 72], [48, 3, 4, 4], stride=[4, 4], which="f", infinite=331)
# Without padding no window bounds the taps, of which those of a row are one index with the channels.
directions("unpadded_first_layer", [2, 3, 19, 21], [16, 3, 3, 3], stride=[2, 2], which="fw")
# Channels first, without padding: no window bounds the taps, which step within a stride.
directions("lines_2x2_stride_2", [2, 24, 10, 14], [40, 24, 2, 2], stride=[2, 2], lay=image_of_lines, which="w")
# Volumes, whose frames keep their phases while blocks of pixels are columns of a data gradient; and patches whose pixels are
# copied for their filter's gradient.
directions("first_layer_3d", [1, 3, 4, 14, 20], [24, 3, 3, 5, 5], stride=[1, 2, 2], pre=[1, 2, 2], which="d")
directions("first_layer_3d_odd", [2, 2, 3, 9, 13], [16, 2, 2, 3, 3], stride=[2, 1, 1], pre=[1, 1, 1], which="d")
directions("patches_filter", [2, 3, 32, 48], [72, 3, 8, 8], stride=[8, 8], which="w")
# 8 bits: pixels become f16 one pair at a time, and results leave 8 bytes at a time, or, of 32 bits, pair by pair.
quantised("first_layer_f8e4m3", "f8e4m3", [2, 3, 21, 48], [64, 3, 7, 7], stride=2, pad=3)
quantised("first_layer_f8e4m3_40_filters", "f8e4m3", [2, 3, 9, 32], [40, 3, 3, 3])
quantised("first_layer_f8e4m3_to_bf16", "f8e4m3", [1, 3, 9, 32], [24, 3, 3, 3], results="bf16")
quantised("first_layer_f8e5m2", "f8e5m2", [1, 2, 9, 24], [128, 2, 3, 3], stride=2)
quantised("first_layer_f8e4m3_160_filters", "f8e4m3", [1, 1, 9, 64], [160, 1, 5, 5], stride=2, pad=2)
quantised("first_layer_to_f8e4m3", "bf16", [1, 3, 9, 32], [96, 3, 3, 3], stride=2, results="f8e4m3")
quantised("first_layer_i8", "i8", [2, 3, 9, 32], [24, 3, 3, 3])
quantised("first_layer_u8", "u8", [2, 3, 9, 32], [24, 3, 3, 3], weights="i8")
quantised("first_layer_u8_stride_2", "u8", [2, 3, 21, 48], [64, 3, 7, 7], stride=2, pad=3)
# Each second of twice as many scales and biases.
quantised("first_layer_i8_scales_apart", "i8", [2, 3, 9, 32], [32, 3, 3, 3], scales_apart=2)
quantised("first_layer_f8e4m3_scales_apart", "f8e4m3", [1, 3, 9, 32], [32, 3, 5, 5], stride=2, pad=2, results="f16", scales_apart=3)
quantised("patches_f8e4m3", "f8e4m3", [2, 3, 16, 32], [96, 3, 4, 4], stride=4, pad=0)
directions("first_layer_i8_sums", [2, 4, 9, 20], [48, 4, 3, 3], io="i8", intermediate="i32", compute="i32", results="i32", pre=[1, 1], which="f")
directions("first_layer_f8e4m3_infinite", [2, 3, 20, 48], [20, 3, 5, 3], io="f8e4m3", results="f32", stride=[2, 1], pre=[1, 1], which="f",
           infinite=331)
# Volumes and lines of pixels that are read as they lie: a group of rows has those of all frames that the filter sees.
directions("frames_1_channel", [2, 1, 5, 9, 40], [32, 1, 3, 3, 3], pre=[1, 1, 1], which="f")
directions("frames_4_channels", [1, 4, 4, 10, 20], [24, 4, 3, 3, 3], pre=[1, 1, 1], which="f")
directions("frames_3_channels_stride_2", [2, 3, 6, 11, 24], [48, 3, 3, 3, 5], stride=[2, 2, 2], pre=[1, 1, 2], post=[0, 1, 2], which="f")
directions("frames_8_channels", [1, 8, 4, 9, 18], [16, 8, 3, 3, 3], pre=[1, 1, 1], which="fd")
directions("frames_1_tap", [2, 3, 3, 9, 24], [40, 3, 1, 5, 3], stride=[1, 2, 1], pre=[0, 2, 1], which="f")
directions("frames_infinite", [2, 2, 4, 7, 24], [12, 2, 3, 3, 3], pre=[1, 1, 1], which="f", infinite=331)
directions("row_of_samples", [2, 1, 200], [32, 1, 7], pre=[3], which="f")
directions("row_of_samples_unpadded", [2, 1, 400], [96, 1, 10], stride=[5], which="f")
directions("row_of_2_channels", [1, 2, 120], [24, 2, 9], stride=[2], pre=[4], post=[0], which="f")
# Images further apart than their samples are many, up to where they lie as rows of one do.
directions("row_of_samples_apart", [3, 1, 200], [32, 1, 7], pre=[3], which="f", lay=images_apart)
directions("row_of_4_channels", [3, 4, 72], [40, 4, 5], pre=[2], which="fd")
# f32 that may be rounded to tf32, one element a register.
directions("few_channels_tf32_lines", [2, 3, 21, 24], [40, 3, 7, 7], io="f32", compute="tf32", stride=[2, 2], pre=[3, 3], which="f")
directions("few_channels_tf32_odd", [2, 3, 9, 20], [24, 3, 3, 3], io="f32", compute="tf32", pre=[1, 0], post=[0, 2], which="f")
directions("few_channels_tf32_16", [1, 16, 9, 18], [16, 16, 3, 3], io="f32", compute="tf32", pre=[1, 1], which="fd")
directions("frames_tf32", [1, 2, 5, 9, 20], [16, 2, 3, 3, 3], io="f32", compute="tf32", pre=[1, 1, 1], which="f")
directions("few_channels_tf32_infinite", [2, 3, 20, 40], [44, 3, 5, 3], io="f32", compute="tf32", stride=[2, 1], pre=[1, 1], which="f",
           infinite=331)


def results_of_lines(g, name, dim, **fields):
    (image_of_lines if name == "y" else image)(g, name, dim, **fields)


# Channels first: 16 neighbouring results of a filter are 32 bytes. Of the image, which lies so in the first one, a copy is read.
directions("first_layer_of_lines", [4, 3, 128, 128], [32, 3, 3, 3], pre=[1, 1], lay=image_of_lines, which="f")
directions("first_layer_to_lines", [2, 3, 21, 48], [64, 3, 7, 7], stride=[2, 2], pre=[3, 3], lay=results_of_lines, which="f")
directions("first_layer_to_lines_160_filters", [1, 2, 9, 64], [160, 2, 3, 3], pre=[1, 1], lay=results_of_lines, which="f")
directions("few_channels_to_lines", [2, 16, 9, 40], [32, 16, 3, 3], io="f16", pre=[1, 1], lay=results_of_lines, which="f")
directions("patches_to_lines", [2, 3, 16, 96], [48, 3, 4, 4], stride=[4, 4], lay=results_of_lines, which="f")
directions("frames_to_lines", [2, 2, 4, 9, 24], [16, 2, 3, 3, 3], pre=[1, 1, 1], lay=results_of_lines, which="f")
directions("first_layer_to_lines_infinite", [2, 3, 12, 40], [40, 3, 5, 3], stride=[2, 1], pre=[1, 1], lay=results_of_lines, which="f", infinite=331)
g = Graph("convolution_first_layer_to_lines_scale_bias_relu", "bf16", "f32", "f32")
image(g, "x", [3, 3, 18, 72])
g.tensor("w", [24, 3, 3, 3])
g.conv("x", "w", "sums", stride=[2, 1], pre_padding=[1, 1], post_padding=[1, 1], dilation=[1, 1])
for n in ("scale", "bias"):
    g.tensor(n, [1, 24, 1, 1], data_type="f32")
g.pointwise("mul", "scaled", "sums", "scale")
g.pointwise("add", "shifted", "scaled", "bias")
g.pointwise("relu_fwd", "y", "shifted")
g.output("y")
