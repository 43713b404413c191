"""What engines do beside single calls: bound executables, prepared weights, caches of plans."""
import unittest

import numpy
import sinter
import support


def update():
    graph = sinter.Graph()
    p, g = graph.tensor("p", [8]), graph.tensor("g", [8])
    graph.output(p - graph.scalar_input("lr") * g, "next", alias=p)
    return sinter.compile(graph, "cpu")


class Bound(unittest.TestCase):
    def test_numbers_and_outputs(self):
        p, g = numpy.ones(8, "float32"), numpy.full(8, 2, "float32")
        apart = numpy.zeros(8, "float32")
        bound = update().bind({"p": p, "g": g, "lr": 0.25, "next": apart})
        self.assertIs(bound()["next"], apart)
        self.assertEqual(apart[0], 0.5)
        bound(lr=1)
        self.assertEqual(apart[7], -1)
        bound.execute({"lr": 0.0}, stream=0)
        self.assertEqual(apart[0], 1)
        bound()  # what was bound stays
        self.assertEqual(apart[0], 0.5)
        with self.assertRaises(sinter.Error) as raised:
            bound(rate=1)
        self.assertEqual(raised.exception.rule, "binding-unknown")

    def test_in_place_and_made(self):
        p, g = numpy.ones(8, "float32"), numpy.full(8, 2, "float32")
        self.assertIs(update().bind({"p": p, "g": g, "lr": 1}).outputs["next"], p)
        graph = sinter.Graph()
        x = graph.tensor("x", [4, 4])
        graph.output(sinter.softmax(sinter.matmul(x, x)).Y, "y")
        run = sinter.compile(graph, "cpu")
        array = numpy.zeros((4, 4), "float32")
        bound = run.bind({"x": array})  # which makes an output and a workspace, and keeps both
        numpy.testing.assert_allclose(bound()["y"], 0.25)
        array[:, 0] = [3, 0, 0, 0]
        self.assertGreater(bound()["y"][0, 0], 0.9)

    def test_mistakes_are_found_when_bound(self):
        with self.assertRaises(sinter.Error) as raised:
            update().bind({"p": numpy.ones(8, "float32"), "lr": 1})
        self.assertEqual(raised.exception.rule, "binding-missing")
        with self.assertRaisesRegex(sinter.Error, "dim .* seen \\[7\\]"):
            update().bind({"p": numpy.ones(7, "float32")})

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        p, g = torch.ones(8), torch.full((8,), 2.0)
        self.assertIs(update().bind({"p": p, "g": g, "lr": 0.5})()["next"], p)
        self.assertEqual(p[3], 0)


class Prepared(unittest.TestCase):
    def graph(self):
        graph = sinter.Graph("folded")
        x = graph.tensor("x", [2, 4])
        w = graph.tensor("w", [4, 4], constant=True)
        s = graph.tensor("s", [1, 4], constant=True)
        b = graph.tensor("b", [1, 4], constant=True)
        graph.output(x @ (w * s).named("folded") + b, "y")
        return graph

    def test_constants_are_computed_once(self):
        parts = sinter.prepare(self.graph(), "cpu")
        self.assertEqual(parts.constants.kernels, 1)
        w, s = numpy.eye(4, dtype="float32"), numpy.full((1, 4), 3, "float32")
        b = numpy.ones((1, 4), "float32")
        run = parts.load({"w": w, "s": s, "b": b}, "cpu")
        w[:] = 0  # which is not read again
        x = numpy.arange(8, dtype="float32").reshape(2, 4)
        numpy.testing.assert_array_equal(run(x=x)["y"], 3 * x + 1)
        numpy.testing.assert_array_equal(run.bind({"x": x})()["y"], 3 * x + 1)
        numpy.testing.assert_array_equal(run(x=x, b=0 * b)["y"], 3 * x)

    def test_nothing_to_prepare(self):
        graph = sinter.Graph()
        graph.output(-graph.tensor("x", [2]), "y")
        parts = sinter.prepare(graph, "cpu")
        self.assertIsNone(parts.constants)
        self.assertEqual(list(parts.load({}, "cpu")(x=numpy.float32([1, 2]))["y"]), [-1, -2])

    def test_copies_for_kernels(self):
        graph = sinter.Graph(io_data_type="bf16")
        x = graph.tensor("x", [32, 64, 56, 56])
        w = graph.tensor("w", [64, 64, 3, 3], constant=True)
        graph.output(sinter.conv_fprop(x, w, pre_padding=[1, 1], post_padding=[1, 1],
                                       stride=[1, 1], dilation=[1, 1]), "y")
        parts = sinter.prepare(graph, architecture="sm_90a")
        made = [row for row in parts.constants.tensors() if row[5]]
        self.assertEqual(len(made), 1)
        reads = {row[0]: row[7] for row in parts.rest.tensors()}
        self.assertEqual(reads, {"x": True, "w": False, made[0][0]: True, "y": True})


class PlanCache(unittest.TestCase):
    @staticmethod
    def build(graph, batch, width):
        graph.output(sinter.softmax(graph.tensor("x", [batch, width])).Y, "y")

    def test_each_key_once(self):
        cache = sinter.PlanCache(self.build, "cpu", name="rows", capacity=2)
        for batch, width in ((1, 4), (3, 4), (1, 4), (2, 2), (1, 4)):
            run = cache.get(batch, width)
            y = run(x=numpy.zeros((batch, width), "float32"))["y"]
            numpy.testing.assert_allclose(y, 1 / width)
        self.assertEqual(run.plan.name, "rows")
        counts = cache.counts
        self.assertEqual((counts.hits, counts.compiles, counts.held), (2, 3, 2))
        self.assertEqual(counts.evicted, 1)
        self.assertEqual(cache.explain(), "")

    def test_ill_formed_extents(self):
        with self.assertRaises(sinter.Error) as raised:
            sinter.PlanCache(self.build, "cpu", extents=[sinter.dyn("batch", 64, 1)])
        self.assertIn("batch, the most", str(raised.exception))

    def test_classes(self):
        cache = sinter.PlanCache(self.build, "cpu", architecture="sm_90a",
                                 extents=[sinter.dyn("batch", 1, 64), sinter.dyn("width", 4, 4)])
        for batch in (17, 33, 64, 40):
            x = numpy.zeros((batch, 4), "float32")
            numpy.testing.assert_allclose(cache.get(batch, 4)(x=x)["y"], 0.25)
        self.assertEqual(cache.counts.classes, 1)
        self.assertIn("batch", cache.explain())
        with self.assertRaises(sinter.Error) as raised:
            cache.get(65, 4)
        self.assertEqual(raised.exception.rule, "tensor-extent")

    def test_background_and_threads(self):
        cache = sinter.PlanCache(self.build, "cpu", background=True)

        def work():
            for i in range(8):
                x = numpy.zeros((1 + i % 3, 4), "float32")
                numpy.testing.assert_allclose(cache.get(1 + i % 3, 4)(x=x)["y"], 0.25)
        self.assertEqual(support.failures_of_threads(work), [])
        cache.wait()
        self.assertEqual(cache.counts.compiles, 3)

    def test_what_a_builder_raises(self):
        cache = sinter.PlanCache(lambda graph, n: n / 0, "cpu")
        with self.assertRaises(ZeroDivisionError):
            cache.get(2)
        good = []

        def build(graph, n):
            x = graph.tensor("x", [n, 3])
            graph.output(-x if good else x @ x, "y")
        cache = sinter.PlanCache(build, "cpu")
        with self.assertRaises(sinter.Error) as raised:
            cache.get(2)
        self.assertEqual(raised.exception.rule, "matmul-contraction")
        self.assertIn("test_engine.py", str(raised.exception.where))
        good.append(True)
        self.assertEqual(cache.get(2)(x=numpy.ones((2, 3), "float32"))["y"][0, 0], -1)

    def test_aliases_and_numbers(self):
        def build(graph, n):
            p = graph.tensor("p", [n])
            graph.output(p - graph.scalar_input("lr"), "next", alias=p)
        p = numpy.ones(3, "float32")
        self.assertIs(sinter.PlanCache(build, "cpu").get(3)(p=p, lr=0.5)["next"], p)
        self.assertEqual(p[2], 0.5)


if __name__ == "__main__":
    unittest.main()
