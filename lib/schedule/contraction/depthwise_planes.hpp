// Depthwise convolutions, and those in narrow groups, whose images lie plane by plane, with whole
// planes in shared memory: codegen/device/family/contraction_depthwise_planes.cuh.
#pragma once
#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

// Channels (or groups) and images of a thread block; elements of such a channel.
struct DepthwisePlanes {
  int units = 1, images = 1;
  int stages = 1;  // of a filter's gradient: tiles in shared memory
  std::int64_t pixels = 1;
};
struct DepthwisePlanesConfig : DepthwiseConfig {
  DepthwisePlanes planes{};
  std::optional<DepthwiseOperand> result{};  // that leaves in runs
  bool narrow = false;  // lines of few bytes, which loads to registers take longer for than is said
};

// Nothing where planes do not lie one behind another, runs of them do not begin at multiples of 16
// bytes, or where this was not measured to be faster than loads to registers. `memory`:
// microseconds that memory takes.
std::optional<DepthwisePlanesConfig> plan_depthwise_planes(const KernelSpec& spec,
                                                           const DepthwiseConfig& parts,
                                                           const std::vector<ImageDim>& dims,
                                                           double memory,
                                                           const DeviceModel& device);

// The port of numbers that results are computed from besides sums, and that come to shared memory
// as the pixels do, where the results will wait; -1: none.
int port_beside_results(const KernelSpec& spec, const DepthwisePlanesConfig& e);

// The same of a filter's gradient: contraction_depthwise_planes_gradient.cuh.
std::optional<DepthwisePlanesConfig> plan_depthwise_planes_gradient(
    const KernelSpec& spec, const DepthwiseConfig& parts, const std::vector<ImageDim>& dims,
    double memory, const DeviceModel& device);

inline constexpr std::int64_t kPieceOfPlanes = 16;  // bytes that are copied at once

// Where channels (or groups) of `elements` elements lie one behind another, and all else begins at
// pieces: how many make whole pieces. 0: they do not lie so. `walked`: indices within a channel.
std::int64_t channels_of_pieces(const KernelSpec& spec, const KernelPort& port, std::int64_t offset,
                                int channel, const std::vector<int>& walked, std::int64_t elements);

}  // namespace sinter
