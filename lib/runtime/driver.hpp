// libcuda, opened at run time, so that everything but execution works on machines without a GPU.
// Every call's result becomes a Diagnostic that names the call; contexts are the devices' primary
// ones, pushed for our calls only, so that the caller's current context stays as it was.
#pragma once
#include <cuda.h>

#include <string>
#include <vector>

#include "sinter/base/result.hpp"

namespace sinter {

struct Driver {
  std::string path;  // of the library that was opened
  int version = 0;   // 13000 is 13.0
  int devices = 0;

  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&::cuGetErrorName) get_error_name = nullptr;
  decltype(&::cuGetErrorString) get_error_string = nullptr;
  decltype(&::cuDeviceGetCount) device_get_count = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetName) device_get_name = nullptr;
  decltype(&::cuDeviceTotalMem_v2) device_total_mem = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) primary_ctx_retain = nullptr;
  decltype(&::cuCtxPushCurrent_v2) ctx_push_current = nullptr;
  decltype(&::cuCtxPopCurrent_v2) ctx_pop_current = nullptr;
  decltype(&::cuCtxGetCurrent) ctx_get_current = nullptr;
  decltype(&::cuCtxGetDevice) ctx_get_device = nullptr;
  decltype(&::cuCtxSynchronize) ctx_synchronize = nullptr;
  decltype(&::cuModuleLoadData) module_load_data = nullptr;
  decltype(&::cuModuleUnload) module_unload = nullptr;
  decltype(&::cuModuleGetFunction) module_get_function = nullptr;
  decltype(&::cuFuncGetAttribute) func_get_attribute = nullptr;
  decltype(&::cuFuncGetParamInfo) func_get_param_info = nullptr;  // null before driver 12.4
  decltype(&::cuFuncSetAttribute) func_set_attribute = nullptr;
  decltype(&::cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;  // null before driver 12.0
  decltype(&::cuTensorMapEncodeIm2col) tensor_map_encode_im2col = nullptr;  // the same
  decltype(&::cuMemGetInfo_v2) mem_get_info = nullptr;
  decltype(&::cuMemAlloc_v2) mem_alloc = nullptr;
  decltype(&::cuMemFree_v2) mem_free = nullptr;
  decltype(&::cuMemcpyHtoD_v2) memcpy_h_to_d = nullptr;
  decltype(&::cuMemcpyDtoH_v2) memcpy_d_to_h = nullptr;
  decltype(&::cuLaunchKernel) launch_kernel = nullptr;
  decltype(&::cuLaunchKernelEx) launch_kernel_ex = nullptr;  // null before driver 11.8
};

// What opening the driver came to, for `sinter doctor`.
struct DriverSearch {
  std::vector<std::string> tried;  // each with the loader's reason
  std::string path;                // of the library, also where it then failed to start
  int version = 0;
};

// The paths to try: SINTER_DRIVER alone where it is set, else the loader's names.
std::vector<std::string> driver_paths();
// Opens and initialises the first library that the loader finds; device_missing when none is found
// or it has no device.
Result<Driver> open_driver(const std::vector<std::string>& paths, DriverSearch* search = nullptr);

// The process's driver, opened by the first call and kept to the end; the error is kept too.
Result<const Driver*> driver();
const DriverSearch& driver_search();

Diagnostic driver_error(const Driver& driver, const char* call, CUresult result);

// Empty on success.
inline Status check(const Driver& driver, const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) [[likely]]
    return Done{};
  return driver_error(driver, call, result);
}

// Makes the primary context of a device current for a scope.
class ContextScope {
 public:
  ContextScope() = default;
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();
  // Retains the context at the first use of the device in this process.
  Status enter(int ordinal);
  // The same for a context that is known: no look-up, no lock, nothing at all when it is current.
  Status enter(const Driver& driver, CUcontext context);
  CUcontext context() const { return context_; }

 private:
  const Driver* pushed_on_ = nullptr;
  CUcontext context_ = nullptr;
};

}  // namespace sinter
