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
