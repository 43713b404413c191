// What a mask of attention says of a pair, and of whole blocks of pairs, as text.
#pragma once
#include <string_view>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "plan/kernel_spec.hpp"

namespace sinter {

// `config`: the struct that has what `spec`'s bodies read; `query` and `key`: the indices of a
// pair.
struct MaskOfPairs {
  const KernelSpec& spec;
  const KernelNames& names;
  const Body& mask;
  std::string_view config, coordinates;
  int query, key;
};

// sees(args, c) of a pair; and the members of attention_key_walk.cuh's Bounds.
void print_mask(TextWriter& out, const MaskOfPairs& of);

}  // namespace sinter
