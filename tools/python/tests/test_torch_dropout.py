"""Dropout: how often, which elements, the same ones in the gradient, and seeds of PyTorch's."""
import unittest

import sinter

try:
    import torch
    from torch.nn import functional
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed") from missing

import sinter.torch
from sinter.torch.ops import attention
from torch_device import setUpModule, tearDownModule  # noqa: F401

ATEN = torch.ops.aten


def compiled(function, **options):
    torch._dynamo.reset()
    sinter.torch.report(reset=True)
    return torch.compile(function, backend="sinter", **options)


def fused(x, p):
    """What PyTorch calls on a GPU."""
    return ATEN.native_dropout(x, p, True)[0]


class Elements(unittest.TestCase):
    def test_gradients_draw_again(self):
        torch.manual_seed(4)
        run = compiled(lambda x: fused(x.cos(), 0.25))
        x = torch.zeros(64, 3, 50).transpose(0, 1).requires_grad_()
        y = run(x)
        stored = [t for t in y.grad_fn.saved_tensors if t.dtype == torch.bool]
        self.assertEqual(stored, [])
        self.assertEqual(set(y.unique().tolist()), {0.0, torch.tensor(4 / 3).item()})
        # The gradient of sin is 1 there.
        run = compiled(lambda x: fused(x.sin(), 0.25))
        torch.manual_seed(4)
        grad, = torch.autograd.grad(run(x).sum(), x)
        self.assertTrue(torch.equal(grad, y))
        self.assertEqual(dict(sinter.torch.report().eager), {("draw_seeds", "not in the table"): 1})

    def test_share_scale_and_gradient(self):
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype=dtype):
                torch.manual_seed(1)
                run = compiled(lambda x: functional.dropout(x.relu(), 0.25))
                x = torch.ones(256, 300, dtype=dtype, requires_grad=True)
                y = run(x)
                y.sum().backward()
                kept = y != 0
                # 76,800 draws: six standard deviations are 0.0094.
                self.assertAlmostEqual(kept.double().mean().item(), 0.75, delta=0.0094)
                self.assertEqual(set(y[kept].tolist()), {torch.tensor(4 / 3, dtype=dtype).item()})
                self.assertTrue(torch.equal(x.grad, y.detach()))
                report = sinter.torch.report()
                self.assertEqual(dict(report.eager), {("draw_seeds", "not in the table"): 1})
                self.assertEqual([r.kernels for r in report.regions], [1, 1])

    def test_seeds_are_those_of_the_generator(self):
        run, x = compiled(lambda x: functional.dropout(x, 0.5)), torch.ones(64, 64)
        torch.manual_seed(7)
        first, second = run(x), run(x)
        torch.manual_seed(7)
        self.assertTrue(torch.equal(run(x), first))
        self.assertFalse(torch.equal(first, second))

    def test_each_call_of_a_graph_has_its_own(self):
        run = compiled(lambda x: (functional.dropout(x, 0.5), functional.dropout(x, 0.5)))
        a, b = run(torch.ones(64, 64))
        self.assertFalse(torch.equal(a, b))
        self.assertEqual(dict(sinter.torch.report().eager), {("draw_seeds", "not in the table"): 1})

    def test_probabilities_without_a_choice(self):
        x = torch.ones(8, 8)
        for p, wanted in ((0.0, x), (1.0, 0 * x)):
            run = compiled(lambda x, p=p: functional.dropout(x, p) + x)
            self.assertTrue(torch.equal(run(x), wanted + x))
        run = compiled(lambda x: functional.dropout(x, 0.5, False) + x)
        self.assertTrue(torch.equal(run(x), 2 * x))

    def test_features(self):
        """Whole channels, by numbers for each that a tensor without elements of its own asks for."""
        x = torch.ones(4, 30, 5, 5)
        y = compiled(lambda x: functional.dropout2d(x, 0.5))(x)
        self.assertTrue(torch.equal(y, y[:, :, :1, :1].expand(x.shape)))
        self.assertEqual(set(y.unique().tolist()), {0.0, 2.0})
        self.assertEqual(dict(sinter.torch.report().eager), {("draw_seeds", "not in the table"): 1})

    def test_extents_that_change(self):
        run = compiled(lambda x: functional.dropout(x.relu(), 0.5), dynamic=True)
        for n in (17, 40, 300):
            x = torch.ones(n, 96, requires_grad=True)
            y = run(x)
            y.sum().backward()
            self.assertTrue(torch.equal(x.grad, y.detach()))
            self.assertEqual(set(y.unique().tolist()), {0.0, 2.0})


class Attention(unittest.TestCase):
    """O is linear in V with the weights that were kept: dV . V is dO . O of the same ones."""

    def near(self, a, b, tolerance):
        self.assertAlmostEqual(a.item() / b.item(), 1, delta=tolerance)

    def test_compiled(self):
        torch.manual_seed(2)
        q, k, v, grad = (torch.randn(2, 4, 40, 16) for _ in range(4))
        run, v = compiled(functional.scaled_dot_product_attention), v.requires_grad_()
        o = run(q, k, v, dropout_p=0.4)
        dv, = torch.autograd.grad((o * grad).sum(), v)
        self.near((dv * v).sum(), (o * grad).sum(), 1e-4)
        self.assertFalse(torch.equal(o, run(q, k, v, dropout_p=0.4)))

    def test_every_variant(self):
        """Those that a CPU does not choose, by their decompositions."""
        torch.manual_seed(3)
        q, k, v, grad = (torch.randn(1, 2, 24, 8) for _ in range(4))
        bias, p = torch.randn(1, 2, 24, 24), 0.3
        table = attention.DECOMPOSITIONS
        for name, first, backward in (
                ("flash", (q, k, v, p, True), lambda r, s: (
                    grad, q, k, v, *r[:2], None, None, 24, 24, p, True, s, None)),
                ("cudnn", (q, k, v, bias, True, p, True), lambda r, s: (
                    grad, q, k, v, *r[:2], s, None, bias, None, None, 24, 24, p, True)),
                ("efficient", (q, k, v, bias, True, p, True), lambda r, s: (
                    grad, q, k, v, bias, *r[:2], s, None, p, [True] * 4, True))):
            with self.subTest(variant=name):
                forward, gradients = (table[getattr(
                    ATEN, f"_scaled_dot_product_{name}_attention{way}").default]
                    for way in ("", "_backward"))
                results = forward(*first)
                seed = results[2 if name == "efficient" else 6]
                dv = gradients(*backward(results, seed))[2]
                self.near((dv * v).sum(), (results[0] * grad).sum(), 1e-4)
                theirs = torch.zeros((), dtype=torch.int64)  # a seed of PyTorch's own kernels
                self.assertIs(gradients(*backward(results, theirs)), NotImplemented)

    def test_training(self):
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
        run, x = compiled(layer), torch.randn(3, 17, 32)
        run(x).square().mean().backward()
        self.assertTrue(all(p.grad.isfinite().all() for p in layer.parameters()))
        report = sinter.torch.report()
        self.assertEqual((set(report.eager), dict(report.refused)),
                         ({("draw_seeds", "not in the table")}, {}))


if __name__ == "__main__":
    unittest.main()
