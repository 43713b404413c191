"""From a graph to numbers: plan, compile, load, execute."""
import os

from . import _sinter, arrays
from ._sinter import Graph, Plan


class Executable:
    """A plan loaded on a device. Any thread may execute it, on any stream."""

    def __init__(self, loaded):
        self._loaded = loaded
        self._gpu = loaded.device != "cpu"
        self._tensors = loaded.plan.tensors()

    @property
    def plan(self):
        return self._loaded.plan

    @property
    def device(self):
        """'cpu', or the ordinal of the GPU."""
        return self._loaded.device

    @property
    def workspace_bytes(self):
        """Of device memory (host memory on the CPU) that execute() needs."""
        return self._loaded.workspace_bytes

    def execute(self, bindings, *, stream=None, workspace=None):
        """Runs on arrays by tensor name and gives the outputs by name.

        Arrays are NumPy's or PyTorch's on the CPU; on a GPU tensors of PyTorch and anything that
        speaks DLPack or __cuda_array_interface__. They are used where they lie: type, dims and
        strides must be the plan's. Outputs that are not given are made: tensors where an array is
        one, else NumPy arrays, on a GPU a DeviceArray; one that the graph declares an alias of an
        input is written in that input's array. An input that is passed by value
        (Graph.scalar_input) takes a number: lr=0.01.

        `stream` is a CUstream as an integer; None is PyTorch's current stream where an array is its
        tensor, else the default stream. On a GPU execute() returns while the kernels run, and the
        arrays must live until they end. `workspace` is an array of at least workspace_bytes on the
        device; where it is needed and not given, PyTorch's allocator gives it for its current
        stream. Without PyTorch's tensors one is made for this call, which then waits for the device.
        """
        bindings = dict(bindings)
        source = arrays.torch_source(bindings.values(), self.device)
        pointers, inputs, results = {}, {}, {}
        for info in self._tensors:
            name, written, by_value, alias = info[0], info[5], info[6], info[8]
            array = bindings.pop(name, None)
            if by_value and array is not None:
                pointers[name] = [array]  # a number
                continue
            if array is None and alias:
                array = inputs.get(alias)  # in place
            if array is None:
                if not written:
                    continue  # execute() of the library refuses the call, as it does unknown names
                array = self._made(info, source)
            if written:
                results[name] = array
            else:
                inputs[name] = array
            pointers[name] = arrays.pointer_of(array, info, self._gpu)
        pointers.update(dict.fromkeys(bindings, 0))
        needed, owner, wait = self.workspace_bytes, None, False
        if workspace is not None:
            place = arrays.workspace(workspace)
        elif needed and source and stream in (None, source.stream()):
            owner, pointer = source.workspace(needed)
            place = pointer, needed
        elif needed:
            owner = _sinter.Memory.allocate(self.device, needed)
            place, wait = (owner.pointer, needed), True
        else:
            place = 0, 0
        if stream is None:
            stream = source.stream() if source else 0
        self._loaded.execute(stream, pointers, *place)
        if wait:
            _sinter.synchronize(self.device)
        return results

    def _made(self, info, source):
        if source:
            return source.empty(info[2], info[3], arrays.torch_dtype(info[1]))
        return arrays.DeviceArray(info, self.device) if self._gpu else arrays.empty(info)

    def __call__(self, *, stream=None, workspace=None, **bindings):
        """execute() with tensors as keywords."""
        return self.execute(bindings, stream=stream, workspace=workspace)

    def save(self, path):
        save(self.plan, path)


def plan(graph: Graph, *, fuse=True, targets=(), architecture="", tuning_file="") -> Plan:
    """Plans a graph; needs no GPU. `targets` get machine code, e.g. ["sm_90a"], which needs NVRTC."""
    return Plan.make(graph, fuse=fuse, targets=list(targets), architecture=architecture,
                     tuning_file=tuning_file)


def compile(graph: Graph, device=None, *, fuse=True, architecture="",
            tuning_file="") -> Executable:
    """Plans, generates, compiles and loads. `device` is "cpu", a GPU's ordinal, or None: the
    current GPU, the CPU where there is none."""
    return Executable(_sinter.compile(graph, device, fuse=fuse, architecture=architecture,
                                      tuning_file=tuning_file))


def save(what: Plan, path):
    """Writes a plan as canonical JSON."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(what.to_json())


def load(source, device=None) -> Executable:
    """Loads a plan, or the file of one, on a device. A plan is code: load only what you trust."""
    if not isinstance(source, Plan):
        path = os.fspath(source)
        with open(path, encoding="utf-8") as file:
            source = Plan.from_json(file.read(), path)
    return Executable(_sinter.load(source, device))
