#include "runtime/driver.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/env.hpp"
#include "runtime/shared_library.hpp"

namespace sinter {
namespace {

std::atomic<bool> forked{false};  // the driver does not survive a fork

Diagnostic missing(const DriverSearch& search, std::string seen) {
  Diagnostic d{.rule = Rule::device_missing, .attribute = "an NVIDIA GPU", .seen = std::move(seen)};
  for (const auto& tried : search.tried) d.seen += (d.seen.empty() ? "" : "; ") + tried;
  d.fix = "install the NVIDIA driver, or use the CPU device";
  return d;
}

struct Symbol {
  const char* name;
  void** address;
  bool required = true;
};

template <class F>
Symbol symbol(const char* name, F& function, bool required = true) {
  return {name, reinterpret_cast<void**>(&function), required};
}

// The name of the first required function that the library lacks, or null.
const char* resolve(void* library, Driver& d) {
  const Symbol symbols[] = {
      symbol("cuInit", d.init),
      symbol("cuDriverGetVersion", d.driver_get_version),
      symbol("cuGetErrorName", d.get_error_name),
      symbol("cuGetErrorString", d.get_error_string),
      symbol("cuDeviceGetCount", d.device_get_count),
      symbol("cuDeviceGet", d.device_get),
      symbol("cuDeviceGetName", d.device_get_name),
      symbol("cuDeviceTotalMem_v2", d.device_total_mem),
      symbol("cuDeviceGetAttribute", d.device_get_attribute),
      symbol("cuDevicePrimaryCtxRetain", d.primary_ctx_retain),
      symbol("cuCtxPushCurrent_v2", d.ctx_push_current),
      symbol("cuCtxPopCurrent_v2", d.ctx_pop_current),
      symbol("cuCtxGetCurrent", d.ctx_get_current),
      symbol("cuCtxGetDevice", d.ctx_get_device),
      symbol("cuCtxSynchronize", d.ctx_synchronize),
      symbol("cuModuleLoadData", d.module_load_data),
      symbol("cuModuleUnload", d.module_unload),
      symbol("cuModuleGetFunction", d.module_get_function),
      symbol("cuFuncGetAttribute", d.func_get_attribute),
      symbol("cuFuncGetParamInfo", d.func_get_param_info, false),
      symbol("cuFuncSetAttribute", d.func_set_attribute),
      symbol("cuTensorMapEncodeTiled", d.tensor_map_encode_tiled, false),
      symbol("cuTensorMapEncodeIm2col", d.tensor_map_encode_im2col, false),
      symbol("cuMemGetInfo_v2", d.mem_get_info),
      symbol("cuMemAlloc_v2", d.mem_alloc),
      symbol("cuMemFree_v2", d.mem_free),
      symbol("cuMemcpyHtoD_v2", d.memcpy_h_to_d),
      symbol("cuMemcpyDtoH_v2", d.memcpy_d_to_h),
      symbol("cuLaunchKernel", d.launch_kernel),
      symbol("cuLaunchKernelEx", d.launch_kernel_ex, false),
  };
  for (const Symbol& s : symbols) {
    *s.address = dlsym(library, s.name);
    if (!*s.address && s.required) return s.name;
  }
  return nullptr;
}

void* open_first(const std::vector<std::string>& paths, DriverSearch& search) {
  for (const auto& path : paths) {
    std::string why;
    if (void* library = open_library(path, why)) return library;
    search.tried.push_back(std::move(why));
  }
  return nullptr;
}

struct ProcessDriver {
  DriverSearch search;
  Result<Driver> result;
  ProcessDriver() : result(open_driver(driver_paths(), &search)) {
    if (result) pthread_atfork(nullptr, nullptr, [] { forked = true; });
  }
};

// Never destroyed: executables may outlive every static object.
ProcessDriver& process_driver() {
  static auto* instance = new ProcessDriver;
  return *instance;
}

Result<CUcontext> primary_context(const Driver& d, int ordinal) {
  static auto* mutex = new std::mutex;
  static auto* contexts = new std::map<int, CUcontext>;
  const std::lock_guard lock(*mutex);
  if (auto it = contexts->find(ordinal); it != contexts->end()) return it->second;
  if (ordinal < 0 || ordinal >= d.devices)
    return Diagnostic{.rule = Rule::device_missing,
                      .attribute = fmt::format("GPU {}", ordinal),
                      .allowed = fmt::format("0 to {}", d.devices - 1)};
  CUdevice device = 0;
  CUcontext context = nullptr;
  auto got = check(d, "cuDeviceGet", d.device_get(&device, ordinal));
  SINTER_TRY(got);
  auto retained = check(d, "cuDevicePrimaryCtxRetain", d.primary_ctx_retain(&context, device));
  SINTER_TRY(retained);
  contexts->emplace(ordinal, context);
  return context;
}

}  // namespace

std::vector<std::string> driver_paths() {
  if (auto path = env_value("SINTER_DRIVER"); !path.empty()) return {path};
  return {"libcuda.so.1", "libcuda.so"};
}

Result<Driver> open_driver(const std::vector<std::string>& paths, DriverSearch* report) {
  DriverSearch own;
  DriverSearch& search = report ? *report : own;
  void* library = open_first(paths, search);
  if (!library) return missing(search, "");
  Driver d;
  const char* absent = resolve(library, d);
  Dl_info where{};
  if (d.init && dladdr(reinterpret_cast<void*>(d.init), &where) && where.dli_fname)
    search.path = d.path = where.dli_fname;
  if (absent) return missing(search, fmt::format("{} has no {}", d.path, absent));
  // The version can be asked for before, and without, a working device.
  if (d.driver_get_version(&d.version) == CUDA_SUCCESS) search.version = d.version;
  if (const CUresult r = d.init(0); r != CUDA_SUCCESS)
    return missing(search, fmt::format("{}, {}", d.path, driver_error(d, "cuInit", r).seen));
  if (const CUresult r = d.device_get_count(&d.devices); r != CUDA_SUCCESS)
    return missing(search,
                   fmt::format("{}, {}", d.path, driver_error(d, "cuDeviceGetCount", r).seen));
  if (d.devices == 0) return missing(search, fmt::format("{}: no device", d.path));
  return d;
}

Result<const Driver*> driver() {
  auto& process = process_driver();
  if (!process.result) return process.result.errors();
  if (forked.load(std::memory_order_relaxed))
    return Diagnostic{.rule = Rule::device_error,
                      .seen = "a process forked after the driver was initialised",
                      .fix = "use the GPU from the parent only, or fork before the first use"};
  return &*process.result;
}

const DriverSearch& driver_search() { return process_driver().search; }

Diagnostic driver_error(const Driver& d, const char* call, CUresult result) {
  const char *name = nullptr, *text = nullptr;
  d.get_error_name(result, &name);
  d.get_error_string(result, &text);
  return {.rule = Rule::device_error,
          .seen = fmt::format("{}: {} ({})", call, name ? name : std::to_string(result).c_str(),
                              text ? text : "no text")};
}

Status ContextScope::enter(int ordinal) {
  auto d = driver();
  SINTER_TRY(d);
  auto context = primary_context(**d, ordinal);
  SINTER_TRY(context);
  return enter(**d, *context);
}

Status ContextScope::enter(const Driver& d, CUcontext context) {
  context_ = context;
  CUcontext current = nullptr;
  if (d.ctx_get_current(&current) == CUDA_SUCCESS && current == context) return Done{};
  auto pushed = check(d, "cuCtxPushCurrent", d.ctx_push_current(context));
  if (pushed) pushed_on_ = &d;
  return pushed;
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (pushed_on_) pushed_on_->ctx_pop_current(&popped);
}

}  // namespace sinter
