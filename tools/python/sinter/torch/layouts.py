"""What Sinter has to know of a PyTorch tensor, real or fake: type, dims, strides, alignment."""
from typing import NamedTuple

import torch

from ..arrays import packed

TYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
         torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2", torch.int8: "i8",
         torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool"}
DTYPES = {name: dtype for dtype, name in TYPES.items()}
FLOATING = {name for dtype, name in TYPES.items() if dtype.is_floating_point}
_ALIGNMENT = 16
ALIGNED = tuple(i & -i or _ALIGNMENT for i in range(_ALIGNMENT))  # by the last bits of an address


class Unsupported(Exception):
    """An operation stays with eager PyTorch; the message says why."""


class Layout(NamedTuple):
    dtype: torch.dtype
    dim: tuple
    stride: tuple
    alignment: int = _ALIGNMENT

    @property
    def data_type(self):
        if self.dtype not in TYPES:
            raise Unsupported(f"data type {self.dtype}")
        return TYPES[self.dtype]


def number(extent, symbols=None):
    """An extent, or an expression of symbols, as a number: those of `symbols` put in."""
    if isinstance(extent, int):
        return extent
    expr = getattr(extent, "node", None)
    expr = (extent if expr is None else expr.expr).xreplace(symbols or {})
    if not isinstance(expr, int) and not expr.is_number:
        raise Unsupported("dynamic shapes")
    return int(expr)


def fake_layout(value, symbols=None):
    """Of a fake tensor, whose memory is taken to be aligned."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        raise Unsupported("no strided tensor")
    dim, stride = (tuple(number(n, symbols) for n in of) for of in (value.shape, value.stride()))
    return Layout(value.dtype, dim, stride)


def dims(shape):
    """Sinter's dims of a shape: tensors without dims have one element."""
    return list(shape) or [1]


def dense_in_order_of(shape, stride):
    """Strides without gaps that have the order of the given ones."""
    result, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda i: (stride[i], shape[i])):
        result[axis] = step
        step *= 1 if shape[axis] == 0 else shape[axis]
    return result


def is_dense(layout):
    """Whether the elements fill their memory, each its own place."""
    step = 1
    for extent, stride in sorted(zip(layout.dim, layout.stride), key=lambda axis: axis[::-1]):
        if extent == 1:
            continue
        if stride != step:
            return False
        step *= extent
    return True


def declared(layout):
    """The fields of a result with this layout, for an output port."""
    fields = {"dim": dims(layout.dim), "data_type": layout.data_type}
    if layout.dim and is_dense(layout) and list(layout.stride) != packed(layout.dim):
        fields["stride"] = list(layout.stride)
    return fields


def add_input(graph, name, layout):
    return graph.tensor(name, dims(layout.dim), stride=list(layout.stride) or [1],
                        data_type=layout.data_type, alignment=layout.alignment)


def is_tensor(value):
    return isinstance(value, torch.Tensor)
