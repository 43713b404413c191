// wgmma.mma_async: the functions of sinter/device/core/wgmma_instruction.cuh and wgmma_named.cuh.
// Included by device.hpp.
#pragma once
#define SINTER_OWN_WGMMA

namespace sinter::wgmma {

// The 18 bits of an address that a descriptor holds, within the shared memory of a launch.
inline unsigned whole_address(unsigned bits) {
  const unsigned start = shared_address(engine_memory);
  return start + ((bits - start) & 0x3ffff);
}

// An operand in shared memory, by its descriptor. `mn_fastest`: lines of m or n for every k.
struct SharedOperand {
  unsigned start, leading, stride, swizzle;
  bool mn_fastest;
  int bytes;
  SharedOperand(unsigned long long d, bool across, int size)
      : start(whole_address(static_cast<unsigned>(d & 0x3fff) << 4)),
        leading(static_cast<unsigned>(d >> 16 & 0x3fff) << 4),
        stride(static_cast<unsigned>(d >> 32 & 0x3fff) << 4),
        swizzle(d >> 62 == 1   ? 128
                : d >> 62 == 2 ? 64
                               : 32),
        mn_fastest(across),
        bytes(size) {}
  const char* at(int mn, int k) const {
    const int in_line = static_cast<int>(swizzle) / bytes;
    unsigned a = start;
    if (mn_fastest)
      a += k % 8 * swizzle + k / 8 * stride + mn / in_line * leading + mn % in_line * bytes;
    else
      a += mn % 8 * swizzle + mn / 8 * stride + k * bytes;
    return shared_pointer(emulator::swizzled(a, swizzle));
  }
};

template <class Number>
double number_at(const char* p) {
  Number x;
  std::memcpy(&x, p, sizeof x);
  return Format<Number>::decode(x);
}
struct Tf32Bits {};
template <>
inline double number_at<Tf32Bits>(const char* p) {
  unsigned bits;
  std::memcpy(&bits, p, sizeof bits);
  return __uint_as_float(bits & 0xffffe000u);
}
inline double number_of(const char* type, const char* p) {
  const auto is = [&](const char* name) { return std::strcmp(type, name) == 0; };
  return is("bf16")   ? number_at<bf16>(p)
         : is("f16")  ? number_at<f16>(p)
         : is("tf32") ? number_at<Tf32Bits>(p)
         : is("e4m3") ? number_at<f8e4m3>(p)
         : is("e5m2") ? number_at<f8e5m2>(p)
         : is("s8")   ? number_at<i8>(p)
                      : number_at<u8>(p);
}

// The sum of 32 products of 8-bit floats and what was summed before: each is cut off 13 bits behind
// the first of the largest, see lib/reference/engine_contraction.cpp.
inline double sum_of_bytes(const double (&products)[32], double before) {
  double largest = std::fabs(before);
  for (const double x : products) largest = x != x ? x : std::fmax(largest, std::fabs(x));
  double sum = before;
  if (largest == 0 || !std::isfinite(largest)) {
    for (const double x : products) sum += x;
    return sum;
  }
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
  sum = std::trunc(before / unit);
  for (const double x : products) sum += std::trunc(x / unit);
  return sum * unit;
}

// One product as a thread carries it out, when the program has waited for it: sums of exact
// products in double, rounded once. engine/fragment.cuh says what a thread holds. The left
// operand's registers are those of the quad's lanes at that time.
template <class Sum, int columns, class Text>
struct Product {
  int lane, warp;
  Sum* d;
  const unsigned* a_of_quad[4];  // or null

  static void run(void* self, std::uint64_t a, std::uint64_t b, int keep) {
    const auto* p = static_cast<Product*>(self);
    p->add(a, b, keep != 0);
    delete p;
  }
  void add(std::uint64_t first, std::uint64_t second, bool keep) const {
    const int depth = std::atoi(Text::Depth::kText), bytes = 32 / depth;
    const char* end = Text::End::kText;  // ", 1, 1[, major of a], major of b"
    const std::size_t length = std::strlen(end);
    const bool in_registers = a_of_quad[0] != nullptr;
    const SharedOperand a(first, bytes == 2 && !in_registers && end[length - 4] == '1', bytes),
        b(second, bytes == 2 && end[length - 1] == '1', bytes);
    double rows[2][32];
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < depth; ++k) {
        const char* p = a.at(warp * 16 + lane / 4 + 8 * half, k);
        if (in_registers) {
          const int byte = k * bytes;
          p = reinterpret_cast<const char*>(a_of_quad[byte / 4 % 4] + byte / 16 * 2 + half) +
              byte % 4;
        }
        rows[half][k] = number_of(Text::A::kText, p);
      }
    for (int i = 0; i < columns / 2; i += 4)
      for (int j = 0; j < 2; ++j) {
        double products[2][32] = {}, sums[2] = {};
        for (int k = 0; k < depth; ++k) {
          const double x = number_of(Text::B::kText, b.at(i * 2 + lane % 4 * 2 + j, k));
          for (int half = 0; half < 2; ++half) sums[half] += products[half][k] = rows[half][k] * x;
        }
        for (int half = 0; half < 2; ++half) {
          Sum& sum = d[i + 2 * half + j];
          const double before = keep ? static_cast<double>(sum) : 0;
          sum = static_cast<Sum>(Text::A::kText[0] == 'e' ? sum_of_bytes(products[half], before)
                                                          : before + sums[half]);
        }
      }
  }
  static void start(Sum* d, const unsigned* const (&a_of_quad)[4], std::uint64_t a, std::uint64_t b,
                    bool keep) {
    const int thread = static_cast<int>(threadIdx.x);
    machine->multiply({&Product::run,
                       new Product{thread % 32,
                                   thread / 32 % 4,
                                   d,
                                   {a_of_quad[0], a_of_quad[1], a_of_quad[2], a_of_quad[3]}},
                       a, b, keep});
  }
};

template <int columns, class Sum>
struct HostInstruction {
  template <class Text>
  static void run(Sum (&d)[columns / 2], unsigned long long a, unsigned long long b, bool keep) {
    Product<Sum, columns, Text>::start(d, {}, a, b, keep);
  }
  template <class Text, int step_a, int step_b>
  static void run_four(Sum (&d)[columns / 2], unsigned long long a, unsigned long long b,
                       bool keep) {
    for (int i = 0; i < 4; ++i) run<Text>(d, a + i * step_a, b + i * step_b, keep || i > 0);
  }
  template <class Text>
  static void run(Sum (&d)[columns / 2], const unsigned (&a)[4], unsigned long long b, bool keep) {
    const unsigned* of_quad[4];
    const unsigned* mine = a;
    look_around(mine, [&](const auto& of) {
      for (unsigned i = 0; i < 4; ++i) of_quad[i] = of(threadIdx.x % emulator::kWarp / 4 * 4 + i);
      return 0;
    });
    Product<Sum, columns, Text>::start(d, of_quad, 0, b, keep);
  }
  template <class Text, int step_b>
  static void run_four(Sum (&d)[columns / 2], const unsigned (*a)[4], unsigned long long b,
                       bool keep) {
    for (int i = 0; i < 4; ++i) run<Text>(d, a[i], b + i * step_b, keep || i > 0);
  }
};

// Registers that kernels name themselves. They start with any bits.
inline constexpr int kMostThreads = 512;  // of a CTA that multiplies
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
  template <class Text, int set, int step_a, int step_b>
  static void run_four(unsigned long long a, unsigned long long b, bool keep) {
    HostInstruction<columns, Sum>::template run_four<Text, step_a, step_b>(sums<set>(), a, b, keep);
  }
  template <class Text, int set, int step_b>
  static void run_four_held(const unsigned (&a)[4][4], unsigned long long b, bool keep) {
    HostInstruction<columns, Sum>::template run_four<Text, step_b>(sums<set>(), a, b, keep);
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
  template <int set, int first, int fours, int below>
  static void store(unsigned to, const int* at) {
    for (int i = 0; i < fours; ++i) {
      const Sum* four = &sums<set>()[first + 4 * i];
      std::memcpy(shared_pointer(to + 4 * at[i]), four, 8);
      std::memcpy(shared_pointer(to + 4 * at[i] + below), four + 2, 8);
    }
  }
};

}  // namespace sinter::wgmma
