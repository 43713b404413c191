"""From a graph to numbers: plan, compile, load, execute."""
import os
from typing import NamedTuple

from . import _sinter, arrays
from ._sinter import Graph, Plan


class Executable:
    """A plan loaded on a device. Any thread may execute it, on any stream."""

    def __init__(self, loaded, fixed=None):
        self._loaded = loaded
        self._fixed = fixed or {}  # arrays of every call that does not give others
        self._gpu = loaded.device != "cpu"
        self._tensors = loaded.plan.tensors()
        self._names = {row[9]: row[0] for row in self._tensors if row[9] is not None}  # by uid

    def __repr__(self):
        place = f"GPU {self.device}" if self._gpu else "the CPU"
        inputs = ", ".join(row[0] for row in self._tensors if not row[5])
        outputs = ", ".join(row[0] for row in self._tensors if row[5])
        return (f"<Executable '{self.plan.name}' on {place}: {inputs} -> {outputs}, "
                f"{self.plan.kernels} kernel{'s' if self.plan.kernels != 1 else ''}>")

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
        """Runs on arrays by tensor name, or by uid, and gives the outputs by name.

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
        pointers, results, source = self._placed(bindings)
        place, _owner, wait = self._workspace(workspace, source, stream)
        if stream is None:
            stream = source.stream() if source else 0
        self._loaded.execute(stream, pointers, *place)
        if wait:
            _sinter.synchronize(self.device)
        return results

    def bind(self, bindings, *, workspace=None):
        """Checks and looks up the arrays once: a Bound, whose calls do nothing but launch. Arrays
        and `workspace` are those of execute(), and stay those of every call."""
        pointers, results, source = self._placed(bindings)
        place, owner, _ = self._workspace(workspace, source, None)
        kept = [self._fixed, dict(bindings), results, workspace, owner]
        return Bound(self._loaded.bind(pointers, *place), results, source, kept)

    def _placed(self, bindings):
        """Pointers by name, the outputs by name, and whose memory the outputs are."""
        bindings = {**self._fixed, **self._by_name(bindings)}
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
        return pointers, results, source

    def _by_name(self, bindings):
        if not self._names:
            return bindings
        named = {key: array for key, array in bindings.items() if isinstance(key, str)}
        for key in bindings.keys() - named.keys():
            name = self._names.get(key, key)
            named[key if name in named else name] = bindings[key]  # twice, which is refused later
        return named

    def _workspace(self, workspace, source, stream):
        """(pointer, bytes), what owns it, and whether a call has to wait before that may go."""
        needed = self.workspace_bytes
        if workspace is not None:
            return arrays.workspace(workspace), None, False
        if not needed:
            return (0, 0), None, False
        if source and stream in (None, source.stream()):
            owner, pointer = source.workspace(needed)
            return (pointer, needed), owner, False
        owner = _sinter.Memory.allocate(self.device, needed)
        return (owner.pointer, needed), owner, True

    def _made(self, info, source):
        if source:
            return source.empty(info[2], info[3], arrays.torch_dtype(info[1]))
        return arrays.DeviceArray(info, self.device) if self._gpu else arrays.empty(info)

    def __call__(self, *, stream=None, workspace=None, **bindings):
        """execute() with tensors as keywords."""
        return self.execute(bindings, stream=stream, workspace=workspace)

    def save(self, path):
        save(self.plan, path)


class Bound:
    """A plan with the arrays that it works on, which it keeps alive. Calls that may overlap in time
    need arrays, and a Bound, of their own."""

    def __init__(self, bound, outputs, source, kept):
        self._bound, self._source, self._kept = bound, source, kept
        self.outputs = outputs  # arrays by name

    def execute(self, numbers=None, *, stream=None):
        """Launches, and gives the outputs by name. `numbers` take the place of those bound, for
        this call; `stream` is that of Executable.execute()."""
        if stream is None:
            stream = self._source.stream() if self._source else 0
        if numbers:
            self._bound.execute_with(stream, {name: [n] for name, n in numbers.items()})
        else:
            self._bound.execute(stream)
        return self.outputs

    def __call__(self, *, stream=None, **numbers):
        """execute() with numbers as keywords: bound(lr=0.02)."""
        return self.execute(numbers, stream=stream)


class Prepared:
    """A graph in two: what follows from inputs that are declared constant, and the rest."""

    def __init__(self, constants, rest):
        self.constants, self.rest = constants, rest  # plans; constants is None where none is needed

    def load(self, bindings, device=None) -> Executable:
        """Computes once what follows from the constants, whose arrays `bindings` gives by name, and
        loads the rest: an Executable that needs only the other inputs. It keeps what was computed,
        and of the constants those that it still reads."""
        made, device = {}, _sinter.current_device() if device is None else device
        if self.constants:
            made = load(self.constants, device).execute(
                {row[0]: bindings[row[0]] for row in self.constants.tensors()
                 if row[0] in bindings})
        loaded = _sinter.load(self.rest, device)
        fixed = {}
        for row in loaded.plan.tensors():
            name, written, read = row[0], row[5], row[7]
            if read and not written and (name in made or name in bindings):
                fixed[name] = made[name] if name in made else bindings[name]
        return Executable(loaded, fixed)


class Counts(NamedTuple):
    """Of a PlanCache."""
    hits: int      # calls that found an executable
    compiles: int  # plans with fast kernels, those that failed as well
    kernels: int   # that were compiled, each once; fast ones
    classes: int   # of extents that were met
    plain: int     # calls that were answered with plain kernels
    failed: int    # compilations in the background: the plain kernels stay
    evicted: int
    held: int      # executables that are held now


def dyn(name, least, most, bounds=()):
    """An extent that changes from call to call, for PlanCache. Plans whose extents are of the same
    classes share machine code; `bounds` are the largest extents of the classes."""
    return name, least, most, list(bounds)


class PlanCache:
    """Executables by extents: a plan holds for one set of extents, a program meets many.

        def build(graph, batch):
            graph.output(sinter.softmax(graph.tensor("x", [batch, 64])).Y, "y")
        cache = sinter.PlanCache(build, extents=[sinter.dyn("batch", 1, 64)])
        y = cache.get(3)(x=x)["y"]

    Any thread may call it, and call the builder. `capacity` executables are held. With `background`
    a key that is new is answered with plain kernels, which compile soon, while a thread compiles
    the fast ones. Without `extents` every plan is compiled for its own.
    """

    def __init__(self, builder, device=None, *, name="graph", io_data_type="f32",
                 intermediate_data_type="f32", compute_data_type="f32", capacity=64,
                 background=False, extents=(), fuse=True, deterministic=False, architecture="",
                 tuning_file=""):
        like = Graph(name, io_data_type=io_data_type,
                     intermediate_data_type=intermediate_data_type,
                     compute_data_type=compute_data_type)
        self._cache = _sinter.Cache(builder, device, like, capacity=capacity,
                                    background=background, extents=list(extents), fuse=fuse,
                                    deterministic=deterministic, architecture=architecture,
                                    tuning_file=tuning_file)

    def get(self, *extents) -> Executable:
        """Of the graph that the builder makes of these extents."""
        return Executable(self._cache.get(list(extents)))

    def wait(self):
        """Returns when nothing is compiled in the background."""
        self._cache.wait()

    @property
    def counts(self) -> Counts:
        return Counts(*self._cache.counts())

    def failure(self) -> list:
        """Why the last of `counts.failed` did, as in `sinter.Error.diagnostics`; empty where none has."""
        return self._cache.failure()

    def explain(self) -> str:
        """The classes of extents that were met, a line each."""
        return self._cache.explain()


def plan(graph: Graph, *, fuse=True, deterministic=False, targets=(), architecture="",
         tuning_file="", progress=None) -> Plan:
    """Plans a graph; needs no GPU. `deterministic`: results have the same bits in each run, those
    of attention's gradients too, however they are written. `targets` get machine code, e.g.
    ["sm_90a"], which needs NVRTC. `progress` is called as kernels are planned and compiled: progress("compiling", 3, 12)."""
    return Plan.make(graph, fuse=fuse, deterministic=deterministic, targets=list(targets),
                     architecture=architecture, tuning_file=tuning_file, progress=progress)


def compile(graph: Graph, device=None, *, fuse=True, deterministic=False, architecture="",
            tuning_file="", progress=None) -> Executable:
    """Plans, generates, compiles and loads. `device` is "cpu", a GPU's ordinal, or None: the
    current GPU, the CPU where there is none. The others are those of plan()."""
    return Executable(_sinter.compile(graph, device, fuse=fuse, deterministic=deterministic,
                                      architecture=architecture, tuning_file=tuning_file,
                                      progress=progress))


def prepare(graph: Graph, device=None, *, fuse=True, deterministic=False, targets=(),
            architecture="", tuning_file="") -> Prepared:
    """Plans a graph in two parts: weights that are folded, transposed, quantised or rearranged for
    the kernels of `architecture` (that of the device, where none is given) are so once.

        run = sinter.prepare(graph).load({"w": w})     # w is declared constant=True
        y = run(x=x)["y"]
    """
    return Prepared(*_sinter.prepare(graph, device, fuse=fuse, deterministic=deterministic,
                                     targets=list(targets), architecture=architecture,
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
