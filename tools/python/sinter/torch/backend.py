"""torch.compile(backend="sinter")."""
import torch
from functorch.compile import make_boxed_func
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from .emit import TABLE
from .ops import attention, decompositions, dropout, pooling, resize
from .regions import lower

# Without a decomposition they stay with PyTorch as they are.
_EAGER = ("embedding_dense_backward",)


def _decompositions():
    """Attention and dropout into our operators; else what no entry of the table takes into smaller
    ones, in our way or PyTorch's."""
    eager = {getattr(torch.ops.aten, name).default for name in _EAGER}
    core = {op: function for op, function in core_aten_decompositions().items()
            if op not in TABLE and op not in eager}
    return {**core, **decompositions.DECOMPOSITIONS, **attention.DECOMPOSITIONS,
            **dropout.DECOMPOSITIONS}


def _compile(module, example_inputs):
    return make_boxed_func(lower(module).forward)


def _partition(joint, *args, **kwargs):
    pooling.without_indices(joint.graph)
    dropout.draw_again(joint.graph)
    return min_cut_rematerialization_partition(joint, *args, **kwargs)


_aot = None


def backend(module, example_inputs):
    """What torch.compile calls; it has no options. Forward and backward are partitioned as they are
    for Inductor: cheap values are computed again rather than kept."""
    global _aot
    if _aot is None:
        _aot = aot_autograd(fw_compiler=_compile, bw_compiler=_compile,
                            partition_fn=_partition,
                            decompositions=_decompositions(),
                            keep_inference_input_mutations=True)
    resize.take(module.graph)
    module.recompile()
    return _aot(module, example_inputs)
