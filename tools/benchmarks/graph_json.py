"""Writes operation graphs in graph JSON (include/sinter/GRAPH_JSON.md)."""
import json


def channels_last_stride(dim):
    """Of an image or a filter, whose channels (or what is second) lie together."""
    n, c, *spatial = dim
    strides, step = [], c
    for extent in reversed(spatial):
        strides.insert(0, step)
        step *= extent
    return [step, 1, *strides]


class Graph:
    def __init__(self, io="bf16"):
        self.io, self.tensors, self.nodes, self.made = io, {}, [], 0

    def input(self, name, *dim, dtype=None, stride=None):
        self.tensors[name] = {"dim": list(dim), **({"data_type": dtype} if dtype else {}),
                              **({"stride": list(stride)} if stride else {})}
        return name

    def channels_last(self, name, n, c, *spatial):
        return self.input(name, n, c, *spatial, stride=channels_last_stride([n, c, *spatial]))

    def scalar(self, name, value):
        self.tensors[name] = {"value": value, "data_type": "f32"}
        return name

    def node(self, op, inputs, *outputs, **attributes):
        """The result at the first output port, or those at all of them."""
        self.made += 1
        names = {port: f"{op}{self.made}_{port}" for port in outputs}
        self.nodes.append({"op": op, **attributes, "inputs": inputs, "outputs": names})
        return next(iter(names.values())) if len(names) == 1 else list(names.values())

    def pointwise(self, mode, *operands, **attributes):
        return self.node("pointwise", {f"IN_{i}": t for i, t in enumerate(operands)}, "OUT_0", mode=mode, **attributes)

    def matmul(self, a, b):
        return self.node("matmul", {"A": a, "B": b}, "C")

    def reduce(self, x, *dim, mode="add"):
        y = self.node("reduction", {"X": x}, "Y", mode=mode)
        self.tensors[y] = {"dim": list(dim)}
        return y

    def slice(self, x, start, limit):
        return self.node("slice", {"X": x}, "Y", start=list(start), limit=list(limit))

    def output(self, tensor, dtype=None, **fields):
        entry = self.tensors.setdefault(tensor, {})
        entry.update(output=True, **fields)
        if dtype:
            entry["data_type"] = dtype
        return self

    def write(self, path, name):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"format": "sinter.graph", "version": 1, "name": name, "io_data_type": self.io,
                       "tensors": self.tensors, "nodes": self.nodes}, file)
