// wgmma.mma_async with the results in registers of PTX that C++ does not see, as wgmma_named.cuh
// has them and for its reason, and the left operand in registers: sums of attention, which are
// scaled by rows and read once.
//
//   SINTER_WGMMA_HELD(128)    outside of all namespaces: 128 columns, sums of f32
//
// gives sinter::wgmma::HeldInstruction<128>.
#pragma once
#include "sinter/device/core/wgmma_named.cuh"

namespace sinter::wgmma {

template <int columns>
struct HeldInstruction;

}  // namespace sinter::wgmma

#ifdef SINTER_OWN_WGMMA
#define SINTER_WGMMA_HELD(columns) \
  template <>                      \
  struct sinter::wgmma::HeldInstruction<columns> : sinter::wgmma::HostHeldInstruction<columns> {};
#else

namespace sinter::wgmma {

// Of `fours` times four registers of a set, from the `first` on, a multiple of 4, the first two of
// each four times f0, the others times f1; two fours a statement.
template <int set, int first, int fours>
SINTER_DEVICE void scale_named(float f0, float f1) {
#define SINTER_SCALED(j, factor, four) \
  "mul.f32 s%0_" four "_" j ", s%0_" four "_" j ", " factor "; "
#define SINTER_FOUR_SCALED(four) \
  SINTER_SCALED("0", "%1", four) \
  SINTER_SCALED("1", "%1", four) SINTER_SCALED("2", "%2", four) SINTER_SCALED("3", "%2", four)
  static_assert(fours % 2 == 0 && first % 4 == 0);
  asm volatile(SINTER_FOUR_SCALED("%3") SINTER_FOUR_SCALED("%4")::"n"(set), "f"(f0), "f"(f1),
               "n"(first / 4), "n"(first / 4 + 1));
#undef SINTER_FOUR_SCALED
#undef SINTER_SCALED
  if constexpr (fours > 2) scale_named<set, first + 8, fours - 2>(f0, f1);
}

// The largest of m0 and the first two of each of `fours` times four registers, of m1 and the
// others; NaN where one of them is; four fours a statement.
template <int set, int first, int fours>
SINTER_DEVICE void largest_named(float& m0, float& m1) {
#define SINTER_LARGER(m, j, four) "max.NaN.f32 " m ", " m ", s%2_" four "_" j "; "
#define SINTER_FOUR_LARGER(four) \
  SINTER_LARGER("%0", "0", four) \
  SINTER_LARGER("%1", "2", four) SINTER_LARGER("%0", "1", four) SINTER_LARGER("%1", "3", four)
  static_assert(first % 4 == 0);
  constexpr int now = fours >= 4 ? 4 : 1;
  if constexpr (now == 4)
    asm volatile(SINTER_FOUR_LARGER("%3") SINTER_FOUR_LARGER("%4") SINTER_FOUR_LARGER("%5")
                     SINTER_FOUR_LARGER("%6")
                 : "+f"(m0), "+f"(m1)
                 : "n"(set), "n"(first / 4), "n"(first / 4 + 1), "n"(first / 4 + 2),
                   "n"(first / 4 + 3));
  else
    asm volatile(SINTER_FOUR_LARGER("%3") : "+f"(m0), "+f"(m1) : "n"(set), "n"(first / 4));
#undef SINTER_FOUR_LARGER
#undef SINTER_LARGER
  if constexpr (fours > now) largest_named<set, first + 4 * now, fours - now>(m0, m1);
}

}  // namespace sinter::wgmma

#define SINTER_WGMMA_HELD(columns)                                     \
  SINTER_CALL(SINTER_WGMMA_HELD_OF, columns,                           \
              SINTER_EACH_##columns(SINTER_NAMED_FIRST, SINTER_NAMED), \
              SINTER_EACH_##columns(SINTER_CLEAR_f32, SINTER_CLEAR_f32))
#define SINTER_WGMMA_HELD_OF(columns, list, clear_all)                                          \
  template <>                                                                                   \
  struct sinter::wgmma::HeldInstruction<columns> : sinter::wgmma::NamedRegisters {              \
    /* To be called once a kernel: a register is declared once in a function. */                \
    template <int set>                                                                          \
    static SINTER_DEVICE void declare() {                                                       \
      asm volatile(".reg .f32 " list ";" ::"n"(set));                                           \
    }                                                                                           \
    template <int set>                                                                          \
    static SINTER_DEVICE void clear() {                                                         \
      asm volatile(clear_all ::"n"(set));                                                       \
    }                                                                                           \
    template <int set>                                                                          \
    static SINTER_DEVICE void scale(float f0, float f1) {                                       \
      sinter::wgmma::scale_named<set, 0, columns / 8>(f0, f1);                                  \
    }                                                                                           \
    template <int set>                                                                          \
    static SINTER_DEVICE void largest(float& m0, float& m1) {                                   \
      sinter::wgmma::largest_named<set, 0, columns / 8>(m0, m1);                                \
    }                                                                                           \
    /* Adds what 32 bytes of k give. */                                                         \
    template <class Text, int set>                                                              \
    static SINTER_DEVICE void run(const unsigned (&a)[4], unsigned long long b) {               \
      asm volatile("{.reg .pred more; setp.eq.b32 more, 0, 0; " SINTER_ONE_WGMMA(               \
                       columns, f32, list, SINTER_HELD("%1", "%2", "%3", "%4"), "%5", "more",   \
                       "%6", "%7", "%8", "%9") "}" ::"n"(set),                                  \
                   "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), SINTER_WGMMA_STRINGS);   \
    }                                                                                           \
    /* The same for 128 bytes; `b` lies `step_b` further each time. */                          \
    template <class Text, int set, int step_b>                                                  \
    static SINTER_DEVICE void run_four(const unsigned (*a)[4], unsigned long long b) {          \
      asm volatile(SINTER_FOUR_HELD(columns, f32, list, SINTER_HELD("%1", "%2", "%3", "%4"),    \
                                    SINTER_HELD("%5", "%6", "%7", "%8"),                        \
                                    SINTER_HELD("%9", "%10", "%11", "%12"),                     \
                                    SINTER_HELD("%13", "%14", "%15", "%16"), "%17", "1", "%18", \
                                    "%19", "%20", "%21", "%22")::"n"(set),                      \
                   SINTER_FOUR_HELD_OPERANDS(a), "l"(b), "n"(step_b), SINTER_WGMMA_STRINGS);    \
    }                                                                                           \
  };

#endif
