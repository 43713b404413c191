"""Convolutions of few channels in eights, and volumes in groups."""
from corpus_convolution import directions

# Few channels whose runs begin at pieces of 16 bytes, one to eight apart: ldmatrix reads them.
for channels, filters, step in (8, 16, 1), (16, 16, 1), (24, 12, 1), (24, 24, 1), (32, 32, 1), (16, 32, 2), (8, 48, 3):
    directions(f"narrow_image_{channels}_to_{filters}_stride_{step}", [2, channels, 19, 42], [filters, channels, 3, 3], stride=[step, step],
               pre=[1, 1], which="f")
directions("narrow_image_40_channels", [2, 40, 12, 42], [16, 40, 2, 2], pre=[1, 1], which="f")
directions("narrow_image_gradient", [2, 16, 19, 42], [32, 16, 3, 3], pre=[1, 1], which="d")
directions("narrow_image_gradient_f16", [2, 24, 11, 40], [8, 24, 2, 4], pre=[0, 2], post=[1, 0], io="f16", which="d")
directions("narrow_image_infinite", [2, 16, 20, 40], [32, 16, 3, 3], pre=[1, 1], which="f", infinite=331)
directions("narrow_image_gradient_infinite", [2, 16, 20, 40], [16, 16, 3, 3], pre=[1, 1], which="d", infinite=331)
# Filter gradients of as many filters: one narrow group; of rows that are whole lines of joined pixels, and others. With
# SINTER_DEPTHWISE=mma, and the last one, whose parts are parts of an image, without.
for channels, width in (8, 48), (16, 76), (16, 41):
    directions(f"narrow_image_filter_{channels}_width_{width}", [2, channels, 11, width], [channels, channels, 3, 3], pre=[1, 1],
               which="w")
directions("narrow_image_filter_apart", [2, 16, 10, 40], [16, 16, 2, 5], pre=[0, 4], post=[1, 0], io="f16", which="w")
directions("narrow_image_filter_infinite", [2, 16, 10, 40], [16, 16, 3, 3], pre=[1, 1], which="w", infinite=331)
directions("narrow_image_filter_parts", [5, 16, 256, 64], [16, 16, 3, 3], pre=[1, 1], which="w")
# Volumes in groups, whose filters' lines are one dim of the map.
directions("3d_2_groups", [1, 128, 3, 4, 5], [128, 64, 3, 3, 3], pre=[1, 1, 1], groups=2, which="fd")
directions("3d_2_groups_stride_2", [2, 128, 4, 5, 6], [384, 64, 3, 3, 2], pre=[1, 1, 0], stride=[2, 2, 2], groups=2, which="fd")
directions("3d_3_groups_odd", [1, 144, 3, 5, 4], [120, 48, 2, 3, 3], pre=[1, 1, 1], groups=3, which="fd")
