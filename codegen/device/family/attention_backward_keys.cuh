// A consumer of attention_backward.cuh: where its keys lie, and their dK and dV, which leave
// registers by way of the shared memory of K and V.
#pragma once
#include "sinter/device/family/attention_backward_products.cuh"
#include "sinter/device/family/attention_backward_recompute.cuh"
#include "sinter/device/family/attention_backward_stages.cuh"

namespace sinter::attention {

// S::blocks blocks of 64 keys.
template <class S, class Bounds, class Score, class Args>
class BackwardKeys {
  using Number = typename S::Number;
  using Products = BackwardProducts<S>;

 protected:
  const Args& args_;
  const QueryBand<S, Bounds>& band_;
  const BackwardStages<S, Bounds> stages_;
  typename S::Coord c_;
  unsigned char* const pointer_;
  const unsigned shared_;
  const int consumer_, lane_, warp_, key_;  // key_: the first of its keys
  const unsigned keys_;                     // from which on K and V lie
  const Products multiply_;
  const unsigned line_, piece_;  // where a lane puts ds

  SINTER_DEVICE BackwardKeys(const Args& args, const QueryBand<S, Bounds>& band,
                             const typename S::Coord& c, unsigned char* pointer, unsigned shared,
                             int consumer, int thread, int window)
      : args_(args),
        band_(band),
        stages_{band, pointer, shared, consumer, S::place_of_keys(window)},
        c_(c),
        pointer_(pointer),
        shared_(shared),
        consumer_(consumer),
        lane_(thread % 32),
        warp_(thread / 32 % 4),
        key_(band.from + consumer * S::blocks * 64),
        keys_(shared + S::place_of_keys(window)),
        multiply_{shared, consumer, keys_},
        line_(shared + S::ds + (consumer * S::blocks * 64 + warp_ * 16 + lane_ % 16) * 128),
        piece_((lane_ % 8 ^ lane_ / 16) * 16) {}

  // The gradients of a block, stored.
  template <class Wanted, class ResultDK, class ResultDV, int block>
  SINTER_DEVICE void finish_block(const typename S::Coord& place, NanRows<S::blocks>& nan) const {
    using TileK = typename S::TileK;
    using TileV = typename S::TileV;
    typename S::DK::Sums dk;
    typename S::DV::Sums dv;
    dk.clear(), dv.clear();
    if (band_.count() == 0) {  // no query sees one of them
      if constexpr (block == 0) {
        stages_.template clear_lines<TileK>(keys_ + S::k, 0, S::tile_k);
        stages_.template clear_lines<TileV>(keys_ + S::v, 0, S::tile_k);
      }
      store<ResultDV, TileV, S::depth_v, block>(keys_ + S::v);
    } else {
      if constexpr (Wanted::dk) typename Products::template DK<block>{}.get(dk);
      if constexpr (Wanted::dv) typename Products::template DV<block>{}.get(dv);
      if constexpr (hides_pairs<Bounds>) {
        nan.template add<block>(dk), nan.template add<block>(dv);
        if (nan.template any<block>()) to_recompute<S>(pointer_).sums[consumer_] = 1;
      }
      // Nobody reads K of this consumer any more.
      if constexpr (S::parts_of_dq && block == 0)
        stages_.template wait_at_mine<kOneConsumer, 128>();
      put<ResultDV, TileV, block>(dv, keys_ + S::v);
      store<ResultDV, TileV, S::depth_v, block>(keys_ + S::v);
      dk.each([](int, float& x) { x *= Score::scale; });
      if constexpr (!S::parts_of_dq) stages_.meet_all();  // or of all
      put<ResultDK, TileK, block>(dk, keys_ + S::k);
    }
    store<ResultDK, TileK, S::depth, block>(keys_ + S::k);
    store_elements<ResultDV, 5, S::depth_v, block>(dv, place);
    store_elements<ResultDK, 4, S::depth, block>(dk, place);
  }

 public:
  // What is recomputed of a warp's keys: a lane has an element of each strip of these.
  static constexpr int keys_of_warp = 16 * S::blocks,
                       strips = ((S::depth > S::depth_v ? S::depth : S::depth_v) + 31) / 32;
  SINTER_DEVICE int key_of(int i) const { return key_ + i / 16 * 64 + warp_ * 16 + i % 16; }
  SINTER_DEVICE int element_of_dk(int strip) const { return lane_ + 32 * strip; }
  SINTER_DEVICE int element_of_dv(int strip) const { return lane_ + 32 * strip; }
  template <class ResultDK, class ResultDV>
  SINTER_DEVICE void store_tiles() const {
    for_each_number<S::blocks>([&]<int block>() {
      store<ResultDV, typename S::TileV, S::depth_v, block>(keys_ + S::v);
      store<ResultDK, typename S::TileK, S::depth, block>(keys_ + S::k);
    });
    if (threadIdx.x % 128 == 0) hopper::wait_for_stores<0>();
  }

 private:
  // 64 rows of a result, into the shared memory of a tile that nobody reads any more.
  template <class Result, class Tile, int block, int columns>
  SINTER_DEVICE void put(Accumulator<float, columns>& sums, unsigned tile) const {
    if constexpr (!by_lines<Result>) return;
    const unsigned line =
        tile + Tile::further(multiply_.first_key(block)) + (warp_ * 16 + lane_ % 16) * 128;
    const auto rounded = to_operand<Number>(widened(sums));
#pragma unroll
    for (int j = 0; j < rounded.steps; ++j)
      hopper::put_blocks(line + j / 4 * Tile::panel_bytes + (piece_ ^ j % 4 * 32), rounded.at[j]);
    hopper::fence_async_proxy();
    stages_.template wait_at_mine<kOneConsumer, 128>();
  }
  // And from there to memory, by one thread; by all where some of the rows are the next sequence's.
  template <class Result, class Tile, int width, int block>
  SINTER_DEVICE void store(unsigned tile) const {
    if constexpr (by_lines<Result>)
      store_tile<Result, Tile, width>(tile + Tile::further(multiply_.first_key(block)),
                                      key_ + block * 64);
  }
  // `tile`, `key`: of 64 keys.
  template <class Result, class Tile, int width>
  SINTER_DEVICE void store_tile(unsigned tile, int key) const {
    if constexpr (S::packed) {
      const int lines = band_.band.columns - key;
      if (lines < 64) {
#pragma unroll
        for (int panel = 0; panel < Tile::panels; ++panel)
          stages_.template store_lines_of<Result, width>(
              args_, c_, static_cast<int>(tile - shared_) + panel * Tile::panel_bytes, panel * 64,
              key, lines);
        return;
      }
    }
    if (threadIdx.x % 128 != 0) return;
#pragma unroll
    for (int panel = 0; panel < Tile::panels; ++panel)
      Result::store(args_, c_, key, panel * 64, tile + panel * Tile::panel_bytes);
    hopper::commit_stores();
  }
  // From registers.
  template <class Result, int along, int width, int block, int columns>
  SINTER_DEVICE void store_elements(Accumulator<float, columns>& sums,
                                    const typename S::Coord& place) const {
    using Held = Accumulator<float, columns>;
    if constexpr (by_elements<Result>)
      put_elements<Result, along>(
          args_, place, sums, 1.0f, S::packed ? band_.band.columns : S::keys, width,
          [&](int i) { return key_ + block * 64 + Held::row(i); },
          [](int i) { return Held::column(i); });
  }
  // With whole blocks of 16 columns.
  template <int columns>
  static SINTER_DEVICE auto widened(const Accumulator<float, columns>& sums) {
    if constexpr (columns % 16 == 0) {
      return sums;
    } else {
      Accumulator<float, columns + 8> all;
#pragma unroll
      for (int i = 0; i < all.count; ++i) all.at[i] = i < sums.count ? sums.at[i] : 0.0f;
      return all;
    }
  }
};

}  // namespace sinter::attention
