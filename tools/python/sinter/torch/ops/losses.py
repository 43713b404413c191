"""Losses of class indices: cross entropy is a log softmax and one of these."""
import math

import sinter

from ..emit import entry, floating
from ..layouts import Unsupported
from .reductions import reduce

_NONE, _MEAN = 0, 1  # PyTorch's numbers of reductions; 2 is the sum


class _Chosen:
    """Classes along axis 1 of x, one of them chosen by the target at each position of the others."""

    def __init__(self, e, x, target, weight, ignore_index):
        floating(x, "a loss")
        self.x = x = e.reshape(x, [1, *x.dim] if len(x.dim) == 1 else x.dim)
        if x.dim[1] > 1 << 24:
            raise Unsupported("a loss of more classes than f32 counts")
        self.positions = [x.dim[0], 1, *x.dim[2:]]
        target = e.reshape(target, self.positions)
        # Indices are compared as numbers of f32, which hold those of 2^24 classes. -1 is no class,
        # and unlike the index that is ignored it is such a number for certain.
        counted = sinter.cmp_neq(target, e.graph.scalar(float(ignore_index), "f64"))
        number = sinter.identity(target, OUT_0={"dim": self.positions, "data_type": "f32"})
        number = sinter.binary_select(number, e.operand(-1.0, "f32"), counted)
        self.chosen = sinter.cmp_eq(sinter.gen_index(x, axis=1), number)
        self.weight = e.operand(1.0) if weight is None else e.reshape(
            weight, [1, x.dim[1]] + [1] * (len(x.dim) - 2))
        # What each position counts for in the mean.
        self.counts = sinter.binary_select(e.operand(1.0), e.operand(0.0), counted) if (
            weight is None) else self.sum(e, self.weight)

    def select(self, e, value, **fields):
        return sinter.binary_select(value, e.operand(0.0), self.chosen, **fields)

    def sum(self, e, value):
        """The chosen values, over the classes."""
        return reduce(e, self.select(e, value, OUT_0={"dim": list(self.x.dim), "data_type": "f32"}),
                      "add", [1])


@entry("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(e, x, target, weight, reduction, ignore_index):
    at = _Chosen(e, x, target, weight, ignore_index)
    each = at.sum(e, -at.x if weight is None else -at.x * at.weight)
    if reduction == _NONE:
        total = e.constant(0.0, [1], e.type(1))
        return e.reshape(e.converted(e.reshape(each, e.dim())), e.layouts[0].dim), e.reshape(
            total, e.layouts[1].dim)
    everywhere = list(range(len(at.positions)))
    loss, count = reduce(e, each, "add", everywhere), reduce(e, at.counts, "add", everywhere)
    if reduction == _MEAN:
        loss = loss / count
    typed = [sinter.identity(t, OUT_0={"dim": list(t.dim), "data_type": e.type(k)})
             for k, t in enumerate((loss, count))]
    return tuple(e.reshape(t, e.layouts[k].dim) for k, t in enumerate(typed))


@entry("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(e, grad, x, target, weight, reduction, ignore_index, total):
    at = _Chosen(e, x, target, weight, ignore_index)
    ones = [1] * len(at.positions)
    grad = e.reshape(grad, at.positions if math.prod(grad.dim) > 1 else ones)
    if reduction == _MEAN:
        grad = grad / e.reshape(total, ones)
    if weight is not None:
        grad = grad * at.weight
    dx = at.select(e, -grad, OUT_0={"dim": list(at.x.dim), "data_type": e.type()})
    return e.reshape(dx, e.dim())
