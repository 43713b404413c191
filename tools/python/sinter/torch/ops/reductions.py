"""Sums, means and extremes along axes; softmax."""
import math

import sinter

from ..emit import axes, entry, floating
from ..layouts import FLOATING, Unsupported


def reduce(e, x, mode, over, data_type="f32"):
    """A reduction that keeps the reduced axes with extent 1. Down the rows of a matrix whose rows
    were several dims it runs over those, as the product that made them does."""
    floating(x, "reduction")
    rows = e.rows_apart(x)
    if over == [0] and rows is not x:
        total = reduce(e, rows, mode, list(range(len(rows.dim) - 1)), data_type)
        return e.reshape(total, [1, x.dim[1]])
    dim = [1 if axis in over else extent for axis, extent in enumerate(x.dim)]
    if x.data_type == "f64":
        data_type = "f64"
    return sinter.reduction(x, mode=mode, Y={"dim": dim, "data_type": data_type})


def _reduction(mode):
    def emit(e, x, dim=None, keepdim=False, dtype=None):
        return e.reshape(reduce(e, x, mode, axes(dim, len(x.dim)), e.type()), e.layouts[0].dim)
    return emit


@entry("sum.dim_IntList")
def total(e, x, dim=None, keepdim=False, dtype=None):
    if x.data_type != "bool":
        return _reduction("add")(e, x, dim)
    # How many are true: exact in f32 up to 2^24.
    over = axes(dim, len(x.dim))
    if math.prod(x.dim[axis] for axis in over) > 1 << 24:
        raise Unsupported("a count of so many elements")
    ones = sinter.identity(x, OUT_0={"dim": list(x.dim), "data_type": "f32"})
    count = reduce(e, ones, "add", over)
    return e.reshape(sinter.identity(count, OUT_0={
        "dim": list(count.dim), "data_type": e.type()}), e.layouts[0].dim)


entry("mean.dim")(_reduction("avg"))
entry("mean")(lambda e, x, dtype=None: _reduction("avg")(e, x))
entry("sum")(lambda e, x, dtype=None: total(e, x))
entry("amax")(_reduction("max"))
entry("amin")(_reduction("min"))


def _extreme(mode):
    def emit(e, x):
        if 0 in x.dim:
            raise Unsupported("an extreme of nothing")  # which is an error of PyTorch's
        return _reduction(mode)(e, x)
    return emit


entry("max")(_extreme("max"))
entry("min")(_extreme("min"))


@entry("any.dim", "any.dims", "any")
def any_of(e, x, dim=None, keepdim=False):
    """Whether some element is not zero; the largest of 0 and 1 says it."""
    found = sinter.cmp_neq(x, e.operand(0.0, x.data_type if x.data_type in FLOATING else "f32"),
                           OUT_0={"dim": list(x.dim), "data_type": "bool"})
    ones = sinter.identity(found, OUT_0={"dim": list(x.dim), "data_type": "f32"})
    most = reduce(e, ones, "max", axes(dim, len(x.dim)))
    seen = sinter.cmp_neq(most, e.operand(0.0), OUT_0={"dim": list(most.dim), "data_type": "bool"})
    return e.reshape(seen, e.layouts[0].dim)


entry("prod")(lambda e, x, dtype=None: _reduction("mul")(e, x))
entry("prod.dim_int")(lambda e, x, dim, keepdim=False, dtype=None: _reduction("mul")(e, x, dim))


def _first(e, x, axis, extreme):
    """Where the extreme, or else a NaN, comes first along the axis: the least of such indices, which
    are numbers of f32 up to 2^24."""
    if x.dim[axis] == 0 or x.dim[axis] > 1 << 24:
        raise Unsupported("the index of an extreme of nothing, or of more than f32 counts")
    found = sinter.logical_or(sinter.cmp_eq(x, extreme), sinter.cmp_neq(x, x))
    index = sinter.binary_select(sinter.gen_index(x, axis=axis), e.operand(math.inf, "f32"), found)
    first = reduce(e, index, "min", [axis])
    return sinter.identity(first, OUT_0={"dim": list(first.dim), "data_type": "i64"})


def _extreme_along(mode):
    def emit(e, x, dim, keepdim=False):
        axis = axes(dim, len(x.dim))[0]
        extreme = reduce(e, x, mode, [axis], e.type(0))
        return e.reshape(extreme, e.layouts[0].dim), e.reshape(
            _first(e, x, axis, extreme), e.layouts[1].dim)
    return emit


def _index_of_extreme(mode):
    def emit(e, x, dim=None, keepdim=False):
        floating(x, "reduction")
        if dim is None:
            x, dim = e.reshape(x, [math.prod(x.dim)]), 0
        axis = axes(dim, len(x.dim))[0]
        extreme = reduce(e, x, mode, [axis], x.data_type)
        return e.reshape(_first(e, x, axis, extreme), e.layouts[0].dim)
    return emit


for _mode in ("max", "min"):
    entry(_mode + ".dim")(_extreme_along(_mode))
    entry("arg" + _mode)(_index_of_extreme(_mode))


@entry("scatter.src", "scatter.value")
def scatter(e, x, dim, index, source):
    """One element in each line along the axis, as gradients of extremes put it."""
    axis = axes(dim, len(x.dim))[0]
    if list(index.dim) != [1 if k == axis else extent for k, extent in enumerate(x.dim)] or (
            x.dim[axis] > 1 << 24 or e.type() not in FLOATING):
        raise Unsupported("a scattering of several elements along the axis")
    number = sinter.identity(index, OUT_0={"dim": list(index.dim), "data_type": "f32"})
    source = e.operand(source)
    if list(getattr(source, "dim", [1])) not in ([1], list(index.dim)):
        raise Unsupported("a scattering of a part of what it is given")
    here = sinter.cmp_eq(sinter.gen_index(x, axis=axis), number)
    return sinter.binary_select(source, x, here, OUT_0=e.out())


_NORMS = {1: "norm1", 2: "norm2", float("inf"): "amax"}


@entry("linalg_vector_norm")
def vector_norm(e, x, order=2, dim=None, keepdim=False, dtype=None):
    if order in _NORMS:
        return _reduction(_NORMS[order])(e, x, dim)
    if order <= 0 or not math.isfinite(order):
        raise Unsupported(f"the norm of order {order}")
    over = axes(dim, len(x.dim))
    total = reduce(e, sinter.pow(sinter.abs(x), e.operand(float(order))), "add", over)
    root = sinter.pow(total, e.operand(1.0 / order), OUT_0={
        "dim": list(total.dim), "data_type": e.type()})
    return e.reshape(root, e.layouts[0].dim)


def _variance(e, k, x, dim, correction):
    over = axes(dim, len(x.dim))
    count = 1
    for axis in over:
        count *= x.dim[axis]
    correction = 1 if correction is None else correction
    if count - correction <= 0:
        raise Unsupported("a variance of too few elements")
    mean = reduce(e, x, "avg", over)
    difference = x - mean
    total = reduce(e, difference * difference, "add", over)
    variance = sinter.mul(total, e.operand(1.0 / (count - correction)),
                          OUT_0={"dim": list(total.dim), "data_type": e.type(k)})
    return e.reshape(variance, e.layouts[k].dim), mean


@entry("var.correction")
def var(e, x, dim=None, correction=None, keepdim=False):
    return _variance(e, 0, x, dim, correction)[0]


@entry("var_mean.correction")
def var_mean(e, x, dim=None, correction=None, keepdim=False):
    variance, mean = _variance(e, 0, x, dim, correction)
    mean = sinter.identity(mean, OUT_0={"dim": list(mean.dim), "data_type": e.type(1)})
    return variance, e.reshape(mean, e.layouts[1].dim)


@entry("_softmax")
def softmax(e, x, dim, half_to_float):
    return sinter.softmax(x, axis=dim % len(x.dim), Y=e.out()).Y


@entry("_softmax_backward_data")
def softmax_backward(e, dy, y, dim, input_dtype):
    return sinter.softmax_backward(y, dy, axis=dim % len(y.dim), DX=e.out())


@entry("_log_softmax")
def log_softmax(e, x, dim, half_to_float):
    stats = sinter.softmax(x, axis=dim % len(x.dim), Stats=True).Stats
    return sinter.sub(x, stats, OUT_0=e.out())


@entry("_log_softmax_backward_data")
def log_softmax_backward(e, dy, y, dim, input_dtype):
    total = reduce(e, dy, "add", [dim % len(y.dim)])
    return sinter.sub(dy, sinter.exp(y) * total, OUT_0=e.out())
