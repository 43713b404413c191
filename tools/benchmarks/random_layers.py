#!/usr/bin/env python3
"""Random layers of the sizes that models have: random_layers.py FOLDER COUNT SEED writes as many graphs.

The random graphs of the tests are small, so that every result is computed by the reference too; tiles of 256 rows, clusters,
persistent loops and split k need larger ones. `sinter bench --json --samples N FOLDER/*.json` compares N results of each
with the reference and times it, on the GPU at hand.
"""
import os
import random
import sys

from graph_json import Graph

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


def channels_last_stride(dim):
    n, c, *spatial = dim
    strides, step = [], c
    for e in reversed(spatial):
        strides.insert(0, step)
        step *= e
    return [step, 1, *strides]


def product(r):
    io = r.choice(["bf16", "bf16", "bf16", "f16", "f8e4m3", "f32", "i8"])
    g = Graph(io)
    m, n, k = (extent(r, 1, 16384) for _ in range(3))
    if r.random() < 0.35:
        m = extent(r, 1, 512)
    b = r.choice([1, 1, 1, 2, 3, 8, 24])
    if 2 * b * m * n * k > (MOST_FLOPS if io != "f32" else 2e10) or b * (m * k + n * k + m * n) * 2 > MOST_BYTES:
        return None
    shared = r.random() < 0.3
    a = g.input("a", b, m, k, stride=r.choice([None, None, [m * k, 1, m]]))
    of_b = 1 if shared else b
    w = g.input("w", of_b, k, n, stride=r.choice([None, [k * n, 1, k]]))
    y = g.matmul(a, w)
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
    io = r.choice(["bf16", "bf16", "bf16", "f16", "f32", "f8e4m3"])
    g, rank = Graph(io), r.choice([2, 2, 2, 2, 1, 3])
    f = [r.choice([1, 3, 3, 3, 5, 7, 2, 4]) for _ in range(rank)] if r.random() < 0.15 else [r.choice([1, 3, 3, 3, 5, 7])] * rank
    groups = r.choice([1, 1, 1, 1, 0, 32, 2])
    c, k = extent(r, 1, 1024), extent(r, 1, 1024)
    if groups == 0:
        c = max(8, c)
        groups, k = c, c * r.choice([1, 1, 1, 2])
    elif groups > 1:
        c, k = max(1, c // groups) * groups, max(1, k // groups) * groups
    size = [r.choice([7, 8, 13, 14, 16, 28, 32, 33, 56, 64, 112, 128, extent(r, 7, 160)])] * rank
    if rank == 1:
        size = [extent(r, 16, 4096)]
    if rank == 3:
        size = [r.choice([4, 8, 16])] + [min(size[0], 56)] * 2
    n = extent(r, 1, 256)
    stride, dilation = [r.choice([1, 1, 1, 2])] * rank, [r.choice([1, 1, 1, 1, 2])] * rank
    pre = [r.choice([e // 2 * d, e // 2 * d, 0]) for e, d in zip(f, dilation)]
    post = list(pre) if r.random() < 0.8 else [r.choice([0, 1]) for _ in pre]
    out = [(s + a + b - d * (e - 1) - 1) // t + 1 for s, a, b, e, t, d in zip(size, pre, post, f, stride, dilation)]
    if min(out) < 1:
        return None
    prod = lambda xs: int(__import__("math").prod(xs))
    if (2 * n * prod(out) * k * c // groups * prod(f) > (MOST_FLOPS if io != "f32" else 2e10)
            or n * (prod(size) * c + prod(out) * k) * 2 > MOST_BYTES):
        return None
    lines = r.random() < 0.15
    shapes = {"X": (n, c, *size), "W": (k, c // groups, *f), "Y": (n, k, *out)}
    lay = lambda name, of: g.input(name, *shapes[of]) if lines else g.channels_last(name, *shapes[of])
    attributes = {"groups": groups, "pre_padding": pre, "post_padding": post, "stride": stride, "dilation": dilation}
    direction = r.choice(["fprop", "fprop", "dgrad", "wgrad"])
    if direction == "fprop":
        y = g.node("conv_fprop", {"X": lay("x", "X"), "W": lay("w", "W")}, "Y", **attributes)
        y = epilogue(r, g, y, shapes["Y"], False, io)
        return g.output(y, **({} if lines else {"stride": channels_last_stride(shapes["Y"])}))
    dy = lay("dy", "Y")
    if r.random() < 0.3:
        dy = g.pointwise("relu_bwd", dy, lay("before", "Y"))
    of = "X" if direction == "dgrad" else "W"
    ports = {"DY": dy, "W" if of == "X" else "X": lay("other", "W" if of == "X" else "X")}
    y = g.node("conv_" + direction, ports, "D" + of, **attributes)
    g.tensors[y] = {"dim": list(shapes[of])}
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
    if r.random() < 0.1:
        ports["SINK_TOKEN"] = g.input("sink", 1, h, 1, 1, dtype="f32")
    if r.random() < 0.1:
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
    for name in ("Seed", "Offset"):
        ports.pop(name, None)
    options.pop("dropout_probability", None)
    g.tensors.pop("Seed", None), g.tensors.pop("Offset", None)
    forward = dict(ports)
    o, of_rows = g.node("sdpa", forward, "O", "Stats", generate_stats=True, **options)
    g.tensors[of_rows] = {"data_type": "f32"}
    wanted = ["dQ", "dK", "dV"]
    if "SINK_TOKEN" in ports:
        ports.pop("SINK_TOKEN"), g.tensors.pop("sink", None), forward.pop("SINK_TOKEN", None)
    ports |= {"O": o, "dO": lay("dO", h, sq, dv), "Stats": of_rows}
    for y in g.node("sdpa_backward", ports, *wanted, **options):
        g.output(y)
    return g.output(o)


def experts(r):
    g = Graph(r.choice(["bf16", "f16", "f8e4m3"]))
    e, rows, n, k = r.choice([4, 8, 16, 64]), extent(r, 8, 8192), extent(r, 64, 4096), extent(r, 64, 4096)
    if 2 * rows * n * k > MOST_FLOPS or e * n * k * 2 > MOST_BYTES:
        return None
    ports = {"Token": g.input("tokens", 1, rows, k), "FirstTokenOffset": g.input("offsets", e + 1, dtype="i32")}
    w = g.input("w", e, k, n, stride=r.choice([None, [k * n, 1, k]]))
    y = g.node("moe_grouped_matmul", {**ports, "Weight": w}, "Y", mode="none")
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


KINDS = [product, product, product, convolution, convolution, convolution, attention, attention, chain, experts, rows]


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
