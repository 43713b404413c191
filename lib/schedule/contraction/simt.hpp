// How a contraction runs on CUDA cores, or in f64 on tensor cores; see
// codegen/device/family/contraction_simt.cuh. A pure function of the spec and the device model.
#pragma once
#include <optional>

#include "plan/kernel_spec.hpp"
#include "schedule/launch.hpp"
#include "target/device_model.hpp"

namespace sinter {

inline constexpr int kSmallTile = 64, kLargeTile = 128;  // of contraction_simt.cuh

struct SimtConfig : Launch {
  int tile = kSmallTile;  // its rows and columns
  // Along which index neighbouring threads read A and B and write the result.
  bool a_k_fastest = true, b_k_fastest = true, n_fastest = true;
  bool tensor_cores = false;  // multiply, which f64 they do
};

SimtConfig schedule_simt(const KernelSpec& spec, const DeviceModel& device);
// In the tiles of one for other extents; nothing where its operands lie otherwise.
std::optional<SimtConfig> schedule_as(const SimtConfig& decided, const KernelSpec& spec,
                                      const DeviceModel& device);

}  // namespace sinter
