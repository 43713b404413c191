#!/usr/bin/env python3
"""Warns about files over 500 lines and fails over 800: a file is one concept."""
import os
import sys

WARN, FAIL = 500, 800
SOURCES = (".hpp", ".cpp", ".cuh", ".cu", ".h", ".py", ".cmake", "CMakeLists.txt",
           ".html", ".css", ".js")


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files, long, too_long = 0, 0, 0
    for top in ("include", "lib", "codegen", "fusion_patterns", "samples", "tools", "tests"):
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.endswith(SOURCES):
                    continue
                files += 1
                with open(path, encoding="utf-8") as file:
                    lines = sum(1 for _ in file)
                if lines > WARN:
                    long += 1
                    too_long += lines > FAIL
                    what = f"more than {FAIL}" if lines > FAIL else f"more than {WARN}, a warning"
                    print(f"{os.path.relpath(path, root)}: {lines} lines, {what}")
    print(f"sizes: {files} files, {long} over {WARN} lines, {too_long} over {FAIL}")
    return 1 if too_long or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
