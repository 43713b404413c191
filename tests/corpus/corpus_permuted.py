"""Permutations of odd extents: rows that start anywhere and are hardly longer than a tile, short ones
whose neighbours lie far apart."""
from corpus_graph import Graph


def permutation(name, dims, order, io="bf16"):
    g = Graph("permuted_" + name, io)
    g.tensor("x", dims)
    g.output(g.transpose("x", "y", order))


# Rows of 65 to 77 elements: all of them are ends of tiles.
permutation("odd_hardly_longer", [3, 77, 5, 65], [0, 3, 2, 1])
permutation("odd_hardly_longer_f32", [2, 67, 3, 39], [0, 3, 2, 1], "f32")
permutation("odd_hardly_longer_i8", [2, 131, 3, 41], [0, 3, 2, 1], "i8")
permutation("odd_two_tiles", [2, 130, 3, 71], [0, 3, 2, 1])

# Five to twelve neighbours where it is written, of which each is read far from the others.
permutation("few_far", [5, 83, 79, 17], [3, 2, 1, 0])
permutation("few_far_even", [12, 40, 72, 80], [3, 1, 2, 0])
permutation("few_far_f32", [7, 61, 53, 18], [3, 2, 1, 0], "f32")

g = Graph("permuted_few_far_computed", "bf16")
g.tensor("x", [6, 90, 64, 33])
g.tensor("bias", [33, 1, 1, 6])
g.transpose("x", "t", [3, 2, 1, 0])
g.pointwise("add", "moved", "t", "bias")
g.output(g.pointwise("relu_fwd", "y", "moved"))

# Runs of a few elements, enough of them for rectangles of runs; the last ones are cut.
permutation("runs_of_six", [250, 602, 6], [1, 0, 2])
permutation("runs_of_three_f32", [3, 255, 601, 3], [0, 2, 1, 3], "f32")
g = Graph("permuted_runs_computed", "f16")
g.tensor("x", [403, 303, 5])
g.tensor("bias", [1, 1, 5])
g.output(g.pointwise("relu_fwd", "y", g.pointwise("add", "moved", g.transpose("x", "t", [1, 0, 2]), "bias")))
