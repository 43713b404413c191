// How a convolution whose channels are not summed over runs: which of the domain's indices are its
// channels, pixels and taps, and the block of results of a thread of CUDA cores, or of a
// multiplication of tensor cores; see codegen/device/family/contraction_depthwise.cuh and
// contraction_depthwise_mma.cuh. A pure function of the spec and the device model.
#pragma once
#include <optional>
#include <vector>

#include "plan/tensor_map.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/launch.hpp"
#include "schedule/packing.hpp"
#include "target/device_model.hpp"

namespace sinter {

// An operand that is loaded as it lies.
struct DepthwiseOperand {
  int port = -1;
  std::int64_t offset = 0;  // of an image: that of coordinate 0
  // Where TMA brings it in boxes: of channels, columns, rows, and what these indices count.
  std::optional<TensorMap> map{};
  std::vector<int> counted{};
  bool rows_last = false;  // the map's dims: what is counted lies before rows
  bool in_place = false;   // read by an epilogue: comes to where the results will wait
  int line = 0;            // pixels of a row in shared memory
};

// On tensor cores: tiles of results side by side, and rows in shared memory; of a gradient, 16
// pixels a tile, and two rows a stage.
struct DepthwiseTiles {
  int across = 1, stages = 3;
  int rows = 1;  // of the image a step
  // By TMA, with warps that multiply and others that load and store: rows of results in shared
  // memory, and registers of both. 0: all warps do all.
  int result_rows = 0, consumer_registers = 0, producer_registers = 0;
  // Of filter gradients of groups: units of 8 channels of a line in shared memory.
  int line_units = 0;
};

// On CUDA cores, with pixels that TMA brings: blocks of results side by side, images of a
// thread block, and stages of rows.
struct DepthwiseRows {
  int across = 1, planes = 1, stages = 3;
};

// On CUDA cores, with whole planes of pixels in shared memory: channels (or groups) and images
// of a thread block; elements of such a channel.
struct DepthwisePlanes {
  int units = 1, images = 1;
  int stages = 1;  // of a filter's gradient: tiles in shared memory
  std::int64_t pixels = 1;
};

// Groups of `channels` channels: those of the image are counted by index `inner`, those of the
// result by `outer`. Of `planes` images at once.
struct DepthwiseGroups {
  int inner = -1, outer = -1, channels = 1, planes = 1;
};

// On tensor cores, with pixels of a line together: tiles of results side by side of a warp, which
// walks over `run` rows of those and of others.
struct DepthwiseLines {
  int across = 1;
};

struct DepthwiseConfig : Launch {
  bool gradient = false;  // of the filter
  DepthwiseOperand image, other;
  std::optional<DepthwiseOperand> result;  // that TMA stores in boxes; of planes: in runs
  std::vector<DepthwiseOperand> beside;    // that the epilogue reads, and TMA brings
  bool along_columns = false;              // results of a line lie together, and are stored so
  int channel = -1;                        // the index of the domain
  int each = 2;                            // channels of a thread
  int lanes = 32;                          // threads, or warps, side by side along channels
  int rows = 1, columns = 1;               // of a thread's block of results, or of a tile
  int run = 1;                             // blocks down the image that it walks over
  std::optional<ImageDim> down, across;    // whose taps a thread has all at once
  std::vector<ImageDim> looped;            // the others
  std::optional<DepthwiseTiles> mma;       // none: on CUDA cores
  std::optional<DepthwiseRows> boxes;      // of those: none: pixels are loaded to registers
  std::optional<DepthwisePlanes> planes;   // the same
  std::optional<DepthwiseGroups> groups;
  std::optional<DepthwiseLines> lines;
  int unroll = 1;
  Packing packing;  // of the epilogue
};

// Of a dim of the image; 1 where there is none.
int taps_of(const KernelSpec& spec, const std::optional<ImageDim>& dim);

// The spec's indices as the kernels want them: channels, or groups, behind the other batch entries.
void put_channel_last(KernelSpec& spec, int channel);

// Bytes that memory moves: of the image each pixel once, though several taps read it.
double bytes_of(const KernelSpec& spec, const DepthwiseConfig& e, double image_elements);

struct DepthwisePlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  DepthwiseConfig engine;
};

// Nothing where the spec is no such convolution, channels do not lie together in memory, or its
// filter is too large for registers.
std::optional<DepthwisePlan> plan_depthwise(const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
