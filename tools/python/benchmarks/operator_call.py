#!/usr/bin/env python3
"""gelu(x @ w + b) with its gradient as an operator from a graph, in eager PyTorch, beside PyTorch's own.

    operator_call.py [--sizes 8192x1024x4096,64x64x64]

Needs a GPU. `error` is of the result and the gradients in bf16 from those in f32, as the norm of the
difference over the norm, of the worst of the four. Times are of one call of many, the host's included.
"""
import argparse
import json
import time

import sinter
import sinter.torch
import torch
from torch.nn import functional


def ffn(x, w, b):
    return sinter.gelu_approx_tanh_fwd(x @ w + b)


def ffn_backward(grad, x, w, b):
    dy = sinter.gelu_approx_tanh_bwd(grad, x @ w + b)
    x, w = (sinter.transpose(t, permutation=[1, 0]) for t in (x, w))
    return dy @ w, x @ dy, sinter.reduction(dy, mode="add", Y=[1, b.dim[1]])


def eager(x, w, b):
    return functional.gelu(x @ w + b, approximate="tanh")


def gradients(run, tensors, grad):
    tensors = [t.detach().requires_grad_() for t in tensors]
    y = run(*tensors)
    return [t.double() for t in (y.detach(), *torch.autograd.grad(y, tensors, grad))]


def microseconds(call, repetitions=100):
    for _ in range(10):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repetitions):
        call()
    torch.cuda.synchronize()
    return round((time.perf_counter() - begin) / repetitions * 1e6, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="8192x1024x4096,64x64x64")
    made = sinter.torch.operator(ffn, "benchmark::ffn", backward=ffn_backward)
    for size in parser.parse_args().sizes.split(","):
        m, k, n = (int(part) for part in size.split("x"))
        torch.manual_seed(0)
        tensors = [torch.randn(*dim, device="cuda").bfloat16() / scale
                   for dim, scale in (((m, k), 1), ((k, n), k ** 0.5), ((1, n), 1))]
        grad = torch.randn(m, n, device="cuda").bfloat16()
        wanted = gradients(eager, [t.float() for t in tensors], grad.float())
        for name, run in (("eager", eager), ("sinter", made)):
            error = max(((a - b).norm() / b.norm()).item()
                        for a, b in zip(gradients(run, tensors, grad), wanted))
            learnt = [t.clone().requires_grad_() for t in tensors]
            print(json.dumps({
                "size": size, "by": name, "error": error,
                "us_forward": microseconds(lambda: run(*tensors)),
                "us_both": microseconds(lambda: torch.autograd.grad(run(*learnt), learnt, grad)),
            }), flush=True)


if __name__ == "__main__":
    main()
