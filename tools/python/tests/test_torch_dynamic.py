"""Shapes that change from call to call."""
import unittest
from unittest import mock

import sinter

try:
    import torch
    from torch.nn import functional
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed") from missing

import sinter.torch
import torch_models
from torch_device import (DEVICE, MASK_OF_SHARED_HEADS, setUpModule,  # noqa: F401
                          tearDownModule)


class Dynamic(unittest.TestCase):
    def check(self, function, inputs, tolerance=1e-5, dynamic=True, traces=0, eager=()):
        """Values and gradients of each input, and how often calls behind the first are traced."""
        torch._dynamo.reset()
        sinter.torch.report(reset=True)
        seen = []

        def counted(module, example):
            seen.append(module)
            return sinter.torch.backend(module, example)
        run = torch.compile(function, backend=counted, dynamic=dynamic)
        first = 0
        for x in inputs:
            results = []
            for call in (run, function):
                leaf = x.clone().requires_grad_()
                y = call(leaf)
                y.square().sum().backward()
                results.append((y.detach(), leaf.grad))
            for a, b in zip(*results):
                torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
            first = first or len(seen)
        self.assertEqual(len(seen) - first, traces)
        report = sinter.torch.report()
        self.assertEqual(({op for op, _ in report.eager}, dict(report.refused)), (set(eager), {}))
        return report

    def test_pointwise(self):
        report = self.check(lambda x: torch.relu(x * 2 + 1),
                            [torch.randn(n, 3) for n in (4, 5, 17, 4)])
        self.assertEqual(len(report.regions), 2)
        self.assertEqual(len(report.plans), 6)  # three shapes, forward and backward

    def test_attention_with_a_mask(self):
        torch.manual_seed(4)
        mask = torch.randn(1, 1, 1, 8)

        def function(x):
            q, k, v = x.view(x.shape[0], 8, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        self.check(function, [torch.randn(n, 8, 24) for n in (2, 5)], tolerance=1e-4)

    def test_found_by_the_second_call(self):
        """Without `dynamic` PyTorch takes an extent for a constant until it changes."""
        self.check(lambda x: torch.tanh(x).sum(0), [torch.randn(n, 3) for n in (4, 5, 6, 7)],
                   dynamic=None, traces=1)

    def test_views_and_flattened_rows(self):
        torch.manual_seed(1)
        linear = torch.nn.Linear(8, 12)

        def function(x):
            y = functional.gelu(linear(x)).view(x.shape[0], x.shape[1], 3, 4)
            return torch.cat([y[:, 1:].mean(2), y[:, :1, 0]], 1).transpose(1, 2)
        self.check(function, [torch.randn(a, b, 8) for a, b in ((2, 3), (5, 4), (3, 9))])

    def test_norms_and_softmax(self):
        norm = torch.nn.LayerNorm(16)
        self.check(lambda x: torch.softmax(norm(x), -1) * x.sum(0), [
            torch.randn(n, 16) for n in (3, 40, 9)])

    def test_transformers(self):
        torch.manual_seed(2)
        for build in (torch_models.transformer, torch_models.rotary):
            model, _ = build()
            with self.subTest(model=build.__name__):
                self.check(model, [torch.randn(a, b, 16) for a, b in ((2, 6), (3, 11), (2, 5))],
                           tolerance=1e-4,
                           eager=MASK_OF_SHARED_HEADS if build is torch_models.rotary else ())

    def test_images(self):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8),
                                    torch.nn.ReLU(), torch.nn.AvgPool2d(2)).eval()
        self.check(model, [torch.randn(n, 3, 8, 8) for n in (2, 5)], tolerance=1e-4)

    def test_one_class_of_extents(self):
        cache = sinter.torch.plans.DynamicPlans(
            "twice", self.twice, self.layouts, {}, [("n", 2, 64)])
        for n in (17, 33, 64, 40):
            made, = cache([torch.ones(n, 3)], DEVICE, (n,))
            self.assertTrue(torch.equal(made, torch.full((n, 3), 2.0)))
        seen, = cache._caches.values()
        self.assertEqual((seen.counts.classes, seen.counts.held), (1, 4))
        made, = cache([torch.ones(3, 65).t()], DEVICE, (65,))  # neither in range
        self.assertEqual(made.shape, (65, 3))

    def test_deterministic(self):
        cache = sinter.torch.plans.DynamicPlans(
            "twice", self.twice, self.layouts, {}, [("n", 2, 64)])
        self.addCleanup(torch.use_deterministic_algorithms, False)
        with mock.patch.object(sinter.runtime, "PlanCache", wraps=sinter.runtime.PlanCache) as made:
            for wanted in (False, True, False):
                torch.use_deterministic_algorithms(wanted)
                cache([torch.ones(5, 3)], DEVICE, (5,))
            self.assertEqual([call.kwargs["deterministic"] for call in made.call_args_list],
                             [False, True])

    @staticmethod
    def layouts(numbers):
        return [sinter.torch.layouts.Layout(torch.float32, (numbers[0], 3), (3, 1))]

    @staticmethod
    def twice(graph, layouts, numbers):
        x = sinter.torch.layouts.add_input(graph, "x", layouts[0])
        graph.output(x * 2.0, "y")
        return ["x"], [("y", sinter.torch.layouts.Layout(torch.float32, (numbers[0], 3), (3, 1)))]


if __name__ == "__main__":
    unittest.main()
