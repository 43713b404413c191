// Convolutions of few channels, such as a network's first layer, become such as tensor cores and
// TMA take. With windows of stride u along each spatial dim, a position x of the image is written
// u v + a: `a` joins the channels, and the filter's t = u j + a - shift leaves ceil((T + shift) /
// u) taps j of stride 1.
//
//   forward          Z[n, v, (a, c)] = X[n, u v + a - pre - shift, c], 0 outside; the same of the
//                    filter; Y[n, p, k] = sum over j and (a, c) of Z[n, p + j, (a, c)] W'[k, j, (a,
//                    c)]. As Z has its padding in it, the innermost j joins (a, c): a line of Z
//                    holds all that a row of the filter sees.
//   filter gradient  the same of X; results at taps that the filter does not have are not stored
//   data gradient    dX[n, b v + a, c] = sum over j and k of dY[n, b / u v + first - j, k]
//                    W'[(a, c), j, k]: phases are columns, so that one product computes all of
//                    them, and so do blocks of b = 2 u or 4 u pixels, which fill an MMA's
//                    columns with few more taps (7 x 7 with u = 2: blocks of 4 x 4 have 25, 2 x 2
//                    have 16 each)
//
// (Space-to-depth of first layers, as MLPerf's ResNet-50 entries for TPUs and GPUs do by hand.)
#pragma once
#include "planner/split/split.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// The kernels in place of the contraction, which is the last of them: copies of operands and the
// product. Empty where it is no such convolution. `way`: how many
// strides blocks of a data gradient have, along each dim or, of volumes, along the two of a frame.
inline constexpr int kSpaceToDepthWays = 5;
std::vector<KernelSpec> space_to_depth(const KernelSpec& contraction, int way,
                                       Temporaries& temporaries);

// The same of forward convolutions whose filters, and of data gradients whose channels, are more
// than those above but fill no MMA: blocks of results are columns, along all dims or
// along the innermost alone. And of forward convolutions of as few filters, and data gradients of
// volumes of as few channels.
inline constexpr int kBlocksOfResultsWays = 7;
std::vector<KernelSpec> blocks_of_results(const KernelSpec& contraction, int way,
                                          Temporaries& temporaries);
std::vector<KernelSpec> blocks_of_few_results(const KernelSpec& contraction, int way,
                                              Temporaries& temporaries);

}  // namespace sinter
