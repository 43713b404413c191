// How a convolution of few channels runs whose pixels come as they lie in memory; see
// codegen/device/family/contraction_image_rows.cuh. A pure function of the spec and the device
// model.
#pragma once
#include <optional>

#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// Forward convolutions of 16-bit numbers over two dims; nothing for others.
std::optional<WgmmaPlan> plan_image_rows(const KernelSpec& spec, const DeviceModel& device);
// As a kernel that was decided for another number of images.
std::optional<WgmmaPlan> image_rows_as(const WgmmaConfig& decided, const KernelSpec& spec,
                                       const DeviceModel& device);

}  // namespace sinter
