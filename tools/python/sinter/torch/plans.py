"""Plans by the layouts of their inputs, and their launch on PyTorch's tensors, stream and memory."""
import threading

import torch

from .. import runtime
from ..torch_memory import Source
from . import report
from .layouts import ALIGNED, Layout

_MOST_BOUND = 16


class Launch:
    """A graph loaded on a device. A call allocates the outputs, starts the kernels and returns.

    `inputs` are the names of the tensors whose pointers a call gets, in order; `outputs` are the name
    and the Layout of each that it makes. All memory is PyTorch's, whose allocator keeps it for the
    current stream: nothing is copied and nothing waits.
    """

    def __init__(self, graph, inputs, outputs, device):
        where = "cpu" if device.type == "cpu" else (
            torch.cuda.current_device() if device.index is None else device.index)
        self._source = Source(where)
        self._loaded = runtime.compile(graph, where)._loaded
        self.kernels = self._loaded.plan.kernels
        self.workspace_bytes = self._loaded.workspace_bytes
        place = {name: i for i, name in enumerate(inputs)}
        place.update((name, len(inputs) + i) for i, (name, _) in enumerate(outputs))
        self._bound = {}  # by pointers: what only has to be launched
        self._order = [place[row[0]] for row in self._loaded.plan.tensors()]
        self._outputs = [(layout.dim, layout.stride, layout.dtype) for _, layout in outputs]

    def __call__(self, pointers):
        source = self._source
        results = [source.empty(*fields) for fields in self._outputs]
        pointers.extend([t.data_ptr() for t in results])
        _memory, workspace = source.workspace(self.workspace_bytes)
        # The allocator gives the same memory again in step after step.
        key = (workspace, *pointers)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._loaded.bind([pointers[i] for i in self._order], workspace,
                                      self.workspace_bytes)
            if len(self._bound) >= _MOST_BOUND:
                self._bound.clear()
            self._bound[key] = bound
        bound.execute(source.stream())
        return results


class Plans:
    """Launches by device and layouts of the inputs, made when they are first needed; the oldest is
    dropped where there are more than `limit`.

    `build(layouts)` gives graph, names of the inputs, and names and Layouts of the outputs.
    """

    def __init__(self, name, build, limit=64):
        self.name, self._build, self._limit = name, build, limit
        self._launches = {}
        self._lock = threading.Lock()

    def __call__(self, tensors, device=None):
        device = device or tensors[0].device
        pointers = [t.data_ptr() for t in tensors]
        # Tuples equal Layouts, and are made in half the time.
        key = (device, *[(t.dtype, t.shape, t.stride(), ALIGNED[p & 15])
                         for t, p in zip(tensors, pointers)])
        launch = self._launches.get(key)
        return (launch or self.launch(device, [Layout(*fields) for fields in key[1:]]))(pointers)

    def launch(self, device, layouts):
        key = (device, *layouts)
        with self._lock:
            if key not in self._launches:
                made = Launch(*self._build(layouts), device)
                report.plan_made(self.name, made)
                self._launches[key] = made
                if len(self._launches) > self._limit:
                    del self._launches[next(iter(self._launches))]
            return self._launches[key]
