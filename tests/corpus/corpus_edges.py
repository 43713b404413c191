"""What random graphs found at the edges: numbers that are not finite, operands of one element
repeated, products of nothing."""
from corpus_graph import Graph, channels_last


def attention_with(name, inputs, sq=70, d=32, io="bf16", skv=None, **attributes):
    g = Graph(f"attention_{name}", io)
    g.tensor("q", [2, 2, sq, d])
    for t in "kv":
        g.tensor(t, [2, 2, skv or sq, d])
    lengths = {}
    if attributes.get("padding_mask"):
        for t in ("SEQ_LEN_Q", "SEQ_LEN_KV"):
            g.tensor(t.lower(), [2, 1, 1, 1], data_type="i32")
            lengths[t] = t.lower()
    g.node("sdpa", {"Q": "q", "K": "k", "V": "v", **lengths, **inputs}, {"O": "o"},
           generate_stats=False, attn_scale=0.2, **attributes)
    g.output("o")
    return g


# Rows that see nothing are zeros, whatever the sink is: the logarithm of a number below zero.
for heads, sq in (("", 70), ("_wide", 20)):
    g = attention_with(f"sink_nan{heads}", {"SINK_TOKEN": "sink"}, sq, 600 if heads else 32,
                       padding_mask=True)
    g.tensor("below", [1, 2, 1, 1])
    g.value("minus", -1)
    g.pointwise("sub", "negative", "minus", g.pointwise("mul", "squared", "below", "below"))
    g.pointwise("log", "sink", "negative")

# What V holds at dropped weights has no effect: -infinity, where nearly all are dropped.
g = attention_with("dropout_infinite", {"Seed": "seed", "Offset": "offset"},
                   dropout_probability=0.999)
g.value("seed", 7, "i64")
g.value("offset", 0, "i64")
g.tensor("x", [2, 2, 70, 32])
g.value("zero", 0)
g.pointwise("log", "v", g.pointwise("mul", "zeros", g.pointwise("abs", "sizes", "x"), "zero"))

# Rows whose scores are NaN, of which dropout leaves nothing in some: those are zeros. Keys that a
# row does not see have a weight of NaN there, too.
for name, sq, skv, d, attributes in (
        ("", 300, 160, 64, {}), ("_causal", 70, 6, 32, {"causal_mask": True}),
        ("_lengths", 200, 128, 128, {"padding_mask": True}), ("_f32", 200, 120, 32, {"io": "f32"}),
        ("_wide", 70, 136, 320, {}), ("_element", 40, 6, 1, {}), ("_one_row", 1, 300, 64, {})):
    g = attention_with(f"dropout_nan{name}", {"Seed": "seed", "Offset": "offset"}, sq, d, skv=skv,
                       dropout_probability=0.85 if skv < 10 else 0.995, **attributes)
    g.tensor("seed", [1], data_type="i64")
    g.value("offset", 3, "i64")
    g.pointwise("sqrt", "root", g.tensor("sign", [2, 2, sq, 1]))
    g.pointwise("mul", "q", g.tensor("x", [2, 2, sq, d]), "root")

# Of packed sequences keys of the others have one, too.
g = Graph("attention_dropout_nan_packed", "bf16")
for t in "kv":
    g.tensor(t, [1, 2, 24, 32])
g.tensor("offsets_q", [5, 1, 1, 1], data_type="i32")
g.tensor("offsets_kv", [5, 1, 1, 1], data_type="i32")
g.tensor("seed", [1], data_type="i64")
g.value("offset", 3, "i64")
g.pointwise("sqrt", "root", g.tensor("sign", [1, 2, 70, 1]))
g.pointwise("mul", "q", g.tensor("x", [1, 2, 70, 32]), "root")
g.node("sdpa", {"Q": "q", "K": "k", "V": "v", "CU_SEQ_LEN_Q": "offsets_q",
                "CU_SEQ_LEN_KV": "offsets_kv", "Seed": "seed", "Offset": "offset"}, {"O": "o"},
       causal_mask=True, dropout_probability=0.9)
g.output("o")

# A sum of scores and sink in f64, which is rounded once.
g = Graph("attention_written_out_sink_f64", "f32", "f32", "f64")
g.tensor("scores", [2, 4, 8, 2])
g.tensor("sink", [2, 4, 8, 1])
g.tensor("v", [2, 4, 2, 8])  # so that all results are compared
g.pointwise("mul", "scaled", "scores", g.value("scale", 0.125))
g.node("concatenate", {"IN_0": "scaled", "IN_1": "sink"}, "beside", compute_data_type="f32", axis=3)
g.reduction("max", "beside", "largest", [2, 4, 8, 1])
g.pointwise("exp", "weights", g.pointwise("sub", "shifted", "beside", "largest"))
g.reduction("add", "weights", "total", [2, 4, 8, 1])
g.pointwise("div", "p", "weights", "total")
g.slice("p", "seen", [0, 0, 0, 0], [2, 4, 8, 2])
g.matmul("seen", "v", "o")
g.output("o")


def repeated_taps(name, x, stride):
    """A filter of one column, repeated by its stride: copies of it have zeros beside its taps."""
    g = Graph(f"convolution_repeated_taps{name}", "bf16")
    n, c, h, w = x
    g.tensor("x", x, stride=channels_last(x))
    g.tensor("w", [32, c, 3, 3], stride=[c * 3, 3, 1, 0])
    g.conv("x", "w", "c", pre_padding=[1, 1], post_padding=[1, 1], stride=[stride, stride])
    y = [n, 32, -(-h // stride), -(-w // stride)]
    g.output("c", dim=y, stride=channels_last(y))


repeated_taps("", [1, 32, 6, 9], 1)
repeated_taps("_stride_2", [1, 32, 6, 10], 2)
repeated_taps("_few_channels", [2, 4, 12, 12], 1)

# A filter's gradient of no images, whose operands both want k last.
g = Graph("convolution_filter_gradient_of_nothing", "f32", compute="tf32")
g.tensor("x", [0, 16, 6, 8])
g.tensor("dy", [0, 16, 6, 8])
g.node("conv_wgrad", {"DY": "dy", "X": "x"}, {"DW": "dw"}, pre_padding=[1, 1], post_padding=[1, 1])
g.output("dw", dim=[16, 16, 3, 3])

# exp(x - (largest + log(sum))), where a type on the way rounds what others write as a quotient.
for name, rounded in (("logarithm", {"log": "u8"}), ("distance", {"distance": "bf16"}),
                      ("scores", {"shifted": "f8e5m2"})):
    g = Graph(f"attention_written_out_rounded_{name}", "bf16")
    for t in ("q", "k", "v"):
        g.tensor(t, [1, 2, 24, 32])
    x = g.matmul("q", g.transpose("k", "kt", [0, 1, 3, 2]), "x")
    g.reduction("max", x, "largest", [1, 2, 24, 1])
    g.pointwise("exp", "e", g.pointwise("sub", "shifted", x, "largest"))
    g.reduction("add", "e", "sum", [1, 2, 24, 1])
    g.pointwise("add", "total", "largest", g.pointwise("log", "log", "sum"))
    g.pointwise("exp", "p", g.pointwise("sub", "distance", x, "total"))
    for t, data_type in rounded.items():
        g.tensor(t, data_type=data_type)
    g.matmul("p", "v", "o")
    g.output("o")

# A factor that is computed from 8-bit numbers, and read by more than the product.
g = Graph("matmul_f8_prologue_read_behind", "bf16")
g.tensor("x", [64, 32], data_type="f8e4m3")
g.tensor("scale", [64, 1], data_type="f32")
g.tensor("w", [32, 32])
g.matmul(g.pointwise("mul", "a", "x", "scale"), "w", "c")
g.pointwise("sub", "y", "c", "a")
g.output("y")

# Integers on the way through two reshapes, of which the last one splits the summed axis.
g = Graph("matmul_prologue_of_two_reshapes", "f16", "f16")
g.tensor("x", [18, 39, 16], stride=[1, 288, 18])
g.tensor("rounded", data_type="i32")
g.reshape(g.reshape("x", "rounded", [117, 48, 2, 1]), "w", [117, 96, 1])
g.tensor("a", [23, 96])
g.matmul("a", "w", "y")
g.output("y")

# The means of rows of few bits, of which both halves are read: these are large beside some means.
g = Graph("halves_of_centred_rows", "f32", "f64", "f32")
g.tensor("x", [1, 170, 6], data_type="bf16")
g.reduction("avg", "x", "mean", [1, 170, 1])
g.pointwise("sub", "centred", "x", "mean")
g.slice("centred", "left", [0, 0, 0], [1, 170, 3])
g.slice("centred", "right", [0, 0, 3], [1, 170, 6])
g.pointwise("mul", "y", g.pointwise("swish_fwd", "gate", "left"), "right")
g.output("y", data_type="f64")

# Rows without elements whose stride is 0: nothing is written, not one element a row.
g = Graph("softmax_gradient_of_rows_of_nothing")
g.tensor("y", [40, 0], stride=[1, 0])
g.node("softmax_backward", {"Y": "y", "DY": "y"}, {"DX": "dx"})
g.tensor("x", [40, 3])
g.reduction("add", "x", "sum", [40, 1])
g.output("dx", dim=[40, 0], stride=[1, 0])
g.output("sum")

# What is stored in f32 is no operand that a product may round: dV of weights, dQ and dK of dS.
for stored in ("weights", "scores"):
    g = Graph(f"attention_gradients_stored_{stored}", "bf16", "f32")
    for t in ("q", "k", "v", "do"):
        g.tensor(t, [1, 2, 40, 64])
    turned = [0, 1, 3, 2]
    g.node("softmax", {"X": g.matmul("q", g.transpose("k", "kt", turned), "s")}, {"Y": "p"}, axis=3)
    g.matmul(g.transpose("p", "pt", turned), "do", "dv")
    g.matmul("do", g.transpose("v", "vt", turned), "dp")
    g.reduction("add", g.pointwise("mul", "pdp", "p", "dp"), "delta", [1, 2, 40, 1])
    g.pointwise("mul", "ds", "p", g.pointwise("sub", "centred", "dp", "delta"))
    g.matmul("ds", "k", "dq")
    g.matmul(g.transpose("ds", "dst", turned), "q", "dk")
    g.output("pt" if stored == "weights" else "ds", data_type="f32")
    g.output("dq", "dk", "dv")

# Written-out attention whose second row sees nothing but masks of -1e9, of keys in parts: these
# count by how many keys they have, though f32 has no room for its logarithm beside -1e9.
for name, heads, keys, d in (("attention_masked_row_in_parts", 2, 1000, 64), ("attention_masked_row_in_wide_parts", 1, 900, 256)):
    g = Graph(name, "f16")
    for t, rows in (("q", 2), ("k", keys), ("v", keys)):
        g.tensor(t, [1, heads, rows, d])
    x = g.matmul("q", g.transpose("k", "kt", [0, 1, 3, 2]), "scores")
    g.pointwise("cmp_lt", "seen", g.pointwise("gen_index", "row", x, axis=2), g.value("one", 1.0))
    g.pointwise("mul", "scaled", x, g.value("scale", d ** -0.5))
    g.node("softmax", {"X": g.pointwise("binary_select", "masked", "scaled", g.value("mask", -1e9), "seen")}, {"Y": "p"}, axis=3)
    g.output(g.matmul("p", "v", "o"))

# Attention that is written out with the division last, of rows without keys: 0 / 0.
g = Graph("attention_written_out_divided_last_of_nothing", "bf16")
for t, dim in (("q", [1, 2, 6, 16]), ("kt", [1, 2, 16, 0]), ("v", [1, 2, 0, 16])):
    g.tensor(t, dim)
g.pointwise("exp", "e", g.matmul("q", "kt", "s"))
g.reduction("add", "e", "sum", [1, 2, 6, 1])
g.pointwise("div", "o", g.matmul("e", "v", "sums"), "sum")
g.output("o")

# Means of what rows of few bits are computed to: their sums are exact, and divided once.
for data_type in ("f8e4m3", "i8"):
    g = Graph(f"means_of_scaled_rows_{data_type}")
    g.tensor("x", [64, 8, 33], data_type=data_type)
    g.reduction("amax", "x", "largest", [64, 8, 1])
    g.reduction("avg", g.pointwise("mul", "y", "x", "largest"), "mean", [64, 1, 1])
    g.output("mean")

# A condition in a type that has no zero is always true, and masks nothing.
for hidden in ("-inf", -1e9):
    g = Graph(f"attention_written_out_always_true_{'infinite' if hidden == '-inf' else 'large'}", "bf16")
    for t, dim in (("q", [1, 2, 70, 32]), ("kt", [1, 2, 32, 70]), ("v", [1, 2, 70, 32])):
        g.tensor(t, dim)
    g.matmul("q", "kt", "s")
    for t, axis in (("column", 3), ("row", 2)):
        g.pointwise("gen_index", t, "s", axis=axis)
    g.pointwise("cmp_le", g.tensor("seen", data_type="f8e8m0"), "column", "row")
    g.pointwise("binary_select", "x", "s", g.value("hidden", hidden), "seen")
    g.node("softmax", {"X": "x"}, {"Y": "p"}, axis=3)
    g.matmul("p", "v", "o")
    g.output("o")

# No columns of a product and no rows of sums that have one.
g = Graph("slices_of_nothing_of_one")
g.tensor("a", [2, 40, 24])
g.matmul("a", g.tensor("b", [2, 24, 1]), "c")
g.slice("c", "no_columns", [0, 0, 0], [2, 40, 0])
g.reduction("max", g.tensor("x", [2, 40, 24]), "largest", [2, 40, 1])
g.slice("largest", "no_rows", [0, 0, 0], [2, 40, 0])
g.output("no_columns", "no_rows")

# Attention over one key: once its first product is a sum along rows, what is left of it saves as
# many bytes as it did, but is no attention.
g = Graph("attention_written_out_one_key", "f32", "f16")
for t, dim in (("q", [2, 4, 64]), ("k", [2, 1, 64]), ("v", [2, 1, 1, 64])):
    g.tensor(t, dim)
g.transpose(g.reshape("q", "by_row", [2, 4, 1, 64]), "qh", [0, 2, 1, 3])
g.transpose(g.reshape("k", "by_key", [2, 1, 1, 64]), "kh", [0, 2, 1, 3])
g.transpose("kh", "kt", [0, 1, 3, 2])
g.matmul(g.reshape("qh", "q3", [2, 4, 64]), g.reshape("kt", "kt3", [2, 64, 1]), "s3")
g.pointwise("mul", "x", g.reshape("s3", "s", [2, 1, 4, 1]), g.value("scale", 0.125))
g.node("softmax", {"X": "x"}, {"Y": "p"}, axis=3)
g.pointwise("identity", g.tensor("wide", data_type="f32"), "p")
g.matmul(g.reshape("wide", "p3", [2, 4, 1]), g.reshape("v", "v3", [2, 1, 64]), "o3")
g.reshape("o3", "o", [2, 1, 4, 64])
g.output("o", data_type="f16")

# In a graph of f32 neither weights nor dS are rounded to the type of what they are multiplied with.
g = Graph("attention_gradients_f32_of_16_bits")
for t in ("q", "k", "v", "do"):
    g.tensor(t, [1, 2, 40, 64], data_type="f16")
turned = [0, 1, 3, 2]
g.node("softmax", {"X": g.matmul("q", g.transpose("k", "kt", turned), "s")}, {"Y": "p"}, axis=3)
g.matmul(g.transpose("p", "pt", turned), "do", "dv")
g.matmul("do", g.transpose("v", "vt", turned), "dp")
g.reduction("add", g.pointwise("mul", "pdp", "p", "dp"), "delta", [1, 2, 40, 1])
g.pointwise("mul", "ds", "p", g.pointwise("sub", "centred", "dp", "delta"))
g.matmul("ds", "k", "dq")
g.matmul(g.transpose("ds", "dst", turned), "q", "dk")
g.output("dq", "dk", "dv")

# An integer result of attention that nobody else reads, asked whether it is 0: it is in registers, not in memory.
for data_type in ("i32", "i64"):
    g = Graph(f"attention_{data_type}_asked_for_truth", "f16")
    ports = {port: g.tensor(port, [1, 2, rows, 40]) for port, rows in {"Q": 39, "K": 25, "V": 25}.items()}
    g.node("sdpa", ports, {"O": g.tensor("O", data_type=data_type)}, attn_scale=0.125, causal_mask=True)
    g.output(g.pointwise("logical_not", "y", "O"))


def zero_points(name, a, za, b, zb, m, k, n):
    """A product of quantised operands, each less its zero point: a number, of each row, or of each column."""
    g = Graph("zero_points_" + name, "f16", "i32", "i32")
    g.tensor("a", [2, m, k], data_type=a)
    g.tensor("b", [1, k, n], data_type=b, stride=[n * k, 1, k])
    if za is not None:
        za = g.value("za", za, "i32") if isinstance(za, int) else g.tensor("za", za, data_type="i8")
        g.pointwise("sub", "a_less", "a", za)
    if zb is not None:
        zb = g.value("zb", zb, "i32") if isinstance(zb, int) else g.tensor("zb", zb, data_type="i8")
        g.pointwise("sub", "b_less", "b", zb)
    g.matmul("a" if za is None else "a_less", "b" if zb is None else "b_less", "sums")
    g.tensor("s", [1, 1, n], data_type="f32")
    g.pointwise("mul", "y", "sums", "s", compute_data_type="f32")
    g.output("y")


zero_points("left", "u8", 128, "i8", None, 70, 160, 96)
zero_points("rows", "i8", [2, 70, 1], "i8", None, 70, 192, 72)
zero_points("both", "u8", 117, "i8", [1, 1, 72], 33, 256, 72)
zero_points("odd_k", "i8", -3, "u8", 128, 20, 147, 50)
