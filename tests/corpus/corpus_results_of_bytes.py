"""Results of 8 bits that leave as they are summed, 8 bytes a lane, from tiles of many columns."""
from corpus_convolution import quantised
from corpus_graph import Graph


def product(name, io, m, n, k, results, batch=1, relu=True):
    g = Graph("bytes_" + name, io)
    g.tensor("a", [batch, m, k])
    g.tensor("b", [batch, k, n], stride=[k * n, 1, k])
    g.matmul("a", "b", "sums")
    y = "sums"
    if relu:
        g.pointwise("add", "shifted", "sums", g.tensor("bias", [1, 1, n], data_type="f32"))
        y = g.pointwise("relu_fwd", "y", "shifted")
    g.output(y, data_type=results)


product("of_f8", "f8e4m3", 1100, 1032, 32, "f8e4m3")
product("of_f8_sums", "f8e5m2", 1100, 1000, 32, "f8e5m2", relu=False)
product("of_bf16", "bf16", 2200, 520, 16, "f8e4m3")
product("of_batches", "bf16", 330, 264, 32, "i8", batch=12)
quantised("bytes_of_f8", "f8e4m3", [3, 32, 40, 37], [136, 32, 3, 3])
quantised("bytes_of_bf16", "bf16", [3, 64, 40, 38], [264, 64, 1, 1], pad=0, results="f8e4m3")
quantised("bytes_of_stride", "bf16", [6, 64, 40, 41], [328, 64, 3, 3], stride=2, results="f8e5m2")
