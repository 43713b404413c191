"""f32 results that the caller sees. Products read them as they are stored and may not round them to
the graph's 16 bits, whatever a rewrite makes of the views and copies that they are."""
from corpus_graph import Graph


def sum_of(g, dim, out="sum"):
    """A computed tensor of these dims."""
    return g.pointwise("add", out, g.tensor(out + "_a", dim), g.tensor(out + "_b", dim))


def stored(g, t):
    g.output(t, data_type="f32")
    return t


# A right operand whose batch entries are repeated.
for name in ("broadcast", "concatenated", "reshaped"):
    g = Graph(f"stored_repeats_{name}", "bf16")
    g.tensor("q", [8, 16, 32])
    if name == "broadcast":
        g.pointwise("identity", g.tensor("all", [8, 32, 24]), sum_of(g, [1, 32, 24]))
    elif name == "concatenated":
        sum_of(g, [1, 32, 24])
        g.node("concatenate", {f"IN_{i}": "sum" for i in range(8)}, "all", axis=0)
    else:
        g.pointwise("identity", g.tensor("each", [2, 4, 32, 24]), sum_of(g, [2, 1, 32, 24]))
        g.reshape("each", "all", [8, 32, 24])
    stored(g, g.matmul("q", stored(g, "all"), "o"))

# Of a product of joined parts, the rows of one part; of joined columns, both halves, met again.
g = Graph("stored_parts_sliced", "bf16")
sum_of(g, [1, 16, 32])
g.node("concatenate", {"IN_0": "sum", "IN_1": sum_of(g, [1, 16, 32], "next")}, "all", axis=1)
g.matmul(stored(g, "all"), g.tensor("w", [1, 32, 24]), "products")
stored(g, g.slice("products", "o", [0, 0, 0], [1, 16, 24]))

g = Graph("stored_parts_halves", "bf16")
sum_of(g, [1, 32, 32])
g.node("concatenate", {"IN_0": "sum", "IN_1": sum_of(g, [1, 32, 32], "next")}, "all", axis=2)
g.matmul(g.tensor("x", [1, 48, 32]), stored(g, "all"), "products")
g.slice("products", "left", [0, 0, 0], [1, 48, 32])
g.slice("products", "right", [0, 0, 32], [1, 48, 64])
stored(g, g.pointwise("mul", "o", g.pointwise("swish_fwd", "gate", "left"), "right"))

# Attention that is written out with the division last, whose undivided weights are stored.
g = Graph("stored_attention_exponentials", "bf16")
for t, dim in (("q", [8, 16, 32]), ("kt", [8, 32, 24]), ("v", [8, 24, 32])):
    g.tensor(t, dim)
g.reduction("max", g.matmul("q", "kt", "s"), "largest", [8, 16, 1])
g.pointwise("exp", "e", g.pointwise("sub", "shifted", "s", "largest"))
g.reduction("add", stored(g, "e"), "total", [8, 16, 1])
stored(g, g.pointwise("div", "o", g.matmul("e", "v", "sums"), "total"))

# The largest of windows, of which the caller sees a view in more bits than the graph has.
g = Graph("stored_view_of_pool", "bf16")
g.pointwise("sigmoid_fwd", "y", g.tensor("x", [2, 16, 8, 8]))
g.node("resample", {"X": "y"}, "largest", mode="maxpool", window=[2, 2], stride=[2, 2])
stored(g, g.transpose("largest", "o", [0, 2, 3, 1]))
