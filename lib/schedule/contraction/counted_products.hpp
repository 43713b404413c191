// Which products count where sums that are not finite are computed again, element by element
// (codegen/device/family/contraction_recompute.cuh): none with what stood in a stage past the
// operand's end or in place of the next group's channels.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// Results exist where coefficient . index < end; indices whose extents are rounded up.
struct ResultBound {
  Dims coefficient;
  std::int64_t end = 0;
};

struct CountedProducts {
  enum class Which : std::uint8_t {
    none,               // sums are taken as they are
    unless_zero,        // unless the operand whose zeros dominate has one
    unless_marked,      // the same, of zeros that are marked
    every,              // of the elements that operands have
    where_results_are,  // of pixels within the bounds
  } which = Which::none;
  std::vector<ResultBound> bounds;
};

struct WgmmaConfig;

// By the spec alone: where a zero of one operand dominates.
CountedProducts counted_products(const KernelSpec& spec);
// And by what stages of a convolution's window hold besides.
CountedProducts counted_products(const KernelSpec& spec, const WgmmaConfig& engine);

}  // namespace sinter
