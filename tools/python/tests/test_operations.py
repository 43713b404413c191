"""Every operation and every pointwise mode, from Python and from graph JSON: the same document, and
on small graphs the same bits."""
import glob
import json
import os
import unittest

import numpy
import sinter
from sinter import _sinter
from support import ROOT, build, canonical, document, random_inputs, same_bits

CORPUS = sorted(glob.glob(os.path.join(ROOT, "tests", "corpus", "*.json")))
SMALL = 100_000  # elements of the inputs and outputs of a graph that is run


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def mode_document(mode, operands):
    tensors = {f"x{i}": {"dim": [2, 3]} for i in range(operands)}
    tensors["y"] = {"output": True}
    node = {"op": "pointwise", "mode": mode, "outputs": {"OUT_0": "y"},
            "inputs": {f"IN_{i}": f"x{i}" for i in range(operands)}}
    if mode == "gen_index":
        node["axis"] = 1
    return document([node], tensors)


def says_more_than_builders(doc):
    """Whether a name is empty or a tensor between nodes has an alignment: documents alone say so."""
    produced = {name for node in doc["nodes"] for name in node["outputs"].values()}
    return "" in doc["tensors"] or any("alignment" in t and name in produced and not t.get("output")
                                       for name, t in doc["tensors"].items())


class Operations(unittest.TestCase):
    def check_same(self, doc, run):
        graph = build(doc)
        self.assertEqual(graph.to_json(), canonical(doc))
        if not run:
            return
        ours = sinter.compile(graph, "cpu")
        theirs = sinter.compile(sinter.Graph.from_json(json.dumps(doc)), "cpu")
        inputs = random_inputs(ours.plan)
        got, wanted = ours.execute(inputs), theirs.execute(inputs)
        self.assertEqual(got.keys(), wanted.keys())
        for name in wanted:
            self.assertTrue(same_bits(got[name], wanted[name]), name)

    def test_corpus(self):
        built, ran, left_out = set(), set(), []
        for path in CORPUS:
            doc = read(path)
            if doc.get("format") != "sinter.graph":
                continue
            if says_more_than_builders(doc):
                left_out.append(os.path.basename(path))
                continue
            with self.subTest(path=os.path.basename(path)):
                ops = {node["op"] for node in doc["nodes"]}
                size = sum(_elements(t["dim"]) for t in doc["tensors"].values() if "dim" in t)
                run = size <= SMALL and not ops <= ran
                self.check_same(doc, run)
                built |= ops
                ran |= ops if run else set()
        self.assertEqual(sorted(left_out), ["random_7100118.json", "random_7200346.json",
                                            "random_7400309.json"])
        self.check_same(SOFTMAX_BACKWARD, True)
        everything = {row[0] for row in _sinter.operations()}
        self.assertEqual(built | {"softmax_backward"}, everything)
        self.assertEqual(everything - ran - {"softmax_backward"}, set())

    def test_pointwise_modes(self):
        for mode, operands, _, _ in _sinter.pointwise_modes():
            with self.subTest(mode=mode):
                self.check_same(mode_document(mode, operands), True)

    def test_attributes_of_modes(self):
        names = {mode: attributes for mode, _, attributes, _ in _sinter.pointwise_modes()}
        self.assertEqual(names["elu_bwd"], ["elu_alpha"])
        self.assertEqual(names["gen_index"], ["axis"])
        self.assertEqual(names["add"], [])

    def test_operators(self):
        graph = sinter.Graph()
        a, b = graph.tensor("a", [2, 2]), graph.tensor("b", [2, 2])
        for value in (a + b, a - b, a * 2.0, 2.0 / a, a @ b, -a, abs(a), a ** 2, a < b, a >= 1.0):
            self.assertEqual(value.dim, (2, 2))
        graph = sinter.Graph()
        a, b = graph.tensor("a", [2, 2]), graph.tensor("b", [2, 2])
        graph.output(1.0 - a / b, "y")
        modes = [node["mode"] for node in json.loads(graph.to_json())["nodes"]]
        self.assertEqual(modes, ["div", "sub"])
        values = sinter.compile(graph, "cpu")(a=numpy.full((2, 2), 6, "f4"),
                                              b=numpy.full((2, 2), 3, "f4"))
        self.assertEqual(values["y"].tolist(), [[-1, -1], [-1, -1]])


def _elements(dim):
    count = 1
    for extent in dim:
        count *= extent
    return count


SOFTMAX_BACKWARD = document(
    [{"op": "softmax_backward", "axis": 0, "inputs": {"Y": "y", "DY": "dy"},
      "outputs": {"DX": "dx"}}],
    {"y": {"dim": [3, 4]}, "dy": {"dim": [3, 4]}, "dx": {"output": True}})

if __name__ == "__main__":
    unittest.main()
