// Rough times of kernels on an H200, for choosing between plans: a pure function of the spec.
#pragma once
#include <string_view>

#include "plan/kernel_spec.hpp"

namespace sinter {

inline constexpr double kLaunchMicroseconds = 2;
inline constexpr double kStreamedBytes = 4.0e6;  // a microsecond, by a streaming kernel

double pointwise_microseconds(const KernelSpec& spec);
// Of the contraction alone, by the engine that the generator would take for the architecture.
double contraction_microseconds(const KernelSpec& spec, std::string_view architecture);

}  // namespace sinter
