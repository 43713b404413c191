"""Sinter: operation graphs with run-time fusion into CUDA kernels.

    graph = sinter.Graph("ffn")
    x = graph.tensor("x", [4, 64])
    w = graph.tensor("w", [64, 32])
    graph.output(sinter.gelu_approx_tanh_fwd(x @ w), "y")
    y = sinter.compile(graph)(x=numpy_x, w=numpy_w)["y"]

Operations, ports and attributes have the names of include/sinter/GRAPH_JSON.md. Importing this
package, building and planning need no GPU.
"""
from . import _sinter, arrays, operations  # noqa: F401
from ._sinter import (Diagnostic, Graph, Memory, Plan, Tensor, __version__, current_device,
                      synchronize)
from .error import Error
from .operations import *  # noqa: F403
from .runtime import (Bound, Counts, Executable, PlanCache, Prepared, compile, dyn, load, plan,
                      prepare, save)

__all__ = ["Bound", "Counts", "Diagnostic", "Error", "Executable", "Graph", "Memory", "Plan",
           "PlanCache", "Prepared", "Tensor", "compile", "current_device", "dyn", "load", "plan",
           "prepare", "save", "synchronize", *operations.__all__]
