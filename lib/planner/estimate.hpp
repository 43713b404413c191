// Rough times of kernels, for choosing between plans: a pure function of the spec and
// the device.
#pragma once
#include "plan/kernel_spec.hpp"
#include "target/device_model.hpp"

namespace sinter {

double pointwise_microseconds(const KernelSpec& spec, const DeviceModel& device);
// Of the contraction alone, by the engine that the generator would take for the device.
double contraction_microseconds(const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
