"""Random numbers whose compute type says nothing of how precise they are."""
from corpus_graph import Graph


def random_numbers_of_integer_compute():
    g = Graph("random_numbers_of_integer_compute", "f32", compute="i32")
    g.value("seed", 7, "i64")
    g.value("offset", 3, "i64")
    inputs = {"Seed": "seed", "Offset": "offset"}
    g.node("rng", inputs, "normal", distribution="normal", mean=2.5, stddev=2)
    g.output("normal", dim=[39, 4])
    g.node("rng", inputs, "uniform", distribution="uniform", minimum=-1, maximum=3)
    g.output("uniform", dim=[39, 4])


random_numbers_of_integer_compute()
