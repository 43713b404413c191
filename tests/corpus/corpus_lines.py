"""Depthwise convolutions of 16-bit numbers, channels first, that run on tensor cores."""
from corpus_convolution import directions, image_of_lines

# Rows, planes and tiles that end anywhere; two multiplications a tile; odd numbers of results.
directions("depthwise_channels_first_7x7", [5, 6, 11, 38], [6, 1, 7, 7], pre=[3, 2], post=[3, 4], groups=6, infinite=97,
           which="fd", lay=image_of_lines)
directions("depthwise_channels_first_19_taps", [3, 10, 9, 66], [10, 1, 2, 19], pre=[1, 9], post=[0, 9], groups=10, io="f16",
           which="fd", lay=image_of_lines)
directions("depthwise_channels_first_stride_2", [3, 6, 12, 30], [6, 1, 5, 4], stride=[2, 2], pre=[2, 1], post=[1, 2],
           groups=6, which="f", lay=image_of_lines)
