"""Convolutions of few channels in eights, and volumes in groups."""
from corpus_convolution import directions, image
from corpus_graph import Graph

# Few channels whose runs begin at pieces of 16 bytes, one to eight apart: ldmatrix reads them.
for channels, filters, step in (8, 16, 1), (16, 16, 1), (24, 12, 1), (24, 24, 1), (32, 32, 1), (16, 32, 2), (8, 48, 3):
    directions(f"narrow_image_{channels}_to_{filters}_stride_{step}", [2, channels, 19, 42], [filters, channels, 3, 3], stride=[step, step],
               pre=[1, 1], which="f")
directions("narrow_image_40_channels", [2, 40, 12, 42], [16, 40, 2, 2], pre=[1, 1], which="f")
directions("narrow_image_gradient", [2, 16, 19, 42], [32, 16, 3, 3], pre=[1, 1], which="d")
directions("narrow_image_gradient_f16", [2, 24, 11, 40], [8, 24, 2, 4], pre=[0, 2], post=[1, 0], io="f16", which="d")
directions("narrow_image_infinite", [2, 16, 20, 40], [32, 16, 3, 3], pre=[1, 1], which="f", infinite=331)
directions("narrow_image_gradient_infinite", [2, 16, 20, 40], [16, 16, 3, 3], pre=[1, 1], which="d", infinite=331)


def pixels_beside():
    """What differs from pixel to pixel beside the sums: residuals behind scale and bias, of parts of 64 filters,
    two of them, of strides; and a relu's gradient."""
    for name, x, filters, step, io, residuals in [
            ("residual", [2, 16, 19, 42], 16, 1, "bf16", 1), ("residual_40_filters", [2, 16, 19, 43], 40, 1, "f16", 1),
            ("residual_128_filters", [2, 32, 20, 40], 128, 1, "bf16", 1), ("two_residuals", [2, 8, 19, 42], 96, 2, "bf16", 2),
            ("two_residuals_24_filters", [3, 24, 9, 36], 24, 1, "bf16", 2)]:
        g = Graph("convolution_narrow_image_" + name, io)
        image(g, "x", x)
        image(g, "w", [filters, x[1], 3, 3])
        g.conv("x", "w", "c", pre_padding=[1, 1], post_padding=[1, 1], stride=[step, step])
        g.pointwise("mul", "scaled", "c", g.tensor("scale", [1, filters, 1, 1]))
        sums = g.pointwise("add", "biased", "scaled", g.tensor("bias", [1, filters, 1, 1]))
        dim = [x[0], filters, (x[2] - 1) // step + 1, (x[3] - 1) // step + 1]
        for i in range(residuals):
            image(g, f"residual_{i}", dim)
            sums = g.pointwise("add", f"sum_{i}", sums, f"residual_{i}")
        image(g, "y", dim, output=True)
        g.pointwise("relu_fwd", "y", sums)
    g = Graph("convolution_narrow_image_relu_gradient", "bf16")
    image(g, "dy", [2, 32, 19, 42])
    image(g, "w", [32, 16, 3, 3])
    image(g, "x", [2, 16, 19, 42])
    g.tensor("dx", [2, 16, 19, 42])
    g.node("conv_dgrad", {"DY": "dy", "W": "w"}, {"DX": "dx"}, pre_padding=[1, 1], post_padding=[1, 1])
    image(g, "dz", [2, 16, 19, 42], output=True)
    g.pointwise("relu_bwd", "dz", "dx", "x")


pixels_beside()
# Filter gradients of as many filters: one narrow group; of rows that are whole lines of joined pixels, and others. With
# SINTER_DEPTHWISE=mma, and the last one, whose parts are parts of an image, without.
for channels, width in (8, 48), (16, 76), (16, 41):
    directions(f"narrow_image_filter_{channels}_width_{width}", [2, channels, 11, width], [channels, channels, 3, 3], pre=[1, 1],
               which="w")
directions("narrow_image_filter_apart", [2, 16, 10, 40], [16, 16, 2, 5], pre=[0, 4], post=[1, 0], io="f16", which="w")
directions("narrow_image_filter_infinite", [2, 16, 10, 40], [16, 16, 3, 3], pre=[1, 1], which="w", infinite=331)
directions("narrow_image_filter_parts", [5, 16, 256, 64], [16, 16, 3, 3], pre=[1, 1], which="w")
# The same by warpgroups, of unlike numbers of channels and filters, and of strides: rows of several tiles of pixels, panels
# of 8 to 64 filters, pixels that fill half a line. With SINTER_DEPTHWISE=mma, and the last two, in parts, without.
for number, (x, w, attributes) in enumerate([
        ([2, 32, 9, 40], [32, 32, 3, 3], dict(pre=[1, 1])),
        ([2, 24, 11, 21], [24, 24, 3, 3], dict(pre=[1, 1], io="f16")),
        ([2, 16, 10, 150], [16, 16, 5, 5], dict(pre=[2, 2])),
        ([1, 32, 8, 20], [32, 32, 2, 4], dict(pre=[2, 1], post=[0, 3])),
        ([2, 16, 11, 37], [32, 16, 3, 3], dict(pre=[1, 1])),
        ([2, 48, 6, 20], [24, 48, 2, 2], dict(pre=[1, 0], post=[0, 1])),
        ([2, 16, 9, 40], [64, 16, 3, 3], dict(pre=[1, 1], stride=[2, 2])),
        ([2, 16, 12, 37], [16, 16, 5, 5], dict(pre=[2, 1], post=[1, 2], stride=[2, 2], io="f16")),
        ([1, 24, 9, 300], [8, 24, 3, 3], dict(pre=[1, 1], stride=[1, 2])),
        ([2, 8, 10, 18], [8, 8, 3, 3], dict(pre=[1, 1], stride=[2, 1])),
        ([2, 64, 7, 15], [32, 64, 2, 3], dict(pre=[1, 1])),
        ([3, 16, 17, 24], [40, 16, 4, 3], dict(pre=[0, 1], stride=[2, 1]))]):
    directions(f"narrow_channels_filter_{number}", x, w, which="w", **attributes)
for stride in 1, 2:
    directions(f"narrow_channels_filter_infinite_stride_{stride}", [2, 32, 10, 24], [32, 32, 3, 3], pre=[1, 1], stride=[stride, stride],
               which="w", infinite=331)
    directions(f"narrow_channels_filter_parts_stride_{stride}", [5, 32, 256, 64], [32, 32, 3, 3], pre=[1, 1], stride=[stride, stride],
               which="w")
# Those of few channels, whose runs begin anywhere: rows of several walks, panels of 8 to 64 filters and two of them, strides
# that leave rows out; without padding taps and channels of a row are one index. With
# SINTER_DEPTHWISE=mma, and the ones in parts without.
for number, (x, w, attributes) in enumerate([
        ([2, 3, 18, 24], [64, 3, 7, 7], dict(pre=[3, 3], stride=[2, 2])),
        ([3, 3, 9, 16], [48, 3, 3, 3], dict(pre=[1, 1])),
        ([1, 3, 5, 304], [16, 3, 3, 3], dict(pre=[1, 1], io="f16")),
        ([2, 1, 11, 32], [32, 1, 5, 3], dict(pre=[2, 1])),
        ([2, 1, 9, 40], [8, 1, 5, 5], dict(pre=[2, 2], stride=[2, 2])),
        ([2, 2, 8, 20], [72, 2, 3, 5], dict(pre=[1, 2], stride=[2, 1])),
        ([2, 4, 10, 14], [96, 4, 3, 3], dict(pre=[1, 1])),
        ([2, 5, 6, 16], [16, 5, 3, 3], dict(pre=[1, 1])),
        ([2, 3, 16, 16], [128, 3, 4, 4], dict(stride=[4, 4])),
        ([1, 3, 32, 32], [64, 3, 3, 3], dict(pre=[1, 1], stride=[4, 4])),
        ([2, 3, 28, 32], [48, 3, 6, 6], dict(pre=[2, 2], stride=[2, 2])),
        ([1, 3, 35, 40], [64, 3, 11, 11], dict(pre=[2, 2], stride=[4, 4])),
        ([2, 3, 9, 16], [16, 3, 3, 3], dict()),
        ([2, 1, 9, 24], [16, 1, 3, 5], dict(io="f16")),
        ([2, 3, 9, 16], [24, 3, 3, 4], dict(pre=[0, 2], post=[2, 1]))]):
    directions(f"narrow_runs_filter_{number}", x, w, which="w", **attributes)
for taps, stride in (3, 1), (7, 2):
    directions(f"narrow_runs_filter_infinite_stride_{stride}", [2, 3, 18, 24], [32, 3, taps, taps], pre=[taps // 2] * 2,
               stride=[stride, stride], which="w", infinite=331)
    directions(f"narrow_runs_filter_parts_stride_{stride}", [5, 3, 256, 64], [64, 3, taps, taps], pre=[taps // 2] * 2,
               stride=[stride, stride], which="w")
# Volumes in groups, whose filters' lines are one dim of the map.
directions("3d_2_groups", [1, 128, 3, 4, 5], [128, 64, 3, 3, 3], pre=[1, 1, 1], groups=2, which="fd")
directions("3d_2_groups_stride_2", [2, 128, 4, 5, 6], [384, 64, 3, 3, 2], pre=[1, 1, 0], stride=[2, 2, 2], groups=2, which="fd")
directions("3d_3_groups_odd", [1, 144, 3, 5, 4], [120, 48, 2, 3, 3], pre=[1, 1, 1], groups=3, which="fd")
