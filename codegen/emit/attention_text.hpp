// The parts of a generated file that only attention has.
#pragma once
#include <string>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/attention/forward.hpp"

namespace sinter {

// What core/wgmma_instruction.cuh is to provide. `outputs`: the second product.
void print_attention_products(TextWriter& out, const AttentionConfig& e, const KernelSpec& outputs);

// `First`: what of the scores' product is known when the kernel is compiled.
void print_scores_config(TextWriter& out, const AttentionConfig& e, const KernelNames& names);

// Operands, bounds, score, weight and what a row reads and writes.
void print_attention(TextWriter& out, const KernelSpec& outputs, const AttentionConfig& e,
                     const KernelNames& names);

// line(args, c): where the elements of a row of the port lie. `group`: heads that share one of it,
// also backward.
struct LinesOf {
  const KernelSpec& spec;
  const KernelNames& names;
  std::string_view config, coordinates;
};
void print_line(TextWriter& out, const LinesOf& of, int port, std::int64_t group);

// The kernel's only statement.
std::string attention_call(const AttentionConfig& e);

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
