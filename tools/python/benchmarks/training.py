#!/usr/bin/env python3
"""Training steps of small transformers, ResNet bottlenecks and a level of a U-Net: eager PyTorch,
Inductor, Sinter.

    training.py [--models transformer,dropout,llama,resnet,unet,small] [--backends eager,sinter,inductor]
                [--types bf16,f32] [--json FILE] [--kernels COUNT]

Needs a GPU. Gradients of each backend are compared with eager's on the same numbers, those of bf16
with f32 and those of f32 with f64; `error` is the norm of the difference over the norm, of the worst
parameter; with dropout, whose numbers are each backend's own, there is none. Times are of forward and backward: `us` of a step that the host waits for, `us_steady` of
one step of many, `us_host` of the host alone until it has launched all, `us_captured` as a CUDA
graph. `--kernels` lists the slowest.
"""
import argparse
import copy
import itertools
import json
import os
import statistics
import sys
import time

import torch

import sinter.torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import torch_models  # noqa: E402

TYPES = {"bf16": (torch.bfloat16, torch.float32), "f32": (torch.float32, torch.float64)}


def transformer():
    return torch_models.transformer(1024, 16, (8, 1024))


def dropout():
    return torch_models.transformer(1024, 16, (8, 1024), 0.1)


def unet():
    return torch_models.unet(320, 32, (8, 64), torch.channels_last)


def llama():
    return torch_models.rotary(1024, 16, (8, 1024))


def small():
    """Whose kernels are shorter than their launches."""
    return torch_models.transformer(256, 4, (1, 128))


def resnet():
    return torch_models.resnet(256, (32, 56))


def step(model, x):
    y = model(x)
    loss = (y.float() if y.dtype == torch.bfloat16 else y).square().mean()
    loss.backward()
    return loss


def gradients(model, x, run):
    for p in model.parameters():
        p.grad = None
    x.grad = None
    loss = step(run, x)
    return loss.item(), [x.grad.double(), *(p.grad.double() for p in model.parameters())]


def steady(model, x, run, repetitions=20):
    """Of one step where many follow one another."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repetitions):
        for p in model.parameters():
            p.grad = None
        step(run, x)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repetitions * 1e6


def host(model, x, run, repetitions=20):
    """Until all of a step is launched, where the GPU has nothing else to do."""
    times = []
    for _ in range(repetitions):
        for p in model.parameters():
            p.grad = None
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step(run, x)
        times.append((time.perf_counter() - begin) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def slowest(model, x, run, count):
    """Prints the kernels of a step by their time, and how many there are."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        step(run, x)
        torch.cuda.synchronize()
    rows = [e for e in profile.key_averages() if e.self_device_time_total > 0]
    rows.sort(key=lambda e: -e.self_device_time_total)
    print(f"{sum(e.count for e in rows)} kernels, "
          f"{sum(e.self_device_time_total for e in rows):.0f} us")
    for e in rows[:count]:
        print(f"  {e.self_device_time_total:8.1f} us  {e.count:3d} x {e.key[:110]}", flush=True)


def microseconds(model, x, run, repetitions=20):
    """Of one step alone."""
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
    parser.add_argument("--models", default="transformer,dropout,llama,resnet,unet,small")
    parser.add_argument("--backends", default="eager,sinter,inductor")
    parser.add_argument("--types", default="bf16")
    parser.add_argument("--json")
    parser.add_argument("--kernels", type=int, default=0)
    options = parser.parse_args()
    rows = []
    for name, data_type in itertools.product(options.models.split(","), options.types.split(",")):
        torch.manual_seed(0)
        stored, wider = TYPES[data_type]
        model, x = (part.to("cuda", stored) for part in globals()[name]())
        exact = copy.deepcopy(model).to(wider)
        loss, wanted = gradients(exact, x.to(wider).requires_grad_(), exact)
        x.requires_grad_()
        for backend in options.backends.split(","):
            mine = copy.deepcopy(model)
            torch._dynamo.reset()
            run = mine if backend == "eager" else torch.compile(mine, backend=backend,
                                                                dynamic=False)
            begin = time.time()
            seen, made = gradients(mine, x, run)
            compiled = time.time() - begin
            names = ["x", *(name for name, _ in mine.named_parameters())]
            error, worst = max((((a - b).norm() / b.norm()).item(), name)
                               for name, a, b in zip(names, made, wanted))
            if name == "dropout":
                error = worst = None
            row = {"model": name, "type": data_type, "backend": backend,
                   "compile_s": round(compiled, 1), "loss": seen, "loss_wider": loss,
                   "error": error, "worst": worst,
                   "us": microseconds(mine, x, run), "us_steady": steady(mine, x, run),
                   "us_host": host(mine, x, run), "us_captured": captured(mine, x, run)}
            rows.append(row)
            print(json.dumps(row), flush=True)
            if options.kernels:
                slowest(mine, x, run, options.kernels)
            if backend == "sinter":
                print(sinter.torch.report(reset=True), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "rows": rows}, file)


if __name__ == "__main__":
    main()
