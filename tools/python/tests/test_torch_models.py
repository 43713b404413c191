"""Operators, attention and compiled models against eager PyTorch, on the CPU backend or a GPU."""
import copy
import statistics
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
from sinter.torch.layouts import Layout
from sinter.torch.ops.attention import DECOMPOSITIONS
from sinter.torch.plans import Plans
from torch_device import (MASK_OF_SHARED_HEADS, WHERE, setUpModule,  # noqa: F401
                          tearDownModule)


def near(made, wanted, tolerance=1e-5):
    torch.testing.assert_close(made, wanted, rtol=tolerance,
                               atol=tolerance * max(1e-3, wanted.abs().max().item()))


def compiled(function):
    torch._dynamo.reset()
    sinter.torch.report(reset=True)
    return torch.compile(function, backend=sinter.torch.backend, dynamic=False)


# Two operators: one from functions, one from graphs.
def ffn(x, w, bias=None, *, scale: float = 1.0):
    y = x @ w if bias is None else x @ w + bias
    return sinter.gelu_approx_tanh_fwd(y * scale)


def ffn_backward(grad, x, w, bias=None, *, scale: float = 1.0):
    y = x @ w if bias is None else x @ w + bias
    dy = sinter.gelu_approx_tanh_bwd(grad, y * scale) * scale
    turned = [sinter.transpose(t, permutation=[1, 0]) for t in (x, w)]
    return dy @ turned[1], turned[0] @ dy, sinter.reduction(dy, mode="add", Y=[1, dy.dim[1]])


def square_graphs():
    forward, backward = sinter.Graph("square"), sinter.Graph("square_backward")
    x = forward.tensor("x", [3, 4])
    forward.output(x * x, "y")
    x, dy = backward.tensor("x", [3, 4]), backward.tensor("dy", [3, 4])
    backward.output(2 * x * dy, "dx")
    return forward, backward


FFN = sinter.torch.operator(ffn, "sinter_test::ffn", backward=ffn_backward)


class Operators(unittest.TestCase):
    def arguments(self):
        torch.manual_seed(1)
        return [torch.randn(*dim, requires_grad=True) for dim in ((5, 8), (8, 3), (1, 3))]

    def eager(self, x, w, bias, scale):
        return functional.gelu((x @ w + bias) * scale, approximate="tanh")

    def test_function(self):
        arguments = self.arguments()
        made = FFN(*arguments, scale=0.5)
        wanted = self.eager(*arguments, 0.5)
        near(made, wanted)
        weight = torch.randn_like(wanted)
        for a, b in zip(torch.autograd.grad((made * weight).sum(), arguments),
                        torch.autograd.grad((wanted * weight).sum(), arguments)):
            near(a, b)

    def test_opcheck(self):
        x, w, bias = self.arguments()
        torch.library.opcheck(FFN, (x, w, bias), {"scale": 2.0}, test_utils=(
            "test_schema", "test_autograd_registration", "test_faketensor"))

    def test_other_compilers_see_through_it(self):
        x, w, bias = (t.detach() for t in self.arguments())

        class Module(torch.nn.Module):
            def forward(self, x, w, bias):
                return torch.relu(FFN(x, w, bias))
        wanted = torch.relu(self.eager(x, w, bias, 1.0))
        exported = torch.export.export(Module(), (x, w, bias))
        self.assertIn("sinter_test.ffn", exported.graph_module.code)
        near(exported.module()(x, w, bias), wanted)
        torch._dynamo.reset()
        near(torch.compile(Module(), backend="aot_eager", fullgraph=True)(x, w, bias), wanted)

    def test_joins_the_kernels_around_it(self):
        x, w, bias = (t.detach() for t in self.arguments())
        run = compiled(lambda x, w, bias: torch.relu(FFN(x, w, bias) + 1))
        near(run(x, w, bias), torch.relu(self.eager(x, w, bias, 1.0) + 1))
        report = sinter.torch.report()
        self.assertEqual((len(report.regions), report.regions[0].kernels, dict(report.eager)),
                         (1, 1, {}))

    def test_graphs(self):
        forward, backward = square_graphs()
        # The backward's inputs in the order of its plan: x, dy. Operators want gradients first.
        with self.assertRaisesRegex(ValueError, "neither inputs nor outputs"):
            sinter.torch.operator(forward, "sinter_test::wrong", backward=backward)
        reordered = sinter.Graph("square_backward")
        dy, x = reordered.tensor("dy", [3, 4]), reordered.tensor("x", [3, 4])
        reordered.output(2 * x * dy, "dx")
        op = sinter.torch.operator(forward, "sinter_test::square", backward=reordered)
        x = torch.randn(3, 4, requires_grad=True)
        op(x).sum().backward()
        near(op(x), x * x)
        near(x.grad, 2 * x)


class Attention(unittest.TestCase):
    def check(self, heads=(4, 4), mask=None, **settings):
        torch.manual_seed(2)
        q = torch.randn(2, heads[0], 5, 8, requires_grad=True)
        k, v = (torch.randn(2, heads[1], 7, 8, requires_grad=True) for _ in range(2))

        def attend(q, k, v):
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **settings)
        weight = torch.randn(2, heads[0], 5, 8)
        results = []
        for run in (compiled(attend), attend):
            o = run(q, k, v)
            results.append([o, *torch.autograd.grad((o * weight).sum(), (q, k, v))])
        for a, b in zip(*results):
            near(a, b, 3e-5)
        report = sinter.torch.report()
        self.assertEqual((len(report.regions), dict(report.refused)), (2, {}))
        return report

    def test_plain(self):
        self.assertEqual(dict(self.check().eager), {})

    def test_mask_and_scale(self):
        self.check(mask=torch.randn(2, 1, 5, 7), scale=0.2)

    def test_shared_heads(self):
        self.check(heads=(4, 2), enable_gqa=True)

    def test_causal(self):
        self.check(is_causal=True)

    def test_every_variant(self):
        """The variants that a CPU does not choose have the same decomposition: results by place."""
        torch.manual_seed(3)
        q, k, v, grad = (torch.randn(1, 2, 6, 8) for _ in range(4))
        tensors = [t.clone().requires_grad_() for t in (q, k, v)]
        wanted = functional.scaled_dot_product_attention(*tensors, is_causal=True)
        gradients = torch.autograd.grad((wanted * grad).sum(), tensors)
        none, aten = torch.zeros(()), torch.ops.aten
        for name, first, rest, backward in (
                ("flash", (q, k, v, 0.0, True), {}, lambda o, s: (
                    grad, q, k, v, o, s, None, None, 6, 6, 0.0, True, none, none)),
                ("cudnn", (q, k, v, None, True, 0.0, True), {}, lambda o, s: (
                    grad, q, k, v, o, s, none, none, None, None, None, 6, 6, 0.0, True)),
                ("efficient", (q, k, v, None, True, 0.0, True), {}, lambda o, s: (
                    grad, q, k, v, None, o, s, none, none, 0.0, [True, True, True, False], True))):
            with self.subTest(variant=name):
                op = getattr(aten, f"_scaled_dot_product_{name}_attention")
                o, stats, *_ = DECOMPOSITIONS[op.default](*first, **rest)
                near(o, wanted)
                op = getattr(aten, f"_scaled_dot_product_{name}_attention_backward")
                for a, b in zip(DECOMPOSITIONS[op.default](*backward(o, stats)), gradients):
                    near(a, b)


class Models(unittest.TestCase):
    def train(self, model, x, tolerance):
        """Two steps of SGD; losses, gradients and buffers of both."""
        mine, theirs = model, copy.deepcopy(model)
        run = compiled(mine)
        for net, call in ((mine, run), (theirs, theirs)):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net.losses = []
            for _ in range(2):
                optimizer.zero_grad()
                loss = call(x).square().mean()
                loss.backward()
                optimizer.step()
                net.losses.append(loss.detach())
        near(torch.stack(mine.losses), torch.stack(theirs.losses), tolerance)
        for (name, a), b in zip(mine.named_parameters(), theirs.parameters()):
            with self.subTest(parameter=name):
                near(a.grad, b.grad, 10 * tolerance)
        for (name, a), b in zip(mine.named_buffers(), theirs.buffers()):
            with self.subTest(buffer=name):
                near(a.double(), b.double(), tolerance)
        return sinter.torch.report()

    def test_transformer(self):
        torch.manual_seed(4)
        report = self.train(*torch_models.transformer(), 1e-5)
        self.assertEqual((len(report.regions), dict(report.eager), dict(report.refused)),
                         (2, {}, {}))

    def test_rotary_transformer(self):
        torch.manual_seed(9)
        report = self.train(*torch_models.rotary(), 1e-5)
        self.assertEqual(({op for op, _ in report.eager}, dict(report.refused)),
                         (MASK_OF_SHARED_HEADS, {}))

    def test_resnet(self):
        torch.manual_seed(5)
        report = self.train(*torch_models.resnet(), 1e-4)
        self.assertEqual((len(report.regions), dict(report.refused)), (2, {}))
        # Counters of batches are integers.
        self.assertEqual({op for op, _ in report.eager}, {"aten.add.Tensor"})

    def test_unet(self):
        torch.manual_seed(12)
        report = self.train(*torch_models.unet(), 1e-4)
        self.assertEqual((len(report.regions), dict(report.eager), dict(report.refused)),
                         (2, {}, {}))

    def test_types_of_eager(self):
        torch.manual_seed(6)
        model, x = torch_models.transformer()
        model, x = model.bfloat16(), x.bfloat16()
        y = compiled(model)(x)
        self.assertEqual(y.dtype, torch.bfloat16)
        near(y.float(), copy.deepcopy(model).float()(x.float()), 3e-2)

    def errors(self, build, *dims):
        """How far the gradients in bf16 are from eager's in f32, of eager and of Sinter: the square
        of the relative error of each parameter."""
        model, x = build(*dims)
        model, x = model.bfloat16(), x.bfloat16()
        gradients = []
        for kind in ("exact", "eager", "sinter"):
            net = copy.deepcopy(model)
            net, data = (net.float(), x.float()) if kind == "exact" else (net, x)
            (compiled(net) if kind == "sinter" else net)(data).float().square().mean().backward()
            gradients.append([p.grad.float() for p in net.parameters()])
        return [{name: ((a - b).norm() / b.norm()).square().item() for (name, _), a, b in zip(
            model.named_parameters(), seen, gradients[0])} for seen in gradients[1:]]

    def test_errors_of_gradients(self):
        torch.manual_seed(8)
        eager, mine = self.errors(torch_models.transformer, 128, 2, (4, 128))
        self.assertLess(max(mine.values()), 1.3**2 * max(eager.values()))
        # Sums over many rows show what is rounded once more than in eager PyTorch.
        sums = [mine[n] / eager[n] for n in mine if n.endswith("bias") and "norm" not in n]
        self.assertLess(statistics.median(sums), 1.1**2)
        # A batch norm makes errors of single gradients a matter of luck: several draws.
        draws = [self.errors(torch_models.resnet, 16, (4, 8)) for _ in range(3)]
        eager, mine = (sum(sum(draw[k].values()) for draw in draws) for k in (0, 1))
        self.assertLess(mine, 1.3**2 * eager)

    @unittest.skipIf(WHERE == "cpu", "CUDA graphs need a GPU")
    def test_captured_in_a_cuda_graph(self):
        torch.manual_seed(10)
        model, x = torch_models.transformer()
        run, wanted = compiled(model), model(2 * x).detach()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            run(x).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(x)
            y.sum().backward()
        x.mul_(2)
        graph.replay()
        near(y.detach(), wanted)

    def test_the_rest_stays_with_pytorch(self):
        def function(x):
            values, _ = torch.sort(torch.relu(x) + 1)
            return values * 2
        x = torch.randn(4, 5)
        near(compiled(function)(x), function(x))
        report = sinter.torch.report()
        self.assertEqual((len(report.regions), dict(report.eager)),
                         (2, {("aten.sort.default", "not in the table"): 1}))
        self.assertIn("aten.sort.default: not in the table", str(report))

    def test_updates_of_inputs(self):
        """One operation for all of a type, behind all that reads them."""
        def function(x, a, b, n):
            a.mul_(0.5).add_(x)
            b.add_(a.square())
            n.add_(1)
            return torch.sort(a).values + b + x, a * 2
        tensors = [torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4), torch.tensor(5)]
        mine, theirs = ([t.clone() for t in tensors] for _ in range(2))
        run = compiled(function)
        run(*(t.clone() for t in tensors))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            made = run(*mine)
        for a, b in zip([*made, *mine], [*function(*theirs), *theirs]):
            near(a.double(), b.double())
        seen = {e.key: e.count for e in profile.key_averages()}
        self.assertEqual((seen.get("aten::_foreach_copy_"), seen.get("aten::_foreach_add_")), (1, 1))
        self.assertNotIn("aten::add", seen)

    def test_views_of_one_result_are_written_once(self):
        def function(x):
            y = torch.relu(x)
            return y, y.t(), y.view(2, 2, 3), y[1:], y.expand(2, 4, 3)
        x = torch.randn(4, 3)
        made = compiled(function)(x)
        for a, b in zip(made, function(x)):
            near(a, b)
            self.assertEqual(a.stride(), b.stride())
        self.assertEqual(len({a.untyped_storage().data_ptr() for a in made}), 1)


class Tensors(unittest.TestCase):
    def test_tensors_in_and_out(self):
        graph = sinter.Graph(io_data_type="bf16")
        x, w = graph.tensor("x", [4, 8], stride=[1, 4]), graph.tensor("w", [8, 3])
        graph.output(sinter.relu_fwd(sinter.softmax(x @ w).Y @ sinter.reshape(w, dim=[3, 8])), "y")
        run = sinter.compile(graph, WHERE)
        x, w = (torch.randn(*dim, dtype=torch.bfloat16) for dim in ((8, 4), (8, 3)))
        x.requires_grad_()
        made = run(x=x.t(), w=w)["y"]
        wanted = torch.softmax(x.t().float() @ w.float(), -1) @ w.view(3, 8).float()
        self.assertEqual((type(made), made.dtype), (torch.Tensor, torch.bfloat16))
        near(made.float(), torch.relu(wanted.detach()), 2e-2)
        given = torch.empty(4, 8, dtype=torch.bfloat16)
        self.assertIs(run(x=x.t(), w=w, y=given)["y"], given)
        self.assertTrue(torch.equal(made, given))

    def test_a_tensor_that_does_not_fit(self):
        graph = sinter.Graph()
        graph.output(-graph.tensor("x", [4, 8]), "y")
        with self.assertRaisesRegex(sinter.Error, "stride"):
            sinter.compile(graph, WHERE)(x=torch.zeros(8, 4).t())


class PlansByLayout(unittest.TestCase):
    def test_strides_alignment_and_bound(self):
        built = []

        def build(layouts):
            built.append(layouts)
            graph = sinter.Graph()
            x = graph.tensor("x", layouts[0].dim, stride=layouts[0].stride,
                             alignment=layouts[0].alignment)
            graph.output(-x, "y")
            return graph, ["x"], [("y", Layout(torch.float32, layouts[0].dim, (3, 1)))]
        plans = Plans("negative", build, limit=3)
        memory = torch.arange(16.0)
        for x in (memory[:6].view(2, 3), memory[8:14].view(2, 3), memory[:6].view(3, 2).t(),
                  memory[1:7].view(2, 3), memory[:6].view(2, 3)):
            self.assertTrue(torch.equal(plans([x])[0], -x))
        self.assertEqual([layout[0].alignment for layout in built], [16, 16, 4])
        plans([memory[2:8].view(2, 3)])  # the fourth: the oldest goes
        plans([memory[:6].view(3, 2).t()])
        plans([memory[:6].view(2, 3)])
        self.assertEqual([layout[0].alignment for layout in built], [16, 16, 4, 8, 16])

    def test_deterministic(self):
        def build(layouts):
            graph = sinter.Graph()
            graph.output(-graph.tensor("x", layouts[0].dim), "y")
            return graph, ["x"], [("y", Layout(torch.float32, (2, 3), (3, 1)))]
        plans, x = Plans("negative", build), torch.ones(2, 3)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        with mock.patch.object(sinter.runtime, "compile", wraps=sinter.runtime.compile) as made:
            for wanted in (False, True, True, False):
                torch.use_deterministic_algorithms(wanted)
                self.assertTrue(torch.equal(plans([x])[0], -x))
            self.assertEqual([call.kwargs["deterministic"] for call in made.call_args_list],
                             [False, True])  # one plan each
