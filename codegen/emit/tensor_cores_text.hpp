// Operands and results that TMA moves as boxes, for all kernels on the tensor cores of sm_90a.
#pragma once
#include "emit/text_writer.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// The map of what stands behind an operand along k.
std::string map_behind(std::string_view map, std::size_t part);

// An operand that TMA loads.
void print_boxed_operand(TextWriter& out, const BoxedOperand& o, std::string_view struct_name,
                         std::string_view map, std::string_view coordinates = "Coord",
                         SharedIndex shared = {});
// What the struct of one has beside its Number.
void print_box_load(TextWriter& out, const BoxedOperand& o, std::string_view map,
                    std::string_view coordinates, SharedIndex shared = {});

// void FUNCTION(args, c, row, column, from): by this instruction, a box from shared memory to where
// the coordinates say.
void print_box_store(TextWriter& out, const BoxedOperand& o, std::string_view map,
                     std::string_view function = "store",
                     std::string_view instruction = "store_box", SharedIndex shared = {});

}  // namespace sinter
