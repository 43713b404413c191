"""A matrix product, bias and gelu as one kernel, on NumPy arrays."""
import numpy
import sinter

graph = sinter.Graph("ffn")
x = graph.tensor("x", [4, 64])
w = graph.tensor("w", [64, 32])
bias = graph.tensor("bias", [1, 32])
graph.output(sinter.gelu_approx_tanh_fwd(x @ w + bias), "y")

ffn = sinter.compile(graph, "cpu")  # without "cpu": on the GPU, where there is one
random = numpy.random.default_rng(0)
arrays = {name: random.normal(size=dim).astype("float32")
          for name, dim in {"x": (4, 64), "w": (64, 32), "bias": (1, 32)}.items()}
y = ffn(**arrays)["y"]

z = arrays["x"].astype("float64") @ arrays["w"] + arrays["bias"]
wanted = z * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (z + 0.044715 * z**3))) / 2
print("largest error", abs(y - wanted).max(), "from", ffn.plan.kernels, "kernel(s)")
assert numpy.allclose(y, wanted, atol=1e-5)
