#!/usr/bin/env python3
"""Checks that what Markdown pages name exists: paths in backticks and targets of links.

A word in backticks is a path where its first part is a folder of the project or of the page's own folder, and nothing in
it is a placeholder (`<family>`, `FILE`, `*`).
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


def tracked_pages():
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout.split()
    pages = []  # an unpacked archive
    for folder, names, files in os.walk(ROOT):
        names[:] = [n for n in names if not n.startswith("build") and (n == ".github" or n[0] != ".")]
        pages += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files if f.endswith(".md")]
    return sorted(pages)


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


def main():
    pages, wrong = tracked_pages(), 0
    for page in pages:
        for problem in problems(page):
            wrong += 1
            print(f"{page}: {problem}")
    for path in PLANNED:
        if os.path.exists(os.path.join(ROOT, path)):
            print(f"note: {path} has come: remove it from PLANNED")
    print(f"paths: {len(pages)} pages, {wrong} wrong")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
