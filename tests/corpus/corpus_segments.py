"""Norms whose results are quantised in blocks: reductions of whole rows, then of each of their segments."""
from corpus_graph import Graph


def quantise(g, x, value, scale, block, name=""):
    g.node("block_scale_quantize", {"X": x}, {"Y": "q" + name, "Scale": "q_scale" + name}, block_size=block)
    g.output("q" + name, data_type=value)
    g.output("q_scale" + name, data_type=scale)


def norm(g, op, x, dim, out="norm"):
    """Over the last axis, with the statistics that a backward pass needs."""
    axis = [1] * (len(dim) - 1) + [dim[-1]]
    ports = {"X": x, "SCALE": g.tensor("scale", axis), "epsilon": g.value("epsilon", 1e-5)}
    outputs = {"Y": out, "INV_VARIANCE": "inv_variance"}
    if op == "layernorm":
        ports["BIAS"] = g.tensor("bias", axis)
        outputs["MEAN"] = "mean"
        g.output("mean", data_type="f32")
    g.output("inv_variance", data_type="f32")
    return g.node(op, ports, outputs)


def norms_in_segments():
    g = Graph("segments_rmsnorm_mx_f8", "bf16")
    g.tensor("x", [37, 256])
    quantise(g, norm(g, "rmsnorm", "x", [37, 256]), "f8e4m3", "f8e8m0", 32)

    # An epsilon of as many dims as the rows, as cuDNN's frontend gives it.
    g = Graph("segments_rmsnorm_ranked_epsilon", "bf16")
    g.tensor("x", [7, 384])
    quantise(g, norm(g, "rmsnorm", "x", [7, 384]), "f8e4m3", "f32", 128)
    g.tensor("epsilon", [1, 1])

    # A residual sum and the norm leave, too; several tokens of several images.
    g = Graph("segments_residual_layernorm_f8", "bf16")
    for t in ("x", "residual"):
        g.tensor(t, [3, 5, 640])
    g.output(g.pointwise("add", "sum", "x", "residual"))
    quantise(g, norm(g, "layernorm", "sum", [3, 5, 640]), "f8e5m2", "f32", 128)
    g.output("norm")

    # An activation between the two; the narrowest segments and numbers.
    g = Graph("segments_swish_rmsnorm_nv_f4", "f16")
    g.tensor("x", [9, 96])
    norm(g, "rmsnorm", "x", [9, 96])
    quantise(g, g.pointwise("swish_fwd", "active", "norm"), "f4e2m1", "f8e4m3", 16)

    # Rows that a cluster holds, or that pass by twice; numbers that every GPU has.
    g = Graph("segments_long_rows", "f32")
    columns, block = 33 * 1024, 64
    g.tensor("x", [2, columns])
    norm(g, "layernorm", "x", [2, columns])
    g.reshape("norm", "parts", [2, columns // block, block])
    g.reduction("amax", "parts", "tops", [2, columns // block, 1])
    g.pointwise("div", "y", "parts", "tops")
    g.output("tops", "y")

    # Softmax, whose exponentials a later phase needs; of segments an average and the largest value.
    g = Graph("segments_softmax_statistics", "bf16")
    rows, blocks, block = 21, 12, 8
    g.tensor("x", [rows, blocks * block])
    g.node("softmax", {"X": "x"}, "weights", axis=-1)
    g.reshape("weights", "parts", [rows, blocks, block])
    g.reduction("avg", "parts", "means", [rows, blocks, 1])
    g.reduction("max", "parts", "tops", [rows, blocks, 1])
    g.pointwise("sub", "apart", "parts", "means")
    g.pointwise("div", "y", "apart", "tops")
    g.output("y", "means", data_type="f32")

    # Rows of one number each: what is stored for each element is one value of the segment, too.
    g = Graph("segments_of_one_number", "bf16")
    rows, blocks, block = 6, 36, 16
    g.tensor("x", [rows, blocks * block], stride=[0, 0])
    g.reduction("avg", "x", "mean", [rows, 1])
    g.pointwise("add", "moved", g.pointwise("sub", "centred", "x", "mean"), g.tensor("by_row", [rows, 1]))
    g.reshape("moved", "parts", [rows, blocks, block])
    g.reduction("amax", "parts", "tops", [rows, blocks, 1])
    g.pointwise("div", "y", "parts", "tops")
    g.output("y", data_type="f8e5m2")


def rows_that_are_not_cut():
    """What a kernel of segments does not take: reductions behind them, and columns of large strides."""
    g = Graph("segments_reduced_again", "bf16")
    rows, blocks, block = 10, 6, 32
    g.tensor("x", [rows, blocks * block])
    norm(g, "rmsnorm", "x", [rows, blocks * block])
    g.reshape("norm", "parts", [rows, blocks, block])
    g.reduction("amax", "parts", "tops", [rows, blocks, 1])
    g.pointwise("div", "share", "parts", "tops")
    g.reduction("add", "share", "total", [rows, 1, 1])
    g.pointwise("mul", "y", "share", "total")
    g.output("y", data_type="f32")

    g = Graph("segments_of_columns", "bf16")
    g.tensor("x", [16, 96], stride=[1, 16])
    quantise(g, norm(g, "rmsnorm", "x", [16, 96]), "f8e4m3", "f8e8m0", 32)

    # Segments of 24 elements have no number of threads in a warp.
    g = Graph("segments_of_24", "bf16")
    g.tensor("x", [16, 96])
    quantise(g, norm(g, "layernorm", "x", [16, 96]), "f8e4m3", "f32", 24)


norms_in_segments()
rows_that_are_not_cut()
