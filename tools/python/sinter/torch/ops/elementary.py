"""Elementary functions that PyTorch has, written in those that Sinter has."""
import math

import sinter

from ..emit import entry, floating


def wide(e, x=None):
    """Fields of a value between the functions: not rounded to 16 bits. Of the result's type or, where
    that is an integer, of x's."""
    return {"data_type": "f64" if (x.data_type if x is not None else e.type()) == "f64" else "f32"}


def _times(mode, factor):
    """A function of Sinter's times a number."""
    def emit(e, x):
        floating(x)
        return sinter.mul(mode(x, OUT_0=wide(e)), e.operand(factor), OUT_0=e.out())
    return emit


entry("log2")(_times(sinter.log, 1 / math.log(2)))
entry("log10")(_times(sinter.log, 1 / math.log(10)))
entry("exp2")(lambda e, x: sinter.pow(e.operand(2.0), x, OUT_0=e.out()))
entry("atan")(lambda e, x: sinter.atan2(x, e.operand(1.0), OUT_0=e.out()))


@entry("sign", "sgn")
def sign(e, x):
    """Of NaN it is 0, as there."""
    floating(x)
    return _sign(e, x, e.out())


def _sign(e, x, out=None):
    zero = e.operand(0.0)
    below = sinter.binary_select(e.operand(-1.0), zero, sinter.cmp_lt(x, zero), OUT_0=wide(e))
    return sinter.binary_select(e.operand(1.0), below, sinter.cmp_gt(x, zero),
                                OUT_0=out or wide(e))


@entry("trunc")
def trunc(e, x):
    floating(x)
    return truncated(e, x, e.out())


def truncated(e, x, out):
    """Towards 0."""
    return sinter.binary_select(sinter.ceil(x, OUT_0=wide(e, x)), sinter.floor(x, OUT_0=wide(e, x)),
                                sinter.cmp_lt(x, e.operand(0.0)), OUT_0=out)


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
    rest = sinter.mod(x, divisor, OUT_0=wide(e))
    other = sinter.cmp_lt(sinter.mul(rest, divisor, OUT_0=wide(e)), zero)
    return sinter.binary_select(sinter.add(rest, divisor, OUT_0=wide(e)), rest, other,
                                OUT_0=e.out())


@entry("expm1")
def expm1(e, x):
    floating(x)
    return less_one(e, x, e.out())


def less_one(e, x, out):
    """exp(x) - 1."""
    # What u = exp(x) rounds away of a small x comes back as x / log(u) (Kahan). Where u is 1 it is
    # x, where u is infinite or far below 1 there is nothing to bring back.
    w, one = wide(e), e.operand(1.0)
    u = sinter.exp(x, OUT_0=w)
    less = sinter.sub(u, one, OUT_0=w)
    exact = sinter.mul(less, sinter.div(x, sinter.log(u, OUT_0=w), OUT_0=w), OUT_0=w)
    far = sinter.cmp_gt(sinter.abs(x, OUT_0=w), one)
    return sinter.binary_select(x, sinter.binary_select(less, exact, far, OUT_0=w),
                                sinter.cmp_eq(u, one), OUT_0=out)


@entry("log1p")
def log1p(e, x):
    floating(x)
    return of_one_more(e, x, e.out())


def of_one_more(e, x, out):
    """log(1 + x)."""
    # What u = 1 + x rounds away of a small x comes back as x / (u - 1). Where the two are equal,
    # or infinite, there is nothing to bring back.
    w, one = wide(e), e.operand(1.0)
    u = sinter.add(x, one, OUT_0=w)
    log = sinter.log(u, OUT_0=w)
    lost = sinter.sub(u, one, OUT_0=w)
    exact = sinter.mul(log, sinter.div(x, lost, OUT_0=w), OUT_0=w)
    large = sinter.binary_select(log, exact, sinter.cmp_ge(x, e.operand(1e9)), OUT_0=w)
    return sinter.binary_select(x, large, sinter.cmp_eq(u, one), OUT_0=out)


def _with_sign_of(e, x, sign, out):
    """|x| with the sign of another number, which 1 / 0 tells of a zero. The sign of a NaN nobody
    sees: it counts as none."""
    w, zero = wide(e), e.operand(0.0)
    negative = sinter.binary_select(
        sinter.cmp_lt(sinter.reciprocal(sign, OUT_0=w), zero), sinter.cmp_lt(sign, zero),
        sinter.cmp_eq(sign, zero))
    size = sinter.abs(x, OUT_0=w)
    return sinter.binary_select(sinter.neg(size, OUT_0=w), size, negative, OUT_0=out)


@entry("copysign.Tensor", "copysign.Scalar")
def copysign(e, x, sign):
    if e.type() != "f64" and not isinstance(sign, float):
        floating(sign)
    floating(x)
    return _with_sign_of(e, x, e.operand(sign), e.out())


def _half_exp(e, size):
    """exp(size) / 2, which is a number still where exp(size) is none."""
    root = sinter.exp(sinter.mul(size, e.operand(0.5), OUT_0=wide(e)), OUT_0=wide(e))
    return sinter.mul(sinter.mul(root, e.operand(0.5), OUT_0=wide(e)), root, OUT_0=wide(e))


def _half_exp_below(e, size):
    return sinter.mul(sinter.exp(sinter.neg(size, OUT_0=wide(e)), OUT_0=wide(e)), e.operand(0.5),
                      OUT_0=wide(e))


@entry("cosh")
def cosh(e, x):
    floating(x)
    size = sinter.abs(x, OUT_0=wide(e))
    return sinter.add(_half_exp(e, size), _half_exp_below(e, size), OUT_0=e.out())


@entry("sinh")
def sinh(e, x):
    floating(x)
    # Near 0 the two exponentials are alike: there u = exp(x) - 1, and sinh is (u + u / (u + 1)) / 2.
    w = wide(e)
    size = sinter.abs(x, OUT_0=w)
    u = less_one(e, size, w)
    small = sinter.mul(sinter.add(u, sinter.div(u, sinter.add(u, e.operand(1.0), OUT_0=w), OUT_0=w),
                                  OUT_0=w), e.operand(0.5), OUT_0=w)
    large = sinter.sub(_half_exp(e, size), _half_exp_below(e, size), OUT_0=w)
    value = sinter.binary_select(large, small, sinter.cmp_gt(size, e.operand(1.0)), OUT_0=w)
    return _with_sign_of(e, value, x, e.out())


@entry("asinh")
def asinh(e, x):
    floating(x)
    # log(1 + a + a^2 / (1 + sqrt(1 + a^2))) of a = |x|; where a^2 is none it is log(a) + log(2).
    w, one = wide(e), e.operand(1.0)
    a = sinter.abs(x, OUT_0=w)
    square = sinter.mul(a, a, OUT_0=w)
    root = sinter.sqrt(sinter.add(square, one, OUT_0=w), OUT_0=w)
    above = sinter.div(square, sinter.add(root, one, OUT_0=w), OUT_0=w)
    near = of_one_more(e, sinter.add(a, above, OUT_0=w), w)
    value = sinter.binary_select(_log_of_double(e, a), near, _is_large(e, a), OUT_0=w)
    return _with_sign_of(e, value, x, e.out())


def _is_large(e, a):
    return sinter.cmp_gt(a, e.operand(1e9))


def _log_of_double(e, a):
    return sinter.add(sinter.log(a, OUT_0=wide(e)), e.operand(math.log(2)), OUT_0=wide(e))


@entry("acosh")
def acosh(e, x):
    floating(x)
    # log(1 + t + sqrt(2 t + t^2)) of t = x - 1.
    w = wide(e)
    t = sinter.sub(x, e.operand(1.0), OUT_0=w)
    square = sinter.mul(t, sinter.add(t, e.operand(2.0), OUT_0=w), OUT_0=w)
    near = of_one_more(e, sinter.add(t, sinter.sqrt(square, OUT_0=w), OUT_0=w), w)
    return sinter.binary_select(_log_of_double(e, x), near, _is_large(e, x), OUT_0=e.out())


@entry("atanh")
def atanh(e, x):
    floating(x)
    w, one = wide(e), e.operand(1.0)
    a = sinter.abs(x, OUT_0=w)
    ratio = sinter.div(sinter.add(a, a, OUT_0=w), sinter.sub(one, a, OUT_0=w), OUT_0=w)
    value = sinter.mul(of_one_more(e, ratio, w), e.operand(0.5), OUT_0=w)
    return _with_sign_of(e, value, x, e.out())


def _other_leg(e, x):
    """sqrt(1 - x^2)."""
    w, one = wide(e), e.operand(1.0)
    return sinter.sqrt(sinter.mul(sinter.sub(one, x, OUT_0=w), sinter.add(one, x, OUT_0=w), OUT_0=w),
                       OUT_0=w)


@entry("asin")
def asin(e, x):
    floating(x)
    return sinter.atan2(x, _other_leg(e, x), OUT_0=e.out())


@entry("acos")
def acos(e, x):
    floating(x)
    return sinter.atan2(_other_leg(e, x), x, OUT_0=e.out())


@entry("hypot")
def hypot(e, x, y):
    """Also where squares are too large or too small to be numbers. Of an infinity it is one."""
    floating(x)
    w, zero, infinite = wide(e), e.operand(0.0), e.operand(math.inf)
    x, y = sinter.abs(x, OUT_0=w), sinter.abs(y, OUT_0=w)
    large, small = sinter.max(x, y, OUT_0=w), sinter.min(x, y, OUT_0=w)
    ratio = sinter.div(small, large, OUT_0=w)
    root = sinter.sqrt(sinter.add(sinter.mul(ratio, ratio, OUT_0=w), e.operand(1.0), OUT_0=w),
                       OUT_0=w)
    value = sinter.binary_select(zero, sinter.mul(large, root, OUT_0=w),
                                 sinter.cmp_eq(large, zero), OUT_0=w)
    any_infinite = sinter.logical_or(sinter.cmp_eq(x, infinite), sinter.cmp_eq(y, infinite))
    return sinter.binary_select(infinite, value, any_infinite, OUT_0=e.out())


def _but_nan(mode):
    """The other operand where one is NaN."""
    def emit(e, x, y):
        floating(x)
        both = mode(x, y, OUT_0=wide(e))
        one = sinter.binary_select(x, both, sinter.cmp_neq(y, y), OUT_0=wide(e))
        return sinter.binary_select(y, one, sinter.cmp_neq(x, x), OUT_0=e.out())
    return emit


entry("fmax")(_but_nan(sinter.max))
entry("fmin")(_but_nan(sinter.min))


@entry("div.Tensor_mode", "div.Scalar_mode")
def divide(e, x, y, rounding_mode=None):
    floating(x, "a division")
    y = e.operand(y)
    if rounding_mode is None:
        return sinter.div(x, y, OUT_0=e.out())
    w = wide(e)
    if rounding_mode == "trunc":
        return truncated(e, sinter.div(x, y, OUT_0=w), e.out())
    # As PyTorch: what fmod leaves is taken off first, so that the quotient is nearly whole.
    zero, one = e.operand(0.0), e.operand(1.0)
    rest = sinter.mod(x, y, OUT_0=w)
    quotient = sinter.div(sinter.sub(x, rest, OUT_0=w), y, OUT_0=w)
    other = sinter.cmp_lt(sinter.mul(_sign(e, rest), _sign(e, y), OUT_0=w), zero)
    quotient = sinter.binary_select(sinter.sub(quotient, one, OUT_0=w), quotient, other, OUT_0=w)
    whole = sinter.floor(quotient, OUT_0=w)
    above = sinter.cmp_gt(sinter.sub(quotient, whole, OUT_0=w), e.operand(0.5))
    whole = sinter.binary_select(sinter.add(whole, one, OUT_0=w), whole, above, OUT_0=w)
    return sinter.binary_select(sinter.div(x, y, OUT_0=w), whole, sinter.cmp_eq(y, zero),
                                OUT_0=e.out())


@entry("round.decimals")
def round_decimals(e, x, decimals):
    floating(x)
    w, power = wide(e), e.operand(10.0 ** abs(decimals))
    there, back = (sinter.mul, sinter.div) if decimals >= 0 else (sinter.div, sinter.mul)
    return back(sinter.round(there(x, power, OUT_0=w), OUT_0=w), power, OUT_0=e.out())
