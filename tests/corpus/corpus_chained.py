"""Two products of which the second takes the first one's results through pointwise operations."""
from corpus_graph import Graph


def chained_products():
    g = Graph("chained_products", "bf16")
    g.tensor("a", [1, 64, 128])
    g.tensor("b", [1, 128, 128])
    g.tensor("c", [1, 128, 128])
    g.matmul("a", "b", "ab")
    g.pointwise("relu_fwd", "f", "ab")
    g.matmul("f", "c", "y")
    g.output("y")


def chained_products_batched():
    # Batches that share a right operand, columns that fill no tile, and an epilogue.
    g = Graph("chained_products_batched", "f16")
    g.tensor("a", [3, 200, 72])
    g.tensor("b", [1, 72, 104], stride=[7488, 1, 72])
    g.tensor("c", [3, 104, 40])
    g.tensor("residual", [3, 200, 40])
    g.matmul("a", "b", "ab")
    g.pointwise("swish_fwd", "f", "ab")
    g.matmul("f", "c", "fc")
    g.pointwise("add", "y", "fc", "residual")
    g.output("y")


chained_products()
chained_products_batched()


def chained_products_masked(name, rows, keys):
    # A chunk of linear attention: what lies above the diagonal of the scores is left out.
    g = Graph("chained_products_masked_" + name, "bf16", "bf16")
    g.tensor("q", [3, rows, 24])
    g.tensor("k", [3, 24, keys], stride=[24 * keys, 1, 24])
    g.tensor("v", [3, keys, 40])
    g.tensor("residual", [3, rows, 40])
    g.value("none", 0.0)
    g.matmul("q", "k", "scores")
    for axis in (1, 2):
        g.tensor(f"index_{axis}", data_type="i32")
        g.pointwise("gen_index", f"index_{axis}", "scores", axis=axis)
    g.tensor("seen", data_type="bool")
    g.pointwise("cmp_ge", "seen", "index_1", "index_2")
    g.pointwise("binary_select", "masked", "scores", "none", "seen")
    g.output(g.pointwise("add", "y", g.matmul("masked", "v", "product"), "residual"))


chained_products_masked("chunk", 64, 64)
chained_products_masked("wide", 70, 104)
