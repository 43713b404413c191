// A kernel with reductions whose result is split into more dims and moved by whole rows (a norm and
// the windows of an image): where strides of the result cannot undo the split, all that the kernel
// computes is computed over the split dims instead.
#pragma once
#include "planner/moved_views.hpp"

namespace sinter {

// Does so for the result that the reshape `n` splits. False where it does not apply.
bool redimension(MovedViews& views, NodeId n);

}  // namespace sinter
