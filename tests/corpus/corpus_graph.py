"""A graph document under construction; every one that is made ends up in ALL."""
import json

ALL = []


class Graph:
    """One document. Tensors that a node makes are declared only where something is said of them."""

    def __init__(self, name, io="f32", intermediate="f32", compute="f32"):
        self.name, self.types = name, (io, intermediate, compute)
        self.tensors, self.nodes = {}, []
        ALL.append(self)

    def tensor(self, name, dim=None, **fields):
        entry = self.tensors.setdefault(name, {})
        if dim is not None:
            entry["dim"] = list(dim)
        entry.update(fields)
        return name

    def value(self, name, value, data_type="f32"):
        return self.tensor(name, value=value, data_type=data_type)

    def output(self, *names, **fields):
        for name in names:
            self.tensor(name, output=True, **fields)

    def node(self, op, inputs, outputs, **attributes):
        outputs = {"Y": outputs} if isinstance(outputs, str) else outputs
        self.nodes.append({"op": op, **attributes, "inputs": inputs, "outputs": outputs})
        return next(iter(outputs.values()))

    def pointwise(self, mode, out, *operands, **attributes):
        inputs = {f"IN_{i}": t for i, t in enumerate(operands)}
        return self.node("pointwise", inputs, {"OUT_0": out}, mode=mode, **attributes)

    def matmul(self, a, b, out):
        return self.node("matmul", {"A": a, "B": b}, {"C": out})

    def reshape(self, x, out, dim):
        return self.node("reshape", {"X": x}, out, dim=list(dim))

    def transpose(self, x, out, permutation):
        return self.node("transpose", {"X": x}, out, permutation=list(permutation))

    def slice(self, x, out, start, limit, **more):
        return self.node("slice", {"X": x}, out, start=list(start), limit=list(limit), **more)

    def reduction(self, mode, x, out, dim):
        self.tensor(out, dim)
        return self.node("reduction", {"X": x}, out, mode=mode)

    def conv(self, x, w, out, **attributes):
        return self.node("conv_fprop", {"X": x, "W": w}, out, **attributes)

    def linear(self, x, w, bias, out):
        return self.pointwise("add", out, self.matmul(x, w, out + "_product"), bias)

    def text(self):
        io, intermediate, compute = self.types
        line = lambda v: json.dumps(v, ensure_ascii=False)
        rows = lambda items: ",\n".join("    " + i for i in items)
        tensors = rows(f"{line(k)}: {line(v)}" for k, v in self.tensors.items())
        return (f'{{\n  "format": "sinter.graph", "version": 1, "name": {line(self.name)},\n'
                f'  "io_data_type": "{io}", "intermediate_data_type": "{intermediate}", '
                f'"compute_data_type": "{compute}",\n'
                f'  "tensors": {{\n{tensors}\n  }},\n'
                f'  "nodes": [\n{rows(line(n) for n in self.nodes)}\n  ]\n}}\n')




def channels_last(dim):
    n, c, h, w = dim
    return [h * w * c, 1, w * c, c]
