// Grouped convolutions of few channels a group become such of whole lines of channels, as tensor
// cores and TMA take: neighbouring groups are joined, and the filter gets zeros where an output
// channel does not belong to an input channel's group (a block-diagonal filter). `j` groups share
//
//   forward, data gradient   Y[n, p, (a, k)] = sum over taps and (b, c) of X[n, p + t, (b, c)]
//                            W'[(a, k), t, (b, c)], W' = W of group a where a = b, else 0
//   filter gradient          R[(a, k), t, (b, c)] of all, of which a second kernel takes a = b
//
// So j times as much is multiplied: that is faster than products of a few columns.
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

// The kernels in place of the contraction, in order. Empty where it is no such convolution. `way`:
// as many groups as are whole lines, or as few as are faster with lines that the next ones fill up.
inline constexpr int kBlockDiagonalWays = 2;
std::vector<KernelSpec> block_diagonal(const KernelSpec& contraction, int way,
                                       Temporaries& temporaries);

}  // namespace sinter
