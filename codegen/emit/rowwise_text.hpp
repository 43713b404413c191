// The parts of a generated file that only rowwise kernels have.
#pragma once
#include <set>

#include "emit/body_text.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

void print_reductions(TextWriter& out, const KernelSpec& spec, const KernelNames& names);

// What a block writes for one column: its partial results, `slot` rows of them further.
void print_column_stores(TextWriter& out, const KernelSpec& spec, const KernelNames& names);

// What a thread holds of a row as a whole.
void print_row_fragment(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                        const RowwiseConfig& schedule, const BodyText& body);

// What the phases before have put into a place: ports, statements that draw numbers, and those
// whose values are kept.
struct Known {
  std::set<int> fetched, drawn, kept;
};

// Everything that a phase's stores and reduces need. `columns`: values are reduced down them, too.
void print_phase(TextWriter& out, const KernelNames& names, const BodyText& body,
                 const RowwiseConfig& schedule, int phase, bool columns, Known& known);

}  // namespace sinter
