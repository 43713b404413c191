"""Averages over windows. Maxima stay with PyTorch, whose indices are of another kind."""
import sinter

from ..emit import entry, floating
from ..layouts import Unsupported


def _window(x, kernel, stride, padding, ceil_mode, include_padding, divisor):
    floating(x, "pooling")
    if ceil_mode or divisor is not None:
        raise Unsupported("ceil_mode or divisor_override")

    def each(values):
        return list(values) * 2 if len(values) == 1 else list(values)
    mode = "avgpool_include_padding" if include_padding else "avgpool_exclude_padding"
    return {"mode": mode, "window": each(kernel), "stride": each(stride or kernel),
            "pre_padding": each(padding), "post_padding": each(padding)}


def _batch(e, x):
    """With the batch that PyTorch may leave out."""
    return x if len(x.dim) == 4 else e.reshape(x, [1, *x.dim])


@entry("avg_pool2d")
def avg_pool2d(e, x, kernel, stride=(), padding=(0,), ceil_mode=False, include_padding=True,
               divisor=None):
    window = _window(x, kernel, stride, padding, ceil_mode, include_padding, divisor)
    y = sinter.resample(_batch(e, x), **window, Y={
        "dim": [1] * (4 - len(e.dim())) + e.dim(), "data_type": e.type()})
    return e.reshape(y.Y, e.dim())


@entry("avg_pool2d_backward")
def avg_pool2d_backward(e, dy, x, kernel, stride, padding, ceil_mode, include_padding, divisor):
    window = _window(x, kernel, stride, padding, ceil_mode, include_padding, divisor)
    dx = sinter.resample_backward(_batch(e, dy), **window, DX={
        "dim": [1] * (4 - len(e.dim())) + e.dim(), "data_type": e.type()})
    return e.reshape(dx, e.dim())
