// What is multiplied by warpgroups (wgmma), with its rows and columns as tiles have them: how its
// operands are loaded, and the problem that tiles are chosen for.
#pragma once
#include <cstdint>
#include <optional>

#include "schedule/contraction/wgmma.hpp"
#include "schedule/contraction/wgmma_tiles.hpp"

namespace sinter {

// The innermost index of rows, or of columns; -1 where there is none.
int m_index(const KernelSpec& spec);
int n_index(const KernelSpec& spec);
double extent(const KernelSpec& spec, int index);  // 1 for none

struct Orientation {
  KernelSpec spec;
  WgmmaConfig engine;
  TileProblem problem;
  bool other_way = false;  // rows and columns lie the other way round than they usually do
};

// Operands in boxes of rows and one index of k. Nothing where TMA cannot bring the
// operands, or they are not multiplied as they are.
std::optional<Orientation> orient(KernelSpec spec, bool columns_together, bool swapped);

// How pixels come to shared memory: for each tap, or once for all of them, in lines or in blocks.
enum class Pixels : std::uint8_t { each_tap, lines, blocks };

// A convolution. `image_is_a` before the operands change places.
std::optional<Orientation> orient_convolution(KernelSpec spec, bool image_is_a,
                                              bool columns_together, bool swapped,
                                              Pixels pixels = Pixels::each_tap);

}  // namespace sinter
