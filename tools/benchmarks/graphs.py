#!/usr/bin/env python3
"""The graphs of the tables under results/: graphs.py FOLDER writes one file each, named table-row."""
import os
import re
import sys

from graph_json import Graph


def norm(op, rows, columns, io="bf16", out=None):
    g = Graph(io)
    ports = {"X": g.input("x", rows, columns), "SCALE": g.input("scale", 1, columns), "epsilon": g.scalar("epsilon", 1e-5)}
    if op == "layernorm":
        ports["BIAS"] = g.input("bias", 1, columns)
    return g.output(g.node(op, ports, "Y"), out)


def norm_gradients(op, rows, columns):
    g = Graph()
    ports = {"DY": g.input("dy", rows, columns), "X": g.input("x", rows, columns), "SCALE": g.input("scale", 1, columns)}
    if op == "layernorm":
        ports["MEAN"] = g.input("mean", rows, 1, dtype="f32")
    ports["INV_VARIANCE"] = g.input("inv_variance", rows, 1, dtype="f32")
    wanted = ["DX", "DSCALE"] + (["DBIAS"] if op == "layernorm" else [])
    for result in g.node(op + "_backward", ports, *wanted):
        g.output(result)
    return g


def softmax(*dim, axis=-1, out=None):
    g = Graph()
    return g.output(g.node("softmax", {"X": g.input("x", *dim)}, "Y", axis=axis), out)


def transpose(rows, columns):
    g = Graph()
    return g.output(g.node("transpose", {"X": g.input("x", rows, columns)}, "Y", permutation=[1, 0]))


def column_sums(rows, columns):
    g = Graph()
    return g.output(g.reduce(g.input("x", rows, columns), 1, columns))


def row_sums(rows, columns):
    g = Graph()
    return g.output(g.reduce(g.input("x", rows, columns), rows, 1))


def multiply_add_gelu(count):
    g = Graph()
    dim = (count // 8192, 8192)
    sum_ = g.pointwise("add", g.pointwise("mul", g.input("a", *dim), g.input("b", *dim)), g.input("c", *dim))
    return g.output(g.pointwise("gelu_approx_tanh_fwd", sum_))


def gated_halves(rows, columns):
    g = Graph()
    x, half = g.input("x", rows, columns), columns // 2
    gate = g.slice(x, (0, 0), (rows, half))
    return g.output(g.pointwise("mul", g.pointwise("swish_fwd", gate), g.slice(x, (0, half), (rows, columns))))


def rotary(b, h, s, d):
    g = Graph()
    x = g.input("x", b, h, s, d)
    first, second = (g.slice(x, (0, 0, 0, i * d // 2), (b, h, s, (i + 1) * d // 2)) for i in (0, 1))
    turned = g.node("concatenate", {"IN_0": g.pointwise("neg", second), "IN_1": first}, "Y", axis=-1)
    tables = [g.input(name, 1, 1, s, d, dtype="f32") for name in ("cosine", "sine")]
    return g.output(g.pointwise("add", g.pointwise("mul", x, tables[0]), g.pointwise("mul", turned, tables[1])))


def group_swish(n, c, h, groups=32):
    g = Graph()
    ports = {"X": g.channels_last("x", n, c, h, h), "SCALE": g.input("scale", 1, c, 1, 1), "BIAS": g.input("bias", 1, c, 1, 1),
             "epsilon": g.scalar("epsilon", 1e-5)}
    y = g.pointwise("swish_fwd", g.node("groupnorm", ports, "Y", groups=groups))
    return g.output(y, stride=[c * h * h, 1, c * h, c])


def max_pool(n, c, h):
    g = Graph()
    y = g.node("resample", {"X": g.channels_last("x", n, c, h, h)}, "Y", mode="maxpool", window=[3, 3], stride=[2, 2],
               pre_padding=[1, 1], post_padding=[1, 1])
    o = (h + 2 - 3) // 2 + 1
    return g.output(y, stride=[c * o * o, 1, c * o, c])


def product(m, n, k, act=None, bias=False, residual=False, io="bf16", out=None, weight_rows=True):
    """act(x @ w + bias) + residual; the weight is kept as [N, K]."""
    g = Graph(io)
    y = g.matmul(g.input("x", 1, m, k), g.input("w", 1, k, n, stride=[k * n, 1, k] if weight_rows else None))
    if bias:
        y = g.pointwise("add", y, g.input("bias", 1, 1, n))
    if act:
        y = g.pointwise(act, y)
    if residual:
        y = g.pointwise("add", y, g.input("residual", 1, m, n))
    return g.output(y, out)


def gated_product(m, n, k, two_weights=True):
    """swish(x @ gate) * (x @ up), or swish(x @ w) * gate with a gate that is given."""
    g = Graph()
    x = g.input("x", 1, m, k)
    gate = g.matmul(x, g.input("w_gate", 1, k, n, stride=[k * n, 1, k]))
    up = g.matmul(x, g.input("w_up", 1, k, n, stride=[k * n, 1, k])) if two_weights else g.input("gate", 1, m, n)
    return g.output(g.pointwise("mul", g.pointwise("swish_fwd", gate), up))


def experts(e, rows, n, k, mode="none", gated=False):
    g = Graph()
    rows_of_tokens = rows // 2 if mode == "gather" else rows
    ports = {"Token": g.input("tokens", 1, rows_of_tokens, k), "FirstTokenOffset": g.input("offsets", e + 1, dtype="i32")}
    if mode != "none":
        ports["TokenIndex"] = g.input("index", rows, dtype="i32")
    grouped = lambda w: g.node("moe_grouped_matmul", {**ports, "Weight": g.input(w, e, k, n, stride=[k * n, 1, k])}, "Y",
                               mode=mode, top_k=2 if mode == "gather" else 1)
    y = grouped("w")
    if gated:
        y = g.pointwise("mul", g.pointwise("swish_fwd", y), grouped("w_up"))
    return g.output(y)


def convolution(direction, n, c, size, k, filter_, stride=1, padding=None, groups=1, lines=False):
    """Forward, or the gradient of the image or of the filter; `lines`: pixels of a line lie together, not channels."""
    g, rank = Graph(), len(size)
    padding = filter_ // 2 if padding is None else padding
    shapes = {"X": (n, c, *size), "W": (k, c // groups, *[filter_] * rank),
              "Y": (n, k, *[(x + 2 * padding - filter_) // stride + 1 for x in size])}
    lay = lambda name, of: g.input(name, *shapes[of]) if lines else g.channels_last(name, *shapes[of])
    first, second, result = {"forward": ("X", "W", "Y"), "image": ("Y", "W", "X"), "filter": ("Y", "X", "W")}[direction]
    op = {"forward": "conv_fprop", "image": "conv_dgrad", "filter": "conv_wgrad"}[direction]
    gradient = lambda of: "DY" if of == "Y" else of
    ports = ({first: lay("x", first), second: lay("w", second)} if direction == "forward"
             else {gradient(of): lay(of.lower(), of) for of in (first, second)})
    y = g.node(op, ports, result if direction == "forward" else "D" + result, groups=groups,
               **{name: [value] * rank for name, value in [("pre_padding", padding), ("post_padding", padding),
                                                           ("stride", stride), ("dilation", 1)]})
    lay(y, result)
    return g.output(y)


CONVOLUTIONS = {
    "256 x 64, 56 x 56, 64 of 3 x 3": (256, 64, (56, 56), 64, 3),
    "256 x 128, 28 x 28, 128 of 3 x 3": (256, 128, (28, 28), 128, 3),
    "256 x 256, 14 x 14, 256 of 3 x 3": (256, 256, (14, 14), 256, 3),
    "32 x 512, 64 x 64, 512 of 3 x 3": (32, 512, (64, 64), 512, 3),
    "256 x 256, 56 x 56, 512 of 1 x 1, stride 2": (256, 256, (56, 56), 512, 1, 2),
    "256 x 3, 224 x 224, 64 of 7 x 7, stride 2": (256, 3, (224, 224), 64, 7, 2),
    "128 x 128, 56 x 56, 128 of 3 x 3, stride 2": (128, 128, (56, 56), 128, 3, 2),
    "16 x 512, 3000, 1280 of 3": (16, 512, (3000,), 1280, 3),
    "2 x 64, 16 x 56 x 56, 64 of 3 x 3 x 3": (2, 64, (16, 56, 56), 64, 3),
    "64 x 36, 56 x 56, 60 of 3 x 3": (64, 36, (56, 56), 60, 3),
    "128 x 128, 56 x 56, 32 groups of 4, 3 x 3": (128, 128, (56, 56), 128, 3, 1, None, 32),
    "64 x 384, 28 x 28, depthwise 7 x 7": (64, 384, (28, 28), 384, 7, 1, None, 384),
    "128 x 144, 56 x 56, depthwise 3 x 3": (128, 144, (56, 56), 144, 3, 1, None, 144),
    "128 x 144, 56 x 56, depthwise 3 x 3, stride 2": (128, 144, (56, 56), 144, 3, 2, None, 144),
    "64 x 128, 28 x 28, 128 of 3 x 3, channels first": (64, 128, (28, 28), 128, 3, 1, None, 1, True),
    "64 x 96, 56 x 56, depthwise 3 x 3, channels first": (64, 96, (56, 56), 96, 3, 1, None, 96, True),
}


def attention(b, heads, shared, queries, keys, d, causal=False, backward=False, bottom_right=False, page=0, dropout=0,
              padding=False, stats=False):
    g = Graph()
    of_q = lambda name: g.input(name, b, heads, queries, d)
    blocks = (b * keys // page, shared, page, d) if page else (b, shared, keys, d)
    ports = {"Q": of_q("Q"), **{name: g.input(name, *blocks) for name in ("K", "V")}}
    options = {"attn_scale": d ** -0.5, **({"causal_mask": True} if causal else {}),
               **({"causal_mask_bottom_right": True} if bottom_right else {}),
               **({"padding_mask": True} if page or padding else {}), **({"dropout_probability": dropout} if dropout else {})}
    if page:
        ports |= {p: g.input(p, b, 1, keys // page, 1, dtype="i32") for p in ("Page_table_K", "Page_table_V")}
    if page or padding:
        ports |= {p: g.input(p, b, 1, 1, 1, dtype="i32") for p in ("SEQ_LEN_Q", "SEQ_LEN_KV")}
    if dropout:
        ports |= {p: g.input(p, 1, dtype="i64") for p in ("Seed", "Offset")}
    if stats:
        o, of_rows = g.node("sdpa", ports, "O", "Stats", generate_stats=True, **options)
        return g.output(o).output(of_rows, "f32")
    if not backward:
        return g.output(g.node("sdpa", ports, "O", **options))
    ports |= {"O": of_q("O"), "dO": of_q("dO"), "Stats": g.input("Stats", b, heads, queries, 1, dtype="f32")}
    for result in g.node("sdpa_backward", ports, "dQ", "dK", "dV", **options):
        g.output(result)
    return g


ATTENTION = {
    "4 x 32 heads, 4096, d 128": (4, 32, 32, 4096, 4096, 128),
    "4 x 32 heads, 4096, d 128, causal": (4, 32, 32, 4096, 4096, 128, True),
    "1 x 64 heads, 8 of K, 16384, d 128, causal": (1, 64, 8, 16384, 16384, 128, True),
    "4 x 32 heads, 4096, d 64, causal": (4, 32, 32, 4096, 4096, 64, True),
    "32 x 16 heads, 512, d 64": (32, 16, 16, 512, 512, 64),
}

TABLES = {  # by table, the rows in the words of results/; "traffic" or "rate" is what counts
    "memory-bound": ("traffic", {
        **{f"{op} {r} x {c}": norm(op, r, c) for op, r, c in [
            ("rmsnorm", 16384, 4096), ("layernorm", 8192, 8192), ("layernorm", 131072, 128)]},
        **{f"softmax {r} x {c}": softmax(r, c) for r, c in [(16384, 4096), (4096, 16384)]},
        **{f"rmsnorm gradients {r} x {c}": norm_gradients("rmsnorm", r, c) for r, c in [
            (16384, 4096), (8192, 8192), (131072, 128)]},
        "gelu(a * b + c), 128 M elements": multiply_add_gelu(1 << 27),
        "column sums 8192 x 16384": column_sums(8192, 16384),
        "transpose 8192 x 16384": transpose(8192, 16384)}),
    "around products": ("traffic", {
        "swish(gate) * up, halves of 4096 x 28672": gated_halves(4096, 28672),
        "rotary embedding, [4, 32, 4096, 128], halves": rotary(4, 32, 4096, 128),
        "softmax along a middle axis, [64, 256, 4096]": softmax(64, 256, 4096, axis=1),
        "softmax of 1 M rows of 49": softmax(1 << 20, 49),
        "layernorm of 200704 x 192": norm("layernorm", 200704, 192),
        "maxpool 3 x 3, stride 2, 64 x 64 x 112 x 112": max_pool(64, 64, 112),
        "groupnorm + swish, 16 x 512 x 64 x 64": group_swish(16, 512, 64),
        "groupnorm + swish, 8 x 320 x 64 x 64": group_swish(8, 320, 64),
        "sums of 4 M rows of 32": row_sums(1 << 22, 32),
        "rmsnorm 16384 x 4096 from bf16 to f32": norm("rmsnorm", 16384, 4096, out="f32")}),
    "long rows": ("traffic", {
        **{f"rmsnorm gradients {r} x {c}": norm_gradients("rmsnorm", r, c) for r, c in [
            (16384, 2560), (8192, 5120), (8192, 12288), (4096, 18432), (2048, 24576), (8192, 5001), (16384, 1001)]},
        **{f"layernorm gradients {r} x {c}": norm_gradients("layernorm", r, c) for r, c in [
            (32768, 1152), (16384, 2560), (16384, 3072), (1024, 5120), (4096, 5120), (8192, 5120), (8192, 7168), (4096, 12288),
            (4096, 18432), (2048, 24576), (16384, 1001)]},
        **{f"rmsnorm {r} x {c}": norm("rmsnorm", r, c) for r, c in [
            (16384, 1001), (8192, 5001), (8192, 28672), (2048, 32768), (1024, 131072)]},
        **{f"softmax {r} x {c}": softmax(r, c) for r, c in [
            (2048, 32768), (1024, 65536), (2048, 50257), (1024, 131072)]},
        **{f"transpose {r} x {c}": transpose(r, c) for r, c in [(5001, 7003), (8192, 16383)]}}),
    "matrix products": ("rate", {
        **{f"{m} x {n} x {k}": product(m, n, k) for m, n, k in [
            (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (64, 8192, 8192), (8, 8192, 8192), (1, 8192, 8192),
            (300, 5000, 1111), (128, 128, 65536)]},
        "+ bias + gelu, 8192 x 28672 x 8192": product(8192, 28672, 8192, "gelu_approx_tanh_fwd", bias=True),
        "+ bias + gelu, 4096 x 16384 x 4096": product(4096, 16384, 4096, "gelu_approx_tanh_fwd", bias=True),
        "+ bias + relu, 512 x 8192 x 8192": product(512, 8192, 8192, "relu_fwd", bias=True),
        "+ bias + residual, 16384 x 4096 x 1024": product(16384, 4096, 1024, bias=True, residual=True),
        "swish(x @ w) * gate, 8192 x 8192 x 8192": gated_product(8192, 8192, 8192, two_weights=False),
        "swish(x @ gate) * (x @ up), 8192 x 14336 x 4096": gated_product(8192, 14336, 4096),
        "8192 x 8192 x 8192, f8e4m3": product(8192, 8192, 8192, io="f8e4m3", out="bf16"),
        "4096 x 4096 x 4096, f32 that must not be rounded": product(4096, 4096, 4096, io="f32")}),
    "few rows": ("traffic", {
        **{f"{m} x {n} x {k}": product(m, n, k) for m, n, k in [
            (16, 2048, 7168), (16, 5120, 5120), (64, 5120, 5120), (64, 5120, 13824), (64, 7168, 18432), (64, 14336, 4096),
            (128, 4096, 14336)]},
        "swish(x @ gate) * (x @ up), 64 x 14336 x 4096": gated_product(64, 14336, 4096)}),
    "mixtures of experts": ("rate", {
        "8 x 8192 rows, 14336 x 4096": experts(8, 8192, 14336, 4096),
        "8 x 8192 rows, 4096 x 14336, scattered": experts(8, 8192, 4096, 14336, "scatter"),
        "8 x 8192 rows gathered, swish(x @ gate) * (x @ up), 14336 x 4096": experts(8, 8192, 14336, 4096, "gather", True),
        "32 x 16384 rows, 5760 x 2880": experts(32, 16384, 5760, 2880),
        "64 x 32768 rows, 1408 x 2048": experts(64, 32768, 1408, 2048),
        "64 x 32768 rows gathered, swish(x @ gate) * (x @ up), 1408 x 2048": experts(64, 32768, 1408, 2048, "gather", True),
        "128 x 1024 rows gathered, swish(x @ gate) * (x @ up), 768 x 2048": experts(128, 1024, 768, 2048, "gather", True),
        "8 x 64 rows gathered, swish(x @ gate) * (x @ up), 14336 x 4096": experts(8, 64, 14336, 4096, "gather", True)}),
    **{f"convolutions, {direction}": ("rate", {
        row: convolution(direction, *shape) for row, shape in CONVOLUTIONS.items()})
       for direction in ("forward", "image", "filter")},
    "attention": ("rate", {
        **{row: attention(*shape) for row, shape in ATTENTION.items()},
        "4 x 16 heads, 2048, d 96, causal": attention(4, 16, 16, 2048, 2048, 96, True)}),
    "gradients of attention": ("rate", {
        **{row: attention(*shape, backward=True) for row, shape in ATTENTION.items()},
        "4 x 16 heads, 2048, d 128, causal, dropout": attention(4, 16, 16, 2048, 2048, 128, True, backward=True, dropout=0.1)}),
    "pages": ("traffic", {
        f"{b} x 64 heads, 8 of K, one query, {keys} keys in pages of {page}, d 128": attention(b, 64, 8, 1, keys, 128, page=page)
        for b, keys, page in [(16, 4096, 16), (16, 4096, 64), (4, 131072, 64), (64, 1024, 16)]}),
    "decode": ("traffic", {
        f"{b} x 64 heads, 8 of K, one query, {keys} keys, d 128": attention(b, 64, 8, 1, keys, 128)
        for b, keys in [(1, 8192), (4, 131072), (16, 4096), (64, 1024)]}),
}


def file_name(table, row):
    return re.sub(r"[^a-z0-9]+", "_", f"{table} {row}".lower()).strip("_") + ".json"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: graphs.py FOLDER")
    os.makedirs(sys.argv[1], exist_ok=True)
    for table, (_, rows) in TABLES.items():
        for row, graph in rows.items():
            graph.write(os.path.join(sys.argv[1], file_name(table, row)), f"{table}: {row}")


if __name__ == "__main__":
    main()
