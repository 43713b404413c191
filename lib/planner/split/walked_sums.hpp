// Sums over an extent that changes: of rows that lie one beside the other, each element is reduced
// with the same one of the next line of memory. How many terms a row has decides elsewhere how it
// is cut in parts and divided among threads, so that no two lengths share a kernel. Here blocks
// walk over the lines, as they do where columns are reduced beside something else (columns.hpp),
// and the number of lines is a number of rows.
#pragma once
#include <optional>

#include "plan/kernel_spec.hpp"

namespace sinter {

// The same with lines of memory as rows and its reductions down the columns; nothing where rows do
// not lie side by side, or more is done with what was reduced than to store it.
std::optional<KernelSpec> as_walked_sums(const KernelSpec& spec);

}  // namespace sinter
