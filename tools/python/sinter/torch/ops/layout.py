"""Views and other movement of elements."""
import math

import sinter
import torch

from ...arrays import packed
from ..emit import entry
from ..layouts import DTYPES, FLOATING, Unsupported


def _to_result(e, x):
    """A reshape to the dims that PyTorch expects."""
    return e.reshape(x, e.layouts[0].dim)


@entry("view", "_unsafe_view", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims")
def view(e, x, *_):
    return _to_result(e, x)


@entry("alias", "detach")
def alias(e, x):
    return x


def _transposed(e, x, permutation):
    dim = [x.dim[axis] for axis in permutation]
    return sinter.transpose(x, permutation=permutation, Y={"dim": dim, "data_type": x.data_type})


@entry("permute")
def permute(e, x, permutation):
    rank = len(x.dim)
    return _transposed(e, x, [axis % rank for axis in permutation]) if permutation else x


@entry("transpose.int")
def transpose(e, x, a, b):
    order = list(range(len(x.dim)))
    order[a], order[b] = order[b], order[a]
    return _transposed(e, x, order)


@entry("t")
def t(e, x):
    return transpose(e, x, 0, 1) if len(x.dim) == 2 else x


@entry("expand")
def expand(e, x, size, implicit=False):
    if list(x.dim) == e.dim():
        return x
    return sinter.identity(x, OUT_0={"dim": e.dim(), "data_type": x.data_type})


def _part(e, x, axis, start, stop, step=1):
    axis, extent = axis % len(x.dim), x.dim[axis]
    first, last, _ = slice(start, stop).indices(extent)
    lower, upper = [0] * len(x.dim), list(x.dim)
    lower[axis], upper[axis] = first, max(first, last)
    dim = list(x.dim)
    dim[axis] = len(range(first, max(first, last), step))
    if dim == list(x.dim):
        return x
    steps = [1] * len(dim)
    steps[axis] = step
    return sinter.slice(x, start=lower, limit=upper, step=steps,
                        Y={"dim": dim, "data_type": x.data_type})


@entry("slice.Tensor")
def slice_(e, x, dim=0, start=None, end=None, step=1):
    return _part(e, x, dim, start, end, step)


@entry("select.int")
def select(e, x, dim, index):
    index %= x.dim[dim]
    return _to_result(e, _part(e, x, dim, index, index + 1))


@entry("cat")
def cat(e, tensors, dim=0):
    parts = [t for t in tensors if list(t.dim) != [0]]  # PyTorch passes over empty vectors
    if any(t.data_type != e.type() for t in parts):
        raise Unsupported("concatenation of several types")
    if len(parts) == 1:
        return parts[0]
    order = _order_of_stack(e, parts) if dim == 0 else None
    if order is None:
        return sinter.concatenate(*parts, axis=dim % len(e.dim()), Y=e.out())
    stacked = [len(parts), *parts[0].dim]
    stride = [0] * len(stacked)
    for axis, step in zip(order, packed([stacked[axis] for axis in order])):
        stride[axis] = step
    y = sinter.concatenate(*(e.reshape(t, [1, *t.dim]) for t in parts), axis=0,
                           Y={"dim": stacked, "stride": stride, "data_type": e.type()})
    return e.reshape(y, e.dim())


def _order_of_stack(e, parts):
    """Where a concatenation is taken apart again, permuted and copied, as gradients of joined
    projections are: the permutation. In its order of memory the parts are written in place."""
    node, chain = e.node, []
    for target in (torch.ops.aten.view.default, torch.ops.aten.permute.default,
                   torch.ops.aten.clone.default):
        if len(node.users) != 1 or next(iter(node.users)).target is not target:
            return None
        node = next(iter(node.users))
        chain.append(node)
    stacked = [len(parts), *parts[0].dim]
    if e.shape_of(chain[0]) != stacked or any(t.dim != parts[0].dim for t in parts):
        return None
    return [axis % len(stacked) for axis in chain[1].args[1]]


def _joined(parts, axis):
    """Parts of one type, one behind the other; an inner tensor."""
    if len(parts) == 1:
        return parts[0]
    dim = list(parts[0].dim)
    dim[axis] = sum(p.dim[axis] for p in parts)
    return sinter.concatenate(*parts, axis=axis, Y={"dim": dim, "data_type": parts[0].data_type})


@entry("roll")
def roll(e, x, shifts, dims=()):
    shifts, axes = list(shifts), list(dims)
    if 0 in x.dim:
        return x
    if not axes:  # in the order of the elements
        flat = e.reshape(x, [math.prod(x.dim)])
        return _to_result(e, roll(e, flat, shifts, [0]))
    for shift, axis in zip(shifts, axes):
        axis %= len(x.dim)
        extent = x.dim[axis]
        if shift % extent:
            middle = extent - shift % extent
            x = _joined([_part(e, x, axis, middle, extent), _part(e, x, axis, 0, middle)], axis)
    return x


@entry("constant_pad_nd")
def constant_pad_nd(e, x, pad, value=0):
    rank = len(x.dim)
    for i in range(len(pad) // 2):
        axis, before, after = rank - 1 - i, pad[2 * i], pad[2 * i + 1]
        x = _part(e, x, axis, max(0, -before), x.dim[axis] - max(0, -after))
        parts = []
        for extent in (before, None, after):
            if extent is None:
                parts.append(x)
            elif extent > 0:
                dim = [extent if a == axis else d for a, d in enumerate(x.dim)]
                parts.append(e.constant(value, dim, x.data_type))
        x = _joined(parts, axis)
    return x


@entry("slice_backward")
def slice_backward(e, dy, sizes, dim, start, end, step):
    dim %= len(sizes)
    first, last, _ = slice(start, end).indices(sizes[dim])
    if step != 1 and dy.dim[dim] > 0:
        dy = _spread(e, dy, dim, step)
        last = first + dy.dim[dim]
    # Zeros behind the last element reach past the end where the step does: these are cut off.
    pad = [0, 0] * (len(sizes) - 1 - dim) + [first, sizes[dim] - max(first, last)]
    return constant_pad_nd(e, dy, pad)


def _spread(e, x, axis, step):
    """Each element along an axis with zeros behind it, `step` in all."""
    before, extent, behind = list(x.dim[:axis]), x.dim[axis], list(x.dim[axis + 1:])
    zeros = e.constant(0.0, [*before, extent, step - 1, *behind], x.data_type)
    apart = _joined([e.reshape(x, [*before, extent, 1, *behind]), zeros], axis + 1)
    return e.reshape(apart, [*before, extent * step, *behind])


@entry("copy")
def copied(e, x, source, non_blocking=False):
    """The source in place of x; numbers are converted as by to()."""
    if source.data_type in FLOATING and e.type() not in FLOATING and e.type() != "bool":
        raise Unsupported("conversion to integers")
    return sinter.identity(source, OUT_0=e.out())


@entry("slice_scatter")
def slice_scatter(e, x, source, dim=0, start=None, end=None, step=1):
    dim %= len(x.dim)
    first, last, _ = slice(start, end).indices(x.dim[dim])
    last = max(first, last)
    if step != 1 and last - first != 1:
        raise Unsupported("steps")
    parts = [_part(e, x, dim, 0, first), source, _part(e, x, dim, last, x.dim[dim])]
    return _joined([t for t in parts if t.dim[dim] > 0], dim) if x.dim[dim] > 0 else x


@entry("select_backward")
def select_backward(e, dy, sizes, dim, index):
    dim %= len(sizes)
    index %= sizes[dim]
    one = e.reshape(dy, [1 if a == dim else d for a, d in enumerate(sizes)])
    return slice_backward(e, one, sizes, dim, index, index + 1, 1)


def _constant(value_of):
    def emit(e, *args, **_):
        value = value_of(args)
        if e.type() not in FLOATING and e.type() != "bool":
            raise Unsupported(f"a constant of {DTYPES[e.type()]}")
        return e.constant(value, e.dim(), e.type())
    return emit


entry("scalar_tensor")(_constant(lambda args: args[0]))
entry("full", "full_like")(_constant(lambda args: args[1]))
entry("new_full")(_constant(lambda args: args[2]))
# What is not written yet may as well be zeros: bernoulli takes its dims alone.
entry("empty.memory_format", "empty_like", "new_empty")(_constant(lambda args: 0.0))
entry("zeros", "zeros_like", "new_zeros")(_constant(lambda args: 0.0))
entry("ones", "ones_like", "new_ones")(_constant(lambda args: 1.0))


@entry("arange.start_step")
def arange(e, start, end, step=1, **_):
    if e.type() not in FLOATING:
        raise Unsupported("positions as integers")
    if any(not isinstance(n, int) or abs(n) > 1 << 24 for n in (start, end, step)):
        raise Unsupported("steps that are no integers, which PyTorch rounds in its own way")
    index = sinter.gen_index(e.constant(0.0, e.dim()), axis=0)
    return sinter.add(index * float(step), float(start), OUT_0=e.out())


# What moves no element: at the border of a region it stays with PyTorch, to which it is a stride.
VIEWS = ("view", "_unsafe_view", "unsqueeze", "squeeze.dim", "squeeze.dims", "alias", "detach",
         "permute", "transpose.int", "t", "expand", "slice.Tensor", "select.int")
