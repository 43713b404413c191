// Results of a contraction that leave as they are summed, see
// codegen/device/family/contraction_store.cuh.
#pragma once
#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// `in_pieces`: columns of several indices leave so; `odd_too`: rows may begin or end anywhere;
// `rows_exist`: all of a tile's, so that TMA may store them; `bytes_too`: results of 8 bits;
// `lines`: neighbours along the last index of the rows lie together, and nothing is read so.
struct StoredTiles {
  bool in_pieces = false, odd_too = true, rows_exist = true, bytes_too = false, lines = false;
};

// Whether the epilogue reads what no pack holds: element by element, also past the last column
// where tiles reach further.
bool loads_apart(const KernelSpec& spec, const Packing& packing);
// Fills in the port of the one result, and of what is read in the same way, where it may leave as
// it is summed.
void store_as_summed(const KernelSpec& spec, WarpgroupConfig& engine, StoredTiles tiles);
// Of tiles that are multiplied operand by operand.
void store_tiles_as_summed(const KernelSpec& spec, WgmmaConfig& engine, bool rows_exist = true);

}  // namespace sinter
