// Hand-built kernel specs, chosen so that each branch of the generator appears at least once.
#pragma once
#include <string>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter::golden {

struct NamedSpec {
  std::string name;
  KernelSpec spec;
};

std::vector<NamedSpec> pointwise_specs();
std::vector<NamedSpec> tiled_specs();
std::vector<NamedSpec> gather_specs();
std::vector<NamedSpec> rowwise_specs();
std::vector<NamedSpec> contraction_specs();
std::vector<NamedSpec> all_specs();
// For the tensor cores of sm_90a, which all_specs() leaves out.
std::vector<NamedSpec> hopper_specs();
// A small product of 64 rows for them, without a golden text.
KernelSpec hopper_columns(std::int64_t columns);

// Every pointwise mode over one f32 operand list, in one kernel; no golden text, it only must
// compile.
KernelSpec every_pointwise_mode();

}  // namespace sinter::golden
