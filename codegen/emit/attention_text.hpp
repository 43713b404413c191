// What attention has in both directions as text.
#pragma once
#include <string>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/attention/forward.hpp"

namespace sinter {

// line(args, c): where the elements of a row of the port lie. `group`: heads that share one of it,
// also backward.
struct LinesOf {
  const KernelSpec& spec;
  const KernelNames& names;
  std::string_view config, coordinates;
};
void print_line(TextWriter& out, const LinesOf& of, int port, std::int64_t group);

// Which keys a query sees. `config`: the struct that has the accesses of `spec`'s ports; lengths
// that have no port are the `whole`.
struct RowsAndKeys {
  std::int64_t rows, keys;
  bool packed = false;  // rows are those of several heads
};
void print_bounds(TextWriter& out, const AttentionBand& band, const PackedSequences& sequences,
                  int length_q, int length_kv, const KernelSpec& spec, const KernelNames& names,
                  std::string_view config, RowsAndKeys whole);

}  // namespace sinter
