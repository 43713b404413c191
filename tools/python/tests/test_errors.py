"""Mistakes are exceptions that carry the rule and the line of the user's own code."""
import inspect
import unittest

import numpy
import sinter


def line():
    return inspect.currentframe().f_back.f_lineno


class Errors(unittest.TestCase):
    def setUp(self):
        self.graph = sinter.Graph()
        self.a = self.graph.tensor("a", [4, 64])

    def raises(self, rule, call):
        with self.assertRaises(sinter.Error) as caught:
            call()
        self.assertEqual(caught.exception.rule, rule)
        self.assertEqual(caught.exception.file, __file__)
        self.assertIn(rule, str(caught.exception))
        return caught.exception

    def test_place_of_an_operator(self):
        with self.assertRaises(sinter.Error) as caught:
            at = line() + 1
            self.a @ self.a
        error = caught.exception
        self.assertEqual(error.where, f"{__file__}:{at}")
        self.assertEqual((error.rule, error.node), ("matmul-contraction", "matmul #0"))
        self.assertIn("[4, 64]", error.seen)
        self.assertTrue(error.allowed and error.fix)

    def test_keywords(self):
        e = self.raises("attribute-unknown", lambda: sinter.softmax(self.a, axes=1))
        self.assertEqual((e.attribute, e.seen, e.allowed), ("axes", "1", "axis"))
        e = self.raises("attribute-value", lambda: sinter.softmax(self.a, axis=1.5))
        self.assertEqual((e.seen, e.allowed), ("1.5", "int"))
        self.raises("attribute-value", lambda: sinter.reduction(self.a, mode="ad", Y=[4, 1]))
        self.raises("port-unknown", lambda: sinter.softmax(self.a, self.a))
        self.raises("port-unknown", lambda: sinter.softmax(self.a, X=self.a))
        self.raises("port-missing", lambda: sinter.matmul(self.a))
        self.raises("port-missing", lambda: sinter.matmul(1.0, 2.0))
        self.raises("attribute-value", lambda: sinter.matmul(self.a, "b"))
        self.raises("attribute-unknown", lambda: sinter.identity(self.a, OUT_0={"dims": [1]}))

    def test_tensors(self):
        self.raises("attribute-value", lambda: self.graph.tensor("t", [0.5]))
        self.raises("tensor-dim-missing", lambda: self.graph.tensor("t"))
        self.raises("tensor-data-type", lambda: self.graph.tensor("t", [1], data_type="f33"))
        self.raises("tensor-stride", lambda: self.graph.tensor("t", [2, 2], stride=[1]))
        other = sinter.Graph()
        self.raises("tensor-foreign", lambda: other.tensor("b", [4, 64]) + self.a)
        self.raises("tensor-role", lambda: self.graph.output(self.a, "y"))

    def test_compile(self):
        self.raises("graph-no-output", lambda: sinter.compile(self.graph, "cpu"))
        self.raises("device-missing", lambda: sinter.compile(self.graph, "tpu"))

    def test_an_output_that_was_not_asked_for(self):
        e = self.raises("tensor-absent",
                        lambda: self.graph.output(sinter.softmax(self.a).Stats, "stats"))
        self.assertEqual(e.tensor, "stats")
        self.assertIn("Stats=True", e.fix)

    def test_notes(self):
        graph = sinter.Graph()
        x = graph.tensor("x", [4])
        graph.tensor("idle", [4])
        graph.output(x * 2.0, "y")
        self.assertEqual([(n.rule, n.tensor) for n in graph.notes()], [("tensor-unused", "idle")])

    def test_documents(self):
        with self.assertRaises(sinter.Error) as caught:
            sinter.Graph.from_json('{"format": "sinter.graph", "version": 1,\n'
                                   '"tensors": 3, "nodes": []}', "g.json")
        self.assertEqual(caught.exception.where, "g.json:2")
        self.raises("plan-format", lambda: sinter.Plan.from_json("{}"))

    def test_arrays(self):
        self.graph.output(sinter.neg(self.a), "y")
        run = sinter.compile(self.graph, "cpu")
        a = numpy.zeros((4, 64), numpy.float32)
        e = self.raises("array-format", lambda: run(a=a.astype(numpy.float64)))
        self.assertEqual((e.tensor, e.seen, e.allowed), ("a", "float64", "float32"))
        e = self.raises("array-format", lambda: run(a=a.T))
        self.assertEqual((e.attribute, e.seen, e.allowed), ("dim", "[64, 4]", "[4, 64]"))
        e = self.raises("array-format", lambda: run(a=numpy.zeros((64, 4), numpy.float32).T))
        self.assertEqual((e.attribute, e.seen, e.allowed), ("stride", "[1, 4]", "[64, 1]"))
        self.raises("array-format", lambda: run(a=[1.0]))
        self.raises("binding-missing", lambda: run())
        self.raises("binding-unknown", lambda: run(a=a, z=a))
        self.raises("binding-unknown", lambda: run.execute({"a": a, 7: a}))
        with self.assertRaisesRegex(TypeError, "by its name"):
            run.execute({"a": a, 0.5: a})
        y = numpy.zeros((4, 64), numpy.float32)
        y.flags.writeable = False
        self.raises("array-format", lambda: run(a=a, y=y))


if __name__ == "__main__":
    unittest.main()
