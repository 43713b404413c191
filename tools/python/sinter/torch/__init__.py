"""PyTorch: operators from Sinter graphs, and torch.compile(backend="sinter").

    ffn = sinter.torch.operator(build_ffn, "mine::ffn", backward=build_ffn_backward)
    model = torch.compile(model, backend="sinter")
    print(sinter.torch.report())
"""
from . import ops  # noqa: F401
from .backend import backend
from .operator import operator
from .report import report

__all__ = ["backend", "operator", "report"]
