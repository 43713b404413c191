#!/usr/bin/env python3
"""Fails where a file has more than 500 lines, pages too: a file is one concept."""
import os
import sys

MOST = 500
SOURCES = (".hpp", ".cpp", ".cuh", ".cu", ".h", ".py", ".sh", ".cmake", "CMakeLists.txt",
           ".html", ".css", ".js", ".md")


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files, wrong = 0, 0
    for top in (".github", "include", "lib", "codegen", "fusion_patterns", "samples", "tools", "tests"):
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not (name.endswith(SOURCES) or (top == "tools" and "." not in name)):  # scripts
                    continue
                files += 1
                with open(path, encoding="utf-8") as file:
                    lines = sum(1 for _ in file)
                if lines > MOST:
                    wrong += 1
                    print(f"{os.path.relpath(path, root)}: {lines} lines, more than {MOST}")
    print(f"sizes: {files} files, {wrong} over {MOST} lines")
    return 1 if wrong or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
