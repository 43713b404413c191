"""Parts of an FX graph that become one Sinter graph each; the rest stays with eager PyTorch."""
import operator

import sinter
import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..arrays import packed
from ..torch_memory import reinterpreted
from . import report
from .emit import emit, reshapes, why_not
from .layouts import DTYPES, FLOATING, Layout, Unsupported, add_input, dims, fake_layout
from .ops.layout import VIEWS
from .plans import Plans

_VIEWS = {getattr(getattr(torch.ops.aten, n.partition(".")[0]), n.partition(".")[2] or "default")
          for n in VIEWS}
_EXPAND = torch.ops.aten.expand.default
_PREFIX = "sinter_region_"


class _Support(OperatorSupportBase):
    """Which nodes Sinter takes; each that it does not is counted with the reason."""

    def __init__(self):
        self._known = {}

    def is_node_supported(self, submodules, node):
        if node not in self._known:
            self._known[node] = self._judge(node)
        return self._known[node]

    def _judge(self, node):
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(None, node.args[0])
        reason = why_not(node)
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
        self._plan_outputs()
        self._layouts = [_written_layout(fake_layout(n.meta["val"])) for n in self._written]
        self._device = self._results[0].meta["val"].device
        self._plans = Plans(name, self._build)

    def _plan_outputs(self):
        """Which results the kernels write, and which are views of those: (index, size, stride,
        offset). What shows all of a tensor, or is one of several views of it, is not written by
        itself, nor what repeats elements."""
        bases = [_base(n) for n in self._results]
        self._written, self._views = [], []
        for node, base in zip(self._results, bases):
            value = node.meta["val"]
            apart = base is node or base.op == "placeholder" or (
                value.numel() < base.meta["val"].numel() and sum(b is base for b in bases) == 1)
            target = node if apart else base
            if target not in self._written:
                self._written.append(target)
            self._views.append((self._written.index(target), None if target is node else (
                value.size(), value.stride(), value.storage_offset())))

    def compile(self, name):
        """Plans and compiles for the layouts that the trace has seen; raises where it cannot."""
        launch = self._plans.launch(self._device, [fake_layout(n.meta["val"]) for n in self._inputs])
        compute = [n for n in self._nodes if n.op == "call_function"
                   and n.target is not operator.getitem and n.target not in _VIEWS]
        report.region_made(name, len(compute), launch)

    def _build(self, layouts):
        tensors, reshaped, kept, names = {}, {}, [], [f"in_{i}" for i in range(len(self._inputs))]
        graph = sinter.Graph("torch_region", **_types([*layouts, *self._layouts], self._nodes))
        for node, name, layout in zip(self._inputs, names, layouts):
            tensors[node] = add_input(graph, name, layout)
        for node in self._nodes:
            if node.op == "call_function":
                tensors[node] = emit(graph, node, tensors, reshaped, kept)
        outputs, seen = [], {tensors[n] for n in self._inputs}
        for k, (node, layout) in enumerate(zip(self._written, self._layouts)):
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
        return graph, names, outputs

    def __call__(self, *tensors):
        try:
            made = self._plans(tensors, self._device)
        except (Unsupported, sinter.Error) as error:  # for layouts that the trace had not seen
            report.region_refused(str(error))
            return self._module(*tensors)
        results = [made[k] if view is None else reinterpreted(made[k], *view)
                   for k, view in self._views]
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
    partitioner = CapabilityBasedPartitioner(module, _Support(), allows_single_node_partition=True)
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
    fused.recompile()
    return fused


class _Call(torch.nn.Module):
    """A region as the submodule that the graph calls."""

    def __init__(self, region):
        super().__init__()
        self.forward = region.__call__
