// What the planner asks of the generator's engines: whether one takes a kernel, and roughly how long
// it runs on an H200. Pure functions of the spec.
#pragma once
#include <string_view>

#include "plan/kernel_spec.hpp"

namespace sinter {

inline constexpr double kLaunchMicroseconds = 2;
inline constexpr double kStreamedBytes = 4.0e6;  // a microsecond, by a streaming kernel

// Whether an engine on the architecture's tensor cores does the contraction with all that is fused to
// it: a second product, reduced results.
bool on_tensor_cores(const KernelSpec& spec, std::string_view architecture);

double pointwise_microseconds(const KernelSpec& spec);
// Of the contraction alone, by the engine that the generator would take for the architecture.
double contraction_microseconds(const KernelSpec& spec, std::string_view architecture);

}  // namespace sinter
