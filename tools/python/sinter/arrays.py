"""Arrays of NumPy, of DLPack and of __cuda_array_interface__ as checked pointers."""
import sys

import numpy

from . import _sinter

# Names of NumPy's and ml_dtypes' types that a data type takes, the one for new arrays first. Where
# ml_dtypes is not installed, formats that NumPy lacks are unsigned integers that hold the bits.
DTYPES = {
    "f64": ("float64",), "f32": ("float32",), "f16": ("float16",), "bf16": ("bfloat16", "uint16"),
    "f8e4m3": ("float8_e4m3fn", "uint8"), "f8e5m2": ("float8_e5m2", "uint8"),
    "f8e8m0": ("float8_e8m0fnu", "uint8"), "f4e2m1": ("float4_e2m1fn", "uint8"),
    "i8": ("int8",), "u8": ("uint8",), "i32": ("int32",), "i64": ("int64",), "bool": ("bool",),
}
# DLPack's type codes by the names above.
_CODES = {0: "int{}", 1: "uint{}", 2: "float{}", 4: "bfloat{}", 6: "bool", 10: "float8_e4m3fn",
          12: "float8_e5m2", 14: "float8_e8m0fnu", 17: "float4_e2m1fn"}
_DLPACK_CPU = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
_DLPACK_CUDA = (2, 13)    # kDLCUDA, kDLCUDAManaged


def dtype_of(data_type):
    """The NumPy type of new arrays of a data type."""
    for name in DTYPES[data_type]:
        try:
            return numpy.dtype(name)
        except TypeError:
            try:
                import ml_dtypes
                return numpy.dtype(getattr(ml_dtypes, name))
            except (ImportError, AttributeError):
                pass
    raise TypeError(data_type)


def is_torch(array):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, getattr(torch, "Tensor", ()))


def torch_memory():
    """The module for tensors of PyTorch, which is not imported where there are none."""
    from . import torch_memory
    return torch_memory


def torch_source(arrays, device):
    """PyTorch's memory on the device of a plan where one of the arrays is a tensor of it, else
    None."""
    return torch_memory().Source(device) if any(map(is_torch, arrays)) else None


def torch_dtype(data_type):
    """PyTorch's type of new tensors of a data type."""
    torch = sys.modules["torch"]
    return next(getattr(torch, name) for name in DTYPES[data_type] if hasattr(torch, name))


def _view(array, tensor):
    """(pointer, name of the type, dim, stride in elements, on a GPU, read only)"""
    if isinstance(array, numpy.ndarray):
        pointer, read_only = array.__array_interface__["data"]
        size = array.itemsize or 1
        return (pointer, array.dtype.name, array.shape, [s // size for s in array.strides], False,
                read_only)
    if is_torch(array):
        return torch_memory().view(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        dtype, dim = numpy.dtype(interface["typestr"]), tuple(interface["shape"])
        stride = interface.get("strides")
        stride = packed(dim) if stride is None else [s // dtype.itemsize for s in stride]
        return interface["data"][0], dtype.name, dim, stride, True, interface["data"][1]
    if not hasattr(array, "__dlpack__"):
        _sinter.fail("array-format", tensor=tensor, seen=f"a {type(array).__name__}",
                     allowed="an array of NumPy, DLPack or __cuda_array_interface__")
    pointer, code, bits, dim, stride, device, _ = _sinter.dlpack_view(array)
    if device not in _DLPACK_CPU + _DLPACK_CUDA:
        _sinter.fail("array-format", tensor=tensor, seen=f"DLPack device type {device}",
                     allowed="memory of the CPU or of CUDA")
    return (pointer, _CODES.get(code, "code {}").format(bits), dim, stride,
            device in _DLPACK_CUDA, False)


def packed(dim):
    """Row-major strides, in elements."""
    stride, step = [], 1
    for extent in reversed(dim):
        stride.append(step)
        step *= max(extent, 1)
    return stride[::-1]


def pointer_of(array, info, gpu):
    """The array's pointer, after all that the tensor of a plan asks for has been checked."""
    name, data_type, dim, stride, _, written = info[:6]
    pointer, seen, seen_dim, seen_stride, on_gpu, read_only = _view(array, name)

    def fail(what, seen, allowed, fix=""):
        _sinter.fail("array-format", tensor=name, attribute=what, seen=str(seen),
                     allowed=str(allowed), fix=fix)
    if on_gpu != gpu:
        fail("device", "GPU" if on_gpu else "CPU", "GPU" if gpu else "CPU")
    if seen not in DTYPES[data_type]:
        fail("data_type", seen, " or ".join(DTYPES[data_type]))
    if tuple(seen_dim) != dim:
        fail("dim", list(seen_dim), list(dim))
    if any(d > 1 and a != b for d, a, b in zip(dim, seen_stride, stride)) and 0 not in dim:
        fail("stride", list(seen_stride), list(stride),
             "declare these strides for the tensor, or copy the array into the plan's")
    if written and read_only:
        fail("array", "a read-only array", "one that can be written")
    return pointer


def empty(info):
    """A new NumPy array with the strides of a plan's tensor."""
    _, data_type, dim, stride, size = info[:5]
    dtype = dtype_of(data_type)
    if list(stride) == packed(dim):
        return numpy.empty(dim, dtype)
    memory = numpy.zeros(size // dtype.itemsize, dtype)
    return numpy.lib.stride_tricks.as_strided(memory, dim, [s * dtype.itemsize for s in stride])


class DeviceArray:
    """An array on a GPU that owns its memory: `numpy()` copies it, `__cuda_array_interface__`
    hands it to PyTorch, CuPy and others. Formats that NumPy lacks show as unsigned integers."""

    def __init__(self, info, device):
        _, data_type, self.shape, self._stride, size = info[:5]
        self.dtype = numpy.dtype(DTYPES[data_type][-1])
        self._memory = _sinter.Memory.allocate(device, size)

    @property
    def __cuda_array_interface__(self):
        size = self.dtype.itemsize
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str,
                "strides": tuple(s * size for s in self._stride),
                "data": (self._memory.pointer, False), "stream": None}

    def numpy(self):
        _sinter.synchronize()
        memory = numpy.frombuffer(bytearray(self._memory.copy_out()), self.dtype)
        strides = [s * self.dtype.itemsize for s in self._stride]
        return numpy.lib.stride_tricks.as_strided(memory, self.shape, strides)


def workspace(array):
    """(pointer, bytes) of device memory that a caller provides."""
    pointer, dtype, dim, _, _, _ = _view(array, "workspace")
    elements = 1
    for extent in dim:
        elements *= extent
    return pointer, elements * numpy.dtype(dtype).itemsize
