"""Arithmetic element by element. PyTorch computes 16-bit types in f32 too and rounds the result."""
import math

import sinter

from ..emit import entry, floating
from ..layouts import FLOATING, Unsupported


def _same(mode):
    """An operation that is a mode of Sinter's, operand for operand."""
    def emit(e, *operands):
        if e.type() not in FLOATING:
            raise Unsupported("arithmetic of integers")
        return mode(*map(e.operand, operands), OUT_0=e.out())
    return emit


for _name, _mode in {
        "abs": "abs", "ceil": "ceil", "cos": "cos", "erf": "erf", "exp": "exp", "floor": "floor",
        "log": "log", "neg": "neg", "reciprocal": "reciprocal", "relu": "relu_fwd",
        "round": "round", "rsqrt": "rsqrt", "sigmoid": "sigmoid_fwd", "silu": "swish_fwd",
        "sin": "sin", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh_fwd", "mul.Tensor": "mul",
        "mul.Scalar": "mul", "div.Tensor": "div", "div.Scalar": "div", "maximum": "max",
        "minimum": "min", "fmod.Tensor": "mod", "fmod.Scalar": "mod", "atan2": "atan2",
        "pow.Tensor_Tensor": "pow", "pow.Scalar": "pow", "silu_backward": "swish_bwd"}.items():
    entry(_name)(_same(getattr(sinter, _mode)))


def _scaled(e, x, alpha):
    return x if alpha == 1 else sinter.mul(e.operand(x), e.operand(alpha))


def _sum(e, a, b):
    if e.type() not in FLOATING:
        raise Unsupported("arithmetic of integers")
    return sinter.add(e.operand(a), e.operand(b), OUT_0=e.out())


def _difference(e, a, b):
    if e.type() not in FLOATING:
        raise Unsupported("arithmetic of integers")
    return sinter.sub(e.operand(a), e.operand(b), OUT_0=e.out())


@entry("add.Tensor", "add.Scalar")
def add(e, a, b, alpha=1):
    return _sum(e, a, _scaled(e, b, alpha))


@entry("sub.Tensor", "sub.Scalar")
def sub(e, a, b, alpha=1):
    return _difference(e, a, _scaled(e, b, alpha))


@entry("rsub.Tensor", "rsub.Scalar")
def rsub(e, a, b, alpha=1):
    return _difference(e, b, _scaled(e, a, alpha))


@entry("pow.Tensor_Scalar")
def power(e, x, exponent):
    floating(x)
    if exponent == 2:
        return sinter.mul(x, x, OUT_0=e.out())
    if exponent == 0.5:
        return sinter.sqrt(x, OUT_0=e.out())
    return sinter.pow(x, e.operand(exponent), OUT_0=e.out())


def _wide(e):
    return {"data_type": "f64" if e.type() == "f64" else "f32"}


def _times(mode, factor):
    """A function of Sinter's times a number."""
    def emit(e, x):
        floating(x)
        return sinter.mul(mode(x, OUT_0=_wide(e)), e.operand(factor), OUT_0=e.out())
    return emit


entry("log2")(_times(sinter.log, 1 / math.log(2)))
entry("log10")(_times(sinter.log, 1 / math.log(10)))
entry("exp2")(lambda e, x: sinter.pow(e.operand(2.0), x, OUT_0=e.out()))
entry("atan")(lambda e, x: sinter.atan2(x, e.operand(1.0), OUT_0=e.out()))


@entry("sign", "sgn")
def sign(e, x):
    """Of NaN it is 0, as there."""
    floating(x)
    zero = e.operand(0.0)
    below = sinter.binary_select(e.operand(-1.0), zero, sinter.cmp_lt(x, zero), OUT_0=_wide(e))
    return sinter.binary_select(e.operand(1.0), below, sinter.cmp_gt(x, zero), OUT_0=e.out())


@entry("trunc")
def trunc(e, x):
    floating(x)
    return sinter.binary_select(sinter.ceil(x), sinter.floor(x), sinter.cmp_lt(x, e.operand(0.0)),
                                OUT_0=e.out())


@entry("isnan")
def isnan(e, x):
    floating(x)
    return sinter.cmp_neq(x, x, OUT_0=e.out())


@entry("isinf")
def isinf(e, x):
    floating(x)
    return sinter.cmp_eq(sinter.abs(x), e.operand(math.inf), OUT_0=e.out())


@entry("remainder.Scalar", "remainder.Tensor")
def remainder(e, x, divisor):
    """With the divisor's sign; that of C has the dividend's."""
    floating(x)
    zero, divisor = e.operand(0.0), e.operand(divisor)
    rest = sinter.mod(x, divisor, OUT_0=_wide(e))
    other = sinter.cmp_lt(sinter.mul(rest, divisor, OUT_0=_wide(e)), zero)
    return sinter.binary_select(sinter.add(rest, divisor, OUT_0=_wide(e)), rest, other,
                                OUT_0=e.out())


@entry("expm1")
def expm1(e, x):
    floating(x)
    return _expm1(e, x, e.out())


def _expm1(e, x, out):
    # What u = exp(x) rounds away of a small x comes back as x / log(u) (Kahan). Where u is 1 it is
    # x, where u is infinite or far below 1 there is nothing to bring back.
    wide, one = _wide(e), e.operand(1.0)
    u = sinter.exp(x, OUT_0=wide)
    less = sinter.sub(u, one, OUT_0=wide)
    exact = sinter.mul(less, sinter.div(x, sinter.log(u, OUT_0=wide), OUT_0=wide), OUT_0=wide)
    far = sinter.cmp_gt(sinter.abs(x, OUT_0=wide), one)
    return sinter.binary_select(x, sinter.binary_select(less, exact, far, OUT_0=wide),
                                sinter.cmp_eq(u, one), OUT_0=out)


@entry("log1p")
def log1p(e, x):
    floating(x)
    # What u = 1 + x rounds away of a small x comes back as x / (u - 1). Where the two are equal,
    # or infinite, there is nothing to bring back.
    wide, one = _wide(e), e.operand(1.0)
    u = sinter.add(x, one, OUT_0=wide)
    log = sinter.log(u, OUT_0=wide)
    lost = sinter.sub(u, one, OUT_0=wide)
    exact = sinter.mul(log, sinter.div(x, lost, OUT_0=wide), OUT_0=wide)
    large = sinter.binary_select(log, exact, sinter.cmp_ge(x, e.operand(1e9)), OUT_0=wide)
    return sinter.binary_select(x, large, sinter.cmp_eq(u, one), OUT_0=e.out())


@entry("gelu")
def gelu(e, x, approximate="none"):
    mode = sinter.gelu_fwd if approximate == "none" else sinter.gelu_approx_tanh_fwd
    return mode(x, OUT_0=e.out())


@entry("gelu_backward")
def gelu_backward(e, dy, x, approximate="none"):
    mode = sinter.gelu_bwd if approximate == "none" else sinter.gelu_approx_tanh_bwd
    return mode(dy, x, OUT_0=e.out())


@entry("sigmoid_backward")
def sigmoid_backward(e, dy, y):
    return sinter.mul(dy, y * (1.0 - y), OUT_0=e.out())


@entry("tanh_backward")
def tanh_backward(e, dy, y):
    return sinter.mul(dy, 1.0 - y * y, OUT_0=e.out())


@entry("threshold_backward")
def threshold_backward(e, dy, x, threshold):
    if threshold == 0:
        return sinter.relu_bwd(dy, x, OUT_0=e.out())
    return sinter.binary_select(e.operand(0.0), dy, sinter.cmp_le(x, e.operand(threshold)),
                                OUT_0=e.out())


@entry("leaky_relu")
def leaky_relu(e, x, negative_slope=0.01):
    return sinter.relu_fwd(x, relu_lower_clip_slope=float(negative_slope), OUT_0=e.out())


@entry("elu")
def elu(e, x, alpha=1.0, scale=1, input_scale=1):
    floating(x)
    if (scale, input_scale) == (1, 1):
        return sinter.elu_fwd(x, elu_alpha=float(alpha), OUT_0=e.out())
    wide = _wide(e)
    below = sinter.mul(_expm1(e, sinter.mul(x, e.operand(input_scale), OUT_0=wide), wide),
                       e.operand(alpha * scale), OUT_0=wide)
    above = sinter.mul(x, e.operand(scale), OUT_0=wide)
    return sinter.binary_select(above, below, sinter.cmp_gt(x, e.operand(0.0)), OUT_0=e.out())


@entry("clamp", "clamp.Tensor", "clamp_min", "clamp_min.Tensor")
def clamp(e, x, lower=None, upper=None):
    floating(x)
    if lower is not None:
        x = sinter.max(x, e.operand(lower), OUT_0=e.out())
    if upper is not None:
        x = sinter.min(x, e.operand(upper), OUT_0=e.out())
    return x


entry("clamp_max", "clamp_max.Tensor")(lambda e, x, upper: clamp(e, x, None, upper))
entry("hardtanh")(lambda e, x, lower=-1.0, upper=1.0: clamp(e, x, lower, upper))


def _comparison(mode):
    def emit(e, a, b):
        # A number takes the tensor's type first, as PyTorch's does.
        return mode(a, e.operand(b, a.data_type if a.data_type in FLOATING else "f64"),
                    OUT_0=e.out())
    return emit


for _name, _mode in {"eq": "cmp_eq", "ne": "cmp_neq", "gt": "cmp_gt", "ge": "cmp_ge",
                     "lt": "cmp_lt", "le": "cmp_le"}.items():
    entry(_name + ".Tensor", _name + ".Scalar")(_comparison(getattr(sinter, _mode)))


def _logical(mode, bits):
    def emit(e, *operands):
        if bits and e.type() != "bool":
            raise Unsupported("arithmetic of integers")
        return mode(*operands, OUT_0=e.out())
    return emit


for _name in ("and", "or", "not"):
    _mode = getattr(sinter, "logical_" + _name)
    entry("logical_" + _name)(_logical(_mode, bits=False))
    entry("bitwise_" + _name + (".Tensor" if _name != "not" else ""))(_logical(_mode, bits=True))


def _xor(bits):
    def emit(e, a, b):
        if bits and e.type() != "bool":
            raise Unsupported("arithmetic of integers")
        true = [sinter.cmp_neq(x, e.operand(0.0, x.data_type if x.data_type in FLOATING else "f32"),
                               OUT_0={"dim": list(x.dim), "data_type": "bool"}) for x in (a, b)]
        return sinter.cmp_neq(*true, OUT_0=e.out())
    return emit


entry("logical_xor")(_xor(bits=False))
entry("bitwise_xor.Tensor")(_xor(bits=True))


@entry("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(e, condition, a, b):
    if e.type() not in FLOATING and e.type() != "bool":
        raise Unsupported("arithmetic of integers")
    return sinter.binary_select(e.operand(a), e.operand(b), condition, OUT_0=e.out())


@entry("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(e, x, mask, value):
    return where(e, mask, value, x)


@entry("_to_copy", "clone")
def copy(e, x, dtype=None, memory_format=None, device=None, layout=None, pin_memory=None,
         non_blocking=False):
    if pin_memory:
        raise Unsupported("pinned memory")
    if x.data_type in FLOATING and e.type() not in FLOATING and e.type() != "bool":
        raise Unsupported("conversion to integers")  # PyTorch truncates, Sinter rounds
    return x if x.data_type == e.type() else e.converted(x)  # strides are a matter of outputs


@entry("prims::convert_element_type")
def convert(e, x, dtype):
    return copy(e, x)
