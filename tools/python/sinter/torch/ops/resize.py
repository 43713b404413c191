"""Images of another size: torch.nn.functional.interpolate as resample.

PyTorch takes it apart into indices before any decomposition is asked, so it becomes an operator of
ours in the graph that TorchDynamo gives.
"""
import inspect

import sinter
import torch
from torch.nn import functional

from ..layouts import dense_in_order_of
from ..operator import operator, put_in_place_of

_MODES = {"nearest": "nearest", "nearest-exact": "nearest", "linear": "bilinear",
          "bilinear": "bilinear", "trilinear": "bilinear"}
_SIGNATURE = inspect.signature(functional.interpolate)


def _numbers(text):
    return [int(n) for n in text.split()]


def _port(t, dim):
    return {"dim": dim, "data_type": t.data_type, "stride": dense_in_order_of(dim, t.stride)}


def resize(x, *, before: str, after: str, mode: str):
    return sinter.resample(x, mode=mode, Y=_port(x, _numbers(after))).Y


def resize_backward(grad, *, before: str, mode: str):
    return sinter.resample_backward(grad, mode=mode, DX=_port(grad, _numbers(before)))


_resize = operator(resize, "sinter::resize", backward=resize_backward)


def _settings(node):
    """Attributes of the operator; None where resample computes otherwise than PyTorch."""
    given = _SIGNATURE.bind(*node.args, **node.kwargs)
    given.apply_defaults()
    a = given.arguments
    x, y = (n.meta.get("example_value") for n in (a["input"], node))
    if x is None or y is None or not x.is_floating_point() or a["mode"] not in _MODES:
        return None
    if a["align_corners"] or a["antialias"]:
        return None
    before, after = list(x.shape), list(y.shape)
    if not all(isinstance(n, int) for n in before + after):
        return None
    factors = a["scale_factor"]
    if factors is not None and not a["recompute_scale_factor"]:
        factors = factors if isinstance(factors, (list, tuple)) else [factors] * (len(before) - 2)
        if any(f * n != m for f, n, m in zip(factors, before[2:], after[2:])):
            return None  # it computes with the factor that it was given
    mode = _MODES[a["mode"]]
    if mode == "nearest" and any(m % n for n, m in zip(before[2:], after[2:])):
        return None  # it rounds the quotient first
    return {"before": " ".join(map(str, before)), "after": " ".join(map(str, after)), "mode": mode}


def take(graph):
    """In place of what a graph of TorchDynamo's interpolates."""
    for node in list(graph.nodes):
        settings = _settings(node) if node.target is functional.interpolate else None
        if settings is None:
            continue
        x = _SIGNATURE.bind(*node.args, **node.kwargs).arguments["input"]
        put_in_place_of(node, _resize, (x,), settings)
