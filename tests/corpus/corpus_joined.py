"""Products whose sums are added, which are one on sm_90a; weights that alone are quantised in blocks
of k; targets of a cross-entropy and indices that are integers."""
from corpus_graph import Graph


def weight(g, name, k, n):
    return g.tensor(name, [k, n], stride=[1, k])


def low_rank(rows, k, n, rank, io):
    """x W + b + 0.75 (x A) B, with relu; k is too long for (x A) B to be one kernel."""
    g = Graph(f"joined_low_rank_{rank}", io)
    g.tensor("x", [rows, k])
    g.tensor("bias", [1, n])
    g.value("factor", 0.75)
    g.linear("x", weight(g, "w", k, n), "bias", "layer")
    g.matmul(g.matmul("x", weight(g, "a", k, rank), "inner"), weight(g, "b", rank, n), "update")
    g.pointwise("mul", "scaled", "update", "factor")
    g.output(g.pointwise("relu_fwd", "y", g.pointwise("add", "sum", "layer", "scaled")))


def low_rank_training():
    """The same with all gradients: what is scaled for one product is read by another."""
    m, k, n, r = 136, 128, 192, 8
    g = Graph("joined_low_rank_training", "bf16")
    g.tensor("x", [m, k])
    g.tensor("dy", [m, n])
    g.value("factor", 3.0)
    for name, dim in [("w", (k, n)), ("a", (k, r)), ("b", (r, n))]:
        g.transpose(weight(g, name, *dim), name + "t", [1, 0])
    g.matmul("x", "a", "inner")
    g.pointwise("mul", "scaled", g.matmul("inner", "b", "update"), "factor")
    g.output(g.pointwise("add", "y", g.matmul("x", "w", "layer"), "scaled"))
    g.matmul("dy", "bt", "dinner")
    g.pointwise("mul", "dscaled", "dinner", "factor")
    g.output(g.pointwise("add", "dx", g.matmul("dy", "wt", "of_layer"),
                         g.matmul("dscaled", "at", "of_update")))
    g.output(g.matmul(g.transpose("x", "xt", [1, 0]), "dscaled", "da"), data_type="f32")
    g.output(g.matmul(g.transpose("inner", "innert", [1, 0]), "dy", "db"), data_type="f32")


def projections(columns_fastest):
    """dq Wq + dk Wk + dv Wv, of which the last ends within a stage of k."""
    g = Graph("joined_projections" + ("_columns" if columns_fastest else ""), "f16")
    for name, k in [("q", 128), ("k", 64), ("v", 88)]:
        g.tensor("d" + name, [2, 72, k])
        g.tensor("w" + name, [1, k, 136],
                 **({} if columns_fastest else {"stride": [136 * k, 1, k]}))
        g.matmul("d" + name, "w" + name, "x" + name)
    g.pointwise("add", "xqk", "xq", "xk")
    g.output(g.pointwise("add", "dx", "xqk", "xv"))


def recurrent():
    """An LSTM's gates of an input whose width fills no stages, and of a state."""
    b, i, h = 48, 40, 64
    g = Graph("joined_recurrent", "bf16")
    g.tensor("x", [b, i])
    g.tensor("h", [b, h])
    g.tensor("c", [b, h], data_type="f32")
    g.tensor("bias", [1, 4 * h])
    g.linear("x", weight(g, "wx", i, 4 * h), "bias", "of_x")
    g.pointwise("add", "z", "of_x", g.matmul("h", weight(g, "wh", h, 4 * h), "of_h"))
    for j, (name, mode) in enumerate([("i", "sigmoid_fwd"), ("f", "sigmoid_fwd"),
                                      ("o", "sigmoid_fwd"), ("u", "tanh_fwd")]):
        g.slice("z", name + "_z", [0, j * h], [b, (j + 1) * h])
        g.pointwise(mode, name, name + "_z")
    g.pointwise("mul", "kept", "f", "c")
    g.pointwise("mul", "fresh", "i", "u")
    g.output(g.pointwise("add", "c_next", "kept", "fresh"), data_type="f32")
    g.pointwise("tanh_fwd", "c_tanh", "c_next")
    g.output(g.pointwise("mul", "h_next", "o", "c_tanh"))


def quantised_weights(rows, data_type, block, gated=False):
    k, n = 1024, 1032
    name = f"weights_{data_type}_by_{block}_rows_{rows}" + ("_gated" if gated else "")
    g = Graph(name, "bf16")
    g.tensor("x", [1, rows, k])
    for i in range(2 if gated else 1):
        g.tensor(f"w{i}", [1, k, n], stride=[k * n, 1, k], data_type=data_type)
        g.tensor(f"s{i}", [1, k // block, n])
        g.node("block_scale_dequantize", {"X": f"w{i}", "Scale": f"s{i}"}, f"weights{i}",
               block_size=block, axis=1)
        g.matmul("x", f"weights{i}", f"y{i}")
    if gated:
        g.pointwise("mul", "h", g.pointwise("swish_fwd", "gate", "y0"), "y1")
    g.output("h" if gated else "y0")


def integer_targets(data_type):
    """The index of a cross-entropy in the integers of its targets; one of them is to be ignored."""
    g = Graph(f"cross_entropy_{data_type}_index", "bf16")
    g.tensor("x", [16, 264])
    g.tensor("target", [16, 1], data_type=data_type)
    g.tensor("index", data_type=data_type)
    g.value("zero", 0.0)
    g.value("ignored", 1.0)
    g.value("last", 200, data_type=data_type)
    g.node("softmax", {"X": "x"}, {"Y": "p", "Stats": "lse"}, axis=1)
    g.pointwise("gen_index", "index", "x", axis=1)
    g.pointwise("cmp_eq", "hit", "index", "target")
    g.pointwise("cmp_neq", "counts", "target", "ignored")
    g.pointwise("cmp_lt", "known", "index", "last")
    g.pointwise("binary_select", "chosen", "x", "zero", "hit")
    g.reduction("add", "chosen", "logit", [16, 1])
    g.pointwise("sub", "all", "lse", "logit")
    g.output(g.pointwise("mul", "loss", "all", "counts"), data_type="f32")
    g.pointwise("mul", "seen", g.pointwise("sub", "difference", "p", "hit"), "known")
    g.output(g.pointwise("mul", "dx", "seen", "counts"))


def projection(name, io, stride):
    """The end of a block of 1 x 1 convolutions, whose projection has a bias of its own."""
    n, c, k, m, h, w = 2, 72, 136, 64, 5, 6
    g = Graph("joined_projection_" + name, io)

    def image(name, c, h, w, **more):
        g.tensor(name, [n, c, h, w], stride=[h * w * c, 1, w * c, c], **more)

    image("a", m, h, w)
    image("x", c, h * stride, w * stride)
    for name, inner in [("w", m), ("v", c)]:
        g.tensor(name, [k, inner, 1, 1])
        g.tensor("bias_" + name, [1, k, 1, 1])
    g.conv("a", "w", "last")
    g.conv("x", "v", "side", stride=[stride, stride])
    g.pointwise("add", "left", "last", "bias_w")
    g.pointwise("add", "right", "side", "bias_v")
    g.pointwise("relu_fwd", "y", g.pointwise("add", "sum", "left", "right"))
    image("y", k, h, w, output=True)


low_rank(72, 1088, 128, 16, "bf16")
low_rank(136, 1088, 72, 24, "f16")
low_rank_training()
projections(False)
projections(True)
recurrent()
projection("bias", "bf16", 1)
projection("stride_2", "f16", 2)
quantised_weights(1, "i8", 64)
quantised_weights(3, "i8", 128)
quantised_weights(20, "f4e2m1", 32)
quantised_weights(5, "f8e4m3", 64)
quantised_weights(9, "i8", 32, gated=True)
integer_targets("i32")
integer_targets("i64")
