"""Every operation of the table against eager PyTorch, on the CPU backend or a GPU."""
import operator
import unittest

import sinter

try:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.nn import functional
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed") from missing

import sinter.torch
from sinter.torch import regions
from sinter.torch.emit import TABLE
from torch_cases import CASES, ELSEWHERE
from torch_device import DEVICE, setUpModule, tearDownModule  # noqa: F401

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def flat(value):
    return [v for v in (value if isinstance(value, (tuple, list)) else [value]) if v is not None]


def near(test, made, wanted, tolerance=None):
    test.assertEqual((made.dtype, made.shape), (wanted.dtype, wanted.shape))
    if not wanted.dtype.is_floating_point:
        return test.assertTrue(torch.equal(made, wanted))
    made, wanted, kind = made.double(), wanted.double(), wanted.dtype
    scale = wanted[wanted.isfinite()].abs().max().item() if wanted.isfinite().any() else 1
    torch.testing.assert_close(made, wanted, rtol=tolerance or TOLERANCE[kind],
                               atol=(tolerance or TOLERANCE[kind]) * max(scale, 1e-3),
                               equal_nan=True)


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (tuple, list)) else []


def with_tensors(value, tensors):
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, (tuple, list)):
        return type(value)(with_tensors(v, tensors) for v in value)
    return value


class Table(unittest.TestCase):
    def check(self, op, args, kwargs):
        args = with_tensors(args, (t.to(DEVICE) for t in tensors_in(args)))
        kwargs = {key: DEVICE if key == "device" else v for key, v in kwargs.items()}
        wanted = flat(op(*args, **kwargs))
        mask = [i for i, v in enumerate(wanted) if v.numel() > 0] or [0]
        if op is torch.ops.aten.nll_loss2d_forward.default and args[3] == 0:
            mask = [0]  # of a loss that is not reduced, a GPU's PyTorch leaves the total as memory was

        def traced(*tensors):  # the sum of nothing: the node alone, each of its results seen
            results = flat(op(*with_tensors(args, iter(tensors)), **kwargs))
            return [results[i] for i in mask]
        inputs = tensors_in(args)
        module = make_fx(traced, tracing_mode="fake")(*inputs)
        sinter.torch.report(reset=True)
        # Views alone stay with PyTorch: here they are to go through Sinter.
        views, regions._VIEWS = regions._VIEWS, set()
        try:
            lowered = regions.lower(module)
        finally:
            regions._VIEWS = views
        seen = sinter.torch.report(reset=True)
        self.assertEqual((dict(seen.eager), dict(seen.refused)), ({}, {}))
        self.assertEqual(len(seen.regions), 1)
        for made, i in zip(flat(lowered(*inputs)), mask):
            near(self, made, wanted[i])

    def test_cases_are_of_the_table(self):
        self.assertEqual(set(CASES) - {str(op) for op in TABLE}, set())

    def by_hand(self, op, args, results):
        """Results of one node that only a GPU would trace, so that it is made by hand."""
        graph, inputs = torch.fx.Graph(), tensors_in(args)
        nodes = []
        for i, t in enumerate(inputs):
            nodes.append(graph.placeholder(f"in_{i}"))
            nodes[-1].meta["val"] = t.detach()
        node = graph.call_function(op, with_tensors(args, iter(nodes)))
        node.meta["val"] = tuple(t.detach() for t in results)
        outputs = []
        for i, t in enumerate(results):
            outputs.append(graph.call_function(operator.getitem, (node, i)))
            outputs[-1].meta["val"] = t.detach()
        graph.output(tuple(outputs))
        return regions.lower(torch.fx.GraphModule({}, graph))(*inputs)

    def test_rms_norm(self):
        torch.manual_seed(7)
        aten = torch.ops.aten
        # Small numbers show the epsilon that PyTorch takes where none is given.
        for dtype, eps in ((torch.float32, 1e-5), (torch.float32, None), (torch.bfloat16, None)):
            x, w, dy = ((t * 1e-3).to(dtype).requires_grad_() for t in (
                torch.randn(3, 8), torch.randn(8), torch.randn(3, 8)))
            wanted = functional.rms_norm(x, (8,), w, eps)
            small = 2.0**-23 if eps is None else eps
            rstd = (x.float().square().mean(-1, keepdim=True) + small).rsqrt()
            gradients = torch.autograd.grad((wanted * dy).sum(), (x, w))
            for op, args, results in (
                    (aten._fused_rms_norm.default, (x, [8], w, eps), (wanted, rstd)),
                    (aten._fused_rms_norm_backward.default, (dy, x, [8], rstd, w, [True, True]),
                     gradients)):
                with self.subTest(op=str(op), dtype=dtype, eps=eps):
                    for made, t in zip(self.by_hand(op, args, results), results):
                        near(self, made, t.detach())


    def test_small_numbers(self):
        """Digits that a sum with 1 would lose."""
        x = torch.tensor([1e-9, -1e-9, 3e-4, -2e-5, 3e-7, -0.01, 0.3])
        for name, digits in {"expm1": 5e-7, "log1p": 5e-7, "sinh": 1e-6, "asinh": 1e-6,
                             "atanh": 1e-6}.items():
            op = getattr(torch.ops.aten, name).default
            lowered = regions.lower(make_fx(op, tracing_mode="fake")(x))
            torch.testing.assert_close(lowered(x), op(x.double()).float(), rtol=digits, atol=0)


def test_of(op):
    def test(self):
        for args, kwargs in CASES[str(op)]:
            with self.subTest(dim=[list(t.shape) for t in tensors_in(args)]):
                self.check(op, args, kwargs)
    return test


# A test for each operation, so that processes can share them.
for _op in TABLE:
    # Operators made from functions stand in the table, too.
    if str(_op) not in ELSEWHERE and _op.namespace in ("aten", "prims"):
        setattr(Table, "test_" + str(_op).replace(".", "_"), test_of(_op))
