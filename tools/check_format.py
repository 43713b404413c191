#!/usr/bin/env python3
"""Checks C++ and CUDA sources against .clang-format: check_format.py [--fix] [FILE...]

Needs clang-format 14 (package clang-format of Debian 12, clang-format-14 of Ubuntu): versions differ in what they write. Where that version is missing, nothing is
checked and the exit code is 77, which tools/test counts as skipped. Files in tools/unformatted.txt are not checked; --fix formats
the others, or the files that are named, and takes from that list what is formatted.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VERSION, SKIPPED = 14, 77
SOURCES = (".hpp", ".cpp", ".cuh")
EXCEPTIONS = os.path.join(ROOT, "tools", "unformatted.txt")
FOLDERS = ("include", "lib", "codegen", "fusion_patterns", "samples", "tools", "tests")


def program():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path:
            version = re.search(r"version (\d+)", subprocess.run([path, "--version"], capture_output=True, text=True).stdout)
            if version and int(version.group(1)) == VERSION:
                return path
    return None


def sources():
    found = []
    for top in FOLDERS:
        for folder, names, files in os.walk(os.path.join(ROOT, top)):
            names.sort()
            found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in sorted(files) if f.endswith(SOURCES)]
    return found


def exceptions():
    with open(EXCEPTIONS, encoding="utf-8") as file:
        return [line for line in file.read().split("\n") if line and line[0] != "#"]


def formatted(clang_format, path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    done = subprocess.run([clang_format, f"--assume-filename={path}"], input=text, capture_output=True, text=True, cwd=ROOT)
    return done.returncode == 0 and done.stdout == text


def main():
    arguments = sys.argv[1:]
    fix = "--fix" in arguments
    given = [a for a in arguments if a != "--fix"]
    named = [os.path.relpath(os.path.abspath(a), ROOT) for a in given if a.endswith(SOURCES)]
    clang_format = program()
    if not clang_format:
        print(f"format: skipped, clang-format {VERSION} is not installed")
        return SKIPPED
    apart = exceptions()
    files = named if given else [f for f in sources() if f not in apart]
    if fix:
        for i in range(0, len(files), 50):
            subprocess.run([clang_format, "-i", *files[i:i + 50]], cwd=ROOT, check=True)
        left = [f for f in apart if os.path.exists(os.path.join(ROOT, f)) and not formatted(clang_format, f)]
        with open(EXCEPTIONS, encoding="utf-8") as file:
            comment = "".join(line for line in file if line.startswith("#"))
        with open(EXCEPTIONS, "w", encoding="utf-8") as file:
            file.write(comment + "".join(f + "\n" for f in left))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [f for f, right in zip(files, pool.map(lambda f: formatted(clang_format, f), files)) if not right]
    for path in wrong:
        print(f"{path}: not as .clang-format says; tools/check_format.py --fix {path}")
    print(f"format: {len(files)} files, {len(wrong)} wrong, {len(apart)} not checked")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
