"""What stands around matmuls and attention in real models, with the default f32 between its nodes:
movements of data between computations, which share their kernels."""
from corpus_graph import Graph, channels_last


def halves(g, x, out, dim):
    """The two halves along the last axis."""
    half = dim[-1] // 2
    zeros = [0] * len(dim)
    g.slice(x, out[0], zeros, dim[:-1] + [half])
    g.slice(x, out[1], zeros[:-1] + [half], dim)


def rotate(g, x, out, dim):
    """Rotary embedding of the two halves; inputs cosine and sine."""
    halves(g, x, [out + "_0", out + "_1"], dim)
    for name, mode, a, b in [("_left", "sub", "_0", "_1"), ("_right", "add", "_1", "_0")]:
        g.pointwise("mul", out + name + "_c", out + a, "cosine")
        g.pointwise("mul", out + name + "_s", out + b, "sine")
        g.pointwise(mode, out + name, out + name + "_c", out + name + "_s")
    g.node("concatenate", {"IN_0": out + "_left", "IN_1": out + "_right"}, out, axis=-1)


def rmsnorm(g, x, out, scale):
    g.value("epsilon", 1e-5)
    g.node("rmsnorm", {"X": x, "SCALE": scale, "epsilon": "epsilon"}, out,
           forward_phase="inference")


def before_attention():
    """q, k and v out of one matmul's result; q normalised by head; q and k rotated."""
    b, s, h, d = 2, 6, 3, 32
    g = Graph("region_before_attention", "bf16")
    g.tensor("qkv", [b, s, 3 * h * d])
    g.tensor("scale", [1, 1, 1, d])
    for t in ("cosine", "sine"):
        g.tensor(t, [1, s, 1, d // 2], data_type="f32")
    for i, name in enumerate("qkv"):
        g.slice("qkv", name + "_flat", [0, 0, i * h * d], [b, s, (i + 1) * h * d])
        g.reshape(name + "_flat", name, [b, s, h, d])
    rmsnorm(g, "q", "q_normal", "scale")
    rotate(g, "q_normal", "q_turned", [b, s, h, d])
    rotate(g, "k", "k_turned", [b, s, h, d])
    for x, out in [("q_turned", "q_heads"), ("k_turned", "k_heads"), ("v", "v_heads")]:
        g.output(g.transpose(x, out, [0, 2, 1, 3]))


def after_attention():
    """Heads side by side, residual and norm; both are kept."""
    b, h, s, d = 2, 4, 5, 24
    g = Graph("region_after_attention", "bf16")
    g.tensor("o", [b, h, s, d])
    g.tensor("residual", [b, s, h * d])
    g.tensor("scale", [1, 1, h * d])
    g.transpose("o", "o_turned", [0, 2, 1, 3])
    g.reshape("o_turned", "o_flat", [b, s, h * d])
    g.output(g.pointwise("add", "sum", "o_flat", "residual"))
    rmsnorm(g, "sum", "y", "scale")
    g.output("y")


def gated():
    """Both halves of one matmul's result, biased; forward and backward."""
    g = Graph("region_gated", "bf16")
    g.tensor("x", [24, 2 * 40])
    g.tensor("bias", [1, 2 * 40])
    g.tensor("dy", [24, 40])
    g.pointwise("add", "biased", "x", "bias")
    halves(g, "biased", ["gate", "up"], [24, 80])
    g.pointwise("swish_fwd", "act", "gate")
    g.output(g.pointwise("mul", "y", "act", "up"))
    g.pointwise("mul", "dact", "dy", "up")
    g.pointwise("swish_bwd", "dgate", "dact", "gate")
    g.pointwise("mul", "dup", "dy", "act")
    g.output(g.node("concatenate", {"IN_0": "dgate", "IN_1": "dup"}, "dx", axis=1))


def groupnorm_residual():
    """A diffusion model's block, channels last: groups split off and joined again around the norm."""
    dim = [2, 12, 5, 7]
    g = Graph("region_groupnorm_residual", "f16")
    for t in ("x", "r"):
        g.tensor(t, dim, stride=channels_last(dim))
    for t in ("scale", "bias"):
        g.tensor(t, [1, 12, 1, 1], data_type="f32")
    g.value("epsilon", 1e-5)
    g.node("groupnorm", {"X": "x", "SCALE": "scale", "BIAS": "bias", "epsilon": "epsilon"},
           "normal", groups=4, forward_phase="inference")
    g.pointwise("swish_fwd", "act", "normal")
    g.pointwise("add", "y", "act", "r")
    g.output("y", stride=channels_last(dim))
    g.output(g.reduction("avg", "y", "pooled", [2, 12, 1, 1]))


def groupnorm_pieces(name, io, dim, groups, training=False):
    """Channels last, in groups of which each pixel has a few bytes."""
    g = Graph("region_groupnorm_pieces_" + name, io)
    g.tensor("x", dim, stride=channels_last(dim))
    for t in ("scale", "bias"):
        g.tensor(t, [1, dim[1], 1, 1])
    results = {"Y": "normal"}
    if training:
        results |= {"MEAN": "mean", "INV_VARIANCE": "inv_variance"}
        g.output("mean", "inv_variance", data_type="f32")
    g.node("groupnorm", {"X": "x", "SCALE": "scale", "BIAS": "bias",
                         "epsilon": g.value("epsilon", 1e-5)}, results, groups=groups,
           forward_phase="training" if training else "inference")
    g.output(g.pointwise("swish_fwd", "y", "normal"), stride=channels_last(dim))


def groupnorm_by_hand():
    """The same of a sum that is stored, too, in single operations."""
    dim, split, kept = [2, 24, 9, 8], [2, 4, 6, 9, 8], [2, 4, 1, 1, 1]
    g = Graph("region_groupnorm_by_hand", "f16")
    for t in ("x", "r"):
        g.tensor(t, dim, stride=channels_last(dim))
    g.output(g.pointwise("add", "sum", "x", "r"), stride=channels_last(dim))
    x = g.reshape("sum", "groups", split)
    centred = g.pointwise("sub", "centred", x, g.reduction("avg", x, "mean", kept))
    variance = g.reduction("avg", g.pointwise("mul", "square", centred, centred), "variance", kept)
    stable = g.pointwise("add", "stable", variance, g.value("epsilon", 1e-5))
    normal = g.pointwise("mul", "normal", centred, g.pointwise("rsqrt", "inv", stable))
    g.output(g.reshape(normal, "y", dim), stride=channels_last(dim))


def joined_channels():
    """A skip connection: channels concatenated, scaled and activated."""
    g = Graph("region_joined_channels", "bf16")
    for t, c in (("a", 8), ("b", 4)):
        g.tensor(t, [2, c, 3, 5], stride=channels_last([2, c, 3, 5]))
    g.tensor("scale", [1, 12, 1, 1])
    g.node("concatenate", {"IN_0": "a", "IN_1": "b"}, "joined", axis=1)
    g.pointwise("mul", "scaled", "joined", "scale")
    g.pointwise("sigmoid_fwd", "gate", "scaled")
    g.pointwise("mul", "y", "scaled", "gate")
    g.output("y", stride=channels_last([2, 12, 3, 5]))


def quantised():
    """A norm's result in f8 with its amax over all rows, as it is and turned."""
    g = Graph("region_quantised", "bf16")
    g.tensor("x", [20, 48])
    g.tensor("w", [1, 48])
    g.tensor("scale", [1, 1], data_type="f32")
    rmsnorm(g, "x", "normal", "w")
    g.reduction("amax", "normal", "amax", [1, 1])
    g.output("amax", data_type="f32")
    g.output(g.pointwise("mul", "q", "normal", "scale"), data_type="f8e4m3")
    g.pointwise("mul", "z", "x", "scale")
    g.output("z", data_type="f8e4m3")
    g.output(g.transpose("z", "z_turned", [1, 0]), data_type="f8e4m3")


def quantised_by_blocks():
    """Residual and norm, quantised by blocks of 128, and a product with a weight of such blocks."""
    g = Graph("region_quantised_by_blocks", "bf16")
    for t in ("x", "residual"):
        g.tensor(t, [10, 256])
    g.tensor("w", [1, 256])
    g.tensor("weight", [256, 24], data_type="f8e4m3", stride=[1, 256])
    g.tensor("weight_scale", [2, 24], data_type="f32")
    g.output(g.pointwise("add", "h", "x", "residual"))
    rmsnorm(g, "h", "normal", "w")
    g.node("block_scale_quantize", {"X": "normal"}, {"Y": "q", "Scale": "q_scale"},
           block_size=128, axis=-1)
    g.output("q", data_type="f8e4m3")
    g.output("q_scale", data_type="f32")
    g.node("block_scale_dequantize", {"X": "q", "Scale": "q_scale"}, "values", block_size=128)
    g.node("block_scale_dequantize", {"X": "weight", "Scale": "weight_scale"}, "weights",
           block_size=128, axis=0)
    g.matmul("values", "weights", "y")
    g.output("y")


def cross_entropy_by_hand():
    """Targets in i32, compared with the index; rows of the targets lie beside each other."""
    g = Graph("region_cross_entropy_by_hand", "bf16")
    g.tensor("x", [16, 264])
    g.tensor("target", [16, 1], data_type="i32")
    g.value("zero", 0.0)
    g.reduction("max", "x", "largest", [16, 1])
    g.pointwise("sub", "shifted", "x", "largest")
    g.pointwise("exp", "e", "shifted")
    g.reduction("add", "e", "sum", [16, 1])
    g.pointwise("gen_index", "index", "x", axis=1)
    g.pointwise("cmp_eq", "hit", "index", "target")
    g.pointwise("binary_select", "chosen", "x", "zero", "hit")
    g.reduction("add", "chosen", "logit", [16, 1])
    g.pointwise("log", "log_sum", "sum")
    g.pointwise("add", "lse", "log_sum", "largest")
    g.output(g.pointwise("sub", "loss", "lse", "logit"), data_type="f32")


def norm_over_channels():
    """A layernorm over the channels of an image that lie apart: rows that lie together."""
    g = Graph("region_norm_over_channels", "bf16")
    g.tensor("x", [2, 24, 8, 16])
    for t in ("scale", "bias"):
        g.tensor(t, [1, 24, 1, 1])
    g.value("epsilon", 1e-5)
    g.node("layernorm", {"X": "x", "SCALE": "scale", "BIAS": "bias", "epsilon": "epsilon"}, "y",
           forward_phase="inference")
    g.output("y")


def centred_behind():
    """Rows that lie together, less their averages where their number says so."""
    g = Graph("region_centred_behind", "bf16")
    g.tensor("x", [2, 20, 24])
    g.value("first", 9.0)
    g.value("zero", 0.0)
    g.reduction("avg", "x", "average", [2, 1, 24])
    g.pointwise("gen_index", "index", "x", axis=2)
    g.pointwise("cmp_ge", "kept", "index", "first")
    g.pointwise("binary_select", "centre", "average", "zero", "kept")
    g.output(g.pointwise("sub", "y", "x", "centre"))


for region in (before_attention, after_attention, gated, groupnorm_residual, joined_channels,
               quantised, quantised_by_blocks, cross_entropy_by_hand, norm_over_channels, centred_behind):
    region()
groupnorm_pieces("10", "f16", [2, 40, 8, 9], 4)
groupnorm_pieces("3", "bf16", [3, 24, 8, 6], 8, training=True)
groupnorm_pieces("16", "bf16", [2, 64, 5, 8], 4, training=True)
groupnorm_by_hand()


def interleaved():
    """Rotary embedding of neighbouring pairs, in two widths of rows."""
    for d, io in ((32, "bf16"), (6, "f32")):
        g = Graph(f"region_interleaved_{d}", io)
        g.tensor("x", [2, 5, 3, d])
        for t in ("cosine", "sine"):
            g.tensor(t, [1, 5, 1, d // 2, 1], data_type="f32")
        g.reshape("x", "pairs", [2, 5, 3, d // 2, 2])
        rotate(g, "pairs", "turned", [2, 5, 3, d // 2, 2])
        g.output(g.reshape("turned", "y", [2, 5, 3, d]))


interleaved()


def amax_of_no_rows():
    """The amax over nothing is 0, in two steps as in one."""
    g = Graph("region_amax_of_no_rows", "bf16")
    g.tensor("x", [0, 8])
    g.node("softmax", {"X": "x"}, "y", axis=1)
    g.output(g.reduction("amax", "y", "amax", [1, 1]))


amax_of_no_rows()


def sums_of_nothing():
    """Rows without elements, of two indices that only what the rows read afterwards tells apart."""
    g = Graph("region_sums_of_nothing")
    for name, dim in (("group", [4, 1, 1]), ("row", [1, 99, 1])):
        g.tensor(name, dim)
        g.tensor(name + "_x", [4, 99, 0], stride=[99, 1, 396])
        g.reduction("add", name + "_x", name + "_sum", [4, 99, 1])
        g.output(g.pointwise("add", name + "_y", name + "_sum", name))


sums_of_nothing()


def sums_along_kept_axis():
    """Statistics over all axes but the last, and a sum over the last, which is no segment of their rows."""
    g = Graph("region_sums_along_kept_axis", "bf16")
    g.tensor("x", [4, 13, 41], stride=[1, 0, 52])
    g.tensor("scale", [4, 13, 1])
    g.value("epsilon", 1e-6)
    g.node("layernorm", {"X": "x", "SCALE": "scale", "BIAS": "scale", "epsilon": "epsilon"},
           {"Y": "y", "MEAN": "mean", "INV_VARIANCE": "inverse"}, forward_phase="training")
    g.node("layernorm_backward", {"DY": "x", "X": "x", "SCALE": "scale", "MEAN": "mean", "INV_VARIANCE": "inverse"},
           {"DX": "dx", "DSCALE": "dscale"})
    g.output("dscale", stride=[15, 1, 1])


sums_along_kept_axis()


def windows(g, x, out, images, back=False):
    """Windows of 2 x 2 of an image [n, h, w, c] as rows of a matrix each, or what undoes it."""
    n, h, w, c = images
    split = [n, h // 2, w // 2, 2, 2, c] if back else [n, h // 2, 2, w // 2, 2, c]
    g.reshape(x, out + "_split", split)
    g.transpose(out + "_split", out + "_turned", [0, 1, 3, 2, 4, 5])
    return g.reshape(out + "_turned", out, images if back else [n * h * w // 4, 4, c])


def layernorm(g, x, out, channels, statistics=()):
    for t in ("scale", "bias"):
        g.tensor(t, [1, 1, 1, channels])
    g.value("epsilon", 1e-5)
    phase = "training" if statistics else "inference"
    g.node("layernorm", {"X": x, "SCALE": "scale", "BIAS": "bias", "epsilon": "epsilon"},
           {"Y": out, **dict(zip(("MEAN", "INV_VARIANCE"), statistics))}, forward_phase=phase)


def shifted_windows():
    """What stands around the attention of shifted windows: norm and windows, also with a residual
    and the norm's statistics, an image rolled along both axes, and all that backwards."""
    dim = [2, 4, 6, 16]
    for name, residual in (("plain", False), ("residual", True)):
        g = Graph(f"region_windows_{name}", "bf16")
        g.tensor("x", dim)
        source, statistics = "x", ()
        if residual:
            g.tensor("r", dim)
            source, statistics = g.pointwise("add", "sum", "x", "r"), ("mean", "inv")
            g.output("sum")
        layernorm(g, source, "normal", dim[-1], statistics)
        g.output(*statistics, data_type="f32")
        g.output(windows(g, "normal", "y", dim))
    g = Graph("region_windows_back", "bf16")
    g.tensor("x", [12, 4, 16])
    g.tensor("r", dim)
    windows(g, "x", "image", dim, back=True)
    g.output(g.pointwise("add", "sum", "image", "r"))
    layernorm(g, "sum", "y", dim[-1], ("mean", "inv"))
    g.output("y")
    g.output("mean", "inv", data_type="f32")
    g = Graph("region_rolled", "bf16")
    g.tensor("x", dim)
    source = "x"
    for axis, by in ((1, 1), (2, 2)):
        for i, (start, limit) in enumerate(((by, dim[axis]), (0, by))):
            begin, end = [0] * 4, list(dim)
            begin[axis], end[axis] = start, limit
            g.slice(source, f"part_{axis}_{i}", begin, end)
        source = g.node("concatenate", {"IN_0": f"part_{axis}_0", "IN_1": f"part_{axis}_1"},
                        f"rolled_{axis}", axis=axis)
    g.output(source)


def joined():
    """Concatenations of what lies in memory, in kernels of all families; parts that are computed,
    and such as start where no pack does."""
    dim = [3, 5, 32]
    g = Graph("region_joined", "bf16")
    for t, d in (("a", [3, 5, 16]), ("b", [3, 5, 8]), ("c", [3, 5, 8]), ("r", dim), ("w", [1, 32, 8]),
                 ("d", [3, 2, 32]), ("e", [3, 3, 32]), ("odd", [3, 5, 3])):
        g.tensor(t, d)
    g.tensor("f", [3, 5, 8], data_type="f32")
    g.tensor("scale", [1, 1, 32])
    join = lambda out, *parts, axis: g.node(
        "concatenate", {f"IN_{i}": t for i, t in enumerate(parts)}, out, axis=axis)
    join("abc", "a", "b", "c", axis=2)
    g.output(g.pointwise("relu_fwd", "act", "abc"))
    join("de", "d", "e", axis=1)
    g.pointwise("add", "sum", "de", "r")
    g.output("sum")
    rmsnorm(g, "sum", "normal", "scale")
    g.output("normal")
    join("mixed", "b", "f", "a", axis=-1)
    g.output(g.matmul("mixed", "w", "product"))
    g.pointwise("neg", "minus", "b")
    g.output(join("some_computed", "minus", "a", "c", axis=2))
    g.output(join("narrow", "b", "odd", axis=2))
    g.output(join("abc_twice", "abc", "abc", axis=1))

    # Values of rows; and a result that lies across its parts.
    g = Graph("region_joined_rows", "bf16")
    g.tensor("x", [16, 24])
    g.tensor("w", [1, 24])
    for t, rows in (("s", 4), ("t", 12)):
        g.tensor(t, [rows, 1], data_type="f32")
    rmsnorm(g, "x", "normal", "w")
    join("scale", "s", "t", axis=0)
    g.output(g.pointwise("mul", "y", "normal", "scale"))
    g = Graph("region_joined_turned", "bf16")
    for t, d in (("a", 16), ("b", 32)):
        g.tensor(t, [24, d])
    g.pointwise("relu_fwd", "act", join("ab", "a", "b", axis=1))
    g.output(g.transpose("act", "y", [1, 0]))


shifted_windows()
joined()
