"""Convolutions with strides: pixels of a stride that are joined."""
from corpus_convolution import directions

# Few channels, joined where they lie; filters copied for blocks of a data gradient's pixels.
directions("infinite_32_channels_stride_2_gradient", [2, 32, 14, 18], [72, 32, 3, 3], stride=[2, 2],
           pre=[1, 1], which="d", infinite=4993)
directions("24_channels_3d_stride_2", [2, 24, 5, 8, 10], [40, 24, 3, 3, 3], stride=[2, 2, 2],
           pre=[1, 1, 1], io="f16")
