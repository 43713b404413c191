"""Parts of concatenations that others read, too, where they lie; parts that two concatenations have."""
from corpus_graph import Graph, channels_last


def image(g, name, dim):
    return g.tensor(name, dim, stride=channels_last(dim))


def conv(g, x, out, channels, filters, taps=3):
    w = image(g, f"w_{out}", [filters, channels, taps, taps])
    pad = [taps // 2] * 2
    return g.conv(x, w, out, pre_padding=pad, post_padding=pad)


def dense(io):
    """Each layer reads all before it, as in DenseNet."""
    n, c, r = 2, 64, 5
    g = Graph(f"shared_parts_dense_{io}", io, io)
    image(g, "x", [n, c, r, r])
    parts = [g.pointwise("relu_fwd", "part_0", conv(g, "x", "y_0", c, c, 1))]
    for i in (1, 2):
        joined = parts[0]
        if i > 1:
            joined = g.node("concatenate", {f"IN_{j}": t for j, t in enumerate(parts)}, f"joined_{i}", axis=1)
        parts.append(conv(g, g.pointwise("relu_fwd", f"active_{i}", joined), f"part_{i}", c * i, c))
    g.node("concatenate", {f"IN_{j}": t for j, t in enumerate(parts)}, "all", axis=1)
    g.tensor("all", [n, 3 * c, r, r], stride=channels_last([n, 3 * c, r, r]))
    g.output("all")


def split(io, intermediate):
    """An image whose halves are read by a convolution and by a concatenation, as in YOLO."""
    n, c, r = 2, 128, 6
    g = Graph(f"shared_parts_split_{intermediate}", io, intermediate)
    image(g, "x", [n, c, r, r])
    y = g.pointwise("swish_fwd", "y", conv(g, "x", "product", c, c, 1))
    a = g.slice(y, "a", [0, 0, 0, 0], [n, c // 2, r, r])
    b = g.slice(y, "b", [0, c // 2, 0, 0], [n, c, r, r])
    inner = g.pointwise("add", "sum", conv(g, b, "inner", c // 2, c // 2), b)
    g.node("concatenate", {"IN_0": a, "IN_1": b, "IN_2": inner}, "joined", axis=1)
    g.output(conv(g, "joined", "result", 3 * c // 2, 16, 1))


def tokens():
    """Tokens of two kinds for a product, of which others read one kind, over other dims too."""
    b, s, t, e = 2, 9, 5, 64
    g = Graph("shared_parts_tokens", "bf16", "bf16")
    g.tensor("x", [b, s, e])
    g.tensor("c", [b, t, e])
    for w in ("w_x", "w_c", "w_all", "w_first"):
        g.tensor(w, [1, e, e])
    g.pointwise("gelu_fwd", "first", g.matmul("x", "w_x", "x_product"))
    g.pointwise("gelu_fwd", "second", g.matmul("c", "w_c", "c_product"))
    g.node("concatenate", {"IN_0": "first", "IN_1": "second"}, "joined", axis=1)
    g.output(g.matmul("joined", "w_all", "y"), g.matmul("first", "w_first", "y_first"))
    g.output(g.matmul(g.reshape("second", "flat", [1, b * t, e]), "w_first", "y_second"))


def twice():
    n, c, r = 1, 64, 5
    g = Graph("shared_parts_twice", "f16", "f16")
    image(g, "x", [n, c, r, r])
    a = g.pointwise("relu_fwd", "a", conv(g, "x", "product", c, c))
    b = conv(g, a, "b", c, c)
    for name, parts in (("y", [a, b, a]), ("z", [b, a])):
        joined = g.node("concatenate", {f"IN_{i}": t for i, t in enumerate(parts)}, f"{name}_joined", axis=1)
        g.output(conv(g, joined, name, c * len(parts), 8, 1))


dense("f16")
dense("f32")
split("f16", "f16")
split("bf16", "f32")
tokens()
twice()
