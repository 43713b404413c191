"""Causal attention in f16 with the statistics of a backward pass; the plan is saved and read back."""
import numpy
import sinter

graph = sinter.Graph("attention", io_data_type="f16")
q, k, v = (graph.tensor(name, [1, 2, 8, 16]) for name in "qkv")
attention = sinter.sdpa(q, k, v, attn_scale=0.25, causal_mask=True, Stats={"data_type": "f32"})
graph.output(attention.O, "o")
graph.output(attention.Stats, "stats")

sinter.save(sinter.plan(graph), "attention.plan.json")
run = sinter.load("attention.plan.json", "cpu")
x = numpy.random.default_rng(0).normal(size=(1, 2, 8, 16)).astype("float16")
results = run(q=x, k=x, v=x)
print({name: (array.dtype.name, array.shape) for name, array in results.items()})
assert (results["o"][0, :, 0] == x[0, :, 0]).all()  # the first query sees the first key alone
