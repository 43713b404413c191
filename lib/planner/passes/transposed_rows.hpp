// Tensors that lie across a rowwise kernel's rows where its threads are neighbours along these, or
// along them where its threads are neighbours across: each thread would reach a sector of memory of
// its own. A kernel in front transposes what is read, one behind what is written.
//
//     a [m, n]  ---.                      a [m, n]  ---.
//                   + -> norm -> y   =>                 + -> norm -> y
//     b [n, m]^T --'                      b -> copy --'
#pragma once
#include <vector>

#include "planner/split/split.hpp"

namespace sinter {

struct TransposedRows {
  std::vector<KernelSpec> before, behind;
};

// The spec of a rowwise kernel then reads and writes what the others transpose; it stays as it is
// where they have nothing to do, and so do all other kernels.
TransposedRows transpose_rows(KernelSpec& spec, const PlanContext& context,
                              Temporaries& temporaries);

}  // namespace sinter
