// How the results of attention_forward.cuh leave registers, and rows that are taken again.
#pragma once
#include "sinter/device/family/attention_forward_tiles.cuh"
#include "sinter/device/family/attention_softmax.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"

namespace sinter::attention {

// The results of one row again, by a warp, without the products whose weight is zero.
template <class S, class Q, class K, class V, class Bounds, class Score, class Weight, class Args>
SINTER_DEVICE void recompute_row(const Args& args, typename S::F::Coord c, int entry,
                                 const KeyTiles& keys,
                                 const Band<Bounds, S::queries_of_head, S::keys>& band, int row,
                                 float scale, float largest, float reciprocal,
                                 float (&out)[(S::width + 31) / 32]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < (S::width + 31) / 32; ++j) out[j] = 0;
  S::F::set_m(c, row);
  typename S::P::Coord at;
  S::P::set_batch(at, entry);
  const float shift = largest == minus_infinity() ? 0.0f : largest * scale;
#pragma unroll 1
  for (int n = keys.begin * S::tile_k; n < keys.end * S::tile_k; ++n) {
    if (n < band.first(row) || n >= band.end(row)) continue;
    S::F::set_n(c, n);
    float sum = 0;
#pragma unroll 1
    for (int d = lane; d < S::depth; d += 32) {
      S::F::set_k(c, d);
      sum = math::fma(Q::element(args, c), K::element(args, c), sum);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if constexpr (!Score::plain) sum = Score::element(args, c, sum);
    float weight = math::fast_exp2(math::fma(sum, scale, -shift)) * reciprocal;
    if constexpr (!Weight::plain) weight = Weight::element(args, c, weight);
    if (weight == 0.0f) continue;
    S::P::set_k(at, n);
#pragma unroll
    for (int j = 0; j < (S::width + 31) / 32; ++j) {
      const int e = lane + 32 * j;
      S::P::set_n(at, e < S::width ? e : 0);
      if (e < S::width) out[j] = math::fma(weight, V::element(args, at), out[j]);
    }
  }
}

// A warp's 16 rows leave as boxes of 64 columns, two at a time. `take_again`: calls put(row,
// column, result) for rows whose results are others than the sums.
template <class S, class Body, class Args, class Sums, class Again>
SINTER_DEVICE void store_boxes(const Args& args, contraction::EpilogueTile& slab, const Sums& out,
                               const typename S::P::Coord& at, int row, bool again,
                               const Again& take_again) {
  using Number = typename S::Number;
  constexpr int box = 16 * 128, boxes = (S::columns + 63) / 64;  // bytes
  static_assert(2 * box <= sizeof slab);
  const unsigned to = hopper::address(&slab);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = lane % 16;  // of its block of 16 rows and columns, a lane names one row's half
  const auto packed = to_operand<Number>(out);
  for_each_number<(boxes + 1) / 2>([&]<int pair>() {
    if (lane == 0) hopper::wait_for_stores<0>();
    __syncwarp();
    constexpr int first = pair * 8, left = OperandFragment<Number, Sums::columns>::steps - first,
                  steps = left < 8 ? left : 8;  // of 16 columns
    for_each_number<steps>([&]<int i>() {
      hopper::put_blocks(to + i / 4 * box + line * 128 + ((i % 4 * 2 + lane / 16) ^ line % 8) * 16,
                         packed.at[first + i]);
    });
    if (again)
      take_again([&](int r, int column, float result) {
        const int within = column - pair * 128;
        if (within >= 0 && within < 128)
          hopper::put_half(
              to + within / 64 * box + r * 128 + ((within % 64 / 8) ^ r % 8) * 16 + within % 8 * 2,
              Number::encode(result).bits);
      });
    hopper::written_for_multiplications();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
      for (int b = 0; b < 2 && pair * 2 + b < boxes; ++b)
        Body::store(args, at, row, (pair * 2 + b) * 64, to + b * box);
      hopper::commit_stores();
    }
  });
}

// The same through the packs of an epilogue of any kind.
template <class Config, class S, class Body, class Args, class Sums, class Again>
SINTER_DEVICE void finish_slabs(const Args& args, contraction::EpilogueTile& slab, const Sums& out,
                                const typename S::P::Coord& at, int row, bool again,
                                const Again& take_again) {
  using contraction::EpilogueTile;
  const EpilogueTile::Fragment fragment;
  contraction::EpiloguePlace<Config> place;
  place.batch = at;
  place.row = row, place.row_end = S::P::rows, place.column_end = S::P::columns;
#pragma unroll 1
  for (int part = 0; part < S::across; ++part) {
    contraction::put_tile<0, S::across, 1>(slab, fragment, contraction::OneBlock<Sums>{out}, part);
    __syncwarp();
    place.column = part * EpilogueTile::columns;
    if (again)
      take_again([&](int r, int column, float result) {
        const int within = column - part * EpilogueTile::columns;
        if (within >= 0 && within < EpilogueTile::columns)
          slab.at[EpilogueTile::place(r, within)] = result;
      });
    contraction::finish<Config, Body>(args, slab, place, AllRows{});
    __syncwarp();
  }
}

}  // namespace sinter::attention
