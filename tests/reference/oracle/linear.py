"""Contractions, reductions and data movement by naive loops."""
import numpy as np

from case import Graph, normal

NAN, INF = np.nan, np.inf


def matmul_case(name, a, b, expected):
    g = Graph(name)
    g.node("matmul", {"A": g.input("A", a), "B": g.input("B", b)},
           {"C": g.output("C", expected)}).done()


def matmul_loops(a, b):
    m, k = a.shape
    c = np.zeros((m, b.shape[1]))
    for i in range(m):
        for j in range(b.shape[1]):
            for x in range(k):
                c[i, j] += a[i, x] * b[x, j]
    return c


def matmuls():
    a, b = normal(5, 7), normal(7, 3)
    matmul_case("matmul", a, b, matmul_loops(a, b))
    a, b = normal(2, 1, 3, 4), normal(5, 4, 2)
    c = np.zeros((2, 5, 3, 2))
    for i in range(2):
        for j in range(5):
            c[i, j] = matmul_loops(a[i, 0], b[j])
    matmul_case("matmul broadcast batches", a, b, c)
    a, b = normal(2, 6, 3, 4), normal(2, 2, 4, 3)
    c = np.zeros((2, 6, 3, 3))
    for i in range(2):
        for j in range(6):
            c[i, j] = matmul_loops(a[i, j], b[i, j // 3])
    matmul_case("matmul grouped batches", a, b, c)
    matmul_case("matmul over nothing", np.zeros((2, 0)), np.zeros((0, 3)), np.zeros((2, 3)))
    a, b = np.array([[1.0, INF], [0, 1]]), np.array([[1.0, NAN], [2, 3]])
    with np.errstate(all="ignore"):
        matmul_case("matmul with infinity and NaN", a, b, matmul_loops(a, b))


def conv_loops(x, w, pre, post, stride, dilation, groups, flip):
    n, k, spatial = x.shape[0], w.shape[0], x.ndim - 2
    out = [(x.shape[2 + i] + pre[i] + post[i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i]
           + 1 for i in range(spatial)]
    y = np.zeros((n, k, *out), dtype=np.result_type(x, w))
    per_group = k // groups
    for at in np.ndindex(y.shape):
        b, f, o = at[0], at[1], at[2:]
        for c in range(w.shape[1]):
            for t in np.ndindex(w.shape[2:]):
                p = [o[i] * stride[i] - pre[i] + dilation[i] * t[i] for i in range(spatial)]
                if any(p[i] < 0 or p[i] >= x.shape[2 + i] for i in range(spatial)):
                    continue
                tap = tuple(w.shape[2 + i] - 1 - t[i] if flip else t[i] for i in range(spatial))
                y[at] += x[(b, f // per_group * w.shape[1] + c, *p)] * w[(f, c, *tap)]
    return y


CONVS = {
    "plain 2-D": ((2, 3, 5, 6), (4, 3, 3, 2), {}),
    "1-D strided": ((1, 2, 11), (3, 2, 3), dict(stride=[2], pre_padding=[1], post_padding=[2])),
    "grouped, asymmetric": ((2, 4, 6, 5), (6, 2, 3, 3),
                            dict(groups=2, pre_padding=[1, 0], post_padding=[0, 2], stride=[1, 2])),
    "depthwise dilated": ((1, 3, 7, 8), (3, 1, 3, 2), dict(groups=3, dilation=[2, 3],
                                                           pre_padding=[2, 1], post_padding=[2, 1])),
    "mode convolution": ((1, 2, 5, 5), (2, 2, 3, 2), dict(mode="convolution", pre_padding=[1, 1],
                                                          post_padding=[1, 0], stride=[2, 1])),
    "3-D": ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), dict(pre_padding=[1, 0, 1], post_padding=[0, 1, 0])),
}


def convs():
    for name, (xs, ws, attributes) in CONVS.items():
        x, w, spatial = normal(*xs), normal(*ws), len(xs) - 2
        full = (attributes.get("pre_padding", [0] * spatial),
                attributes.get("post_padding", [0] * spatial), attributes.get("stride", [1] * spatial),
                attributes.get("dilation", [1] * spatial), attributes.get("groups", 1),
                attributes.get("mode") == "convolution")
        y = conv_loops(x, w, *full)
        dy = normal(*y.shape)
        g = Graph(f"conv_fprop {name}")
        g.node("conv_fprop", {"X": g.input("X", x), "W": g.input("W", w)},
               {"Y": g.output("Y", y)}, **attributes).done()
        # The gradients of a bilinear form: the derivative by one element is the form of a unit.
        dx, dw = np.zeros(xs), np.zeros(ws)
        for i in np.ndindex(xs):
            unit = np.zeros(xs)
            unit[i] = 1
            dx[i] = (conv_loops(unit, w, *full) * dy).sum()
        for i in np.ndindex(ws):
            unit = np.zeros(ws)
            unit[i] = 1
            dw[i] = (conv_loops(x, unit, *full) * dy).sum()
        g = Graph(f"conv_dgrad {name}")
        g.node("conv_dgrad", {"DY": g.input("DY", dy), "W": g.input("W", w)},
               {"DX": g.output("DX", dx, declare=True)}, **attributes).done()
        g = Graph(f"conv_wgrad {name}")
        g.node("conv_wgrad", {"DY": g.input("DY", dy), "X": g.input("X", x)},
               {"DW": g.output("DW", dw, declare=True)}, **attributes).done()


def moe():
    token, weight, offsets = normal(7, 4), normal(3, 4, 5), np.array([0, 2, 2, 7])
    expert = [0, 0, 2, 2, 2, 2, 2]

    def case(name, y, mode, **more):
        g = Graph(f"moe_grouped_matmul {name}")
        inputs = {"Token": g.input("Token", token[None]), "Weight": g.input("Weight", weight),
                  "FirstTokenOffset": g.input("FirstTokenOffset", offsets, "i32")}
        if "index" in more:
            inputs["TokenIndex"] = g.input("TokenIndex", more["index"], "i32")
        g.node("moe_grouped_matmul", inputs, {"Y": g.output("Y", y[None])}, mode=mode,
               **more.get("attributes", {})).done()

    rows = [token[i] @ weight[expert[i]] for i in range(7)]
    case("none", np.array(rows), "none")
    index = np.array([3, 0, 6, 6, 1, 2, 5])
    case("gather", np.array([token[index[i]] @ weight[expert[i]] for i in range(7)]), "gather",
         index=index, attributes={"top_k": 1})
    index, y = np.array([4, 2, 0, 6, 1, 3, 5]), np.zeros((7, 5))
    for i in range(7):
        y[index[i]] = rows[i]
    case("scatter", y, "scatter", index=index)


REDUCTIONS = {
    "add": lambda v: sum(v), "mul": lambda v: np.prod(v), "min": lambda v: min(v, default=INF),
    "max": lambda v: max(v, default=-INF), "amax": lambda v: max((abs(a) for a in v), default=0.0),
    "avg": lambda v: sum(v) / len(v) if len(v) else NAN, "norm1": lambda v: sum(abs(a) for a in v),
    "norm2": lambda v: np.sqrt(sum(a * a for a in v)),
    "mul_no_zeros": lambda v: np.prod([a for a in v if a != 0]),
}


def reductions():
    def case(name, mode, x, dim):
        y = np.zeros(dim)
        for at in np.ndindex(*dim):
            part = x[tuple(slice(None) if d == 1 else slice(i, i + 1)
                           for i, d in zip(at, dim))].ravel()
            y[at] = NAN if np.isnan(part).any() else REDUCTIONS[mode](list(part))
        g = Graph(f"reduction {mode} {name}")
        g.node("reduction", {"X": g.input("X", x)}, {"Y": g.output("Y", y, declare=True)},
               mode=mode).done()

    for mode in REDUCTIONS:
        x = normal(3, 4, 5)
        x[1, 2, 3] = 0
        case("rows", mode, x, (3, 4, 1))
        case("columns", mode, x, (1, 4, 5))
        case("outer and inner", mode, x, (1, 4, 1))
        case("all", mode, x[:2, :2, :2], (1, 1, 1))
        case("nothing", mode, np.zeros((2, 0)), (2, 1))
        special = np.array([[1, NAN, 2], [INF, 1, 2], [-INF, 3, -1.0]])
        case("special values", mode, special, (3, 1))


def layout():
    x = normal(2, 3, 4)

    def case(name, op, y, inputs=None, **attributes):
        g = Graph(name)
        ports = {"X": g.input("X", x)} if inputs is None else {
            f"IN_{i}": g.input(f"IN_{i}", a) for i, a in enumerate(inputs)}
        g.node(op, ports, {"Y": g.output("Y", y)}, **attributes).done(exact=True)

    case("reshape", "reshape", x.reshape(4, 1, 6), dim=[4, 1, 6])
    case("transpose", "transpose", x.transpose(2, 0, 1), permutation=[2, 0, 1])
    case("slice", "slice", x[0:2, 1:3, 1:4:2], start=[0, 1, 1], limit=[2, 3, 4], step=[1, 1, 2])
    case("slice of nothing", "slice", x[:, 2:2], start=[0, 2, 0], limit=[2, 2, 4])
    a, b, c = normal(2, 1, 3), normal(2, 4, 3), normal(2, 0, 3)
    case("concatenate", "concatenate", np.concatenate([a, b, c, a], 1), [a, b, c, a], axis=1)
    a, b = normal(2, 3), normal(2, 2)
    case("concatenate last axis", "concatenate", np.concatenate([a, b], 1), [a, b], axis=-1)


def cases():
    matmuls()
    convs()
    moe()
    reductions()
    layout()
