#!/usr/bin/env python3
"""Times graphs as eager PyTorch runs them on the GPU at hand: one call a node, nothing compiled.

peers.py [--list] [--keep FILE.jsonl] GRAPH.json...: one JSON object a line, as `sinter bench --json` writes them, with `peer` for what
ran: `eager`, or the backends of attention, `cudnn` and `flash`. The graphs of tools/benchmarks/graphs.py are the tables'. --list says
which calls would run, and needs no PyTorch. Results are not checked.

Calls rotate over as many sets of inputs as are three times the second-level cache, captured as a CUDA graph where PyTorch can capture
them. Results have the type of what they are computed from until they are outputs, which are copied to the declared strides where
they lie in another order or show an input. Gradients of attention and norms are autograd's, whose forward runs before the clock. One library
call for several nodes (epilogues of cuBLASLt and cuDNN) is not among these.
"""
import argparse
import json
import math
import statistics
import sys

MOST_SETS, CACHES, CALLS, SAMPLES = 8, 3, 64, 7
TYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
         "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64", "bool": "bool"}
torch = F = None  # imported where something runs


def spatial(node, name, rank, default):
    return node.get(name, [default] * rank)


def options_of(node, rank):
    """stride, padding, dilation and groups, as PyTorch's convolutions take them."""
    return (spatial(node, "stride", rank, 1), spatial(node, "pre_padding", rank, 0), spatial(node, "dilation", rank, 1),
            node.get("groups", 1))


# ---- an operation: its node, the dims that its results declare by port, its operands by port

def matmul(node, dims, A, B):
    if A.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        one = torch.ones((), device=A.device)
        y = torch._scaled_mm(A.reshape(-1, A.shape[-1]), B.reshape(B.shape[-2:]), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return y.reshape(*A.shape[:-1], B.shape[-1])
    if math.prod(B.shape[:-2]) == 1:  # one B for all rows
        return torch.mm(A.reshape(-1, A.shape[-1]), B.reshape(B.shape[-2:])).reshape(*A.shape[:-1], B.shape[-1])
    if A.dim() == B.dim() and 1 < B.shape[-3] < A.shape[-3]:  # heads that share an entry of B
        rows = A.reshape(*A.shape[:-3], B.shape[-3], -1, A.shape[-1])
        return torch.matmul(rows, B).reshape(*A.shape[:-1], B.shape[-1])
    return torch.matmul(A, B)


def conv_fprop(node, dims, X, W):
    return getattr(F, f"conv{X.dim() - 2}d")(X, W, None, *options_of(node, X.dim() - 2))


def empty_as(dim, other):
    """A tensor whose channels are last in memory where the other's are: libraries choose their kernels by that."""
    n, c, *size = dim
    return other.new_empty([n, *size, c]).movedim(-1, 1) if other.stride(1) == 1 else other.new_empty(dim)


def convolution_gradients(node, DY, X, W, wanted):
    rank = DY.dim() - 2
    stride, padding, dilation, groups = options_of(node, rank)
    return torch.ops.aten.convolution_backward(DY, X, W, None, stride, padding, dilation, False, [0] * rank, groups, wanted)


def conv_dgrad(node, dims, DY, W):
    return convolution_gradients(node, DY, empty_as(dims["DX"], DY), W, [True, False, False])[0]


def conv_wgrad(node, dims, DY, X):
    return convolution_gradients(node, DY, X, empty_as(dims["DW"], DY), [False, True, False])[1]


def sdpa(node, dims, Q, K, V, Bias=None):
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=Bias, is_causal=node.get("causal_mask", False),
                                          scale=node.get("attn_scale", 1.0), enable_gqa=Q.shape[1] != K.shape[1])


def normalized(SCALE):
    """The dims of a norm's rows: those from the first of SCALE that is not 1."""
    first = next((i for i, extent in enumerate(SCALE.shape) if extent > 1), SCALE.dim() - 1)
    return list(SCALE.shape[first:])


def layernorm(node, dims, X, SCALE, BIAS=None, epsilon=1e-5):
    row = normalized(SCALE)
    return F.layer_norm(X, row, SCALE.reshape(row), None if BIAS is None else BIAS.reshape(row), epsilon)


def rmsnorm(node, dims, X, SCALE, BIAS=None, epsilon=1e-5):
    row = normalized(SCALE)
    y = F.rms_norm(X, row, SCALE.reshape(row), epsilon)
    return y if BIAS is None else y + BIAS


def groupnorm(node, dims, X, SCALE, BIAS=None, epsilon=1e-5):
    return F.group_norm(X, node["groups"], SCALE.reshape(-1), None if BIAS is None else BIAS.reshape(-1), epsilon)


def softmax(node, dims, X):
    return torch.softmax(X, node.get("axis", -1))


def softmax_backward(node, dims, DY, Y):
    return torch.ops.aten._softmax_backward_data(DY, Y, node.get("axis", -1), Y.dtype)


def reduction(node, dims, X):
    axes = [i for i, (x, y) in enumerate(zip(X.shape, dims["Y"])) if y == 1 and x != 1]
    mode = node["mode"]
    if mode in ("norm1", "norm2"):
        return torch.linalg.vector_norm(X, int(mode[-1]), axes, keepdim=True)
    if mode == "amax":
        return torch.linalg.vector_norm(X, math.inf, axes, keepdim=True)
    return {"add": torch.sum, "avg": torch.mean, "max": torch.amax, "min": torch.amin}[mode](X, axes, keepdim=True)


def resample(node, dims, X):
    rank = X.dim() - 2
    stride, padding, _, _ = options_of(node, rank)
    if node["mode"] == "maxpool":
        return getattr(F, f"max_pool{rank}d")(X, node["window"], stride, padding)
    return getattr(F, f"avg_pool{rank}d")(X, node["window"], stride, padding,
                                          count_include_pad=node["mode"] == "avgpool_include_padding")


def reshape(node, dims, X):
    return X.reshape(node.get("dim") or dims["Y"])


def cut(node, dims, X):
    steps = node.get("step", [1] * X.dim())
    return X[tuple(slice(*bounds) for bounds in zip(node["start"], node["limit"], steps))]


def concatenate(node, dims, **parts):
    return torch.cat([parts[f"IN_{i}"] for i in range(len(parts))], node["axis"])


def pointwise(node, dims, **operands):
    return MODES[node["mode"]](node, *(operands[f"IN_{i}"] for i in range(len(operands))))


def call(name):
    """That function of PyTorch on the operands alone, some of which may be numbers."""
    return lambda node, *x: getattr(torch, name)(*(v if torch.is_tensor(v) else torch.tensor(v) for v in x))


def slope_of(node):
    return node.get("relu_lower_clip_slope", 0.0)


MODES = {
    **{mode: call(mode) for mode in ("add", "sub", "mul", "div", "pow", "abs", "ceil", "floor", "neg", "sqrt", "rsqrt", "reciprocal",
                                     "exp", "log", "sin", "cos", "tan", "erf", "logical_and", "logical_or", "logical_not", "atan2")},
    "max": call("maximum"), "min": call("minimum"), "tanh_fwd": call("tanh"), "sigmoid_fwd": call("sigmoid"),
    **{f"cmp_{mode}": call(name) for mode, name in [("eq", "eq"), ("neq", "ne"), ("gt", "gt"), ("ge", "ge"), ("lt", "lt"), ("le", "le")]},
    "identity": lambda node, x: x.clone(), "binary_select": lambda node, x, y, t: torch.where(t != 0, x, y),
    "add_square": lambda node, x, y: torch.addcmul(x, y, y),
    "relu_fwd": lambda node, x: F.leaky_relu(x, slope_of(node)) if slope_of(node) else torch.relu(x),
    "relu_bwd": lambda node, dy, x: torch.ops.aten.threshold_backward(dy, x, 0),
    "gelu_fwd": lambda node, x: F.gelu(x), "gelu_approx_tanh_fwd": lambda node, x: F.gelu(x, approximate="tanh"),
    "gelu_bwd": lambda node, dy, x: torch.ops.aten.gelu_backward(dy, x),
    "gelu_approx_tanh_bwd": lambda node, dy, x: torch.ops.aten.gelu_backward(dy, x, approximate="tanh"),
    "swish_fwd": lambda node, x: F.silu(x), "swish_bwd": lambda node, dy, x: torch.ops.aten.silu_backward(dy, x),
    "softplus_fwd": lambda node, x: F.softplus(x), "elu_fwd": lambda node, x: F.elu(x),
    "sigmoid_bwd": lambda node, dy, x: torch.ops.aten.sigmoid_backward(dy, torch.sigmoid(x)),
    "tanh_bwd": lambda node, dy, x: torch.ops.aten.tanh_backward(dy, torch.tanh(x)),
}
WINDOW = {"stride", "pre_padding", "post_padding", "dilation"}
OPS = {  # by operation: what runs, and the attributes that it knows
    "matmul": (matmul, set()), "pointwise": (pointwise, {"mode", "relu_lower_clip_slope"}),
    **{f.__name__: (f, {*WINDOW, "groups"}) for f in (conv_fprop, conv_dgrad, conv_wgrad)},
    "sdpa": (sdpa, {"attn_scale", "causal_mask"}), "softmax": (softmax, {"axis"}), "softmax_backward": (softmax_backward, {"axis"}),
    **{f.__name__: (f, {"forward_phase"}) for f in (layernorm, rmsnorm)}, "groupnorm": (groupnorm, {"groups", "forward_phase"}),
    "reduction": (reduction, {"mode", "deterministic"}), "resample": (resample, {*WINDOW, "mode", "window"}),
    "transpose": (lambda node, dims, X: X.permute(node["permutation"]), {"permutation"}),
    "reshape": (reshape, {"dim"}), "slice": (cut, {"start", "limit", "step"}), "concatenate": (concatenate, {"axis"}),
}
# By gradient: its forward, the operands of that which have gradients, and the port of the result's gradient.
GRADIENTS = {"sdpa_backward": ("sdpa", ("Q", "K", "V"), "dO"), "layernorm_backward": ("layernorm", ("X", "SCALE", "BIAS"), "DY"),
             "rmsnorm_backward": ("rmsnorm", ("X", "SCALE"), "DY")}
UNREAD = {"O", "Stats", "MEAN", "INV_VARIANCE"}  # that the forward makes itself
FIELDS = {"op", "name", "inputs", "outputs", "compute_data_type", "generate_stats"}


def problem(graph, node):
    """Why eager PyTorch has no call for a node; empty: it has one."""
    op = node["op"]
    forward, wanted, dy = GRADIENTS.get(op, (op, (), ""))
    if forward not in OPS:
        return f"no call for {op}"
    more = sorted(a for a in node if a not in FIELDS | OPS[forward][1] and node[a])
    if more:
        return f"{op}: no call with {', '.join(more)}"
    if op == "pointwise" and node["mode"] not in MODES:
        return f"no call for {node['mode']}"
    if op == "reduction" and node["mode"] in ("mul", "mul_no_zeros"):
        return f"no call for reductions by {node['mode']}"
    if op == "resample" and "pool" not in node["mode"]:
        return f"no call for {node['mode']}"
    if node.get("pre_padding") != node.get("post_padding"):
        return f"{op}: padding differs at both sides"
    if op in GRADIENTS and graph["made"] & {t for port, t in node["inputs"].items() if port in (*wanted, dy)}:
        return f"{op} of what the graph computes"
    ports = {"sdpa": {"Q", "K", "V", "Bias"}, "sdpa_backward": {"Q", "K", "V", "dO", *UNREAD}}.get(op)
    if ports and set(node["inputs"]) - ports:
        return f"{op}: no call with {', '.join(sorted(set(node['inputs']) - ports))}"
    if len(set(node["outputs"]) - UNREAD) != len(node["outputs"]) and op != "sdpa_backward" and "O" not in node["outputs"]:
        return f"{op}: no call for {', '.join(sorted(node['outputs']))}"
    return ""


def read(path):
    with open(path, encoding="utf-8") as file:
        graph = json.load(file)
    graph["made"] = {t for node in graph["nodes"] for t in node["outputs"].values()}
    known, waiting, graph["order"] = set(graph["tensors"]) - graph["made"], list(graph["nodes"]), []
    while waiting:  # operands first
        node = next(n for n in waiting if known.issuperset(n["inputs"].values()))
        waiting.remove(node)
        graph["order"].append(node)
        known.update(node["outputs"].values())
    return graph


# ---- running

def type_of(graph, name):
    return getattr(torch, TYPES[graph["tensors"][name].get("data_type", graph.get("io_data_type", "f32"))])


def random_inputs(graph):
    """Values of 0.5 times a normal number, where the strides say; scalars as numbers."""
    values = {}
    for name, spec in graph["tensors"].items():
        if name in graph["made"]:
            continue
        if "value" in spec:
            values[name] = spec["value"]
            continue
        dim = spec["dim"]
        stride = spec.get("stride") or torch.empty(dim, device="meta").stride()
        size, kind = 1 + sum((d - 1) * s for d, s in zip(dim, stride)), type_of(graph, name)
        data = (torch.randn(size, device="cuda") * 0.5).to(kind) if kind.is_floating_point else torch.randint(
            0, 2, (size,), device="cuda").to(kind)
        values[name] = data.as_strided(dim, stride)
    return values


class Program:
    """A graph's calls on one set of inputs. What has no clock (autograd's forward) runs when it is made."""

    def __init__(self, graph):
        self.graph, self.inputs = graph, random_inputs(graph)
        self.backward = {id(n): self.forward_of(n) for n in graph["order"] if n["op"] in GRADIENTS}
        self.storages = {t.untyped_storage().data_ptr() for t in self.inputs.values() if torch.is_tensor(t)}

    def forward_of(self, node):
        forward, wanted, _ = GRADIENTS[node["op"]]
        operands = {port: self.inputs[t] for port, t in node["inputs"].items() if port in (*wanted, "epsilon")}
        for port in wanted:
            x = operands[port] if port in operands else torch.zeros_like(operands["SCALE"])
            operands[port] = x.detach().requires_grad_()
        with torch.enable_grad():
            return OPS[forward][0](node, {}, **operands), [operands[port] for port in wanted]

    def run(self):
        values = dict(self.inputs)
        for node in self.graph["order"]:
            dims = {port: self.graph["tensors"].get(t, {}).get("dim") for port, t in node["outputs"].items()}
            operands = {port: values[t] for port, t in node["inputs"].items()}
            if node["op"] in GRADIENTS:
                _, wanted, dy = GRADIENTS[node["op"]]
                y, x = self.backward[id(node)]
                found = torch.autograd.grad(y, x, operands[dy], retain_graph=True)
                results = {("d" if node["op"] == "sdpa_backward" else "D") + port: g for port, g in zip(wanted, found)}
                values.update({t: results[port] for port, t in node["outputs"].items()})
            else:
                y = OPS[node["op"]][0](node, dims, **operands)
                values.update(dict.fromkeys(node["outputs"].values(), y))
        return [self.stored(t, values[t]) for t in self.graph["made"] if self.graph["tensors"].get(t, {}).get("output")]

    def stored(self, name, value):
        spec = self.graph["tensors"][name]
        value = value.reshape(spec.get("dim", value.shape)).to(type_of(self.graph, name))
        stride = spec.get("stride") or torch.empty(value.shape, device="meta").stride()
        right = all(a == b for a, b, extent in zip(value.stride(), stride, value.shape) if extent > 1)
        if right and value.untyped_storage().data_ptr() not in self.storages:
            return value
        return torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device).copy_(value)


def microseconds(programs, stream):
    """The median, least and most of a call, of SAMPLES times CALLS or so, in turn over the programs."""
    calls = math.ceil(CALLS / len(programs)) * len(programs)

    def some(count):
        kept = [None] * len(programs)  # results of as many calls stay, so that they rotate, too
        for i in range(count):
            kept[i % len(programs)] = programs[i % len(programs)].run()

    def timed(work):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        return begin.elapsed_time(end) * 1000 / calls

    with torch.cuda.stream(stream):
        some(2 * len(programs))
        torch.cuda.synchronize()
        try:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured, stream=stream):
                some(calls)
            work = captured.replay
        except RuntimeError as error:
            print(f"not captured, launched one by one: {error}", file=sys.stderr)
            work = lambda: some(calls)
        work()
        samples = [timed(work) for _ in range(SAMPLES)]
    return {name: float(f"{us:.5g}") for name, us in [("us", statistics.median(samples)), ("us_min", min(samples)), ("us_max", max(samples))]}


def measure(graph):
    with torch.no_grad():
        stream = torch.cuda.Stream()  # autograd's backward runs on the forward's, which has to be the captured one
        with torch.cuda.stream(stream):
            first = Program(graph)
            size = sum(t.untyped_storage().nbytes() for t in first.inputs.values() if torch.is_tensor(t))
            cache = torch.cuda.get_device_properties(0).L2_cache_size
            sets = min(MOST_SETS, math.ceil(CACHES * cache / max(1, size)))
            programs = [first] + [Program(graph) for _ in range(sets - 1)]
        torch.cuda.synchronize()
        return microseconds(programs, stream)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", metavar="GRAPH.json")
    parser.add_argument("--list", action="store_true", help="say what would run, without PyTorch")
    parser.add_argument("--keep", metavar="FILE.jsonl", help="takes the lines, too")
    arguments = parser.parse_args()
    if not arguments.list:
        global torch, F
        import torch
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel
        torch.backends.cudnn.benchmark = True  # the fastest of its kernels, found before the clock
    kept = open(arguments.keep, "w", encoding="utf-8") if arguments.keep else None

    def say(row):
        for file in filter(None, (sys.stdout, kept)):
            print(json.dumps(row), file=file, flush=True)

    for path in arguments.graphs:
        graph = read(path)
        attention = any(n["op"] in ("sdpa", "sdpa_backward") for n in graph["order"])
        why = next(filter(None, (problem(graph, n) for n in graph["order"])), "")
        for peer in ["cudnn", "flash"] if attention else ["eager"]:
            row = {"graph": graph.get("name", path), "peer": peer}
            if why:
                say({**row, "error": why})
            elif arguments.list:
                say({**row, "calls": [n.get("mode", n["op"]) if n["op"] == "pointwise" else n["op"] for n in graph["order"]]})
            else:
                try:
                    if attention:
                        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if peer == "cudnn" else SDPBackend.FLASH_ATTENTION):
                            say({**row, **measure(graph)})
                    else:
                        say({**row, **measure(graph)})
                except (RuntimeError, NotImplementedError) as error:
                    say({**row, "error": " ".join(str(error).split())[:300]})
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
