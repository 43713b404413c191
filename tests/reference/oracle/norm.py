"""Softmax and the norms from their definitions; gradients by complex steps."""
import numpy as np

from case import Graph, gradient, normal

EPSILON = 0.0009765625


def softmax(x, axis):
    e = np.exp(x - np.max(np.real(x), axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def softmaxes():
    for axis in (-1, 1):
        x = normal(3, 4, 5) * 3
        y = softmax(x, axis)
        stats = np.log(np.exp(x).sum(axis=axis, keepdims=True))
        g = Graph(f"softmax axis {axis}")
        g.node("softmax", {"X": g.input("X", x)},
               {"Y": g.output("Y", y), "Stats": g.output("Stats", stats)}, axis=axis).done()
        dy = normal(3, 4, 5)
        dx = gradient(lambda a: softmax(a, axis), [x], 0, dy)
        g = Graph(f"softmax_backward axis {axis}")
        g.node("softmax_backward", {"Y": g.input("Y", y), "DY": g.input("DY", dy)},
               {"DX": g.output("DX", dx)}, axis=axis).done()


def statistics(x, axes, centred=True):
    mean = x.mean(axis=axes, keepdims=True) if centred else 0
    inv = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + EPSILON)
    return mean, inv


def grouped(x, groups):
    return x.reshape(x.shape[0], groups, -1)


class Norm:
    def __init__(self, op, x, scale, axes=None, groups=0, centred=True):
        self.op, self.x, self.scale, self.bias = op, x, scale, normal(*scale.shape)
        self.axes, self.groups, self.centred = axes, groups, centred

    def statistics(self, x):
        if not self.groups:
            return statistics(x, self.axes, self.centred)
        mean, inv = statistics(grouped(x, self.groups), (2,))
        dim = (x.shape[0], self.groups) + (1,) * (x.ndim - 2)
        return mean.reshape(dim), inv.reshape(dim)

    def forward(self, x, scale, bias):
        if self.groups:
            z = grouped(x, self.groups)
            mean, inv = statistics(z, (2,))
            return ((z - mean) * inv).reshape(x.shape) * scale + bias
        mean, inv = statistics(x, self.axes, self.centred)
        return (x - mean) * inv * scale + bias

    def attributes(self):
        return {"groups": self.groups} if self.groups else {}

    def cases(self):
        x, scale, bias = self.x, self.scale, self.bias
        mean, inv = self.statistics(x)
        for with_bias in (True, False):
            g = Graph(f"{self.op} {'training' if with_bias else 'inference, no bias'}")
            inputs = {"X": g.input("X", x), "SCALE": g.input("SCALE", scale),
                      "epsilon": g.value("epsilon", EPSILON)}
            if with_bias:
                inputs["BIAS"] = g.input("BIAS", bias)
            outputs = {"Y": g.output("Y", self.forward(x, scale, bias if with_bias else 0))}
            attributes = self.attributes()
            if with_bias:
                if self.centred:
                    outputs["MEAN"] = g.output("MEAN", mean)
                outputs["INV_VARIANCE"] = g.output("INV_VARIANCE", inv)
            if self.op != "batchnorm":
                attributes["forward_phase"] = "training" if with_bias else "inference"
            g.node(self.op, inputs, outputs, **attributes).done()
        dy = normal(*x.shape)
        d = [gradient(self.forward, [x, scale, bias], i, dy) for i in range(3)]
        g = Graph(f"{self.op}_backward")
        inputs = {"DY": g.input("DY", dy), "X": g.input("X", x), "SCALE": g.input("SCALE", scale),
                  "INV_VARIANCE": g.input("INV_VARIANCE", inv)}
        if self.centred:
            inputs["MEAN"] = g.input("MEAN", mean)
        g.node(f"{self.op}_backward", inputs,
               {"DX": g.output("DX", d[0]), "DSCALE": g.output("DSCALE", d[1]),
                "DBIAS": g.output("DBIAS", d[2])}, **self.attributes()).done()


def running_statistics():
    x, scale, bias = normal(3, 2, 2, 3), normal(1, 2, 1, 1), normal(1, 2, 1, 1)
    mean, inv = statistics(x, (0, 2, 3))
    previous_mean, previous_var = normal(1, 2, 1, 1), abs(normal(1, 2, 1, 1)) + 0.5
    n, momentum = 18, 0.25
    unbiased = x.var(axis=(0, 2, 3), keepdims=True) * n / (n - 1)
    g = Graph("batchnorm running statistics")
    g.node("batchnorm",
           {"X": g.input("X", x), "SCALE": g.input("SCALE", scale), "BIAS": g.input("BIAS", bias),
            "epsilon": g.value("epsilon", EPSILON), "MOMENTUM": g.value("MOMENTUM", momentum),
            "PREV_RUNNING_MEAN": g.input("PREV_RUNNING_MEAN", previous_mean),
            "PREV_RUNNING_VAR": g.input("PREV_RUNNING_VAR", previous_var)},
           {"Y": g.output("Y", (x - mean) * inv * scale + bias), "MEAN": g.output("MEAN", mean),
            "INV_VARIANCE": g.output("INV_VARIANCE", inv),
            "NEXT_RUNNING_MEAN": g.output("NEXT_RUNNING_MEAN", (1 - momentum) * previous_mean
                                          + momentum * mean),
            "NEXT_RUNNING_VAR": g.output("NEXT_RUNNING_VAR", (1 - momentum) * previous_var
                                         + momentum * unbiased)}).done()
    g = Graph("batchnorm_inference")
    g.node("batchnorm_inference",
           {"X": g.input("X", x), "MEAN": g.input("MEAN", mean),
            "INV_VARIANCE": g.input("INV_VARIANCE", inv), "SCALE": g.input("SCALE", scale),
            "BIAS": g.input("BIAS", bias)},
           {"Y": g.output("Y", (x - mean) * inv * scale + bias)}).done()


def cases():
    softmaxes()
    Norm("layernorm", normal(2, 3, 6), normal(1, 1, 6), (2,)).cases()
    Norm("rmsnorm", normal(2, 3, 6), normal(1, 1, 6), (2,), centred=False).cases()
    Norm("adaptive_layernorm", normal(2, 3, 6), normal(2, 1, 6), (2,)).cases()
    Norm("instancenorm", normal(2, 3, 3, 2), normal(1, 3, 1, 1), (2, 3)).cases()
    Norm("groupnorm", normal(2, 4, 3, 2), normal(1, 4, 1, 1), groups=2).cases()
    Norm("batchnorm", normal(3, 2, 2, 3), normal(1, 2, 1, 1), (0, 2, 3)).cases()
    running_statistics()
