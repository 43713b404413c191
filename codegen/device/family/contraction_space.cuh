// The iteration space of a contraction: indices of batch, m, n and k, each of the four unravelled
// from one number.
#pragma once
#include "sinter/device/core/index.cuh"

namespace sinter::contraction {

// coefficients . index < end
template <long long end_, class Coefficient_>
struct Bound {
  static constexpr long long end = end_;
  using Coefficient = Coefficient_;
};

template <class Config>
struct Problem {
  using Index = typename Config::Index;
  using Coord = Coordinates<Index, typename Config::Extent>;
  static constexpr int first_m = Config::batch, first_n = first_m + Config::m,
                       first_k = first_n + Config::n;
  static constexpr SINTER_DEVICE Index product(int from, int count) {
    return Config::Extent::template multiplied<Index>(from, count);
  }
  template <int from, int count>
  static constexpr SINTER_DEVICE auto extent() {
    return number<Config::Extent::literals(from, count)>([] { return product(from, count); });
  }
  static constexpr auto batches = extent<0, Config::batch>();
  static constexpr auto rows = extent<first_m, Config::m>();
  static constexpr auto columns = extent<first_n, Config::n>();
  static constexpr auto depth = extent<first_k, Config::k>();

  // Of indices whose extents are rounded up (phases, lines of channels), whether a result exists.
  static SINTER_DEVICE bool exists(const Coord& c) {
    if constexpr (requires { typename Config::Bounds; })
      return within(typename Config::Bounds{}, c);
    return true;
  }
  template <class... Bound>
  static SINTER_DEVICE bool within(List<Bound...>, const Coord& c) {
    return ((dot(typename Bound::Coefficient{}, c.at) < static_cast<Index>(Bound::end)) && ...);
  }

  static SINTER_DEVICE void set_batch(Coord& c, Index i) { unravel<0, Config::batch>(i, c); }
  static SINTER_DEVICE void set_m(Coord& c, Index i) { unravel<first_m, Config::m>(i, c); }
  static SINTER_DEVICE void set_n(Coord& c, Index i) { unravel<first_n, Config::n>(i, c); }
  static SINTER_DEVICE void set_k(Coord& c, Index i) { unravel<first_k, Config::k>(i, c); }
};

}  // namespace sinter::contraction
