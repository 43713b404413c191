"""Builders for every operation and every pointwise mode, made from the library's own tables.

Every port and every attribute is a keyword with its name of GRAPH_JSON.md; the input ports may also
be given in their order. An input is a tensor or a number, which becomes an f32 scalar. An output
port takes True (make it), dims, or a dict of `dim`, `stride`, `data_type` and `name`; the required
ones are made by themselves. An operation with one output port gives its tensor, others a named
tuple with None for ports that were not made.
"""
import inspect
from collections import namedtuple

from . import _sinter
from ._sinter import Tensor

__all__ = []

# The writer of stubs imports what is named with its module.
_TYPES = {"bool": "bool", "int": "int", "float": "float", "str": "str",
          "Sequence[int]": "collections.abc.Sequence[int]"}
_OPERAND = "Tensor | float"
_RESULT = "bool | collections.abc.Sequence[int] | dict[str, typing.Any] | None"


def _graph_of(values, op):
    for value in values:
        if isinstance(value, Tensor):
            return value.graph
    _sinter.fail("port-missing", node=op, seen="no tensor", allowed="at least one tensor")


def _builder(op, function, inputs, outputs, attributes, fixed, variadic, doc):
    """A function that adds a node of `op` to the graph of its operands."""
    in_names = [name for name, _ in inputs]
    out_names = [name for name, _ in outputs]
    required = [name for name, needed in outputs if needed] or out_names[:1]
    Results = namedtuple(function + "_outputs", out_names) if len(outputs) > 1 else None

    def build(*operands, name="", compute_data_type=None, **keywords):
        ports = {f"IN_{i}": t for i, t in enumerate(operands)} if variadic else dict(
            zip(in_names, operands))
        if len(operands) > len(ports):
            _sinter.fail("port-unknown", node=name or op, seen=f"{len(operands)} operands",
                         allowed=f"at most {len(ports)}")
        results = {}
        rest = dict(fixed)
        for key, value in keywords.items():
            if key in ports:
                _sinter.fail("port-unknown", node=name or op, attribute=key, seen="it twice")
            if key in in_names or (variadic and key.startswith("IN_")):
                ports[key] = value
            elif key in out_names:
                results[key] = value
            else:
                rest[key] = value
        if not results or any(needed for _, needed in outputs):
            results = {**dict.fromkeys(required, True), **results}
        made = _graph_of(ports.values(), name or op).add(op, ports, results, rest, name,
                                                         compute_data_type)
        return Results(*made) if Results else made[0]

    build.__name__ = build.__qualname__ = function
    build.__module__ = __name__
    build.__doc__ = doc
    build.__signature__ = _signature(inputs, outputs, attributes, variadic)
    return build


def _signature(inputs, outputs, attributes, variadic):
    P = inspect.Parameter
    if variadic:
        parameters = [P("operands", P.VAR_POSITIONAL, annotation=_OPERAND)]
    else:
        parameters = []
        optional = False
        for name, needed in inputs:  # a required port behind an optional one is a keyword
            kind = P.KEYWORD_ONLY if optional and needed else P.POSITIONAL_OR_KEYWORD
            parameters.append(P(name, kind, annotation=_OPERAND) if needed else
                              P(name, kind, default=None, annotation=_OPERAND + " | None"))
            optional = optional or not needed
        parameters.sort(key=lambda p: p.kind)
    for name, kind, default, _ in attributes:
        annotation = _TYPES[kind] + (" | None" if default is None else "")
        parameters.append(P(name, P.KEYWORD_ONLY, default=default, annotation=annotation))
    for name, _ in outputs:
        parameters.append(P(name, P.KEYWORD_ONLY, default=None, annotation=_RESULT))
    parameters.append(P("name", P.KEYWORD_ONLY, default="", annotation="str"))
    parameters.append(P("compute_data_type", P.KEYWORD_ONLY, default=None,
                        annotation="str | None"))
    result = "Tensor" if len(outputs) == 1 else "typing.Any"
    return inspect.Signature(parameters, return_annotation=result)


def _describe(op, inputs, outputs, attributes):
    def ports(rows):
        return ", ".join(name if needed else f"({name})" for name, needed in rows)
    lines = [f"{op}: {ports(inputs)} to {ports(outputs)}. Ports in parentheses are optional."]
    for name, kind, default, choices in attributes:
        lines.append(f"  {name}: {', '.join(choices) if choices else kind}; default {default}")
    return "\n".join(lines)


def _add(function):
    globals()[function.__name__] = function
    __all__.append(function.__name__)


_TABLE = {row[0]: row for row in _sinter.operations()}
for _op, _inputs, _outputs, _attributes, _variadic in _TABLE.values():
    _add(_builder(_op, _op, _inputs, _outputs, _attributes, {}, _variadic,
                  _describe(_op, _inputs, _outputs, _attributes)))
_, _inputs, _outputs, _attributes, _ = _TABLE["pointwise"]
for _mode, _operands, _names, _computes in _sinter.pointwise_modes():
    _add(_builder("pointwise", _mode, [(n, True) for n, _ in _inputs[:_operands]], _outputs,
                  [row for row in _attributes if row[0] in _names], {"mode": _mode}, False,
                  f"pointwise, {_mode}: {_computes}. a, b, c are IN_0, IN_1, IN_2."))


def _operator(function):
    return lambda a, b: function(a, b), lambda a, b: function(b, a)


# Python's operators. == and != stay those of Python: tensors are keys of dicts.
for _symbol, _mode in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow",
                       "mod": "mod", "matmul": "matmul"}.items():
    _forward, _reflected = _operator(globals()[_mode])
    setattr(Tensor, f"__{_symbol}__", _forward)
    setattr(Tensor, f"__r{_symbol}__", _reflected)
for _symbol in ("lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{_symbol}__", _operator(globals()["cmp_" + _symbol])[0])
for _symbol in ("neg", "abs"):
    setattr(Tensor, f"__{_symbol}__", globals()[_symbol])
