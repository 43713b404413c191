// Where attention_forward.cuh sums weights times values, what its loop has one text of, and the
// consumers' turns.
#pragma once
#include "sinter/device/engine/held_accumulator.cuh"
#include "sinter/device/family/attention_forward_queue.cuh"

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

// Whether OutputSums stay in their registers until results are stored: nothing but that is done
// with them. It takes the compiler a tenth of its time to see them as values.
template <class Config, class S, class Bounds, class Rows>
inline constexpr bool stays_held =
    Config::store_boxes && !S::transposes_values && Rows::zero_dominates && !SharesKeys<Bounds> &&
    !DividesKeys<Config> && !joins_statistics<Config>();

// Whether the loop over tiles of keys begins between products, so that there is one text of what
// becomes of scores: it takes the compiler as long as all products, with bodies longer. Plain
// scores of several consumers do not: it costs them time. (On an H200, us, two texts and one: b4
// h32 s4096 d128 1,710 and 1,726, causal 959 and 963, d64 causal 619 and 645, b32 h16 s512 d64 89.1
// and 90.7; b2 h16 s2048 d256 causal 121.6 and 121.5; 16 x 64 heads of 8, one query, 4096 keys 63.0
// and 62.9.) Nor do wide ones beside boxes of 16 bits, whose loop then has stages in uniform
// registers (b2 h16 s2048 d128 with a bias of pairs 144.7 and 151.3). Values of f8 spill registers
// with it.
template <class S>
inline constexpr bool adds_narrow_boxes =
    S::has_boxes&& S::columns > 64 && S::Beside::loaded <= 64 * S::tile_k * 2;
template <class S, class Score, class Weight>
inline constexpr bool one_text =
    !S::transposes_values && !adds_narrow_boxes<S> &&
    (!(Score::plain && Weight::plain) || S::columns > 128 || S::consumers == 1);

// Turns of the consumers: each waits at a barrier of its own, which the one before passes.
template <int consumers, bool on>
struct Turns {
  static constexpr int first = 1;  // number of the barrier
  int own;

  SINTER_DEVICE void start() const {
    if (on && own == consumers - 1) pass();
  }
  SINTER_DEVICE void wait() const {
    if constexpr (on)
      for_each_number<consumers>([&]<int i>() {
        if (own == i) hopper::wait_at<first + i, 256>();
      });
  }
  SINTER_DEVICE void pass() const {
    if constexpr (on)
      for_each_number<consumers>([&]<int i>() {
        if (own == i) hopper::pass<first + (i + 1) % consumers, 256>();
      });
  }
  // A barrier of the consumer's own threads.
  SINTER_DEVICE void meet() const {
    for_each_number<consumers>([&]<int i>() {
      if (own == i) hopper::wait_at<first + consumers + i, 128>();
    });
  }
  // Takes back what start() gave.
  SINTER_DEVICE void finish() const {
    if (on && own == 0) wait();
  }
};

}  // namespace sinter::attention
