// Random numbers that are 0 or 1, of weights whose bodies draw one each (dropout).
#pragma once
#include "sinter/device/core/philox.cuh"

namespace sinter::attention {

// Weight has Drawn, the logical index of its number; run(args, c, further), the bits of the four
// numbers of a run of the generator, so many after that of c; and element(args, c, of_head, x, bool
// drawn).
template <class Weight>
concept DrawsBits = requires {
  typename Weight::Drawn;
};

// That of one element.
template <class Weight, class Args, class Coord>
SINTER_DEVICE bool drawn_bit(const Args& args, const Coord& c) {
  const auto place = static_cast<int>(logical_index<typename Weight::Drawn>(c) & 3);
  return Weight::run(args, c, 0) >> place & 1u;
}

// Those of a tile's registers, a bit each, of which four from a multiple of four on are two
// neighbouring columns of two rows, and the next four lie eight columns on. A run of the generator
// makes the numbers of four neighbouring keys, which several lanes hold: each lane runs it for one
// of four registers, and a shuffle or two exchange the bits of eight runs. `key`: its place among
// the coordinates, behind that of queries; `whole`: a lane's columns begin at even keys.
template <class Weight, int key, bool queries_are_rows, bool whole, class Coord, int count>
struct DrawnBits {
  using Drawn = typename Weight::Drawn;
  static constexpr bool shares = whole && index_of_runs<Drawn, Coord::Extent::size>() == key;
  unsigned word[(count + 31) / 32];

  // `place(i)`: the coordinates of register i. Not a loop of few runs, which would wait for each
  // other. (b4 h16 s2048 d128 causal forward on an H100, us: all side by side 313, in fours 340,
  // twos 358, one by one 422.)
  template <class Args, class Place>
  SINTER_DEVICE DrawnBits(const Args& args, const Place& place) {
    if constexpr (shares) {
      const Coord c = first_of_lane(place);
#pragma unroll
      for (int i = 0; i < count; i += 4)
        put(i, Weight::run(args, c, static_cast<long long>(i / 4) * runs_of_eight_columns()));
#pragma unroll
      for (unsigned& bits : word) bits = exchanged(bits);
    } else {
      // A run an element, side by side as few as fill each other's waits: all spill registers.
      constexpr int together = 4;
#pragma unroll
      for (int w = 0; w < count; w += 32) {
        unsigned bits = 0;
#pragma unroll 1
        for (int i = 0; i < 32 && w + i < count; i += together)
#pragma unroll
          for (int e = 0; e < together; ++e)
            bits |= unsigned{drawn_bit<Weight>(args, place(w + i + e))} << (i + e);
        word[w / 32] = bits;
      }
    }
  }
  SINTER_DEVICE bool at(int i) const { return word[i / 32] >> i % 32 & 1u; }

 private:
  SINTER_DEVICE void put(int i, unsigned bits) {
    const unsigned before = i % 32 == 0 ? 0u : word[i / 32];
    word[i / 32] = before | bits << i % 32;
  }
  // Of the numbers that the lane draws, from a multiple of four keys on. Where a lane's first pair
  // of query and key does not exist, none of its others do.
  template <class Place>
  static SINTER_DEVICE Coord first_of_lane(const Place& place) {
    Coord c = place(own() & (queries_are_rows ? 2 : 1));
    if constexpr (!queries_are_rows) c.at[key] = place(own() & 2).at[key];
    c.at[key] &= ~3;
    return c;
  }
  // Which of four registers the lane draws for.
  static SINTER_DEVICE int own() {
    const int lane = static_cast<int>(threadIdx.x);
    return queries_are_rows ? lane % 2 * 2 : lane / 4 % 4;
  }
  static SINTER_DEVICE long long runs_of_eight_columns() {
    return 2 * Drawn::Stride::at(queries_are_rows ? key : key - 1);
  }
  // Of each four bits.
  static SINTER_DEVICE unsigned exchanged(unsigned bits) {
    if constexpr (queries_are_rows) {
      // Four keys are two columns of a lane and of the one beside it.
      const unsigned other = __shfl_xor_sync(0xffffffffu, bits, 1);
      const bool odd = threadIdx.x % 2 != 0;
      return odd ? (other >> 2 & 0x33333333u) | (bits & 0xccccccccu)
                 : (bits & 0x33333333u) | (other << 2 & 0xccccccccu);
    } else {
      // They are rows of four lanes, four apart: lanes and bits change places.
      return swapped<8, 2, 0x33333333u>(swapped<4, 1, 0x55555555u>(bits));
    }
  }
  // Where a lane's number and the number of a bit differ in one digit, that digit is exchanged.
  template <int lanes, int places, unsigned lower>
  static SINTER_DEVICE unsigned swapped(unsigned bits) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, bits, lanes);
    return threadIdx.x & lanes ? (other >> places & lower) | (bits & ~lower)
                               : (bits & lower) | (other << places & ~lower);
  }
};
// Where a weight draws none.
struct NothingDrawn {};
template <class Weight, int key, bool queries_are_rows, bool whole, class Coord, int count,
          class Args, class Place>
SINTER_DEVICE auto drawn_bits(const Args& args, const Place& place) {
  if constexpr (DrawsBits<Weight>)
    return DrawnBits<Weight, key, queries_are_rows, whole, Coord, count>(args, place);
  else
    return NothingDrawn{};
}

}  // namespace sinter::attention
