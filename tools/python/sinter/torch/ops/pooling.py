"""Averages and maxima over windows."""
import sinter
import torch

from ..emit import entry, floating
from ..layouts import Unsupported
from ..operator import operator, put_in_place_of


def _each(values, spatial):
    return list(values) * spatial if len(values) == 1 else list(values)


def _window(kernel, stride, padding, spatial):
    padding = _each(padding, spatial)
    return {"window": _each(kernel, spatial), "stride": _each(stride or kernel, spatial),
            "pre_padding": padding, "post_padding": padding}


def _with_batch(e, x, spatial):
    """With the batch that PyTorch may leave out."""
    return x if len(x.dim) == spatial + 2 else e.reshape(x, [1, *x.dim])


def _result(e, spatial):
    return {"dim": [1] * (spatial + 2 - len(e.dim())) + e.dim(), "data_type": e.type()}


def _average(x, kernel, stride, padding, ceil_mode, include_padding, divisor, spatial):
    floating(x, "pooling")
    if ceil_mode or divisor is not None:
        raise Unsupported("ceil_mode or divisor_override")
    mode = "avgpool_include_padding" if include_padding else "avgpool_exclude_padding"
    return {"mode": mode, **_window(kernel, stride, padding, spatial)}


def _average_pooling(spatial):
    def forward(e, x, kernel, stride=(), padding=(0,), ceil_mode=False, include_padding=True,
                divisor=None):
        window = _average(x, kernel, stride, padding, ceil_mode, include_padding, divisor, spatial)
        y = sinter.resample(_with_batch(e, x, spatial), **window, Y=_result(e, spatial))
        return e.reshape(y.Y, e.dim())

    def backward(e, dy, x, kernel, stride, padding, ceil_mode, include_padding, divisor):
        window = _average(x, kernel, stride, padding, ceil_mode, include_padding, divisor, spatial)
        dx = sinter.resample_backward(_with_batch(e, dy, spatial), **window,
                                      DX=_result(e, spatial))
        return e.reshape(dx, e.dim())
    entry(f"avg_pool{spatial}d")(forward)
    entry(f"avg_pool{spatial}d_backward")(backward)


def _maximum(kernel, stride, padding, dilation, ceil_mode, spatial):
    """Attributes of a maximum as Sinter has it, or None."""
    if ceil_mode or any(d != 1 for d in dilation):
        return None
    return {"mode": "maxpool", **_window(kernel, stride, padding, spatial)}


def _maximum_pooling(spatial):
    def forward(e, x, kernel, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
        floating(x, "pooling")
        window = _maximum(kernel, stride, padding, dilation, ceil_mode, spatial)
        if window is None:
            raise Unsupported("ceil_mode or dilation")
        if any(user.args[1] == 1 for user in e.node.users):
            raise Unsupported("indices of maxima, which are of another kind")
        y = sinter.resample(_with_batch(e, x, spatial), **window, Y=_result(e, spatial))
        return e.reshape(y.Y, e.dim()), None
    entry(f"max_pool{spatial}d_with_indices")(forward)


for _spatial in (2, 3):
    _average_pooling(_spatial)
    _maximum_pooling(_spatial)


def max_pool_backward(grad, x, *, window: str):
    values = [int(v) for v in window.split()]
    size, stride, padding = (values[i::3] for i in range(3))
    return sinter.resample_backward(
        grad, X=x, mode="maxpool", window=size, stride=stride, pre_padding=padding,
        post_padding=padding, DX={"dim": list(x.dim), "data_type": x.data_type})


_max_backward = operator(max_pool_backward, "sinter::max_pool_backward")
_SPATIAL = {torch.ops.aten.max_pool2d_with_indices_backward.default: 2,
            torch.ops.aten.max_pool3d_with_indices_backward.default: 3}


def without_indices(graph):
    """Gradients of maxima from the operand in place of PyTorch's indices, which then nobody asks
    the forward for. Before a graph is cut into forward and backward."""
    for node in list(graph.nodes):
        spatial = _SPATIAL.get(node.target)
        if spatial is None:
            continue
        grad, x, kernel, stride, padding, dilation, ceil_mode, _ = node.args
        window = _maximum(kernel, stride, padding, dilation, ceil_mode, spatial)
        value = x.meta.get("val")
        if window is None or value is None or value.dim() != spatial + 2 or (
                not value.is_floating_point()):
            continue
        values = zip(window["window"], window["stride"], window["pre_padding"])
        put_in_place_of(node, _max_backward, (grad, x), {
            "window": " ".join(str(v) for dim in values for v in dim)})
