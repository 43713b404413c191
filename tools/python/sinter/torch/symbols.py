"""Extents that change from call to call: PyTorch's symbols, and the numbers that they stand for."""
import torch

from .layouts import Unsupported, number

_MOST = 1 << 16  # of an extent that PyTorch sets no bound


def _sizes(value):
    """The extents and strides of a value of an FX graph, or the extent that it is."""
    if isinstance(value, (tuple, list)):
        return [size for v in value for size in _sizes(v)]
    if isinstance(value, torch.Tensor):
        return [*value.shape, *value.stride(), value.storage_offset()]
    return [value] if isinstance(value, torch.SymInt) else []


def _symbolic(nodes):
    return [size for n in nodes for size in _sizes(n.meta.get("val"))
            if isinstance(size, torch.SymInt)]


def hints(nodes):
    """The numbers of the symbols while a graph is traced."""
    for size in _symbolic(nodes):
        return dict(size.node.shape_env.backed_var_to_val)
    return {}


class Symbols:
    """The symbols of a region, in a fixed order, and how the inputs of a call tell them."""

    def __init__(self, nodes, inputs):
        sizes = _symbolic(nodes)
        self.hints = hints(nodes)
        free = {s for size in sizes for s in size.node.expr.free_symbols}
        self.names = sorted(free & set(self.hints), key=str)
        self.ranges = []
        for symbol in self.names:
            bounds = sizes[0].node.shape_env.var_to_range[symbol]
            most = _MOST if not bounds.upper.is_number or bounds.upper > _MOST else int(
                bounds.upper)
            self.ranges.append((str(symbol), max(0, int(bounds.lower)), most))
        self._steps = self._solved(inputs)

    def _solved(self, inputs):
        """[(symbol, expression of what is known, place of an input, axis or None)]: the extent is
        the product of the two."""
        told = []
        for place, node in enumerate(inputs):
            value = node.meta["val"]
            if isinstance(value, torch.SymInt):
                told.append((value.node.expr, place, None))
            elif isinstance(value, torch.Tensor):
                told += [(extent.node.expr, place, axis) for axis, extent in enumerate(value.shape)
                         if isinstance(extent, torch.SymInt)]
        steps, known = [], set()
        while len(known) < len(self.names):
            for expr, place, axis in told:
                unknown = expr.free_symbols - known
                if len(unknown) != 1:
                    continue
                symbol = unknown.pop()
                factor = expr / symbol
                if symbol not in factor.free_symbols and factor.free_symbols <= known:
                    steps.append((symbol, factor, place, axis))
                    known.add(symbol)
                    break
            else:
                raise Unsupported("dynamic shapes that no input of the region tells")
        return steps

    def values(self, arguments):
        """The numbers of a call, in the order of the names."""
        known = {}
        for symbol, factor, place, axis in self._steps:
            seen = arguments[place] if axis is None else arguments[place].shape[axis]
            known[symbol] = seen if factor == 1 else seen // number(factor, known)
        return tuple(known[symbol] for symbol in self.names)

    def mapping(self, values):
        return dict(zip(self.names, values))
