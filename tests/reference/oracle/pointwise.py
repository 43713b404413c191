"""Pointwise modes on grids with special values, from the definitions in GRAPH_JSON.md."""
import math

import numpy as np

from case import Graph, normal

NAN, INF = math.nan, math.inf
GRID = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 0.1, -0.1, 3.0, -3.0, 7.25, -7.25,
        1e-9, -1e-9, 12.0, -12.0, 25.0, -25.0, INF, -INF, NAN]


def each(f):
    """Lifts a function of Python floats; what it cannot compute is NaN."""
    def g(*a):
        arrays = np.broadcast_arrays(*[np.asarray(x, dtype=np.float64) for x in a])
        out = np.empty(arrays[0].shape)
        for i in np.ndindex(out.shape):
            try:
                out[i] = f(*[float(x[i]) for x in arrays])
            except ValueError:
                out[i] = NAN
            except OverflowError:
                out[i] = INF
        return out
    return g


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0 if x == x else NAN


def power(a, b):
    """C's pow; Python's raises where C returns an infinity."""
    odd = math.isfinite(b) and b == int(b) and int(b) % 2 == 1
    sign = -1 if odd and math.copysign(1, a) < 0 else 1
    if a == 0 and b < 0:
        return sign * INF
    try:
        return math.pow(a, b)
    except OverflowError:
        return sign * INF


def quotient(a, b):
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def cdf(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def pdf(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


GELU_A, GELU_B = math.sqrt(2 / math.pi), 0.044715


def gelu_tanh(x):
    u = GELU_A * (x + GELU_B * x**3)
    return x * sigmoid(2 * u) if x == x else NAN


def gelu_tanh_slope(x):
    u, du = GELU_A * (x + GELU_B * x**3), GELU_A * (1 + 3 * GELU_B * x * x)
    return sigmoid(2 * u) + x * sigmoid(2 * u) * sigmoid(-2 * u) * 2 * du


def truth(v):
    return 1.0 if v else 0.0


def relu(x, lower, upper, slope):
    if x != x:
        return NAN
    return lower + slope * (x - lower) if x <= lower else upper if x >= upper else x


def relu_slope(x, lower, upper, slope):
    return slope if x <= lower else 0.0 if x >= upper else 1.0


def mean_round(x):
    return float(np.rint(np.float64(x)))


def softplus(x, beta):
    z = beta * x
    return (z + math.log1p(math.exp(-z)) if z > 0 else math.log1p(math.exp(z))) / beta


UNARY = {
    "identity": lambda x: x, "abs": abs, "neg": lambda x: -x,
    "ceil": lambda x: float(np.ceil(x)), "floor": lambda x: float(np.floor(x)),
    "round": mean_round, "sqrt": lambda x: math.sqrt(x) if x != INF else INF,
    "rsqrt": lambda x: quotient(1, float(np.sqrt(x))) if not x < 0 else NAN,
    "reciprocal": lambda x: quotient(1, x), "exp": math.exp,
    "log": lambda x: -INF if x == 0 else math.log(x), "sin": math.sin, "cos": math.cos,
    "tan": math.tan, "erf": math.erf, "tanh_fwd": math.tanh, "sigmoid_fwd": sigmoid,
    "logical_not": lambda x: truth(x == 0),
}
BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": quotient, "pow": power, "mod": lambda a, b: a if math.isinf(b) and not math.isinf(a)
    else math.fmod(a, b), "atan2": math.atan2, "add_square": lambda a, b: a + b * b,
    "min": lambda a, b: NAN if a != a or b != b else min(a, b),
    "max": lambda a, b: NAN if a != a or b != b else max(a, b),
    "logical_and": lambda a, b: truth(a != 0 and b != 0),
    "logical_or": lambda a, b: truth(a != 0 or b != 0),
    "cmp_eq": lambda a, b: truth(a == b), "cmp_neq": lambda a, b: truth(a != b),
    "cmp_gt": lambda a, b: truth(a > b), "cmp_ge": lambda a, b: truth(a >= b),
    "cmp_lt": lambda a, b: truth(a < b), "cmp_le": lambda a, b: truth(a <= b),
}
FINITE = [x for x in GRID if math.isfinite(x)]
# Modes with a smooth formula: the value at x, and its derivative, on finite grids.
SMOOTH = {
    "gelu": (lambda x: x * cdf(x), lambda x: cdf(x) + x * pdf(x), {}),
    "gelu_approx_tanh": (gelu_tanh, gelu_tanh_slope, {}),
    "swish": (lambda x: x * sigmoid(1.5 * x),
              lambda x: sigmoid(1.5 * x) * (1 + 1.5 * x * sigmoid(-1.5 * x)), {"swish_beta": 1.5}),
    "softplus": (lambda x: softplus(x, 2), lambda x: sigmoid(2 * x), {"softplus_beta": 2}),
    "elu": (lambda x: x if x > 0 else 0.75 * math.expm1(x),
            lambda x: 1.0 if x > 0 else 0.75 * math.exp(x), {"elu_alpha": 0.75}),
    "tanh": (math.tanh, lambda x: 1 / math.cosh(x) ** 2, {}),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x), {}),
    "relu": (lambda x: relu(x, -1, 6, 0.25), lambda x: relu_slope(x, -1, 6, 0.25),
             {"relu_lower_clip": -1, "relu_upper_clip": 6, "relu_lower_clip_slope": 0.25}),
}


def pointwise(name, mode, arrays, expected, limits=False, **attributes):
    g = Graph(name)
    inputs = {f"IN_{i}": g.input(f"x{i}", a) for i, a in enumerate(arrays)}
    g.node("pointwise", inputs, {"OUT_0": g.output("y", expected)}, mode=mode, **attributes).done(
        limits=limits)


def cases():
    grid = np.array(GRID)
    with np.errstate(all="ignore"):
        for mode, f in UNARY.items():
            pointwise(f"pointwise {mode}", mode, [grid], each(f)(grid))
        for mode, f in BINARY.items():
            a, b = grid[:, None], grid[None, ::2]
            pointwise(f"pointwise {mode}", mode, [a, b], each(f)(a, b))
    x = np.array(FINITE)
    dy = normal(len(FINITE)) + 0.001
    for stem, (f, slope, attributes) in SMOOTH.items():
        if stem not in ("tanh", "sigmoid"):
            pointwise(f"pointwise {stem}_fwd", f"{stem}_fwd", [x], each(f)(x), **attributes)
        pointwise(f"pointwise {stem}_bwd", f"{stem}_bwd", [dy, x], dy * each(slope)(x), **attributes)
    pointwise("pointwise relu_fwd of NaN", "relu_fwd", [np.array([NAN, -1, 2])],
              np.array([NAN, 0, 2]))
    a, b, c = normal(4, 1), normal(1, 5), np.array([[0, 1, -2, NAN, -0.0]])
    pointwise("pointwise binary_select", "binary_select", [a, b, c],
              np.where(np.broadcast_to(c, (4, 5)) != 0, np.broadcast_to(a, (4, 5)),
                       np.broadcast_to(b, (4, 5))))
    pointwise("pointwise gen_index", "gen_index", [normal(2, 3, 4)],
              np.broadcast_to(np.arange(3.0)[None, :, None], (2, 3, 4)), axis=-2)
    a, b = normal(3, 1, 2), normal(4, 1)
    pointwise("pointwise broadcast of ranks", "add", [a, b], a + b)
