// Products with a zero of one operand that are zero also where the other is infinite or NaN: masked
// probabilities, whose values may be anything. The tensor cores make NaN of such a product, and of
// each sum with one; a sum that is a number needs no second look. So the few sums that are NaN are
// taken again from memory, without those products.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/family/contraction_epilogue_tile.cuh"

namespace sinter::contraction {

// Of the element functions of both operands: those of the one whose zeros dominate come first.
template <class Dominating, class Other>
struct DominatingZeros {
  // The sum over k, by a warp.
  template <class P, class Args>
  static SINTER_DEVICE float sum(const Args& args, typename P::Coord c) {
    const Dominating dominating{args};
    const Other other{args};
    float sum = 0;
#pragma unroll 1
    for (typename P::Index k = static_cast<int>(threadIdx.x) % 32; k < P::depth; k += 32) {
      P::set_k(c, k);
      const float x = static_cast<float>(dominating.value(c));
      if (x != 0) sum = math::fma(x, static_cast<float>(other.value(c)), sum);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  }
};

// Whether a slab holds a NaN: a sum of four with one among them is one. The other way round, the
// sum of two infinities costs no more than a second look.
SINTER_DEVICE bool may_hold_nan(const EpilogueTile& slab) {
  bool found = false;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x) % 32 * 4;
       i < EpilogueTile::rows * EpilogueTile::columns; i += 128) {
    const float4 four = *reinterpret_cast<const float4*>(slab.at + i);
    const float sum = four.x + four.y + four.z + four.w;
    found = found || sum != sum;
  }
  return __any_sync(0xffffffffu, found);
}

// Takes the slab's NaNs again; the whole warp takes part.
template <class Config, class Body, class Args, class Rows>
SINTER_DEVICE void recompute_nonfinite(const Args& args, EpilogueTile& slab,
                                       const EpiloguePlace<Config>& place, const Rows& rows) {
  if constexpr (requires { typename Body::DominatingZeros; }) {
    using P = Problem<Config>;
    static_assert(Config::products == 1);
    if (!may_hold_nan(slab)) return;
#pragma unroll 1
    for (int i = 0; i < EpilogueTile::rows * EpilogueTile::columns; ++i) {
      const int row = i / EpilogueTile::columns, column = i % EpilogueTile::columns;
      float& sum = slab.at[EpilogueTile::place(row, column)];
      const bool inside =
          place.row + row < place.row_end && place.column + column < place.column_end;
      if (!inside || sum == sum) continue;
      typename P::Coord c = place.batch;
      P::set_m(c, rows.source(place.row + row));
      P::set_n(c, place.column + column);
      const float again = Body::DominatingZeros::template sum<P>(args, c);
      if (threadIdx.x % 32 == 0) sum = again;
      __syncwarp();
    }
  }
}

}  // namespace sinter::contraction
