"""The table of operations, one module a kind. Importing it fills sinter.torch.emit.TABLE."""
from . import (attention, contractions, dropout, layout, losses, norms, pointwise,  # noqa: F401
               pooling, reductions, resize)
