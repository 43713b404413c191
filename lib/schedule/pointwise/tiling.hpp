// Pointwise kernels whose tensors lie together along different indices of the domain: a transpose,
// a change of layout, a transposed operand. They take tiles of two indices, where these are small
// of three, through shared memory, see codegen/device/family/tiled.cuh. A pure function of the
// spec.
#pragma once
#include "schedule/packing.hpp"
#include "target/device_model.hpp"

namespace sinter {

struct Tiling {
  bool on = false;
  int along = -1, across = -1;  // threads hold packs along `along`, tiles lie along `across`
  int tile_along = 1, tile_across = 1;  // elements of a tile
  // Small matrices: a tile takes all of several of them, which follow one another along `through`.
  int through = -1, tile_through = 1;
  int lanes = 8;                       // threads side by side along `along`
  int threads = 256, rounds = 1;       // rounds: vectors of a thread
  double tiles = 1;                    // of the whole domain
  bool loads = false, stores = false;  // there are ports that are staged and read, or written
  int aligned_by = -1;  // the port by which packs are aligned where rows start anywhere; -1: none
  bool flat = false;    // matrices that start anywhere, see codegen/device/family/tiled_flat.cuh
};

// Chooses the two indices and the tile, and packs the ports for them; not `on`, and `packing` as it
// was, where no tile helps. `widest`: the most elements of a pack.
Tiling choose_tiling(const KernelSpec& spec, int widest, const DeviceModel& device,
                     Packing& packing);

}  // namespace sinter
