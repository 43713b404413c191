"""Attention as models write it out: products, scale, mask, softmax, and weights of 16 bits."""
from corpus_graph import Graph


def attention(name, b=1, h=2, hk=None, sq=70, skv=None, d=64, dv=None, io="bf16", rounds_scores=False, seen=None, hidden="-inf",
              mask=None, stats=False, weight=None, rounds_p=False, layout=None, narrow=True, shift=None):
    """`seen`: keys that a row sees by index; `mask`: the type of one that is added; `weight`: between softmax and product;
    `narrow`: weights of 16 bits; `shift`: added to scores."""
    g = Graph("attention_written_out_" + name, io)
    hk, skv, dv = hk or h, skv or sq, dv or d
    fields = {}
    for t, heads, rows, width in (("q", h, sq, d), ("k", hk, skv, d), ("v", hk, skv, dv)):
        if layout == "bshd":
            fields = {"stride": [rows * heads * width, width, heads * width, 1]}
        g.tensor(t, [b, heads, rows, width], **fields)
    of_io = lambda t: g.tensor(t, data_type=io) if rounds_scores else t
    g.transpose("k", "kt", [0, 1, 3, 2])
    of_io(g.matmul("q", "kt", "products"))
    x = of_io(g.pointwise("mul", "scaled", "products", g.value("scale", d ** -0.5)))
    if shift:
        x = g.pointwise("add", "shifted", x, g.value("shift_of_all", shift))
    if seen:
        g.pointwise("gen_index", "row", x, axis=2)
        g.pointwise("gen_index", "column", x, axis=3)
        if seen == "bottom_right":
            g.pointwise("add", "diagonal", "row", g.value("shift", float(skv - sq)))
        g.pointwise("cmp_le", "seen", "column", "diagonal" if seen == "bottom_right" else "row")
        x = of_io(g.pointwise("binary_select", "seen_scores", x, g.value("hidden", hidden), "seen"))
    if mask:
        x = of_io(g.pointwise("add", "masked", x, g.tensor("mask", [b, 1, sq, skv], data_type=mask)))
    outputs = {"Y": "p"}
    if stats:
        outputs["Stats"] = "stats"
        g.output("stats", data_type="f32")
    g.node("softmax", {"X": x}, outputs)
    w = "p"
    if rounds_p:
        g.tensor("p", data_type=io)
    if weight == "dropout":
        g.node("rng", {"Seed": g.tensor("seed", [1], data_type="i64"), "Offset": g.value("offset", 3, "i64")},
               g.tensor("kept", [b, h, sq, skv], data_type="f32"), distribution="bernoulli", probability=0.8)
        g.pointwise("mul", "dropped", w, "kept")
        w = g.pointwise("mul", "rescaled", "dropped", g.value("factor", 1.25))
    if weight == "threshold":
        g.pointwise("sub", "above", w, g.value("threshold", 0.02))
        w = g.pointwise("relu_fwd", "kept", "above")
    if narrow and weight != "threshold" and not (rounds_p and not weight):
        w = g.tensor(g.pointwise("identity", "weights", w), data_type=io)
    g.matmul(w, "v", "o")
    g.output("o")


# Tiles of one to four consumers of rows; tiles of keys that do not come out even, and a single one.
attention("plain", b=2, sq=150, skv=300)
attention("one_row", h=64, hk=8, sq=1, skv=40, io="f16")
attention("narrow", h=3, sq=260, d=32, io="f16")
attention("128", sq=140, skv=330, d=128, dv=96, layout="bshd")
attention("256", h=1, sq=66, skv=80, d=256, io="f16")
attention("causal", h=4, hk=2, sq=300, d=64, seen="diagonal", stats=True)
attention("bottom_right", sq=130, skv=290, d=128, seen="bottom_right", io="f16")
# Rows that see nothing are NaN.
attention("unseen_rows", sq=140, skv=60, seen="bottom_right", stats=True)
attention("large_number", sq=100, seen="diagonal", hidden=-1e9)
# The lowest numbers as masks, as models have them: tiles of nothing else come first, and rows that see nothing weigh all alike.
attention("lowest", sq=300, seen="diagonal", hidden=-3.3e38)
attention("lowest_f32", sq=300, skv=200, seen="bottom_right", hidden=-3.3e38, narrow=False)
attention("lowest_cluster", h=8, hk=2, sq=2, skv=700, seen="diagonal", hidden=-3.3e38, narrow=False)
attention("lowest_chunk", b=3, h=8, hk=2, sq=130, skv=200, d=32, seen="diagonal", hidden=-3.3e38, narrow=False)
attention("large_unseen_rows", sq=140, skv=60, seen="bottom_right", hidden=-2e10, io="f16", narrow=False)
attention("lowest_unseen_rows", sq=140, skv=60, seen="bottom_right", hidden=-3.3e38)
# Scores as large as the number that hides keys, which count as much as others.
attention("number_counts", h=3, sq=150, skv=180, seen="diagonal", hidden=-1e4, shift=-1e4, stats=True, narrow=False)
attention("number_counts_divided", h=1, sq=130, skv=600, dv=24, seen="diagonal", hidden=-1e4, shift=-1e4, stats=True, io="f16")
# Keys divided among CTAs: one consumer of few rows, two consumers with rows that see no keys of some blocks.
attention("divided_chunk", h=1, sq=130, skv=900, d=64, dv=48, seen="bottom_right", stats=True, io="f16")
attention("divided_lowest", h=2, sq=70, skv=500, d=32, seen="diagonal", hidden=-3.3e38)
# As eager models compute: each step rounded.
attention("eager", b=2, h=6, hk=2, sq=70, skv=130, rounds_scores=True, mask="bf16", layout="bshd")
attention("eager_causal", h=3, sq=90, d=128, io="f16", rounds_scores=True, seen="diagonal")
attention("mask", sq=66, skv=190, d=96, mask="f32")
# Masks that come in boxes or, by warps, for eight keys at once, of a last tile of keys that is not whole.
attention("mask_of_eight_keys", b=2, sq=150, skv=168, mask="f32", narrow=False)
attention("mask_of_bytes", sq=66, skv=112, d=32, mask="u8", io="f16")
attention("dropout", sq=70, skv=160, weight="dropout")
attention("rounded_twice", sq=70, skv=160, weight="dropout", rounds_p=True, io="f16")
# No multiple of what the softmax gives: weights that are not divided yet would be others.
attention("threshold", sq=70, skv=60, weight="threshold")


def repeated_heads(name, how, written=False, hq=6, hk=2, sq=40, skv=70, d=16, stats=False):
    """Keys and values copied for each head of Q, as models without grouped heads have them."""
    g = Graph(f"attention_repeated_heads_{name}", "bf16")
    g.tensor("Q", [2, hq, sq, d])
    operands = []
    for t in ("K", "V"):
        g.tensor(t, [2, hk, skv, d])
        each = [2, hk, hq // hk, skv, d]
        one = g.reshape(t, f"{t}_one", [2, hk, 1, skv, d])
        g.tensor(one, [2, hk, 1, skv, d], data_type="bf16")
        if how == "expand":
            g.pointwise("identity", f"{t}_each", one)
        else:
            g.node("concatenate", {f"IN_{i}": one for i in range(hq // hk)}, f"{t}_each", axis=2)
        g.tensor(f"{t}_each", each, data_type="bf16")
        operands.append(g.reshape(f"{t}_each", f"{t}_all", [2, hq, skv, d]))
        g.tensor(operands[-1], [2, hq, skv, d], data_type="bf16")
    k, v = operands
    if not written:
        outputs = {"O": "O", "Stats": "stats"} if stats else {"O": "O"}
        g.node("sdpa", {"Q": "Q", "K": k, "V": v}, outputs, attn_scale=0.25, causal_mask=True,
               **({"generate_stats": True} if stats else {}))
        g.output("O")
        if stats:
            g.tensor("stats", output=True, data_type="f32")
        return
    g.transpose(k, "K_transposed", [0, 1, 3, 2])
    g.tensor("K_transposed", [2, hq, d, skv], data_type="bf16")
    g.matmul("Q", "K_transposed", "s")
    g.node("softmax", {"X": "s"}, "p", axis=-1)
    g.tensor("p", [2, hq, sq, skv], data_type="bf16")
    g.matmul("p", v, "O")
    g.output("O")


repeated_heads("expand", "expand", stats=True)
repeated_heads("concatenated", "concatenate", hk=1)
repeated_heads("written_out", "concatenate", written=True)


def start(name, q, k, heads, d=32):
    """Operands of [*heads, rows, d]; the score of each pair, and the values."""
    g = Graph("attention_written_out_" + name, "bf16")
    g.tensor("q", [*heads, q, d])
    shared = heads if len(heads) < 3 else [*heads[:2], 1]
    g.tensor("k", [*shared, k, d])
    g.tensor("v", [*shared, k, d])
    order = [*range(len(heads)), len(heads) + 1, len(heads)]
    g.transpose("k", "kt", order)
    g.matmul("q", "kt", "products")
    return g, g.pointwise("mul", "scaled", "products", g.value("scale", d ** -0.5))


def index(g, x, axis, name):
    return g.pointwise("gen_index", name, x, axis=axis)


def hidden(g, x, seen, number="-inf"):
    return g.pointwise("binary_select", "masked", x, g.value("hidden", number), seen)


def exponentials(g, x, row, shift=None):
    g.reduction("max", x, "largest", row)
    m = g.pointwise("max", "most", "largest", shift) if shift else "largest"
    e = g.pointwise("exp", "e", g.pointwise("sub", "shifted", x, m))
    g.reduction("add", e, "total", row)
    return m, e


# Groups of heads as a dim of their own, rows that see the keys of their own chunk, and Stats without a guard.
heads = [1, 2, 3]
g, x = start("joined_heads_chunks", 80, 80, heads)
r, c = index(g, x, 3, "row"), index(g, x, 4, "column")
size = g.value("size", 24.0)
same = g.pointwise("cmp_eq", "same", g.pointwise("floor", "of_row", g.pointwise("div", "row_by", r, size)),
                   g.pointwise("floor", "of_column", g.pointwise("div", "column_by", c, size)))
seen = g.pointwise("logical_and", "seen", same, g.pointwise("cmp_le", "behind", c, r))
m, e = exponentials(g, hidden(g, x, seen), [*heads, 80, 1])
g.pointwise("add", "stats", m, g.pointwise("log", "log", "total"))
g.output("stats", data_type="f32")
g.matmul(g.pointwise("div", "p", e, "total"), "v", "o")
g.output("o")

# The same heads, scaled by a number of as many dims as the scores have.
g, x = start("joined_heads_ranked_scale", 48, 48, heads)
g.tensor("scale", [1] * 5)
g.node("softmax", {"X": x}, "p", axis=4)
g.matmul("p", "v", "o")
g.output("o")

# The bias of pairs and the mask of keys that protein models add, with a gate.
def pairs_and_keys(name, b, h, s, d, mask, io="bf16"):
    g = Graph("attention_written_out_" + name, io)
    for t in ("q", "k", "v", "gate"):
        g.tensor(t, [b, h, s, d], stride=[s * h * d, d, h * d, 1])
    g.transpose("k", "kt", [0, 1, 3, 2])
    x = g.pointwise("mul", "scaled", g.matmul("q", "kt", "products"), g.value("scale", d ** -0.5))
    x = g.pointwise("add", "of_pairs", x, g.tensor("pairs", [1, h, s, s]))
    x = g.pointwise("add", "of_keys", x, g.tensor("keys", [b, 1, 1, s], data_type=mask))
    g.node("softmax", {"X": x}, "p")
    g.matmul("p", "v", "sums")
    g.pointwise("mul", "o", "sums", g.pointwise("sigmoid_fwd", "opened", "gate"))
    g.output("o", stride=[s * h * d, d, h * d, 1])


pairs_and_keys("pairs_and_keys", 3, 2, 200, 32, "bf16")
pairs_and_keys("pairs_and_keys_f32", 2, 1, 136, 128, "f32", "f16")

# A sink beside the scores of segments, whose numbers are integers.
g, x = start("sink_of_segments", 70, 90, [2, 3])
same = g.pointwise("cmp_eq", "same", g.tensor("of_rows", [2, 1, 70, 1], data_type="i32"), g.tensor("of_keys", [2, 1, 1, 90], data_type="i32"))
x = hidden(g, x, same)
g.tensor("sinks", [2, 3, 70, 1], data_type="f32")
g.pointwise("identity", "sinks", g.tensor("sink", [1, 3, 1, 1]))
g.node("concatenate", {"IN_0": x, "IN_1": "sinks"}, "beside", axis=3)
g.node("softmax", {"X": "beside"}, "all")
g.slice("all", "p", [0, 0, 0, 0], [2, 3, 70, 90])
g.matmul("p", "v", "o")
g.output("o")

# Shifted windows, whose masks are of each window and all images; quotients behind the second product; one more in the sum.
g, x = start("windows_divided_last", 49, 49, [6, 4])
x = g.reshape(x, "windows", [2, 3, 4, 49, 49])
x = g.pointwise("add", "shifted_windows", x, g.tensor("mask", [1, 3, 1, 49, 49], data_type="f32"))
x = g.reshape(x, "batch", [6, 4, 49, 49])
m, e = exponentials(g, x, [6, 4, 49, 1], g.value("zero", 0.0))
g.pointwise("add", "sum", "total", g.pointwise("exp", "one", g.pointwise("neg", "below", m)))
g.matmul(e, "v", "sums")
g.pointwise("div", "o", "sums", "sum")
g.output("o")


def stored_weights_of_entries():
    """Weights and scaled queries that are results of f32, in the dims of the products' entries: read as they are stored."""
    g = Graph("written_out_stored_weights_of_entries", "bf16")
    b, h, m, n, d = 1, 3, 31, 45, 32
    g.tensor("q", [b, h, m, d], data_type="f32")
    g.tensor("kt", [b * h, d, n])
    g.tensor("v", [b * h, n, d])
    g.reshape(g.pointwise("mul", "q_scaled", "q", g.value("scale", 0.25)), "q_entries", [b * h, m, d])
    x = g.reshape(g.matmul("q_entries", "kt", "products"), "scores", [b, h, m, n])
    e = g.pointwise("exp", "e", g.pointwise("sub", "shifted", x, g.reduction("max", x, "largest", [b, h, m, 1])))
    g.pointwise("div", "p", e, g.reduction("add", e, "total", [b, h, m, 1]))
    g.reshape("p", "p_entries", [b * h, m, n])
    g.matmul("p_entries", "v", "o")
    g.output("q_entries", "p_entries", "o", data_type="f32")


stored_weights_of_entries()
