"""Matrix products and convolutions."""
import sinter
import torch

from ..emit import entry, floating
from ..layouts import Unsupported
from .reductions import reduce


def _product(e, a, b, data_type=None):
    """A product in PyTorch's dims. Where the rows of `a` are several dims that were made one, the
    product runs over those dims: what follows takes them apart again."""
    floating(a, "a product")
    tf32 = a.data_type == "f32" and e.gpu and torch.backends.cuda.matmul.allow_tf32
    rows = e.rows_apart(a)
    result = {"dim": [*rows.dim[:-1], b.dim[-1]]}
    c = sinter.matmul(rows, b, C={**result, "data_type": data_type} if data_type else result,
                      compute_data_type="tf32" if tf32 else None)
    return e.reshape(c, [*a.dim[:-1], b.dim[-1]])


@entry("mm", "bmm")
def mm(e, a, b):
    return _product(e, a, b, e.type())


@entry("addmm", "baddbmm")
def addmm(e, bias, a, b, beta=1, alpha=1):
    return _added(e, bias, _product(e, a, b), beta, alpha)


@entry("addmv")
def addmv(e, bias, a, b, beta=1, alpha=1):
    product = _product(e, a, e.reshape(b, [*b.dim, 1]))
    return _added(e, bias, e.reshape(product, a.dim[:1]), beta, alpha)


def _added(e, bias, product, beta, alpha):
    """The bias is added to f32, before the sum is rounded, as PyTorch does."""
    if alpha != 1:
        product = product * e.operand(float(alpha))
    if beta == 0:
        return e.converted(product)
    if beta != 1:
        bias = bias * e.operand(float(beta))
    rows = e.rows_apart(product) if len(bias.dim) == 1 else product
    y = sinter.add(rows, bias, OUT_0={"dim": list(rows.dim), "data_type": e.type()})
    return e.reshape(y, e.dim())


@entry("mv", "dot")
def mv(e, a, b):
    rows = e.reshape(a, [1, *a.dim] if len(a.dim) == 1 else a.dim)
    return e.reshape(_product(e, rows, e.reshape(b, [*b.dim, 1]), e.type()), e.layouts[0].dim)


def _window(e, data_type, stride, padding, dilation, groups, spatial):
    """Attributes of a convolution. One number stands for all spatial dims."""
    def each(values):
        return list(values) * spatial if len(values) == 1 else list(values)
    tf32 = data_type == "f32" and e.gpu and torch.backends.cudnn.allow_tf32
    return {"stride": each(stride), "pre_padding": each(padding), "post_padding": each(padding),
            "dilation": each(dilation), "groups": groups,
            "compute_data_type": "tf32" if tf32 else None}


@entry("convolution")
def convolution(e, x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    floating(x, "a convolution")
    window = _window(e, x.data_type, stride, padding, dilation, groups, len(x.dim) - 2)
    result = e.out()
    if bias is not None:
        del result["data_type"]
    y = sinter.conv_dgrad(x, w, DX=result, **window) if transposed else sinter.conv_fprop(
        x, w, Y=result, **window)
    if bias is None:
        return y
    return sinter.add(y, e.reshape(bias, [1, *bias.dim] + [1] * (len(x.dim) - 2)),
                      OUT_0=e.out())


@entry("convolution_backward")
def convolution_backward(e, dy, x, w, bias_sizes, stride, padding, dilation, transposed,
                         output_padding, groups, mask):
    dx = dw = db = None
    floating(x, "a convolution")
    window = _window(e, x.data_type, stride, padding, dilation, groups, len(x.dim) - 2)
    if mask[0]:  # a transposed convolution is the gradient of another, whose forward is its own
        dx = sinter.conv_fprop(dy, w, Y=e.out(0), **window) if transposed else sinter.conv_dgrad(
            dy, w, DX=e.out(0), **window)
    if mask[1]:
        there, here = (x, dy) if transposed else (dy, x)
        dw = sinter.conv_wgrad(there, here, DW=e.out(1), **window)
    if mask[2]:
        over = [axis for axis in range(len(dy.dim)) if axis != 1]
        db = e.reshape(reduce(e, dy, "add", over, e.type(2)), e.layouts[2].dim)
    return dx, dw, db
