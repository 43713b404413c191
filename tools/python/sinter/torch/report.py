"""What ran where: regions that became kernels, and operations that stayed with PyTorch and why."""
import threading
from collections import Counter, namedtuple
from types import FunctionType

Region = namedtuple("Region", "name nodes kernels workspace_bytes")


class Report:
    """`regions` and `plans` have one entry each; `eager` counts nodes by (operation, reason);
    `refused` counts whole regions by reason."""

    def __init__(self):
        self.regions, self.plans, self.eager, self.refused = [], [], Counter(), Counter()

    def __str__(self):
        lines = [f"{len(self.regions)} region(s) of {sum(r.nodes for r in self.regions)} operations, "
                 f"{sum(r.kernels for r in self.regions)} kernel(s)"]
        lines += [f"  {r.name}: {r.nodes} operations, {r.kernels} kernel(s), workspace "
                  f"{r.workspace_bytes} bytes" for r in self.regions]
        if self.refused:
            lines.append("regions left to PyTorch:")
            lines += [f"  {count} x {reason}" for reason, count in self.refused.most_common()]
        lines.append(f"{sum(self.eager.values())} operation(s) left to PyTorch")
        lines += [f"  {count} x {op}: {reason}"
                  for (op, reason), count in self.eager.most_common()]
        return "\n".join(lines)


_current = Report()
_lock = threading.Lock()


def report(reset=False):
    """The Report of all compilations since the last reset."""
    global _current
    with _lock:
        seen = _current
        if reset:
            _current = Report()
        return seen


def plan_made(name, launch):
    with _lock:
        _current.plans.append((name, launch.kernels, launch.workspace_bytes))


def region_made(name, nodes, launch):
    with _lock:
        _current.regions.append(Region(name, nodes, launch.kernels, launch.workspace_bytes))


def region_refused(reason):
    with _lock:
        _current.refused[reason] += 1


def left_to_eager(op, reason):
    name = op.__name__ if isinstance(op, FunctionType) else str(op)
    with _lock:
        _current.eager[name, reason] += 1
