// Simplifying a kernel's iteration domain: order the indices by how the memory lies, join those
// that always step together, drop those of extent 1. What is computed stays the same.
#pragma once
#include "plan/kernel_spec.hpp"
#include "target/device_model.hpp"

namespace sinter {

void simplify_domain(KernelSpec& spec);

// Contraction: batches that share their right operand are rows of one product, those that share the
// left one its columns, wherever one index can number them.
void join_batches(KernelSpec& spec, const DeviceModel& device);

// Index d becomes two: a new first one that counts parts, and the place in the part. The last part
// may be short: rowwise kernels then skip what lies behind the end.
void cut_index(KernelSpec& spec, int d, std::int64_t parts, std::int64_t size);

// Index d runs over `length` of its values, from `start` on.
void keep_part(KernelSpec& spec, int d, std::int64_t start, std::int64_t length);

// Index `from` comes to stand before index `to`, which is not behind it.
void move_index(KernelSpec& spec, int from, int to);

// Index i and the one behind it become one. What does not step over them as over one finds its
// element through the indices that there were (Access::via). False where a statement knows them.
bool join_indices(KernelSpec& spec, int i);

// Takes ports and scalars away that nothing reads or writes any more.
void drop_unused(KernelSpec& spec);

// Pointwise: two ports that show every second element of one tensor (interleaved pairs) become one
// port of two elements at each place. So do the two elements that an index of two values reaches.
void join_pairs(KernelSpec& spec);

}  // namespace sinter
