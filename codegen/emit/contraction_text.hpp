// The bodies of a contraction as text, for all of its engines.
#pragma once
#include "emit/body_text.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// One operand on ordinary cores: its last statement is the value.
void print_operand(TextWriter& out, const BodyText& body, std::string_view struct_name);

// Any statement's value. `constant`: of type bool, that the struct also has.
void print_value(TextWriter& out, const BodyText& body, int statement, std::string_view struct_name,
                 std::string_view constant = {});

// The epilogue on ordinary cores.
void print_epilogue(TextWriter& out, const BodyText& body);

// Elements of both operands, for sums that tensor cores cannot take; nothing where there are none.
// `engine`: null on the portable one.
void print_retaken(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                   const WgmmaConfig* engine);

// The epilogue where a thread holds packs of neighbours. `engine`: null on the portable one.
void print_packed_epilogue(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                           const BodyText& body, const WgmmaConfig* engine);

}  // namespace sinter
