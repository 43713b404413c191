// Functions of one element of attention's scores, and what they need that is the same for all rows
// and keys of a head.
#pragma once
#include <string_view>
#include <vector>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "plan/kernel_spec.hpp"

namespace sinter {

struct ElementFunction {
  const Body& body;           // its last value is the result
  std::string_view name;      // of the function
  std::string_view operands;  // "float acc", "float acc, float acc_gradient"
  // Where a body draws one number, which is 0 or 1, the function takes it; `Drawn`, its logical
  // index, and run(args, c), the bits of the four numbers of a run, say how to draw it.
  bool takes_drawn = false;
  // Loads whose values another function, NAME_beside, takes.
  std::vector<int> beside = {};
  std::string_view factor = "";  // accumulator 0 is `acc` times it
};

// struct OfHead; of_head(args, c), which computes it once a tile; NAME(args, c, of_head, OPERANDS),
// and NAME_beside(args, c, of_head, OPERANDS, beside) where one is wanted.
// Functions with empty bodies are left out. `rows_and_keys`: the indices of the domain that differ
// within a head.
void print_element_functions(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                             const std::vector<ElementFunction>& functions,
                             std::string_view coordinates, const std::vector<int>& rows_and_keys);

}  // namespace sinter
