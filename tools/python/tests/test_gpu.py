"""Executables, bound calls, prepared weights and plan caches on a GPU with PyTorch's tensors."""
import unittest

import sinter

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed") from missing
if not torch.cuda.is_available():
    raise unittest.SkipTest("needs a GPU")


def product():
    graph = sinter.Graph("product", io_data_type="bf16")
    x, w = graph.tensor("x", [96, 64]), graph.tensor("w", [64, 32], constant=True)
    graph.output(sinter.softmax(sinter.matmul(x, w)).Y, "y")
    return graph


def tensors():
    torch.manual_seed(1)
    x, w = (torch.randn(*dim, device="cuda").bfloat16() for dim in ((96, 64), (64, 32)))
    return x, w, torch.softmax(x.float() @ w.float(), -1)


def near(made, wanted, tolerance=2e-2):
    torch.testing.assert_close(made.float(), wanted, rtol=tolerance, atol=tolerance)


class OnTheGpu(unittest.TestCase):
    def test_executable(self):
        x, w, wanted = tensors()
        run = sinter.compile(product())
        self.assertEqual(run.device, torch.cuda.current_device())
        near(run(x=x, w=w)["y"], wanted)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = run(x=x, w=w)["y"]
        side.synchronize()
        near(y, wanted)

    def test_bound_and_captured(self):
        x, w, wanted = tensors()
        bound = sinter.compile(product()).bind({"x": x, "w": w})
        near(bound()["y"], wanted)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            bound()
        bound.outputs["y"].zero_()
        graph.replay()
        near(bound.outputs["y"], wanted)

    def test_prepared(self):
        x, w, wanted = tensors()
        near(sinter.prepare(product()).load({"w": w})(x=x)["y"], wanted)

    def test_arrays_of_its_own(self):
        """Without PyTorch's tensors among the arguments."""
        graph = sinter.Graph()
        graph.output(sinter.identity(graph.scalar_input("n"), OUT_0=[4]), "y")
        made = sinter.compile(graph)(n=2.0)["y"]
        self.assertEqual(made.numpy().tolist(), [2, 2, 2, 2])
        self.assertEqual(torch.as_tensor(made, device="cuda").tolist(), [2, 2, 2, 2])

    def test_what_does_not_fit(self):
        x, w, _ = tensors()
        run = sinter.compile(product())
        for key, other in (("device", x.cpu()), ("data_type", x.half()), ("dim", x[:9])):
            with self.subTest(key), self.assertRaisesRegex(sinter.Error, key):
                run(x=other, w=w)

    def test_plan_cache(self):
        def build(graph, rows):
            x = graph.tensor("x", [rows, 64])
            graph.output(sinter.layernorm(
                x, *(graph.tensor(name, [1, 64]) for name in ("scale", "bias")), epsilon=1e-5,
                forward_phase="inference").Y, "y")
        for background in (False, True):
            cache = sinter.PlanCache(build, io_data_type="bf16", background=background,
                                     extents=[sinter.dyn("rows", 1, 512)])
            scale, bias = (torch.randn(1, 64, device="cuda").bfloat16() for _ in range(2))
            for _ in range(2):
                for rows in (1, 3, 200, 333, 512):
                    x = torch.randn(rows, 64, device="cuda").bfloat16()
                    near(cache.get(rows)(x=x, scale=scale, bias=bias)["y"],
                         torch.nn.functional.layer_norm(x.float(), (64,), scale[0].float(),
                                                        bias[0].float()), 3e-2)
                cache.wait()
            plain = cache.counts.plain
            cache.get(100), cache.get(300)  # of classes that were compiled
            self.assertEqual((cache.counts.plain, cache.counts.failed, cache.failure()),
                             (plain, 0, []))
        self.assertLessEqual(cache.counts.classes, 4)


if __name__ == "__main__":
    unittest.main()
