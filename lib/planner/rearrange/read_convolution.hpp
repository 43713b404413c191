// What rearrangements of a convolution's operands are made of: which operand is the image, and what
// the indices of the domain are to it.
#pragma once
#include <optional>
#include <vector>

#include "planner/split/split.hpp"
#include "schedule/contraction/convolution_dims.hpp"

namespace sinter {

// Its image and what that is multiplied with: a filter, or the gradient of the results.
struct ReadConvolution {
  const KernelPort *image = nullptr, *other = nullptr;  // of the spec that was read
  bool gradient = false;  // of the filter: pixels are summed over, and the image is B
  // Of a depthwise gradient the batch's index is the channel, and no side there is.
  ConvolutionRoles roles;
  std::vector<ImageDim> dims;
  int image_index = -1;     // tells images apart
  std::int64_t offset = 0;  // of coordinate 0, beside the image's own
};

// Nothing where the spec is no single product of an image and another operand that are loaded as
// they lie, the latter without windows.
std::optional<ReadConvolution> read_convolution(const KernelSpec& spec);

inline ProductOperand& image_of(ContractionSpec& c, bool gradient) {
  return gradient ? c.b() : c.a();
}
inline ProductOperand& other_of(ContractionSpec& c, bool gradient) {
  return gradient ? c.a() : c.b();
}

}  // namespace sinter
