// The five products of attention_backward.cuh, each a group of wgmma. The gradients' sums are
// registers that C++ does not see (core/wgmma_held.cuh, wgmma_named.cuh). Those of scores and of
// the weights' gradients are values: as names they are copied before they are computed with, and
// where queries hide keys the copies spill registers.
#pragma once
#include "sinter/device/engine/held_accumulator.cuh"
#include "sinter/device/family/attention_backward_shape.cuh"

namespace sinter::attention {

template <class S>
struct BackwardProducts {
  // Of 64 keys and so many queries.
  template <int queries>
  using Sums = Accumulator<float, queries>;
  template <int queries>
  using Weights = OperandFragment<typename S::Number, queries>;
  unsigned shared;
  int consumer;
  unsigned keys = shared;  // from which on K and V lie (S::place_of_keys)

  using DQ = NamedAccumulator<float, S::columns_of_dq, 0>;
  template <int block>  // of 64 keys
  using DK = HeldAccumulator<S::DK::Shape::columns, 2 * block + 1>;
  template <int block>
  using DV = HeldAccumulator<S::DV::Shape::columns, 2 * block + 2>;

  static SINTER_DEVICE void declare() {
    DQ::declare();
    for_each_number<S::blocks>([&]<int block>() { DK<block>::declare(), DV<block>::declare(); });
  }
  SINTER_DEVICE int first_key(int block) const { return (consumer * S::blocks + block) * 64; }

  template <int queries>
  SINTER_DEVICE void scores(Sums<queries>& s, int stage, int block) const {
    wgmma::fence(s);
    S::template Scores<queries>::template multiply<S::steps>(
        s, S::TileK::descriptor(keys + S::k + S::TileK::further(first_key(block))),
        S::TileQ::descriptor(shared + S::q + stage * S::TileQ::bytes), false);
    wgmma::commit();
  }
  template <int queries>
  SINTER_DEVICE void weights_gradient(Sums<queries>& dp, int stage, int block) const {
    wgmma::fence(dp);
    S::template DWeights<queries>::template multiply<S::steps_v>(
        dp, S::TileV::descriptor(keys + S::v + S::TileV::further(first_key(block))),
        S::TileDO::descriptor(shared + S::d_o + stage * S::TileDO::bytes), false);
    wgmma::commit();
  }
  template <int block, int queries>
  SINTER_DEVICE void add_dv(Weights<queries>& p, int stage) const {
    wgmma::fence(p);
    DV<block>{}.template add_product<typename S::DV, typename S::TileDOByLine>(
        p, S::TileDOByLine::descriptor(shared + S::d_o + stage * S::TileDO::bytes));
    wgmma::commit();
  }
  template <int block, int queries>
  SINTER_DEVICE void add_dk(Weights<queries>& ds, int stage) const {
    wgmma::fence(ds);
    DK<block>{}.template add_product<typename S::DK, typename S::TileQByLine>(
        ds, S::TileQByLine::descriptor(shared + S::q + stage * S::TileQ::bytes));
    wgmma::commit();
  }
  SINTER_DEVICE void dq(int half) const {
    wgmma::fence();
    S::DQ::multiply(
        DQ{},
        S::KeysOfDS::descriptor(shared + S::ds + half * S::TileDS::bytes +
                                S::key_of_dq(consumer) * 128 +
                                (S::rows_of_dq ? consumer * S::TileDS::panel_bytes : 0)),
        S::KeysOfK::descriptor(keys + S::k + S::key_of_dq(consumer) * 128 +
                               S::column_of_dq(consumer, 0) / 64 * S::TileKByLine::panel_bytes),
        false);
    wgmma::commit();
  }
};

}  // namespace sinter::attention
