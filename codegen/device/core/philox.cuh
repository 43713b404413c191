// Random numbers by Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
// An element's number depends only on seed, offset and its logical index, never on the schedule.
// One run of the generator makes the numbers of four elements: a thread that holds packs of
// neighbours draws all that the pack needs at once, and keeps them where several phases need them.
// (x + 0.5) 2^-32 has up to 33 significant bits and is rounded once, to the type of the result.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"

namespace sinter {

struct Philox4 {
  unsigned lane[4];
};

// As many runs side by side, so that they share the keys and need not wait for their own products.
template <int runs>
SINTER_DEVICE void philox4x32_10(unsigned long long key, const unsigned long long (&counter)[runs],
                                 Philox4 (&x)[runs]) {
  constexpr unsigned kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr unsigned kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  unsigned key0 = static_cast<unsigned>(key), key1 = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int r = 0; r < runs; ++r)
    x[r] = {{static_cast<unsigned>(counter[r]), static_cast<unsigned>(counter[r] >> 32), 0u, 0u}};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int r = 0; r < runs; ++r) {
      const unsigned long long p0 = hardware::wide_product(x[r].lane[0], kMultiplier0),
                               p1 = hardware::wide_product(x[r].lane[2], kMultiplier1);
      x[r] = {{static_cast<unsigned>(p1 >> 32) ^ x[r].lane[1] ^ key0, static_cast<unsigned>(p1),
               static_cast<unsigned>(p0 >> 32) ^ x[r].lane[3] ^ key1, static_cast<unsigned>(p0)}};
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

template <class T>
SINTER_DEVICE T unit_interval(unsigned x) {
  return static_cast<T>(2ull * x + 1) * T(0x1p-33);
}
// Sine and cosine of pi x: a pair of numbers needs both.
SINTER_DEVICE void sincos_pi(float x, float& sine, float& cosine) { sincospif(x, &sine, &cosine); }
SINTER_DEVICE void sincos_pi(double x, double& sine, double& cosine) {
  sincospi(x, &sine, &cosine);
}

// An element of a run.
struct RandomElement {
  Philox4 block;
  int lane;
  // Selected, not indexed: an array with a variable index would live in local memory.
  SINTER_DEVICE unsigned bits() const {
    const unsigned even = lane & 2 ? block.lane[2] : block.lane[0];
    const unsigned odd = lane & 2 ? block.lane[3] : block.lane[1];
    return lane & 1 ? odd : even;
  }
};

// ---- distributions

// (x + 0.5) 2^-32 < probability, as a comparison of integers: `below` is the least x that is not.
struct Bernoulli {
  unsigned long long below;
  SINTER_DEVICE bool holds(const RandomElement& e) const { return e.bits() < below; }
  template <class T>
  SINTER_DEVICE T value(const RandomElement& e) const {
    return holds(e) ? T(1) : T(0);
  }
};

struct Uniform {
  double minimum, maximum;
  template <class T>
  SINTER_DEVICE T value(const RandomElement& e) const {
    const T low = static_cast<T>(minimum), high = static_cast<T>(maximum);
    return low + (high - low) * unit_interval<T>(e.bits());
  }
};

// Box and Muller: lanes (0, 1) and (2, 3) make a pair each; even lanes take the cosine.
struct Normal {
  double mean, stddev;
  template <class T>
  SINTER_DEVICE T value(const RandomElement& e) const {
    const T radius_u = unit_interval<T>(e.lane & 2 ? e.block.lane[2] : e.block.lane[0]);
    const T angle_u = unit_interval<T>(e.lane & 2 ? e.block.lane[3] : e.block.lane[1]);
    const T radius = math::sqrt(T(-2) * math::log(radius_u));
    T sine, cosine;
    sincos_pi(T(2) * angle_u, sine, cosine);
    const T direction = e.lane & 1 ? sine : cosine;
    return static_cast<T>(mean) + static_cast<T>(stddev) * (radius * direction);
  }
};

// ---- packs of numbers

template <class T, int width>
struct RandomPack {
  T at[width];
  template <class Distribution>
  SINTER_DEVICE void take(int e, const RandomElement& x, const Distribution& d) {
    at[e] = d.template value<T>(x);
  }
};
// Of Bernoulli's numbers a thread keeps a bit each. A word holds so few of them that the compiler
// still sees which comparison a bit came from, and forms no word that is not kept.
template <int width>
struct RandomBits {
  unsigned word[(width + 3) / 4];
  SINTER_DEVICE void take(int e, const RandomElement& x, const Bernoulli& d) {
    const unsigned before = e % 4 == 0 ? 0u : word[e / 4];
    word[e / 4] = before | (d.holds(x) ? 1u << e % 4 : 0u);
  }
};

template <class T, int width>
SINTER_DEVICE T drawn(const RandomPack<T, width>& pack, int e) {
  return pack.at[e];
}
template <class T, int width>
SINTER_DEVICE T drawn(const RandomBits<width>& pack, int e) {
  return pack.word[e / 4] >> e % 4 & 1u ? T(1) : T(0);
}

// As for packs of memory: what is made of the bits is made again.
template <int width>
SINTER_DEVICE void recompute(RandomBits<width>& pack) {
#pragma unroll
  for (int i = 0; i < (width + 3) / 4; ++i) asm volatile("" : "+r"(pack.word[i]));
}

// The numbers of `width` elements at `c` and after it along `dim`, of which `together` surely
// belong to one run. `Access` gives the logical index. At most `beside` runs go side by side.
template <class Access, int dim, int together, int beside, int width, class Coord, class Pack,
          class Distribution>
SINTER_DEVICE void draw(long long seed, long long offset, const Coord& c, Pack& pack,
                        const Distribution& distribution) {
  constexpr int each = together < width ? together : width, all = width / each,
                runs = beside < all ? beside : all;
#pragma unroll
  for (int first = 0; first < width; first += runs * each) {
    unsigned long long counter[runs];
    int lane[runs];
#pragma unroll
    for (int r = 0; r < runs; ++r) {
      const long long index = logical_index<Access>(neighbour<dim>(c, first + r * each));
      counter[r] =
          static_cast<unsigned long long>(offset) + static_cast<unsigned long long>(index) / 4;
      lane[r] = static_cast<int>(index & (4 - each));
    }
    Philox4 x[runs];
    philox4x32_10(static_cast<unsigned long long>(seed), counter, x);
#pragma unroll
    for (int e = 0; e < runs * each; ++e)
      pack.take(first + e, RandomElement{x[e / each], lane[e / each] + e % each}, distribution);
  }
}

// The index along which four elements from a multiple of four on belong to one run, whatever the
// others are; -1: none, or strides come with the launch.
template <class Access, int rank>
constexpr int index_of_runs() {
  if (Access::Via::size > 0 || Access::Windows::size > 0 || Access::offset % 4 != 0) return -1;
  int found = -1;
  if (!Access::Stride::literals(0, rank)) return -1;
  for (int i = 0; i < rank; ++i) {
    if (Access::Stride::at(i) % 4 == 0) continue;
    if (Access::Stride::at(i) != 1 || found >= 0) return -1;
    found = i;
  }
  return found;
}

// Of the run so many after that of the element at c, a bit each: which of its four numbers hold.
template <class Access, class Coord>
SINTER_DEVICE unsigned bits_of_run(long long seed, long long offset, const Coord& c,
                                   long long further, const Bernoulli& distribution) {
  const unsigned long long counter[1] = {static_cast<unsigned long long>(offset) +
                                         static_cast<unsigned long long>(logical_index<Access>(c)) /
                                             4 +
                                         static_cast<unsigned long long>(further)};
  Philox4 x[1];
  philox4x32_10(static_cast<unsigned long long>(seed), counter, x);
  RandomBits<4> bits;
#pragma unroll
  for (int e = 0; e < 4; ++e) bits.take(e, RandomElement{x[0], e}, distribution);
  return bits.word[0];
}

// The number of one element. Where runs begin at multiples of four of an index, the counter is made
// of that multiple: a compiler that knows an index to be even sees that the next one's number comes
// of the same run, and has it run once for both.
template <class T, class Access, class Coord, class Distribution>
SINTER_DEVICE T random(long long seed, long long offset, const Coord& c,
                       const Distribution& distribution) {
  constexpr int along = index_of_runs<Access, Coord::Extent::size>();
  if constexpr (along >= 0) {
    Coord first = c;
    const auto within = c.at[along] & 3;
    first.at[along] = c.at[along] & ~static_cast<typename Coord::Index>(3);
    const unsigned long long counter[1] = {
        static_cast<unsigned long long>(offset) +
        static_cast<unsigned long long>(logical_index<Access>(first)) / 4};
    Philox4 x[1];
    philox4x32_10(static_cast<unsigned long long>(seed), counter, x);
    return distribution.template value<T>(RandomElement{x[0], static_cast<int>(within)});
  } else {
    RandomPack<T, 1> pack;
    draw<Access, -1, 1, 1, 1>(seed, offset, c, pack, distribution);
    return pack.at[0];
  }
}

}  // namespace sinter
