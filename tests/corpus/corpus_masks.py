"""Masks of attention of which whole tiles hide all: blocks of 128 queries and keys, and conditions on indices that are no interval."""
from corpus_attention import LENGTHS, RANDOM, attention
from corpus_graph import Graph


def blocks(name, b, hq, sq, skv, inputs=(), **more):
    mask = ("Block_mask", [b, hq, (sq + 127) // 128, (skv + 1023) // 1024], "u8")
    attention("block_mask_" + name, b=b, hq=hq, sq=sq, skv=skv, inputs=[*inputs, mask], **more)


# Rows that see no block; a last tile of rows and of keys that is cut; two consumers and tiles of 64 keys.
blocks("causal", 1, 4, 400, 400, hk=4, d=64, dv=64, attn_scale=0.125, causal_mask=True, stats=True)
blocks("grouped", 2, 4, 200, 1100, hk=2, d=128, dv=128, io="f16", attn_scale=0.09)
blocks("bottom_right", 1, 2, 300, 520, hk=2, d=32, dv=32, attn_scale=0.2, causal_mask_bottom_right=True)
blocks("window", 1, 2, 520, 520, hk=1, d=64, dv=64, attn_scale=0.125, left_bound=200, right_bound=0, stats=True)
blocks("wide_heads", 1, 2, 130, 300, hk=2, d=256, dv=256, attn_scale=0.06, stats=True)
blocks("192", 1, 2, 130, 390, hk=1, d=192, dv=128, io="f16", attn_scale=0.07)
blocks("bias", 1, 2, 140, 264, hk=2, d=64, dv=64, attn_scale=0.125, inputs=[("Bias", [1, 2, 140, 264], None)])
blocks("softcap", 1, 2, 140, 264, hk=2, d=64, dv=64, attn_scale=0.125, softcap=4.0)
blocks("lengths", 2, 2, 270, 250, hk=2, d=64, dv=64, attn_scale=0.125, padding_mask=True, inputs=LENGTHS, stats=True)
blocks("dropout", 1, 2, 140, 256, hk=2, d=64, dv=64, attn_scale=0.125, dropout_probability=0.2, inputs=RANDOM)
blocks("sink", 1, 2, 140, 260, hk=2, d=64, dv=64, attn_scale=0.125, inputs=[("SINK_TOKEN", [1, 2, 1, 1], "f32")], stats=True)
blocks("f8", 1, 2, 150, 260, hk=2, d=64, dv=64, io="f8e4m3", attn_scale=0.125)
# So many tiles of rows that thread blocks take them by a counter.
blocks("many_tiles", 4, 133, 70, 140, hk=133, attn_scale=0.25)


def indices(g, x, of_row=None, of_column=None):
    row = g.pointwise("gen_index", "row", of_row or x, axis=2)
    return row, g.pointwise("gen_index", "column", of_column or x, axis=3)


def either(g, *conditions):
    return g.pointwise("logical_or", "seen", *conditions)


def prefix(g, row, column, n=150):
    """Keys of a prefix, and those up to the diagonal."""
    return either(g, g.pointwise("cmp_lt", "in_prefix", column, g.value("prefix", n)), g.pointwise("cmp_le", "up_to_row", column, row))


def first_keys(g, row, column, window=100):
    """A window, and the first keys."""
    apart = g.pointwise("sub", "apart", row, column)
    near = g.pointwise("logical_and", "near", g.pointwise("cmp_lt", "in_window", apart, g.value("window", window)),
                       g.pointwise("cmp_ge", "past", apart, g.value("zero", 0)))
    return either(g, near, g.pointwise("cmp_lt", "first", column, g.value("first_keys", 4)))


def dilated(g, row, column, step=3, window=180):
    apart = g.pointwise("sub", "apart", row, column)
    near = g.pointwise("logical_and", "near", g.pointwise("cmp_lt", "in_window", apart, g.value("window", window)),
                       g.pointwise("cmp_ge", "past", apart, g.value("zero", 0)))
    on = g.pointwise("cmp_eq", "on", g.pointwise("mod", "rest", apart, g.value("step", step)), g.value("nothing", 0))
    return g.pointwise("logical_and", "seen", near, on)


def strided_blocks(g, row, column, size=128):
    """Every other block of keys, as numbers of blocks say."""
    of = [g.pointwise("mod", t + "_parity", g.pointwise("floor", t + "_block", g.pointwise("div", t + "_share", x, g.value("size", size))), g.value("two", 2))
          for t, x in (("row", row), ("column", column))]
    return g.pointwise("cmp_eq", "seen", *of)


def fractions(g, row, column):
    """The first keys of each third of 512."""
    rest = g.pointwise("mod", "rest", column, g.value("third", 512 / 3))
    return either(g, g.pointwise("cmp_lt", "first", rest, g.value("first_keys", 10)), g.pointwise("cmp_eq", "own", column, row))


def chunks(g, row, column, size=100):
    """Every fourth key of the row's own chunk."""
    of = [g.pointwise("floor", t + "_chunk", g.pointwise("div", t + "_share", x, g.value("size", size))) for t, x in (("row", row), ("column", column))]
    on = g.pointwise("cmp_eq", "on", g.pointwise("mod", "rest", column, g.value("step", 4)), g.value("nothing", 0))
    return g.pointwise("logical_and", "seen", g.pointwise("cmp_eq", "same", *of), on)


def own_chunk(g, row, column, size=128):
    of = [g.pointwise("floor", t + "_chunk", g.pointwise("div", t + "_share", x, g.value("size", size))) for t, x in (("row", row), ("column", column))]
    return g.pointwise("cmp_eq", "seen", *of)


def last_keys(g, row, column, first=290):
    """A window, and the last keys."""
    apart = g.pointwise("sub", "apart", row, column)
    near = g.pointwise("logical_and", "near", g.pointwise("cmp_lt", "in_window", apart, g.value("window", 100)),
                       g.pointwise("cmp_ge", "past", apart, g.value("zero", 0)))
    return either(g, near, g.pointwise("cmp_ge", "last", column, g.value("first", first)))


def two_parts(g, row, column):
    """Rows between them see nothing."""
    early = g.pointwise("logical_and", "early", g.pointwise("cmp_lt", "early_row", row, g.value("until", 120)),
                        g.pointwise("cmp_lt", "early_column", column, g.value("few", 20)))
    late = g.pointwise("logical_and", "late", g.pointwise("cmp_ge", "late_row", row, g.value("from", 260)),
                       g.pointwise("cmp_gt", "late_column", column, g.value("behind", 300)))
    return either(g, early, late)


def of_heads(g, row, column):
    """A window that grows with the head."""
    head = g.pointwise("gen_index", "head", row, axis=1)
    apart = g.pointwise("sub", "apart", row, column)
    near = g.pointwise("cmp_lt", "near", apart, g.pointwise("mul", "reach", g.pointwise("add", "number", head, g.value("one", 1)), g.value("each", 60)))
    return either(g, g.pointwise("logical_and", "past_near", near, g.pointwise("cmp_ge", "past", apart, g.value("zero", 0))),
                  g.pointwise("cmp_lt", "first", column, g.value("few", 3)))


def written_out(name, make, b=1, h=2, sq=400, skv=400, d=64, io="bf16", inverted=False, stats=False, rounds=False, scaled=True):
    g = Graph("attention_index_mask_" + name, io)
    for t, rows in (("q", sq), ("k", skv), ("v", skv)):
        g.tensor(t, [b, h, rows, d])
    g.transpose("k", "kt", [0, 1, 3, 2])
    x = g.matmul("q", "kt", "products")
    if scaled:
        x = g.pointwise("mul", "scaled", x, g.value("scale", d ** -0.5))
    seen = make(g, *indices(g, x))
    if inverted:
        x = g.pointwise("binary_select", "seen_scores", g.value("hidden", "-inf"), x, g.pointwise("logical_not", "unseen", seen))
    else:
        x = g.pointwise("binary_select", "seen_scores", x, g.value("hidden", "-inf"), seen)
    outputs = {"Y": "p"}
    if stats:
        outputs["Stats"] = "stats"
        g.output("stats", data_type="f32")
    g.node("softmax", {"X": x}, outputs)
    w = g.tensor(g.pointwise("identity", "weights", "p"), data_type=io) if rounds else "p"
    g.matmul(w, "v", "o")
    g.output("o")


def bounded(g, row, column):
    """A prefix or the row's own blocks, within bounds on both sides."""
    far = g.pointwise("cmp_gt", "far", g.pointwise("sub", "apart", column, row), g.value("left", -220))
    near = g.pointwise("cmp_le", "near", column, g.pointwise("add", "row_end", row, g.value("right", 30)))
    some = either(g, g.pointwise("cmp_lt", "in_prefix", column, g.value("prefix", 70)), g.pointwise("cmp_gt", "behind", column, g.value("until", 190)))
    return g.pointwise("logical_and", "bounded", g.pointwise("logical_and", "within", far, near), some)


def biased(name, make, b=1, h=2, hk=None, sq=400, skv=400, d=64, io="bf16", backward=False, of_gradients=None, stats=True, **attributes):
    """The mask as a Bias of 0 and -infinity."""
    g = Graph("attention_index_mask_" + name, io)
    ports = {}
    for t, heads, rows in (("Q", h, sq), ("K", hk or h, skv), ("V", hk or h, skv)):
        ports[t] = g.tensor(t, [b, heads, rows, d])
    seen = make(g, *indices(g, None, g.tensor("of_row", [1, 1, sq, 1]), g.tensor("of_column", [1, 1, 1, skv])))
    ports["Bias"] = g.pointwise("binary_select", "bias", g.value("nothing_added", 0.0), g.value("hidden", "-inf"), seen)
    attributes = {"attn_scale": d ** -0.5, **attributes}
    g.node("sdpa", dict(ports), {"O": "O", "Stats": "Stats"} if stats else {"O": "O"}, **attributes)
    g.output("O")
    if stats:
        g.output("Stats", data_type="f32")
    if backward:
        g.tensor("dO", [b, h, sq, d])
        g.node("sdpa_backward", {**ports, "O": "O", "dO": "dO", "Stats": "Stats"}, {p: p for p in ("dQ", "dK", "dV")}, **attributes, **(of_gradients or {}))
        g.output("dQ", "dK", "dV")


written_out("prefix", prefix, stats=True)
written_out("prefix_rounded", prefix, sq=300, skv=420, rounds=True, io="f16")
written_out("first_keys", first_keys, sq=450, skv=450, d=128)
written_out("dilated", dilated, inverted=True)
written_out("strided_blocks", strided_blocks, sq=500, skv=410, d=32)
written_out("unseen_rows", two_parts, sq=300, skv=330)
written_out("of_heads", of_heads, h=3, sq=300, skv=300, scaled=False, io="f16")
# Quotients that have branches.
written_out("chunks", chunks, sq=300, skv=330)
biased("bias_prefix", prefix)
biased("bias_unseen_rows", two_parts, sq=300, skv=330, d=128)
biased("bias_first_keys_softcap", first_keys, softcap=4.0, d=72)
# A divisor that is no integer: 3 times the nearest number of 32 bits is above 512, but rounds to it.
written_out("fractions", fractions, sq=140, skv=700)
# So few rows over so many keys that parts of these are shares of what is visited.
biased("parts_prefix", lambda g, row, column: prefix(g, row, column, 1700), h=1, sq=100, skv=2500)
biased("parts_strided_blocks", strided_blocks, h=1, sq=130, skv=4000, d=128, stats=False)
biased("gradients_prefix", prefix, sq=300, skv=300, backward=True)
biased("gradients_first_keys", first_keys, sq=300, skv=300, d=128, backward=True)
biased("gradients_unseen_rows", two_parts, sq=300, skv=330, backward=True)
biased("gradients_wide", first_keys, sq=300, skv=300, d=160, backward=True)
# Gradients look for the tiles of queries that they visit, and mask pairs apart from scores.
biased("gradients_visited_prefix", prefix, h=34, sq=300, skv=300, backward=True)
biased("gradients_visited_first_keys", first_keys, h=34, sq=300, skv=330, d=128, backward=True)
biased("gradients_visited_unseen_rows", two_parts, h=34, sq=300, skv=330, io="f16", backward=True)
biased("gradients_visited_bounded", bounded, h=34, sq=270, skv=300, d=72, backward=True)
biased("gradients_visited_grouped", first_keys, h=68, hk=34, sq=200, skv=300, d=32, backward=True)
biased("gradients_visited_one_order", prefix, h=34, sq=300, skv=390, d=128, backward=True, of_gradients={"deterministic": True})
biased("gradients_visited_wide", first_keys, h=34, sq=300, skv=300, d=160, backward=True)
biased("gradients_visited_dilated", dilated, h=34, sq=300, skv=300, backward=True)
biased("gradients_visited_strided_blocks", strided_blocks, h=34, sq=300, skv=300, d=128, backward=True)
biased("gradients_parts", prefix, h=4, hk=1, sq=900, skv=300, backward=True)
biased("gradients_parts_one_order", first_keys, h=2, hk=1, sq=1500, skv=400, d=128, backward=True, of_gradients={"deterministic": True})
biased("gradients_visited_chunks", chunks, h=34, sq=300, skv=300, backward=True)
biased("gradients_visited_own_chunk", own_chunk, h=34, sq=300, skv=300, d=128, backward=True)
biased("gradients_visited_last_keys", last_keys, h=34, sq=300, skv=300, backward=True)
biased("gradients_visited_last_keys_one_order", last_keys, h=34, sq=300, skv=300, backward=True, of_gradients={"deterministic": True})


def softcapped(name, number, sq=300, skv=300, d=64, cap=30.0, added=None):
    """A large negative number added to scores that a softcap bounds."""
    g = Graph("attention_index_mask_" + name, "bf16")
    for t, rows in (("q", sq), ("k", skv), ("v", skv)):
        g.tensor(t, [1, 2, rows, d])
    x = g.pointwise("mul", "scaled", g.matmul("q", g.transpose("k", "kt", [0, 1, 3, 2]), "products"), g.value("scale", d ** -0.5))
    x = g.pointwise("mul", "capped", g.pointwise("tanh_fwd", "share", g.pointwise("div", "over", x, g.value("cap", cap))), g.value("cap", cap))
    row, column = indices(g, x)
    apart = g.pointwise("sub", "apart", row, column)
    seen = g.pointwise("logical_and", "seen", g.pointwise("cmp_lt", "in_window", apart, g.value("window", 100)),
                       g.pointwise("cmp_ge", "past", apart, g.value("zero", 0)))
    bias = g.pointwise("binary_select", "bias", g.value("nothing_added", 0.0), g.value("hidden", number), seen)
    if added:
        g.tensor(bias, data_type=added)
    g.node("softmax", {"X": g.pointwise("add", "masked", x, bias)}, {"Y": "p", "Stats": "stats"})
    g.matmul("p", "v", "o")
    g.output("o")
    g.output("stats", data_type="f32")


softcapped("added_number", -1e9)
softcapped("added_number_wide", -3.3895313892515355e38, sq=150, skv=200, d=256)
# Types that do not hold the number: nothing is hidden, or little.
softcapped("added_u8", -1e9, sq=150, skv=200, added="u8")
softcapped("added_f8", -1e9, sq=150, skv=200, added="f8e4m3")
