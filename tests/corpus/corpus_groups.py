"""Grouped matmuls whose rows lie where hardware cannot start, and 8-bit operands seen through views."""
from corpus_graph import Graph


def grouped(g, name, tokens, weights, experts, gathered=None):
    """`tokens` [1, T, K] with `weights` [experts, K, N]; where rows are gathered, so many."""
    inputs = {"Token": tokens, "Weight": weights,
              "FirstTokenOffset": g.tensor(name + "_offsets", [experts + 1], data_type="i32")}
    if gathered:
        inputs["TokenIndex"] = g.tensor(name + "_index", [gathered], data_type="i32")
    g.output(name)
    return g.node("moe_grouped_matmul", inputs, name, mode="gather" if gathered else "none")


def groups_that_begin_anywhere():
    # Tokens that lie along the rows of a tile, whose groups begin at any of them.
    g = Graph("groups_that_begin_anywhere", "bf16")
    g.tensor("column", [1, 100, 1])
    g.tensor("of_column", [6, 1, 72])
    grouped(g, "outer_products", "column", "of_column", 6)
    g.tensor("columns", [1, 104, 64], stride=[6656, 1, 104])
    g.tensor("of_columns", [5, 64, 72])
    grouped(g, "along_rows", "columns", "of_columns", 5)


def gathered_single_rows():
    # One row of a table's choice, of rows that are no multiple of 16 bytes apart.
    g = Graph("gathered_single_rows", "bf16")
    g.tensor("odd", [1, 14, 97])
    g.tensor("of_odd", [7, 97, 5])
    g.tensor("apart", [1, 30, 64], stride=[1950, 65, 1])
    g.tensor("of_apart", [3, 64, 72], stride=[4608, 1, 64])
    for i in range(4):
        grouped(g, f"one_odd_{i}", "odd", "of_odd", 7, gathered=1)
        grouped(g, f"one_apart_{i}", "apart", "of_apart", 3, gathered=1)


def fp8_views():
    # Views have the intermediate type, but are multiplied as the 8-bit floats that they show.
    g = Graph("fp8_views", "f8e4m3")
    g.tensor("x", [33, 96])
    g.tensor("w", [24, 96])
    g.matmul("x", g.transpose("w", "turned", [1, 0]), "product")
    g.output("product", data_type="f32")
    g.tensor("tokens", [1, 1, 25])
    g.transpose("tokens", "weight", [0, 2, 1])
    grouped(g, "square", "tokens", "weight", 1)
    g.output("square", data_type="f32")


def grouped_layer(name, experts, rows, k, n, io="bf16", mode="none", by_columns=False, result=None):
    """More experts than a warp has lanes; factors that TMA cannot load, or that must lie along k, are copied first where that
    is faster; rows that an index gathers, or that leave to other places."""
    g = Graph("grouped_" + name, io)
    inputs = {"Token": g.tensor("tokens", [1, rows, k]), "Weight": g.tensor("weight", [experts, k, n],
              **({"stride": [k * n, 1, k]} if by_columns else {})),
              "FirstTokenOffset": g.tensor("offsets", [experts + 1], data_type="i32")}
    if mode != "none":
        inputs["TokenIndex"] = g.tensor("index", [rows], data_type="i32")
    g.node("moe_grouped_matmul", inputs, "product", mode=mode)
    g.output(g.pointwise("relu_fwd", "y", "product"), **({"data_type": result} if result else {}))


groups_that_begin_anywhere()
gathered_single_rows()
fp8_views()
grouped_layer("many_odd", 70, 300, 67, 45)
grouped_layer("many_odd_f32", 40, 150, 35, 33, io="f32")
grouped_layer("copied", 9, 700, 257, 200)
grouped_layer("copied_weights", 5, 600, 256, 201, mode="gather")
grouped_layer("copied_f8", 5, 500, 320, 208, io="f8e4m3", mode="scatter", result="f32")
grouped_layer("gathered_f8", 6, 400, 272, 176, io="f8e4m3", mode="gather", result="bf16")


def depthwise_padded_gradient():
    """Backward of a causal convolution with padding on both sides, of which the last results are cut off."""
    n, c, l = 2, 16, 20
    g = Graph("convolution_depthwise_1d_padded_gradient", "bf16")
    last = dict(stride=[c * l, 1, c])
    for t in ("x", "y", "dy"):
        g.tensor(t, [n, c, l], **last)
    g.tensor("w", [c, 1, 4])
    g.pointwise("swish_bwd", "d_cut", "dy", "y")
    g.tensor("d_cut", data_type="bf16")
    g.pointwise("identity", "beside", g.value("zero", 0.0))
    g.tensor("beside", [n, c, 3], data_type="bf16")
    g.node("concatenate", {"IN_0": "d_cut", "IN_1": "beside"}, "d_y", axis=2)
    g.tensor("d_y", data_type="bf16")
    attributes = dict(pre_padding=[3], post_padding=[3], groups=c)
    g.tensor("dx", [n, c, l], output=True, **last)
    g.tensor("dw", [c, 1, 4], output=True)
    g.node("conv_dgrad", {"DY": "d_y", "W": "w"}, {"DX": "dx"}, **attributes)
    g.node("conv_wgrad", {"DY": "d_y", "X": "x"}, {"DW": "dw"}, **attributes)
    g.reduction("add", "d_y", "db", [1, c, 1])
    g.output("db", data_type="f32")


depthwise_padded_gradient()
