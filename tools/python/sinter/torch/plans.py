"""Plans by the layouts of their inputs, and their launch on PyTorch's tensors, stream and memory."""
import threading

import sinter
import torch

from .. import runtime
from ..torch_memory import Source
from . import report
from .layouts import ALIGNED, Layout, Unsupported

_MOST_BOUND = 16


def _where(device):
    """A device of PyTorch's as Sinter calls it."""
    return "cpu" if device.type == "cpu" else (
        torch.cuda.current_device() if device.index is None else device.index)


def _mode(device):
    """What a plan depends on besides its tensors: the device, and whether PyTorch asks for results
    with the same bits in each run (torch.use_deterministic_algorithms)."""
    return device, torch.are_deterministic_algorithms_enabled()


class Launch:
    """A graph loaded on a device. A call allocates the outputs, starts the kernels and returns.

    `inputs` are the names of the tensors whose pointers a call gets, in order; `outputs` are the name
    and the Layout of each that it makes. All memory is PyTorch's, whose allocator keeps it for the
    current stream: nothing is copied and nothing waits.
    """

    def __init__(self, loaded, inputs, outputs, where):
        self._source = Source(where)
        self._loaded = loaded
        self.kernels = self._loaded.plan.kernels
        self.workspace_bytes = self._loaded.workspace_bytes
        place = {name: i for i, name in enumerate(inputs)}
        place.update((name, len(inputs) + i) for i, (name, _) in enumerate(outputs))
        self._bound = {}  # by pointers: what only has to be launched
        self._order = [place[row[0]] for row in self._loaded.plan.tensors()]
        self._outputs = [(tuple(layout.dim), tuple(layout.stride), layout.dtype)
                         for _, layout in outputs]

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
    """Launches by device, deterministic or not, and layouts of the inputs, made when they are first
    needed; the oldest is dropped where there are more than `limit`.

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
        key = (*_mode(device), *[(t.dtype, t.shape, t.stride(), ALIGNED[p & 15])
                                 for t, p in zip(tensors, pointers)])
        launch = self._launches.get(key)
        return (launch or self.launch(device, [Layout(*fields) for fields in key[2:]]))(pointers)

    def launch(self, device, layouts):
        key = (*_mode(device), *layouts)
        with self._lock:
            if key not in self._launches:
                graph, inputs, outputs = self._build(layouts)
                where = _where(device)
                loaded = runtime.compile(graph, where, deterministic=key[1])._loaded
                self._keep(key, Launch(loaded, inputs, outputs, where))
            return self._launches[key]

    def _keep(self, key, made):
        report.plan_made(self.name, made)
        self._launches[key] = made
        if len(self._launches) > self._limit:
            del self._launches[next(iter(self._launches))]


class DynamicPlans(Plans):
    """The same for extents that change: those of a class share machine code (sinter.PlanCache), of
    which there is one for each kind of layouts.

    `describe(graph, layouts, numbers)` builds a graph of these extents, and gives the names of the
    inputs, and names and Layouts of the outputs; `layouts_of(numbers)` are the Layouts of the inputs.
    `ranges` are name, least and most of each extent, `types` the data types of the graphs.
    """

    def __init__(self, name, describe, layouts_of, types, ranges, limit=256):
        super().__init__(name, None, limit)
        self._describe, self._layouts_of, self._types = describe, layouts_of, types
        self._caches = {}
        self._extents = [runtime.dyn(*of) for of in ranges]

    def __call__(self, tensors, device, numbers):
        pointers = [t.data_ptr() for t in tensors]
        key = (*_mode(device), numbers, *[(t.dtype, t.shape, t.stride(), ALIGNED[p & 15])
                                          for t, p in zip(tensors, pointers)])
        launch = self._launches.get(key)
        return (launch or self.launch(device, [Layout(*fields) for fields in key[3:]], numbers))(
            pointers)

    def launch(self, device, layouts, numbers):
        mode = _mode(device)
        key = (*mode, numbers, *layouts)
        with self._lock:
            if key not in self._launches:
                self._keep(key, self._made(*mode, layouts, numbers))
            return self._launches[key]

    def _made(self, device, deterministic, layouts, numbers):
        where, like = _where(device), self._layouts_of(numbers)
        alignments = tuple(layout.alignment for layout in layouts)
        graph = sinter.Graph("torch_region", **self._types)
        names = self._describe(graph, layouts, numbers)
        loaded = None
        if [layout[:3] for layout in layouts] == [layout[:3] for layout in like]:
            try:
                loaded = self._cache(where, deterministic, alignments).get(
                    *numbers)._loaded
            except (Unsupported, sinter.Error):  # of another graph of the class, or out of range
                pass
        if loaded is None:
            loaded = runtime.compile(graph, where, deterministic=deterministic)._loaded
        return Launch(loaded, *names, where)

    def _cache(self, where, deterministic, alignments):
        def build(graph, *numbers):
            layouts = [layout._replace(alignment=a)
                       for layout, a in zip(self._layouts_of(numbers), alignments)]
            self._describe(graph, layouts, numbers)
        key = where, deterministic, alignments
        if key not in self._caches:
            self._caches[key] = runtime.PlanCache(
                build, where, name="torch_region", capacity=self._limit, extents=self._extents,
                deterministic=deterministic, **self._types)
        return self._caches[key]
