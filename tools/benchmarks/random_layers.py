#!/usr/bin/env python3
"""Random layers of the sizes that models have: random_layers.py FOLDER COUNT SEED writes as many graphs.

The random graphs of the tests are small, so that every result is computed by the reference too; tiles of 256 rows, clusters,
persistent loops and split k need larger ones. `sinter bench --json --samples N FOLDER/*.json` compares N results of each
with the reference and times it, on the GPU at hand.
"""
import math
import os
import random
import sys

from graph_json import Graph, channels_last_stride

MOST_FLOPS, MOST_BYTES = 1.5e11, 4e8
UNARY = ["relu_fwd", "gelu_fwd", "gelu_approx_tanh_fwd", "swish_fwd", "tanh_fwd", "sigmoid_fwd", "abs", "neg", "elu_fwd", "softplus_fwd"]


def extent(r, least, most):
    """Mostly what models have: multiples of 64 or 8; sometimes any number."""
    x = int(least * (most / least) ** r.random())
    step = r.choice([64, 64, 32, 8, 8, 1])
    return max(least, x // step * step) if x >= step else x


def epilogue(r, g, y, dim, last_is_channel, io):
    """Up to four operations on y: rows, columns, whole tensors and numbers beside it."""
    full = lambda name: g.input(name, *dim) if last_is_channel else g.channels_last(name, *dim)
    channel = [1] * len(dim)
    axis = len(dim) - 1 if last_is_channel else 1
    channel[axis] = dim[axis]
    for i in range(r.choice([0, 0, 1, 1, 2, 3, 4])):
        kind = r.choice(["channel", "channel", "act", "act", "residual", "scale", "row", "gradient"])
        if kind == "channel":
            y = g.pointwise(r.choice(["add", "add", "mul"]), y, g.input(f"c{i}", *channel, dtype=r.choice([None, "f32"])))
        elif kind == "act":
            y = g.pointwise(r.choice(UNARY), y)
        elif kind == "residual":
            y = g.pointwise(r.choice(["add", "mul"]), y, full(f"r{i}"))
        elif kind == "scale":
            y = g.pointwise("mul", y, g.scalar(f"s{i}", round(r.uniform(-2, 2), 3)))
        elif kind == "row":
            rows = [dim[0]] + [1] * (len(dim) - 1) if not last_is_channel else [1] * (len(dim) - 2) + [dim[-2], 1]
            y = g.pointwise("mul", y, g.input(f"rows{i}", *rows, dtype="f32"))
        else:
            y = g.pointwise(r.choice(["relu_bwd", "gelu_bwd", "swish_bwd"]), y, full(f"before{i}"))
    extra = r.random()
    if extra < 0.12:
        g.output(g.reduce(y, *channel, mode=r.choice(["add", "avg", "max"])), "f32")
    elif extra < 0.2:
        g.output(g.reduce(y, *[1] * len(dim), mode="amax"), "f32")
    return y


def result(r, g, y, dim, last_is_channel):
    fields = {} if last_is_channel else {"stride": channels_last_stride(dim)}
    g.output(y, r.choice([None, None, None, "f32", "f8e4m3"]), **fields)


def factor(r, g, name, b, rows, columns, io):
    """By rows or by columns, packed, with room behind each line, or heads beside one another; sometimes computed on the way."""
    room = r.choice([0, 0, 0, 8, 24, 1])
    lay = r.choice(["rows", "rows", "columns", "columns", "heads"])
    strides = {"rows": [rows * (columns + room), columns + room, 1], "columns": [columns * (rows + room), 1, rows + room],
               "heads": [columns, b * columns, 1]}[lay]
    stored = r.choice(["f8e4m3", "i8"]) if io in ("bf16", "f16") and r.random() < 0.12 else None
    x = g.input(name, b, rows, columns, stride=strides, dtype=stored)
    if stored:
        return g.pointwise("mul", x, g.input(name + "_scale", 1, 1, columns, dtype="f32"))
    if io != "i8" and r.random() < 0.12:
        x = g.pointwise(r.choice(["relu_fwd", "swish_fwd"]), x)
    return x


def product(r):
    io = r.choice(["bf16", "bf16", "bf16", "f16", "f8e4m3", "f32", "i8"])
    g = Graph(io)
    m, n, k = (extent(r, 1, 16384) for _ in range(3))
    if r.random() < 0.35:
        m = extent(r, 1, 512)
    b = r.choice([1, 1, 1, 2, 3, 8, 24])
    if 2 * b * m * n * k > (MOST_FLOPS if io != "f32" else 2e10) or b * (m * k + n * k + m * n) * 2 > MOST_BYTES:
        return None
    a = factor(r, g, "a", b, m, k, io)
    w = factor(r, g, "w", 1 if r.random() < 0.3 else b, k, n, io)
    y = g.node("matmul", {"A": a, "B": w}, "C", **({"compute_data_type": "tf32"} if io == "f32" and r.random() < 0.5 else {}))
    if io == "i8":
        g.tensors[y] = {"data_type": "i32"}
        return g.output(y, "i32")
    y = epilogue(r, g, y, (b, m, n), True, io)
    result(r, g, y, (b, m, n), True)
    return g


def chain(r):
    """Norm, product, activation or gate, product."""
    g = Graph(r.choice(["bf16", "f16"]))
    m, d, h = extent(r, 1, 8192), extent(r, 64, 4096), extent(r, 64, 8192)
    if 6 * m * d * h > MOST_FLOPS:
        return None
    x = g.input("x", 1, m, d)
    y = g.node("rmsnorm", {"X": x, "SCALE": g.input("scale", 1, 1, d), "epsilon": g.scalar("epsilon", 1e-5)}, "Y",
               forward_phase="inference") if r.random() < 0.5 else x
    if r.random() < 0.3 and y != x:
        g.output(y)
    weight = lambda name, k, n: g.input(name, 1, k, n, stride=r.choice([None, [k * n, 1, k]]))
    z = g.pointwise(r.choice(UNARY), g.matmul(y, weight("w1", d, h)))
    if r.random() < 0.5:
        z = g.pointwise("mul", z, g.matmul(y, weight("w3", d, h)))
    if r.random() < 0.6:
        z = g.matmul(z, weight("w2", h, d))
        z = g.pointwise("add", z, x) if r.random() < 0.6 else z
    return g.output(z)


def convolution(r):
    io = r.choice(["bf16", "bf16", "bf16", "f16", "f32", "f8e4m3", "i8"])
    g, rank = Graph(io), r.choice([2, 2, 2, 2, 1, 3])
    each = lambda share, of: [r.choice(of) for _ in range(rank)] if r.random() < share else [r.choice(of)] * rank
    f = each(0.25, [1, 1, 3, 3, 3, 5, 7, 2, 4])
    groups = r.choice([1, 1, 1, 1, 0, 32, 2])
    c, k = extent(r, 1, 1024), extent(r, 1, 1024)
    if groups == 0:
        c = max(8, c)
        groups, k = c, c * r.choice([1, 1, 1, 2])
    elif groups > 1:
        c, k = max(1, c // groups) * groups, max(1, k // groups) * groups
    size = each(0.2, [7, 8, 13, 14, 16, 28, 32, 33, 56, 64, 112, 128, extent(r, 7, 160)])
    if rank == 1:
        size = [extent(r, 16, 4096)]
    if rank == 3:
        size = [r.choice([4, 8, 16])] + [min(x, 56) for x in size[1:]]
    n = extent(r, 1, 256)
    stride, dilation = each(0.25, [1, 1, 1, 2]), [r.choice([1, 1, 1, 1, 2])] * rank
    pre = [r.choice([e // 2 * d, e // 2 * d, 0]) for e, d in zip(f, dilation)]
    post = list(pre) if r.random() < 0.8 else [r.choice([0, 1]) for _ in pre]
    out = [(s + a + b - d * (e - 1) - 1) // t + 1 for s, a, b, e, t, d in zip(size, pre, post, f, stride, dilation)]
    if min(out) < 1:
        return None
    if (2 * n * math.prod(out) * k * c // groups * math.prod(f) > (MOST_FLOPS if io != "f32" else 2e10)
            or n * (math.prod(size) * c + math.prod(out) * k) * 2 > MOST_BYTES):
        return None
    lines = r.random() < 0.15
    shapes = {"X": (n, c, *size), "W": (k, c // groups, *f), "Y": (n, k, *out)}
    lay = lambda name, of: g.input(name, *shapes[of]) if lines else g.channels_last(name, *shapes[of])
    attributes = {"groups": groups, "pre_padding": pre, "post_padding": post, "stride": stride, "dilation": dilation,
                  **({"compute_data_type": "i32"} if io == "i8" else {}),
                  **({"compute_data_type": "tf32"} if io == "f32" and r.random() < 0.5 else {})}
    direction = r.choice(["fprop", "fprop", "dgrad", "wgrad"])
    if direction == "fprop":
        x = lay("x", "X")
        if io in ("bf16", "f16") and r.random() < 0.15:  # the layer before: normalised and clipped
            x = g.pointwise("mul", x, g.input("x_scale", 1, c, *[1] * rank, dtype="f32"))
            x = g.pointwise("relu_fwd", g.pointwise("add", x, g.input("x_bias", 1, c, *[1] * rank, dtype="f32")))
        y = g.node("conv_fprop", {"X": x, "W": lay("w", "W")}, "Y", **attributes)
        if io == "i8":
            return g.output(y, "i32", **({} if lines else {"stride": channels_last_stride(shapes["Y"])}))
        y = epilogue(r, g, y, shapes["Y"], False, io)
        return g.output(y, **({} if lines else {"stride": channels_last_stride(shapes["Y"])}))
    dy = lay("dy", "Y")
    if io not in ("i8", "f8e4m3") and r.random() < 0.3:
        dy = g.pointwise("relu_bwd", dy, lay("before", "Y"))
    of = "X" if direction == "dgrad" else "W"
    ports = {"DY": dy, "W" if of == "X" else "X": lay("other", "W" if of == "X" else "X")}
    y = g.node("conv_" + direction, ports, "D" + of, **attributes)
    g.tensors[y] = {"dim": list(shapes[of])}
    if io == "i8":
        return g.output(y, "i32", **({} if lines else {"stride": channels_last_stride(shapes[of])}))
    if of == "X" and r.random() < 0.3:
        z = g.pointwise("relu_bwd", y, lay("x_before", "X"))
    else:
        z = y
    return g.output(z, **({} if lines else {"stride": channels_last_stride(shapes[of])}),
                    **({"dtype": "f32"} if of == "W" and r.random() < 0.4 else {}))


def attention(r):
    io = r.choice(["bf16", "bf16", "bf16", "f16", "f8e4m3", "f32"])
    backward = r.random() < 0.4 and io != "f8e4m3"
    g = Graph(io)
    b, hk = r.choice([1, 1, 2, 3, 4, 8, 16]), r.choice([1, 1, 2, 4, 8])
    h = hk * r.choice([1, 1, 2, 4, 7, 8])
    sq = r.choice([1, 1, 2, 5, 16, extent(r, 1, 4096), extent(r, 1, 2048), extent(r, 64, 1024)])
    if backward:
        sq = extent(r, 16, 2048)
    skv = r.choice([sq, sq, extent(r, 1, 8192), extent(r, 1, 2048)])
    d = r.choice([64, 128, 128, 32, 40, 72, 80, 96, 160, 192, 256, 8, 48])
    dv = d if r.random() < 0.85 else r.choice([64, 128, 96])
    if 4 * b * h * sq * skv * (d + dv) > (MOST_FLOPS if io != "f32" else 1e10) or b * hk * skv * (d + dv) * 2 > MOST_BYTES:
        return None
    layout = r.choice(["bhsd", "bhsd", "bshd"])

    def lay(name, heads, s, width, dtype=None):
        return g.input(name, b, heads, s, width, dtype=dtype,
                       stride=[s * heads * width, width, heads * width, 1] if layout == "bshd" else None)
    ports = {"Q": lay("Q", h, sq, d), "K": lay("K", hk, skv, d), "V": lay("V", hk, skv, dv)}
    options = {"attn_scale": round(d ** -0.5, 5)}
    mask = r.choice(["none", "none", "causal", "causal", "bottom_right", "window"])
    if mask == "causal":
        options["causal_mask"] = True
    elif mask != "none":
        options["causal_mask_bottom_right"] = True
    if mask == "window":
        options["left_bound"] = extent(r, 1, 1024)
    if r.random() < 0.15:
        options["softcap"] = 20.0
    if r.random() < 0.2:
        options["padding_mask"] = True
        ports |= {p: g.input(p, b, 1, 1, 1, dtype="i32") for p in ("SEQ_LEN_Q", "SEQ_LEN_KV")}
    if r.random() < 0.15:
        ports["Bias"] = g.input("Bias", r.choice([1, b]), r.choice([1, h]), sq, skv)
        if b * h * sq * skv * 2 > MOST_BYTES:
            return None
    sink, dropout = r.random() < 0.1, r.random() < 0.1
    if sink and not backward:
        ports["SINK_TOKEN"] = g.input("sink", 1, h, 1, 1, dtype="f32")
    if dropout and not backward:
        options["dropout_probability"] = 0.1
        ports |= {p: g.input(p, 1, dtype="i64") for p in ("Seed", "Offset")}
    if io == "f32" and r.random() < 0.5:
        options["compute_data_type"] = "tf32"
    if not backward:
        if r.random() < 0.3:
            o, of_rows = g.node("sdpa", ports, "O", "Stats", generate_stats=True, **options)
            g.output(of_rows, "f32")
        else:
            o = g.node("sdpa", ports, "O", **options)
        return g.output(o, r.choice([None, "bf16"]) if io == "f8e4m3" else None)
    o, of_rows = g.node("sdpa", ports, "O", "Stats", generate_stats=True, **options)
    g.tensors[of_rows] = {"data_type": "f32"}
    gradient = ports | {"O": o, "dO": lay("dO", h, sq, dv), "Stats": of_rows}
    for y in g.node("sdpa_backward", gradient, "dQ", "dK", "dV", **options):
        g.output(y)
    return g.output(o)


def sequences(r):
    """Packed sequences, forward and gradients; pages of keys; attention in single operations; queries, keys and values of one tensor."""
    g, kind = Graph(r.choice(["bf16", "f16"])), r.choice(["packed", "packed", "pages", "pages", "by_hand", "interleaved"])
    b, hk, d = r.choice([1, 2, 3, 4, 8, 16]), r.choice([1, 2, 4, 8]), r.choice([64, 128, 128, 32, 80, 96, 256])
    h, most = hk * r.choice([1, 1, 2, 4, 8]), extent(r, 16, 2048)
    if 4 * b * h * most * most * 2 * d > MOST_FLOPS:
        return None
    options = {"attn_scale": round(d ** -0.5, 5)}
    if r.random() < 0.5:
        options[r.choice(["causal_mask", "causal_mask_bottom_right"])] = True
    if kind == "packed":
        tokens = b * most
        lay = lambda name, heads: g.input(name, 1, heads, tokens, d, stride=[tokens * heads * d, d, heads * d, 1])
        ports = {"Q": lay("Q", h), "K": lay("K", hk), "V": lay("V", hk),
                 **{p: g.input(p, b + 1, 1, 1, 1, dtype="i32") for p in ("CU_SEQ_LEN_Q", "CU_SEQ_LEN_KV")}}
        o, of_rows = g.node("sdpa", ports, "O", "Stats", generate_stats=True, **options)
        g.tensors[o] = {"stride": [tokens * h * d, d, h * d, 1]}
        g.tensors[of_rows] = {"data_type": "f32"}
        if r.random() < 0.5:
            for y in g.node("sdpa_backward", ports | {"O": o, "dO": lay("dO", h), "Stats": of_rows}, "dQ", "dK", "dV", **options):
                g.output(y)
        return g.output(o)
    if kind == "pages":
        page, sq = r.choice([16, 32, 64, 128]), r.choice([1, 1, 1, 4, 17, 128, most])
        pages = max(1, most // page)
        ports = {"Q": g.input("Q", b, h, sq, d), **{x: g.input(x, b * pages, hk, page, d) for x in ("K", "V")},
                 **{p: g.input(p, b, 1, pages, 1, dtype="i32") for p in ("Page_table_K", "Page_table_V")},
                 **{p: g.input(p, b, 1, 1, 1, dtype="i32") for p in ("SEQ_LEN_Q", "SEQ_LEN_KV")}}
        return g.output(g.node("sdpa", ports, "O", padding_mask=True, **options))
    if kind == "interleaved":
        rows = [most * 3 * h * d, d, 3 * h * d, 1]
        ports = {x: g.input(x, b, h, most, d, stride=rows) for x in "QKV"}
        o = g.node("sdpa", ports, "O", **options)
        return g.output(o, stride=[most * h * d, d, h * d, 1])
    q, k, v = g.input("q", b, h, most, d), g.input("k", b, h, most, d), g.input("v", b, h, most, d)
    s = g.pointwise("mul", g.matmul(q, g.node("transpose", {"X": k}, "Y", permutation=[0, 1, 3, 2])), g.scalar("s", options["attn_scale"]))
    if r.random() < 0.5:
        s = g.pointwise("add", s, g.input("mask", r.choice([1, b]), 1, r.choice([1, most]), most))
    return g.output(g.matmul(g.node("softmax", {"X": s}, "Y", axis=-1), v))


def images(r):
    """Norms over images and pooling, channels last or first, forward and gradients."""
    g = Graph(r.choice(["bf16", "f16", "f32"]))
    n, c, s = extent(r, 1, 64), r.choice([8, 32, 64, 96, 256, 320, 1024, extent(r, 3, 512)]), extent(r, 7, 112)
    if n * c * s * s * 8 > MOST_BYTES:
        return None
    lay = g.channels_last if r.random() < 0.7 else g.input
    shape, channel = (n, c, s, s), (1, c, 1, 1)
    kind = r.choice(["batchnorm", "batchnorm_backward", "groupnorm", "groupnorm_backward", "pool", "pool_backward", "instancenorm"])
    f32 = lambda name, *dim: g.input(name, *dim, dtype="f32")
    groups = next(x for x in (32, 16, 8, 4, 3, 2, 1) if c % x == 0)
    if kind.startswith("pool"):
        w = r.choice([2, 3])
        attributes = {"mode": r.choice(["maxpool", "avgpool_include_padding", "avgpool_exclude_padding"]), "window": [w, w], "stride": [2, 2],
                      "pre_padding": [w // 2] * 2, "post_padding": [w // 2] * 2, "padding_mode": "zero_pad"}
        if attributes["mode"] == "maxpool":
            attributes["padding_mode"] = "neg_inf_pad"
        x = lay("x", *shape)
        if kind == "pool":
            return g.output(g.node("resample", {"X": x}, "Y", **attributes))
        o = (s + w // 2 * 2 - w) // 2 + 1
        y = g.node("resample", {"X": x}, "Y", **attributes)
        dx = g.node("resample_backward", {"DY": lay("dy", n, c, o, o), "X": x, "Y": y}, "DX", **attributes)
        return g.output(dx).output(y)
    ports = {"X": lay("x", *shape), "SCALE": f32("scale", *channel)}
    if kind.endswith("backward"):
        stat = {"batchnorm": channel, "groupnorm": (n, groups, 1, 1)}[kind[:9]]
        ports |= {"DY": lay("dy", *shape), "MEAN": f32("mean", *stat), "INV_VARIANCE": f32("inv", *stat)}
        if r.random() < 0.4:
            ports["DY"] = g.pointwise("relu_bwd", ports["DY"], lay("before", *shape))
        for y in g.node(kind, ports, "DX", "DSCALE", "DBIAS", **({"groups": groups} if kind[0] == "g" else {})):
            g.output(y, "f32" if "DX" not in y else None)
        return g
    ports |= {"BIAS": f32("bias", *channel), "epsilon": g.scalar("epsilon", 1e-5)}
    if kind == "batchnorm":
        y, mean, inverse = g.node(kind, ports, "Y", "MEAN", "INV_VARIANCE")
        g.output(mean, "f32").output(inverse, "f32")
    else:
        y = g.node(kind, ports, "Y", forward_phase="inference", **({"groups": groups} if kind == "groupnorm" else {}))
    if r.random() < 0.5:
        y = g.pointwise(r.choice(UNARY), y)
    if r.random() < 0.4:
        y = g.pointwise("add", y, lay("r", *shape))
    return g.output(y, **({"stride": channels_last_stride(shape)} if lay == g.channels_last else {}))


def gradients(r):
    """Of norms and softmax of rows; with what stands around them."""
    g = Graph(r.choice(["bf16", "f16", "f32"]))
    n, d = extent(r, 1, 32768), extent(r, 8, 16384)
    if n * d * 8 > MOST_BYTES:
        return None
    kind, dy = r.choice(["rmsnorm", "layernorm", "softmax"]), g.input("dy", n, d)
    if r.random() < 0.3:
        dy = g.pointwise("add", dy, g.input("dy2", n, d))
    if kind == "softmax":
        dx = g.node("softmax_backward", {"Y": g.input("y", n, d), "DY": dy}, "DX", axis=-1)
        return g.output(g.pointwise("mul", dx, g.scalar("s", 0.125)))
    ports = {"DY": dy, "X": g.input("x", n, d), "SCALE": g.input("scale", 1, d), "INV_VARIANCE": g.input("inv", n, 1, dtype="f32")}
    wanted = ["DX", "DSCALE"]
    if kind == "layernorm":
        ports["MEAN"], wanted = g.input("mean", n, 1, dtype="f32"), wanted + ["DBIAS"]
    dx, *rest = g.node(kind + "_backward", ports, *wanted)
    for y in rest:
        g.output(y, r.choice([None, "f32"]))
    return g.output(g.pointwise("add", dx, g.input("residual", n, d)) if r.random() < 0.5 else dx)


def experts(r):
    g = Graph(r.choice(["bf16", "f16", "f8e4m3"]))
    e, rows, n, k = r.choice([4, 8, 16, 64]), extent(r, 8, 8192), extent(r, 64, 4096), extent(r, 64, 4096)
    if 2 * rows * n * k > MOST_FLOPS or e * n * k * 2 > MOST_BYTES:
        return None
    ports = {"Token": g.input("tokens", 1, rows, k), "FirstTokenOffset": g.input("offsets", e + 1, dtype="i32")}
    w = g.input("w", e, k, n, stride=r.choice([None, [k * n, 1, k]]))
    mode = r.choice(["none", "none", "gather", "scatter"])
    if mode != "none":
        ports["TokenIndex"] = g.input("index", rows, dtype="i32")
    y = g.node("moe_grouped_matmul", {**ports, "Weight": w}, "Y", mode=mode)
    if r.random() < 0.5:
        y = g.pointwise(r.choice(UNARY), y)
    return g.output(y, r.choice([None, "f32"]))


def rows(r):
    g = Graph(r.choice(["bf16", "f16", "f32"]))
    n, d = extent(r, 1, 65536), extent(r, 8, 32768)
    if n * d * 4 > MOST_BYTES:
        return None
    x = g.input("x", 1, n, d)
    if r.random() < 0.5:
        x = g.pointwise("add", x, g.input("residual", 1, n, d))
        if r.random() < 0.5:
            g.output(x)
    kind = r.choice(["rmsnorm", "layernorm", "softmax", "columns", "transpose"])
    if kind == "softmax":
        return g.output(g.node("softmax", {"X": x}, "Y", axis=-1))
    if kind == "columns":
        return g.output(g.reduce(g.pointwise(r.choice(UNARY), x), 1, 1, d), "f32")
    if kind == "transpose":
        return g.output(g.node("transpose", {"X": g.pointwise(r.choice(UNARY), x)}, "Y", permutation=[0, 2, 1]))
    ports = {"X": x, "SCALE": g.input("scale", 1, 1, d), "epsilon": g.scalar("epsilon", 1e-5)}
    if kind == "layernorm":
        ports["BIAS"] = g.input("bias", 1, 1, d)
    y = g.node(kind, ports, "Y", forward_phase="inference")
    y = g.pointwise(r.choice(UNARY), y) if r.random() < 0.4 else y
    return g.output(y, r.choice([None, None, "f8e4m3"]))


def broadcasts(r):
    """Operands that lie in any order and have any of the dims; then a reduction over any of them, a softmax along one, or a transpose."""
    g, rank = Graph(r.choice(["bf16", "f16", "f32"])), r.choice([2, 3, 3, 4])
    dim = [extent(r, 1, {2: 16384, 3: 700, 4: 120}[rank]) for _ in range(rank)]
    if math.prod(dim) * 12 > MOST_BYTES:
        return None

    def stride(order):
        strides, size = [0] * rank, 1
        for axis in reversed(order):
            strides[axis], size = size, size * dim[axis]
        return strides
    any_order = lambda: stride(r.sample(range(rank), rank)) if r.random() < 0.3 else None
    some = lambda: [s if r.random() < 0.5 else 1 for s in dim]
    y = g.input("x", *dim, stride=any_order())
    for i in range(r.choice([0, 1, 2, 3])):
        y = (g.pointwise(r.choice(["add", "mul", "sub", "max"]), y, g.input(f"side{i}", *some())) if r.random() < 0.5
             else g.pointwise(r.choice(UNARY), y))
    kind = r.choice(["reduce", "reduce", "softmax", "transpose"])
    if kind == "reduce":
        return g.output(g.reduce(y, *some(), mode=r.choice(["add", "max", "avg", "amax", "norm2", "min"])), "f32")
    if kind == "softmax":
        return g.output(g.node("softmax", {"X": y}, "Y", axis=r.randrange(rank)))
    if kind == "transpose":
        return g.output(g.node("transpose", {"X": y}, "Y", permutation=r.sample(range(rank), rank)))


KINDS = [product] * 3 + [convolution] * 4 + [attention] * 2 + [sequences, sequences, images, gradients, chain, experts, rows, broadcasts, broadcasts]


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: random_layers.py FOLDER COUNT SEED")
    folder, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    for number in range(seed, seed + count):
        r, graph = random.Random(number), None
        while graph is None:
            graph = r.choice(KINDS)(r)
        graph.write(os.path.join(folder, f"layer_{number}.json"), f"layer_{number}")


if __name__ == "__main__":
    main()
