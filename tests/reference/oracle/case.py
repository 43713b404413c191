"""One oracle case: a graph document, its inputs and the outputs it must give."""
import numpy as np

CASES = []
RANDOM = np.random.default_rng(20240601)


def normal(*shape):
    """Random numbers that print short: multiples of 2^-8."""
    return np.round(RANDOM.normal(size=shape) * 256) / 256


def number(v):
    v = float(v)
    if np.isnan(v):
        return "nan"
    if np.isinf(v):
        return "inf" if v > 0 else "-inf"
    return int(v) if v == int(v) and abs(v) < 2**53 and not (v == 0 and np.signbit(v)) else v


def flat(a):
    a = np.asarray(a).ravel()
    return a.tolist() if a.dtype.kind in "iu" else [number(v) for v in a]


class Graph:
    """Collects a document; every tensor is f64 unless `types` says otherwise."""

    def __init__(self, name):
        self.name = name
        self.tensors, self.nodes, self.inputs, self.outputs = {}, [], {}, {}

    def input(self, name, array, data_type=None, dim=None):
        array = np.asarray(array)
        entry = {"dim": [int(d) for d in (dim if dim is not None else array.shape)]}
        if data_type:
            entry["data_type"] = data_type
        self.tensors[name] = entry
        self.inputs[name] = array
        return name

    def value(self, name, v, data_type="f64"):
        self.tensors[name] = {"value": v, "data_type": data_type}
        return name

    def output(self, name, expected, data_type=None, declare=False):
        entry = {"output": True}
        if data_type:
            entry["data_type"] = data_type
        if declare:
            entry["dim"] = [int(d) for d in np.asarray(expected).shape]
        self.tensors[name] = entry
        self.outputs[name] = np.asarray(expected)
        return name

    def node(self, op, inputs, outputs, **attributes):
        self.nodes.append({"op": op, "inputs": inputs, "outputs": outputs, **attributes})
        return self

    def done(self, exact=False, limits=False):
        document = {"format": "sinter.graph", "version": 1, "name": self.name,
                    "io_data_type": "f64", "intermediate_data_type": "f64",
                    "compute_data_type": "f64", "tensors": self.tensors, "nodes": self.nodes}
        CASES.append({"name": self.name, "graph": document, "exact": exact,
                      "inputs": {k: flat(v) for k, v in self.inputs.items()},
                      "outputs": {k: flat(v) for k, v in self.outputs.items()}})
        if limits:  # every element to its own last bits, with the sign of a zero
            CASES[-1]["limits"] = True


def gradient(forward, arrays, which, dy):
    """d sum(forward(*arrays) * dy) / d arrays[which] by complex steps: exact to the last bits for
    analytic formulas, and knowing nothing of backward formulas."""
    step = 1e-100
    base = [np.asarray(a, dtype=np.complex128) for a in arrays]
    result = np.zeros(base[which].shape)
    for i in np.ndindex(result.shape):
        moved = list(base)
        moved[which] = base[which].copy()
        moved[which][i] += 1j * step
        result[i] = (np.imag(forward(*moved)) * dy).sum() / step
    return result
