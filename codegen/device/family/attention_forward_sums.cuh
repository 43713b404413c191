// Where attention_forward.cuh sums weights times values.
#pragma once
#include "sinter/device/engine/held_accumulator.cuh"

namespace sinter::attention {

// Sums of weights times values. Tensor cores sum products of 8 bits with some 14 bits: those of one
// tile of keys, to which the others are added as f32.
template <class S, bool apart>
struct OutputSums {
  typename S::Outputs::Sums all, of_tile;

  static SINTER_DEVICE void declare() {}
  SINTER_DEVICE void clear() { all.clear(), of_tile.clear(); }
  SINTER_DEVICE void add_tile() { all.add(of_tile); }
  SINTER_DEVICE void scale(const float (&rows)[2]) {
    all.each([&](int i, float& x) { x *= rows[i / 2 % 2]; });
  }
  template <class Weights>
  SINTER_DEVICE void multiply(const Weights& weights, unsigned long long values) {
    S::Outputs::template multiply<0, Weights::steps>(of_tile, weights, values, false);
  }
  SINTER_DEVICE typename S::Outputs::Sums& multiplied() { return of_tile; }
  SINTER_DEVICE void get(typename S::Outputs::Sums& sums) const { sums = all; }
};
// Else all are summed where the result is.
template <class S>
struct OutputSums<S, false> {
  HeldAccumulator<S::columns, 0> all;

  static SINTER_DEVICE void declare() { HeldAccumulator<S::columns, 0>::declare(); }
  SINTER_DEVICE void clear() { all.clear(); }
  SINTER_DEVICE void add_tile() {}
  SINTER_DEVICE void scale(const float (&rows)[2]) { all.scale(rows); }
  template <class Weights>
  SINTER_DEVICE void multiply(const Weights& weights, unsigned long long values) {
    all.template add_product<typename S::Outputs, typename S::TileV>(weights, values);
  }
  SINTER_DEVICE HeldAccumulator<S::columns, 0>& multiplied() { return all; }
  SINTER_DEVICE void get(typename S::Outputs::Sums& sums) const { all.get(sums); }
  SINTER_DEVICE void get(HeldAccumulator<S::columns, 0>&) const {}
};

}  // namespace sinter::attention
