// How a convolution of few channels runs whose pixels come as they lie in memory; see
// codegen/device/family/contraction_image_rows.cuh. A pure function of the spec and the device
// model.
#pragma once
#include <optional>

#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// Result i of a dim sees the pixels base + step i to base + step i + taps - 1.
struct SeenPixels {
  std::int64_t base = 0, step = 1, taps = 1;
};

struct ImageRowsConfig : WarpgroupConfig {
  int image_port = -1;
  DataType number = DataType::none;  // that both operands are multiplied as
  int image_bytes = 2;               // of an element of the image
  SeenPixels down, across, frames;
  std::int64_t channels = 1;
  std::int64_t line = 0, lines = 0, pitch = 0;   // elements of a row, rows, from row to row
  std::int64_t all_frames = 0, frame_pitch = 0;  // of a volume
  std::int64_t offset = 0, image_step = 0;       // of the first image, from one to the next
  int image_index = -1;                          // of the domain
  int band = 1;                                  // rows of results that a block takes at a time
};

struct ImageRowsPlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  ImageRowsConfig engine;
};

// Forward convolutions of numbers of 16 or 8 bits, or of tf32, over up to three dims; nothing for
// others.
std::optional<ImageRowsPlan> plan_image_rows(const KernelSpec& spec, const DeviceModel& device);
// As a kernel that was decided for another number of images.
std::optional<ImageRowsPlan> schedule_as(const ImageRowsConfig& decided, const KernelSpec& spec,
                                         const DeviceModel& device);

}  // namespace sinter
