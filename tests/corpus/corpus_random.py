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




def random_bits_or_a_number():
    """Each result is 1 or 0 as f64, converted twice: of a thread's 16 elements ptxas took one's
    second conversion for its first (codegen/device/core/minifloat.cuh, in_both_words)."""
    g = Graph("random_bits_or_a_number", "i8", "i32", compute="i32")
    g.tensor("seed", [1, 1, 1, 1], data_type="i32")
    g.tensor("bits", [9, 1, 5, 24, 16, 1])
    g.node("rng", {"Seed": "seed", "Offset": g.value("offset", 668, "i64")}, "bits", probability=0.1)
    g.pointwise("logical_or", "either", g.value("one", 1, "i64"), "bits")
    g.output("either", dim=[1, 9, 1, 5, 24, 16, 1], stride=[69120, 3840, 0, 768, 16, 1, 1])


random_numbers_of_integer_compute()
random_bits_or_a_number()
