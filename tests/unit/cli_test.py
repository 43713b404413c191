#!/usr/bin/env python3
"""The command line from outside: cli_test.py SINTER. Exit codes, files and messages, on the CPU device."""
import json, os, pathlib, stat, struct, subprocess, sys, unittest

from cli_support import FAKE_DRIVER, SINTER, CommandLineCase, graph, npy, pointwise


class CommandLine(CommandLineCase):
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
                explained = self.sinter("explain", graph).stdout
                self.assertIn("kernel 0", explained)
                self.assertNotIn("(0.0 us)", explained)
                done = self.sinter("run", graph, "--check", "--device", "cpu")
                checks = [line for line in done.stdout.splitlines() if line.startswith("check ")]
                self.assertTrue(checks)
                judged = all(", 0 not judged," in line for line in checks)
                self.assertEqual("not judged are elements" in done.stderr, not judged)
                for line in checks:
                    self.assertIn(": ok,", line)
                    compared, unjudged = (int(line.split(word)[0].split()[-1])
                                          for word in (" elements compared", " not judged"))
                    # Attention's probabilities may be rounded on either side of a division: behind two
                    # more products and norms, the bound of many elements says nothing.
                    most = 3 / 4 if name == "transformer_layer.json" else 1 / 2
                    self.assertLess(unjudged, compared * most, line)

    def test_the_benchmark_graphs_are_valid(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        folder = self.path("graphs")
        subprocess.run([sys.executable, os.path.join(root, "tools/benchmarks/graphs.py"), folder], check=True)
        graphs = [os.path.join(folder, name) for name in os.listdir(folder)]
        self.assertGreater(len(graphs), 80)
        self.assertEqual(self.sinter("check", *graphs).stdout.count("valid graph"), len(graphs))

    def test_small_convolutions_plan_as_large_ones(self):
        """On a device so slow that copies pay, what copies make is not copied again for ever."""
        graphs = list(pathlib.Path(__file__).parent.parent.glob("corpus/convolution_channels_first*.json"))
        self.assertGreater(len(graphs), 8)
        slow = {**os.environ, "SINTER_SLOW_DEVICE": "300"}
        for name in graphs:
            self.assertEqual(subprocess.run([SINTER, "explain", name, "--arch", "sm_90a"], capture_output=True, env=slow).returncode, 0, name)

    def add_graph(self):
        # The name of the second input holds '=' and its layout is column-major.
        return self.path("add.json", graph(
            {"x": {"dim": [2, 3]}, "y=1": {"dim": [2, 3], "stride": [1, 2]}, "out": {"output": True, "stride": [1, 2]}},
            pointwise("sub", "out", "x", "y=1")))

    def test_run_takes_numbers_and_notes_inputs_that_nothing_reads(self):
        g = self.path("g.json", graph({"x": {"dim": [2]}, "lr": {"pass_by_value": True}, "bias": {"dim": [2]},
                                       "y": {"output": True}}, pointwise("mul", "y", "x", "lr")))
        x, y = self.path("x.npy", npy("<f4", [2], struct.pack("<2f", 1, -2))), self.path("y.npy")
        done = self.sinter("run", g, "--device", "cpu", "--check", "--input", f"x={x}", "--input", "lr=0.25",
                           "--output", f"y={y}")
        self.assertIn("note: tensor-unused: tensor 'bias'", done.stderr)
        with open(y, "rb") as f:
            self.assertEqual(struct.unpack("<2f", f.read()[-8:]), (0.25, -0.5))
        done = self.sinter("run", g, "--device", "cpu", "--input", f"lr={x}", code=2)
        self.assertIn("binding-number: tensor 'lr'", done.stderr)

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
        for seed in ("-1", "1.5", "99999999999999999999", ""):
            done = self.sinter("run", self.add_graph(), "--device", "cpu", "--seed", seed, code=2)
            self.assertIn("is no seed", done.stderr)

    def test_a_negative_number_of_samples_is_refused_in_a_line(self):
        for command in ("run", "bench"):
            done = self.sinter(command, self.add_graph(), "--samples", "-1", code=2)
            self.assertIn("'-1' is negative; give 0 or more", done.stderr)
            self.assertLess(len(done.stderr), 200)

    def test_an_input_that_is_given_twice_is_said_to_be(self):
        g = self.path("g.json", graph({"lr": {"pass_by_value": True}, "y": {"output": True}},
                                      pointwise("neg", "y", "lr")))
        done = self.sinter("run", g, "--device", "cpu", "--input", "lr=1", "--input", "lr=2", code=2)
        self.assertIn("binding-repeated: tensor 'lr'", done.stderr)

    def test_a_plan_is_written_without_a_gpu_and_runs_like_its_graph(self):
        plan, sources = self.path("plan.json"), self.path("sources")
        self.sinter("plan", "--source", sources, "-o", plan, self.add_graph())
        self.assertTrue(all(name.endswith(".cu") for name in os.listdir(sources)))
        self.assertEqual(len(os.listdir(sources)), 1)
        done = self.sinter("run", plan, "--device", "cpu", "--check")
        self.assertIn("note: the CPU backend is the reference; kernels were not run", done.stderr)
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

    def two_kernels_graph(self):
        nodes = [{"op": "matmul", "name": "up", "inputs": {"A": "x", "B": "w"}, "outputs": {"C": "h"}},
                 {"op": "softmax", "name": "down", "inputs": {"X": "h"}, "outputs": {"Y": "y"}}]
        return self.path("two.json", {"format": "sinter.graph", "version": 1, "name": "two",
                                           "io_data_type": "bf16", "nodes": nodes,
                                           "tensors": {"x": {"dim": [512, 512]}, "w": {"dim": [512, 512]},
                                                       "y": {"output": True}}})

    def test_explain_begins_with_a_table_and_json_holds_all_that_the_text_says(self):
        g = self.two_kernels_graph()
        text = self.sinter("explain", g).stdout
        self.assertLess(text.index("us (est.)"), text.index("cuts: "))
        self.assertLess(text.index("cuts: "), text.index("\nkernel 0"))
        said = json.loads(self.sinter("explain", g, "--json").stdout)
        self.assertAlmostEqual(said["estimated_us"], sum(k["estimated_us"] for k in said["kernels"]))
        self.assertEqual(said["bytes"], sum(k["bytes"] for k in said["kernels"]))
        self.assertIn(f"estimated at {said['estimated_us']:.1f} us on {said['device']}", text)
        for k in said["kernels"]:
            self.assertEqual(sum(a["bytes"] for a in k["accesses"]), k["bytes"])
            self.assertIn(k["how"], text)
        self.assertEqual([(c["tensor"], c["written_by"], c["read_by"]) for c in said["costs"]][:1], [("h", [0], [1])])
        for cut in said["costs"][0]["cuts"]:
            self.assertIn(cut["reason"], text)
        self.assertEqual((said["peak"]["tensors"], said["peak"]["bytes"]), (["h"], 512 * 512 * 4))
        (hint,) = said["hints"]
        self.assertEqual((hint["tensor"], hint["narrow"], hint["saved_bytes"]), ("h", "bf16", 512 * 512 * 4))
        self.assertIn("hint: tensor h is stored as f32, bf16 would save 1.0 MB", text)

    def test_explain_says_the_same_of_a_plan_file_without_its_lines(self):
        g, plan = self.two_kernels_graph(), self.path("p.json")
        self.sinter("plan", g, "-o", plan)
        of_graph, of_plan = (json.loads(self.sinter("explain", f, "--json").stdout) for f in (g, plan))
        self.assertTrue(of_graph["kernels"][0]["lines"])
        self.assertEqual(of_graph["file"], g)
        for k in of_graph["kernels"]:
            k["lines"] = ""
        for n in of_graph["nodes"]:
            self.assertGreater(n.pop("line"), 0)
        for n in of_plan["nodes"]:
            self.assertEqual(n.pop("line"), 0)
        of_graph["file"] = ""
        self.assertEqual(of_graph, of_plan)

    def test_explain_why_and_diff(self):
        g = self.two_kernels_graph()
        self.assertIn("up is in kernel 0, down in kernel 1", self.sinter("explain", g, "--why", "up", "down").stdout)
        self.assertIn("did you mean 'down'?", self.sinter("explain", g, "--why", "up", "dawn", code=2).stderr)
        unlike = self.sinter("explain", g, "--why", "up", "sideways", code=2).stderr
        self.assertNotIn("did you mean", unlike)
        self.assertIn("nodes are up, down", unlike)
        self.sinter("explain", g, "--why", "up", code=2)
        moved = self.path("moved.json", graph(
            {"x": {"dim": [4, 6]}, "y": {"output": True}},
            {"op": "reshape", "name": "seen", "inputs": {"X": "x"}, "outputs": {"Y": "r"}, "dim": [24]},
            {**pointwise("exp", "unused", "r"), "name": "unused"}, {**pointwise("neg", "y", "r"), "name": "less"}))
        for node, reason in (("seen", "its readers read what it moves"), ("unused", "no output depends on it")):
            self.assertIn(f"no kernel computes '{node}': {reason}",
                          self.sinter("explain", moved, "--why", node, "less", code=2).stderr)
        self.assertIn("unchanged: the kernels of 2 sets", self.sinter("explain", g, "--diff", g).stdout)
        self.assertIn("after   sm_90a: 2 kernels", self.sinter("explain", g, "--diff", "sm_90a").stdout)
        self.assertIn("did you mean 'sm_90'", self.sinter("explain", g, "--diff", "sm_91", code=2).stderr)
        self.assertIn("file-read", self.sinter("explain", g, "--diff", self.path("none.json"), code=2).stderr)
        self.assertIn("runs whole graphs", self.sinter("explain", g, "--device", "cpu", code=2).stderr)

    def test_explain_why_and_diff_speak_json(self):
        g = self.two_kernels_graph()
        said = lambda *arguments: json.loads(self.sinter("explain", g, "--json", *arguments).stdout)
        why = said("--why", "up", "down")
        self.assertEqual((why["nodes"], why["kernels"], why["together"]), (["up", "down"], [[0], [1]], False))
        self.assertEqual([c["tensor"] for c in why["between"]], ["h"])
        text = self.sinter("explain", g, "--why", "up", "down").stdout
        self.assertTrue(why["cuts"])
        for cut in why["cuts"]:
            self.assertIn(cut["reason"], text)
        self.assertTrue(said("--why", "up", "up")["together"])
        self.assertEqual((said("--diff", g)["changes"], said("--diff", g)["unchanged"]), ([], 2))
        diff, before, after = said("--diff", "sm_90a"), said(), said("--arch", "sm_90a")
        for name, whole in (("before", before), ("after", after)):
            self.assertEqual((diff[name]["kernels"], diff[name]["estimated_us"]), (2, whole["estimated_us"]))
            for side in (side for change in diff["changes"] for side in change[name]):
                self.assertEqual(side["entry"], whole["kernels"][side["kernel"]]["entry"])
        self.assertEqual(len(diff["changes"]) + diff["unchanged"], 2)
        self.assertGreater(len(diff["changes"]), 0)
        for other in (["--dot", "-"], ["--html", "-"], ["--diff", g]):
            self.sinter("explain", g, "--why", "up", "down", *other, code=2)

    def test_explain_times_each_kernel_on_a_device(self):
        g = self.two_kernels_graph()
        fake = {**os.environ, "SINTER_DRIVER": FAKE_DRIVER, "SINTER_CACHE": "off"}
        done = subprocess.run([SINTER, "explain", g, "--device", "0", "--json"], capture_output=True, text=True, env=fake)
        if not json.loads(self.sinter("doctor", "--json").stdout)["can_compile"]:
            self.assertEqual(done.returncode, 3)
            self.assertIn("compiler-missing", done.stderr)
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["architecture"], "sm_90a")  # that of the device
        self.assertEqual([round(k["measured_us"], 3) for k in said["kernels"]], [5, 5])
        text = subprocess.run([SINTER, "explain", g, "--device", "0"], capture_output=True, text=True, env=fake).stdout
        self.assertIn("us measured", text)
        self.assertEqual(text.count("50 %"), 2)

    def test_an_architecture_is_asked_for_with_arch(self):
        for arguments, architecture in ((["--arch", "sm_90a"], "sm_90a"), ([], "")):
            explained = self.sinter("explain", self.add_graph(), "--json", *arguments)
            self.assertEqual(json.loads(explained.stdout)["architecture"], architecture)
        self.assertIn("for sm_90a\n", self.sinter("explain", self.add_graph(), "--arch", "sm_90a").stdout)
        plan = json.loads(self.sinter("plan", self.add_graph(), "-o", "-").stdout)
        self.assertEqual(plan["architecture"], "")
        row = json.loads(self.sinter("bench", self.add_graph(), "--device", "cpu", "--json").stdout)
        self.assertEqual(list(row), ["graph", "peer", "us", "us_min", "us_max", "tflops", "gbps", "kernels",
                                     "workspace_bytes", "plan_ms_cold", "plan_ms_warm", "host_us", "checked",
                                     "max_rel_err"])
        self.assertEqual((row["graph"], row["peer"], row["checked"]), ("g", "sinter", True))

    def test_options_of_planning_are_refused_with_a_plan(self):
        plan = self.path("p.json")
        self.sinter("plan", self.two_kernels_graph(), "-o", plan)
        for command in (["explain"], ["run", "--device", "cpu"], ["bench", "--device", "cpu"], ["plan", "-o", "-"]):
            for option in ("--no-fuse", "--deterministic"):
                self.assertIn(f"{option}: the document is a plan", self.sinter(*command, plan, option, code=2).stderr)
        self.assertIn("--arch: the document is a plan", self.sinter("explain", plan, "--arch", "sm_90a", code=2).stderr)
        self.assertIn("after   sm_90a", self.sinter("explain", plan, "--diff", "sm_90a").stdout)

    def test_tune_needs_a_gpu_and_reads_its_options(self):
        self.assertIn("--tuning", self.sinter("tune", "--help").stdout)
        self.sinter("tune", self.add_graph(), "--most", "0", code=2)
        self.sinter("tune", self.add_graph(), "--device", "cpu", code=3)
        if "GPU 0" not in self.sinter("doctor").stdout:
            self.assertNotIn("runs on the CPU", self.sinter("tune", self.add_graph(), code=3).stderr)
        self.assertIn("one graph", self.sinter("tune", self.add_graph(), self.add_graph(), "-o", "p", code=2).stderr)

    def test_tune_lists_its_candidates_without_a_gpu(self):
        g = self.two_kernels_graph()
        listed = [json.loads(line) for line in
                  self.sinter("tune", g, "--dry-run", "--arch", "sm_90a", "--most", "5", "--json").stdout.splitlines()]
        self.assertEqual(len(listed), 5)
        self.assertEqual(len({c["configuration"] for c in listed}), 5)
        estimates = [c["estimated_us"] for c in listed]
        self.assertEqual(estimates, sorted(estimates))
        # The first is what planning takes, at the same estimate.
        product = json.loads(self.sinter("explain", g, "--arch", "sm_90a", "--json").stdout)["kernels"][0]
        self.assertAlmostEqual(product["estimated_us"], estimates[0], places=2)
        text = self.sinter("tune", g, "--dry-run", "--arch", "sm_90a").stdout
        self.assertIn("the 24 fastest by estimate of ", text)
        self.assertIn("us estimated", text)
        self.assertIn("no kernel for sm_80", self.sinter("tune", g, "--dry-run", "--arch", "sm_80").stderr)
        self.sinter("tune", g, "--arch", "sm_90a", code=2)
        self.sinter("tune", self.path("none.json"), "--dry-run", code=2)

    def test_doctor_always_answers(self):
        report = json.loads(self.sinter("doctor", "--json").stdout)
        self.assertTrue(report["can_run_on_cpu"])
        self.assertEqual(any("NVRTC" in m for m in report["missing"]), not report["can_compile"])

    def test_doctor_is_content_with_the_cpu_and_says_what_is_missing(self):
        nothing = {**os.environ, "SINTER_DRIVER": "/no/libcuda.so", "SINTER_NVRTC": "/no/libnvrtc.so"}
        done = subprocess.run([SINTER, "doctor"], capture_output=True, text=True, env=nothing)
        self.assertEqual(done.returncode, 0, done.stdout)
        last = done.stdout.splitlines()[-1]
        self.assertTrue(last.startswith("missing: "), last)
        self.assertIn("NVIDIA GPU", last)
        self.assertIn("NVRTC", last)

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
            self.sinter(*arguments, code=2)

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

    # ---- outputs that cannot be written

    def test_output_that_is_lost_is_an_error(self):
        g, plan = self.add_graph(), self.path("p.json")
        self.sinter("plan", g, "-o", plan)
        for arguments in (["plan", g, "-o", "-"], ["explain", g], ["explain", g, "--json"], ["explain", g, "--dot", "-"],
                          ["explain", g, "--html", "-"],
                          ["check", g], ["check", plan, "--json"], ["doctor"], ["--help"], ["run", "--help"], ["--version"],
                          ["run", g, "--device", "cpu"], ["bench", g, "--device", "cpu"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([SINTER, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 3, arguments)
            self.assertIn("output-lost: stdout", done.stderr)
            self.assertIn("No space left on device", done.stderr)
        for arguments in (["plan", g, "-o", "/dev/full"], ["explain", g, "--dot", "/dev/full"],
                          ["explain", g, "--html", "/dev/full"],
                          ["run", g, "--device", "cpu", "--output", "out=/dev/full"]):
            self.assertIn("output-lost: file '/dev/full'", self.sinter(*arguments, code=3).stderr)
        for arguments in (["plan", g, "-o"], ["explain", g, "--html"]):
            self.assertIn("file-write", self.sinter(*arguments, "/no/such/p", code=2).stderr)
        self.assertIn("file-read", self.sinter("check", "/no/such/p.json", code=2).stderr)

    def test_an_output_replaces_a_file_and_keeps_its_mode_and_its_links(self):
        g, old, new, link = self.add_graph(), self.path("old", b"x"), self.path("new"), self.path("link")
        mode = lambda path: stat.S_IMODE(os.stat(path).st_mode)
        os.chmod(old, 0o600)
        os.symlink("old", link)
        self.sinter("plan", g, "-o", link)
        self.assertTrue(os.path.islink(link))
        self.sinter("check", old)
        self.assertEqual(mode(old), 0o600)
        os.unlink(link)
        os.symlink("new", link)  # that is not there yet
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        self.sinter("plan", g, "-o", link)
        self.assertTrue(os.path.islink(link))
        self.sinter("check", new)
        self.assertEqual(mode(new), 0o640)
        os.unlink(link)
        os.symlink("link", link)
        self.sinter("plan", g, "-o", link, code=2)
        os.unlink(link)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["add.json", "new", "old"])  # nothing is left behind

    def test_no_name_that_others_can_foresee_is_written(self):
        g, victim, folder = self.add_graph(), self.path("victim", b"precious"), self.path("f")
        os.mkdir(folder)
        # The temporary name that was used once: the output's with the number of the process, known to its parent.
        script = ('import os, sys; out = sys.argv[1]; os.symlink(sys.argv[2], f"{out}.part{os.getpid()}"); '
                  'os.execv(sys.argv[3], [sys.argv[3], "plan", sys.argv[4], "-o", out])')
        subprocess.run([sys.executable, "-c", script, os.path.join(folder, "p"), victim, SINTER, g], check=True,
                       stdout=subprocess.DEVNULL)
        with open(victim, "rb") as f:
            self.assertEqual(f.read(), b"precious")

    def test_outputs_go_into_pipes_and_open_files(self):
        with open(self.path("p.json"), "wb") as f:
            f.write(b" " * 10)
            f.flush()
            subprocess.run([SINTER, "plan", self.add_graph(), "-o", "/dev/stdout"], check=True, stdout=f)
        self.sinter("check", self.path("p.json"))
        done = self.sinter("plan", self.add_graph(), "-o", "/dev/stderr")  # a pipe
        self.assertEqual(json.loads(done.stderr)["format"], "sinter.plan")

    # ---- inputs without an end

    def test_no_more_is_read_than_can_be_meant(self):
        g = self.add_graph()
        for arguments in (["check", "/dev/zero"], ["run", g, "--device", "cpu", "--input", "x=/dev/zero"]):
            self.assertIn("a regular file or a pipe", self.sinter(*arguments, code=2).stderr)
        array = npy("<f4", (2, 3), bytes(24))
        for begin, says in ((array, "more than 24 bytes"), (npy("<f4", (2, 1 << 40), b""), "of dims [2, 1099511627776]")):
            pipe = self.path("pipe")
            os.mkfifo(pipe)
            endless = subprocess.Popen([sys.executable, "-c", "import os, signal, sys\n"
                                        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
                                        "with open(sys.argv[1], 'wb', 0) as f:\n"
                                        "  f.write(bytes.fromhex(sys.argv[2]))\n"
                                        "  while True: f.write(bytes(65536))", pipe, begin.hex()])
            done = self.sinter("run", g, "--device", "cpu", "--input", f"x={pipe}", code=2)
            self.assertIn(says, done.stderr)
            self.assertEqual(endless.wait(60), -13)  # SIGPIPE: the reader stopped
            os.unlink(pipe)
        os.mkfifo(pipe)
        with subprocess.Popen(["cp", g, pipe]):
            self.sinter("check", pipe)

    # ---- usage and documents

    def test_a_target_that_does_not_exist_is_a_usage_error(self):
        g = self.add_graph()
        for target, nearest in (("sm_9", "sm_90"), ("sm90a", "sm_90a"), ("SM_90A", "sm_90a"), ("sm_91", "sm_90"),
                                ("sm_75", "sm_80"), ("90a", "sm_90a"), ("compute_90", "sm_90"), ("sm_90;rm", "sm_90")):
            for arguments in (["explain", g, "--arch", target], ["plan", g, "-o", "-", "--arch", "sm_80," + target]):
                self.assertIn(f"did you mean '{nearest}'?", self.sinter(*arguments, code=2).stderr)
        for target in ("foo", "h100", ""):  # h100 is no sm_100
            self.assertIn(f"'{target}' is no target; targets are sm_80, ",
                          self.sinter("explain", g, "--arch", target, code=2).stderr)

    def test_a_misspelt_command_or_option_names_the_nearest(self):
        g = self.add_graph()
        for arguments, nearest in ((["explian", g], "explain"), (["run", g, "--chek"], "--check"),
                                   (["explain", g, "--archs=sm_90a"], "--arch")):
            self.assertIn(f"did you mean '{nearest}'", self.sinter(*arguments, code=2).stderr)
        unlike = self.sinter("zebra", code=2).stderr
        self.assertNotIn("did you mean", unlike)
        self.assertIn("unknown command 'zebra'; commands are run, plan, explain, check, bench, tune, doctor", unlike)

    def test_a_plan_lists_every_input_and_output(self):
        plan = json.loads(self.sinter("plan", self.add_graph(), "-o", "-").stdout)
        plan["tensors"] = [t for t in plan["tensors"] if t["name"] != "y=1"]
        bad = self.path("bad.json", plan)
        for command in ("check", "explain", "run"):
            error = self.sinter(command, bad, code=2).stderr
            self.assertIn("plan-format: tensor 'y=1'", error)
            self.assertIn("no entry for this input", error)

    def test_of_many_errors_20_are_shown_and_all_are_in_json(self):
        many = self.path("many.json", graph({f"t{i}": {"dim": [-1]} for i in range(50)}))
        done = self.sinter("check", many, "--json", code=2)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 21)
        self.assertIn("30 more errors", lines[-1])
        report = json.loads(done.stdout)
        self.assertEqual((report["valid"], len(report["errors"])), (False, 50))
        self.assertEqual((report["errors"][49]["rule"], report["errors"][49]["tensor"]), ("tensor-extent", "t49"))
        good = json.loads(self.sinter("check", self.add_graph(), "--json").stdout)
        self.assertEqual((good["valid"], good["nodes"], good["inputs"], good["outputs"]), (True, 1, 2, 1))

    def test_a_long_name_is_cut_where_it_is_quoted(self):
        name = "n" * 100_000
        bad = self.path("bad.json", graph({name: {"dim": [-1]}}))
        done = self.sinter("check", bad, "--json", code=2)
        self.assertLess(len(done.stderr), 1000)
        self.assertIn("(100000 bytes)", done.stderr)
        self.assertEqual(json.loads(done.stdout)["errors"][0]["tensor"], name)
        for document in (graph({"x": {"dim": [2], name: 1}}), graph({"x": {"dim": [2]}}, {"op": name}),
                         graph({"x": {"dim": [2], "data_type": name}}),
                         graph({"x": {"dim": [2]}, name: {"output": True}}, pointwise("neg", name, "x"), name=name)):
            path = self.path("long.json", document)
            done = subprocess.run([SINTER, "check", path], capture_output=True, text=True)
            self.assertLess(len(done.stdout + done.stderr), 4000)
        done = self.sinter("run", path, "--device", "cpu", "--check")
        self.assertLess(len(done.stdout), 1000)

    def test_a_number_beyond_f64_is_refused_by_name(self):
        text = json.dumps(graph({"x": {"dim": [2]}, "c": {"value": 7}, "y": {"output": True}}, pointwise("mul", "y", "x", "c")))
        for number in ("1e400", "-1e400", "1" + 400 * "0"):
            path = self.path("big.json", text.replace('"value": 7', '"value": ' + number).encode())
            error = self.sinter("check", path, code=2).stderr
            self.assertIn("json-number: tensors.c.value, column", error)

    def test_tensors_that_no_memory_holds_are_named_before_anything_is_allocated(self):
        g = self.path("huge.json", graph({"huge": {"dim": [1 << 20, 1 << 20]}, "small": {"dim": [1, 1]}, "out": {"output": True}},
                                         pointwise("add", "out", "huge", "small")))
        for command in ("run", "bench"):
            error = self.sinter(command, g, "--device", "cpu", code=3).stderr
            self.assertIn("'huge' f32 [1048576, 1048576]: 4398046511104 bytes", error)
            self.assertIn("in all 8796093022212", error)
            self.assertIn("which are free", error)


if __name__ == "__main__":
    unittest.main()
