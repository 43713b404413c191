// Short runs of memory that start anywhere, such as images of 7 x 7 that lie channel by channel, or
// groups of ten channels that lie together: where one run follows the other, all are one, whose
// packs are aligned. What a run shares (a channel's scale, a group's average) is found for each
// element through the run that it is of.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// Of elementwise kernels, and of rowwise ones whose rows lie together.
void flatten_rows(KernelSpec& spec);

}  // namespace sinter
