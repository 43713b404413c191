"""Heads and stems of models: pooling, losses, and what stays with PyTorch beside them."""
import unittest

import sinter

try:
    import torch
    from torch.nn import functional
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed") from missing

import sinter.torch
import torch_models
from torch_device import MASK_OF_SHARED_HEADS, setUpModule, tearDownModule  # noqa: F401


def gradients(function, *tensors):
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    made = function(*leaves)
    made.backward()
    return [made.detach(), *(t.grad for t in leaves)]


class Layers(unittest.TestCase):
    def check(self, function, *tensors, eager=(), tolerance=2e-5):
        """Values and gradients as in eager PyTorch; which operations may stay with it."""
        torch._dynamo.reset()
        sinter.torch.report(reset=True)
        run = torch.compile(function, backend="sinter", dynamic=False)
        for a, b in zip(gradients(run, *tensors), gradients(function, *tensors)):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        report = sinter.torch.report()
        self.assertEqual(({op for op, _ in report.eager}, dict(report.refused)), (set(eager), {}))
        return report

    def test_maxima(self):
        torch.manual_seed(1)
        for dim, window in (((2, 3, 9, 8), (3, 2, 1)), ((1, 2, 7, 7), (2, 2, 0)),
                            ((2, 2, 8, 6), ((3, 2), (1, 2), (1, 0)))):
            with self.subTest(window=window):
                x = torch.randn(dim)
                self.check(lambda x: functional.max_pool2d(x, *window).square().sum(), x)
                # Equals: after a relu the first of several zeros gets the gradient.
                self.check(lambda x: functional.max_pool2d(functional.relu(x), *window).cos().sum(),
                           x - 1)
        bf16 = torch.randn(2, 3, 8, 8).round(decimals=0).bfloat16()
        self.check(lambda x: functional.max_pool2d(x, 2).float().square().sum(), bf16)

    def test_maxima_that_stay(self):
        x = torch.randn(1, 2, 9, 9)
        names = {"aten.max_pool2d_with_indices.default",
                 "aten.max_pool2d_with_indices_backward.default"}
        self.check(lambda x: functional.max_pool2d(x, 2, ceil_mode=True).square().sum(), x,
                   eager=names)
        self.check(lambda x: functional.max_pool2d(x, 3, dilation=2).square().sum(), x, eager=names)
        run = torch.compile(lambda x: functional.max_pool2d(x, 2, return_indices=True),
                            backend="sinter", dynamic=False)
        made, wanted = run(x), functional.max_pool2d(x, 2, return_indices=True)
        self.assertTrue(all(map(torch.equal, made, wanted)))

    def test_images_of_another_size(self):
        torch.manual_seed(6)
        for dim, options in (
                ((2, 3, 5, 4), {"scale_factor": 2, "mode": "nearest"}),
                ((2, 3, 5, 4), {"size": (10, 12), "mode": "nearest-exact"}),
                ((2, 3, 5), {"scale_factor": 3}), ((1, 2, 3, 4, 5), {"scale_factor": 2}),
                ((2, 3, 5, 4), {"scale_factor": 2, "mode": "bilinear"}),
                ((2, 3, 7, 6), {"size": (4, 13), "mode": "bilinear", "align_corners": False}),
                ((2, 3, 7), {"scale_factor": 1.5, "recompute_scale_factor": True, "mode": "linear"}),
                ((1, 2, 3, 4, 5), {"scale_factor": 2, "mode": "trilinear"})):
            x = torch.randn(dim)
            for t in (x, x.to(memory_format=torch.channels_last)) if x.dim() == 4 else (x,):
                with self.subTest(dim=dim, stride=t.stride(), **options):
                    self.check(lambda x: functional.interpolate(x, **options).square().sum(), t)
        # A block of a U-Net: what it reads is resized as it is joined.
        self.check(lambda x, y: torch.cat([functional.interpolate(
            x.relu(), scale_factor=2, mode="bilinear"), y], 1).square().sum(),
            torch.randn(2, 3, 4, 4), torch.randn(2, 2, 8, 8))

    def test_sizes_that_stay(self):
        x = torch.randn(1, 2, 6, 6)
        for options in ({"size": 9}, {"scale_factor": 1.7, "mode": "bilinear"},
                        {"size": 9, "mode": "bilinear", "align_corners": True},
                        {"size": 3, "mode": "bilinear", "antialias": True},
                        {"scale_factor": 2, "mode": "bicubic"}):
            with self.subTest(**options):
                torch._dynamo.reset()
                run = torch.compile(lambda x: functional.interpolate(x, **options),
                                    backend="sinter", dynamic=False)
                torch.testing.assert_close(run(x), functional.interpolate(x, **options))

    def test_what_decompositions_give(self):
        torch.manual_seed(8)
        self.check(lambda x: x.repeat(2, 3).square().sum(), torch.randn(4, 5))
        self.check(lambda x: x.repeat(2, 1, 3).cos().sum(), torch.randn(4, 5))
        self.check(lambda x: functional.instance_norm(x).cos().sum(), torch.randn(2, 4, 5, 3))
        self.check(lambda x: functional.selu(x).sum(), torch.randn(40))
        self.check(lambda x: functional.celu(x, 0.7).sum(), torch.randn(40))
        self.check(lambda x, y: functional.smooth_l1_loss(x, y), torch.randn(40), torch.randn(40))
        self.check(lambda x: functional.logsigmoid(3 * x).sum(), torch.randn(40))
        for function in (torch.sinh, torch.cosh, torch.asinh, torch.atanh, torch.asin, torch.acos):
            self.check(lambda x: function(x).square().sum(), torch.rand(40) * 1.8 - 0.9)
        self.check(lambda x, y: torch.hypot(x, y).sum(), torch.randn(40), torch.randn(40))
        self.check(lambda x, y: torch.copysign(x, y).cos().sum(), torch.randn(40), torch.randn(40))
        self.check(lambda x, y: torch.logaddexp(x, y).cos().sum(), torch.randn(40), torch.randn(40))
        self.check(lambda x: torch.where(x.isfinite(), x, 0).sum(), torch.randn(40))
        self.check(lambda x: torch.linalg.vector_norm(x, 3), torch.randn(40))
        image = torch.randn(2, 3, 8, 6)
        for size in ((4, 3), (2, 6), 1):
            self.check(lambda x: functional.adaptive_avg_pool2d(x, size).cos().sum(), image)
            self.check(lambda x: functional.adaptive_max_pool2d(x, size).cos().sum(), image)
        self.check(lambda x: functional.adaptive_avg_pool2d(x, 3).cos().sum(), image, eager={
            "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d_backward.default"})
        self.check(lambda x: x.max(1)[0].square().sum(), torch.randn(4, 9).round())
        self.check(lambda x: x.amax(1).square().sum(), torch.randn(4, 9).round())

    def test_cross_entropy(self):
        torch.manual_seed(2)
        classes = torch.randint(0, 11, (6,))
        some = classes.clone()
        some[2:4] = -100
        for target in (classes, some, torch.full((6,), -100)):
            for reduction in ("mean", "sum", "none"):
                with self.subTest(reduction=reduction, target=target.tolist()):
                    self.check(lambda x: functional.cross_entropy(
                        x, target, reduction=reduction).square().sum(), torch.randn(6, 11))
        self.check(lambda x: functional.cross_entropy(x.view(-1, 11), classes, ignore_index=4),
                   torch.randn(2, 3, 11))
        one = torch.tensor(3)
        self.check(lambda x: functional.nll_loss(x, one), torch.randn(5))

    def test_cross_entropy_of_weighted_classes_and_of_images(self):
        torch.manual_seed(9)
        weight = torch.rand(5) + 0.5
        for dim in ((), (3, 6), (7,)):
            target = torch.randint(0, 5, (4, *dim))
            target.view(-1)[1] = -100
            for reduction in ("mean", "sum", "none"):
                with self.subTest(dim=dim, reduction=reduction):
                    self.check(lambda x: functional.cross_entropy(
                        x, target, weight, reduction=reduction).square().sum(),
                        torch.randn(4, 5, *dim))
        self.check(lambda x: functional.cross_entropy(x, target, label_smoothing=0.1),
                   torch.randn(4, 5, 7))

    def test_volumes(self):
        torch.manual_seed(10)
        x = torch.randn(2, 3, 6, 7, 5)
        self.check(lambda x: functional.max_pool3d(x, (2, 3, 2), 2, (1, 0, 1)).square().sum(), x)
        self.check(lambda x: functional.avg_pool3d(x, 2, padding=1).square().sum(), x)

    def test_sums_of_products(self):
        torch.manual_seed(11)
        a, b, c = torch.randn(3, 4, 6), torch.randn(3, 6, 5), torch.randn(4, 5)
        self.check(lambda a, b, c: torch.addbmm(c, a, b, beta=0.5, alpha=2).square().sum(), a, b, c)

    def test_first_convolution(self):
        """Whose image has no gradient, but whose bias has."""
        torch.manual_seed(3)
        image = torch.randn(2, 3, 8, 8)
        self.check(lambda w, b: functional.conv2d(image, w, b, 2, 1).square().sum(),
                   torch.randn(4, 3, 3, 3), torch.randn(4), tolerance=1e-4)

    def test_language_model(self):
        """All but the look-up of rows."""
        torch.manual_seed(4)
        body, _ = torch_models.rotary()
        head = torch.nn.Linear(16, 50, bias=False)
        tokens, labels = torch.randint(0, 50, (2, 8)), torch.randint(0, 50, (2, 8))

        def loss(table):
            x = head(body(functional.embedding(tokens, table)))
            return functional.cross_entropy(x.view(-1, 50), labels.view(-1))
        report = self.check(loss, torch.randn(50, 16), eager=MASK_OF_SHARED_HEADS | {
            "aten.embedding.default", "aten.embedding_dense_backward.default"})
        self.assertEqual(len(report.regions), 2)

    def test_bool_masks(self):
        torch.manual_seed(5)
        seen = torch.rand(2, 1, 6, 7) > 0.4
        seen[..., 0] = True
        self.check(lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen).square().sum(), torch.randn(2, 3, 6, 8),
            torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8))


if __name__ == "__main__":
    unittest.main()
