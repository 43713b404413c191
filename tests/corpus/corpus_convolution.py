"""Convolutions in all three directions, channels last: windows, strides and phases, groups."""
from corpus_graph import Graph


def channels_last(dim):
    stride, size = [0] * len(dim), 1
    for axis in [1, *range(len(dim) - 1, 1, -1), 0]:
        stride[axis], size = size, size * dim[axis]
    return stride


def image(g, name, dim, **fields):
    return g.tensor(name, dim, stride=channels_last(dim), **fields)


def image_of_lines(g, name, dim, **fields):
    """Channels outermost, as PyTorch's default is."""
    return g.tensor(name, dim, **fields)


def directions(name, x, w, io="bf16", stride=None, pre=None, post=None, dilation=None, groups=1,
               mode="cross_correlation", which="fdw", lay=image, intermediate="f32", compute="f32",
               results=None, infinite=None):
    """Forward, data gradient and filter gradient of one convolution; `lay`: how tensors lie;
    `results`: their type; `infinite`: every so manyth element of the image, or of dy where there is
    none, is infinite or NaN."""
    spatial = len(x) - 2
    stride, dilation = stride or [1] * spatial, dilation or [1] * spatial
    pre = pre or [0] * spatial
    post = post or pre
    g = Graph("convolution_" + name, io, intermediate, compute)
    result = {"output": True, **({"data_type": results} if results else {})}
    lay(g, "x", x)
    lay(g, "w", w)
    y = [x[0], w[0]] + [
        (x[i + 2] + pre[i] + post[i] - (w[i + 2] - 1) * dilation[i] - 1) // stride[i] + 1
        for i in range(spatial)
    ]
    attributes = {"stride": stride, "pre_padding": pre, "post_padding": post, "dilation": dilation,
                  "mode": mode}
    if groups > 1:
        attributes["groups"] = groups
    lay(g, "dy", y)
    if "f" in which:
        g.conv("x", "w", "y", **attributes)
        lay(g, "y", y, **result)
    if "d" in which:
        g.node("conv_dgrad", {"DY": "dy", "W": "w"}, {"DX": "dx"}, **attributes)
        lay(g, "dx", x, **result)
    if "w" in which:
        g.node("conv_wgrad", {"DY": "dy", "X": "x"}, {"DW": "dw"}, **attributes)
        lay(g, "dw", w, **result)
    for unused, needs in {"x": "fw", "w": "fd", "dy": "dw"}.items():
        if not set(needs) & set(which):
            del g.tensors[unused]
    if infinite:
        make_infinite(g, "x" if "x" in g.tensors else "dy", infinite)


def make_infinite(g, name, every):
    """Those of channels that lie together; what a convolution reads is stored first."""
    dim = g.tensors[name]["dim"]
    place = "channel"
    image(g, "finite", dim)
    g.pointwise("gen_index", "channel", "finite", axis=1)
    step = dim[1]
    for axis in range(len(dim) - 1, 1, -1):
        g.value(f"step_{axis}", float(step))
        g.pointwise("gen_index", f"index_{axis}", "finite", axis=axis)
        g.pointwise("mul", f"first_{axis}", f"index_{axis}", f"step_{axis}")
        place = g.pointwise("add", f"place_{axis}", place, f"first_{axis}")
        step *= dim[axis]
    g.value("every", float(every))
    g.value("half", 0.5)
    g.pointwise("mod", "rest", place, "every")
    g.pointwise("cmp_gt", "stays", "rest", "half")
    g.pointwise("div", name, "finite", "stays")
    image(g, name, dim, output=True)


directions("3x3", [3, 64, 13, 11], [72, 64, 3, 3], pre=[1, 1])
# One filter: the result has no index of channels.
directions("one_filter", [2, 192, 19, 23], [1, 192, 3, 3], pre=[1, 1], which="f")
directions("one_filter_f8", [2, 256, 18, 17], [1, 256, 3, 3], io="f8e4m3", pre=[1, 1], which="f", results="f32")
directions("3x3_stride_2", [2, 64, 14, 15], [64, 64, 3, 3], stride=[2, 2], pre=[1, 1])
directions("1x1_stride_2", [2, 64, 10, 12], [128, 64, 1, 1], stride=[2, 2])
directions("dilated_flipped", [2, 72, 12, 10], [64, 72, 3, 2], io="f16", pre=[3, 0], post=[1, 2],
           dilation=[2, 3], mode="convolution")
directions("unpadded", [2, 64, 9, 9], [64, 64, 3, 3])
directions("unpadded_stride_2", [2, 64, 9, 11], [64, 64, 3, 3], stride=[2, 2], which="fw")


def quantised(name, io, x, w, stride=1, pad=1, results=None, weights=None, scales_apart=1):
    """Forward of 8-bit numbers with a scale and a bias of each channel, relu, and 8-bit results, or `results`."""
    integers = io in ("i8", "u8")
    g = Graph("convolution_" + name, io, "f32", "i32" if integers else "f32")
    image(g, "x", x)
    image(g, "w", w, **({"data_type": weights} if weights else {}))
    y = [x[0], w[0], *[(e + 2 * pad - f) // stride + 1 for e, f in zip(x[2:], w[2:])]]
    g.tensor("sums", y, data_type="i32" if integers else "f32")
    g.conv("x", "w", "sums", stride=[stride] * 2, pre_padding=[pad] * 2, post_padding=[pad] * 2, dilation=[1, 1])
    for n in ("scale", "bias"):
        g.tensor(n, [1, w[0], 1, 1], data_type="f32", **({"stride": [w[0] * scales_apart, scales_apart, 1, 1]} if scales_apart > 1 else {}))
    g.pointwise("mul", "scaled", "sums", "scale", compute_data_type="f32")
    g.pointwise("add", "shifted", "scaled", "bias", compute_data_type="f32")
    g.pointwise("relu_fwd", "y", "shifted", compute_data_type="f32")
    image(g, "y", y, output=True, **({"data_type": results} if results else {}))


quantised("i8_quantised", "i8", [2, 64, 9, 7], [48, 64, 3, 3])
quantised("f8e4m3_quantised", "f8e4m3", [2, 80, 7, 9], [64, 80, 3, 3])
# Types whose products on sm_90a have channels fastest: lines of 32 or 128 channels that end within one.
directions("tf32", [2, 40, 9, 11], [72, 40, 3, 3], io="f32", compute="tf32", pre=[1, 1])
directions("tf32_stride_2", [2, 64, 9, 10], [40, 64, 3, 2], io="f32", compute="tf32", stride=[2, 2], pre=[1, 0], which="fd")
directions("tf32_1x1", [2, 36, 10, 12], [64, 36, 1, 1], io="f32", compute="tf32", stride=[2, 1], which="f")
# f32 that tensor cores multiply in parts, six times as many channels or images.
directions("f32_parts", [3, 24, 9, 7], [16, 24, 3, 3], pre=[1, 1], io="f32")
directions("f32_parts_uneven", [2, 20, 9, 7], [16, 20, 3, 2], stride=[2, 2], pre=[1, 0], io="f32", which="f")
directions("f32_parts_unpadded", [3, 16, 6, 8], [24, 16, 3, 2], io="f32", which="w")
directions("f32_parts_stride_2", [2, 24, 9, 7], [16, 24, 3, 3], stride=[2, 2], pre=[1, 1], io="f32")
directions("f8e4m3", [2, 144, 9, 7], [64, 144, 3, 3], io="f8e4m3", results="f32", pre=[1, 1], which="fd")
directions("f8e5m2_stride_2", [2, 128, 9, 8], [80, 128, 3, 2], io="f8e5m2", results="f32", stride=[2, 2], pre=[1, 1], which="fd")
directions("i8", [2, 144, 9, 7], [64, 144, 3, 3], io="i8", intermediate="i32", compute="i32", results="i32", pre=[1, 1], which="f")


def filter_gradient(name, x, w, io="f32", **more):
    """Types whose filter gradients on sm_90a have images fastest, or rows of the images' pixels."""
    integers = io == "i8"
    types = {"compute": "i32" if integers else "tf32" if io == "f32" else "f32",
             "intermediate": "i32" if integers else "f32",
             "results": None if io == "f32" else "i32" if integers else "f32"}
    directions(("tf32" if io == "f32" else io) + "_filter_gradient" + name, x, w, io=io, which="w", **types, **more)


filter_gradient("", [36, 64, 4, 5], [40, 64, 3, 3], pre=[1, 1])
filter_gradient("", [33, 32, 3, 4], [48, 32, 3, 3], io="f8e4m3", pre=[1, 1])
filter_gradient("", [20, 64, 3, 4], [48, 64, 3, 3], io="i8", pre=[1, 1])
filter_gradient("_stride_2", [6, 40, 5, 6], [24, 40, 3, 2], stride=[2, 1], dilation=[1, 2], pre=[1, 0])
filter_gradient("_groups", [8, 64, 4, 5], [64, 32, 3, 3], stride=[1, 2], groups=2, pre=[1, 1])
filter_gradient("_unpadded", [6, 24, 5, 6], [32, 24, 3, 2])
filter_gradient("_1x1", [5, 64, 6, 5], [16, 64, 1, 1], stride=[2, 2])
filter_gradient("_rows", [4, 40, 5, 11], [32, 40, 3, 3], stride=[2, 1], dilation=[1, 2], pre=[1, 1])
filter_gradient("_rows", [16, 32, 4, 9], [24, 32, 3, 3], io="i8", pre=[1, 1])
filter_gradient("_3d", [4, 32, 3, 4, 5], [32, 16, 2, 3, 3], groups=2, pre=[1, 1, 1])
# Their sums are cut in parts.
filter_gradient("_parts", [32, 32, 16, 16], [8, 32, 3, 3], pre=[1, 1])
filter_gradient("_parts_of_rows", [4, 32, 16, 64], [8, 32, 3, 3], stride=[2, 1], pre=[1, 1])
# Channels first: pixels lie together as they are, and images are one more dim of the maps.
filter_gradient("_lines", [3, 24, 8, 16], [40, 24, 1, 1], io="f8e4m3", lay=image_of_lines)
filter_gradient("_lines", [2, 24, 8, 16], [40, 24, 3, 1], lay=image_of_lines, pre=[1, 0])
filter_gradient("_lines", [3, 16, 4, 6, 16], [24, 16, 2, 3, 1], io="i8", lay=image_of_lines, pre=[1, 1, 0], post=[0, 1, 0])
# Depthwise filter gradients: lines of an odd number of 16 bytes, walks that skip rows beside the image, steps of several rows.
for name, x, w, more in [("144_channels", [5, 144, 9, 20], [144, 1, 3, 3], {"pre": [1, 1]}),
                         ("72_channels", [6, 72, 7, 37], [72, 1, 3, 3], {"pre": [1, 1], "io": "f16"}),
                         ("uneven", [4, 72, 9, 18], [72, 1, 4, 3], {"pre": [1, 1], "post": [2, 1]}),
                         ("5x5", [7, 40, 10, 37], [40, 1, 5, 5], {"pre": [2, 2]}),
                         ("3x5", [4, 40, 8, 34], [40, 1, 3, 5], {"pre": [0, 2], "post": [1, 2]}),
                         ("7x7", [5, 40, 11, 37], [40, 1, 7, 7], {"pre": [2, 3], "post": [3, 2]}),
                         ("wide_padding", [5, 64, 6, 20], [64, 1, 3, 3], {"pre": [4, 1]})]:
    directions("depthwise_gradient_" + name, x, w, groups=x[1], which="w", **more)
directions("depthwise_gradient_groups_of_8", [6, 72, 9, 17], [72, 8, 3, 3], groups=9, which="w", pre=[1, 1])
directions("7x7_stride_2", [2, 16, 21, 20], [64, 16, 7, 7], stride=[2, 2], pre=[3, 3])
directions("3x1", [2, 64, 18, 21], [64, 64, 3, 1], pre=[1, 0])
directions("5x5_stride_3", [1, 64, 20, 17], [64, 64, 5, 5], stride=[3, 3], pre=[2, 1], which="f")
directions("stride_3_of_2", [2, 64, 11, 9], [64, 64, 2, 2], stride=[3, 3])
directions("stride_2_dilation_2", [2, 64, 12, 11], [64, 64, 3, 3], stride=[2, 2],
           dilation=[2, 2], pre=[2, 2])
directions("1d_causal", [3, 64, 50], [128, 64, 4], pre=[6], post=[0], dilation=[2])
directions("1d_stride_4", [2, 64, 66], [64, 64, 5], pre=[2], stride=[4])
directions("3d", [2, 64, 5, 6, 7], [64, 64, 3, 3, 3], pre=[1, 1, 1])
directions("3d_stride_2", [1, 32, 6, 7, 5], [64, 32, 3, 2, 3], pre=[1, 0, 1], stride=[2, 1, 2])
directions("2_groups", [2, 128, 8, 9], [128, 64, 3, 3], pre=[1, 1], groups=2)
directions("one_image", [1, 64, 20, 17], [64, 64, 3, 3], pre=[1, 1])
directions("one_line", [4, 64, 1, 40], [64, 64, 1, 3], pre=[0, 1])
# Few channels whose rows are whole pieces of 16 bytes.
directions("few_channels", [3, 3, 24, 40], [64, 3, 7, 7], stride=[2, 2], pre=[3, 3], which="f")
directions("few_channels_odd", [2, 3, 9, 40], [48, 3, 3, 3], pre=[1, 0], post=[0, 2], io="f16", which="f")
directions("few_channels_tiles", [1, 4, 6, 34], [320, 4, 3, 3], pre=[1, 1], which="f")
directions("few_channels_apart", [2, 1, 17, 40], [13, 1, 2, 5], stride=[3, 2], pre=[0, 1], which="f")
directions("few_channels_tall", [1, 1, 1700, 16], [16, 1, 3, 3], pre=[1, 1], which="f")
directions("few_channels_infinite", [2, 3, 20, 40], [44, 3, 5, 3], stride=[2, 1], pre=[1, 1], which="f", infinite=331)
# Zeros beside the taps of a copied filter meet them, or those beside an image's results.
directions("infinite_first_layer", [2, 3, 38, 42], [64, 3, 7, 7], stride=[2, 2], pre=[3, 3],
           which="f", infinite=449)
directions("infinite_first_layer_gradient", [2, 3, 38, 42], [64, 3, 7, 7], stride=[2, 2], pre=[3, 3],
           which="d", infinite=9537)
directions("infinite_32_channels_stride_2", [3, 32, 14, 18], [72, 32, 3, 3], stride=[2, 2],
           pre=[1, 1], which="f", infinite=993)
for direction in "fd":
    directions("infinite_groups_" + direction, [2, 64, 10, 12], [64, 16, 3, 3], groups=4, pre=[1, 1],
               which=direction, infinite=1985)
directions("infinite_filter_gradient", [3, 64, 9, 11], [64, 64, 3, 3], pre=[1, 1], which="w",
           infinite=704)
directions("few_outputs", [4, 64, 12, 12], [8, 64, 3, 3], pre=[1, 1])
directions("24_channels", [2, 24, 12, 12], [64, 24, 3, 3], pre=[1, 1])
# Pixels of a stride that are joined where they lie: padded to either side, of several strides.
directions("32_channels_stride_2", [2, 32, 13, 12], [72, 32, 3, 3], stride=[2, 2], pre=[1, 1])
directions("24_channels_5_taps_stride_2", [2, 24, 11, 14], [40, 24, 5, 5], io="f16", stride=[2, 2],
           pre=[2, 2], post=[1, 3], which="f")
directions("32_channels_1d_stride_2", [3, 32, 40], [64, 32, 4], stride=[2], pre=[3], post=[0],
           which="f")
# Few channels, which join neighbouring pixels.
directions("first_layer", [2, 3, 38, 42], [32, 3, 7, 7], stride=[2, 2], pre=[3, 3])
directions("first_layer_odd", [2, 3, 41, 39], [32, 3, 3, 5], stride=[2, 2], pre=[1, 2])
directions("one_channel", [2, 1, 40, 36], [32, 1, 3, 3], pre=[1, 1])
directions("5_channels_stride_3", [2, 5, 36, 35], [32, 5, 4, 4], stride=[3, 3], pre=[1, 0])
directions("audio", [2, 1, 800], [64, 1, 10], stride=[5], pre=[3])

# Channels that are not summed over.
directions("depthwise_3x3", [2, 144, 13, 11], [144, 1, 3, 3], pre=[1, 1], groups=144)
directions("depthwise_7x7", [2, 64, 15, 14], [64, 1, 7, 7], pre=[3, 3], groups=64)
directions("depthwise_stride_2", [2, 72, 14, 15], [72, 1, 3, 3], stride=[2, 2], pre=[1, 1],
           groups=72, io="f16")
directions("depthwise_stride_3_dilation_2", [2, 40, 17, 16], [40, 1, 3, 2], stride=[3, 2],
           dilation=[2, 3], pre=[2, 1], post=[1, 3], groups=40, mode="convolution")
directions("depthwise_1d_causal", [2, 96, 70], [96, 1, 4], pre=[3], post=[0], groups=96)
directions("depthwise_3d", [2, 32, 5, 6, 7], [32, 1, 3, 3, 3], pre=[1, 1, 1], groups=32)
directions("depthwise_large_filter", [1, 32, 20, 24], [32, 1, 13, 13], pre=[6, 6], groups=32)
directions("depthwise_odd_channels", [2, 37, 9, 10], [37, 1, 3, 3], pre=[1, 1], groups=37)
directions("depthwise_f32", [2, 24, 9, 10], [24, 1, 5, 5], pre=[2, 2], groups=24, io="f32")
directions("depthwise_walk", [12, 64, 30, 29], [64, 1, 3, 3], pre=[1, 1], groups=64)
directions("depthwise_many_images", [135, 108, 4, 5], [108, 1, 3, 3], stride=[2, 1], pre=[1, 1], groups=108)
directions("depthwise_lines", [3, 24, 30, 28], [24, 1, 3, 3], pre=[1, 1], groups=24,
           lay=image_of_lines)
directions("depthwise_lines_stride_2", [3, 24, 30, 27], [24, 1, 5, 3], stride=[2, 2], pre=[2, 1],
           groups=24, lay=image_of_lines)
directions("depthwise_unpadded", [3, 24, 12, 14], [24, 1, 3, 3], groups=24)
directions("depthwise_multiplier", [2, 16, 9, 10], [32, 1, 3, 3], pre=[1, 1], groups=16)
# With SINTER_DEPTHWISE=mma on tensor cores: tiles and channels that end anywhere, padding unlike on
# both sides and wider than the filter, steps and dilation of one dim, walks over several images.
directions("depthwise_tiles", [3, 40, 11, 19], [40, 1, 5, 5], pre=[1, 3], post=[2, 0], groups=40,
           io="f16", which="fd")
directions("depthwise_tiles_dilated", [2, 24, 13, 37], [24, 1, 3, 3], dilation=[2, 2], pre=[2, 2],
           groups=24, which="fd")
directions("depthwise_tiles_stride_2", [5, 18, 15, 21], [18, 1, 4, 3], stride=[2, 1], pre=[2, 1],
           post=[1, 0], groups=18, mode="convolution", which="fd")
directions("depthwise_tiles_wide_padding", [2, 36, 6, 9], [36, 1, 3, 3], pre=[5, 4], post=[1, 6],
           groups=36, which="f")
directions("depthwise_tiles_of_images", [20, 24, 15, 8], [24, 1, 3, 3], pre=[1, 1], groups=24,
           which="f")
directions("depthwise_tiles_of_images_9x9", [20, 64, 12, 20], [64, 1, 9, 9], pre=[4, 4], groups=64,
           which="f")
# On sm_90a two rows of the image at once: odd numbers of rows and planes, columns and channels that end anywhere.
directions("depthwise_two_rows", [3, 32, 13, 27], [32, 1, 7, 7], pre=[3, 3], groups=32, which="fd")
directions("depthwise_two_rows_dilated", [5, 32, 11, 14], [32, 1, 4, 3], dilation=[2, 2], pre=[2, 1], post=[3, 2],
           groups=32, io="f16", which="fd")
# On sm_90a: filters' gradients of two tiles a row, of channels and rows that end anywhere; of several walks, one tile each.
directions("depthwise_gradient_tiles", [3, 40, 11, 37], [40, 1, 7, 7], pre=[2, 3], post=[3, 2], groups=40, which="w")
directions("depthwise_gradient_walks", [5, 72, 10, 34], [72, 1, 5, 8], pre=[1, 0], post=[0, 4], groups=72, io="f16",
           which="w")
# On sm_90a groups that lie in units of 8 channels: rows, channels and images that end in a tile, filters that end in a pair of taps.
directions("narrow_groups_of_4", [3, 24, 9, 37], [24, 4, 3, 3], pre=[1, 1], groups=6, which="fd")
directions("narrow_groups_of_2", [5, 80, 7, 13], [80, 2, 3, 2], pre=[2, 1], post=[0, 0], groups=40, io="f16", which="fd")
directions("narrow_groups_of_8", [2, 72, 8, 19], [72, 8, 2, 3], dilation=[2, 2], pre=[0, 2], post=[1, 2], groups=9,
           which="fd")
# Their filters' gradients: odd numbers of tiles and taps, several walks, groups of several units, single channels.
directions("narrow_gradient_groups_of_4", [3, 24, 11, 37], [24, 4, 3, 3], pre=[1, 1], groups=6, which="w")
directions("narrow_gradient_groups_of_2", [2, 80, 10, 69], [80, 2, 2, 4], pre=[2, 1], post=[0, 0], groups=40, io="f16",
           which="w")
directions("narrow_gradient_groups_of_8", [5, 72, 14, 17], [72, 8, 5, 3], pre=[0, 2], post=[1, 2], groups=9, which="w")
directions("narrow_gradient_groups_of_16", [4, 80, 7, 14], [80, 16, 3, 3], pre=[1, 1], groups=5, which="w")
directions("narrow_gradient_groups_of_32", [6, 96, 7, 7], [96, 32, 3, 3], pre=[1, 1], groups=3, which="w")
# Of one row, so that image after image is a row of pixels, 434 coordinates further.
directions("depthwise_gradient_one_row", [9, 7, 2, 31], [7, 1, 2, 2], stride=[1, 4], groups=7, io="f16",
           lay=image_of_lines, which="w")
directions("depthwise_gradient_units", [3, 40, 11, 23], [40, 1, 3, 3], pre=[1, 2], post=[1, 0], groups=40, which="w")
# Several filters of a channel, groups of unlike widths, on CUDA cores: channels and pixels together, steps,
# dilation, a third dim; the gradient of a long line in parts.
directions("depthwise_multiplier_lines", [2, 12, 9, 16], [24, 1, 3, 3], pre=[1, 1], groups=12, lay=image_of_lines)
directions("depthwise_multiplier_of_3", [3, 10, 9, 11], [30, 1, 3, 2], stride=[2, 1], pre=[1, 1], post=[1, 0],
           groups=10, io="f16")
directions("depthwise_multiplier_of_4", [2, 9, 8, 10], [36, 1, 3, 3], dilation=[1, 2], pre=[1, 2], groups=9, io="f32")
directions("depthwise_groups_4_to_8", [2, 24, 9, 10], [48, 4, 3, 3], pre=[1, 1], groups=6, io="f32")
directions("depthwise_groups_6_to_3_lines", [2, 24, 9, 11], [12, 6, 3, 2], stride=[1, 2], pre=[1, 0], groups=4,
           lay=image_of_lines)
directions("depthwise_groups_4_to_1", [2, 20, 7, 9], [5, 4, 3, 3], pre=[1, 1], groups=5, io="f32")
directions("depthwise_groups_3d", [2, 12, 3, 4, 5], [24, 3, 2, 3, 3], pre=[1, 1, 1], post=[0, 1, 1], groups=4, io="f32")
directions("depthwise_1d_31_taps", [2, 24, 90], [24, 1, 31], pre=[15], groups=24, io="f32")
# With SINTER_DEPTHWISE=mma tiles of two to four multiplications: lines and channels that end anywhere, dilation.
directions("depthwise_1d_taps", [3, 72, 150], [72, 1, 31], pre=[15], groups=72, which="fd")
directions("depthwise_1d_taps_dilated", [2, 40, 70], [40, 1, 25], pre=[48], post=[0], dilation=[2], groups=40, io="f16",
           mode="convolution", which="fd")
directions("depthwise_1d_taps_infinite", [5, 32, 100], [32, 1, 27], pre=[12], post=[15], groups=32, infinite=97,
           which="f")
directions("depthwise_1d_stride_2", [3, 48, 41], [48, 1, 5], stride=[2], pre=[2], post=[1], groups=48, which="fd")
directions("depthwise_1d_parts", [2, 40, 2048], [40, 1, 4], pre=[3], post=[0], groups=40)
directions("depthwise_31x31", [1, 16, 12, 13], [16, 1, 31, 31], pre=[15, 15], groups=16, which="f")
# 8-bit numbers, whose products and their sums f32 holds.
directions("depthwise_f8e4m3", [2, 40, 9, 10], [40, 1, 3, 3], pre=[1, 1], groups=40, io="f8e4m3", results="f32")
directions("depthwise_f8e5m2_stride_2", [2, 36, 9, 10], [36, 1, 5, 3], stride=[2, 2], pre=[2, 1], groups=36,
           io="f8e5m2", results="bf16")
directions("depthwise_i8", [2, 40, 9, 10], [40, 1, 3, 3], pre=[1, 1], groups=40, io="i8", intermediate="i32",
           compute="i32", results="i32")
directions("depthwise_i8_lines_multiplier", [2, 6, 9, 16], [12, 1, 3, 3], pre=[1, 1], groups=6, io="i8",
           intermediate="i32", compute="i32", results="i32", lay=image_of_lines, which="f")
# Channels first, whole planes in shared memory: rows of any length, channels and images that end in a tile, results
# that begin anywhere, steps, dilation and phases, walks in several parts, one dim, groups, 8 bits.
for name, x, w, more in [
        ("7x7", [5, 24, 7, 7], [24, 1, 3, 3], {"pre": [1, 1]}),
        ("7x7_of_7", [3, 40, 7, 7], [40, 1, 7, 7], {"pre": [3, 3], "io": "f16"}),
        ("14x14", [3, 20, 14, 14], [20, 1, 5, 5], {"pre": [2, 2]}),
        ("13x11_stride_2", [3, 24, 13, 11], [24, 1, 3, 3], {"stride": [2, 2], "pre": [1, 1]}),
        ("uneven", [2, 16, 9, 15], [16, 1, 4, 3], {"stride": [1, 2], "pre": [2, 0], "post": [0, 3], "dilation": [2, 1]}),
        ("stride_3", [2, 16, 10, 12], [16, 1, 3, 2], {"stride": [3, 3], "pre": [1, 1], "mode": "convolution"}),
        ("wide_padding", [2, 16, 5, 6], [16, 1, 3, 3], {"pre": [4, 1], "post": [1, 5]}),
        ("f32", [3, 12, 9, 10], [12, 1, 3, 3], {"pre": [1, 1], "io": "f32"}),
        ("1d", [3, 16, 21], [16, 1, 4], {"pre": [3], "post": [0]}),
        ("many", [37, 24, 7, 7], [24, 1, 3, 3], {"pre": [1, 1]}),
        ("infinite", [3, 16, 7, 9], [16, 1, 3, 3], {"pre": [1, 1], "infinite": 97}),
        ("f8e4m3", [2, 16, 7, 7], [16, 1, 3, 3], {"pre": [1, 1], "io": "f8e4m3", "results": "bf16"}),
        ("i8", [2, 16, 6, 8], [16, 1, 3, 3],
         {"pre": [1, 1], "io": "i8", "intermediate": "i32", "compute": "i32", "results": "i32"}),
        ("multiplier", [3, 8, 7, 6], [24, 1, 3, 3], {"pre": [1, 1], "groups": 8}),
        ("groups_of_4", [3, 32, 7, 7], [32, 4, 3, 3], {"pre": [1, 1], "groups": 8}),
        ("groups_6_to_3_stride_2", [2, 48, 9, 10], [24, 6, 3, 3], {"stride": [2, 2], "pre": [1, 1], "groups": 8})]:
    # Filter gradients: those whose groups have a channel each.
    directions("depthwise_planes_" + name, x, w, lay=image_of_lines, which="fd" + ("w" if "groups" not in more else ""),
               **{"groups": x[1], **more})


# 1 x 1 with a stride, channels first: put together in memory, pixels that have no products apart.
directions("1x1_stride_2_lines", [2, 24, 7, 9], [40, 24, 1, 1], stride=[2, 2], lay=image_of_lines)
# Channels first in groups of several channels, which are put together in memory for tensor cores.
for name, x, w, more in [
        ("of_4", [2, 32, 6, 7], [32, 4, 3, 3], {"groups": 8, "infinite": 97}),
        ("16_to_8_stride_2", [2, 64, 9, 8], [32, 16, 3, 3], {"groups": 4, "stride": [2, 2], "io": "f16"})]:
    directions("groups_of_lines_" + name, x, w, lay=image_of_lines, pre=[1, 1], post=[0, 1], **more)


def groups_of_lines_bias():
    g = Graph("convolution_groups_of_lines_bias", "bf16")
    g.tensor("x", [3, 32, 7, 9])
    g.tensor("w", [32, 8, 3, 3])
    g.tensor("bias", [1, 32, 1, 1])
    g.conv("x", "w", "c", pre_padding=[1, 1], post_padding=[1, 1], groups=4)
    g.pointwise("add", "biased", "c", "bias")
    g.pointwise("relu_fwd", "y", "biased")
    g.output("y")


groups_of_lines_bias()


def depthwise_planes_epilogues():
    """Channels first: results that need numbers of their channel, and of their pixel, of their own size and not."""
    for name, io, dim, of_pixels, more in [
            ("bias", "bf16", [3, 24, 7, 10], False, {}), ("residual", "bf16", [3, 24, 7, 10], True, {}),
            ("residual_7x7", "f16", [5, 24, 7, 7], True, {}),
            ("residual_f32", "bf16", [3, 24, 7, 7], True, {"data_type": "f32"})]:
        g = Graph("convolution_depthwise_planes_" + name, io)
        g.tensor("x", dim)
        g.tensor("w", [24, 1, 3, 3])
        g.tensor("bias", [1, 24, 1, 1])
        g.conv("x", "w", "c", pre_padding=[1, 1], post_padding=[1, 1], groups=24)
        g.pointwise("add", "biased", "c", "bias")
        if of_pixels:
            g.tensor("residual", dim, **more)
            g.pointwise("add", "sum", "biased", "residual")
        g.pointwise("relu_fwd", "y", "sum" if of_pixels else "biased")
        g.output("y")
    g = Graph("convolution_depthwise_planes_relu_backward", "bf16")
    g.tensor("dy", [3, 24, 4, 5])
    g.tensor("w", [24, 1, 3, 3])
    g.tensor("x", [3, 24, 7, 10])
    g.tensor("dx", [3, 24, 7, 10])
    g.node("conv_dgrad", {"DY": "dy", "W": "w"}, {"DX": "dx"}, stride=[2, 2], pre_padding=[1, 1], post_padding=[1, 1],
           groups=24)
    g.pointwise("relu_bwd", "dz", "dx", "x")
    g.output("dz")


depthwise_planes_epilogues()


def depthwise_results_of_lines():
    """The image's channels last, the results' first: threads that store have none beside each other."""
    g = Graph("convolution_depthwise_results_of_lines", "bf16")
    image(g, "x", [3, 16, 7, 9])
    g.tensor("w", [16, 1, 3, 3])
    g.conv("x", "w", "y", pre_padding=[1, 1], post_padding=[1, 1], groups=16)
    g.output("y")


depthwise_results_of_lines()
# Groups of few channels, which are joined.
directions("groups_of_4", [2, 128, 15, 14], [128, 4, 3, 3], pre=[1, 1], groups=32)
directions("groups_of_16_stride_2", [3, 128, 15, 14], [256, 16, 3, 3], stride=[2, 2], pre=[1, 1],
           groups=8)
directions("groups_of_24", [2, 72, 13, 12], [144, 24, 3, 3], groups=3)
# Channels of a group that fill no lines: the rest of the last holds those of the next group, which
# meets zeros past the filter. Phases, one dim, joined groups of such, a filter that lies otherwise, other types.
directions("groups_of_56", [2, 168, 9, 11], [168, 56, 3, 3], pre=[1, 1], groups=3, which="fd")
directions("groups_of_112_stride_2", [2, 224, 8, 9], [112, 112, 3, 3], stride=[2, 2], pre=[1, 1], groups=2, io="f16", which="fd")
directions("groups_of_16_in_threes", [2, 144, 8, 9], [144, 16, 3, 3], pre=[1, 1], groups=9, which="fd")
directions("groups_of_80_1d", [3, 160, 70], [96, 80, 5], pre=[2], groups=2, which="fd")
directions("groups_of_40_tf32", [2, 120, 8, 9], [72, 40, 3, 3], pre=[1, 1], groups=3, io="f32", compute="tf32", which="fd")
directions("groups_of_80_f8e4m3", [2, 160, 8, 9], [96, 80, 3, 3], pre=[1, 1], groups=2, io="f8e4m3", results="f32", which="f")
for direction in "fd":
    directions("infinite_groups_of_72_" + direction, [2, 144, 10, 12], [144, 72, 3, 3], groups=2, pre=[1, 1],
               which=direction, infinite=1985)
# The same channels first: channels of all groups are put together before these are joined.
directions("groups_of_4_channels_first", [2, 64, 9, 16], [64, 4, 3, 3], pre=[1, 1], groups=16, lay=image_of_lines)
directions("groups_of_12_channels_first", [2, 48, 9, 7], [96, 12, 3, 3], pre=[1, 1], groups=4, io="f16", lay=image_of_lines)
directions("groups_of_16_channels_first", [3, 144, 8, 9], [144, 16, 3, 3], pre=[1, 1], groups=9, lay=image_of_lines)
directions("groups_of_32_channels_first", [2, 128, 9, 8], [128, 32, 3, 3], stride=[2, 2], pre=[1, 1], groups=4, lay=image_of_lines)
directions("groups_of_56_channels_first", [2, 112, 8, 9], [168, 56, 3, 3], pre=[1, 1], groups=2, lay=image_of_lines)
# Operands that TMA cannot walk over as they lie.
directions("channels_first", [4, 64, 14, 13], [72, 64, 3, 3], pre=[1, 1], lay=image_of_lines)
directions("channels_first_stride_2", [4, 40, 15, 13], [64, 40, 3, 3], stride=[2, 2], pre=[1, 1],
           lay=image_of_lines)
directions("odd_channels", [3, 36, 12, 11], [44, 36, 3, 3], pre=[1, 1])
directions("1x1_stride_3", [2, 64, 12, 15], [72, 64, 1, 1], stride=[3, 3])


def depthwise_block():
    """ConvNeXt's beginning: a depthwise filter with bias, and a gate that is read in rows."""
    g = Graph("convolution_depthwise_block", "bf16")
    image(g, "x", [2, 64, 14, 13])
    image(g, "w", [64, 1, 7, 7])
    g.tensor("bias", [1, 64, 1, 1])
    image(g, "gate", [2, 64, 14, 13])
    g.conv("x", "w", "c", pre_padding=[3, 3], post_padding=[3, 3], groups=64)
    g.pointwise("add", "biased", "c", "bias")
    g.pointwise("mul", "gated", "biased", "gate")
    g.pointwise("swish_fwd", "y", "gated")
    image(g, "y", [2, 64, 14, 13], output=True)


depthwise_block()


def depthwise_conformer():
    """A Conformer's convolution with bias, activation and residual, and again with what belongs to channels alone."""
    g = Graph("convolution_depthwise_1d_block", "bf16")
    image(g, "x", [2, 64, 100])
    image(g, "w", [64, 1, 31])
    g.tensor("bias", [1, 64, 1])
    for name in ("c", "d"):
        g.conv("x" if name == "c" else "y", "w", name, pre_padding=[15], post_padding=[15], groups=64)
        g.pointwise("add", f"{name}_biased", name, "bias")
        g.pointwise("swish_fwd", f"{name}_active", f"{name}_biased")
    g.pointwise("add", "y", "c_active", "x")
    image(g, "y", [2, 64, 100], output=True)
    image(g, "d_active", [2, 64, 100], output=True)


depthwise_conformer()


def depthwise_scale_bias():
    """What the epilogue loads belongs to a channel; the last thread block has few channels."""
    g = Graph("convolution_depthwise_scale_bias", "bf16")
    image(g, "x", [3, 40, 11, 19])
    image(g, "w", [40, 1, 5, 5])
    g.tensor("scale", [1, 40, 1, 1], data_type="f32")
    g.tensor("bias", [1, 40, 1, 1])
    g.conv("x", "w", "c", pre_padding=[2, 2], post_padding=[2, 2], groups=40)
    g.pointwise("mul", "scaled", "c", "scale")
    g.pointwise("add", "biased", "scaled", "bias")
    g.pointwise("relu_fwd", "y", "biased")
    image(g, "y", [3, 40, 11, 19], output=True)


depthwise_scale_bias()


def epilogue():
    """Scale, bias, residual, relu behind a convolution, and the sums of a batch norm."""
    g = Graph("convolution_epilogue", "bf16")
    image(g, "x", [2, 64, 12, 12])
    image(g, "w", [96, 64, 3, 3])
    for t in ("scale", "bias"):
        g.tensor(t, [1, 96, 1, 1])
    image(g, "residual", [2, 96, 12, 12])
    g.conv("x", "w", "c", pre_padding=[1, 1], post_padding=[1, 1])
    g.pointwise("mul", "scaled", "c", "scale")
    g.pointwise("add", "biased", "scaled", "bias")
    g.pointwise("add", "sum", "biased", "residual")
    g.pointwise("relu_fwd", "y", "sum")
    image(g, "y", [2, 96, 12, 12], output=True)


epilogue()


def statistics():
    """A convolution with the sums and sums of squares of each channel."""
    g = Graph("convolution_statistics", "bf16")
    image(g, "x", [2, 64, 12, 13])
    image(g, "w", [64, 64, 3, 3])
    g.conv("x", "w", "c", pre_padding=[1, 1], post_padding=[1, 1])
    g.pointwise("mul", "square", "c", "c")
    g.reduction("add", "c", "sum", [1, 64, 1, 1])
    g.reduction("add", "square", "squares", [1, 64, 1, 1])
    g.pointwise("identity", "y", "c")
    image(g, "y", [2, 64, 12, 13], output=True)
    g.output("sum", "squares", data_type="f32")


statistics()
