"""The table of operations, one module a kind. Importing it fills sinter.torch.emit.TABLE."""
from . import (attention, contractions, dropout, elementary, layout, losses,  # noqa: F401
               norms, pointwise, pooling, reductions, resize)
