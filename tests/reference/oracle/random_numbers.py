"""Random numbers in Python integers, and block scaling with formats given by their value lists."""
import math

import numpy as np

from case import Graph, normal
from philox import philox, uniform


def rng():
    seed, offset, dim = 0x123456789ABCDEF, 2**33 + 7, (3, 7)

    def case(name, f, **attributes):
        y = np.array([f(i) for i in range(21)]).reshape(dim)
        g = Graph(f"rng {name}")
        g.node("rng", {"Seed": g.input("Seed", np.array([seed]), "i64"),
                       "Offset": g.input("Offset", np.array([offset]), "i64")},
               {"Y": g.output("Y", y, declare=True)}, **attributes).done()

    case("bernoulli", lambda i: float(uniform(seed, offset, i) < 0.3), distribution="bernoulli",
         probability=0.3)
    case("uniform", lambda i: -2 + 5 * uniform(seed, offset, i), distribution="uniform", minimum=-2,
         maximum=3)

    def gauss(i):
        word = philox(seed, offset + i // 4)
        u, v = ((word[i % 4 // 2 * 2 + j] + 0.5) / 2**32 for j in (0, 1))
        radius = math.sqrt(-2 * math.log(u))
        return 1.5 + 2 * radius * (math.cos, math.sin)[i % 2](2 * math.pi * v)

    case("normal", gauss, distribution="normal", mean=1.5, stddev=2)


def values_of(mantissa_bits, exponent_bits, bias, largest):
    """All non-negative numbers of a small format."""
    values = set()
    for e in range(1 << exponent_bits):
        for m in range(1 << mantissa_bits):
            v = m * 2.0 ** (1 - bias - mantissa_bits) if e == 0 else (
                (1 + m / 2**mantissa_bits) * 2.0 ** (e - bias))
            if v <= largest:
                values.add(v)
    return sorted(values)


FORMATS = {"f8e4m3": values_of(3, 4, 7, 448), "f8e5m2": values_of(2, 5, 15, 57344),
           "f4e2m1": values_of(1, 2, 1, 6)}


def nearest(v, data_type):
    values = FORMATS[data_type]
    a = abs(v)
    best = min(range(len(values)), key=lambda i: (abs(values[i] - a), i % 2))  # ties: even code
    return math.copysign(values[best], v)


def block_scale():
    for y_type, scale_type, block, axis in (("f8e4m3", "f8e8m0", 4, -1), ("f4e2m1", "f8e4m3", 2, 1),
                                            ("f8e5m2", "f64", 3, 0)):
        x = normal(6, 4, 8) * 3
        x[0, :, :4] = 0
        x[:3, 0, 0] = 0
        largest = FORMATS[y_type][-1]
        dim = list(x.shape)
        dim[axis] //= block
        scale, y = np.zeros(dim), np.zeros(x.shape)
        for at in np.ndindex(*dim):
            part = list(slice(i, i + 1) for i in at)
            part[axis] = slice(at[axis] * block, (at[axis] + 1) * block)
            amax = abs(x[tuple(part)]).max()
            if amax == 0:
                s = 1.0
            elif scale_type == "f8e8m0":
                s = 2.0 ** math.ceil(math.log2(amax / largest))
            elif scale_type == "f64":
                s = amax / largest
            else:
                s = nearest(amax / largest, scale_type)
            scale[at] = s
            y[tuple(part)] = np.vectorize(lambda v: nearest(v / s, y_type) if s else v)(
                x[tuple(part)])
        g = Graph(f"block_scale_quantize {y_type} {scale_type}")
        g.node("block_scale_quantize", {"X": g.input("X", x)},
               {"Y": g.output("Y", y, y_type), "Scale": g.output("Scale", scale, scale_type)},
               block_size=block, axis=axis).done(exact=True)
        g = Graph(f"block_scale_dequantize {y_type} {scale_type}")
        g.node("block_scale_dequantize", {"X": g.input("X", y, y_type),
                                          "Scale": g.input("Scale", scale, scale_type)},
               {"Y": g.output("Y", y * np.repeat(scale, block, axis=axis))}, block_size=block,
               axis=axis).done(exact=True)


def cases():
    rng()
    block_scale()
