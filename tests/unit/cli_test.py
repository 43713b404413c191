#!/usr/bin/env python3
"""The command line from outside: cli_test.py SINTER. Exit codes, files and messages, on the CPU device."""
import json, os, struct, subprocess, sys, tempfile, unittest

SINTER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "sinter"


def graph(tensors, *nodes, **top):
    return {"format": "sinter.graph", "version": 1, "name": "g", **top, "tensors": tensors, "nodes": list(nodes)}


def pointwise(mode, out, *inputs, **attributes):
    return {"op": "pointwise", "mode": mode, **attributes, "outputs": {"OUT_0": out},
            "inputs": {f"IN_{i}": t for i, t in enumerate(inputs)}}


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def sinter(self, *arguments, code=0):
        done = subprocess.run([SINTER, *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for line in done.stderr.splitlines() if code else []:
            self.assertTrue(line.startswith(("error: ", "note: ", "    ")), line)
        return done

    def test_the_sample_graphs_are_valid_plan_and_run(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        folder = os.path.join(root, "samples", "graphs")
        with open(os.path.join(root, "README.md"), encoding="utf-8") as f:
            readme = f.read()
        names = sorted(os.listdir(folder))
        self.assertGreaterEqual(len(names), 6)
        for name in names:
            with self.subTest(name):
                self.assertIn(f"| `{name}` |", readme)
                graph = os.path.join(folder, name)
                self.assertIn("valid graph", self.sinter("check", graph).stdout)
                self.assertIn("kernel 0", self.sinter("explain", graph).stdout)
                checks = [line for line in self.sinter("run", graph, "--check", "--device", "cpu").stdout.splitlines()
                          if line.startswith("check ")]
                self.assertTrue(checks)
                for line in checks:
                    self.assertIn(": ok,", line)
                    compared, unjudged = (int(line.split(word)[0].split()[-1])
                                          for word in (" elements compared", " not judged"))
                    self.assertLess(unjudged, compared / 2, line)

    def test_the_benchmark_graphs_are_valid(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        folder = self.path("graphs")
        subprocess.run([sys.executable, os.path.join(root, "tools/benchmarks/graphs.py"), folder], check=True)
        graphs = [os.path.join(folder, name) for name in os.listdir(folder)]
        self.assertGreater(len(graphs), 80)
        self.assertEqual(self.sinter("check", *graphs).stdout.count("valid graph"), len(graphs))

    def add_graph(self):
        # The name of the second input holds '=' and its layout is column-major.
        return self.path("add.json", graph(
            {"x": {"dim": [2, 3]}, "y=1": {"dim": [2, 3], "stride": [1, 2]}, "out": {"output": True, "stride": [1, 2]}},
            pointwise("sub", "out", "x", "y=1")))

    def test_run_reads_and_writes_arrays_in_logical_order(self):
        x = self.path("x.npy", npy("<f4", (2, 3), struct.pack("<6f", 10, 20, 30, 40, 50, 60)))
        y = self.path("y.npy", npy("<f4", (2, 3), struct.pack("<6f", 1, 2, 3, 4, 5, 6)))
        out = self.path("out.npy")
        self.sinter("run", self.add_graph(), "--device", "cpu", "--input", f"x={x}", "--input", f"y=1={y}",
                    "--output", f"out={out}", "--check")
        with open(out, "rb") as f:
            self.assertEqual(struct.unpack("<6f", f.read()[-24:]), (9, 18, 27, 36, 45, 54))

    def test_random_inputs_follow_the_seed(self):
        outputs = []
        for seed in ("1", "1", "2"):
            out = self.path("out.npy")
            self.sinter("run", self.add_graph(), "--device", "cpu", "--seed", seed, "--output", f"out={out}")
            with open(out, "rb") as f:
                outputs.append(f.read())
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0], outputs[2])

    def test_a_plan_is_written_without_a_gpu_and_runs_like_its_graph(self):
        plan, sources = self.path("plan.json"), self.path("sources")
        self.sinter("plan", "--source", sources, "-o", plan, self.add_graph())
        self.assertTrue(all(name.endswith(".cu") for name in os.listdir(sources)))
        self.assertEqual(len(os.listdir(sources)), 1)
        done = self.sinter("run", plan, "--device", "cpu", "--check")
        self.assertIn("check out: ok", done.stdout)
        self.assertIn("plan of", self.sinter("check", plan).stdout)
        with open(plan) as f:
            text = f.read()
        self.sinter("check", self.path("bad.json", text.replace('"block": ', '"block": 1').encode()), code=2)
        self.sinter("check", self.path("cut.json", text[:-40].encode()), code=2)

    def test_explain_and_bench_speak_json(self):
        explained = json.loads(self.sinter("explain", self.add_graph(), "--json").stdout)
        self.assertEqual(len(explained["kernels"]), 1)
        self.assertIn("digraph", self.sinter("explain", self.add_graph(), "--dot", "-").stdout)

    def test_an_architecture_is_asked_for_with_arch(self):
        for arguments, architecture in ((["--arch", "sm_90a"], "sm_90a"), ([], "")):
            explained = self.sinter("explain", self.add_graph(), "--json", *arguments)
            self.assertEqual(json.loads(explained.stdout)["architecture"], architecture)
        self.assertIn("for sm_90a\n", self.sinter("explain", self.add_graph(), "--arch", "sm_90a").stdout)
        self.assertIn("sm_90a and the like",
                      self.sinter("explain", self.add_graph(), "--arch", "sm_9", code=3).stderr)
        plan = json.loads(self.sinter("plan", self.add_graph(), "-o", "-").stdout)
        self.assertEqual(plan["architecture"], "")
        row = json.loads(self.sinter("bench", self.add_graph(), "--device", "cpu", "--json").stdout)
        self.assertEqual(list(row), ["graph", "peer", "us", "us_min", "us_max", "tflops", "gbps", "kernels",
                                     "workspace_bytes", "plan_ms_cold", "plan_ms_warm", "host_us", "checked",
                                     "max_rel_err"])
        self.assertEqual((row["graph"], row["peer"], row["checked"]), ("g", "sinter", True))

    def test_tune_needs_a_gpu_and_reads_its_options(self):
        self.assertIn("--tuning", self.sinter("tune", "--help").stdout)
        self.sinter("tune", self.add_graph(), "--most", "0", code=2)
        self.sinter("tune", self.add_graph(), "--device", "cpu", code=3)

    def test_doctor_always_answers(self):
        done = subprocess.run([SINTER, "doctor", "--json"], capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 3))
        self.assertIn("can_compile", json.loads(done.stdout))

    def test_bad_input_ends_with_2_and_one_line_an_error(self):
        bad = self.path("bad.json", graph({"x": {"dims": [2]}, "y": {"output": 1}}, pointwise("negg", "y", "x")))
        lines = self.sinter("run", bad, code=2).stderr.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("did you mean 'dim'", lines[0])
        self.assertIn("bad.json:1", lines[0])
        self.sinter("run", self.path("none.json"), code=2)
        self.sinter("run", self.folder.name, code=2)
        self.sinter("check", self.path("deep.json", b"[" * 100000), code=2)
        control = self.path("c.json", graph({"a\nerror: b\x1b[31m": {"dim": [-1]}, "y": {"output": True}},
                                            pointwise("neg", "y", "a\nerror: b\x1b[31m")))
        self.assertEqual(len(self.sinter("check", control, code=2).stderr.splitlines()), 1)

    def test_bad_usage_ends_with_2(self):
        g = self.add_graph()
        for arguments in ([], ["fly"], ["run"], ["run", g, "--device", "tpu"], ["run", g, "--what"],
                          ["run", g, "--device", "cpu", "--input", "x"],
                          ["run", g, "--device", "cpu", "--input", "z=a.npy"],
                          ["run", g, "--device", "cpu", "--input", "out=a.npy"],
                          ["run", g, "--device", "cpu", "--output", "x=a.npy"],
                          ["run", g, "--device", "cpu", "--input", "x=/no/such.npy"],
                          ["plan", g, "-o", "/no/such/folder/p.json"],
                          ["plan", g, "-o", self.path("p.json"), "--arch", "sm_90;rm"]):
            self.sinter(*arguments, code=2 if "--arch" not in arguments else 3)

    def test_arrays_of_another_type_or_shape_are_refused(self):
        g = self.add_graph()
        for name, content in (("type", npy("<f8", (2, 3), bytes(48))), ("shape", npy("<f4", (3, 2), bytes(24))),
                              ("short", npy("<f4", (2, 3), bytes(23))), ("none", b"hello")):
            done = self.sinter("run", g, "--device", "cpu", "--input", f"x={self.path(name, content)}", code=2)
            self.assertIn("array-format", done.stderr)

    def test_a_broadcast_view_needs_equal_elements(self):
        g = self.path("view.json", graph({"x": {"dim": [2, 2], "stride": [0, 1]}, "y": {"output": True}},
                                         pointwise("neg", "y", "x")))
        out = self.path("y.npy")
        for values, code in (((1, 2, 1, 2), 0), ((1, 2, 3, 4), 2)):
            x = self.path("x.npy", npy("<f4", (2, 2), struct.pack("<4f", *values)))
            self.sinter("run", g, "--device", "cpu", "--input", f"x={x}", "--output", f"y={out}", code=code)
        with open(out, "rb") as f:
            self.assertEqual(struct.unpack("<4f", f.read()[-16:]), (-1, -2, -1, -2))

    def test_help_and_version(self):
        self.assertIn("sinter 0.", self.sinter("--version").stdout)
        self.assertIn("Exit codes", self.sinter("--help").stdout)
        self.assertIn("--check", self.sinter("run", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
