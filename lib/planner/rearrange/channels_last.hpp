// Convolutions whose operands TMA cannot walk over as they lie (channels that are not the fastest,
// lines that are no multiples of 16 bytes) read copies with their channels together, padded to such
// multiples. The result is written as the graph wants it.
#pragma once
#include "planner/split/split.hpp"

namespace sinter {

// Whether it is a data gradient with a stride whose results have their channels first: pixels of
// other phases lie between those of one.
bool stores_phases_channels_first(const KernelSpec& spec);

// The kernels in place of the contraction, which is the last of them. Empty where it is no
// convolution, or nothing would lie otherwise. `results_too`: sums of a data gradient as above are
// written with their channels together, and brought to where results lie by a kernel behind it that
// computes what comes of them; empty for others.
std::vector<KernelSpec> channels_last(const KernelSpec& contraction, bool results_too,
                                      Temporaries& temporaries);

// Of a convolution of few channels, channels first, the image alone, its channels packed: as the
// image_rows engine reads it.
std::vector<KernelSpec> few_channels_last(const KernelSpec& contraction, Temporaries& temporaries);

// Of a data gradient, whose filter has the columns fastest, where these end within a line: the
// filter is copied with k the fastest.
std::vector<KernelSpec> filter_along_k(const KernelSpec& contraction, Temporaries& temporaries);

// Of convolutions in groups of several channels, 16 bits, that do not lie together: pixels (of a
// filter's gradient those of both operands) are copied with all channels together, as engines of
// narrow groups and joined groups (block_diagonal.hpp) read them. `results_too`: sums are written
// so, and brought to where results lie by a kernel that computes what comes behind. Results
// of filters' gradients stay where they are; without `results_too` these are left out.
std::vector<KernelSpec> groups_last(const KernelSpec& contraction, bool results_too,
                                    Temporaries& temporaries);

// The same of both operands of a depthwise filter gradient.
std::vector<KernelSpec> depthwise_last(const KernelSpec& contraction, Temporaries& temporaries);

}  // namespace sinter
