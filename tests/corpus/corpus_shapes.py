"""Types, layouts and forms of graphs that test the library more than a model would."""
from corpus_graph import Graph


def fp8_matmul():
    """Both operands in f8 with one scale each; the result scaled, biased and its amax kept."""
    g = Graph("fp8_matmul", "f8e4m3")
    g.tensor("a", [1, 64, 128])
    g.tensor("b", [1, 128, 96], stride=[12288, 1, 128])
    for t in ("scale_a", "scale_b", "scale_c"):
        g.tensor(t, [1, 1, 1], data_type="f32")
    g.matmul("a", "b", "product")
    g.pointwise("mul", "scaled_a", "product", "scale_a")
    g.pointwise("mul", "scaled", "scaled_a", "scale_b")
    g.pointwise("relu_fwd", "act", "scaled")
    g.reduction("amax", "act", "amax", [1, 1, 1])
    g.pointwise("mul", "c", "act", "scale_c")
    g.output("c")
    g.output("amax", data_type="f32")


fp8_matmul()


def block_scaled_linear(name, value, scale, block):
    """Quantised by blocks along the contraction and read back, as in MX and NVFP4 inference."""
    g = Graph("block_scaled_" + name, "bf16")
    g.tensor("x", [32, 128])
    g.tensor("w", [64, 128], data_type=value)
    g.tensor("w_scale", [64, 128 // block], data_type=scale)
    g.node("block_scale_quantize", {"X": "x"}, {"Y": "xq", "Scale": "x_scale"}, block_size=block,
           axis=-1)
    g.tensor("xq", data_type=value)
    g.tensor("x_scale", data_type=scale)
    g.node("block_scale_dequantize", {"X": "xq", "Scale": "x_scale"}, "xd", block_size=block)
    g.node("block_scale_dequantize", {"X": "w", "Scale": "w_scale"}, "wd", block_size=block)
    g.transpose("wd", "wt", [1, 0])
    g.matmul("xd", "wt", "y")
    g.output("y")


block_scaled_linear("mx_f8", "f8e4m3", "f8e8m0", 32)
block_scaled_linear("nv_f4", "f4e2m1", "f8e4m3", 16)


def integer_logic():
    g = Graph("integer_logic", "i32", "i32", "i32")
    g.tensor("a", [7, 33])
    g.tensor("b", [33])
    g.tensor("wide", [7, 33], data_type="i64")
    g.tensor("flag", [7, 1], data_type="bool")
    g.pointwise("cmp_gt", "greater", "a", "b")
    g.tensor("greater", data_type="bool")
    g.pointwise("logical_and", "both", "greater", "flag")
    g.pointwise("logical_not", "neither", "both")
    g.pointwise("binary_select", "picked", "a", "wide", "both")
    g.pointwise("mod", "rest", "picked", g.value("seven", 7, "i32"))
    g.reduction("add", "rest", "total", [7, 1])
    g.output("picked", "neither", data_type="i64")
    g.output("total")
    g.output("both", data_type="bool")


integer_logic()


def amax_and_scalars():
    g = Graph("amax_and_scalars", "f16")
    g.tensor("x", [5, 7, 65])
    g.tensor("gain", [1], data_type="f32")
    for mode in ("amax", "max", "min", "avg", "norm2"):
        g.reduction(mode, "x", mode, [1, 1, 1])
        g.output(mode, data_type="f32")
    g.pointwise("div", "normal", "x", "amax")
    g.pointwise("mul", "y", "normal", "gain")
    g.output("y")


amax_and_scalars()


# ---- shapes of graphs


def dropout_chain():
    g = Graph("dropout_chain", "f32")
    g.tensor("x", [6, 5, 31])
    g.tensor("residual", [6, 5, 31])
    g.tensor("seed", [1], data_type="i64")
    offset = g.value("offset", 12345678901, "i64")
    g.tensor("keep", [6, 5, 31])
    g.node("rng", {"Seed": "seed", "Offset": offset}, "keep", distribution="bernoulli",
           probability=0.75)
    g.tensor("noise", [6, 5, 31])
    g.node("rng", {"Seed": "seed", "Offset": g.value("zero", 0, "i32")}, "noise",
           distribution="normal", stddev=0.1)
    g.pointwise("mul", "kept", "x", "keep")
    g.pointwise("mul", "scaled", "kept", g.value("inverse", 1 / 0.75))
    g.pointwise("add", "noisy", "scaled", "noise")
    g.pointwise("add", "y", "noisy", "residual")
    g.output("y")
    g.output("keep", data_type="u8")


dropout_chain()


def long_chain():
    g = Graph("long_chain_500", "f32")
    last = g.tensor("x", [3, 50])
    g.tensor("step", [50])
    modes = ["add", "tanh_fwd", "mul", "relu_fwd", "sub"]
    for i in range(500):
        mode = modes[i % 5]
        out = "y" if i == 499 else f"v{i}"
        if mode in ("tanh_fwd", "relu_fwd"):
            last = g.pointwise(mode, out, last)
        else:
            last = g.pointwise(mode, out, last, "step")
    g.output("y", "v100", "v333")


long_chain()


def wide_concatenate():
    g = Graph("concatenate_100", "f16")
    inputs = {}
    for i in range(100):
        inputs[f"IN_{i}"] = g.tensor(f"part{i}", [2, 1 + i % 4, 3])
    g.node("concatenate", inputs, "y", axis=1)
    g.output("y")


wide_concatenate()


def multi_output():
    """Diamonds and intermediates that the caller sees, two components and a node nobody reads."""
    g = Graph("multi_output", "f32")
    g.tensor("x", [8, 48])
    g.tensor("w", [48, 24])
    g.tensor("lonely", [3, 3])
    g.matmul("x", "w", "h")
    g.pointwise("tanh_fwd", "left", "h")
    g.pointwise("sigmoid_fwd", "right", "h")
    g.pointwise("mul", "joined", "left", "right")
    g.reduction("add", "joined", "by_row", [8, 1])
    g.reduction("max", "joined", "by_column", [1, 24])
    g.pointwise("sub", "centred", "joined", "by_row")
    g.pointwise("mul", "square", "centred", "centred")
    g.pointwise("exp", "unread", "h")
    g.pointwise("abs", "other", "lonely")
    g.output("left", "joined", "by_row", "by_column", "square", "other")


multi_output()


def zero_extents(name, io):
    g = Graph(name, io)
    g.tensor("a", [2, 0, 5])
    g.tensor("b", [1, 5, 7])
    g.matmul("a", "b", "empty_rows")
    g.tensor("c", [3, 0])
    g.tensor("d", [0, 4])
    g.matmul("c", "d", "no_terms")
    for mode in ("add", "mul", "max", "min", "amax", "avg"):
        g.reduction(mode, "c", mode, [3, 1])
        g.output(mode, data_type="f32")
    g.tensor("image", [1, 2, 2, 2])
    g.tensor("filter", [2, 2, 3, 3])
    g.conv("image", "filter", "too_small")
    g.output("empty_rows", "no_terms", "too_small")


zero_extents("zero_extents", "f16")
zero_extents("zero_extents_f32", "f32")  # whose products tensor cores may take in parts


def strided_layouts():
    g = Graph("strided_layouts", "f32")
    g.tensor("rows", [6, 10], stride=[16, 1])
    g.tensor("columns", [6, 10], stride=[1, 7])
    g.tensor("broadcast", [6, 10], stride=[0, 1])
    g.tensor("windows", [6, 10], stride=[2, 1])
    g.tensor("one", [1, 10], stride=[3331333, 2])
    g.pointwise("add", "s1", "rows", "columns")
    g.pointwise("add", "s2", "s1", "broadcast")
    g.pointwise("mul", "s3", "s2", "windows")
    g.pointwise("add", "y", "s3", "one")
    g.transpose("y", "t", [1, 0])
    g.output("y", stride=[1, 6])
    g.output("t", stride=[20, 3])


strided_layouts()


def small_matrices():
    """Many small matrices that are turned around, several of them in one tile: loads and stores that
    lie across the others, matrices that do not follow one another or that start anywhere, counts
    that tiles do not divide."""
    g = Graph("small_matrices", "bf16")
    g.tensor("x", [1549, 16, 40])
    g.tensor("r", [1, 40, 16])
    g.transpose("x", "t", [0, 2, 1])
    g.output(g.pointwise("add", "y", "t", "r"))

    g = Graph("small_matrices_apart", "f32")
    g.tensor("x", [97, 11, 17, 32], stride=[11300, 1024, 32, 1])
    g.transpose("x", "t", [0, 1, 3, 2])
    g.output(g.pointwise("relu_fwd", "y", "t"))

    g = Graph("small_matrices_odd", "i8", "f32", "f32")
    g.tensor("x", [1031, 1, 33, 17])
    g.output(g.transpose("x", "y", [0, 1, 3, 2]))

    g = Graph("small_matrices_odd_index", "bf16", "f32", "f32")
    g.tensor("x", [300, 33, 35])
    g.transpose("x", "t", [0, 2, 1])
    g.pointwise("gen_index", "index", "t", axis=2)
    g.output(g.pointwise("add", "y", "t", "index"))

    g = Graph("small_matrices_odd_sum", "bf16")
    g.tensor("x", [1201, 17, 23])
    g.tensor("z", [1201, 23, 17], data_type="f32")
    g.transpose("x", "t", [0, 2, 1])
    g.output(g.pointwise("add", "y", "t", "z"))


small_matrices()


def odd_rows():
    """Rows that start anywhere in memory: parts of odd widths that are joined, windows of rows and
    what rows share, in results whose packs start elsewhere."""
    g = Graph("odd_rows_joined", "bf16")
    for t, width in (("a", 251), ("b", 130), ("c", 7)):
        g.tensor(t, [3, 5, width])
    g.output(g.node("concatenate", {"IN_0": "a", "IN_1": "b", "IN_2": "c"}, "abc", axis=2))

    g = Graph("odd_rows_sliced", "f16")
    g.tensor("x", [11, 400])
    g.tensor("z", [11, 131])
    g.tensor("scale", [11, 1], data_type="f32")
    g.tensor("bias", [1, 131])
    g.slice("x", "even", [0, 3], [11, 259])
    g.output(g.pointwise("neg", "y_even", "even"))
    g.slice("x", "odd", [0, 269], [11, 400])
    g.pointwise("mul", "scaled", "odd", "scale")
    g.pointwise("add", "biased", "scaled", "bias")
    g.output(g.pointwise("add", "y_odd", "biased", "z"), data_type="f32")

    g = Graph("odd_rows_narrow", "i8", "f32", "f32")
    g.tensor("x", [9, 1000], data_type="f32", stride=[1003, 1])
    g.tensor("z", [9, 1000], stride=[1007, 1])
    g.output(g.pointwise("add", "y", "x", "z"), stride=[1013, 1])


odd_rows()


def rows_to_f32():
    """What is written takes more memory than what is read, along the rows and across them."""
    g = Graph("rows_to_f32", "bf16")
    g.tensor("even", [17, 520])
    g.tensor("odd", [19, 1003])
    g.tensor("narrow", [33, 528], data_type="f8e4m3")
    g.tensor("middle", [3, 70, 48])
    for x, axis in (("even", -1), ("odd", -1), ("narrow", -1), ("middle", 1)):
        g.output(g.node("softmax", {"X": x}, f"{x}_y", axis=axis), data_type="f32")


rows_to_f32()


def odd_columns():
    """Columns of matrices whose rows start anywhere in memory: sums of several inputs, along a
    middle axis, where the last packs are no whole ones, and in two steps."""
    g = Graph("odd_columns", "bf16")
    g.tensor("x", [37, 4261])
    g.tensor("z", [37, 4261], data_type="f32")
    g.tensor("scale", [37, 1], data_type="f32")
    g.tensor("bias", [1, 4261])
    g.pointwise("mul", "scaled", "x", "scale")
    g.pointwise("add", "biased", "scaled", "bias")
    g.pointwise("add", "sum", "biased", "z")
    for mode in ("add", "max"):
        g.output(g.reduction(mode, "sum", mode, [1, 4261]), data_type="f32")

    g = Graph("odd_columns_middle", "f16")
    g.tensor("x", [9, 21, 1013])
    g.output(g.reduction("norm2", "x", "y", [9, 1, 1013]))

    g = Graph("odd_columns_i8", "i8", "i32", "i32")
    g.tensor("x", [3, 5, 8512], stride=[42685, 8537, 1])
    g.output(g.reduction("add", "x", "y", [1, 1, 8512]), data_type="i32")

    g = Graph("odd_columns_variance", "f16")
    g.tensor("x", [23, 4227])
    g.output(g.reduction("avg", "x", "mean", [1, 4227]), data_type="f32")
    g.pointwise("sub", "centred", "x", "mean")
    g.pointwise("mul", "square", "centred", "centred")
    g.output(g.reduction("avg", "square", "variance", [1, 4227]), data_type="f32")


odd_columns()


def stepped_slices():
    g = Graph("stepped_slices", "i8", "f32", "f32")
    g.tensor("x", [9, 31, 13])
    g.slice("x", "even", [0, 1, 0], [9, 31, 13], step=[2, 3, 1])
    g.slice("x", "odd", [0, 2, 0], [9, 31, 13], step=[2, 3, 1])
    g.pointwise("max", "pair", "even", "odd")
    g.slice("pair", "part", [1, 0, 2], [4, 10, 12])
    g.reshape("part", "flat", [300])
    g.reshape("pair", "y", [5, 10, 13])
    g.output("flat", "y")


stepped_slices()


def attention_by_hand():
    """The products and the softmax spelled out, as traced models give them."""
    b, h, s, d = 2, 3, 33, 16
    g = Graph("attention_by_hand", "f16")
    for t in ("q", "k", "v"):
        g.tensor(t, [b, h, s, d])
    g.tensor("mask", [1, 1, s, s], data_type="f32")
    g.transpose("k", "kt", [0, 1, 3, 2])
    g.matmul("q", "kt", "scores")
    g.pointwise("mul", "scaled", "scores", g.value("scale", 0.25))
    g.pointwise("add", "masked", "scaled", "mask")
    g.reduction("max", "masked", "largest", [b, h, s, 1])
    g.pointwise("sub", "shifted", "masked", "largest")
    g.pointwise("exp", "exponential", "shifted")
    g.reduction("add", "exponential", "total", [b, h, s, 1])
    g.pointwise("div", "p", "exponential", "total")
    g.tensor("p", data_type="f16")
    g.matmul("p", "v", "o")
    g.output("o")


attention_by_hand()


def small_products_of_two_batches():
    """Each of twelve products has its own right operand, and their batches are not one index. Lines of neither begin at
    multiples of 16 bytes."""
    g = Graph("matmul_small_two_batches", "f16")
    g.tensor("a", [3, 4, 7, 9], stride=[252, 9, 36, 1])
    g.tensor("b", [3, 4, 9, 7])
    g.matmul("a", "b", "c")
    g.output("c")


small_products_of_two_batches()


def gradients_of_rows(name, rows, columns):
    """Two sums a row and two a column, of rows that whole warps share, or blocks."""
    g = Graph("gradients_of_" + name, "bf16")
    g.tensor("dy", [rows, columns])
    g.tensor("x", [rows, columns])
    g.tensor("scale", [1, columns])
    g.tensor("mean", [rows, 1], data_type="f32")
    g.tensor("inv", [rows, 1], data_type="f32")
    g.node("layernorm_backward",
           {"DY": "dy", "X": "x", "SCALE": "scale", "MEAN": "mean", "INV_VARIANCE": "inv"},
           {"DX": "dx", "DSCALE": "dscale", "DBIAS": "dbias"})
    g.tensor("dscale", data_type="f32")
    g.tensor("dbias", data_type="f32")
    g.output("dx", "dscale", "dbias")


gradients_of_rows("rows_side_by_side", 300, 1024)
gradients_of_rows("rows_in_clusters", 5, 13312)
gradients_of_rows("odd_rows_in_clusters", 9, 12293)


def f32_product(layout, batches, rows, columns, depth, compute="f32"):
    """f32 that tensor cores multiply in parts, or rounded; which of the operands lie along k, a bias behind."""
    g = Graph(f"matmul_{'f32_parts' if compute == 'f32' else compute}_{layout}", compute=compute)
    g.tensor("a", [batches, rows, depth],
             **({"stride": [rows * depth, 1, rows]} if layout[0] == "t" else {}))
    g.tensor("b", [batches, depth, columns],
             **({"stride": [columns * depth, 1, depth]} if layout[1] == "t" else {}))
    g.tensor("bias", [1, 1, columns])
    g.matmul("a", "b", "product")
    g.pointwise("add", "y", "product", "bias")
    g.output("y")


f32_product("nt", 1, 70, 72, 133)
f32_product("nn", 2, 66, 136, 45)
f32_product("tt", 1, 72, 64, 260)
# Where one does not, and its rows are whole pieces of 16 bytes, threads read it on sm_90a.
f32_product("nn", 2, 68, 136, 44, "tf32")
f32_product("tt", 1, 72, 64, 100, "tf32")


def odd_rows(name, rows, columns, depth, io="bf16", pitch=0, batches=1, act=None, bias=None):
    """Results of 16 bits whose rows end within a piece of 16 bytes, packed or `pitch` apart."""
    g = Graph("matmul_odd_rows_" + name, io)
    g.tensor("a", [batches, rows, depth])
    g.tensor("b", [batches, depth, columns], stride=[columns * depth, 1, depth])
    y = g.matmul("a", "b", "product" if act or bias else "y")
    if bias:
        g.tensor("bias", [1, 1, columns], data_type=bias)
        y = g.pointwise("add", "biased" if act else "y", y, "bias")
    if act:
        g.pointwise(act, "y", y)
    g.output("y", **({"stride": [rows * pitch, pitch, 1], "dim": [batches, rows, columns]} if pitch else {}))


odd_rows("narrow", 150, 21, 64)
odd_rows("narrow_bias", 131, 51, 72, bias="bf16", act="relu_fwd")
odd_rows("narrow_batches", 45, 13, 128, io="f16", batches=3, bias="f32")
odd_rows("wide", 140, 237, 72, bias="f32", act="gelu_approx_tanh_fwd")
odd_rows("wide_even", 200, 188, 64, io="f16")
odd_rows("pitched", 70, 77, 64, pitch=83, act="relu_fwd")
odd_rows("pitched_whole", 66, 21, 64, pitch=32)
odd_rows("pitched_batches", 50, 102, 64, pitch=105, batches=2)


def f8_prologue(name, a, b, before, operand="a", io="f8e4m3", rows=72, columns=80, depth=256):
    """Operands of 8 bits that are computed in f32 before they are multiplied, in graphs of 8 bits, where nothing may be
    rounded to 16."""
    g = Graph("matmul_f8_prologue_" + name, io)
    g.tensor("a", [1, rows, depth], data_type=a)
    g.tensor("b", [1, depth, columns], data_type=b, stride=[columns * depth, 1, depth])
    scale = {"scale": [1, 1, 1], "dequantise": [1, 1, depth] if operand == "a" else [1, depth, 1]}.get(before)
    if scale:
        g.tensor("s", scale, data_type="f32")
        g.pointwise("mul", "x", operand, "s")
    else:
        g.pointwise(before, "x", operand)
    g.matmul("x" if operand == "a" else "a", "x" if operand == "b" else "b", "y")
    g.output("y", data_type="bf16")


f8_prologue("relu", "f8e4m3", "f8e4m3", "relu_fwd")
f8_prologue("relu_mixed", "f8e5m2", "f8e4m3", "relu_fwd", "b")
f8_prologue("scale", "f8e4m3", "f8e5m2", "scale")
f8_prologue("dequantise", "f8e4m3", "f8e4m3", "dequantise")
f8_prologue("dequantise_b", "f8e5m2", "f8e5m2", "dequantise", "b", rows=200)
f8_prologue("relu_i8", "i8", "i8", "relu_fwd", io="i8")
f8_prologue("dequantise_i8", "i8", "i8", "dequantise", "b", io="i8")
f8_prologue("of_f32", "f32", "f8e4m3", "relu_fwd", "b", io="f32")
f8_prologue("gelu", "f8e4m3", "bf16", "gelu_approx_tanh_fwd", io="f8e4m3")


# A part of a product of a stored f32 operand: the part is taken of the operand instead, which is
# then as little rounded as the whole would be.
def matmul_part_of_f32():
    g = Graph("matmul_part_of_f32", "bf16")
    g.tensor("a", [4, 40, 72], data_type="f32")
    g.tensor("b", [4, 72, 32])
    g.matmul("a", "b", "whole")
    g.slice("whole", "part", [1, 8, 0], [3, 24, 32])
    g.output("part", data_type="f32")


matmul_part_of_f32()


def zeros_of_one_term():
    """A sum of one product begins at 0 as others do: 0 x -1 is 0 and not -0, which atan2 tells apart."""
    g = Graph("matmul_zeros_of_one_term", "f32")
    g.tensor("a", [37, 1], data_type="f4e2m1")
    g.tensor("b", [1, 24], data_type="f4e2m1")
    g.output(g.pointwise("atan2", "angle", g.value("zero", 0), g.matmul("a", "b", "c")))


zeros_of_one_term()
