#!/usr/bin/env python3
"""Checks that what Markdown pages and comments name exists: paths in backticks, targets of links, files.

A word in backticks is a path where its first part is a folder of the project or of the page's own folder, and nothing in
it is a placeholder (`<family>`, `FILE`, `*`). Comments of sources name files as #include does, or by the file's name alone.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Folders that the pages describe and that restructuring under way brings. Remove what has come.
PLANNED = ()
BUILT = ("build/",)  # made by building
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?|[\w.-]+/)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCES = ("*.cpp", "*.hpp", "*.cuh")
# Where sources name files from.
ROOTS = ("", "lib", "codegen", "codegen/device", "include", "include/sinter", "tests", "tools")
COMMENT = re.compile(r"//.*")
FILE = re.compile(r"(?<![\w./<{-])(\w[\w/-]*\.(?:cuh|hpp|cpp|md|py))\b(?!\w)")


def tracked(*patterns):
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", *patterns], capture_output=True, text=True)
    if done.returncode == 0:
        return [f for f in done.stdout.split() if os.path.exists(os.path.join(ROOT, f))]
    found = []  # an unpacked archive
    for folder, names, files in os.walk(ROOT):
        names[:] = [n for n in names if not n.startswith("build") and (n == ".github" or n[0] != ".")]
        found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files if any(f.endswith(p[1:]) for p in patterns)]
    return sorted(found)


def exists(path, folders):
    return any(os.path.exists(os.path.join(ROOT, folder, path)) for folder in folders)


def planned(path):
    return any(path == p or path.startswith(p + "/") for p in PLANNED)


def problems(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M)
    folders = ("", os.path.dirname(page))
    for path in sorted(set(PATH.findall(text))):
        known = exists(path.split("/")[0], folders)
        if known and not exists(path, folders) and not path.startswith(BUILT) and not planned(path.rstrip("/")):
            yield f"names `{path}`, which does not exist"
    for target in sorted(set(LINK.findall(text))):
        if "://" not in target and target[0] != "#" and not exists(target.split("#")[0], folders[1:]):
            yield f"links to {target}, which does not exist"


def problems_of_comments(source, names):
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        comments = COMMENT.findall(file.read())
    folders = ROOTS + (os.path.dirname(source),)
    for path in sorted({path.removeprefix("sinter/device/") for c in comments for path in FILE.findall(c)}):
        # Others' sources have folders that are none of ours.
        known = "/" not in path or exists(path.split("/")[0], folders)
        if known and not (exists(path, folders) if "/" in path else path in names):
            yield f"names {path}, which does not exist"


def main():
    pages, sources, wrong = tracked("*.md"), tracked(*SOURCES), 0
    names = {os.path.basename(f) for f in tracked(*SOURCES, "*.md", "*.py")}
    found = [(page, problem) for page in pages for problem in problems(page)]
    found += [(source, problem) for source in sources for problem in problems_of_comments(source, names)]
    for file, problem in found:
        wrong += 1
        print(f"{file}: {problem}")
    for path in PLANNED:
        if os.path.exists(os.path.join(ROOT, path)):
            print(f"note: {path} has come: remove it from PLANNED")
    print(f"paths: {len(pages)} pages, {len(sources)} sources, {wrong} wrong")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
