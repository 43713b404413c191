"""PyTorch's tensors, memory and streams for execute(). Imported only where PyTorch is in use."""
import torch

_WORKSPACE_ALIGNMENT = 256
# What Inductor's own code calls: the same without the dispatcher.
_QUICK = torch._C._dynamo.guards if hasattr(torch._C, "_dynamo") else None
_QUICK_EMPTY = getattr(_QUICK, "_empty_strided_cuda", None)
reinterpreted = getattr(_QUICK, "_reinterpret_tensor", torch.as_strided)


def name_of(dtype):
    return str(dtype).rpartition(".")[2]


def view(tensor):
    """As arrays.pointer_of takes it: (pointer, type, dim, stride, on a GPU, read only). The pointer
    alone is taken: unlike through DLPack no stream waits for another."""
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
        raise TypeError(f"a {tensor.layout} tensor on {tensor.device}")
    return (tensor.data_ptr(), name_of(tensor.dtype), tuple(tensor.shape), tensor.stride(),
            tensor.is_cuda, False)


class Source:
    """Makes what a call lacks in the memory of PyTorch, for the current stream of a device."""

    def __init__(self, device):
        self._device = torch.device(device) if isinstance(device, str) else torch.device(
            "cuda", device)
        self._quick = _QUICK_EMPTY is not None and self._device.type == "cuda"

    def empty(self, dim, stride, dtype):
        if self._quick and torch._C._cuda_getDevice() == self._device.index:
            return _QUICK_EMPTY(dim, stride, dtype)
        return torch.empty_strided(dim, stride, dtype=dtype, device=self._device)

    def workspace(self, size):
        """(tensor that owns it, pointer). The GPU's allocator aligns by itself, and keeps freed
        memory for the stream: nothing has to wait for the kernels."""
        if not size:
            return None, 0
        spare = 0 if self._device.type == "cuda" else _WORKSPACE_ALIGNMENT
        memory = self.empty((size + spare,), (1,), torch.uint8)
        return memory, -(-memory.data_ptr() // _WORKSPACE_ALIGNMENT) * _WORKSPACE_ALIGNMENT

    def stream(self):
        if self._device.type != "cuda":
            return 0
        return torch._C._cuda_getCurrentRawStream(self._device.index)
