"""Operations taken into smaller ones that the table has, where PyTorch's own way leads elsewhere."""
import itertools

import torch

ATEN = torch.ops.aten
DECOMPOSITIONS = {}


def _of(*names):
    def register(function):
        for name in names:
            packet, _, overload = name.partition(".")
            DECOMPOSITIONS[getattr(getattr(ATEN, packet), overload or "default")] = function
        return function
    return register


@_of("split_with_sizes")
def _split(x, sizes, dim=0):
    """As slices, which are views with one result each."""
    ends = list(itertools.accumulate(sizes))
    return [ATEN.slice.Tensor(x, dim, end - size, end) for size, end in zip(sizes, ends)]


@_of("repeat")
def _repeat(x, repeats):
    """As an expansion of a view."""
    dim = [1] * (len(repeats) - x.dim()) + list(x.shape)
    pairs = [n for pair in zip(repeats, dim) for n in pair]
    return x.reshape([n for d in dim for n in (1, d)]).expand(pairs).reshape(
        [r * d for r, d in zip(repeats, dim)])


@_of("addbmm")
def _sum_of_products(bias, a, b, beta=1, alpha=1):
    """As one product, along the batches and k."""
    batches, m, k = a.shape
    return ATEN.addmm(bias, a.transpose(0, 1).reshape(m, batches * k),
                      b.reshape(batches * k, b.shape[2]), beta=beta, alpha=alpha)


@_of("log_sigmoid_backward")
def _log_sigmoid_backward(grad, x, buffer):
    return grad * torch.sigmoid(-x)


def _windows(x, size):
    """Of an adaptive pooling whose windows are all as large; else nothing."""
    before = x.shape[-2:]
    if any(not isinstance(n, int) for n in (*before, *size)) or any(
            m == 0 or n % m for n, m in zip(before, size)):
        return None
    return [n // m for n, m in zip(before, size)]


@_of("_adaptive_avg_pool2d")
def _adaptive_average(x, size):
    window = _windows(x, size)
    return NotImplemented if window is None else ATEN.avg_pool2d(x, window, window)


@_of("_adaptive_avg_pool2d_backward")
def _adaptive_average_backward(grad, x):
    window = _windows(x, grad.shape[-2:])
    return NotImplemented if window is None else ATEN.avg_pool2d_backward(
        grad, x, window, window, [0, 0], False, True, None)


@_of("adaptive_max_pool2d")
def _adaptive_maximum(x, size):
    window = _windows(x, size)
    return NotImplemented if window is None else ATEN.max_pool2d_with_indices(x, window, window)


@_of("adaptive_max_pool2d_backward")
def _adaptive_maximum_backward(grad, x, indices):
    window = _windows(x, grad.shape[-2:])
    return NotImplemented if window is None else ATEN.max_pool2d_with_indices_backward(
        grad, x, window, window, [0, 0], [1, 1], False, indices)
