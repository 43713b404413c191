// The operands of a contraction on tensor cores as text.
#pragma once
#include "emit/body_text.hpp"
#include "schedule/contraction/mma.hpp"

namespace sinter {

// The struct that tells how one operand comes to shared memory. `body` knows the operand's packing.
void print_mma_operand(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                       const BodyText& body, const MmaOperand& o, std::string_view struct_name);

}  // namespace sinter
