"""An operator of torch.library from a Sinter graph, with its gradient."""
import inspect

import torch

import sinter

from .emit import TABLE
from .layouts import DTYPES, Layout, Unsupported, add_input, fake_layout, is_tensor
from .plans import Plans

_ATTRIBUTES = (bool, int, float, str)


class _Signature:
    """Which of a builder's parameters are tensors and which attributes, and PyTorch's schema."""

    def __init__(self, function, outputs):
        parameters = inspect.signature(function).parameters.values()
        self.names = [p.name for p in parameters]
        self.positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.attributes = [p.name for p in parameters if p.annotation in _ATTRIBUTES]
        self.tensors = [n for n in self.names if n not in self.attributes]
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        parts = [self._part(p) for p in parameters]
        if len(self.positional) < len(self.names):
            parts.insert(len(self.positional), "*")
        results = ", ".join(["Tensor"] * outputs)
        self.schema = f"({', '.join(parts)}) -> " + (f"({results})" if outputs > 1 else results)

    def _part(self, p):
        kind = p.annotation.__name__ if p.name in self.attributes else (
            "Tensor" if p.default is p.empty else "Tensor?")
        return f"{kind} {p.name}" + ("" if p.default is p.empty else f"={p.default!r}")

    def arguments(self, args, kwargs):
        return {**self.defaults, **dict(zip(self.names, args)), **kwargs}


def _tuple(made):
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def _graph_builder(graph):
    """A builder that copies a whole graph, and the number of its outputs.

    Its parameters have the names and the order of the graph's inputs."""
    document = graph.to_json()
    rows = sinter.plan(graph).tensors()
    inputs = [row[0] for row in rows if not row[5]]
    for name in inputs:
        if not name.isidentifier():
            raise ValueError(f"the graph's input {name!r} needs a name that Python takes")

    class Builder:
        __signature__ = inspect.Signature([
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in inputs])
        whole, written = document, [row for row in rows if row[5]]
        read = [row for row in rows if not row[5]]

        def __call__(self, *tensors):
            raise Unsupported("a whole graph is a kernel of its own")
    return Builder(), len(Builder.written)


def _placed(builder, tensors):
    """Tensors with the strides of a whole graph's inputs, copied where they have others. A builder
    takes them as they are."""
    if not hasattr(builder, "whole"):
        return tensors
    placed = []
    for t, row in zip(tensors, builder.read):
        name, data_type, dim, stride = row[:4]
        if t.dtype != DTYPES[data_type] or tuple(t.shape) != tuple(dim):
            raise ValueError(f"{name} is {t.dtype} {list(t.shape)}, not {data_type} {list(dim)}")
        if t.stride() != tuple(stride):
            t = torch.empty_strided(dim, stride, dtype=t.dtype, device=t.device).copy_(t)
        placed.append(t)
    return placed


def _make(builder, signature, arguments, layouts):
    """(graph, names of inputs, [(name of output, Layout)]) for arguments with these layouts."""
    present = [name for name in signature.tensors if arguments.get(name) is not None]
    if hasattr(builder, "whole"):
        graph = sinter.Graph.from_json(builder.whole)
        return graph, present, [(row[0], Layout(DTYPES[row[1]], row[2], row[3]))
                                for row in builder.written]
    sixteen = [t.data_type for t in layouts if t.data_type in ("bf16", "f16")]
    io = (sixteen or [layouts[0].data_type])[0]
    wide = "f64" if io == "f64" else "f32"
    graph = sinter.Graph(builder.__name__, io_data_type=io, intermediate_data_type=wide)
    tensors = {name: add_input(graph, name, layout) for name, layout in zip(present, layouts)}
    made = _tuple(builder(**{**arguments, **tensors}))
    outputs = []
    for k, t in enumerate(made):
        name = f"result_{k}"
        t = graph.output(t, name)
        outputs.append((name, Layout(DTYPES[t.data_type], tuple(t.dim), tuple(t.stride))))
    return graph, present, outputs


def _define(name, builder, outputs, symbolic=None):
    """One operator without a gradient. `symbolic` makes empty results of arguments whose extents are
    symbols, where the operator takes such."""
    signature = _Signature(builder, outputs)
    plans = {}  # by what is no tensor: attributes, and which optional tensors are there

    def plans_for(arguments):
        key = tuple(arguments[a] if a in signature.attributes else arguments[a] is not None
                    for a in signature.names)
        if key not in plans:
            shape = {k: None if k in signature.tensors and v is None else v
                     for k, v in arguments.items() if not is_tensor(v)}
            shape.update(dict.fromkeys([k for k, v in arguments.items() if is_tensor(v)], True))
            plans[key] = Plans(name, lambda layouts: _make(builder, signature, shape, layouts))
        return plans[key]

    def run(*args, **kwargs):
        arguments = signature.arguments(args, kwargs)
        tensors = [arguments[t] for t in signature.tensors if arguments[t] is not None]
        results = plans_for(arguments)(_placed(builder, tensors))
        return tuple(results) if outputs > 1 else results[0]

    def fake(*args, **kwargs):
        arguments = signature.arguments(args, kwargs)
        tensors = [arguments[t] for t in signature.tensors if arguments[t] is not None]
        if symbolic and any(isinstance(n, torch.SymInt) for t in tensors for n in t.shape):
            return symbolic(**arguments)
        layouts = [fake_layout(t) for t in tensors]
        made = _make(builder, signature, {k: True if is_tensor(v) else v
                                          for k, v in arguments.items()}, layouts)[2]
        results = [torch.empty_strided(layout.dim, layout.stride, dtype=layout.dtype,
                                       device=tensors[0].device) for _, layout in made]
        return tuple(results) if outputs > 1 else results[0]

    def emit(e, *args, **kwargs):
        made = [t if t.data_type == e.type(k) else e.converted(t, k) for k, t in enumerate(
            _tuple(builder(**signature.arguments(args, kwargs))))]
        return tuple(made) if outputs > 1 else made[0]

    op = torch.library.custom_op(name, run, mutates_args=(), schema=signature.schema)
    op.register_fake(fake)
    if not hasattr(builder, "whole"):
        TABLE[op._opoverload] = emit
    return op, signature


def operator(source, name, *, outputs=1, backward=None, symbolic=None):
    """A torch.library operator from a sinter.Graph or from a function that builds one.

        def ffn(x, w):
            return sinter.gelu_approx_tanh_fwd(x @ w)

        def ffn_backward(grad, x, w):
            dy = sinter.gelu_approx_tanh_bwd(grad, x @ w)
            return dy @ sinter.transpose(w, permutation=[1, 0]), ...

        op = sinter.torch.operator(ffn, "mine::ffn", backward=ffn_backward)

    The function gets Sinter tensors for its parameters, and numbers for those that are annotated
    bool, int, float or str; a tensor with the default None may be absent. It gives one tensor, or a
    tuple of as many as `outputs` says. It is called once for each set of dims, strides and types;
    their plans are kept. A graph fixes them, and its inputs are the parameters in its order.

    `backward` is a function or a graph, too. Its tensor parameters are first the gradients of the
    outputs, then any of the forward's inputs by their names, then any of `out_0`, `out_1`, ...
    which are its outputs. It gives one gradient for each tensor input of the forward.

    `symbolic` gets the arguments where their extents are symbols (torch.compile with dynamic
    shapes), and gives empty tensors with the dims and strides of the results. Without it such a call
    is refused.

    The operator has a fake implementation, so torch.compile and torch.export see through it; inside
    torch.compile(backend="sinter") a function joins the kernels around it.
    """
    if isinstance(source, sinter.Graph):
        source, outputs = _graph_builder(source)
    op, signature = _define(name, source, outputs, symbolic)
    if backward is None:
        return op
    count = len(signature.tensors)
    if isinstance(backward, sinter.Graph):
        backward, count = _graph_builder(backward)
    inner, inner_signature = _define(name + "_backward", backward, count)
    results = [f"out_{k}" for k in range(outputs)]
    known = inner_signature.names[outputs:]
    unknown = [n for n in known if n not in signature.names + results]
    if unknown:
        raise ValueError(f"backward's {unknown} are neither inputs nor outputs of {name}")

    def setup_context(ctx, inputs, output, keyword_only_inputs=None):
        values = {**signature.arguments(inputs, keyword_only_inputs or {}),
                  **dict(zip(results, _tuple(output)))}
        saved = [n for n in known if is_tensor(values[n])]
        ctx.save_for_backward(*(values[n] for n in saved))
        ctx.saved_names = saved
        ctx.attributes = {n: values[n] for n in known if n not in saved}
        ctx.layouts = [(t.dtype, t.shape, t.device) for t in _tuple(output)]

    def gradient(ctx, *grads):
        values = {**ctx.attributes, **dict(zip(ctx.saved_names, ctx.saved_tensors))}
        grads = [torch.zeros(shape, dtype=dtype, device=device) if g is None else g
                 for g, (dtype, shape, device) in zip(grads, ctx.layouts)]
        made = iter(_tuple(inner(*grads, **values)))
        return tuple(next(made) if n in signature.tensors else None for n in signature.positional)

    op.register_autograd(gradient, setup_context=setup_context)
    return op


def put_in_place_of(node, op, arguments, attributes):
    """A call of an operator of ours in place of a node of an FX graph."""
    with node.graph.inserting_before(node):
        made = node.graph.call_function(op._opoverload, arguments, attributes)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
