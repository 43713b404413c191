#!/usr/bin/env python3
"""The library as others use it: package_test.py BUILD_FOLDER.

Installs a finished build and uses it from a project of its own, both ways CMake offers; builds and
runs the program of README.md; and looks at what including the headers costs and reaches.
"""
import glob
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = os.path.join(ROOT, "include")
COMPILER = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
# The standard headers that the interface is made of; all of it may cost the compiler this many times
# as much as they do. Seconds would judge the machine: 0.5 s on one is 1.0 s on a slow and busy one.
STANDARD_HEADERS = ("optional", "string", "utility", "variant", "vector")
COST_LIMIT = 3.0

CONSUMER = """cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES CXX)
{dependency}
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE sinter::sinter)
foreach(unwanted sinter_tests sinter_cli sample_01_first_graph)
  if(TARGET ${{unwanted}})
    message(FATAL_ERROR "a project that uses the library must not get ${{unwanted}}")
  endif()
endforeach()
"""

GRAPH_ONLY = """#include <cstdio>
#include "sinter/operations.hpp"
int main() {
  sinter::Graph graph;
  auto a = graph.tensor({.name = "a", .dim = {2, 3}});
  graph.output(matmul(a, a), "y");
  const auto errors = graph.check();
  for (const auto& e : errors) std::puts(e.message().c_str());
  return errors.size() == 1 && errors[0].rule == sinter::Rule::matmul_contraction ? 0 : 1;
}
"""


def run(*command, cwd=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=1200)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def cache_value(name):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
        found = re.search(rf"^{name}:[A-Z]+=(.*)$", file.read(), re.M)
    return found.group(1) if found else ""


def readme_program():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        return re.search(r"```cpp\n(.*?)```", file.read(), re.S).group(1)


def syntax_seconds(path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run(*COMPILER, "-fsyntax-only", path)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def configure_consumer(self, dependency, *options):
        self.write("consumer/CMakeLists.txt", CONSUMER.format(dependency=dependency))
        self.write("consumer/main.cpp", readme_program())
        consumer = os.path.join(self.folder.name, "consumer")
        launcher = cache_value("CMAKE_CXX_COMPILER_LAUNCHER")
        if launcher:
            options += (f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",)
        run("cmake", "-S", consumer, "-B", consumer + "/build", "-G", "Ninja", *options)
        return consumer + "/build"

    def test_an_installed_library_is_found_and_runs_the_program_of_the_readme(self):
        prefix = os.path.join(self.folder.name, "prefix")
        run("cmake", "--install", BUILD, "--prefix", prefix)
        build = self.configure_consumer("find_package(sinter 0.1 REQUIRED)",
                                        "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", build)
        self.assertIn("y[0] =", run(build + "/consumer"))

    def test_a_project_that_adds_the_library_as_a_subdirectory_runs_the_program_of_the_readme(self):
        # The commands that build the library are those of the finished build, word for word: the same
        # commands on the same files give the same library, so that it is not built again (five minutes
        # of processor time), but for the embedded device library, which depends on the folder. Commands
        # are run one by one, as ninja would first build what links into the library beside.
        build = self.configure_consumer(
            f"add_subdirectory({ROOT} sinter)",
            f"-DCMAKE_BUILD_TYPE={cache_value('CMAKE_BUILD_TYPE')}",
            f"-DSINTER_CUDA_INCLUDE={cache_value('SINTER_CUDA_INCLUDE')}")

        def library_commands(folder, subfolder):
            text = run("ninja", "-C", folder, "-t", "commands", subfolder + "libsinter.a")
            text = text.replace(os.path.join(folder, subfolder).rstrip("/"), "BUILD")
            return sorted(text.replace(" " + subfolder, " ").splitlines())

        finished = library_commands(BUILD, "")
        self.assertGreater(len(finished), 40)
        self.assertEqual(library_commands(build, "sinter/"), finished)

        def command(target):
            return run("ninja", "-C", build, "-t", "commands", "-s", target).strip()

        for target in ("sinter/generated/embedded_files.cpp",
                       "sinter/CMakeFiles/sinter.dir/generated/embedded_files.cpp.o",
                       "CMakeFiles/consumer.dir/main.cpp.o"):
            run("sh", "-c", command(target), cwd=build)
        link = command("consumer")
        self.assertIn(" sinter/libsinter.a ", link)
        run("sh", "-c", link.replace(" sinter/libsinter.a ", f" {BUILD}/libsinter.a "), cwd=build)
        self.assertIn("y[0] =", run(build + "/consumer"))

    def test_graphs_are_built_and_checked_with_the_headers_alone(self):
        source = self.write("graph_only.cpp", GRAPH_ONLY)
        program = os.path.join(self.folder.name, "graph_only")
        run(*COMPILER, source, "-o", program)
        self.assertIn("matmul-contraction", run(program))

    def test_the_readme_is_short_and_so_is_its_program(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            self.assertLessEqual(len(file.readlines()), 200)
        lines = [line for line in readme_program().splitlines() if line.strip()]
        self.assertLessEqual(len(lines), 26)


class Headers(unittest.TestCase):
    def test_each_public_header_stands_alone(self):
        # graph_impl.hpp and the shape rules are the inside of graph.hpp, which includes them.
        headers = [h for h in glob.glob(INCLUDE + "/sinter/**/*.hpp", recursive=True)
                   if not re.search(r"/graph_impl\.hpp$|/ops/shape", h)]
        self.assertGreater(len(headers), 12)
        for header in headers:
            name = os.path.relpath(header, INCLUDE)
            with self.subTest(name), tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
                file.write(f'#include "{name}"\n')
                file.flush()
                run(*COMPILER, "-fsyntax-only", file.name)

    def test_the_interface_reaches_no_heavy_header(self):
        reached = run(*COMPILER, "-M", os.path.join(INCLUDE, "sinter/sinter.hpp"))
        self.assertIn("sinter/graph.hpp", reached)
        for heavy in ("nlohmann", "cuda", "nvrtc", "fmt/", "/regex", "/iostream", "/filesystem",
                      "/fstream", "/sstream", "/memory", "/algorithm", "/atomic", "/cmath"):
            self.assertIsNone(re.search(heavy + r"\b" if heavy[0] == "/" else heavy, reached),
                              heavy)

    def test_including_everything_costs_little(self):
        costs = {"all": [], "standard": []}
        with tempfile.TemporaryDirectory() as folder:
            texts = {"all": '#include "sinter/sinter.hpp"\n',
                     "standard": "".join(f"#include <{h}>\n" for h in STANDARD_HEADERS)}
            for name, text in texts.items():
                with open(f"{folder}/{name}.cpp", "w", encoding="utf-8") as file:
                    file.write(text)
            for turn in range(25):  # one and the other, so that a busy machine slows both
                for name in texts:
                    costs[name].append(syntax_seconds(f"{folder}/{name}.cpp"))
                # The least of few is not yet that of a quiet moment for both.
                if turn >= 4 and min(costs["all"]) < COST_LIMIT * min(costs["standard"]):
                    break
        cost, standard = min(costs["all"]), min(costs["standard"])
        print(f"including sinter/sinter.hpp costs {cost:.2f} s of processor time (g++), "
              f"{cost / standard:.1f} times its standard headers (limit {COST_LIMIT})")
        self.assertLess(cost, COST_LIMIT * standard)


class Checkers(unittest.TestCase):
    """The source checks find what they are for."""

    def check(self, tool, path, text):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/tools")
            shutil.copy(os.path.join(ROOT, "tools", tool), folder + "/tools")
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([sys.executable, f"{folder}/tools/{tool}"], capture_output=True)
            return done.returncode

    def test_an_include_in_a_wrong_direction_is_found(self):
        tool = "check_layers.py"
        self.assertEqual(self.check(tool, "lib/lower/a.cpp", "#include <string>\n"), 0)
        for path, text in (("lib/lower/a.cpp", "#include <cuda.h>\n"),
                           ("lib/plan/a.hpp", "#include <nlohmann/json.hpp>\n"),
                           ("include/sinter/a.hpp", "#include <iostream>\n"),
                           ("codegen/device/a.cuh", "#include <cuda_fp16.h>\n"),
                           ("lib/plan/a.hpp", '#include "no/such/file.hpp"\n'),
                           ("elsewhere/../lib/unknown/a.cpp", "\n")):
            with self.subTest(path=path, text=text):
                self.assertEqual(self.check(tool, os.path.normpath(path), text), 1)

    def test_an_architecture_that_is_named_outside_of_the_device_model_is_found(self):
        tool, named = "check_layers.py", 'bool fast = target == "sm_90a";\n'
        for path, text, found in (("lib/schedule/a.cpp", named, 1),
                                  ("codegen/emit/a.cpp", named, 1),
                                  ("lib/target/a.cpp", named, 0),
                                  ("lib/schedule/a.cpp", 'int a;  // "sm_90a"\n', 0)):
            with self.subTest(path=path, text=text):
                self.assertEqual(self.check(tool, path, text), found)

    def test_a_name_that_nothing_has_is_found(self):
        tool = "check_paths.py"
        self.assertEqual(self.check(tool, "docs/a.md", "`words_of_code`, `tools/check_paths.py`\n"), 0)
        for text in ("`no_such_name`\n", "`tools/none.py`\n", "[page](none.md)\n", "[part](#none)\n"):
            with self.subTest(text=text):
                self.assertEqual(self.check(tool, "docs/a.md", text), 1)

    def test_a_file_that_is_too_long_is_found(self):
        self.assertEqual(self.check("check_sizes.py", "lib/a.cpp", "\n" * 500), 0)
        self.assertEqual(self.check("check_sizes.py", "lib/a.cpp", "\n" * 501), 1)


if __name__ == "__main__":
    unittest.main()
