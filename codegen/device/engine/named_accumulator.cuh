// An accumulator whose sums C++ never sees: what Accumulator offers to kernels that only sum and
// store, in less time to compile (see core/wgmma_named.cuh). `set`: which of the kernel's sets of
// registers.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/core/wgmma_named.cuh"

namespace sinter {

template <class Sum_, int columns_, int set_>
struct NamedAccumulator {
  using Sum = Sum_;
  using Instruction = wgmma::NamedInstruction<columns_, Sum>;
  static constexpr int columns = columns_, count = columns / 2, set = set_;

  // Once a kernel, at its start.
  static SINTER_DEVICE void declare() { Instruction::template declare<set>(); }
  SINTER_DEVICE void clear() const { Instruction::template clear<set>(); }
  template <int other>
  SINTER_DEVICE void add(NamedAccumulator<Sum, columns, other>) const {
    Instruction::template add<set, other>();
  }
  template <int first, int other>
  SINTER_DEVICE void add_scaled(NamedAccumulator<Sum, columns, other>, float f0, float f1, float f2,
                                float f3) const {
    static_assert(first % 4 == 0);
    Instruction::template add_scaled<set, other, first>(f0, f1, f2, f3);
  }
  // `fours` times four from the `first` on, as values.
  template <int first, int fours>
  SINTER_DEVICE void get(float* sums) const {
    static_assert(first % 4 == 0);
    Instruction::template get<set, first, fours>(sums);
  }
  // `count` times sixteen columns, from register `first` on, rounded to 16 bits, to lines as
  // hopper::put_blocks has them, or put_blocks_transposed (wgmma::BlocksText).
  template <class Text, int first, int count>
  SINTER_DEVICE void put_blocks(const unsigned* lines) const {
    static_assert(first % 4 == 0);
    Instruction::template put_blocks<Text, set, first, count>(lines);
  }
  // All of a thread's added up, in any order.
  SINTER_DEVICE float total() const { return Instruction::template total<set>(); }
  // All of a thread's to memory, and back from there.
  SINTER_DEVICE void save(Sum* sums) const { Instruction::template save<set>(sums); }
  SINTER_DEVICE void restore(const Sum* sums) const { Instruction::template restore<set>(sums); }
  // `fours` times four, from the `first` on: of each four, two neighbours at to[at[i]], and two
  // `below` elements further.
  template <int first, int fours, int below>
  SINTER_DEVICE void store(float* to, const int* at) const {
    static_assert(first % 4 == 0);
    Instruction::template store<set, first, fours, below * 4>(hopper::address(to), at);
  }
};

}  // namespace sinter
