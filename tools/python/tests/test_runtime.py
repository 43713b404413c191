"""Plans, executables and arrays on the CPU backend."""
import gc
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import sinter
import support
from sinter import arrays


def product(data_type="f32"):
    graph = sinter.Graph(io_data_type=data_type)
    x, w = graph.tensor("x", [4, 8]), graph.tensor("w", [8, 3])
    graph.output(sinter.relu_fwd(x @ w), "y")
    return graph


X = numpy.arange(32, dtype=numpy.float32).reshape(4, 8) / 8 - 2
W = numpy.arange(24, dtype=numpy.float32).reshape(8, 3) / 4 - 3
Y = numpy.maximum(X @ W, 0)


class Calls(unittest.TestCase):
    def test_version(self):
        self.assertEqual(sinter.__version__, importlib.metadata.version("sinter"))

    def test_name(self):
        graph = sinter.Graph("ffn")
        graph.output(graph.tensor("x", [2]) * 2.0, "y")
        self.assertEqual(repr(sinter.compile(graph, "cpu")),
                         "<Executable 'ffn' on the CPU: x -> y, 1 kernel>")

    def test_uids(self):
        graph = sinter.Graph()
        x, n = graph.tensor("x", [2], uid=5), graph.scalar_input("n")
        graph.output(x * n, "y", uid=9)
        run = sinter.compile(graph, "cpu")
        x, y = numpy.full(2, 3, "float32"), numpy.zeros(2, "float32")
        self.assertIs(run.execute({5: x, "n": 2, 9: y})["y"], y)
        self.assertEqual(y[1], 6)
        self.assertEqual(run.bind({5: x, "n": 1})(n=4)["y"][0], 12)
        with self.assertRaises(sinter.Error) as raised:
            run.execute({5: x, "x": x, "n": 2})
        self.assertEqual(raised.exception.rule, "binding-repeated")

    def test_progress(self):
        seen = []
        sinter.compile(product(), "cpu", progress=lambda *at: seen.append(at))
        self.assertEqual((seen[0], seen[-1]), (("planning", 0, 1), ("planning", 1, 1)))
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            sinter.plan(product(), progress=lambda stage, done, total: done / 0)

    def test_numbers_and_in_place(self):
        graph = sinter.Graph()
        p, g = graph.tensor("p", [8]), graph.tensor("g", [8], constant=True)
        step = (graph.scalar_input("lr") * g).named("step").type("f32")
        self.assertEqual(step.name, "step")
        graph.output(p - step, "next", alias=p)
        run = sinter.compile(graph, "cpu")
        p, g = numpy.ones(8, "float32"), numpy.full(8, 2, "float32")
        apart = numpy.zeros(8, "float32")
        run(p=p, g=g, lr=0.25, next=apart)
        self.assertEqual((p[0], apart[0]), (1, 0.5))
        self.assertIs(run(p=p, g=g, lr=1)["next"], p)  # in place
        self.assertEqual(p[7], -1)
        for bindings, rule in (({"lr": 1, "next": g}, "binding-overlap"),
                               ({}, "binding-missing")):
            with self.assertRaises(sinter.Error) as raised:
                run(p=p, g=g, **bindings)
            self.assertEqual(raised.exception.rule, rule)


class DlpackOnly:
    """An array that speaks nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Runtime(unittest.TestCase):
    def test_outputs_made_and_given(self):
        run = sinter.compile(product(), "cpu")
        self.assertEqual((run.device, run.plan.kernels), ("cpu", 1))
        numpy.testing.assert_array_equal(run(x=X, w=W)["y"], Y)
        y = numpy.zeros_like(Y)
        self.assertIs(run.execute({"x": X, "w": W, "y": y}, stream=0)["y"], y)
        numpy.testing.assert_array_equal(y, Y)

    def test_dlpack(self):
        run = sinter.compile(product(), "cpu")
        y = numpy.zeros_like(Y)
        run(x=DlpackOnly(X), w=DlpackOnly(W), y=DlpackOnly(y))
        numpy.testing.assert_array_equal(y, Y)

    def test_gpu_arrays_are_refused_on_the_cpu(self):
        class OnGpu:
            __cuda_array_interface__ = {"shape": (4, 8), "typestr": "<f4", "data": (4096, False),
                                        "version": 3}
        with self.assertRaisesRegex(sinter.Error, "device .* seen GPU; allowed CPU"):
            sinter.compile(product(), "cpu")(x=OnGpu(), w=W)

    def test_strides(self):
        graph = sinter.Graph()
        x = graph.tensor("x", [4, 8], stride=[1, 4])
        graph.output(sinter.neg(x), "y", stride=[16, 2])
        y = sinter.compile(graph, "cpu")(x=numpy.asfortranarray(X))["y"]
        self.assertEqual(y.strides, (64, 8))
        numpy.testing.assert_array_equal(y, -X)

    def test_small_types(self):
        for data_type in arrays.DTYPES:
            with self.subTest(data_type=data_type):
                graph = sinter.Graph(io_data_type=data_type)
                graph.output(sinter.identity(graph.tensor("x", [2, 2])), "y")
                run = sinter.compile(graph, "cpu")
                x = numpy.array([[0, 1], [1, 1]]).astype(arrays.dtype_of(data_type))
                y = run(x=x)["y"]
                self.assertEqual((y.dtype, y.tobytes()), (x.dtype, x.tobytes()))
                if data_type in ("bf16", "f8e4m3", "f8e5m2", "f8e8m0", "f4e2m1"):
                    bits = x.view(arrays.DTYPES[data_type][-1])
                    self.assertEqual(run(x=bits)["y"].tobytes(), x.tobytes())

    def test_save_and_load(self):
        plan = sinter.plan(product(), fuse=False)
        self.assertEqual(plan.kernels, 2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            sinter.save(plan, path)
            run = sinter.load(path, "cpu")
        self.assertEqual(run.plan.to_json(), plan.to_json())
        numpy.testing.assert_array_equal(run(x=X, w=W)["y"], Y)

    def test_lifetimes(self):
        tensor = sinter.Graph("kept").tensor("x", [2])
        gc.collect()
        self.assertEqual(tensor.dim, (2,))
        graph = (-tensor).graph
        graph.output(-tensor, "y")
        run = sinter.compile(graph, "cpu")
        del graph, tensor
        gc.collect()
        self.assertEqual(list(run(x=numpy.float32([1, 2]))["y"]), [-1, -2])

    def test_threads(self):
        graph = product()
        run = sinter.compile(graph, "cpu")

        def work():
            for _ in range(20):
                numpy.testing.assert_array_equal(run(x=X, w=W)["y"], Y)
                sinter.plan(graph)
                graph.tensor(None, [1])
        self.assertEqual(support.failures_of_threads(work), [])

    def test_import_needs_no_driver(self):
        code = ("import sinter\nassert sinter.current_device() == 'cpu'\n"
                "maps = open('/proc/self/maps').read()\n"
                "assert 'libcuda' not in maps and 'nvrtc' not in maps")
        environment = {**os.environ, "SINTER_DRIVER": "/nowhere", "CUDA_VISIBLE_DEVICES": "",
                       "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)

    def test_stubs_name_every_builder(self):
        folder = os.path.dirname(sinter.__file__)
        with open(os.path.join(folder, "operations.pyi"), encoding="utf-8") as file:
            text = file.read()
        for name in sinter.operations.__all__:
            self.assertIn(f"\ndef {name}(", text)
        compile(text, "operations.pyi", "exec")


if __name__ == "__main__":
    unittest.main()
