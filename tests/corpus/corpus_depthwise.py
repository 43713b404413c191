"""What leaves depthwise convolutions on tensor cores: results of other types, epilogues that read tensors."""
from corpus_convolution import directions, image
from corpus_graph import Graph

# With SINTER_DEPTHWISE=mma on sm_90a: results of 32 and 8 bits in boxes, channels and rows that end anywhere.
directions("depthwise_two_rows_f32", [5, 40, 13, 27], [40, 1, 7, 7], pre=[3, 3], groups=40, which="fd", results="f32",
           infinite=97)
directions("depthwise_two_rows_f8", [3, 48, 13, 14], [48, 1, 7, 7], pre=[3, 3], groups=48, which="fd", results="f8e4m3")
directions("depthwise_1d_taps_f32", [3, 40, 90], [40, 1, 19], pre=[9], groups=40, results="f32", which="fd")


def depthwise_residuals():
    """One tensor that lies like the result, which comes to where that waits; another type; two, for which threads store."""
    for name, io, type_of, count in (("residual", "bf16", None, 1), ("residual_f32", "bf16", "f32", 1),
                                     ("two_residuals", "f16", None, 2)):
        g = Graph("convolution_depthwise_" + name, io)
        dim = [5, 40, 15, 27]
        image(g, "x", dim)
        image(g, "w", [40, 1, 7, 7])
        g.tensor("bias", [1, 40, 1, 1])
        g.conv("x", "w", "c", pre_padding=[3, 3], post_padding=[3, 3], groups=40)
        g.pointwise("add", "s0", "c", "bias")
        for i in range(count):
            image(g, f"r{i}", dim, **({"data_type": type_of} if type_of else {}))
            g.pointwise("add", f"s{i + 1}", f"s{i}", f"r{i}")
        g.pointwise("relu_fwd", "y", f"s{count}")
        image(g, "y", dim, output=True, **({"data_type": type_of} if type_of else {}))


depthwise_residuals()
