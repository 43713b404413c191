#!/usr/bin/env python3
"""Checks which part of the project includes which, where outside headers may be used, and that
architectures are named in lib/target alone.

The picture is in lib/README.md. An include that is not allowed here fails; a new
direction is a decision and is added to the table with the change that needs it.
"""
import os
import re
import sys

# Part -> the parts that its files may include, besides itself: those of these prefixes, or single
# headers of them. The longest prefix names the part. No part may reach itself through others.
ALLOWED = {
    "include/sinter/base": [],
    "include/sinter/ops": ["include/sinter/base"],
    "include/sinter/graph": ["include/sinter/base", "include/sinter/ops"],
    "include/sinter": ["include/sinter/base", "include/sinter/ops", "include/sinter/graph"],
    "lib/base": ["include"],
    "lib/target": ["include", "lib/base"],
    "lib/array": ["include", "lib/base"],
    "lib/plan": ["include"],
    "lib/schedule": ["include", "lib/plan", "lib/target"],
    "lib/lower": ["include", "lib/base", "lib/reference/element.hpp"],
    "lib/reference/element.hpp": ["include"],
    "lib/reference": ["include", "lib/base", "lib/lower", "lib/plan", "lib/reference/element.hpp"],
    "lib/json": ["include", "lib/base", "lib/target", "lib/plan", "lib/reference"],
    "lib/tuning": ["include", "lib/base", "lib/plan", "lib/json", "lib/array"],
    # Of the planner's parts each uses those before it.
    "lib/planner/memory": ["include", "lib/lower", "lib/schedule/packing.hpp",
                           "lib/schedule/contraction/held_type.hpp"],
    "lib/planner/rewrite": ["include", "lib/target", "lib/lower", "lib/planner/memory",
                            "lib/plan/large_scores.hpp",
                            "lib/schedule/contraction/wgmma.hpp"],
    "lib/planner/match": ["include", "lib/lower", "lib/plan", "lib/schedule",
                          "lib/planner/memory"],
    "lib/planner/spec": ["include", "lib/target", "lib/lower", "lib/plan", "lib/schedule",
                         "lib/reference/element.hpp", "lib/planner/memory",
                         "lib/planner/rewrite/views.hpp", "lib/planner/match"],
    "lib/planner/split": ["include", "lib/target", "lib/plan", "lib/schedule", "lib/planner/match",
                          "lib/planner/spec"],
    "lib/planner/rearrange": ["include", "lib/base", "lib/target", "lib/plan", "lib/schedule",
                              "lib/lower", "lib/planner/match", "lib/planner/spec",
                              "lib/planner/split"],
    "lib/planner": ["include", "lib/base", "lib/target", "lib/plan", "lib/schedule", "lib/lower",
                    "lib/reference", "lib/planner"],
    # The planner asks patterns() for these, which implement its interface.
    "fusion_patterns": ["include", "lib/target", "lib/plan", "lib/schedule", "lib/lower",
                        "lib/planner"],
    "codegen/emit": ["include", "lib/base", "lib/plan", "lib/target", "lib/schedule"],
    "codegen/embed": [],
    "lib/runtime": ["include", "lib/base", "lib/target", "lib/plan", "lib/lower", "lib/reference",
                    "codegen/embed", "codegen/emit"],
    "lib/compile": ["include", "lib/base", "lib/target", "lib/plan", "lib/schedule", "lib/lower",
                    "lib/planner", "lib/tuning", "lib/runtime", "codegen/emit"],
    # Device code is compiled by NVRTC: its own tree and the formulas, nothing else.
    "codegen/device": ["include/sinter/ops/pointwise.hpp"],
    "samples": ["include"],
    "tools": ["include", "lib", "codegen", "fusion_patterns"],
    "tests": ["include", "lib", "codegen", "fusion_patterns", "tools"],
}
# Headers of one part in a folder of another: the rules of shapes, which graph.hpp includes at its
# end.
ELSEWHERE = {"include/sinter/ops/shape": "include/sinter/graph"}
# Outside headers that only these parts may use.
RESERVED = [
    (r"cuda\w*\.h$|nvrtc\.h$|cu\w+/", ["lib/runtime", "tests"]),
    (r"nlohmann/", ["lib/json", "tools", "tests"]),
    (r"CLI/", ["tools"]),
    (r"catch2/", ["tests"]),
]
# Headers that cost every user of the library too much, or do not belong into an interface.
NOT_IN_INTERFACE = {"<iostream>", "<regex>", "<filesystem>", "<fmt/format.h>", "<functional>",
                    "<thread>", "<fstream>", "<sstream>", "<nlohmann/json.hpp>", "<memory>",
                    "<atomic>", "<algorithm>"}

# Elsewhere the device model is asked for what an architecture has. In text, too, it is named as an
# example alone ("a target such as 'sm_90a'").
NAMED_ARCHITECTURE = re.compile(
    r"""^(?!\s*//)(?:(?!//).)*"[^"\n]*(?<!\w)(?<!such as )(?<!such as ')sm_\d""", re.M)
MAY_NAME_ARCHITECTURES = ("lib/target/", "codegen/device/", "samples/", "tests/")

# Files that tools/check_places adds to a copy of the tree: they are checked as if they lay there.
ADDED = "tests/places/"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SOURCES = (".hpp", ".cpp", ".cuh", ".cu", ".h")


def part_of(path):
    for prefix, part in ELSEWHERE.items():
        if path.startswith(prefix):
            return part
    fits = [p for p in ALLOWED if path == p or path.startswith(p + "/")
            or (p == "include/sinter/graph" and path.startswith(p))]
    return max(fits, key=len) if fits else None


def parts_of(entry):
    """The parts that an entry of the table names."""
    whole = [p for p in ALLOWED if p == entry or p.startswith(entry + "/")]
    return whole or [part_of(entry)]


def cycle():
    """Parts that reach each other by the table, in order; empty where there are none."""
    done = set()

    def visit(part, path):
        if part in path:
            return path[path.index(part):] + [part]
        if part in done:
            return []
        for entry in ALLOWED[part]:
            for other in parts_of(entry):
                found = other != part and visit(other, path + [part])
                if found:
                    return found
        done.add(part)
        return []

    return next(filter(None, (visit(part, []) for part in ALLOWED)), [])


def resolve(root, path, name):
    """The project's file that an include names, or None for an outside header."""
    if name.startswith("sinter/device/"):
        return "codegen/" + name[len("sinter/"):]
    for folder in (os.path.dirname(path), "include", "lib", "codegen", "", "tests", "tools/sinter"):
        candidate = os.path.normpath(os.path.join(folder, name))
        if any(os.path.isfile(os.path.join(root, added, candidate)) for added in ("", ADDED)):
            return candidate
    return None


def allowed(target, entries):
    return any(target == e or target.startswith(e + "/") or part_of(target) == e for e in entries)


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    path = path.removeprefix(ADDED)
    part = part_of(path)
    if part is None:
        yield "belongs to no part that tools/check_layers.py knows"
        return
    if not path.startswith(MAY_NAME_ARCHITECTURES) and NAMED_ARCHITECTURE.search(text):
        yield "names an architecture, which lib/target alone does"
    for bracket, name in INCLUDE.findall(text):
        target = resolve(root, path, name)
        if target is not None:
            if part_of(target) != part and not allowed(target, ALLOWED[part]):
                yield f"includes {target}, which {part} must not use"
            continue
        if part == "codegen/device":
            yield f"includes {name}: device code includes its own tree and pointwise.hpp only"
        for pattern, owners in RESERVED:
            if re.match(pattern, name) and not any(path.startswith(o + "/") for o in owners):
                yield f"includes <{name}>, which is for {', '.join(owners)} only"
        if path.startswith("include/") and f"<{name}>" in NOT_IN_INTERFACE:
            yield f"includes <{name}>, which is too heavy for the interface"
        if bracket == '"':
            yield f'includes "{name}", which does not exist'


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files, wrong = 0, 0
    for top in ("include", "lib", "codegen", "fusion_patterns", "samples", "tools", "tests"):
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                path = os.path.relpath(os.path.join(folder, name), root)
                files += 1
                for problem in check_file(root, path):
                    wrong += 1
                    print(f"{path}: {problem}")
    around = cycle()
    if around:
        wrong += 1
        print("in a circle: " + " > ".join(around))
    print(f"layers: {files} files, {wrong} wrong")
    return 1 if wrong or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
