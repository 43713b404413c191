// How the operands of a contraction come to the panels in shared memory: by asynchronous copies, or
// through registers where they are computed, converted or do not lie as copies want them.
#pragma once
#include "sinter/device/core/part_pack.cuh"
#include "sinter/device/family/contraction_panel.cuh"
#include "sinter/device/family/contraction_space.cuh"

namespace sinter {

// Integers of 8 bits that become floats as the last bits of one past 2^23, of which 2^23 is taken
// off: both instructions have the full rate, a conversion has a fraction of it.
template <class Element, int width, int aligned>
struct BytePack : Pack<Element, width, aligned> {};
template <class T, class Element, int width, int aligned>
SINTER_DEVICE T get(const BytePack<Element, width, aligned>& pack, int e) {
  static_assert(width % 4 == 0 && (is_same<Element, i8> || is_same<Element, u8>));
  constexpr bool is_signed = is_same<Element, i8>;
  const unsigned word = pack.word(e / 4) ^ (is_signed ? 0x80808080u : 0),
                 which = 0x7440u | static_cast<unsigned>(e % 4);
  return static_cast<T>(__uint_as_float(warp_matrix::bytes_of(word, 0x4b000000u, which)) -
                        (is_signed ? 0x1p23f + 128 : 0x1p23f));
}

}  // namespace sinter

namespace sinter::contraction {

// Two neighbours as factors: number i of the pairs that a thread holds.
template <class Number, class Element, int width, int aligned>
SINTER_DEVICE unsigned pair(Number number, const BytePack<Element, width, aligned>& held, int i) {
  if (!held.inside) return 0;
  return warp_matrix::pair(number, get<float>(held, 2 * i), get<float>(held, 2 * i + 1));
}
// As bf16, whose mantissa has a bit less: a byte is put behind 0x43, so that its last seven bits
// are those past 128 and the sign is the last of the exponent, 128 or 256, which is taken off.
template <int width, int aligned>
SINTER_DEVICE unsigned pair(bf16 number, const BytePack<i8, width, aligned>& held, int i) {
  if (!held.inside) return 0;
  const unsigned halves =
      warp_matrix::bytes_of(held.word(i / 2), 0x43434343u, i % 2 == 0 ? 0x4140u : 0x4342u);
  return warp_matrix::subtract(number, halves & 0xff7fff7fu, halves & 0xff80ff80u);
}
template <class Number, class Held>
SINTER_DEVICE unsigned pair(Number number, const Held& held, int i) {
  if (!held.inside) return 0;
  if constexpr (is_same<decltype(held.element(0)), Number>)
    return held.word(i);
  else
    return warp_matrix::pair(number, held.element(2 * i), held.element(2 * i + 1));
}

// Brings one operand of a step, `rows` rows of a tile, to shared memory. A thread has the same
// chunks of every step: of k fastest, rows of its own; else one piece of a line, for several k.
template <class Config, class Operand, class Rows, int rows, bool is_a>
struct Loader {
  using P = Problem<Config>;
  using Index = typename Config::Index;
  using Coord = typename P::Coord;
  using Number = typename Config::Number;
  static constexpr bool k_fastest = Operand::k_fastest, copied = Operand::copied;
  static constexpr bool transposed = requires { requires Operand::transposed; };
  static constexpr bool streamed = requires { requires Operand::streamed; };
  using Layout = Choice<streamed, BytePanel<rows, Config::tile_k>,
                        Panel<Number, k_fastest, rows, Config::tile_k, transposed>>;
  static constexpr int width = Operand::width, packs = Layout::each / width;  // of a chunk
  static constexpr int all = Layout::lines * Layout::chunks;                  // chunks of a step
  static constexpr int own = static_cast<int>(ceil_divide(all, Config::threads));
  static constexpr int apart = Config::threads / Layout::chunks;  // lines between a thread's chunks
  static constexpr int known = k_fastest ? own : packs;           // rows, or first ones of packs
  static_assert(Config::threads % Layout::chunks == 0);
  static_assert(!(transposed && copied) || width == 1);

  // What is never outside.
  static constexpr bool whole_rows = !(is_a && Rows::grouped) && all % Config::threads == 0 &&
                                     (is_a ? is_known(P::rows) : is_known(P::columns)) &&
                                     (is_a ? Index{P::rows} : Index{P::columns}) % rows == 0;
  static constexpr bool whole_depth = is_known(P::depth) && P::depth % Config::tile_k == 0;
  // Copied as f32, to be rounded on the way to the tensor cores.
  static constexpr bool rounds = Operand::copied && sizeof(Number) == 4;

  Coord at[known];
  int left[known];  // rows of the tile from there on, at most a pack

  SINTER_DEVICE void aim(const Coord& batch, Index first, Index end, const Rows& source) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < known; ++i) {
      const int offset = k_fastest ? thread / Layout::chunks + i * apart
                                   : thread % Layout::chunks * Layout::each + i * width;
      Index row = first + offset;
      left[i] = width;
      if constexpr (!whole_rows) {  // a row outside becomes one inside, which is not read
        const Index rest = offset < rows ? end - row : 0;
        left[i] = rest <= 0 ? 0 : rest < width ? static_cast<int>(rest) : width;
        if (rest <= 0) row = end - 1;
      }
      at[i] = batch;
      if constexpr (is_a)
        P::set_m(at[i], source.source(row));
      else
        P::set_n(at[i], row);
    }
  }

  // Calls visit(number, c, count, place) for each of the thread's packs of a step: `count`
  // neighbours from c on exist, and they lie `place` bytes from the start of the panel.
  template <class Visit>
  SINTER_DEVICE void for_packs(Index step, const Visit& visit) const {
    const int first_line = static_cast<int>(threadIdx.x) / Layout::chunks,
              column = static_cast<int>(threadIdx.x) % Layout::chunks;
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int line = first_line + i * apart;
      if (all % Config::threads != 0 && line >= Layout::lines) break;
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        const int which = k_fastest ? i : p;
        const Index k =
            step * Config::tile_k + (k_fastest ? column * Layout::each + p * width : line);
        int count = whole_rows ? width : left[which];
        if constexpr (!whole_depth) {
          const Index rest = P::depth - k;
          if (rest <= 0)
            count = 0;
          else if (k_fastest && count > 0)
            count = Operand::ragged && rest < width ? static_cast<int>(rest) : width;
        } else if constexpr (k_fastest && !whole_rows) {
          if (count > 0) count = width;
        }
        Coord c = at[which];
        if constexpr (Operand::joined)
          c.at[P::first_k + Config::k - 1] = k;
        else
          P::set_k(c, k);
        visit(i * packs + p, c, count, Layout::place(line, column) + p * width * Layout::apart);
      }
    }
  }

  template <class Args>
  SINTER_DEVICE void copy(const Args& args, Index step, unsigned panel) const {
    using Access = typename Operand::Access;
    const auto base = Operand::base(args);
    constexpr int bytes = static_cast<int>(sizeof(*base));
    if constexpr (transposed && lie_together<Access>()) {  // neighbours are constants apart
      const auto* first = base;
      for_packs(step, [&](int i, const Coord& c, int count, int place) {
        if (i % packs == 0) first = base + locate<Access>(c).offset;
        warp_matrix::copy<bytes>(panel + place, first + i % packs, count > 0);
      });
      return;
    }
    for_packs(step, [&](int, const Coord& c, int count, int place) {
      const auto from = locate<Access>(c);
      if (Access::Windows::size > 0 && !from.inside) count = 0;
      if constexpr (Operand::ragged)
        warp_matrix::copy_part<width * bytes>(panel + place, base + from.offset, count * bytes);
      else
        warp_matrix::copy<width * bytes>(panel + place, base + from.offset, count > 0);
    });
  }

  // What passes through registers on the way.
  struct Held {
    typename Operand::Fragment at[own * packs];
  };
  // Brings a step, before and after the current one is multiplied.
  template <class Args>
  SINTER_DEVICE void start(const Args& args, Index step, unsigned panel, Held& held) const {
    if constexpr (copied)
      copy(args, step, panel);
    else
      fetch(args, step, held);
  }
  template <class Args>
  SINTER_DEVICE void end(const Args& args, Index step, unsigned panel, Held& held) const {
    if constexpr (!copied) put(args, step, panel, held);
  }

 private:
  // Whether the elements of a chunk do, wherever it begins.
  template <class Access>
  static constexpr SINTER_DEVICE bool lie_together() {
    constexpr int last = P::first_k + Config::k - 1;
    return Config::k > 0 && Access::Windows::size == 0 && Access::Via::size == 0 &&
           Access::Stride::at(last) == 1 &&
           (Operand::joined || Config::k == 1 || Config::Extent::at(last) % Layout::each == 0);
  }
  template <class Args>
  SINTER_DEVICE void fetch(const Args& args, Index step, Held& held) const {
    for_packs(step,
              [&](int i, const Coord& c, int count, int) { held.at[i].fetch(args, c, count); });
  }
  template <class Args>
  SINTER_DEVICE void put(const Args& args, Index step, unsigned panel, Held& held) const {
    unsigned words[4];
    float values[Layout::each];
    for_packs(step, [&](int i, const Coord& c, int count, int place) {
      auto& pack = held.at[i];
      pack.shift_to_front();
      const int p = i % packs;
      if constexpr (Operand::plain) {
        constexpr int each = width / 2;  // words of a pack
#pragma unroll
        for (int w = 0; w < each; ++w)
          words[p * each + w] = existing(Operand::pair(Number{}, pack, w), count - w * 2);
      } else {
#pragma unroll
        for (int e = 0; e < width; ++e) {
          const float value =
              static_cast<float>(Operand::element(args, neighbour<Operand::dim>(c, e), e, pack));
          values[p * width + e] = e < count ? value : 0.0f;
        }
        if (p == packs - 1) {
#pragma unroll
          for (int w = 0; w < 4; ++w) words[w] = word(Number{}, values, w);
        }
      }
      if (p != packs - 1) return;
      const unsigned to = panel + place - p * width * Layout::apart;
      if constexpr (transposed)
#pragma unroll
        for (int w = 0; w < 4; ++w) warp_matrix::put_word(to + w * Layout::apart, words[w]);
      else
        warp_matrix::put(to, uint4{words[0], words[1], words[2], words[3]});
    });
  }

  // Two numbers, of which the first `count` exist.
  static SINTER_DEVICE unsigned existing(unsigned two, int count) {
    if constexpr (Operand::ragged) return count >= 2 ? two : count == 1 ? two & 0xffffu : 0;
    return count > 0 ? two : 0;
  }
  template <class N>
  static SINTER_DEVICE unsigned word(N number, const float* values, int w) {
    return warp_matrix::pair(number, values[w * 2], values[w * 2 + 1]);
  }
  static SINTER_DEVICE unsigned word(f32, const float* values, int w) {
    return __float_as_uint(values[w]);
  }
  static SINTER_DEVICE unsigned word(tf32, const float* values, int w) {
    return tf32::encode(values[w]).bits;
  }
};

}  // namespace sinter::contraction
