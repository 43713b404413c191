// Rows cut in parts: a kernel whose rows are the parts, and one that combines them.
#pragma once
#include <optional>
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

// A spec whose rows are parts of the rows of another: the first `added` indices count them.
struct CutRows {
  KernelSpec spec;
  std::int64_t parts = 1;
  int added = 0;
  bool even = true;         // all parts have as many elements
  bool any_number = false;  // plans of a class of extents have other numbers of parts
  // What even parts leave of each row: one more part, which is short.
  std::optional<KernelSpec> rest{};
};

CutRows in_parts(const KernelSpec& spec, std::int64_t wished);

// Nothing where the parts of in_parts() are even, or are loaded by as wide vectors.
std::optional<CutRows> in_even_parts(const KernelSpec& spec, std::int64_t wished,
                                     const DeviceModel& device);

// About as many parts, of no fewer than `shortest` elements, whose blocks leave less of the GPU
// idle while the last ones run; `given` where these are not much better. (On an H200 528 blocks of
// 256 threads run at once: a vector times a matrix of 12000 x 7000 f16 in 20 parts, 547 blocks,
// took 49.6 us, in 438 blocks 41.2; gelu's gradient with its sums of 20000 x 3072 bf16 in 50, 600
// blocks, 116, in 480 92.9; and 264 of 1024: sums of 64 x 96 x 77 x 77 over all but the channels in
// 4, 384 blocks, 31.1, in 768 31.6.)
CutRows in_whole_rounds(const KernelSpec& spec, std::int64_t wished, CutRows given,
                        std::int64_t shortest, const DeviceModel& device);

// Phases of reductions, then values of the row: one kernel for the parts of rows, and one that
// combines them. There is one phase of reductions, or a second one with what has_statistics()
// found. `pieces`: the parts are of what a row has at one place along its first index, which both
// the first kernel's rows and the second one's reductions have, too.
std::vector<KernelSpec> cut_rows(const KernelSpec& spec, CutRows rows, bool pieces,
                                 Temporaries& temporaries);

}  // namespace sinter
