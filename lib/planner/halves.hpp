// Two halves along the last axis, each computed by itself.
#pragma once
#include "planner/moved_views.hpp"

namespace sinter {

// Slice `n` is one half of a product, or of what is computed from one element by element (a bias
// added), and meets the other half again (gated units): both become products that share A. False,
// and nothing is changed, where that is not so.
bool halve_product(MovedViews& views, NodeId n);

// Reduction `n` gives values of rows whose halves are computed beside each other (the rotary
// embedding of a norm's result): both halves are reduced, too, so that one kernel runs over them.
// False, and nothing is changed, where that is not so.
bool reduce_halves(MovedViews& views, NodeId n);

}  // namespace sinter
