"""Pointwise modes and their gradients where formulas leave the numbers: zeros of both signs, the
infinities, NaN, the largest and smallest numbers of the types, and where float or double formulas
over- or underflow. The values are limits: a factor that vanishes faster than the other grows wins."""
import math

import numpy as np

from case import Graph
from pointwise import BINARY, INF, NAN, UNARY, each, pointwise

TYPES = [3.4028234663852886e38, 2.0**-126, 2.0**-149,      # f32: largest, least normal, least
         3.3895313892515355e38, 2.0**-133,                 # bf16
         65504.0, 2.0**-14, 2.0**-24, 448.0, 57344.0]      # f16, f8
# exp, tanh, erf, normal distribution and gates in float; squares and cubes that overflow; products
# with beta that do; 0.99 of the largest number, which a clip may be.
THRESHOLDS = [0.5, 1.0, 3.0, 5.1, 9.1, 10.9, 14.5, 17.4, 64.5, 88.73, 103.98, 4096.0, 4.7e12, 1.7e19,
              1.85e19, 8.6e37, 1.7e38, 3e38]
DOUBLES = [1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 40.0, 709.79, 745.14, 1e102,
           1.4e154, 4.5e307]
SINGLE = [0.0, INF, NAN] + [float(np.float32(x)) for x in TYPES + THRESHOLDS]


def both_signs(values):
    return np.array([s * v for v in values for s in (1.0, -1.0)])


POINTS = both_signs(SINGLE + DOUBLES)
PAIRED = np.append(both_signs([0.0, INF, 1.0, 3.0, 0.5, 3.4028234663852886e38, 2.0**-149,
                               float(np.float32(1.85e19)), 1.7976931348623157e308]), NAN)
GRADIENTS = np.array([1.0, -2.5, 0.0, NAN, 3.4028234663852886e38])


def logistic(z):
    e = math.exp(-abs(z))
    return 1 / (1 + e) if z >= 0 else e / (1 + e)


def vanishing(x, factor):
    """x times a factor that is 0 in the limit of x."""
    return math.copysign(0.0, x) if factor == 0 else x * factor


def cdf(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def cube(x):
    return 2 * math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)


def gelu_slope(x):
    return cdf(x) + (x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if abs(x) < 50 else 0)


def gelu_tanh_slope(x):
    if abs(x) > 50:
        return float(x > 0)
    z = cube(x)
    du = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return logistic(z) + x * logistic(z) * logistic(-z) * du


def swish(beta):
    def f(x):
        return vanishing(x, logistic(beta * x))

    def slope(x):
        z = beta * x
        return logistic(z) + (z * logistic(z) * logistic(-z) if abs(z) < 1000 else 0)
    return f, slope, {"swish_beta": beta}


def softplus(beta):
    def f(x):
        straight = max(x, 0.0) if beta > 0 else min(x, 0.0)
        return straight + math.log1p(math.exp(-abs(beta * x))) / beta
    return f, lambda x: logistic(beta * x), {"softplus_beta": beta}


def clipped(lower, upper, slope):
    """Without a clip there is nothing at infinity either."""
    def f(x):
        if x <= lower:
            if math.isinf(lower) or slope == 0:
                return lower
            return slope * x + (1 - slope) * lower if lower or x == 0 else slope * x
        return upper if x >= upper else x

    def derivative(x):
        if x <= lower and lower != -INF:
            return slope
        return 0.0 if x >= upper and upper != INF else 1.0
    attributes = {"relu_lower_clip": lower, "relu_lower_clip_slope": slope}
    if upper != INF:
        attributes["relu_upper_clip"] = upper
    return f, derivative, attributes


LARGE = float(np.float32(3e38))
MODES = {
    "gelu": (lambda x: vanishing(x, cdf(x)), gelu_slope, {}),
    "gelu_approx_tanh": (lambda x: vanishing(x, logistic(cube(x))), gelu_tanh_slope, {}),
    "swish": swish(1), "swish beta 4": swish(4), "swish beta -0.5": swish(-0.5),
    "swish beta 0.25": swish(0.25),
    "softplus": softplus(1), "softplus beta 4": softplus(4), "softplus beta -2": softplus(-2),
    "elu": (lambda x: x if x >= 0 else 0.75 * math.expm1(x),
            lambda x: 1.0 if x > 0 else 0.75 * math.exp(x), {"elu_alpha": 0.75}),
    "tanh": (math.tanh, lambda x: 4 * logistic(2 * x) * logistic(-2 * x), {}),
    "sigmoid": (logistic, lambda x: logistic(x) * logistic(-x), {}),
    "relu": clipped(0, INF, 0), "relu clip 6": clipped(0, 6, 0), "relu leaky": clipped(0, INF, 0.25),
    "relu slope and clip": clipped(-1, 6, 0.25), "relu large clip": clipped(LARGE, INF, 0.5),
    "relu large negative clip": clipped(-LARGE, LARGE, 0.5), "relu crossed clips": clipped(2, -2, 0),
}


def of_limits(f):
    def g(*a):
        if any(x != x for x in a):
            return NAN
        return f(*a)
    return each(g)


def product(a, b):
    with np.errstate(all="ignore"):
        return float(np.float64(a) * np.float64(b))


def gradient(slope, attributes):
    """The chain rule's product, but what is clipped passes nothing, whatever dy is."""
    def f(dy, x):
        s = slope(x) if x == x else NAN
        if "relu_lower_clip" in attributes:
            return 0.0 if s == 0 else dy * (1.0 if x != x else s)
        return product(dy, s)
    return each(f)


def smaller(a, b):
    """NumPy's, but -0 lies below 0."""
    return np.where((a == 0) & (b == 0) & np.signbit(a), a, np.minimum(a, b))


def add_square(a, b):
    """The square of a finite number is finite, however large."""
    return np.where(np.isinf(a) & np.isfinite(b), a, a + b * b)


NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "mod": np.fmod, "min": smaller, "max": lambda a, b: -smaller(-a, -b), "atan2": np.arctan2, "abs": np.abs,
    "neg": np.negative, "ceil": np.ceil, "floor": np.floor, "round": np.rint, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "exp": np.exp, "log": np.log,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh_fwd": np.tanh, "identity": np.positive,
    "add_square": add_square, "logical_not": lambda x: (x == 0) * 1.0,
    "logical_and": lambda a, b: np.logical_and(a, b) * 1.0,
    "logical_or": lambda a, b: np.logical_or(a, b) * 1.0,
    "cmp_eq": lambda a, b: (a == b) * 1.0, "cmp_neq": lambda a, b: (a != b) * 1.0,
    "cmp_gt": lambda a, b: (a > b) * 1.0, "cmp_ge": lambda a, b: (a >= b) * 1.0,
    "cmp_lt": lambda a, b: (a < b) * 1.0, "cmp_le": lambda a, b: (a <= b) * 1.0,
    "erf": each(math.erf), "sigmoid_fwd": of_limits(logistic),
}


def case(name, mode, arrays, expected, **attributes):
    pointwise("limits of " + name, mode, arrays, expected, limits=True, **attributes)


def softmax():
    """Y by exp(x - max), so that it is NaN where that is no number; Stats have their limits."""
    x = np.array([[-INF] * 3, [1.0, INF, 2.0], [1.0, NAN, INF], [-INF, 0.5, -INF], [INF, -INF, INF],
                  [1.0, 2.0, 3.0], [1e308, -1e308, 1e308], [-1e308, -INF, -1.5e308]])
    with np.errstate(all="ignore"):
        top = x.max(axis=1, keepdims=True)
        e = np.exp(x - top)
        stats = np.where(np.isfinite(top), top + np.log(e.sum(axis=1, keepdims=True)), top)
        g = Graph("limits of softmax")
        g.node("softmax", {"X": g.input("X", x)},
               {"Y": g.output("Y", e / e.sum(axis=1, keepdims=True)), "Stats": g.output("Stats", stats)},
               axis=-1).done(limits=True)


def reductions():
    """Signs of zeros, infinities that cancel, NaN, and what is left without zeros. A sum starts from
    0, so that -0 alone gives 0, as NumPy has it."""
    x = np.array([[-0.0, -0.0, -0.0], [-0.0, 0.0, -0.0], [-0.0, 2.0, 3.0], [0.0, -2.0, 3.0],
                  [INF, -INF, 1.0], [INF, 0.0, 1.0], [-INF, -0.0, 2.0], [NAN, 0.0, INF],
                  [1e200, -1e200, 1e-200], [1e308, 1e308, -1e308]])

    def left(row):
        return np.prod(row[row != 0])
    modes = {"add": np.sum, "mul": np.prod, "avg": np.mean, "amax": lambda r: np.max(np.abs(r)),
             "norm1": lambda r: np.sum(np.abs(r)), "mul_no_zeros": left,
             "norm2": lambda r: np.sqrt(np.sum(r * r)),
             "max": lambda r: 0.0 if np.max(r) == 0 and not np.signbit(r[r == 0]).all() else np.max(r),
             "min": lambda r: -0.0 if np.min(r) == 0 and np.signbit(r[r == 0]).any() else np.min(r)}
    for mode, f in modes.items():
        for n in (1, 3):
            part = x[:, :n]
            g = Graph(f"limits of reduction {mode} of {n}")
            with np.errstate(all="ignore"):
                y = np.array([[f(row)] for row in part])
            g.node("reduction", {"X": g.input("X", part)}, {"Y": g.output("Y", y, declare=True)},
                   mode=mode).done(limits=True)


def cases():
    softmax()
    reductions()
    grid = np.broadcast_arrays(PAIRED[:, None], PAIRED[None, :])
    a, b = (g.ravel() for g in grid)
    with np.errstate(all="ignore"):
        for mode in list(UNARY) + list(BINARY):
            if mode in ("tanh_fwd", "sigmoid_fwd"):
                continue
            operands = [POINTS] if mode in UNARY else [a, b]
            case(mode, mode, operands, NUMPY[mode](*operands))
        c = np.resize(np.array([0.0, -0.0, 1.0, NAN, INF, -INF, 2.0**-149]), a.shape)
        case("binary_select", "binary_select", [a, b, c], np.where(c != 0, a, b))
        for name, (f, slope, attributes) in MODES.items():
            stem = name.split(" ")[0]
            gradients = np.append(GRADIENTS, [INF] if stem == "relu" else [])
            dy, x = (g.ravel() for g in np.broadcast_arrays(gradients[:, None], POINTS[None, :]))
            case(f"{name}_fwd", f"{stem}_fwd", [POINTS], of_limits(f)(POINTS), **attributes)
            case(f"{name}_bwd", f"{stem}_bwd", [dy, x], gradient(slope, attributes)(dy, x),
                 **attributes)
