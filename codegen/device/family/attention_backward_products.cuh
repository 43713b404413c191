// The five products of attention_backward.cuh, each a group of wgmma.
#pragma once
#include "sinter/device/family/attention_backward_shape.cuh"

namespace sinter::attention {

template <class S>
struct BackwardProducts {
  using Weights = OperandFragment<typename S::Number, S::tile_q>;
  unsigned shared;
  int consumer;

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
  SINTER_DEVICE void add_dv(typename S::DV::Sums& dv, Weights& p, int stage) const {
    wgmma::fence(dv, p);
    S::DV::multiply(dv, p, S::TileDOByLine::descriptor(shared + S::d_o + stage * S::TileDO::bytes),
                    true);
    wgmma::commit();
  }
  SINTER_DEVICE void add_dk(typename S::DK::Sums& dk, Weights& ds, int stage) const {
    wgmma::fence(dk, ds);
    S::DK::multiply(dk, ds, S::TileQByLine::descriptor(shared + S::q + stage * S::TileQ::bytes),
                    true);
    wgmma::commit();
  }
  SINTER_DEVICE void dq(typename S::DQ::Sums& sums, int half) const {
    wgmma::fence(sums);
    S::DQ::multiply(
        sums,
        S::TileDS::descriptor(shared + S::ds + half * S::TileDS::bytes +
                              (S::rows_of_dq ? consumer * S::TileDS::panel_bytes : 0)),
        S::TileKByLine::descriptor(shared + S::k +
                                   (S::rows_of_dq ? 0 : consumer * S::TileKByLine::panel_bytes)),
        false);
    wgmma::commit();
  }
};

}  // namespace sinter::attention
