#!/usr/bin/env python3
"""Errors of attention against float64, beside those of PyTorch's fused bf16 attention on the same inputs.

attention_errors.py [--sinter PROGRAM] [--seeds N]: needs a GPU and PyTorch. One line a case and result, over N random
inputs: the root mean square and the largest error of both, each divided by the root mean square of the float64 result,
and their ratios (ours / PyTorch's). The largest of a few million is that of one unlucky rounding.
"""
import argparse
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

from graphs import attention

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# name: b, heads of q, of k, queries, keys, d, factor of q (how large the logits are), causal, lengths of keys
CASES = {
    "d 128": (2, 4, 4, 1024, 1024, 128, 1, False, None),
    "d 128, causal": (2, 4, 4, 1024, 1024, 128, 1, True, None),
    "d 64, causal": (2, 4, 4, 1024, 1024, 64, 1, True, None),
    "d 128, 2 heads of K, causal": (2, 8, 2, 1024, 1024, 128, 1, True, None),
    "d 256": (2, 4, 4, 1024, 1024, 256, 1, False, None),
    "large logits": (2, 4, 4, 1024, 1024, 128, 16, False, None),
    "large logits, causal": (2, 4, 4, 1024, 1024, 64, 16, True, None),
    "sharp softmax": (2, 4, 4, 1024, 1024, 128, 64, False, None),
    "masked tails": (4, 4, 4, 300, 1000, 128, 1, False, (1000, 517, 64, 3)),
    "masked tails, large logits": (4, 4, 4, 300, 1000, 64, 16, False, (1000, 517, 64, 3)),
}


def run(sinter, folder, case, backward, values):
    """Our results, by port."""
    *shape, _, causal, lengths = case
    g = attention(*shape, causal=causal, backward=backward, padding=lengths is not None, stats=not backward)
    names = g.nodes[-1]["outputs"]
    path = os.path.join(folder, "graph.json")
    g.write(path, "errors")
    command = [sinter, "run", path]
    for name in g.tensors:
        if name not in values:
            continue
        file, x = os.path.join(folder, name + ".npy"), values[name]
        np.save(file, x.contiguous().view(torch.int16).cpu().numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.cpu().numpy())
        command += ["--input", f"{name}={file}"]
    files = {port: os.path.join(folder, port + "_out.npy") for port in names}
    for port, name in names.items():
        command += ["--output", f"{name}={files[port]}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    def load(file):
        x = np.load(file)
        if x.dtype == np.uint16:
            return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16).cuda()
        return torch.from_numpy(x.copy()).cuda()
    return {port: load(file) for port, file in files.items()}


def exact(case, q, k, v, mask, d_o):
    """O, dQ, dK and dV in float64."""
    group = case[1] // case[2]
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    k8, v8 = (x.repeat_interleave(group, 1) for x in leaves[1:])
    scores = leaves[0] @ k8.transpose(-1, -2) * case[5] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    o = scores.softmax(-1) @ v8
    return [o.detach(), *torch.autograd.grad(o, leaves, d_o.double())]


def pytorch(case, q, k, v, mask, d_o):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    causal = case[7]
    o = F.scaled_dot_product_attention(*leaves, attn_mask=None if causal else mask, is_causal=causal, enable_gqa=case[1] != case[2])
    return [o.detach(), *torch.autograd.grad(o, leaves, d_o)]


def errors(sinter, case, seed):
    """By port: the mean square of float64's result, mean squares of our and of PyTorch's error, and their largest."""
    b, hq, hk, sq, sk, d, factor, causal, lengths = case
    torch.manual_seed(seed)
    random = lambda *dim, by=1.0: (torch.randn(*dim, device="cuda") * by).bfloat16()
    values = {"Q": random(b, hq, sq, d, by=factor), "K": random(b, hk, sk, d), "V": random(b, hk, sk, d), "dO": random(b, hq, sq, d)}
    mask = torch.ones(sq, sk, dtype=torch.bool, device="cuda").tril() if causal else None
    if lengths:
        of_keys = torch.tensor(lengths, dtype=torch.int32, device="cuda")
        mask = (torch.arange(sk, device="cuda") < of_keys[:, None])[:, None, None, :]
        values |= {"SEQ_LEN_KV": of_keys.view(b, 1, 1, 1),
                   "SEQ_LEN_Q": torch.full((b, 1, 1, 1), sq, dtype=torch.int32, device="cuda")}
    tensors = values["Q"], values["K"], values["V"], mask, values["dO"]
    right, theirs = exact(case, *tensors), pytorch(case, *tensors)
    with tempfile.TemporaryDirectory() as folder:
        forward = run(sinter, folder, case, False, values)
        backward = run(sinter, folder, case, True, values | forward)
    ours = [forward["O"], backward["dQ"], backward["dK"], backward["dV"]]
    return {port: (r.square().mean().item(), *((x.double() - r).square().mean().item() for x in (o, t)),
                   *((x.double() - r).abs().max().item() for x in (o, t)))
            for port, r, o, t in zip(("O", "dQ", "dK", "dV"), right, ours, theirs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sinter", default=os.path.join(ROOT, "build/tools/sinter/sinter"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print("| case | result | rms, ours | rms, PyTorch | ratio | largest, ours | largest, PyTorch | ratio |\n|---|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        of_seeds = [errors(arguments.sinter, case, seed) for seed in range(arguments.seeds)]
        for port in of_seeds[0]:
            size, *rms = (sum(e[port][i] for e in of_seeds) ** 0.5 for i in range(3))
            most = [max(e[port][i] / e[port][0] ** 0.5 for e in of_seeds) for i in (3, 4)]
            print(f"| {name} | {port} | {rms[0] / size:.2e} | {rms[1] / size:.2e} | {rms[0] / rms[1]:.2f} | {most[0]:.2e} | "
                  f"{most[1]:.2e} | {most[0] / most[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
