"""Attention: PyTorch's variants become two operators of ours, before forward and backward part.

Each variant gives statistics of its own shape and tensors that only its own backward reads. With
operators of ours, both directions have the same statistics, and either always joins a region.
"""
import math

import sinter
import torch

from .. import report
from ..emit import TABLE
from ..layouts import Unsupported, dense_in_order_of
from ..operator import operator
from . import dropout

DECOMPOSITIONS = {}


def _like(t, dim=None):
    """An output port with the type of t, and the order of its strides without gaps."""
    return {"dim": list(dim or t.dim), "data_type": t.data_type,
            "stride": dense_in_order_of(dim or t.dim, t.stride)}


def sdpa(q, k, v, bias=None, seed=None, *, scale: float, causal: bool, p: float = 0.0):
    made = sinter.sdpa(q, k, v, Bias=bias, attn_scale=scale, causal_mask=causal,
                       generate_stats=True, O=_like(q, (*q.dim[:3], v.dim[3])),
                       Stats={"dim": [*q.dim[:3], 1], "data_type": "f32"},
                       **dropout.ports(q, seed, p))
    return made.O, made.Stats


def sdpa_backward(grad, q, k, v, o, stats, bias=None, seed=None, *, scale: float, causal: bool,
                  p: float = 0.0):
    made = sinter.sdpa_backward(q, k, v, o, grad, stats, Bias=bias, attn_scale=scale,
                                causal_mask=causal, dQ=_like(q), dK=_like(k), dV=_like(v),
                                **dropout.ports(q, seed, p))
    return made.dQ, made.dK, made.dV


def sdpa_backward_bias(grad, q, k, v, o, stats, bias, seed=None, *, scale: float, causal: bool,
                       p: float = 0.0):
    made = sinter.sdpa_backward(q, k, v, o, grad, stats, Bias=bias, attn_scale=scale,
                                causal_mask=causal, dQ=_like(q), dK=_like(k), dV=_like(v),
                                dBias={"dim": list(bias.dim), "data_type": bias.data_type},
                                **dropout.ports(q, seed, p))
    return made.dQ, made.dK, made.dV, made.dBias


def _empty_like(t, dim=None):
    """What _like() declares, where extents may be symbols."""
    dim = t.shape if dim is None else dim
    return torch.empty_strided(dim, dense_in_order_of(dim, t.stride()), dtype=t.dtype,
                               device=t.device)


def _empty_results(q, k, v, bias=None, **_):
    stats = torch.empty((*q.shape[:3], 1), dtype=torch.float32, device=q.device)
    return _empty_like(q, (*q.shape[:3], v.shape[3])), stats


def _empty_gradients(grad, q, k, v, o, stats, bias=None, **_):
    return tuple(map(_empty_like, (q, k, v)))


def _empty_gradients_bias(grad, q, k, v, o, stats, bias, **_):
    return *map(_empty_like, (q, k, v)), torch.empty_like(
        bias, memory_format=torch.contiguous_format)


_forward = operator(sdpa, "sinter::sdpa", outputs=2, symbolic=_empty_results)
_backward = operator(sdpa_backward, "sinter::sdpa_backward", outputs=3, symbolic=_empty_gradients)
_backward_bias = operator(sdpa_backward_bias, "sinter::sdpa_backward_bias", outputs=4,
                          symbolic=_empty_gradients_bias)


def _whole_where_heads_are_shared(op):
    """Stores the gradients of an attention whose heads share keys. Were they virtual, the planner
    would join the sums over heads with what reads them, and take the attention apart for it."""
    emit = TABLE[op._opoverload]

    def entry(e, grad, q, k, *args, **kwargs):
        made = emit(e, grad, q, k, *args, **kwargs)
        if q.dim[1] != k.dim[1]:
            e.kept.extend(made[:3])
        return made
    TABLE[op._opoverload] = entry


_whole_where_heads_are_shared(_backward)
_whole_where_heads_are_shared(_backward_bias)


def _instead_of(name):
    def register(function):
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is not None:
            DECOMPOSITIONS[op] = function
        return function
    return register


def _scale(q, scale):
    return 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def _fits(p, *tensors):
    """Whether our attention takes it."""
    return 0 <= p < 1 and all(t.dim() == 4 for t in tensors)


def _unused(q):
    """A seed where there is no dropout."""
    return torch.empty((), dtype=torch.int64, device=q.device)


def _four(bias):
    """A bias with the four dims that Sinter asks for; PyTorch broadcasts fewer."""
    return bias if bias is None or bias.dim() == 4 else bias.reshape(
        (1,) * (4 - bias.dim()) + tuple(bias.shape))


def _attend(q, k, v, bias, p, causal, scale):
    """O, Stats and the seed of the dropout; None where it is not ours."""
    if not _fits(p, q, k, v):
        return None
    seed = dropout.new_seed(q.device) if p else None
    try:
        o, stats = _forward(q, k, v, _four(bias), seed, scale=_scale(q, scale), causal=causal, p=p)
    except (sinter.Error, Unsupported) as error:
        report.left_to_eager("attention", str(error))
        return None
    return o, stats.squeeze(-1), seed if p else _unused(q)


def _gradients(grad, q, k, v, bias, o, stats, p, causal, scale, seed=None, bias_too=False):
    if not _fits(p, q, k, v) or stats.shape != q.shape[:3] or (p and not _ours(seed)):
        return NotImplemented  # nor was the forward ours
    bias, stats, seed = _four(bias), stats.unsqueeze(-1), seed if p else None
    settings = {"scale": _scale(q, scale), "causal": causal, "p": p}
    if bias_too and bias is not None:
        return _backward_bias(grad, q, k, v, o, stats, bias, seed, **settings)
    return (*_backward(grad, q, k, v, o, stats, bias, seed, **settings), None)


def _ours(seed):
    """Whether it is of new_seed(): those of PyTorch's kernels have no dims or two elements."""
    return seed is not None and tuple(seed.shape) == (1,)


@_instead_of("_scaled_dot_product_flash_attention")
def _flash(q, k, v, p=0.0, causal=False, debug=False, *, scale=None):
    return _cudnn(q, k, v, None, True, p, causal, debug, scale=scale)


@_instead_of("_scaled_dot_product_flash_attention_backward")
def _flash_backward(grad, q, k, v, o, stats, cum_q, cum_k, max_q, max_k, p, causal, seed, offset,
                    *, scale=None):
    made = _gradients(grad, q, k, v, None, o, stats, p, causal, scale, seed)
    return made if made is NotImplemented else made[:3]


@_instead_of("_scaled_dot_product_cudnn_attention")
def _cudnn(q, k, v, bias, with_stats, p=0.0, causal=False, debug=False, *, scale=None):
    made = None if debug else _attend(q, k, v, bias, p, causal, scale)
    return NotImplemented if made is None else (
        *made[:2], None, None, q.shape[2], k.shape[2], made[2], _unused(q), q.new_empty(0))


@_instead_of("_scaled_dot_product_cudnn_attention_backward")
def _cudnn_backward(grad, q, k, v, o, stats, seed, offset, bias, cum_q, cum_k, max_q, max_k, p,
                    causal, *, scale=None):
    made = _gradients(grad, q, k, v, bias, o, stats, p, causal, scale, seed)
    return made if made is NotImplemented else made[:3]


@_instead_of("_scaled_dot_product_efficient_attention")
def _efficient(q, k, v, bias, with_stats, p=0.0, causal=False, *, scale=None):
    made = _attend(q, k, v, bias, p, causal, scale)
    return NotImplemented if made is None else (*made, _unused(q))


@_instead_of("_scaled_dot_product_efficient_attention_backward")
def _efficient_backward(grad, q, k, v, bias, o, stats, seed, offset, p, mask, causal=False, *,
                        scale=None):
    return _gradients(grad, q, k, v, bias, o, stats, p, causal, scale, seed, mask[3])


@_instead_of("_scaled_dot_product_flash_attention_for_cpu")
def _cpu(q, k, v, p=0.0, causal=False, *, attn_mask=None, scale=None):
    made = None if p else _attend(q, k, v, attn_mask, p, causal, scale)  # has no place for a seed
    return NotImplemented if made is None else made[:2]


@_instead_of("_scaled_dot_product_flash_attention_for_cpu_backward")
def _cpu_backward(grad, q, k, v, o, stats, p, causal, *, attn_mask=None, scale=None):
    made = _gradients(grad, q, k, v, attn_mask, o, stats, p, causal, scale)
    return made if made is NotImplemented else made[:3]
