"""Losses of class indices: cross entropy is a log softmax and one of these."""
import sinter

from ..emit import entry, floating
from ..layouts import Unsupported
from .reductions import reduce

_NONE, _MEAN = 0, 1  # PyTorch's numbers of reductions; 2 is the sum


def _counts(e, x, target, weight, ignore_index):
    """Where the class of x's element is the target, and where the target counts: rows of one
    column. Indices are compared as f32 numbers, which hold those of 2^24 classes."""
    floating(x, "a loss")
    if weight is not None:
        raise Unsupported("weights of classes")
    if len(x.dim) > 2 or x.dim[-1] > 1 << 24:
        raise Unsupported("a loss of more dims, or of more classes than f32 counts")
    x = e.reshape(x, [1, *x.dim] if len(x.dim) == 1 else x.dim)
    rows = e.reshape(target, [x.dim[0], 1])
    # -1 is no class, and unlike the index it is a number of f32 for certain.
    counted = sinter.cmp_neq(rows, e.graph.scalar(float(ignore_index), "f64"))
    number = sinter.identity(rows, OUT_0={"dim": list(rows.dim), "data_type": "f32"})
    number = sinter.binary_select(number, e.operand(-1.0, "f32"), counted)
    return x, sinter.cmp_eq(sinter.gen_index(x, axis=1), number), counted


@entry("nll_loss_forward")
def nll_loss(e, x, target, weight, reduction, ignore_index):
    x, chosen, counted = _counts(e, x, target, weight, ignore_index)
    each = reduce(e, sinter.binary_select(-x, e.operand(0.0), chosen), "add", [1])
    if reduction == _NONE:
        total = e.constant(0.0, [1], e.type(1))
        return e.reshape(e.converted(e.reshape(each, e.dim())), e.layouts[0].dim), e.reshape(
            total, e.layouts[1].dim)
    one = sinter.binary_select(e.operand(1.0), e.operand(0.0), counted)
    loss, count = reduce(e, each, "add", [0, 1]), reduce(e, one, "add", [0, 1])
    if reduction == _MEAN:
        loss = loss / count
    typed = [sinter.identity(t, OUT_0={"dim": [1, 1], "data_type": e.type(k)})
             for k, t in enumerate((loss, count))]
    return tuple(e.reshape(t, e.layouts[k].dim) for k, t in enumerate(typed))


@entry("nll_loss_backward")
def nll_loss_backward(e, grad, x, target, weight, reduction, ignore_index, total):
    x, chosen, _ = _counts(e, x, target, weight, ignore_index)
    grad = e.reshape(grad, [x.dim[0], 1] if reduction == _NONE else [1, 1])
    if reduction == _MEAN:
        grad = grad / e.reshape(total, [1, 1])
    dx = sinter.binary_select(-grad, e.operand(0.0), chosen,
                              OUT_0={"dim": list(x.dim), "data_type": e.type()})
    return e.reshape(dx, e.dim())
