"""The table of operations, one module a kind. Importing it fills sinter.torch.emit.TABLE."""
from . import (attention, contractions, layout, norms, pointwise, pooling,  # noqa: F401
               reductions)
