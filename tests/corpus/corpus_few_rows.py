"""Weights of 8 and 4 bits past few rows."""
from corpus_graph import Graph


def few_rows_narrow_weights(name, rows, n, k, value, block=0, scale="bf16", along_k=True, io="bf16"):
    """Weights of 8 or 4 bits past few rows: those along k stream, of others several steps wait in registers."""
    g = Graph("few_rows_" + name, io)
    g.tensor("x", [1, rows, k])
    w = {"stride": [n * k, 1, k]} if along_k else {}
    g.tensor("w", [1, k, n], data_type=value, **w)
    if block:
        g.tensor("s", [1, k // block, n], data_type=scale, **({"stride": [n * k // block, 1, k // block]} if along_k else {}))
        g.node("block_scale_dequantize", {"X": "w", "Scale": "s"}, "weights", block_size=block, axis=1)
        g.matmul("x", "weights", "y")
    else:
        g.tensor("s", [1, 1, n], data_type="f32")
        g.pointwise("mul", "y", g.matmul("x", "w", "sums"), "s")
    g.output("y")


few_rows_narrow_weights("i8", 5, 72, 1088, "i8")
few_rows_narrow_weights("u8_f16", 16, 1024, 4096, "u8", io="f16")
few_rows_narrow_weights("i8_blocks", 9, 1024, 4096, "i8", 32)
few_rows_narrow_weights("i8_across", 3, 1024, 4096, "i8", 64, along_k=False)
few_rows_narrow_weights("i8_odd_k", 4, 72, 1061, "i8")
few_rows_narrow_weights("mx_f4", 40, 1024, 4096, "f4e2m1", 32, "f8e8m0")
few_rows_narrow_weights("i8_half_lines", 33, 1000, 4160, "i8")
few_rows_narrow_weights("i8_pairs", 3, 8600, 576, "i8")
few_rows_narrow_weights("f8", 24, 136, 2048, "f8e4m3")
few_rows_narrow_weights("u8", 17, 72, 1152, "u8")

g = Graph("few_rows_i8_left", "bf16")  # weights times columns
g.tensor("w", [1, 1032, 4096], data_type="i8")
g.tensor("x", [1, 4096, 13], stride=[13 * 4096, 1, 4096])
g.tensor("s", [1, 1032, 1], data_type="f32")
g.pointwise("mul", "y", g.matmul("w", "x", "sums"), "s")
g.output("y")
