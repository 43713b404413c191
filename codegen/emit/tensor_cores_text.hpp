// The parts of a generated file that only kernels for the tensor cores of sm_90a have.
#pragma once
#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/contraction/chained.hpp"

namespace sinter {

// The number of columns and the type of sums that core/wgmma_named.cuh is to provide.
void print_wgmma(TextWriter& out, const WgmmaConfig& e);

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

// The operands of chained products, and what lies between these.
void print_chained(TextWriter& out, const ChainedConfig& config, const KernelNames& names);

// The scales of operands that have one for each block of k.
void print_scales(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                  const WgmmaConfig& e);

// One that threads load: rows that a table names, or that begin anywhere; and whether an operand is
// none of these.
bool loads_by_map(const KernelSpec& spec, const BoxedOperand& o, bool is_a);
void print_operand_by_threads(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                              const BoxedOperand& o, std::string_view struct_name);

}  // namespace sinter
