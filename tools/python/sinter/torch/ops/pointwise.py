"""Arithmetic element by element. PyTorch computes 16-bit types in f32 too and rounds the result."""
import sinter

from ..emit import entry, floating
from ..layouts import FLOATING, Unsupported
from .elementary import less_one, truncated, wide


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
        "sin": "sin", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh_fwd", "mul.Scalar": "mul",
        "div.Tensor": "div", "div.Scalar": "div", "maximum": "max", "minimum": "min",
        "fmod.Tensor": "mod", "fmod.Scalar": "mod", "atan2": "atan2", "pow.Tensor_Tensor": "pow",
        "pow.Scalar": "pow", "silu_backward": "swish_bwd"}.items():
    entry(_name)(_same(getattr(sinter, _mode)))


@entry("mul.Tensor")
def mul(e, a, b):
    if e.type() == "bool":
        return sinter.logical_and(e.operand(a), e.operand(b), OUT_0=e.out())
    return _same(sinter.mul)(e, a, b)


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
    w = wide(e)
    below = sinter.mul(less_one(e, sinter.mul(x, e.operand(input_scale), OUT_0=w), w),
                       e.operand(alpha * scale), OUT_0=w)
    above = sinter.mul(x, e.operand(scale), OUT_0=w)
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
        x = truncated(e, x, wide(e, x))  # Sinter's conversion would round
    return x if x.data_type == e.type() else e.converted(x)  # strides are a matter of outputs


@entry("prims::convert_element_type")
def convert(e, x, dtype):
    return copy(e, x)
