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

    def test_a_loss_with_weights_stays(self):
        weight, target = torch.rand(5) + 0.5, torch.randint(0, 5, (4,))
        self.check(lambda x: functional.cross_entropy(x, target, weight), torch.randn(4, 5), eager={
            "aten.nll_loss_forward.default", "aten.nll_loss_backward.default"})

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
