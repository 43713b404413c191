#include "runtime/launch.hpp"

#include "target/target.hpp"

namespace sinter {
namespace {

// Only read, by all launches; the driver's interface has no const.
CUlaunchAttribute overlap = [] {
  CUlaunchAttribute a{};
  a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  a.value.programmaticStreamSerializationAllowed = 1;
  return a;
}();

}  // namespace

Launch make_launch(const Driver& driver, const PlanKernel& kernel, CUfunction function,
                   std::string_view target) {
  Launch l{.function = function};
  l.config.gridDimX = kernel.grid;
  l.config.blockDimX = kernel.block;
  l.config.gridDimY = l.config.gridDimZ = l.config.blockDimY = l.config.blockDimZ = 1;
  l.config.sharedMemBytes = kernel.shared_bytes;
  if (kernel.grid_dependency_wait && driver.launch_kernel_ex && has_dependent_launch(target)) {
    l.config.attrs = &overlap;
    l.config.numAttrs = 1;
  }
  return l;
}

Status launch(const Driver& driver, const Launch& launch, CUstream stream, void* arguments) {
  CUlaunchConfig c = launch.config;
  void* parameters[] = {arguments};
  if (c.numAttrs == 0)
    return check(driver, "cuLaunchKernel",
                 driver.launch_kernel(launch.function, c.gridDimX, 1, 1, c.blockDimX, 1, 1,
                                      c.sharedMemBytes, stream, parameters, nullptr));
  c.hStream = stream;
  return check(driver, "cuLaunchKernelEx",
               driver.launch_kernel_ex(&c, launch.function, parameters, nullptr));
}

}  // namespace sinter
