"""Averages and maxima over windows."""
import sinter
import torch

from ..emit import entry, floating
from ..layouts import Unsupported
from ..operator import operator, put_in_place_of


def _each(values):
    return list(values) * 2 if len(values) == 1 else list(values)


def _average(x, kernel, stride, padding, ceil_mode, include_padding, divisor):
    floating(x, "pooling")
    if ceil_mode or divisor is not None:
        raise Unsupported("ceil_mode or divisor_override")
    mode = "avgpool_include_padding" if include_padding else "avgpool_exclude_padding"
    return {"mode": mode, "window": _each(kernel), "stride": _each(stride or kernel),
            "pre_padding": _each(padding), "post_padding": _each(padding)}


def _batch(e, x):
    """With the batch that PyTorch may leave out."""
    return x if len(x.dim) == 4 else e.reshape(x, [1, *x.dim])


@entry("avg_pool2d")
def avg_pool2d(e, x, kernel, stride=(), padding=(0,), ceil_mode=False, include_padding=True,
               divisor=None):
    window = _average(x, kernel, stride, padding, ceil_mode, include_padding, divisor)
    y = sinter.resample(_batch(e, x), **window, Y={
        "dim": [1] * (4 - len(e.dim())) + e.dim(), "data_type": e.type()})
    return e.reshape(y.Y, e.dim())


@entry("avg_pool2d_backward")
def avg_pool2d_backward(e, dy, x, kernel, stride, padding, ceil_mode, include_padding, divisor):
    window = _average(x, kernel, stride, padding, ceil_mode, include_padding, divisor)
    dx = sinter.resample_backward(_batch(e, dy), **window, DX={
        "dim": [1] * (4 - len(e.dim())) + e.dim(), "data_type": e.type()})
    return e.reshape(dx, e.dim())


def _maximum(kernel, stride, padding, dilation, ceil_mode):
    """Attributes of a maximum as Sinter has it, or None."""
    if ceil_mode or any(d != 1 for d in dilation):
        return None
    return {"mode": "maxpool", "window": _each(kernel), "stride": _each(stride or kernel),
            "pre_padding": _each(padding), "post_padding": _each(padding)}


@entry("max_pool2d_with_indices")
def max_pool2d(e, x, kernel, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
    floating(x, "pooling")
    window = _maximum(kernel, stride, padding, dilation, ceil_mode)
    if window is None:
        raise Unsupported("ceil_mode or dilation")
    if any(user.args[1] == 1 for user in e.node.users):
        raise Unsupported("indices of maxima, which are of another kind")
    y = sinter.resample(_batch(e, x), **window, Y={
        "dim": [1] * (4 - len(e.dim())) + e.dim(), "data_type": e.type()})
    return e.reshape(y.Y, e.dim()), None


def max_pool2d_backward(grad, x, *, window: str):
    values = [int(v) for v in window.split()]
    return sinter.resample_backward(
        grad, X=x, mode="maxpool", window=values[:2], stride=values[2:4], pre_padding=values[4:],
        post_padding=values[4:], DX={"dim": list(x.dim), "data_type": x.data_type})


_max_backward = operator(max_pool2d_backward, "sinter::max_pool2d_backward")


def without_indices(graph):
    """Gradients of maxima from the operand in place of PyTorch's indices, which then nobody asks
    the forward for. Before a graph is cut into forward and backward."""
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.max_pool2d_with_indices_backward.default:
            continue
        grad, x, kernel, stride, padding, dilation, ceil_mode, _ = node.args
        window = _maximum(kernel, stride, padding, dilation, ceil_mode)
        value = x.meta.get("val")
        if window is None or value is None or value.dim() != 4 or not value.is_floating_point():
            continue
        values = [*window["window"], *window["stride"], *window["pre_padding"]]
        put_in_place_of(node, _max_backward, (grad, x), {"window": " ".join(map(str, values))})
