"""The tests in several processes, each of which takes the next one: on a GPU most of their time is compilation.

python in_processes.py N [MODULE.CLASS.TEST, or the beginning of it]...
"""
import concurrent.futures
import multiprocessing
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def tests_in(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from tests_in(t)
        else:
            yield t


def ids():
    """Models first, which take longest: no process is left alone with them at the end."""
    found = sorted(t.id() for t in tests_in(unittest.defaultTestLoader.discover(HERE)))
    return sorted(found, key=lambda t: "models" not in t)


def run(name):
    begin = time.monotonic()
    sys.path[:] = [HERE, *(p for p in sys.path if p != HERE)]
    result = unittest.TestResult()
    # As a suite, so that the set-up of modules runs.
    unittest.defaultTestLoader.loadTestsFromName(name).run(result)
    failed = [text for _, text in result.failures + result.errors]
    if result.unexpectedSuccesses:
        failed.append("passes, and is expected to fail")
    if not failed and not result.testsRun and not result.skipped:
        failed.append("nothing ran")
    return name, failed, [why for _, why in result.skipped], time.monotonic() - begin


def main():
    begin = time.monotonic()
    processes, chosen = int(sys.argv[1]), tuple(sys.argv[2:])
    spawn = multiprocessing.get_context("spawn")
    # What is found here imports PyTorch but makes no context on a GPU that children would share.
    names = [n for n in ids() if not chosen or n.startswith(chosen)]
    skipped_modules = [n for n in names if "ModuleSkipped" in n]
    for n in skipped_modules:
        names.remove(n)
        print("skipped module", n.rpartition(".")[2], flush=True)
    counts, times = {"passed": 0, "failed": 0, "skipped": 0}, []
    with concurrent.futures.ProcessPoolExecutor(processes, spawn) as pool:
        waiting = {pool.submit(run, n): n for n in names}
        for done in concurrent.futures.as_completed(waiting):
            try:
                name, failed, skipped, seconds = done.result()
            except concurrent.futures.process.BrokenProcessPool:
                name, failed, skipped, seconds = waiting[done], ["its process ended"], [], 0
            times.append((seconds, name))
            kind = "failed" if failed else "skipped" if skipped else "passed"
            counts[kind] += 1
            print(f"{kind:7} {seconds:6.1f} s  {name}", flush=True)
            for text in failed:
                print(text, flush=True)
            for text in skipped:
                print(text, flush=True)
    for seconds, name in sorted(times, reverse=True)[:10]:
        print(f"{seconds:6.1f} s  {name}")
    print(f"{len(names)} tests: {counts}, {len(skipped_modules)} modules skipped, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if counts["failed"] or not names else 0)


if __name__ == "__main__":
    main()
