// The sums of a product whose left operand is in registers, which C++ sees when all are summed
// (core/wgmma_held.cuh). `set`: which of the kernel's sets of registers.
#pragma once
#include "sinter/device/core/wgmma_held.cuh"
#include "sinter/device/engine/wgmma.cuh"

namespace sinter {

template <int columns_, int set>
struct HeldAccumulator {
  using Instruction = wgmma::HeldInstruction<columns_>;
  static constexpr int columns = columns_, count = columns / 2;
  static constexpr bool held = true;

  // Once a kernel, at its start.
  static SINTER_DEVICE void declare() { Instruction::template declare<set>(); }
  SINTER_DEVICE void clear() const { Instruction::template clear<set>(); }
  // Of the thread's two rows.
  SINTER_DEVICE void scale(const float (&rows)[2]) const {
    Instruction::template scale<set>(rows[0], rows[1]);
  }
  SINTER_DEVICE void get(Accumulator<float, columns>& sums) const {
    Instruction::template get<set, 0, count / 4>(sums.at);
  }
  // The larger of a number and all sums of each of the thread's two rows; NaN where one is.
  SINTER_DEVICE void largest(float (&rows)[2]) const {
    Instruction::template largest<set>(rows[0], rows[1]);
  }
  // `count` times sixteen columns, from register `first` on, rounded, to lines as
  // hopper::put_blocks has them.
  template <class Number, int first, int count>
  SINTER_DEVICE void put_blocks(const unsigned* lines) const {
    Instruction::template put_blocks<wgmma::BlocksText<Number, false>, set, first, count>(lines);
  }
  static SINTER_DEVICE int row(int i) { return Accumulator<float, columns>::row(i); }
  // Adds `a` times B's tile: `Product` is the Mma of both.
  template <class Product, class TileB, class A, int depth>
  SINTER_DEVICE void add_product(const OperandFragment<A, depth>& a, unsigned long long b) const {
    using Text = typename Product::Text;
    Product::template in_fours<OperandFragment<A, depth>::steps>(
        [&]<int step>() {
          Instruction::template run_four<Text, set, TileB::step(1)>(a.at + step,
                                                                    b + TileB::step(step));
        },
        [&]<int step>() {
          Instruction::template run<Text, set>(a.at[step], b + TileB::step(step));
        });
  }
};

// For wgmma::fence and wait, which find it by its argument: nothing else has the registers.
template <int columns, int set>
SINTER_DEVICE void pin(const HeldAccumulator<columns, set>&) {}

}  // namespace sinter
