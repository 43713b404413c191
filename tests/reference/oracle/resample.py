"""Pooling and interpolation from their definitions; gradients of the linear ones by units."""
import math

import numpy as np

from case import Graph, normal

INF = math.inf


def pool(x, mode, window, stride, pre, post, padding):
    spatial = x.ndim - 2
    out = [(x.shape[2 + i] + pre[i] + post[i] - window[i]) // stride[i] + 1 for i in range(spatial)]
    y, index = np.zeros(x.shape[:2] + tuple(out)), np.zeros(x.shape[:2] + tuple(out))
    for at in np.ndindex(y.shape):
        values, inside = [], 0
        for t in np.ndindex(*window):
            p = [at[2 + i] * stride[i] - pre[i] + t[i] for i in range(spatial)]
            here = all(0 <= p[i] < x.shape[2 + i] for i in range(spatial))
            inside += here
            if here or (padding == "edge_val_pad" and mode != "avgpool_exclude_padding"):
                p = [min(max(p[i], 0), x.shape[2 + i] - 1) for i in range(spatial)]
                values.append(x[(at[0], at[1], *p)])
            elif mode != "avgpool_exclude_padding":
                values.append(-INF if padding == "neg_inf_pad" else 0.0)
        if mode == "maxpool":
            nans = [i for i, v in enumerate(values) if v != v]
            index[at] = nans[0] if nans else values.index(max(values))
            y[at] = values[int(index[at])]
        else:
            n = math.prod(window) if mode == "avgpool_include_padding" else inside
            y[at] = sum(values) / n if n else math.nan
    return y, index


def bilinear(x, size):
    """Separable linear interpolation: one axis after the other."""
    for axis, out in enumerate(size):
        n = x.shape[2 + axis]
        moved = np.moveaxis(x, 2 + axis, 0)
        lines = []
        for o in range(out):
            source = min(max((o + 0.5) * n / out - 0.5, 0), n - 1)
            low = min(math.floor(source), n - 1)
            high, w = min(low + 1, n - 1), source - low
            lines.append(moved[low] * (1 - w) + (moved[high] * w if w else 0))
        x = np.moveaxis(np.array(lines), 0, 2 + axis)
    return x


def nearest(x, size):
    for axis, out in enumerate(size):
        n = x.shape[2 + axis]
        x = np.take(x, [o * n // out for o in range(out)], axis=2 + axis)
    return x


WINDOWS = {
    "plain": ((2, 2, 5, 6), dict(window=[2, 3], stride=[2, 2])),
    "overlapping, padded": ((1, 2, 5, 4), dict(window=[3, 3], stride=[2, 1], pre_padding=[1, 1],
                                              post_padding=[1, 0])),
    "1-D edge": ((1, 2, 6), dict(window=[3], stride=[1], pre_padding=[2], post_padding=[2],
                                 padding_mode="edge_val_pad")),
    "3-D": ((1, 1, 3, 4, 3), dict(window=[2, 2, 2], stride=[1, 2, 1])),
}


def linear_gradient(f, shape, dy):
    d = np.zeros(shape)
    for i in np.ndindex(shape):
        unit = np.zeros(shape)
        unit[i] = 1
        d[i] = (f(unit) * dy).sum()
    return d


def pooling():
    for name, (shape, attributes) in WINDOWS.items():
        for mode in ("maxpool", "avgpool_include_padding", "avgpool_exclude_padding"):
            n = len(shape) - 2
            x = distinct(*shape) if mode == "maxpool" else normal(*shape)
            padding = attributes.get("padding_mode",
                                     "neg_inf_pad" if mode == "maxpool" else "zero_pad")
            args = (mode, attributes["window"], attributes["stride"],
                    attributes.get("pre_padding", [0] * n), attributes.get("post_padding", [0] * n),
                    padding)
            y, index = pool(x, *args)
            g = Graph(f"resample {mode} {name}")
            outputs = {"Y": g.output("Y", y)}
            if mode == "maxpool":
                outputs["Index"] = g.output("Index", index, "i32")
            g.node("resample", {"X": g.input("X", x)}, outputs, mode=mode, **attributes).done()
            dy = normal(*y.shape)
            if mode != "maxpool":
                dx = linear_gradient(lambda a: pool(a, *args)[0], shape, dy)
                g = Graph(f"resample_backward {mode} {name}")
                g.node("resample_backward", {"DY": g.input("DY", dy)},
                       {"DX": g.output("DX", dx, declare=True)}, mode=mode, **attributes).done()
                continue
            # With distinct elements the maximum is linear around x.
            dx, step = np.zeros(shape), 2.0**-30
            for i in np.ndindex(shape):
                moved = x.copy()
                moved[i] += step
                dx[i] = ((pool(moved, *args)[0] - y) * dy).sum() / step
            for inputs in ({"Index": (index, "i32")}, {"X": (x, None)}):
                g = Graph(f"resample_backward maxpool {name} from {list(inputs)[0]}")
                ports = {"DY": g.input("DY", dy)}
                ports.update({k: g.input(k, *v) for k, v in inputs.items()})
                g.node("resample_backward", ports, {"DX": g.output("DX", dx, declare=True)},
                       mode=mode, **attributes).done()


def distinct(*shape):
    n = math.prod(shape)
    return (np.random.default_rng(n).permutation(n) / 64.0).reshape(shape) - n / 128


def interpolation():
    for mode, f in (("bilinear", bilinear), ("nearest", nearest)):
        for shape, size in (((1, 2, 4, 5), (7, 10)), ((2, 1, 7, 6), (3, 4)), ((1, 2, 5), (9,)),
                            ((1, 1, 2, 3, 2), (3, 5, 4))):
            x = normal(*shape)
            y = f(x, size)
            label = f"{mode} {'x'.join(map(str, shape[2:]))} to {'x'.join(map(str, size))}"
            g = Graph(f"resample {label}")
            g.node("resample", {"X": g.input("X", x)}, {"Y": g.output("Y", y, declare=True)},
                   mode=mode).done()
            dy = normal(*y.shape)
            dx = linear_gradient(lambda a: f(a, size), shape, dy)
            g = Graph(f"resample_backward {label}")
            g.node("resample_backward", {"DY": g.input("DY", dy)},
                   {"DX": g.output("DX", dx, declare=True)}, mode=mode).done()


def ties():
    x = np.array([[[[1, 3, 3, math.nan], [3, 2, math.nan, 0]]]], dtype=float)
    y, index = pool(x, "maxpool", [2, 2], [1, 1], [1, 1], [1, 1], "neg_inf_pad")
    g = Graph("resample maxpool of ties and NaN")
    g.node("resample", {"X": g.input("X", x)},
           {"Y": g.output("Y", y), "Index": g.output("Index", index, "i8")}, mode="maxpool",
           window=[2, 2], stride=[1, 1], pre_padding=[1, 1], post_padding=[1, 1]).done()


def infinite_padding():
    """The mean of a window that reaches into padding of -inf is -inf, or NaN beside +inf."""
    x = np.array([[[[1, math.inf, 3], [4, 5, 6]]]], dtype=float)
    for mode in ("avgpool_include_padding", "avgpool_exclude_padding"):
        attributes = dict(window=[2, 2], stride=[1, 1], pre_padding=[1, 1], post_padding=[0, 1],
                          padding_mode="neg_inf_pad")
        y, _ = pool(x, mode, *attributes.values())
        g = Graph(f"resample {mode} with padding of -inf")
        g.node("resample", {"X": g.input("X", x)}, {"Y": g.output("Y", y)}, mode=mode,
               **attributes).done()


def cases():
    pooling()
    interpolation()
    ties()
    infinite_padding()
