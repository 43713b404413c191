"""Norms with their statistics and gradients."""
import sinter

from ..emit import entry, floating
from ..layouts import Unsupported
from .reductions import reduce


def _scale(e, weight, x, shape):
    """A weight, or ones where there is none, with the dims of x that are normalised or kept."""
    dim = [1] * (len(x.dim) - len(shape)) + list(shape)
    if 1 in shape:
        raise Unsupported("a norm over an axis of extent 1")
    return e.constant(1.0, dim) if weight is None else e.reshape(weight, dim)


def _channels(e, t, x):
    """A tensor of one element a channel with the rank of x."""
    dim = [1, x.dim[1]] + [1] * (len(x.dim) - 2)
    return e.constant(1.0, dim) if t is None else e.reshape(t, dim)


def _epsilon(eps, x):
    """PyTorch's, where none is given: of the type that it computes in."""
    if eps is not None:
        return float(eps)
    return 2.0**-52 if x.data_type == "f64" else 2.0**-23


@entry("native_layer_norm")
def layer_norm(e, x, shape, weight, bias, eps):
    floating(x, "a norm")
    bias = None if bias is None else _scale(e, bias, x, shape)
    return tuple(sinter.layernorm(x, _scale(e, weight, x, shape), bias, epsilon=float(eps),
                                  forward_phase="training", Y=e.out(0), MEAN=e.out(1),
                                  INV_VARIANCE=e.out(2)))


def _results(e, made):
    """Results in PyTorch's dims, None where nobody asked."""
    return tuple(None if t is None else e.reshape(t, e.layouts[k].dim) if k else t
                 for k, t in enumerate(made))


def _wanted(e, mask, dim):
    """Output ports of a norm's backward; the gradients of its parameters have dims of their own."""
    ports = {}
    for k, port in enumerate(("DX", "DSCALE", "DBIAS")[:len(mask)]):
        if mask[k]:
            ports[port] = e.out(0) if k == 0 else {"dim": dim, "data_type": e.type(k)}
    if not ports:
        raise Unsupported("no gradient is asked for")
    return ports


@entry("native_layer_norm_backward")
def layer_norm_backward(e, dy, x, shape, mean, rstd, weight, bias, mask):
    scale = _scale(e, weight, x, shape)
    made = sinter.layernorm_backward(dy, x, scale, mean, rstd, **_wanted(e, mask, list(scale.dim)))
    return _results(e, made)


@entry("_fused_rms_norm")
def rms_norm(e, x, shape, weight, eps):
    floating(x, "a norm")
    made = sinter.rmsnorm(x, _scale(e, weight, x, shape), epsilon=_epsilon(eps, x),
                          forward_phase="training", Y=e.out(0), INV_VARIANCE=e.out(1))
    return made.Y, made.INV_VARIANCE


@entry("_fused_rms_norm_backward")
def rms_norm_backward(e, dy, x, shape, rstd, weight, mask):
    scale = _scale(e, weight, x, shape)
    made = sinter.rmsnorm_backward(dy, x, scale, rstd, **_wanted(e, mask, list(scale.dim)))
    return _results(e, (made.DX, made.DSCALE))


@entry("_native_batch_norm_legit_no_training")
def batch_norm_inference(e, x, weight, bias, mean, variance, momentum, eps):
    """On the CPU its statistics have no elements, on a GPU they are those that it was given."""
    inverse = sinter.rsqrt(variance + e.operand(float(eps)))
    y = sinter.batchnorm_inference(
        x, _channels(e, mean, x), _channels(e, inverse, x), _channels(e, weight, x),
        None if bias is None else _channels(e, bias, x), Y=e.out(0))
    nothing = sinter.slice(mean, start=[0], limit=[0], Y={"dim": [0], "data_type": mean.data_type})
    return y, *(None if not e.wanted(k) else nothing if e.dim(k) == [0] else e.converted(t, k)
                for k, t in ((1, mean), (2, inverse)))


def _batch_norm(e, x, weight, bias, eps, **running):
    """By the batch's statistics, which are results 1 and 2."""
    floating(x, "a norm")
    return sinter.batchnorm(
        x, _channels(e, weight, x), None if bias is None else _channels(e, bias, x),
        epsilon=float(eps), Y=e.out(0), MEAN=_statistic(e, 1, x), INV_VARIANCE=_statistic(e, 2, x),
        **running)


def _statistic(e, k, x):
    return {"dim": [1, x.dim[1]] + [1] * (len(x.dim) - 2), "data_type": e.type(k)}


@entry("_native_batch_norm_legit_functional")
def batch_norm(e, x, weight, bias, mean, variance, training, momentum, eps):
    if not training:
        raise Unsupported("statistics that are not the batch's")
    return _results(e, _batch_norm(
        e, x, weight, bias, eps, PREV_RUNNING_MEAN=_channels(e, mean, x),
        PREV_RUNNING_VAR=_channels(e, variance, x), MOMENTUM=float(momentum),
        NEXT_RUNNING_MEAN=_statistic(e, 3, x), NEXT_RUNNING_VAR=_statistic(e, 4, x)))


@entry("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(e, x, weight, bias, training, momentum, eps):
    """As instance norms call it, with the instances among the channels."""
    made = _batch_norm(e, x, weight, bias, eps)
    return _results(e, (made.Y, made.MEAN, made.INV_VARIANCE))


@entry("native_batch_norm_backward")
def batch_norm_backward(e, dy, x, weight, mean, variance, save_mean, save_rstd, training, eps,
                        mask):
    scale = _channels(e, weight, x)
    if training:
        made = sinter.batchnorm_backward(dy, x, scale, _channels(e, save_mean, x),
                                         _channels(e, save_rstd, x),
                                         **_wanted(e, mask, list(scale.dim)))
        return _results(e, made)
    inverse = sinter.rsqrt(_channels(e, variance, x) + e.operand(float(eps)))
    over = [axis for axis in range(len(x.dim)) if axis != 1]
    dx = sinter.mul(dy, scale * inverse, OUT_0=e.out(0)) if mask[0] else None
    dw = db = None
    if mask[1]:
        normal = (x - _channels(e, mean, x)) * inverse
        dw = reduce(e, dy * normal, "add", over, e.type(1))
    if mask[2]:
        db = reduce(e, dy, "add", over, e.type(2))
    return _results(e, (dx, dw, db))


@entry("native_group_norm")
def group_norm(e, x, weight, bias, n, c, hxw, groups, eps):
    floating(x, "a norm")
    statistics = [n, groups] + [1] * (len(x.dim) - 2)
    made = sinter.groupnorm(
        x, _channels(e, weight, x), None if bias is None else _channels(e, bias, x),
        epsilon=float(eps), groups=groups, forward_phase="training", Y=e.out(0),
        MEAN={"dim": statistics, "data_type": e.type(1)},
        INV_VARIANCE={"dim": statistics, "data_type": e.type(2)})
    return _results(e, made)


@entry("native_group_norm_backward")
def group_norm_backward(e, dy, x, mean, rstd, weight, n, c, hxw, groups, mask):
    scale = _channels(e, weight, x)
    statistics = [n, groups] + [1] * (len(x.dim) - 2)
    made = sinter.groupnorm_backward(dy, x, scale, e.reshape(mean, statistics),
                                     e.reshape(rstd, statistics), groups=groups,
                                     **_wanted(e, mask, list(scale.dim)))
    return _results(e, made)
