#!/usr/bin/env python3
"""Training steps of a small transformer and of a ResNet bottleneck: eager PyTorch, Inductor, Sinter.

    torch_models.py [--models transformer,resnet] [--backends eager,sinter,inductor] [--json FILE]

Needs a GPU. Gradients of each backend in bf16 are compared with eager's in f32 on the same numbers;
`error` is the norm of the difference over the norm, of the worst parameter. Times are of forward and
backward, the median of repetitions, measured with events.
"""
import argparse
import copy
import json
import statistics
import time

import torch
from torch.nn import functional

import sinter.torch


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Bottleneck(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        inner = channels // 4
        self.convolutions = torch.nn.ModuleList([
            torch.nn.Conv2d(channels, inner, 1, bias=False),
            torch.nn.Conv2d(inner, inner, 3, padding=1, bias=False),
            torch.nn.Conv2d(inner, channels, 1, bias=False)])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(n)
                                          for n in (inner, inner, channels)])

    def forward(self, x):
        y = x
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms)):
            y = norm(convolution(y))
            y = functional.relu(x + y if i == 2 else y)
        return y


def transformer(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer(1024, 16) for _ in range(2))).to(device)
    return model, torch.randn(8, 1024, 1024, device=device)


def resnet(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Bottleneck(256) for _ in range(2))).to(device)
    x = torch.randn(32, 256, 56, 56, device=device)
    return model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)


def step(model, x):
    loss = model(x).float().square().mean()
    loss.backward()
    return loss


def gradients(model, x, run):
    for p in model.parameters():
        p.grad = None
    x = x.detach().requires_grad_()
    loss = step(run, x)
    return loss.item(), [x.grad.float(), *(p.grad.float() for p in model.parameters())]


def microseconds(model, x, run, repetitions=20):
    times = []
    for _ in range(repetitions):
        for p in model.parameters():
            p.grad = None
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        step(run, x)
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end))
    return statistics.median(times)


def captured(model, x, run):
    """The same as one CUDA graph, which takes the cost of the calls away."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            step(run, x)
    torch.cuda.current_stream().wait_stream(side)
    for p in model.parameters():
        p.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(run, x)
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="transformer,resnet")
    parser.add_argument("--backends", default="eager,sinter,inductor")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    for name in options.models.split(","):
        model, x = globals()[name]("cuda")
        model, x = model.bfloat16(), x.bfloat16()
        exact = copy.deepcopy(model).float()
        loss, wanted = gradients(exact, x.float(), exact)
        for backend in options.backends.split(","):
            mine = copy.deepcopy(model)
            torch._dynamo.reset()
            run = mine if backend == "eager" else torch.compile(mine, backend=backend,
                                                                dynamic=False)
            begin = time.time()
            seen, made = gradients(mine, x, run)
            compiled = time.time() - begin
            error = max(((a - b).norm() / b.norm()).item() for a, b in zip(made, wanted))
            row = {"model": name, "backend": backend, "compile_s": round(compiled, 1),
                   "loss": seen, "loss_f32": loss, "error": error,
                   "us": microseconds(mine, x, run), "us_captured": captured(mine, x, run)}
            rows.append(row)
            print(json.dumps(row), flush=True)
            if backend == "sinter":
                print(sinter.torch.report(reset=True), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "rows": rows}, file)


if __name__ == "__main__":
    main()
