#!/usr/bin/env python3
"""Checks that what Markdown pages and comments name exists: paths in backticks, targets of links, files, identifiers.

A word in backticks is a path where its first part is a folder of the project or of the page's own folder, and nothing in
it is a placeholder (`<family>`, `FILE`, `*`). Comments of sources name files as #include does, or by the file's name alone.
Of other words in backticks those are identifiers that have an underscore or a capital inside; in comments, `name()`. A
source has to have them outside of its comments.
"""
import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILT = ("build/",)  # made by building
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?|[\w.-]+/)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCES = ("*.cpp", "*.hpp", "*.cuh")
CODE = (*SOURCES, "*.py", "*.sh", "*.txt", "*.cmake", "*.in", "*.json", "*.html", "*.js", "tools/*", ".clang*")
SPAN = re.compile(r"`([^`\n]+)`")
QUOTED = re.compile(r"\"[^\"]*\"")  # a user's own names
IDENTIFIER = re.compile(r"(?<![\w.])[A-Za-z]\w*(?:_\w|[a-z][A-Z])\w*")
CALL = re.compile(r"(?<![\w.`:])([A-Za-z_]\w{2,})\(\)")
# Pages about others' programs, too.
OTHERS = ("tools/benchmarks/RESULTS.md", "tools/benchmarks/results/")
EXTERNAL = {"setjmp"}
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
        found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted(f for f in found if any(fnmatch.fnmatch(f, p) for p in patterns))


def exists(path, folders):
    return any(os.path.exists(os.path.join(ROOT, folder, path)) for folder in folders)


def words_of_code():
    words = set()
    for path in tracked(*CODE):
        words.update(re.findall(r"\w+", path))
        if path.endswith(".md") or path.startswith("tests/corpus/"):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
            text = file.read()
        if path.endswith((".cpp", ".hpp", ".cuh")):
            text = COMMENT.sub("", text)
        words.update(re.findall(r"[A-Za-z_]\w*", text))
    return words


def anchors(page):
    """Of a page's headings, as GitHub makes them."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        headings = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problems(page, words):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M)
    folders = ("", os.path.dirname(page))
    for path in sorted(set(PATH.findall(text))):
        known = exists(path.split("/")[0], folders)
        if known and not exists(path, folders) and not path.startswith(BUILT):
            yield f"names `{path}`, which does not exist"
    for target in sorted(set(LINK.findall(text))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        if path and not exists(path, folders[1:]):
            yield f"links to {target}, which does not exist"
        elif anchor and anchor not in anchors(os.path.join(os.path.dirname(page), path) if path else page):
            yield f"links to {target}, and no heading there is named so"
    if page.startswith(OTHERS):
        return
    spans = [QUOTED.sub("", span).replace("-D", "") for span in SPAN.findall(text) if "/" not in span]
    for name in sorted({name for span in spans for name in IDENTIFIER.findall(span)}):
        if name not in words:
            yield f"names `{name}`, which no source has"


def problems_of_comments(source, names, words):
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        comments = COMMENT.findall(file.read())
    folders = ROOTS + (os.path.dirname(source),)
    for path in sorted({path.removeprefix("sinter/device/") for c in comments for path in FILE.findall(c)}):
        # Others' sources have folders that are none of ours.
        known = "/" not in path or exists(path.split("/")[0], folders)
        if known and not (exists(path, folders) if "/" in path else path in names):
            yield f"names {path}, which does not exist"
    for name in sorted({name for c in comments for name in CALL.findall(c)} - EXTERNAL):
        if name not in words:
            yield f"names {name}(), which no source has"


def main():
    pages, sources, wrong = tracked("*.md"), tracked(*SOURCES), 0
    words = words_of_code()
    names = {os.path.basename(f) for f in tracked(*SOURCES, "*.md", "*.py")}
    found = [(page, problem) for page in pages for problem in problems(page, words)]
    found += [(source, problem) for source in sources for problem in problems_of_comments(source, names, words)]
    for file, problem in found:
        wrong += 1
        print(f"{file}: {problem}")
    print(f"paths: {len(pages)} pages, {len(sources)} sources, {wrong} wrong")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
