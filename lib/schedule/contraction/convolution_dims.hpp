// Which index of a contraction is what in a convolution, and how its pixels and taps reach the
// image: read from the spec's accesses alone, whatever direction of a convolution it is.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// The port that the operand loads as it is, windows and all, and its number; null for any other.
const KernelPort* loaded_port(const KernelSpec& spec, const ProductOperand& operand, int& number);

// One product of plain operands, of whichever sums.
bool is_single_product(const ContractionSpec& contraction);
// The same that is summed in f32.
bool is_plain_product(const ContractionSpec& contraction);

// Whether sums in f32 of products of these types are as right as those that are asked for: of
// integers none may be rounded.
bool sums_as_right_in_f32(const KernelSpec& contraction, DataType a, DataType b);

// Has sums of integers that f32 holds, and are scaled, scaled in f32, where f64 would say the same.
void scale_in_f32(KernelSpec& contraction);
// Has integers summed in f32.
void sum_in_f32(KernelSpec& contraction);

inline constexpr int kMostAxes = 3;  // spatial dims of an image

// The indices of the domain by what they are, the outermost first. `side`: of the other operand's
// rows or columns. Channels are one index, or several that lie as one in the image; so do the
// side's in the other operand.
struct ConvolutionRoles {
  std::vector<int> batch, pixels, taps, channels, side;
  bool pixels_in_k = false;
  bool parts_alone = false;  // a dim of the image may have parts of one pixel each, and no index
};

// Fills in the indices of the batch and of k. False where k has blocks with scales of their own.
bool add_batch_and_k(const ContractionSpec& contraction, ConvolutionRoles& roles);

// A spatial dim of the image; `pixel_index` -1: of parts alone. Coordinate: (base + pixel * p + tap
// * t) / divisor, of `extent`, each coordinate `stride` elements further.
struct ImageDim {
  int pixel_index = -1, tap_index = -1;
  std::int64_t base = 0, pixel = 1, tap = 0, divisor = 1, extent = 1, stride = 0;
  // Batch indices that move it, too: parts of an image; with their coefficients.
  std::vector<std::pair<int, std::int64_t>> parts;
};

inline std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return (a - (a % b + b) % b) / b;
}

// The spatial dims of the image, in the order of their pixel indices, outermost first. Where no
// window bounds a dim, its unit is what both of its indices step in; `offset`: of coordinate 0.
// `image_index` tells images apart; -1 where there is one.
std::optional<std::vector<ImageDim>> image_dims(const KernelSpec& spec,
                                                const ConvolutionRoles& roles, const Access& a,
                                                int& image_index, std::int64_t& offset);

}  // namespace sinter
