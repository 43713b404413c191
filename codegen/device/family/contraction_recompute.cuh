// Products that are none, though tensor cores multiply them: of a zero that is zero also times an
// infinite or NaN factor (masked probabilities), of zeros beside the taps of a copied filter, of
// zeros beside an image's results, and of zeros past a group's channels, which meet those of the
// next group in the last line. The tensor cores make NaN of such a product, and of each sum
// with one; a sum that is a number needs no second look. So the few sums that are NaN are
// computed again from memory, without those products.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/family/contraction_epilogue_tile.cuh"

namespace sinter::contraction {

// Which products count, by where they stand and by the first factor.
struct EveryProduct {
  template <class P, class Coord>
  static SINTER_DEVICE bool exists(const Coord&) {
    return true;
  }
  static SINTER_DEVICE bool counts(float) { return true; }
};
struct UnlessZero : EveryProduct {
  static SINTER_DEVICE bool counts(float x) { return x != 0; }
};
struct UnlessMarked : EveryProduct {  // as negative zeros
  static SINTER_DEVICE bool counts(float x) { return __float_as_uint(x) != 1u << 31; }
};
template <class... Bound>
struct WhereResultsAre {  // of a filter's gradient, which k runs over
  template <class P, class Coord>
  static SINTER_DEVICE bool exists(const Coord& c) {
    return P::within(List<Bound...>{}, c);
  }
  static SINTER_DEVICE bool counts(float) { return true; }
};

// `Counted`: one of these. Of the element functions of both operands `First` is that of the one
// that it asks for.
template <class Counted, class First, class Second>
struct Recomputed {
  // The sum over k, by a warp. It ends where it is known to be NaN, as most are where factors are.
  template <class P, class Args>
  static SINTER_DEVICE float sum(const Args& args, typename P::Coord c) {
    using Index = typename P::Index;
    const First first{args};
    const Second second{args};
    const Index lane = static_cast<int>(threadIdx.x) % 32;
    float sum = 0;
#pragma unroll 1
    for (Index from = 0; from < P::depth; from += 32) {
      if (from + lane < P::depth) {
        P::set_k(c, from + lane);
        if (Counted::template exists<P>(c)) {
          const float x = static_cast<float>(first.value(c));
          if (Counted::counts(x)) sum = math::fma(x, static_cast<float>(second.value(c)), sum);
        }
      }
      if (__any_sync(0xffffffffu, sum != sum)) return 0.0f / 0.0f;
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  }
};
template <class Body>
concept RecomputesSums = requires {
  typename Body::Recomputed;
};

// Whether an epilogue tile holds a NaN: a sum of four with one among them is one. The other way
// round, the sum of two infinities costs no more than a second look. Behind a tile's last column
// lies what was there before, of any bits: there a second look counts the `columns` that have sums.
// (2 x 320 x 64 x 64, 4 filters in tiles of 16 columns on an H200: 55.7 us with looks at all sums
// of each tile, 18.8 so.)
SINTER_DEVICE bool may_hold_nan(const EpilogueTile& epilogue_tile, int columns) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  bool found = false;
#pragma unroll
  for (int i = lane * 4; i < EpilogueTile::rows * EpilogueTile::columns; i += 128) {
    const float4 four = *reinterpret_cast<const float4*>(epilogue_tile.at + i);
    const float sum = four.x + four.y + four.z + four.w;
    found = found || sum != sum;
  }
  if (!__any_sync(0xffffffffu, found)) return false;
  if (columns >= EpilogueTile::columns) return true;
  found = false;
#pragma unroll 1
  for (int row = lane; row < EpilogueTile::rows; row += 32)
#pragma unroll 1
    for (int column = 0; column < columns; ++column) {
      const float sum = epilogue_tile.at[EpilogueTile::place(row, column)];
      found = found || sum != sum;
    }
  return __any_sync(0xffffffffu, found);
}

// Computes the epilogue tile's NaNs again; the whole warp takes part.
template <class Config, class Body, class Args, class Rows>
SINTER_DEVICE void recompute_tile(const Args& args, EpilogueTile& epilogue_tile,
                                  const EpilogueCoord<Config>& place, const Rows& rows) {
  if constexpr (RecomputesSums<Body>) {
    using P = Problem<Config>;
    static_assert(Config::products == 1);
    if (!may_hold_nan(epilogue_tile, static_cast<int>(place.column_end - place.column))) return;
#pragma unroll 1
    for (int i = 0; i < EpilogueTile::rows * EpilogueTile::columns; ++i) {
      const int row = i / EpilogueTile::columns, column = i % EpilogueTile::columns;
      float& sum = epilogue_tile.at[EpilogueTile::place(row, column)];
      const bool inside =
          place.row + row < place.row_end && place.column + column < place.column_end;
      if (!inside || sum == sum) continue;
      typename P::Coord c = place.batch;
      P::set_m(c, rows.source(place.row + row));
      P::set_n(c, place.column + column);
      if (!P::exists(c)) continue;
      const float again = Body::Recomputed::template sum<P>(args, c);
      if (threadIdx.x % 32 == 0) sum = again;
      __syncwarp();
    }
  }
}

}  // namespace sinter::contraction
