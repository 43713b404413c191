// The order of a spec's indices, which decides what lies side by side in a tile.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// Index i of the domain becomes what index `order[i]` was.
void reorder(KernelSpec& spec, const std::vector<int>& order);

// Whether something joins the domain's indices to one number, so that their order has a meaning.
bool reads_joined_indices(const KernelSpec& spec);

// Index i becomes two: one that counts runs of `run`, and behind it the place in the run.
void split_index(KernelSpec& spec, int i, std::int64_t run);

// A new index of extent 1 in front of index `at`, along which nothing moves: whose it is (batch, m,
// n) is the caller's to count.
void add_unit_index(KernelSpec& spec, int at);

// Index i counts the other way round; not where a body asks for its value.
void reverse_index(KernelSpec& spec, int i);

// All indices of m and n but the innermost become batch indices: a tile then lies in two of them.
void widen_batch(KernelSpec& contraction);
// The operands change places, and with them rows and columns.
void swap_operands(KernelSpec& contraction);

// Whether a body asks for the value of index i.
bool names_index(const KernelSpec& spec, int i);

}  // namespace sinter
