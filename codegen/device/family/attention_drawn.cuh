// Random numbers that are 0 or 1, of weights whose bodies draw one each (dropout).
#pragma once
#include "sinter/device/core/philox.cuh"

namespace sinter::attention {

// Weight has Drawn, the logical index of its number; run(args, c), the bits of the four numbers of
// a run of the generator; and element(args, c, of_head, x, bool drawn).
template <class Weight>
concept DrawsBits = requires {
  typename Weight::Drawn;
};

// That of one element.
template <class Weight, class Args, class Coord>
SINTER_DEVICE bool drawn_bit(const Args& args, const Coord& c) {
  const auto place = static_cast<int>(logical_index<typename Weight::Drawn>(c) & 3);
  return Weight::run(args, c) >> place & 1u;
}

// Those of a tile's registers, a bit each, of which four from a multiple of four on are two
// neighbouring columns of two rows. A run of the generator makes the numbers of four neighbouring
// keys, which several lanes hold: each lane runs it for one of four registers, and they tell each
// other four bits each. `key`: its place among the coordinates; `whole`: a lane's columns begin at
// even keys.
template <class Weight, int key, bool queries_are_rows, bool whole, class Coord, int count>
struct DrawnBits {
  static constexpr bool shares =
      whole && index_of_runs<typename Weight::Drawn, Coord::Extent::size>() == key;
  unsigned word[(count + 31) / 32];

  // `place(i)`: the coordinates of register i. Not a loop of few runs, which would wait for each
  // other. (b4 h16 s2048 d128 causal forward on an H100, us: all side by side 313, in fours 340,
  // twos 358, one by one 422.)
  template <class Args, class Place>
  SINTER_DEVICE DrawnBits(const Args& args, const Place& place) {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const unsigned before = i % 32 == 0 ? 0u : word[i / 32];
      word[i / 32] = before | of_four(args, i, place) << i % 32;
    }
  }
  SINTER_DEVICE bool at(int i) const { return word[i / 32] >> i % 32 & 1u; }

 private:
  // Of four registers from i on.
  template <class Args, class Place>
  static SINTER_DEVICE unsigned of_four(const Args& args, int i, const Place& place) {
    const int lane = static_cast<int>(threadIdx.x);
    unsigned bits = 0;
    if constexpr (!shares) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        bits |= static_cast<unsigned>(drawn_bit<Weight>(args, place(i + e))) << e;
      return bits;
    } else if constexpr (queries_are_rows) {
      // Four keys are two columns of a lane and of the one beside it: one runs for the first row.
      const int odd = lane & 1;
      const Coord first = place(i), second = place(i + 2);
      bits = run(args, odd ? second : first, first) << 4 * odd;
      bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
      bits >>= 2 * odd;
      return (bits & 3u) | (bits >> 2 & 12u);
    } else {
      // Four keys are rows of four lanes, four apart.
      const int number = lane / 4 % 4;
      bits = run(args, number & 1 ? place(i + 1) : place(i), number & 2 ? place(i + 2) : place(i))
             << 4 * number;
      bits |= __shfl_xor_sync(0xffffffffu, bits, 4);
      bits |= __shfl_xor_sync(0xffffffffu, bits, 8);
      bits >>= number;
      return (bits & 1u) | (bits >> 3 & 2u) | (bits >> 6 & 4u) | (bits >> 9 & 8u);
    }
  }
  // Of a query and of the four keys from a multiple of four on.
  template <class Args>
  static SINTER_DEVICE unsigned run(const Args& args, Coord c, const Coord& of_key) {
    c.at[key] = of_key.at[key] & ~3;
    return Weight::run(args, c);
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
