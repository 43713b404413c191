"""Gradients of attention as autograd engines and users write them out."""
from corpus_graph import Graph


def gradients(name, b=1, h=2, hk=None, m=70, n=None, d=64, dv=None, io="bf16", rounds=False, entries=False, scale="scores", softmax="node",
              form="centred", delta=None, seen=None, hidden="-inf", mask=None, dbias=None, forward=False, stats=False, transposed=True, wanted="qkv"):
    """`rounds`: each step but the softmax of 16 bits; `entries`: products of [b h, rows, columns]; `scale`: of scores, of q or of dS's products;
    `softmax`: a node, its steps, or exp(x - lse) of a given lse; `form` of its gradient; `delta`: of o that is given, or itself;
    `seen`: masks by index, taken back by another select ("rows": some rows see all, others nothing); `transposed`: dK as (Q^T dS)^T, as PyTorch has it."""
    g = Graph("attention_gradients_" + name, io)
    hk, n, dv = hk or h, n or m, dv or d
    narrow = lambda t: g.tensor(t, data_type=io) if rounds else t
    for t, heads, rows, width in (("q", h, m, d), ("k", hk, n, d), ("v", hk, n, dv), ("do", h, m, dv)):
        g.tensor(t, [b, heads, rows, width])
    scores, rows = [b, h, m, n], [b, h, m, 1]

    def of_product(t, heads):  # as the products read it
        if heads != h:
            g.tensor(g.reshape(t, t + "_one", [b, heads, 1, n, d]), data_type=io)
            each = g.tensor(t + "_each", [b, heads, h // heads, n, d], data_type=io)
            t = g.tensor(g.reshape(g.pointwise("identity", each, t + "_one"), t + "_all", [b, h, n, d]), data_type=io)
        return g.tensor(g.reshape(t, t + "_entries", [b * h, g.tensors[t.split("_")[0]]["dim"][2], d]), data_type=io) if entries else t

    swap = [0, 2, 1] if entries else [0, 1, 3, 2]
    turned = lambda t, out: g.tensor(g.transpose(t, out, swap), data_type=io) if rounds else g.transpose(t, out, swap)
    shown = lambda t, out: narrow(g.reshape(t, out, scores)) if entries else t
    flat = lambda t, out: narrow(g.reshape(t, out, [b * h, m, n])) if entries else t
    constant = g.value("scale", d ** -0.5)
    q, k, v, do = (of_product(t, heads) for t, heads in (("q", h), ("k", hk), ("v", hk), ("do", h)))
    if scale == "q":
        q = g.tensor(g.pointwise("mul", "q_scaled", q, constant), data_type=io)
    kt, vt = turned(k, "kt"), turned(v, "vt")
    x = shown(narrow(g.matmul(q, kt, "products")), "products_shown")
    if scale != "q":
        x = narrow(g.pointwise("mul", "scores", x, constant))
    if mask:
        x = narrow(g.pointwise("add", "masked", x, g.tensor("mask", mask, data_type=io)))
    if seen:
        g.pointwise("gen_index", "row", x, axis=2)
        if seen != "rows":
            g.pointwise("gen_index", "column", x, axis=3)
        if seen == "bottom_right":
            g.pointwise("add", "diagonal", "row", g.value("shift", float(n - m)))
        if seen == "rows":
            g.pointwise("cmp_lt", "seen", "row", g.value("end", float(m - 20)))
        else:
            g.pointwise("cmp_le", "seen", "column", "diagonal" if seen == "bottom_right" else "row")
        x = narrow(g.pointwise("binary_select", "seen_scores", x, g.value("hidden", hidden), "seen"))
    if softmax == "node":
        g.node("softmax", {"X": x}, {"Y": "p"})
    elif softmax == "given":
        g.pointwise("exp", "p", g.pointwise("sub", "shifted", x, g.tensor("lse", rows, data_type="f32")))
    else:
        e = g.pointwise("exp", "e", g.pointwise("sub", "shifted", x, g.reduction("max", x, "largest", rows)))
        total = g.reduction("add", e, "total", rows)
        g.pointwise("div", "p", e, total)
        if stats:
            g.pointwise("add", "stats", "largest", g.pointwise("log", "log", total))
            g.output("stats", data_type="f32")
    p = g.tensor(g.pointwise("identity", "p_narrow", "p"), data_type=io) if rounds else "p"
    if forward:
        g.tensor(g.matmul(flat(p, "p_flat"), v, "o"), data_type=io)
        g.output("o")
    dp = shown(narrow(g.matmul(do, vt, "dp")), "dp_shown")
    if delta == "o":
        if not forward:
            g.tensor("o", [b, h, m, dv])
        r = g.reduction("add", g.pointwise("mul", "do_o", do, "o"), "delta", rows)
    elif delta == "given":
        r = g.tensor("delta", rows, data_type="f32")
    else:
        r = g.reduction("add", g.pointwise("mul", "p_dp", "p", dp), "dot", rows)
    if form == "centred":
        ds = g.pointwise("mul", "ds", "p", g.pointwise("sub", "centred", dp, r))
    elif form == "torch":
        ds = g.pointwise("sub", "ds", "p_dp", g.pointwise("mul", "p_dot", "p", r))
    else:
        ds = g.pointwise("add", "ds", "p_dp", g.pointwise("mul", "p_dot", "p", g.pointwise("neg", "less", r)))
    narrow(ds)
    if dbias:
        if dbias == scores:
            g.pointwise("identity", "dbias", ds)
        else:
            g.reduction("add", ds, "dbias", dbias)
        g.output("dbias", data_type=io)
    if seen:
        ds = narrow(g.pointwise("binary_select", "ds_seen", ds, g.value("nothing", 0.0), "seen"))
    if scale == "scores":
        ds = narrow(g.pointwise("mul", "ds_scaled", ds, constant))
    ds, p = flat(ds, "ds_flat"), flat(p, "p_of_dv")

    def result(t, out, heads, rescaled):
        if rescaled:
            t = narrow(g.pointwise("mul", out + "_rescaled", t, constant))
        if entries:
            t = narrow(g.reshape(t, out + "_by_head", [b, h, g.tensors[out[1]]["dim"][2], d]))
        if heads != h:
            t = narrow(g.reshape(t, out + "_groups", [b, heads, h // heads, n, d]))
            t = narrow(g.reduction("add", t, out + "_sum", [b, heads, 1, n, d]))
            t = narrow(g.reshape(t, out + "_joined", [b, heads, n, d]))
        g.pointwise("identity", out, t)
        g.output(out, data_type=io)

    if "q" in wanted:
        result(narrow(g.matmul(ds, k, "dq_product")), "dq", h, scale in ("q", "products"))
    if "k" in wanted:
        if transposed:
            t = turned(narrow(g.matmul(turned(q, "qt"), ds, "dk_product")), "dk_turned")
        else:
            t = narrow(g.matmul(turned(ds, "dst"), q, "dk_product"))
        result(t, "dk", hk, scale == "products")
    if "v" in wanted:
        result(narrow(g.matmul(turned(p, "pt"), do, "dv_product")), "dv", hk, False)


gradients("plain", b=2, m=150, n=200, transposed=False)
gradients("whole_step", forward=True, m=130, d=128, softmax="steps")
gradients("torch", b=2, h=3, m=90, n=130, rounds=True, entries=True, form="torch", forward=True)
# The same kernels of gradients over one tile, for racecheck, which does not end where clusters divide the keys of two walks.
gradients("torch_one_tile", b=1, h=1, m=40, n=60, rounds=True, entries=True, form="torch", forward=True)
gradients("jax", b=2, m=80, form="jax", softmax="steps", io="f16", transposed=False)
gradients("eager_causal", h=3, m=150, rounds=True, form="torch", seen="diagonal", forward=True)
gradients("causal", m=200, d=32, seen="diagonal", transposed=False)
gradients("causal_number", m=140, seen="diagonal", hidden=-1e9, io="f16")
# Rows that see nothing are NaN, and with them all that sums over rows.
gradients("unseen_rows", m=100, n=60, seen="bottom_right", wanted="q")
gradients("bottom_right", m=70, n=130, seen="bottom_right", rounds=True, form="torch")
gradients("flash", h=3, m=100, n=140, softmax="given", delta="o", scale="products", transposed=False)
gradients("delta_given", m=100, n=72, d=96, softmax="given", delta="given", wanted="qk")
gradients("scaled_queries", b=2, m=66, n=100, rounds=True, scale="q")
gradients("grouped", b=2, h=4, hk=2, m=80, n=96, rounds=True, form="torch", forward=True)
gradients("grouped_entries", h=6, hk=2, m=70, n=90, rounds=True, entries=True, form="torch", seen="diagonal", forward=True)
gradients("mask", b=2, h=2, m=70, n=88, mask=[2, 1, 1, 88], form="torch", rounds=True, forward=True)
gradients("bias", h=2, m=72, n=80, mask=[1, 2, 72, 80], dbias=[1, 2, 72, 80])
gradients("bias_of_heads", b=2, h=2, m=72, n=80, mask=[1, 2, 72, 80], dbias=[1, 2, 72, 80])
gradients("dv_dq", m=70, n=90, dv=64, wanted="qv", io="f16")
gradients("dk_alone", m=70, n=90, wanted="k")
gradients("wide", h=1, m=70, n=90, d=160, rounds=True, forward=True)
# Rows of masks alone, whose weights are 1 / n: Stats of -1e9 would lose the logarithm of n.
gradients("masked_rows", m=70, n=90, seen="rows", hidden=-1e9)
gradients("masked_rows_of_steps", m=100, n=72, d=128, seen="rows", hidden=-1e9, softmax="steps", forward=True, stats=True, io="f16", transposed=False)
gradients("masked_rows_rounded", h=3, m=66, n=140, seen="rows", hidden=-3e38, rounds=True, form="torch", forward=True)
gradients("masked_rows_wide", h=1, m=70, n=90, d=160, seen="rows", hidden=-1e9, forward=True)
gradients("masked_rows_bias", m=72, n=80, mask=[1, 2, 72, 80], dbias=[1, 2, 72, 80], seen="rows", hidden=-1e9, forward=True)


# dQ of many heads over one under a causal bound, which walk tile by tile of queries. (Of dQ alone few tiles of keys have no parts, either.)
def attention_backward_walk(name, b=1, hq=8, sq=270, skv=270, d=128, dv=128, io="bf16", **attributes):
    g = Graph("attention_backward_walk_" + name, io)
    ports = {port: g.tensor(port, [b, h, s, w]) for port, h, s, w in (("Q", hq, sq, d), ("K", 1, skv, d), ("V", 1, skv, dv))}
    g.node("sdpa", dict(ports), {"O": "O", "Stats": "Stats"}, generate_stats=True, **attributes)
    g.output("O")
    g.node("sdpa_backward", {**ports, "O": "O", "dO": g.tensor("dO", [b, hq, sq, dv]), "Stats": "Stats"}, {"dQ": "dQ"}, **attributes)
    g.output("dQ")


attention_backward_walk("causal", attn_scale=0.09, causal_mask=True)
attention_backward_walk("bottom_right", b=2, sq=150, skv=260, attn_scale=0.09, causal_mask_bottom_right=True, io="f16")
attention_backward_walk("narrow_values", hq=7, sq=140, skv=200, d=96, dv=72, attn_scale=0.1, causal_mask=True)


# Rows of Q and dO and keys that are not finite, where all but the first or the last pairs do not see them: those count for nothing.
def attention_backward_not_finite(name, where, h=2, s=70, d=64, io="bf16"):
    g = Graph("attention_backward_not_finite_" + name, io)
    ports = {port: g.tensor(port.lower(), [1, h, s, d]) for port in ("Q", "K", "V", "O", "dO")}
    t, mode, row = (where, "cmp_gt", s - 3) if where == "K" else (where, "cmp_lt", 2)
    index = g.pointwise("gen_index", "row", ports[t], axis=2)
    g.pointwise(mode, "chosen", index, g.value("from_row", float(row)))
    g.pointwise("binary_select", t + "_not_finite", g.value("infinite", "inf"), ports[t], "chosen")
    ports[t] = g.tensor(t + "_not_finite", data_type=io)
    stats = g.tensor("stats", [1, h, s, 1], data_type="f32")
    g.node("sdpa_backward", {**ports, "Stats": stats}, {"dQ": "dQ", "dK": "dK", "dV": "dV"}, attn_scale=0.125, causal_mask=True)
    g.output("dQ", "dK", "dV")


attention_backward_not_finite("queries", "Q")
attention_backward_not_finite("keys", "K", d=128, io="f16")
attention_backward_not_finite("results", "dO", d=72)
attention_backward_not_finite("wide_keys", "K", h=1, d=136)
attention_backward_not_finite("one_tile", "Q", s=140, d=32)
attention_backward_not_finite("one_tile_of_two", "K", s=200, d=40)
attention_backward_not_finite("one_tile_keys", "K", s=140, d=32)
attention_backward_not_finite("one_tile_results", "dO", s=200, d=64)
attention_backward_not_finite("f32_results", "dO", d=32, io="f32")


# Keys that all queries see and whose scores are -infinity, or whose weights' gradients are infinite: with rows of queries that do not
# exist, zeros, both would be NaN.
def attention_backward_infinite(name, where, sq=70, skv=128, d=64, io="bf16", **attributes):
    g = Graph("attention_backward_infinite_" + name, io)
    ports = {port: g.tensor(port.lower(), [1, 1, s, d]) for port, s in (("Q", sq), ("K", skv), ("V", skv), ("O", sq), ("dO", sq))}

    def replace(port, node, *operands):
        ports[port] = g.tensor(port.lower() + "_changed", data_type=io)
        g.pointwise(node, ports[port], *operands)

    replace("Q", "neg" if where == "K" else "identity", g.pointwise("abs", "sizes", "q"))
    replace("dO", "abs", "do")
    g.pointwise("cmp_gt", "chosen", g.pointwise("gen_index", "key", where.lower(), axis=2), g.value("number", float(skv // 2)))
    replace(where, "binary_select", g.value("infinite", "inf"), where.lower(), "chosen")
    stats = g.tensor("stats", [1, 1, sq, 1], data_type="f32")
    g.node("sdpa_backward", {**ports, "Stats": stats}, {"dQ": "dQ", "dK": "dK", "dV": "dV"}, attn_scale=0.125, **attributes)
    g.output("dQ", "dK", "dV")


attention_backward_infinite("keys", "K")
# Of causal rows these keys have weights of zero, which make no NaN of dQ.
attention_backward_infinite("keys_causal", "K", causal_mask=True)
attention_backward_infinite("keys_cut", "K", sq=150, skv=70, d=128, io="f16")
attention_backward_infinite("keys_wide", "K", skv=70, d=136)
attention_backward_infinite("keys_f32", "K", d=32, io="f32")
attention_backward_infinite("values", "V", sq=200, io="f16")
attention_backward_infinite("values_few", "V", skv=60, d=32)
attention_backward_infinite("values_wide", "V", d=160)
