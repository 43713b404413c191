// Products on the tensor cores of sm_90a by a warpgroup: Mma<Shape, Types, A, B> is one shape of
// wgmma with its operands' places, and a kernel may use several.
//
//   // TileA and TileB are SharedTiles
//   using Product = Mma<Shape<64, 128>, Types<bf16, bf16, float>, TileA, TileB>;
//   Product::Sums sums;  // Accumulator<float, 128>
//   wgmma::fence(sums);
//   Product::multiply(sums, TileA::descriptor(a), TileB::descriptor(b), keep);  // all of k
//   wgmma::commit();
//   wgmma::wait<0>(sums);
//   // now sums can be read
//
// With A = Registers the left operand is an OperandFragment, such as to_operand makes of another
// product's sums. The file names each shape once, outside of all namespaces:
// SINTER_WGMMA(128, f32) for 128 columns, see core/wgmma_instruction.cuh.
//
// Between fence and wait the registers of sums and of left operands belong to the tensor cores: to
// touch one there makes the compiler wait after each product ("serialized" in its log).
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/wgmma_instruction.cuh"
#include "sinter/device/engine/fragment.cuh"
#include "sinter/device/engine/named_accumulator.cuh"
#include "sinter/device/engine/shared_tile.cuh"

namespace sinter {

template <int rows_, int columns_>
struct Shape {
  static constexpr int rows = rows_, columns = columns_;
  static_assert(rows == 64, "wgmma has 64 rows");
};
template <class A_, class B_, class Sum_>
struct Types {
  using A = A_;
  using B = B_;
  using Sum = Sum_;
};
// In place of a SharedTile for the left operand.
struct Registers {};

namespace wgmma {

// The strings of core/wgmma_instruction.cuh. The parameter that nothing depends on makes those that
// are not used templates, of which nothing is left.
template <class Number, int = 0>
struct NumberText;
#define SINTER_NUMBER_TEXT(Number, name)  \
  template <int i>                        \
  struct NumberText<Number, i> {          \
    static constexpr char kText[] = name; \
  };
SINTER_NUMBER_TEXT(bf16, "bf16")
SINTER_NUMBER_TEXT(f16, "f16")
SINTER_NUMBER_TEXT(tf32, "tf32")
SINTER_NUMBER_TEXT(f8e4m3, "e4m3")
SINTER_NUMBER_TEXT(f8e5m2, "e5m2")
SINTER_NUMBER_TEXT(i8, "s8")
SINTER_NUMBER_TEXT(u8, "u8")
#undef SINTER_NUMBER_TEXT
template <class Number_, bool transposed>
struct BlocksText {
  using Number = NumberText<Number_>;
  static constexpr char kOrder[] = "";
};
template <class Number_>
struct BlocksText<Number_, true> {
  using Number = NumberText<Number_>;
  static constexpr char kOrder[] = ".trans";
};
template <int bytes>
struct DepthText {
  static constexpr char kText[] = {bytes == 1 ? '3' : '1', bytes == 1 ? '2' : '6', 0};
};
template <>
struct DepthText<4> {
  static constexpr char kText[] = "8";
};
// Integers have no signs, and only 16 bits a choice of what is fastest. Of a left operand in
// registers k always is, and the instruction does not say so.
enum class LeftMajor { k, mn, registers };
template <bool integers, int bytes, LeftMajor a, Major b>
struct EndText {
  static constexpr char kText[] = ", 1, 1";
};
template <LeftMajor a, Major b>
struct EndText<true, 1, a, b> {
  static constexpr char kText[] = "";
};
template <LeftMajor a, Major b>
struct EndText<false, 2, a, b> {
  static constexpr char kText[] = {',', ' ', '1',
                                   ',', ' ', '1',
                                   ',', ' ', a == LeftMajor::mn ? '1' : '0',
                                   ',', ' ', b == Major::mn ? '1' : '0',
                                   0};
};
template <Major b>
struct EndText<false, 2, LeftMajor::registers, b> {
  static constexpr char kText[] = {
      ',', ' ', '1', ',', ' ', '1', ',', ' ', b == Major::mn ? '1' : '0', 0};
};
template <class Types, LeftMajor a, Major b>
struct TextOf {
  static constexpr int bytes = sizeof(typename Types::A);
  using Depth = DepthText<bytes>;
  using A = NumberText<typename Types::A>;
  using B = NumberText<typename Types::B>;
  using End = EndText<is_same<typename Types::Sum, int>, bytes, a, b>;
};

// ---- the order of products

// So that the compiler neither moves the registers' other uses across this place nor keeps copies.
// Four a statement, since each takes time to compile.
#define SINTER_PIN(kind, at) \
  asm volatile("" : "+" kind(at[0]), "+" kind(at[1]), "+" kind(at[2]), "+" kind(at[3])::"memory")
template <class Sum, int columns>
SINTER_DEVICE void pin(Accumulator<Sum, columns>& sums) {
#ifndef SINTER_OWN_WGMMA
#pragma unroll
  for (int i = 0; i < columns / 2; i += 4)
    if constexpr (is_same<Sum, int>)
      SINTER_PIN("r", (sums.at + i));
    else
      SINTER_PIN("f", (sums.at + i));
#endif
}
template <class Number, int depth>
SINTER_DEVICE void pin(OperandFragment<Number, depth>& a) {
#ifndef SINTER_OWN_WGMMA
#pragma unroll
  for (int i = 0; i < a.steps; ++i) SINTER_PIN("r", a.at[i]);
#endif
}
#undef SINTER_PIN
// Before the first product that uses registers that were written or read otherwise.
template <class... Held>
SINTER_DEVICE void fence(Held&... held) {
  (pin(held), ...);
  hopper::multiply_fence();
}
// Ends a group of products.
SINTER_DEVICE void commit() { hopper::multiply_commit(); }
// f(i) issues what step i of k multiplies, of `steps`: each a group of its own, filled up to
// `groups` by empty ones. A loop has one text of an instruction, each of which takes the assembler
// as long as hundreds of others; products may be in flight across its end where each turn's are a
// group.
template <int steps, int groups = steps, class F>
SINTER_DEVICE void commit_each(const F& f) {
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    f(i);
    commit();
  }
#pragma unroll
  for (int i = steps; i < groups; ++i) commit();
}
// All but the newest `groups` are finished; `held`: what they read and wrote, and is used from
// here.
template <int groups, class... Held>
SINTER_DEVICE void wait(Held&... held) {
  hopper::multiply_wait<groups>();
  (pin(held), ...);
}

}  // namespace wgmma

// 64 rows from `row` on of a tile of numbers of 32 bits, which wgmma reads only along k, as a left
// operand in registers. Lane 4 g + t of warp w has rows 16 w + g and 8 further, of each eight of k
// t and 4 further. (Lanes of neighbouring t share a bank with m fastest: 32 wavefronts a warp.)
template <class Tile>
SINTER_DEVICE void read_rows(OperandFragment<typename Tile::Number, Tile::depth>& a,
                             const unsigned char* tile, int row) {
  static_assert(Tile::element == 4 && Tile::major == Major::mn);
  const int thread = static_cast<int>(threadIdx.x) % 128, k = thread % 4;
  row += thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned char* const at = tile + Tile::place(row + i % 2 * 8, k + i / 2 * 4);
#pragma unroll
    for (int step = 0; step < a.steps; ++step)
      a.at[step][i] = *reinterpret_cast<const unsigned*>(at + step * 8 * Tile::swizzle);
  }
}

// sums = keep * sums + a b, over the k of the tiles. `TileA`, `TileB`: SharedTiles, of which `a`
// and `b` are descriptors at the rows and columns that this warpgroup multiplies.
template <class Shape_, class Types_, class TileA, class TileB>
struct Mma {
  using Shape = Shape_;
  using Types = Types_;
  using Sums = Accumulator<typename Types::Sum, Shape::columns>;
  using Instruction = wgmma::Instruction<Shape::columns, typename Types::Sum>;
  using Text =
      wgmma::TextOf<Types, TileA::major == Major::mn ? wgmma::LeftMajor::mn : wgmma::LeftMajor::k,
                    TileB::major>;
  static_assert(TileA::depth == TileB::depth, "both operands have the same k");
  static_assert(TileA::element == sizeof(typename Types::A) &&
                    TileB::element == sizeof(typename Types::B),
                "tiles hold the numbers that are multiplied");

  static constexpr bool fours_lie_evenly = (TileA::major == Major::mn || TileA::swizzle == 128) &&
                                           (TileB::major == Major::mn || TileB::swizzle == 128);

  // `steps`: of 32 bytes of k, where the rest of the tiles is zeros.
  template <int steps = TileA::steps>
  static SINTER_DEVICE void multiply(Sums& sums, unsigned long long a, unsigned long long b,
                                     bool keep) {
    // Where four steps lie evenly, one statement has them.
    constexpr int at_once = fours_lie_evenly && steps % 4 == 0 ? 4 : 1;
    for_each_number<steps / at_once>([&]<int i>() {
      constexpr int first = i * at_once;
      const unsigned long long from_a = a + TileA::step(first), from_b = b + TileB::step(first);
      if constexpr (at_once == 4)
        Instruction::template run_four<Text, TileA::step(1), TileB::step(1)>(sums.at, from_a,
                                                                             from_b, keep || i > 0);
      else
        Instruction::template run<Text>(sums.at, from_a, from_b, keep || i > 0);
    });
  }
  // To sums that C++ does not see. Four steps a statement.
  template <int steps = TileA::steps, int set>
  static SINTER_DEVICE void multiply(
      NamedAccumulator<typename Types::Sum, Shape::columns, set> sums, unsigned long long a,
      unsigned long long b, bool keep) {
    using Named = wgmma::NamedInstruction<Shape::columns, typename Types::Sum>;
    for_each_number<(steps + 3) / 4>([&]<int i>() {
      constexpr int first = i * 4, now = steps - first < 4 ? steps - first : 4;
      if constexpr (now == 1 || !fours_lie_evenly)
        for_each_number<now>(
            [&]<int j>() { multiply_step(sums, a, b, first + j, keep || first + j > 0); });
      else
        Named::template run_steps<Text, set, TileA::step(1), TileB::step(1), now>(
            a + TileA::step(first), b + TileB::step(first), keep || first > 0);
    });
  }
  // The same for one step. `step`: how far its operands lie from the tiles' starts.
  template <int set>
  static SINTER_DEVICE void multiply_step(
      NamedAccumulator<typename Types::Sum, Shape::columns, set>, unsigned long long a,
      unsigned long long b, int step, bool keep) {
    using Named = wgmma::NamedInstruction<Shape::columns, typename Types::Sum>;
    Named::template run<Text, set>(a + TileA::step(step), b + TileB::step(step), keep);
  }
};

// The left operand in registers. `first`: of its steps of 32 bytes of k, the one that B's tile
// starts at.
template <class Shape_, class Types_, class TileB>
struct Mma<Shape_, Types_, Registers, TileB> {
  using Shape = Shape_;
  using Types = Types_;
  using Sums = Accumulator<typename Types::Sum, Shape::columns>;
  using Instruction = wgmma::Instruction<Shape::columns, typename Types::Sum>;
  using Text = wgmma::TextOf<Types, wgmma::LeftMajor::registers, TileB::major>;
  static_assert(TileB::element == sizeof(typename Types::B),
                "tiles hold the numbers that are multiplied");

  template <int first = 0, int steps = TileB::steps, int depth>
  static SINTER_DEVICE void multiply(Sums& sums, const OperandFragment<typename Types::A, depth>& a,
                                     unsigned long long b, bool keep) {
    static_assert(first + steps <= OperandFragment<typename Types::A, depth>::steps,
                  "B's k lies within A's");
    in_fours<steps>(
        [&]<int step>() {
          Instruction::template run_four<Text, TileB::step(1)>(
              sums.at, a.at + first + step, b + TileB::step(step), keep || step > 0);
        },
        [&]<int step>() {
          Instruction::template run<Text>(sums.at, a.at[first + step], b + TileB::step(step),
                                          keep || step > 0);
        });
  }
  // To sums that C++ does not see: 128 bytes of k. `a` stays as it is until a wait names it.
  template <int set, int depth>
  static SINTER_DEVICE void multiply(NamedAccumulator<typename Types::Sum, Shape::columns, set>,
                                     const OperandFragment<typename Types::A, depth>& a,
                                     unsigned long long b, bool keep) {
    using Named = wgmma::NamedInstruction<Shape::columns, typename Types::Sum>;
    static_assert(TileB::swizzle == 128 && OperandFragment<typename Types::A, depth>::steps == 4);
    Named::template run_held<Text, set, TileB::step(1)>(a.at, b, keep);
  }
  // Where four steps lie evenly, one statement has them: calls four.operator()<step>() for those,
  // one.operator()<step>() for the others.
  template <int steps, class Four, class One>
  static SINTER_DEVICE void in_fours(const Four& four, const One& one) {
    constexpr bool even = TileB::major == Major::mn || TileB::swizzle == 128;
    constexpr int fours = even ? steps / 4 : 0;
    for_each_number<fours>([&]<int i>() { four.template operator()<4 * i>(); });
    for_each_number<steps - 4 * fours>([&]<int i>() { one.template operator()<4 * fours + i>(); });
  }
};

}  // namespace sinter
