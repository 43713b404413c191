"""Plans by the layouts of their inputs, and their launch on PyTorch's tensors, stream and memory."""
import threading
from collections import OrderedDict

from .. import runtime
from ..torch_memory import Source
from . import report
from .layouts import layout_of


class Launch:
    """A graph loaded on a device. A call allocates the outputs, starts the kernels and returns.

    `inputs` are the names of the tensors that a call gets, in order; `outputs` are the name and the
    Layout of each that it makes. All memory is PyTorch's, whose allocator keeps it for the current
    stream: nothing is copied and nothing waits.
    """

    def __init__(self, graph, inputs, outputs, device):
        where = device.index if device.type == "cuda" else "cpu"
        self._source = Source(where)
        self._loaded = runtime.compile(graph, where)._loaded
        self.kernels = self._loaded.plan.kernels
        self.workspace_bytes = self._loaded.workspace_bytes
        place = {name: i for i, name in enumerate(inputs)}
        place.update((name, len(inputs) + i) for i, (name, _) in enumerate(outputs))
        self._order = [place[row[0]] for row in self._loaded.plan.tensors()]
        self._outputs = [(layout.dim, layout.stride, layout.dtype) for _, layout in outputs]

    def __call__(self, tensors):
        source = self._source
        results = [source.empty(*fields) for fields in self._outputs]
        pointers = [t.data_ptr() for t in tensors]
        pointers.extend(t.data_ptr() for t in results)
        _memory, workspace = source.workspace(self.workspace_bytes)
        self._loaded.launch(source.stream(), [pointers[i] for i in self._order], workspace,
                            self.workspace_bytes)
        return results


class Plans:
    """Launches by device and layouts of the inputs, made when they are first needed; the least
    recently used one is dropped where there are more than `limit`.

    `build(layouts)` gives graph, names of the inputs, and names and Layouts of the outputs.
    """

    def __init__(self, name, build, limit=64):
        self.name, self._build, self._limit = name, build, limit
        self._launches = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, tensors, device=None):
        return self.launch(device or tensors[0].device, [layout_of(t) for t in tensors])(tensors)

    def launch(self, device, layouts):
        key = (device, *layouts)
        with self._lock:
            found = self._launches.get(key)
            if found is not None:
                self._launches.move_to_end(key)
                return found
            made = Launch(*self._build(layouts), device)
            report.plan_made(self.name, made)
            self._launches[key] = made
            if len(self._launches) > self._limit:
                self._launches.popitem(last=False)
            return made
