// wgmma.mma_async: the functions of sinter/device/core/wgmma_instruction.cuh, wgmma_named.cuh and
// wgmma_held.cuh. Included by device.hpp.
#pragma once
#define SINTER_OWN_WGMMA

namespace sinter::wgmma {

constexpr bool same_text(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}
constexpr emulator::Number number_of(const char* type) {
  using emulator::Number;
  return same_text(type, "bf16")   ? Number::bf16
         : same_text(type, "f16")  ? Number::f16
         : same_text(type, "tf32") ? Number::tf32
         : same_text(type, "e4m3") ? Number::e4m3
         : same_text(type, "e5m2") ? Number::e5m2
         : same_text(type, "s8")   ? Number::s8
                                   : Number::u8;
}

template <class Text, class Sum>
emulator::Product product_of(int columns, Sum* d, unsigned long long a, unsigned long long b,
                             bool keep) {
  constexpr const auto& text = Text::Depth::kText;  // clang++ 14 needs its type first
  constexpr char depth = text[0];                   // of 8, 16, 32
  constexpr const auto& end = Text::End::kText;     // ", 1, 1[, major of a], major of b"
  constexpr int length = sizeof end - 1, bytes = depth == '8' ? 4 : depth == '1' ? 2 : 1;
  emulator::Product p{};
  constexpr emulator::Number a_type = number_of(Text::A::kText), b_type = number_of(Text::B::kText);
  p.type_a = a_type;
  p.type_b = b_type;
  if constexpr (bytes == 2) {
    p.a_across = end[length - 4] == '1';
    p.b_across = end[length - 1] == '1';
  }
  p.integers = is_same<Sum, int>;
  p.keep = keep;
  p.bytes = bytes;
  p.columns = columns;
  p.warp = static_cast<int>(threadIdx.x / emulator::kWarp % 4);
  p.d = d;
  p.a = a;
  p.b = b;
  p.anchor = anchor;
  p.memory = shared_address(engine_memory);
  return p;
}

template <int columns, class Sum>
struct HostInstruction {
  template <class Text>
  static void run(Sum (&d)[columns / 2], unsigned long long a, unsigned long long b, bool keep) {
    machine->multiply(product_of<Text>(columns, d, a, b, keep));
  }
  template <class Text, int step_a, int step_b>
  static void run_four(Sum (&d)[columns / 2], unsigned long long a, unsigned long long b,
                       bool keep) {
    for (int i = 0; i < 4; ++i) run<Text>(d, a + i * step_a, b + i * step_b, keep || i > 0);
  }
  template <class Text>
  static void run(Sum (&d)[columns / 2], const unsigned (&a)[4], unsigned long long b, bool keep) {
    auto p = product_of<Text>(columns, d, 0, b, keep);
    p.a_registers = a;
    machine->multiply(p);
  }
  template <class Text, int step_b>
  static void run_four(Sum (&d)[columns / 2], const unsigned (*a)[4], unsigned long long b,
                       bool keep) {
    for (int i = 0; i < 4; ++i) run<Text>(d, a[i], b + i * step_b, keep || i > 0);
  }
};

// Registers that kernels name themselves. They start with any bits.
inline constexpr int kMostThreads = 640;  // of a CTA that multiplies
template <int set, class Sum, int count>
Sum (&named_registers())[count] {
  thread_local Sum sums[kMostThreads][count];
  return sums[threadIdx.x];
}
template <int columns, class Sum>
struct HostNamedInstruction {
  static constexpr int count = columns / 2;
  template <int set>
  static Sum (&sums())[count] {
    return named_registers<set, Sum, count>();
  }
  template <int set>
  static void declare() {
    std::memset(sums<set>(), 0xff, sizeof(Sum) * count);
  }
  template <class Text, int set>
  static void run(unsigned long long a, unsigned long long b, bool keep) {
    HostInstruction<columns, Sum>::template run<Text>(sums<set>(), a, b, keep);
  }
  template <class Text, int set, int step_a, int step_b, int steps>
  static void run_steps(unsigned long long a, unsigned long long b, bool keep) {
    for (int i = 0; i < steps; ++i)
      HostInstruction<columns, Sum>::template run<Text>(sums<set>(), a + i * step_a, b + i * step_b,
                                                        keep || i > 0);
  }
  template <class Text, int set, int step_b>
  static void run_held(const unsigned (*a)[4], unsigned long long b, bool keep) {
    for (int i = 0; i < 4; ++i)
      HostInstruction<columns, Sum>::template run<Text>(sums<set>(), a[i], b + i * step_b,
                                                        keep || i > 0);
  }
  template <int set>
  static void clear() {
    for (Sum& sum : sums<set>()) sum = 0;
  }
  template <int set, int other>
  static void add() {
    for (int i = 0; i < count; ++i) sums<set>()[i] += sums<other>()[i];
  }
  template <int set, int other, int first>
  static void add_scaled(float f0, float f1, float f2, float f3) {
    const float factors[] = {f0, f1, f2, f3};
    for (int i = 0; i < 4; ++i) sums<set>()[first + i] += sums<other>()[first + i] * factors[i];
  }
  template <int set, int first, int fours>
  static void get(float* to) {
    std::memcpy(to, &sums<set>()[first], fours * 4 * sizeof *to);
  }
  template <class Text, int set, int first, int count>
  static void put_blocks(const unsigned* lines) {
    const auto rounded = [](float x) -> unsigned {
      return Text::Number::kText[0] == 'b' ? bf16::encode(x).bits : f16::encode(x).bits;
    };
    for (int i = 0; i < count; ++i) {
      unsigned blocks[4];
      for (int j = 0; j < 4; ++j) {
        const Sum* pair = &sums<set>()[first + i * 8 + j * 2];
        blocks[j] = rounded(static_cast<float>(pair[0])) | rounded(static_cast<float>(pair[1]))
                                                               << 16;
      }
      if (Text::kOrder[0])
        hopper::put_blocks_transposed(lines[i], blocks);
      else
        hopper::put_blocks(lines[i], blocks);
    }
  }
  template <int set>
  static float total() {
    float total = 0;
    for (Sum sum : sums<set>()) total += static_cast<float>(sum);
    return total;
  }
  template <int set>
  static void save(Sum* to) {
    std::memcpy(to, sums<set>(), sizeof sums<set>());
  }
  template <int set>
  static void restore(const Sum* from) {
    std::memcpy(sums<set>(), from, sizeof sums<set>());
  }
  template <int set, int first, int fours, int below>
  static void store(unsigned to, const int* at) {
    for (int i = 0; i < fours; ++i) {
      const Sum* four = &sums<set>()[first + 4 * i];
      std::memcpy(shared_pointer(to + 4 * at[i]), four, 8);
      std::memcpy(shared_pointer(to + 4 * at[i] + below), four + 2, 8);
    }
  }
};

// The same with the left operand in registers.
template <int columns>
struct HostHeldInstruction : HostNamedInstruction<columns, float> {
  using Named = HostNamedInstruction<columns, float>;
  template <int set>
  static void scale(float f0, float f1) {
    for (int i = 0; i < columns / 2; ++i) Named::template sums<set>()[i] *= i / 2 % 2 ? f1 : f0;
  }
  template <int set>
  static void largest(float& m0, float& m1) {
    for (int i = 0; i < columns / 2; ++i) {
      const float sum = Named::template sums<set>()[i];
      float& most = i / 2 % 2 ? m1 : m0;
      if (sum > most || sum != sum) most = sum;
    }
  }
  template <class Text, int set>
  static void run(const unsigned (&a)[4], unsigned long long b) {
    HostInstruction<columns, float>::template run<Text>(Named::template sums<set>(), a, b, true);
  }
  template <class Text, int set, int step_b>
  static void run_four(const unsigned (*a)[4], unsigned long long b) {
    for (int i = 0; i < 4; ++i) run<Text, set>(a[i], b + i * step_b);
  }
};

}  // namespace sinter::wgmma
