// The ways in which a convolution becomes several kernels, of which one multiplies operands that
// others have written as its engine wants them.
#pragma once
#include <span>
#include <string_view>

#include "planner/split/split.hpp"

namespace sinter {

// Why operands are written otherwise first, and what the user could do so that they need not be;
// empty: nothing is known.
struct WrittenFirst {
  std::string_view why, fix = {};
};
inline constexpr WrittenFirst kChannelsLast{
    "its channels are put together in memory first",
    "give the tensor that is copied its channels innermost"};

// A way in which a convolution, or a matmul, becomes several kernels, one of which multiplies;
// `text`: what the others are there for.
struct Rearrangement {
  std::vector<KernelSpec> (*make)(const KernelSpec& spec, int way, Temporaries& temporaries);
  WrittenFirst text;
  bool always = true;  // else only of those that the engine of warpgroups does not run as they are
  int ways = 1;        // of which the fastest counts
  bool matmuls = false;
  double of_mma = 1;    // what the mma engine takes of its estimate, as measured for these
  bool narrow = false;  // the engines of narrow groups will do, too
  int first = 0;        // the last so many ways store results channels first
  double takes = 1;     // of the estimate, as measured
  bool again = false;   // the product may be rearranged once more, as one that lay so
};
std::span<const Rearrangement> rearrangements();

// The kernel that multiplies.
const KernelSpec& product_of(const std::vector<KernelSpec>& kernels);
// With others in its place; empty where there are none.
std::vector<KernelSpec> with_product(std::vector<KernelSpec> kernels,
                                     std::vector<KernelSpec> products);

}  // namespace sinter
