"""The table of operations, one module a kind. Importing it fills sinter.torch.emit.TABLE."""
from . import (attention, contractions, layout, losses, norms, pointwise, pooling,  # noqa: F401
               reductions)
