// Devices and their memory. Copies wait for all work of the device on both sides, because a stream
// that does not block with the default one would otherwise still read or write the memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "plan/workspace_alignment.hpp"
#include "runtime/driver.hpp"
#include "sinter/compile.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kAddressSpace = std::int64_t{1} << 47;

Result<int> attribute(const Driver& d, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  auto got = check(d, "cuDeviceGetAttribute", d.device_get_attribute(&value, which, device));
  SINTER_TRY(got);
  return value;
}

Status check_copy(const void* host, std::int64_t bytes, std::int64_t capacity) {
  if (bytes < 0 || bytes > capacity)
    return Diagnostic{.rule = Rule::memory_size,
                      .attribute = "a copy",
                      .seen = std::to_string(bytes),
                      .allowed = fmt::format("0 to {}, the size of the memory", capacity)};
  if (bytes > 0 && !host)
    return Diagnostic{.rule = Rule::binding_null, .attribute = "the host side of a copy"};
  return Done{};
}

template <class Copy>
Status copy_on_gpu(int ordinal, const char* call, Copy copy) {
  auto d = driver();
  SINTER_TRY(d);
  ContextScope scope;
  auto entered = scope.enter(ordinal);
  SINTER_TRY(entered);
  auto before = check(**d, "cuCtxSynchronize", (*d)->ctx_synchronize());
  SINTER_TRY(before);
  auto copied = check(**d, call, copy(**d));
  SINTER_TRY(copied);
  // From pageable memory the call may return once the bytes are staged, before they have arrived.
  return check(**d, "cuCtxSynchronize", (*d)->ctx_synchronize());
}

CUdeviceptr address(void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

Device Device::current() {
  auto d = driver();
  if (!d) return cpu();
  CUcontext context = nullptr;
  CUdevice device = 0;
  if ((*d)->ctx_get_current(&context) != CUDA_SUCCESS || !context ||
      (*d)->ctx_get_device(&device) != CUDA_SUCCESS)
    return gpu(0);
  for (int i = 0; i < (*d)->devices; ++i) {
    CUdevice candidate = -1;
    if ((*d)->device_get(&candidate, i) == CUDA_SUCCESS && candidate == device) return gpu(i);
  }
  return gpu(0);
}

Result<std::string> Device::target() const {
  if (is_cpu()) return std::string();
  auto d = driver();
  SINTER_TRY(d);
  if (ordinal_ < 0 || ordinal_ >= (*d)->devices)
    return Diagnostic{.rule = Rule::device_missing,
                      .attribute = fmt::format("GPU {}", ordinal_),
                      .allowed = fmt::format("0 to {}", (*d)->devices - 1)};
  CUdevice device = 0;
  auto got = check(**d, "cuDeviceGet", (*d)->device_get(&device, ordinal_));
  SINTER_TRY(got);
  auto major = attribute(**d, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  SINTER_TRY(major);
  auto minor = attribute(**d, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  SINTER_TRY(minor);
  // From 9.0 on, the fast matrix instructions exist in the architecture's own target only.
  return fmt::format("sm_{}{}{}", *major, *minor, *major >= 9 ? "a" : "");
}

Result<Memory> Memory::allocate(Device device, std::int64_t bytes) {
  if (bytes < 0 || bytes > kAddressSpace)
    return Diagnostic{.rule = Rule::memory_size,
                      .attribute = "an allocation",
                      .seen = std::to_string(bytes),
                      .allowed = "0 to 2^47"};
  // Never empty, so that even a tensor without elements has a pointer.
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  if (device.is_cpu()) {
    void* pointer = nullptr;
    if (posix_memalign(&pointer, kWorkspaceAlignment, size) != 0)
      return Diagnostic{.rule = Rule::memory,
                        .attribute = "an allocation on the CPU device",
                        .seen = fmt::format("{} bytes", bytes)};
    return Memory(device, pointer, bytes);
  }
  auto d = driver();
  SINTER_TRY(d);
  ContextScope scope;
  auto entered = scope.enter(device.ordinal());
  SINTER_TRY(entered);
  CUdeviceptr pointer = 0;
  if (const auto r = (*d)->mem_alloc(&pointer, size); r != CUDA_SUCCESS) {
    auto error = driver_error(**d, "cuMemAlloc", r);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
      error.rule = Rule::memory;
      error.attribute = fmt::format("an allocation on GPU {}", device.ordinal());
    }
    error.seen += fmt::format(", {} bytes", bytes);
    return error;
  }
  return Memory(device, reinterpret_cast<void*>(pointer), bytes);
}

Memory::Memory(Memory&& other) noexcept
    : device_(other.device_),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// At the end of the process the driver may be gone before the memory; it took the memory with it.
Memory::~Memory() {
  if (!pointer_) return;
  if (device_.is_cpu()) {
    std::free(pointer_);
    return;
  }
  ContextScope scope;
  if (auto d = driver(); d && scope.enter(device_.ordinal())) (*d)->mem_free(address(pointer_));
}

Status Memory::copy_in(const void* host, std::int64_t bytes) {
  auto checked = check_copy(host, bytes, bytes_);
  if (!checked || bytes == 0) return checked;
  const auto size = static_cast<std::size_t>(bytes);
  if (!device_.is_cpu())
    return copy_on_gpu(device_.ordinal(), "cuMemcpyHtoD", [&](const Driver& d) {
      return d.memcpy_h_to_d(address(pointer_), host, size);
    });
  std::memcpy(pointer_, host, size);
  return checked;
}

Status Memory::copy_out(void* host, std::int64_t bytes) const {
  auto checked = check_copy(host, bytes, bytes_);
  if (!checked || bytes == 0) return checked;
  const auto size = static_cast<std::size_t>(bytes);
  if (!device_.is_cpu())
    return copy_on_gpu(device_.ordinal(), "cuMemcpyDtoH", [&](const Driver& d) {
      return d.memcpy_d_to_h(host, address(pointer_), size);
    });
  std::memcpy(host, pointer_, size);
  return checked;
}

Status synchronize(Device device) {
  if (device.is_cpu()) return Done{};
  auto d = driver();
  SINTER_TRY(d);
  ContextScope scope;
  auto entered = scope.enter(device.ordinal());
  SINTER_TRY(entered);
  return check(**d, "cuCtxSynchronize", (*d)->ctx_synchronize());
}

}  // namespace sinter
