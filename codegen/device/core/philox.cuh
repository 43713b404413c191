// Random numbers by Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
// An element's number depends only on seed, offset and its logical index, never on the schedule.
// Distributions are computed in double, because (x + 0.5) 2^-32 needs 33 significant bits.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter {

struct Philox4 {
  unsigned lane[4];
};

SINTER_DEVICE Philox4 philox4x32_10(unsigned long long key, unsigned long long counter) {
  constexpr unsigned kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr unsigned kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  unsigned key0 = static_cast<unsigned>(key), key1 = static_cast<unsigned>(key >> 32);
  Philox4 x{{static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), 0u, 0u}};
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = static_cast<unsigned long long>(kMultiplier0) * x.lane[0];
    const unsigned long long p1 = static_cast<unsigned long long>(kMultiplier1) * x.lane[2];
    x = {{static_cast<unsigned>(p1 >> 32) ^ x.lane[1] ^ key0, static_cast<unsigned>(p1),
          static_cast<unsigned>(p0 >> 32) ^ x.lane[3] ^ key1, static_cast<unsigned>(p0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

SINTER_DEVICE double unit_interval(unsigned x) { return (x + 0.5) * 0x1p-32; }

// Which block of four an element belongs to, and its place in it.
struct RandomElement {
  Philox4 block;
  int lane;
  SINTER_DEVICE RandomElement(long long seed, long long offset, long long index)
      : block(philox4x32_10(
            static_cast<unsigned long long>(seed),
            static_cast<unsigned long long>(offset) + static_cast<unsigned long long>(index) / 4)),
        lane(static_cast<int>(index & 3)) {}
  // Selected, not indexed: an array with a variable index would live in local memory.
  SINTER_DEVICE unsigned bits() const {
    const unsigned even = lane & 2 ? block.lane[2] : block.lane[0];
    const unsigned odd = lane & 2 ? block.lane[3] : block.lane[1];
    return lane & 1 ? odd : even;
  }
};

template <class T>
SINTER_DEVICE T random_bernoulli(long long seed, long long offset, long long index,
                                 double probability) {
  return unit_interval(RandomElement(seed, offset, index).bits()) < probability ? T(1) : T(0);
}

template <class T>
SINTER_DEVICE T random_uniform(long long seed, long long offset, long long index, double minimum,
                               double maximum) {
  const double u = unit_interval(RandomElement(seed, offset, index).bits());
  return static_cast<T>(minimum + (maximum - minimum) * u);
}

// Box and Muller: lanes (0, 1) and (2, 3) make a pair each; even lanes take the cosine.
template <class T>
SINTER_DEVICE T random_normal(long long seed, long long offset, long long index, double mean,
                              double stddev) {
  const RandomElement e(seed, offset, index);
  const double radius_u = unit_interval(e.lane & 2 ? e.block.lane[2] : e.block.lane[0]);
  const double angle_u = unit_interval(e.lane & 2 ? e.block.lane[3] : e.block.lane[1]);
  const double radius = ::sqrt(-2.0 * ::log(radius_u));
  const double direction = e.lane & 1 ? sinpi(2.0 * angle_u) : cospi(2.0 * angle_u);
  return static_cast<T>(mean + stddev * (radius * direction));
}

}  // namespace sinter
