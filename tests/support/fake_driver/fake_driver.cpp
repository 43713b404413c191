// A libcuda with host memory behind its pointers and launches that are only written down.
#include "fake_driver.hpp"

#include <cuda.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

namespace {

FakeDriver state;
char primary_contexts[8];
thread_local std::vector<CUcontext> stack;

bool fails(const char* call, CUresult* result) {
  ++state.calls;
  if (!state.failing_call || std::strcmp(state.failing_call, call) != 0) return false;
  *result = static_cast<CUresult>(state.failing_result);
  return true;
}

CUcontext primary(int device) { return reinterpret_cast<CUcontext>(&primary_contexts[device]); }

struct Function {
  char name[64];
};

void note(CUfunction function, unsigned grid, unsigned block, unsigned shared_bytes,
          CUstream stream, void** parameters, bool overlaps) {
  FakeLaunch& launch = state.log[state.launches++ % 64];
  std::memcpy(launch.function, reinterpret_cast<Function*>(function)->name, sizeof launch.function);
  launch.grid = grid;
  launch.block = block;
  launch.shared_bytes = shared_bytes;
  launch.overlaps = overlaps;
  launch.stream = stream;
  launch.context = stack.empty() ? nullptr : stack.back();
  const std::size_t bytes = state.argument_bytes < sizeof launch.arguments
                                ? state.argument_bytes
                                : sizeof launch.arguments;
  std::memcpy(launch.arguments, parameters[0], bytes);
}

}  // namespace

// Returns the result that the test asked for at the head of every function.
#define FAIL_IF_TOLD(call)               \
  do {                                   \
    CUresult told;                       \
    if (fails(call, &told)) return told; \
  } while (0)

extern "C" {

FakeDriver* fake_driver_state() { return &state; }

CUresult cuInit(unsigned) {
  if (const char* result = std::getenv("FAKE_DRIVER_INIT"))
    return static_cast<CUresult>(std::atoi(result));
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult r, const char** name) {
  *name = r == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : r == CUDA_ERROR_NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
          : r == CUDA_ERROR_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE"
                                          : nullptr;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult r, const char** text) {
  *text = r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : nullptr;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDeviceGetCount(int* count) {
  FAIL_IF_TOLD("cuDeviceGetCount");
  return *count = state.devices, CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAIL_IF_TOLD("cuDeviceGet");
  return *device = ordinal, CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  return std::strncpy(name, "Fake GPU", static_cast<std::size_t>(bytes)), CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  return *bytes = std::size_t{8} << 30, CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  FAIL_IF_TOLD("cuDeviceGetAttribute");
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? state.major
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? state.minor
                                                                   : 132;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAIL_IF_TOLD("cuDevicePrimaryCtxRetain");
  ++state.retained;
  return *context = primary(device), CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  FAIL_IF_TOLD("cuCtxPushCurrent");
  stack.push_back(context);
  ++state.context_depth;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  stack.pop_back();
  --state.context_depth;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  return *context = stack.empty() ? nullptr : stack.back(), CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  for (int i = 0; i < state.devices; ++i)
    if (!stack.empty() && stack.back() == primary(i)) return *device = i, CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuCtxSynchronize() {
  FAIL_IF_TOLD("cuCtxSynchronize");
  return ++state.synchronized, CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAIL_IF_TOLD("cuModuleLoadData");
  if (std::memcmp(image, "\177ELF", 4) != 0 || stack.empty()) return CUDA_ERROR_INVALID_IMAGE;
  ++state.modules;
  return *module = reinterpret_cast<CUmodule>(new char), CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  --state.modules;
  delete reinterpret_cast<char*>(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  FAIL_IF_TOLD("cuModuleGetFunction");
  static std::deque<Function> functions;  // whose elements stay where they are
  std::strncpy(functions.emplace_back().name, name, sizeof(Function::name) - 1);
  return *function = reinterpret_cast<CUfunction>(&functions.back()), CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  FAIL_IF_TOLD("cuFuncGetAttribute");
  return *value = state.max_threads, CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction, std::size_t, std::size_t* offset, std::size_t* bytes) {
  if (state.argument_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  return *bytes = state.argument_bytes, CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute which, int value) {
  FAIL_IF_TOLD("cuFuncSetAttribute");
  if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
  return state.shared_allowed = value, CUDA_SUCCESS;
}
// The pointer, and ones behind it.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* pointer, const cuuint64_t* dim, const cuuint64_t* stride,
                                const cuuint32_t* box, const cuuint32_t* element_steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  FAIL_IF_TOLD("cuTensorMapEncodeTiled");
  if (rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  ++state.encodings;
  FakeEncoding& e = state.encoding = {};
  e.type = type, e.swizzle = swizzle, e.promotion = promotion;
  e.interleave = interleave, e.fill = fill, e.rank = rank;
  for (unsigned i = 0; i < rank; ++i) {
    e.dim[i] = dim[i], e.box[i] = box[i], e.element_steps[i] = element_steps[i];
    if (i + 1 < rank) e.stride[i] = stride[i];
  }
  std::memset(map, 0xff, sizeof *map);
  std::memcpy(map, &pointer, sizeof pointer);
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* pointer, const cuuint64_t* dim, const cuuint64_t* stride,
                                 const int* lower, const int* upper, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t* element_steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  FAIL_IF_TOLD("cuTensorMapEncodeIm2col");
  if (rank < 3 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  ++state.encodings;
  FakeEncoding& e = state.encoding = {};
  e.type = type, e.swizzle = swizzle, e.promotion = promotion;
  e.interleave = interleave, e.fill = fill, e.rank = rank;
  e.box[0] = channels, e.box[1] = pixels, e.walks_pixels = true;
  for (unsigned i = 0; i < rank; ++i) {
    e.dim[i] = dim[i], e.element_steps[i] = element_steps[i];
    if (i + 1 < rank) e.stride[i] = stride[i];
    if (i + 2 < rank) e.lower[i] = lower[i], e.upper[i] = upper[i];
  }
  std::memset(map, 0xff, sizeof *map);
  std::memcpy(map, &pointer, sizeof pointer);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  FAIL_IF_TOLD("cuMemGetInfo");
  *free = state.free_bytes;
  return *total = std::size_t{8} << 30, CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  FAIL_IF_TOLD("cuMemAlloc");
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  ++state.allocations;
  return *pointer = reinterpret_cast<CUdeviceptr>(memory), CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr pointer) {
  --state.allocations;
  std::free(reinterpret_cast<void*>(pointer));
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  FAIL_IF_TOLD("cuMemcpyHtoD");
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  FAIL_IF_TOLD("cuMemcpyDtoH");
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned, unsigned, unsigned block,
                        unsigned, unsigned, unsigned shared_bytes, CUstream stream,
                        void** parameters, void**) {
  FAIL_IF_TOLD("cuLaunchKernel");
  return note(function, x, block, shared_bytes, stream, parameters, false), CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void** parameters, void**) {
  FAIL_IF_TOLD("cuLaunchKernelEx");
  if (c->numAttrs != 1 || c->attrs->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
      c->gridDimY != 1 || c->gridDimZ != 1 || c->blockDimY != 1 || c->blockDimZ != 1)
    return CUDA_ERROR_INVALID_VALUE;
  return note(function, c->gridDimX, c->blockDimX, c->sharedMemBytes, c->hStream, parameters,
              c->attrs->value.programmaticStreamSerializationAllowed != 0),
         CUDA_SUCCESS;
}

}  // extern "C"
