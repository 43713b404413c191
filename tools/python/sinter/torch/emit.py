"""From a node of an FX graph to nodes of a Sinter graph: the table of operations and its context."""
import operator

import torch

import sinter

from .layouts import (DTYPES, FLOATING, Unsupported, add_input, declared, dims, fake_layout,
                      is_tensor, number)

TABLE = {}  # operation of PyTorch to the function that emits it


def entry(*names):
    """Registers function(e, *arguments, **keywords) for operations of torch.ops.aten, or with
    their namespace before `::`. It gets the node's own arguments with Sinter tensors for nodes, and
    gives a tensor, or a tuple with None for results that nobody asked for. Operations that this
    PyTorch lacks are passed over."""
    def register(function):
        for name in names:
            space, _, name = ("aten::" + name).rpartition("::")
            packet, _, overload = name.partition(".")
            packet = getattr(getattr(torch.ops, space.rpartition("::")[2]), packet, None)
            op = getattr(packet, overload or "default", None)
            if op is not None:
                TABLE[op] = function
        return function
    return register


class Emit:
    """What an entry of the table works with: the graph, the node of PyTorch's graph, and the results
    that PyTorch expects."""

    def __init__(self, graph, node, reshaped, symbols):
        self.graph, self.node, self._reshaped = graph, node, reshaped
        self._symbols = symbols
        self.kept = []  # results that the graph stores whoever reads them
        value = node.meta["val"]
        values = value if isinstance(value, (tuple, list)) else [value]
        self.gpu = any(v.device.type == "cuda" for v in values if is_tensor(v))
        self.layouts = [fake_layout(v, symbols) if is_tensor(v) else None for v in values]

    def shape_of(self, node):
        return [number(extent, self._symbols) for extent in node.meta["val"].shape]

    def wanted(self, k):
        return k < len(self.layouts) and self.layouts[k] is not None

    def dim(self, k=0):
        return dims(self.layouts[k].dim)

    def type(self, k=0):
        return self.layouts[k].data_type

    def out(self, k=0):
        """Declares result k for an output port: its dims, type and strides are PyTorch's."""
        return declared(self.layouts[k])

    def operand(self, value, data_type=None):
        """A number as a scalar; f64 where the result is, so that it keeps its digits."""
        if isinstance(value, (bool, int, float)):
            wide = "f64" if self.type() == "f64" else "f32"
            return self.graph.scalar(float(value), data_type or wide)
        return value

    def constant(self, value, dim, data_type="f32"):
        return sinter.identity(self.operand(float(value)),
                               OUT_0={"dim": list(dim), "data_type": data_type})

    def rows_apart(self, x):
        """A matrix whose rows are several dims made one, with these dims again; else itself."""
        for t in reshapes(x, self._reshaped):
            if len(x.dim) == 2 and len(t.dim) > 2 and t.dim[-1] == x.dim[-1]:
                return t
        return x

    def reshape(self, x, dim):
        """The same elements with other dims, in the tensor's own type. A reshape back gives the
        tensor that was there: less stands between kernels."""
        dim = dims(dim)
        for t in reshapes(x, self._reshaped):
            if list(t.dim) == dim:
                return t
        y = sinter.reshape(x, dim=dim, Y={"dim": dim, "data_type": x.data_type})
        self._reshaped[y] = x
        return y

    def converted(self, x, k=0):
        return sinter.identity(x, OUT_0=self.out(k))


def reshapes(x, reshaped):
    """x, what it is a reshape of, and so on: tensors of the same elements in the same order."""
    while x is not None:
        yield x
        x = reshaped.get(x)


def floating(x, what="arithmetic"):
    if x.data_type not in FLOATING:
        raise Unsupported(f"{what} of {DTYPES[x.data_type]}")


def axes(dim, rank):
    """Axes of a tensor of this rank, from one number, several, or none for all."""
    rank = max(rank, 1)
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    return [d % rank for d in (dim if isinstance(dim, (list, tuple)) else [dim])]


def emit(graph, node, tensors, reshaped, kept=None, symbols=None):
    """The tensor, or the tuple of tensors, of an FX node; `tensors` are those of its arguments, and
    `reshaped` says for the graph's reshaped tensors what they were. `kept` gets what is to be
    stored; `symbols` has the numbers of symbolic extents."""
    if node.target is operator.getitem:
        return tensors[node.args[0]][node.args[1]]
    e = Emit(graph, node, reshaped, symbols)

    def argument(n):
        return number(n.meta["val"], symbols) if is_extent(n) else tensors[n]
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), argument)
    made = TABLE[node.target](e, *args, **kwargs)
    if kept is not None:
        kept.extend(e.kept)
    for k, t in enumerate(made if isinstance(made, tuple) else (made,)):
        if t is None or not e.wanted(k):
            continue
        if list(t.dim) != e.dim(k) or t.data_type != e.type(k):
            raise Unsupported(f"gives {t.data_type} {list(t.dim)} for {e.type(k)} {e.dim(k)}")
    return made


def is_extent(node):
    """Whether a node of an FX graph is a number that changes with the shapes."""
    return isinstance(node.meta.get("val"), torch.SymInt)


def why_not(node, symbols=None):
    """None where the node alone makes a valid Sinter graph, else the reason."""
    if node.op != "call_function" or node.target not in TABLE:
        return "not in the table"
    graph = sinter.Graph()
    try:
        results = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else [
            node.meta["val"]]
        devices, tensors = {v.device for v in results if is_tensor(v)}, {}
        for argument in node.all_input_nodes:
            value = argument.meta.get("val")
            if is_extent(argument):
                continue
            if not is_tensor(value):
                return "an argument is no tensor"
            devices.add(value.device)
            tensors[argument] = add_input(graph, None, fake_layout(value, symbols))
        if len(devices) > 1:
            return "several devices"
        if devices.pop().type not in ("cpu", "cuda"):
            return "another kind of device"
        emit(graph, node, tensors, {}, symbols=symbols)
    except Unsupported as reason:
        return str(reason)
    except sinter.Error as error:
        return str(error.diagnostics[0])
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        return f"a call that the table does not know: {error}"
    return None
