"""Convolutions of few filters, and data gradients of few channels, of which blocks of results are columns; filter gradients of few
filters, whose taps are rows beside them; depthwise convolutions of one tap."""
from corpus_convolution import directions, image_of_lines

directions("few_filters", [2, 40, 11, 13], [8, 40, 3, 3], pre=[1, 1])
directions("few_filters_1d", [3, 24, 61], [1, 24, 7], pre=[3], io="f16", which="fw")
directions("few_filters_stride_2", [2, 72, 17, 14], [8, 72, 5, 4], stride=[2, 1], pre=[2, 1], post=[2, 2], which="fw")
directions("few_filters_3d", [1, 32, 5, 6, 9], [8, 32, 3, 1, 3], pre=[1, 0, 1], which="fw")
directions("few_filters_tf32", [2, 36, 9, 10], [3, 36, 3, 3], io="f32", compute="tf32", pre=[1, 1], which="f")
# Without padding no window bounds the taps.
directions("few_filters_unpadded", [2, 32, 10, 12], [8, 32, 3, 3], which="fw")
directions("few_filters_dilation_2", [2, 24, 13, 11], [16, 24, 3, 3], dilation=[2, 2], pre=[2, 2], which="w")
directions("few_filters_lines", [2, 16, 9, 8], [1, 16, 3, 3], pre=[1, 1], lay=image_of_lines, which="fw")
# Zeros beside the taps of a copied filter meet them, and of a copied dy those of other pixels.
directions("few_filters_infinite", [2, 24, 9, 10], [5, 24, 3, 3], pre=[1, 1], which="f", infinite=331)
directions("24_filters_infinite", [2, 32, 10, 24], [24, 32, 3, 3], pre=[1, 1], which="w", infinite=331)
directions("48_channels_gradient", [2, 48, 9, 11], [64, 48, 5, 5], pre=[2, 2], which="d")
directions("24_channels_gradient_stride_2", [2, 24, 10, 13], [40, 24, 3, 3], stride=[2, 2], pre=[1, 1], which="d")
directions("3d_16_channels_gradient", [1, 16, 4, 5, 45], [24, 16, 3, 3, 3], pre=[1, 1, 1], which="d")
directions("3d_8_channels_gradient_stride_2", [1, 8, 4, 6, 18], [32, 8, 2, 3, 4], stride=[1, 2, 2], pre=[0, 1, 1], io="f16", which="d")
# A filter gradient in parts of one plane each, two planes of the image apart.
directions("3d_parts_of_planes", [2, 64, 16, 8, 8], [128, 64, 3, 1, 1], stride=[2, 1, 1], pre=[1, 0, 0], which="w")
# Sums of one product.
directions("depthwise_1x1", [2, 24, 5, 7], [24, 1, 1, 1], groups=24)
directions("depthwise_1x1_stride_2", [2, 12, 7, 6], [24, 1, 1, 1], groups=12, stride=[2, 2], io="f16", which="f")
directions("depthwise_1x1_i8", [2, 24, 5, 7], [24, 1, 1, 1], groups=24, io="i8", intermediate="i32", compute="i32", results="i32", which="fd")
directions("depthwise_1x1_padded", [2, 24, 5, 7], [24, 1, 1, 1], groups=24, stride=[2, 1], pre=[1, 0], post=[1, 2], which="fd")
