"""Biases of attention that nodes make of indices and small tensors: the scores' bodies compute them."""
from corpus_graph import Graph


def distance(g, sq, skv):
    """column - row + what both diagonals' ends are apart."""
    of_row, of_column = g.tensor("of_row", [1, 1, sq, 1]), g.tensor("of_column", [1, 1, 1, skv])
    row, column = g.pointwise("gen_index", "row", of_row, axis=2), g.pointwise("gen_index", "column", of_column, axis=3)
    return g.pointwise("sub", "distance", column, row)


def slopes(g, b, h, sq, skv):
    return g.pointwise("mul", "bias", distance(g, sq, skv), g.tensor("slope", [1, h, 1, 1], data_type="f32"))


def powers(g, b, h, sq, skv):
    """Slopes that are computed, too."""
    head = g.pointwise("gen_index", "head", g.tensor("of_head", [1, h, 1, 1]), axis=1)
    exponent = g.pointwise("mul", "exponent", g.pointwise("add", "number", head, g.value("one", 1.0)), g.value("step", -1.5))
    return g.pointwise("mul", "bias", g.pointwise("abs", "apart", distance(g, sq, skv)), g.pointwise("pow", "slope", g.value("two", 2.0), exponent))


def decays(g, b, h, sq, skv):
    apart = g.pointwise("abs", "apart", distance(g, sq, skv))
    steep = g.pointwise("abs", "steep", g.tensor("slope", [b, h, 1, 1], data_type="f32"))
    decay = g.pointwise("mul", "decay", apart, g.pointwise("mul", "rate", steep, g.value("step", -0.1)))
    return g.pointwise("exp", "bias", decay)


def outer(g, b, h, sq, skv):
    return g.pointwise("add", "bias", g.tensor("of_queries", [b, h, sq, 1]), g.tensor("of_keys", [b, 1, 1, skv]))


def selected(g, b, h, sq, skv):
    """A number where a mask of pairs in memory says so, times one of the head."""
    chosen = g.pointwise("binary_select", "chosen", g.value("zero", 0.0), g.value("less", -3.0), g.tensor("mask", [1, h, sq, skv], data_type="bool"))
    return g.pointwise("mul", "bias", chosen, g.tensor("slope", [1, h, 1, 1], data_type="f32"))


def rounded(g, b, h, sq, skv):
    """The same as slopes(), rounded to 16 bits as in memory."""
    g.tensor("bias", data_type="bf16")
    return slopes(g, b, h, sq, skv)


def hides(right=None, left=None, chunk=None):
    """-infinity where column - row is above `right`, or below -`left`, or in another chunk of rows."""
    def make(g, b, h, sq, skv):
        d, seen = distance(g, sq, skv), None
        if right is not None:
            seen = g.pointwise("cmp_le", "keep_right", d, g.value("right", right))
        if left is not None:
            kept = g.pointwise("cmp_ge", "keep_left", d, g.value("left", -left))
            seen = g.pointwise("logical_and", "seen", seen, kept) if seen else kept
        if chunk is not None:
            size = g.value("size", chunk)
            of = [g.pointwise("floor", t + "_chunk", g.pointwise("div", t + "_share", t, size)) for t in ("row", "column")]
            seen = g.pointwise("cmp_eq", "seen", *of)
        return g.pointwise("binary_select", "bias", g.value("zero", 0.0), g.value("hidden", "-inf"), seen)
    return make


def attention(name, make, b=2, hq=4, hk=4, sq=72, skv=72, d=32, backward=False, io="bf16", stats=False, twice=False, dbias=None, **attributes):
    g = Graph("computed_bias_" + name, io)
    ports = {}
    for port, h, s in (("Q", hq, sq), ("K", hk, skv), ("V", hk, skv)):
        ports[port] = g.tensor(port, [b, h, s, d])
    ports["Bias"] = make(g, b, hq, sq, skv)
    attributes = {"attn_scale": d ** -0.5, **attributes}
    g.node("sdpa", dict(ports), {"O": "O", "Stats": "Stats"} if stats or backward else {"O": "O"}, **attributes)
    g.output("O")
    if stats:
        g.output("Stats", data_type="f32")
    if twice:  # a layer that reads the same bias
        g.node("sdpa", {**ports, "Q": g.tensor("Q2", [b, hq, sq, d])}, {"O": "O2"}, **attributes)
        g.output("O2")
    if backward:
        g.tensor("dO", [b, hq, sq, d])
        outputs = {p: p for p in ["dQ", "dK", "dV"] + ([dbias] if dbias else [])}
        g.node("sdpa_backward", {**ports, "O": "O", "dO": "dO", "Stats": "Stats"}, outputs, **attributes)
        g.output(*outputs)


attention("slopes", slopes, sq=150, skv=170, stats=True)
attention("slopes_causal", slopes, sq=140, skv=140, d=64, causal_mask=True, io="f16")
attention("slopes_rounded", rounded, sq=70, skv=90)
attention("slopes_wide", slopes, b=1, hq=2, hk=2, sq=70, skv=90, d=264)
attention("slopes_f32", slopes, b=1, hq=2, hk=2, sq=40, skv=50, io="f32")
attention("slopes_one_query", slopes, b=1, hq=8, hk=2, sq=1, skv=700, d=64)
attention("slopes_twice", slopes, sq=40, skv=48, twice=True)
attention("slopes_f8", slopes, b=1, hq=2, hk=2, sq=70, skv=80, io="f8e4m3")
attention("powers", powers, hq=6, hk=2, sq=100, skv=130)
attention("decays", decays, sq=66, skv=80, d=64)
attention("outer", outer, sq=131, skv=200, d=64)
attention("outer_odd_keys", outer, sq=65, skv=77)
attention("outer_one_row", outer, b=1, hq=8, hk=2, sq=2, skv=520, d=128)
attention("selected", selected, sq=65, skv=144, d=64)
attention("gradients_slopes", slopes, sq=150, skv=140, d=64, backward=True)
attention("gradients_powers", powers, hq=4, hk=2, sq=80, skv=72, backward=True, causal_mask=True)
attention("gradients_decays", decays, b=1, hq=2, hk=2, sq=70, skv=96, d=160, backward=True)
attention("gradients_outer", outer, sq=72, skv=136, d=64, backward=True)
attention("gradients_rounded", rounded, sq=72, skv=136, backward=True)
attention("gradients_selected", selected, sq=66, skv=64, backward=True)
attention("gradients_dbias", slopes, b=1, hq=2, hk=2, sq=72, skv=72, backward=True, dbias="dBias")
attention("gradients_f32", slopes, b=1, hq=2, hk=2, sq=40, skv=48, io="f32", backward=True)
# Bounds: tiles that nobody sees are not visited; rows that see nothing.
attention("hides_right", hides(right=0), sq=200, skv=200, d=64, stats=True)
attention("hides_window", hides(right=3, left=40), hq=4, hk=2, sq=150, skv=260, d=64, io="f16")
attention("hides_all_of_first_rows", hides(right=-70), sq=150, skv=140, stats=True)
attention("hides_all_of_last_rows", hides(left=20), sq=150, skv=70)
attention("hides_chunks", hides(chunk=48), sq=150, skv=160)
attention("hides_one_query", hides(right=300), b=1, hq=8, hk=2, sq=2, skv=700, d=64)
attention("gradients_hides_right", hides(right=2), sq=150, skv=170, d=64, backward=True)
attention("gradients_hides_window", hides(right=10, left=30), b=1, hq=4, hk=2, sq=200, skv=180, d=64, backward=True)
attention("gradients_hides_wide", hides(right=0), b=1, hq=2, hk=2, sq=140, skv=140, d=160, backward=True)
attention("gradients_hides_first_rows", hides(right=-20), sq=90, skv=100, backward=True)
attention("gradients_hides_dbias", hides(right=0), b=1, hq=2, hk=2, sq=136, skv=136, backward=True, dbias="dBias")
attention("gradients_hides_chunks", hides(chunk=48), b=1, hq=2, hk=2, sq=100, skv=100, backward=True)
