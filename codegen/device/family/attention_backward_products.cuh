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
  using Weights = OperandFragment<typename S::Number, S::tile_q>;
  unsigned shared;
  int consumer;

  using DQ = NamedAccumulator<float, S::columns_of_dq, 0>;
  using DK = HeldAccumulator<S::DK::Shape::columns, 1>;
  using DV = HeldAccumulator<S::DV::Shape::columns, 2>;

  static SINTER_DEVICE void declare() { DQ::declare(), DK::declare(), DV::declare(); }

  SINTER_DEVICE void scores(typename S::Scores::Sums& s, int stage) const {
    wgmma::fence(s);
    S::Scores::template multiply<S::steps>(
        s, S::TileK::descriptor(shared + S::k + S::TileK::further(consumer * 64)),
        S::TileQ::descriptor(shared + S::q + stage * S::TileQ::bytes), false);
    wgmma::commit();
  }
  SINTER_DEVICE void weights_gradient(typename S::DWeights::Sums& dp, int stage) const {
    wgmma::fence(dp);
    S::DWeights::template multiply<S::steps_v>(
        dp, S::TileV::descriptor(shared + S::v + S::TileV::further(consumer * 64)),
        S::TileDO::descriptor(shared + S::d_o + stage * S::TileDO::bytes), false);
    wgmma::commit();
  }
  SINTER_DEVICE void add_dv(Weights& p, int stage) const {
    wgmma::fence(p);
    DV{}.template add_product<typename S::DV, typename S::TileDOByLine>(
        p, S::TileDOByLine::descriptor(shared + S::d_o + stage * S::TileDO::bytes));
    wgmma::commit();
  }
  SINTER_DEVICE void add_dk(Weights& ds, int stage) const {
    wgmma::fence(ds);
    DK{}.template add_product<typename S::DK, typename S::TileQByLine>(
        ds, S::TileQByLine::descriptor(shared + S::q + stage * S::TileQ::bytes));
    wgmma::commit();
  }
  SINTER_DEVICE void dq(int half) const {
    wgmma::fence();
    S::DQ::multiply(
        DQ{},
        S::TileDS::descriptor(shared + S::ds + half * S::TileDS::bytes +
                              (S::rows_of_dq ? consumer * S::TileDS::panel_bytes : 0)),
        S::TileKByLine::descriptor(shared + S::k +
                                   (S::rows_of_dq ? 0 : consumer * S::TileKByLine::panel_bytes)),
        false);
    wgmma::commit();
  }
};

}  // namespace sinter::attention
