"""Parts of an FX graph that become one Sinter graph each; the rest stays with eager PyTorch."""
import operator

import sinter
import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..arrays import packed
from ..torch_memory import reinterpreted
from . import report, updates
from .emit import emit, is_extent, reshapes, why_not
from .layouts import DTYPES, FLOATING, Layout, Unsupported, add_input, dims, fake_layout, number
from .ops import dropout
from .ops.layout import VIEWS
from .plans import DynamicPlans, Plans
from .symbols import Symbols, hints

_VIEWS = {getattr(getattr(torch.ops.aten, n.partition(".")[0]), n.partition(".")[2] or "default")
          for n in VIEWS}
_EXPAND = torch.ops.aten.expand.default
_PREFIX = "sinter_region_"


class _Support(OperatorSupportBase):
    """Which nodes Sinter takes; each that it does not is counted with the reason."""

    def __init__(self, symbols):
        self._known, self._symbols = {}, symbols

    def is_node_supported(self, submodules, node):
        if node not in self._known:
            self._known[node] = self._judge(node)
        return self._known[node]

    def _judge(self, node):
        if node.op != "call_function" or is_extent(node):
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(None, node.args[0])
        reason = why_not(node, self._symbols)
        if reason is not None:
            report.left_to_eager(node.target, reason)
        return reason is None


class Region:
    """The call of a region. Where Sinter refuses it, PyTorch's own operations run instead."""

    def __init__(self, name, module):
        self._module = module
        self._nodes = list(module.graph.nodes)
        self._inputs = [n for n in self._nodes if n.op == "placeholder"]
        result = self._nodes[-1].args[0]
        self._single = not isinstance(result, (tuple, list))
        self._results = [result] if self._single else list(result)
        self._symbols = Symbols(self._nodes, self._inputs)
        self._tensors = [i for i, n in enumerate(self._inputs) if not is_extent(n)]
        if not self._tensors and self._symbols.names:
            raise Unsupported("dynamic shapes of a region without inputs")
        self._written, self._bases = self._plan_outputs()
        self._device = self._results[0].meta["val"].device
        self._known = {}  # by the numbers of the symbols: what of a call depends on them
        if self._symbols.names:
            layouts = self._layouts(self._symbols.hints)
            self._plans = DynamicPlans(name, self._describe, self._inputs_of,
                                       self._types(*layouts), self._symbols.ranges)
        else:
            self._plans = Plans(name, self._build)

    def _plan_outputs(self):
        """Which results the kernels write, and of each result the place of what it shows there, and
        whether it is a view of that. What shows all of a tensor, or is one of several views of it,
        is not written by itself, nor what repeats elements."""
        bases = [_base(n) for n in self._results]
        written, shown = [], []
        for node, base in zip(self._results, bases):
            apart = base is node or base.op == "placeholder" or (
                self._count(node) < self._count(base) and sum(b is base for b in bases) == 1)
            target = node if apart else base
            if target not in written:
                written.append(target)
            shown.append((written.index(target), target is not node))
        return written, shown

    def _count(self, node):
        return number(node.meta["val"].numel(), self._symbols.hints)

    def _layouts(self, symbols):
        """Of the tensors that a call gets, and of those that kernels write."""
        return ([fake_layout(self._inputs[i].meta["val"], symbols) for i in self._tensors],
                [_written_layout(fake_layout(n.meta["val"], symbols)) for n in self._written])

    def _inputs_of(self, numbers):
        return self._layouts(self._symbols.mapping(numbers))[0]

    def _views(self, symbols):
        """Of each result: the place of what is written, and (size, stride, offset) where it is a
        view of that."""
        views = []
        for node, (place, is_view) in zip(self._results, self._bases):
            layout, value = fake_layout(node.meta["val"], symbols), node.meta["val"]
            views.append((place, (layout.dim, layout.stride, number(
                value.storage_offset(), symbols)) if is_view else None))
        return views

    def compile(self, name):
        """Plans and compiles for the layouts that the trace has seen; raises where it cannot."""
        symbols = self._symbols
        layouts = self._layouts(symbols.hints)[0]
        numbers = tuple(symbols.hints[s] for s in symbols.names)
        launch = self._plans.launch(self._device, layouts, *([numbers] if numbers else []))
        compute = [n for n in self._nodes if n.op == "call_function"
                   and n.target is not operator.getitem and n.target not in _VIEWS]
        report.region_made(name, len(compute), launch)

    def _types(self, inputs, written):
        return _types([*inputs, *written], self._nodes)

    def _build(self, layouts):
        graph = sinter.Graph("torch_region", **self._types(layouts, self._layouts({})[1]))
        return graph, *self._describe(graph, layouts, ())

    def _describe(self, graph, layouts, numbers):
        """Builds the region; names of the inputs, names and Layouts of the outputs."""
        symbols = self._symbols.mapping(numbers)
        inputs = [self._inputs[i] for i in self._tensors]
        tensors, reshaped, kept, names = {}, {}, [], [f"in_{i}" for i in range(len(inputs))]
        for node, name, layout in zip(inputs, names, layouts):
            tensors[node] = add_input(graph, name, layout)
        for node in self._nodes:
            if node.op == "call_function":
                tensors[node] = emit(graph, node, tensors, reshaped, kept, symbols)
        outputs, seen = [], {tensors[n] for n in inputs}
        for k, (node, layout) in enumerate(zip(self._written, self._layouts(symbols)[1])):
            t, stride = tensors[node], list(layout.stride) or [1]
            if t is None:
                raise Unsupported("a result that the table does not compute")
            if stride == packed(dims(layout.dim)):  # the same memory with the first one's dims
                t = [t, *(r for r in reshapes(t, reshaped) if r not in seen)][-1]
                stride = packed(t.dim)
            if t in seen:  # an input, or what another output is already
                t = sinter.identity(t, OUT_0={"dim": list(t.dim), "data_type": t.data_type})
            seen.add(t)
            graph.output(t, f"out_{k}", stride=stride)
            outputs.append((f"out_{k}", layout))
        for k, t in enumerate(t for t in kept if t not in seen):
            graph.output(t, f"kept_{k}")
            outputs.append((f"kept_{k}", Layout(DTYPES[t.data_type], t.dim, t.stride)))
        return names, outputs

    def __call__(self, *arguments):
        try:
            numbers = self._symbols.values(arguments)
            views = self._known.get(numbers)
            if views is None:
                views = self._known[numbers] = self._views(self._symbols.mapping(numbers))
            if numbers:
                made = self._plans([arguments[i] for i in self._tensors], self._device, numbers)
            else:
                made = self._plans(arguments, self._device)
        except (Unsupported, sinter.Error) as error:  # for layouts that the trace had not seen
            report.region_refused(str(error))
            return self._module(*arguments)
        results = [made[k] if view is None else reinterpreted(made[k], *view)
                   for k, view in views]
        return results[0] if self._single else tuple(results)


def _written_layout(layout):
    """PyTorch's strides, where they are those of a tensor that can be written."""
    if any(stride == 0 and extent > 1 for extent, stride in zip(layout.dim, layout.stride)):
        return layout._replace(stride=tuple(packed(layout.dim)))
    return layout


def _base(node):
    """The tensor of which a node of a region is a view."""
    while node.op == "call_function" and node.target in _VIEWS:
        node = node.args[0]
    return node


def _types(layouts, nodes):
    """The graph's types. Products of computed 16-bit tensors use tensor cores; where an f32 tensor
    goes into a product, the graph stays f32, because it may not be rounded."""
    types = {layout.data_type for layout in layouts if layout.data_type in FLOATING}
    wide = "f64" if "f64" in types else "f32"
    products = {torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default,
                torch.ops.aten.baddbmm.default, torch.ops.aten.convolution.default}
    exact = any(n.target in products and n.meta["val"].dtype == torch.float32 for n in nodes)
    io = next((t for t in ("bf16", "f16") if t in types and not exact), wide)
    return {"io_data_type": io, "intermediate_data_type": wide}


def _leave_views_of_inputs(nodes):
    """Takes from a region what would be a copy there: views of inputs that are seen outside, and
    repeated elements. Other views of inputs are strides that a kernel reads with."""
    of_inputs = set()

    def seen_outside(node):
        return any(user not in nodes or (user in of_inputs and seen_outside(user))
                   for user in node.users)
    for node in sorted(nodes):
        source = node.args[0] if node.target in _VIEWS else None
        if source is not None and (source not in nodes or source in of_inputs):
            of_inputs.add(node)
    leaving = [n for n in of_inputs if n.target is _EXPAND or seen_outside(n)]
    for node in leaving:  # and what it is a view of
        while node in of_inputs:
            nodes.pop(node, None)
            node = node.args[0]


def lower(module):
    """Replaces what Sinter takes of a graph module by calls of regions."""
    updated = updates.take(module.graph)
    dropout.draw_together(module.graph)
    support = _Support(hints(module.graph.nodes))
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    partitions = partitioner.propose_partitions()
    for partition in partitions:
        _leave_views_of_inputs(partition.nodes)
    partitions = [p for p in partitions if not _VIEWS.issuperset(n.target for n in p.nodes)]
    fused = partitioner.fuse_partitions(partitions, prefix=_PREFIX)
    for node in list(fused.graph.nodes):
        if node.op != "call_module" or not node.target.startswith(_PREFIX):
            continue
        inner = getattr(fused, node.target)
        try:
            region = Region(node.target, inner)
            region.compile(node.target)
        except (Unsupported, sinter.Error) as error:
            report.region_refused(str(error))
            continue
        delattr(fused, node.target)
        setattr(fused, node.target, _Call(region))
    updates.put(fused.graph, updated)
    fused.recompile()
    return fused


class _Call(torch.nn.Module):
    """A region as the submodule that the graph calls."""

    def __init__(self, region):
        super().__init__()
        self.forward = region.__call__
