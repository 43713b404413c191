// What all engines of convolutions whose channels are not summed over have: which of the domain's
// indices are its channels, pixels and taps, and what a thread, or a warp, computes.
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
  bool in_place = false;  // read by an epilogue: comes to where the results will wait
  int line = 0;           // pixels of a row in shared memory
};

struct DepthwiseConfig : Launch {
  bool gradient = false;  // of the filter
  DepthwiseOperand image, other;
  bool along_columns = false;            // results of a line lie together, and are stored so
  int channel = -1;                      // the index of the domain
  int each = 2;                          // channels of a thread
  int lanes = 32;                        // threads, or warps, side by side along channels
  int rows = 1, columns = 1;             // of a thread's block of results, or of a tile
  int run = 1;                           // blocks down the image that it walks over
  std::optional<ImageDim> down, across;  // whose taps a thread has all at once
  std::vector<ImageDim> looped;          // the others
  int unroll = 1;
  Packing packing;  // of the epilogue
};

// On tensor cores: tiles of results side by side, and rows in shared memory; of a gradient, 16
// pixels a tile, and two rows a stage.
struct DepthwiseTiles {
  int across = 1, stages = 3;
};

// Groups of `channels` channels: those of the image are counted by index `inner`, those of the
// result by `outer`. Of `planes` images at once.
struct DepthwiseGroups {
  int inner = -1, outer = -1, channels = 1, planes = 1;
};

// Of a dim of the image; 1 where there is none.
int taps_of(const KernelSpec& spec, const std::optional<ImageDim>& dim);

// The index of the domain that counts the filters of a channel, or group, where there are several;
// -1: none.
int index_of_filters(const ContractionSpec& contraction);

// The spec's indices as the kernels want them: channels, or groups, behind the other batch entries.
void put_channel_last(KernelSpec& spec, int channel);

// Bytes that memory moves: of the image each pixel once, though several taps read it.
double bytes_of(const KernelSpec& spec, const DepthwiseConfig& e, double image_elements);

}  // namespace sinter
