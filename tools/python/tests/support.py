"""Graph documents and the same graphs from the builders of the package."""
import json
import os
import threading

import numpy
import sinter

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


def document(nodes, tensors, **head):
    return {"format": "sinter.graph", "version": 1, **head, "tensors": tensors, "nodes": nodes}


def build(doc):
    """The graph of a document, made with the builders: ports and attributes as keywords."""
    types = {key: doc[key] for key in ("io_data_type", "intermediate_data_type",
                                       "compute_data_type") if key in doc}
    graph = sinter.Graph(doc.get("name", "graph"), **types)
    produced = {name for node in doc["nodes"] for name in node["outputs"].values()}
    made = {}
    for name, t in doc["tensors"].items():
        data_type = t.get("data_type", doc.get("io_data_type", "f32"))
        rank = len(t.get("dim", [1]))
        if "value" in t:
            value = t["value"]
            value = float(value) if isinstance(value, str) else value
            made[name] = graph.scalar(value, data_type, name, rank)
        elif t.get("pass_by_value"):
            made[name] = graph.scalar_input(name, data_type, rank)
        elif name not in produced:
            made[name] = graph.tensor(name, **t)
    waiting = list(doc["nodes"])
    while waiting:
        node = next(n for n in waiting if all(t in made for t in n["inputs"].values()))
        waiting.remove(node)
        made.update(add(node, doc["tensors"], made))
    for name, t in doc["tensors"].items():
        if t.get("output"):
            fields = {key: t[key] for key in ("uid", "alignment") if key in t}
            if "alias" in t:
                fields["alias"] = made[t["alias"]]
            graph.output(made[name], name, **fields)
    return graph


def add(node, tensors, made):
    node = dict(node)
    op, inputs, outputs = node.pop("op"), node.pop("inputs"), node.pop("outputs")
    if op == "pointwise":
        op = node.pop("mode")
    node = {key: float(v) if key.startswith("relu") else v for key, v in node.items()}
    results = {port: {"name": name, **{key: v for key, v in tensors.get(name, {}).items()
                                       if key in ("dim", "stride", "data_type")}}
               for port, name in outputs.items()}
    value = getattr(sinter, op)(**{port: made[t] for port, t in inputs.items()}, **results, **node)
    return {name: getattr(value, port) if isinstance(value, tuple) else value
            for port, name in outputs.items()}


def random_inputs(plan, seed=0):
    """Arrays for the inputs of a plan; those with strides get them."""
    random = numpy.random.default_rng(seed)
    arrays = {}
    for info in plan.tensors():
        name, data_type, dim, _, _, written, by_value = info[:7]
        if written:
            continue
        array = sinter.arrays.empty(info)
        floating = data_type[0] in "fb" and data_type != "bool"
        values = random.uniform(0.5, 1.5, dim) if floating else random.integers(0, 2, dim)
        array[...] = values.astype(array.dtype)
        arrays[name] = array.flat[0].item() if by_value else array
    return arrays


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def canonical(doc):
    return sinter.Graph.from_json(json.dumps(doc)).to_json()


def failures_of_threads(work, count=4):
    """What `work` raises in so many threads at once."""
    failures = []

    def guarded():
        try:
            work()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return failures
