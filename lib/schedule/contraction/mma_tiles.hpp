// The tile of a contraction on the tensor cores of any GPU, by a model of what limits it.
#pragma once
#include "schedule/contraction/mma_operands.hpp"

namespace sinter {

struct MmaWork {
  double batches, rows, columns, depth;
  int bytes;           // of a factor
  double extra_bytes;  // an element of the result moves in the epilogue
  bool light;          // loading takes few registers
  bool promotes;       // sums are kept twice
  OperandWeight a, b;
  double groups = 0;  // into which rows fall, one a batch entry; 0: each batch entry has all rows
  int packed = 8;     // results that leave at once, where alignment leaves no whole moves
};

// Which side is the short one, past which the other's factors are brought.
inline bool rows_are_fewer(const MmaWork& w) { return w.rows <= w.columns; }
// Whether the work is to bring numbers of 8 bits, which are no factors as they are, past few rows
// or columns of what is copied.
bool streams(const MmaWork& w);
// Elements of k in a stage of those that are streamed.
int streamed_depth(const MmaWork& w);

double tiles_of(const MmaWork& w, const MmaTile& t);
// Those that have a row: groups of rows end anywhere in one. About so many, and at most so many.
double worked_tiles(const MmaWork& w, const MmaTile& t);
double most_tiles(const MmaWork& w, const MmaTile& t);
int shared_bytes(const MmaWork& w, const MmaTile& t);
double tile_microseconds(const MmaWork& w, const MmaTile& t, const DeviceModel& device);  // roughly
double warps_beside(const MmaWork& w, const MmaTile& t, const DeviceModel& device);  // on an SM
// Blocks that an SM must hold, at the cost of registers: where each waits for memory in
// every step, there should be others.
int least_blocks(const MmaWork& w, const MmaTile& t);

// Registers that the operands of a tile occupy in a thread while they wait, and those of its sums.
double held_registers(const MmaWork& w, const MmaTile& t);
int held_sums(const MmaWork& w, const MmaTile& t);
// Instructions that the operands of a step take of a thread: they cost time to compile. The second
// limit is for bodies that keep within the first in no tile.
double code_size(const MmaWork& w, const MmaTile& t);
inline constexpr double kMostOperandCode[] = {200, 640};
inline constexpr double kMostHeld = 48;

// Nothing where every tile makes too much code.
std::optional<MmaTile> choose_tile(const MmaWork& w, const DeviceModel& device);

}  // namespace sinter
