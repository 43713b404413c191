"""Dropout: the numbers are those of `rng` (Philox), from seeds that PyTorch's generator draws.

So torch.manual_seed() makes a run repeatable, though its numbers are not those of eager PyTorch; it
is the same with Inductor. Kernels draw the numbers where they are used, and gradients draw them
again: what is kept for them is the seed.
"""
from operator import getitem

import sinter
import torch
from torch._decomp import decomposition_table

from ..layouts import dense_in_order_of
from ..operator import operator, put_in_place_of

_ATEN = torch.ops.aten
_LEAST, _MOST = 0, 1 << 62


def new_seed(device):
    """A seed of its own for each call; draw_together() draws those of a graph together."""
    return torch.randint(_LEAST, _MOST, (1,), dtype=torch.int64, device=device)


def draw_seeds(count, device):
    """Seeds, each 16 bytes behind the one before: all have the alignment of an allocation."""
    drawn = torch.randint(_LEAST, _MOST, (2 * count,), dtype=torch.int64, device=device)
    return [drawn[2 * k:2 * k + 1] for k in range(count)]


def draw_together(graph):
    """One operation of PyTorch's for all seeds of a graph."""
    groups = {}
    for node in graph.nodes:
        if node.target is _ATEN.randint.low and node.args == (_LEAST, _MOST, [1]):
            groups.setdefault(node.meta["val"].device, []).append(node)
    for device, nodes in groups.items():
        with graph.inserting_before(nodes[0]):
            drawn = graph.call_function(draw_seeds, (len(nodes), device))
            drawn.meta["val"] = [node.meta["val"] for node in nodes]
            for k, node in enumerate(nodes):
                seed = graph.call_function(getitem, (drawn, k))
                seed.meta = node.meta
                node.replace_all_uses_with(seed)
        for node in nodes:
            graph.erase_node(node)


def ports(q, seed, probability):
    """Inputs and attributes of an sdpa node with dropout; none without a seed."""
    return {} if seed is None else {"Seed": seed, "Offset": q.graph.scalar(0, "i64"),
                                    "dropout_probability": probability}


def _kept(x, seed, probability, data_type):
    return sinter.rng(seed, x.graph.scalar(0, "i64"), distribution="bernoulli",
                      probability=probability,
                      Y={"dim": list(x.dim), "data_type": data_type,
                         "stride": dense_in_order_of(x.dim, x.stride)})


def _scaled(x, kept, scale):
    return sinter.binary_select(x * scale, x.graph.scalar(0.0, "f32"), kept, OUT_0={
        "dim": list(x.dim), "data_type": x.data_type,
        "stride": dense_in_order_of(x.dim, x.stride)})


def dropout(x, seed, *, p: float):
    kept = _kept(x, seed, 1 - p, "bool")
    return _scaled(x, kept, 1 / (1 - p)), kept


def dropout_backward(grad, kept, *, scale: float):
    return _scaled(grad, kept, scale)


def dropout_backward_of_seed(grad, seed, *, p: float):
    return _scaled(grad, _kept(grad, seed, 1 - p, "bool"), 1 / (1 - p))


def bernoulli(x, seed, *, p: float):
    """Ones and zeros with the type of x, whose elements are not read."""
    return _kept(x, seed, p, x.data_type)


def _empty(x=None, grad=None, **_):
    x = grad if x is None else x
    return torch.empty_strided(x.shape, dense_in_order_of(x.shape, x.stride()), dtype=x.dtype,
                               device=x.device)


def _empty_pair(x, **_):
    y = _empty(x)
    return y, torch.empty_like(y, dtype=torch.bool)


_dropout = operator(dropout, "sinter::dropout", outputs=2, symbolic=_empty_pair)
_backward = operator(dropout_backward, "sinter::dropout_backward", symbolic=_empty)
_backward_of_seed = operator(dropout_backward_of_seed, "sinter::dropout_backward_of_seed",
                             symbolic=_empty)
_bernoulli = operator(bernoulli, "sinter::bernoulli", symbolic=_empty)


def _native_dropout(x, p, train):
    if train is False or not 0 < p < 1:
        return decomposition_table[_ATEN.native_dropout.default](x, p, train)
    return _dropout(x, new_seed(x.device), p=p)


def _native_dropout_backward(grad, kept, scale):
    return _backward(grad, kept, scale=scale)


def draw_again(graph):
    """Gradients that draw the numbers anew, before a graph is cut into forward and backward: what
    was kept, a byte an element, is then not stored for them."""
    for node in list(graph.nodes):
        if node.target is not _backward._opoverload:
            continue
        grad, kept = node.args
        source = kept.args[0] if kept.target is getitem else None
        if source is None or source.target is not _dropout._opoverload:
            continue
        put_in_place_of(node, _backward_of_seed, (grad, source.args[1]),
                        {"p": source.kwargs["p"]})


def _bernoulli_p(x, p, *, generator=None):
    return NotImplemented if generator is not None else _bernoulli(x, new_seed(x.device), p=p)


DECOMPOSITIONS = {_ATEN.native_dropout.default: _native_dropout,
                  _ATEN.native_dropout_backward.default: _native_dropout_backward,
                  _ATEN.bernoulli.p: _bernoulli_p}
