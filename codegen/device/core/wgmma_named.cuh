// wgmma.mma_async with the results in registers of PTX that have names of their own: s2_0_0 to
// s2_0_3, s2_1_0, ... are those of set 2, in fours. C++ never sees them. Following some hundred
// values through a kernel takes the compiler a fifth of its time (n = 256: 432 instead of 338 ms; n
// = 96: 241 instead of 210), so kernels that only sum and store use this form; those that compute
// with the sums use wgmma_instruction.cuh. The statements that name registers stay in their order:
// all are volatile.
//
//   SINTER_WGMMA_NAMED(192, f32)    outside of all namespaces: 192 columns, sums of type float
//
// gives sinter::wgmma::NamedInstruction<192, float>.
#pragma once
#include "sinter/device/core/wgmma_instruction.cuh"

namespace sinter::wgmma {

template <int columns, class Sum>
struct NamedInstruction;

}  // namespace sinter::wgmma

#ifdef SINTER_OWN_WGMMA
#define SINTER_WGMMA_NAMED(columns, sum)                                \
  template <>                                                           \
  struct sinter::wgmma::NamedInstruction<columns, SINTER_TYPE_OF_##sum> \
      : sinter::wgmma::HostNamedInstruction<columns, SINTER_TYPE_OF_##sum> {};
#else

// Text for one register of set %0, or of sets %0 and %1.
#define SINTER_NAMED_FIRST(t, i, q, j) "s%0_" #q "_" #j
#define SINTER_NAMED(t, i, q, j) ", s%0_" #q "_" #j
#define SINTER_CLEAR_f32(t, i, q, j) "mov.f32 s%0_" #q "_" #j ", 0f00000000; "
#define SINTER_CLEAR_s32(t, i, q, j) "mov.s32 s%0_" #q "_" #j ", 0; "
#define SINTER_TOTAL(t, i, q, j) "add.f32 total" #i ", total" #i ", s%1_" #q "_" #j "; "
#define SINTER_TOTAL_BEGIN                                                                      \
  "{ .reg .f32 total<10>; mov.f32 total0, 0f00000000; mov.f32 total1, total0; mov.f32 total2, " \
  "total0; mov.f32 total3, total0; mov.f32 total4, total0; mov.f32 total5, total0; mov.f32 "    \
  "total6, total0; mov.f32 total7, total0; mov.f32 total8, total0; mov.f32 total9, total0; "
#define SINTER_TOTAL_END                                                                         \
  "add.f32 total0, total0, total5; add.f32 total1, total1, total6; add.f32 total2, total2, "     \
  "total7; add.f32 total3, total3, total8; add.f32 total4, total4, total9; add.f32 total0, "     \
  "total0, total1; add.f32 total2, total2, total3; add.f32 total0, total0, total4; add.f32 %0, " \
  "total0, total2; }"
#define SINTER_SAVE(t, i, q, j) "st.b32 [%1 + (" #t " * 10 + " #i ") * 4], s%0_" #q "_" #j "; "
#define SINTER_RESTORE(t, i, q, j) "ld.b32 s%0_" #q "_" #j ", [%1 + (" #t " * 10 + " #i ") * 4]; "
#define SINTER_ADD_f32(t, i, q, j) \
  "add.f32 s%0_" #q "_" #j ", s%0_" #q "_" #j ", s%1_" #q "_" #j "; "
#define SINTER_ADD_s32(t, i, q, j) \
  "add.s32 s%0_" #q "_" #j ", s%0_" #q "_" #j ", s%1_" #q "_" #j "; "

namespace sinter::wgmma {

template <bool runs>
struct GuardText {
  static constexpr char kText[] = "@none ";
};
template <>
struct GuardText<true> {
  static constexpr char kText[] = "";
};

struct NamedRegisters {
  // To four registers from the `first` on, a multiple of 4, adds the other set's times a factor
  // each.
  template <int set, int other, int first>
  static SINTER_DEVICE void add_scaled(float f0, float f1, float f2, float f3) {
#define SINTER_ADD_SCALED(j, factor) \
  "fma.rn.f32 s%0_%2_" j ", s%1_%2_" j ", " factor ", s%0_%2_" j "; "
    asm volatile(SINTER_ADD_SCALED("0", "%3") SINTER_ADD_SCALED("1", "%4")
                     SINTER_ADD_SCALED("2", "%5") SINTER_ADD_SCALED("3", "%6")::"n"(set),
                 "n"(other), "n"(first / 4), "f"(f0), "f"(f1), "f"(f2), "f"(f3));
#undef SINTER_ADD_SCALED
  }
  // `fours` times four registers from the `first` on, a multiple of 4, as values; four fours a
  // statement, as store() has them.
  template <int set, int first, int fours>
  static SINTER_DEVICE void get(float* to) {
#define SINTER_GET_FOUR(o0, o1, o2, o3, set, four)                                        \
  "mov.b32 " o0 ", s" set "_" four "_0; mov.b32 " o1 ", s" set "_" four "_1; mov.b32 " o2 \
  ", s" set "_" four "_2; mov.b32 " o3 ", s" set "_" four "_3; "
    constexpr int now = fours >= 4 ? 4 : 1, four = first / 4;
    if constexpr (now == 4)
      asm volatile(SINTER_GET_FOUR("%0", "%1", "%2", "%3", "%16", "%17")
                       SINTER_GET_FOUR("%4", "%5", "%6", "%7", "%16", "%18")
                           SINTER_GET_FOUR("%8", "%9", "%10", "%11", "%16", "%19")
                               SINTER_GET_FOUR("%12", "%13", "%14", "%15", "%16", "%20")
                   : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]), "=f"(to[4]), "=f"(to[5]),
                     "=f"(to[6]), "=f"(to[7]), "=f"(to[8]), "=f"(to[9]), "=f"(to[10]), "=f"(to[11]),
                     "=f"(to[12]), "=f"(to[13]), "=f"(to[14]), "=f"(to[15])
                   : "n"(set), "n"(four), "n"(four + 1), "n"(four + 2), "n"(four + 3));
    else
      asm volatile(SINTER_GET_FOUR("%0", "%1", "%2", "%3", "%4", "%5")
                   : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                   : "n"(set), "n"(four));
#undef SINTER_GET_FOUR
    if constexpr (fours > now) get<set, first + 4 * now, fours - now>(to + 4 * now);
  }
  // The sums of sixteen columns, eight registers from the `first` on, a multiple of 4, rounded to
  // 16 bits, to the lines of shared memory that the lanes name (hopper::put_blocks); of `count`
  // times sixteen columns, four times a statement. `Text`: the type's name, ".trans" or nothing.
  template <class Text, int set, int first, int count>
  static SINTER_DEVICE void put_blocks(const unsigned* lines) {
#define SINTER_ROUNDED(to, four, low, high) \
  "cvt.rn.%1x2.f32 " to ", s%0_" four "_" high ", s%0_" four "_" low "; "
#define SINTER_PUT_SIXTEEN(line, four0, four1) \
  SINTER_ROUNDED("b0", four0, "0", "1")        \
  SINTER_ROUNDED("b1", four0, "2", "3")        \
  SINTER_ROUNDED("b2", four1, "0", "1")        \
  SINTER_ROUNDED("b3", four1, "2", "3")        \
  "stmatrix.sync.aligned.m8n8.x4%2.shared.b16 [" line "], {b0, b1, b2, b3}; "
#define SINTER_SIXTEEN(i) "r"(lines[i]), "n"(first / 4 + 2 * i), "n"(first / 4 + 2 * i + 1)
    constexpr int now = count >= 4 ? 4 : 1;
    if constexpr (now == 4)
      asm volatile("{.reg .b32 b0, b1, b2, b3; " SINTER_PUT_SIXTEEN("%3", "%4", "%5")
                       SINTER_PUT_SIXTEEN("%6", "%7", "%8") SINTER_PUT_SIXTEEN("%9", "%10", "%11")
                           SINTER_PUT_SIXTEEN("%12", "%13", "%14") "}" ::"n"(set),
                   "C"(Text::Number::kText), "C"(Text::kOrder), SINTER_SIXTEEN(0),
                   SINTER_SIXTEEN(1), SINTER_SIXTEEN(2), SINTER_SIXTEEN(3)
                   : "memory");
    else
      asm volatile(
          "{.reg .b32 b0, b1, b2, b3; " SINTER_PUT_SIXTEEN("%3", "%4", "%5") "}" ::"n"(set),
          "C"(Text::Number::kText), "C"(Text::kOrder), SINTER_SIXTEEN(0)
          : "memory");
#undef SINTER_SIXTEEN
#undef SINTER_PUT_SIXTEEN
#undef SINTER_ROUNDED
    if constexpr (count > now) put_blocks<Text, set, first + 8 * now, count - now>(lines + now);
  }
  // Stores `fours` times four registers, from the `first` on: of each four, two at `to` + 4 at[i]
  // and two `below` bytes further. One statement stores four fours, since each function and each
  // statement takes the compiler time.
  template <int set, int first, int fours, int below>
  static SINTER_DEVICE void store(unsigned to, const int* at) {
#define SINTER_STORE_FOUR(to, four)                                                    \
  "st.shared.v2.b32 [" to "], {s%0_" four "_0, s%0_" four "_1}; st.shared.v2.b32 [" to \
  " + %1], "                                                                           \
  "{s%0_" four "_2, s%0_" four "_3}; "
#define SINTER_OF_FOUR(i) "r"(to + 4 * at[i]), "n"(first / 4 + i)
    constexpr int now = fours >= 4 ? 4 : 1;
    if constexpr (now == 4)
      asm volatile(SINTER_STORE_FOUR("%2", "%3") SINTER_STORE_FOUR("%4", "%5")
                       SINTER_STORE_FOUR("%6", "%7") SINTER_STORE_FOUR("%8", "%9")::"n"(set),
                   "n"(below), SINTER_OF_FOUR(0), SINTER_OF_FOUR(1), SINTER_OF_FOUR(2),
                   SINTER_OF_FOUR(3)
                   : "memory");
    else
      asm volatile(SINTER_STORE_FOUR("%2", "%3")::"n"(set), "n"(below), SINTER_OF_FOUR(0)
                   : "memory");
#undef SINTER_OF_FOUR
#undef SINTER_STORE_FOUR
    if constexpr (fours > now) store<set, first + 4 * now, fours - now, below>(to, at + now);
  }
};

}  // namespace sinter::wgmma

#define SINTER_WGMMA_NAMED(columns, sum)                                     \
  SINTER_CALL(SINTER_WGMMA_NAMED_OF, columns, sum, SINTER_TYPE_OF_##sum,     \
              SINTER_EACH_##columns(SINTER_NAMED_FIRST, SINTER_NAMED),       \
              SINTER_EACH_##columns(SINTER_CLEAR_##sum, SINTER_CLEAR_##sum), \
              SINTER_EACH_##columns(SINTER_ADD_##sum, SINTER_ADD_##sum),     \
              SINTER_EACH_##columns(SINTER_TOTAL, SINTER_TOTAL),             \
              SINTER_EACH_##columns(SINTER_SAVE, SINTER_SAVE),               \
              SINTER_EACH_##columns(SINTER_RESTORE, SINTER_RESTORE))
#define SINTER_WGMMA_NAMED_OF(columns, sum, Sum, list, clear_all, add_all, total_all, save_all,    \
                              restore_all)                                                         \
  template <>                                                                                      \
  struct sinter::wgmma::NamedInstruction<columns, Sum> : sinter::wgmma::NamedRegisters {           \
    /* To be called once a kernel: a register is declared once in a function. */                   \
    template <int set>                                                                             \
    static SINTER_DEVICE void declare() {                                                          \
      asm volatile(".reg ." #sum " " list ";" ::"n"(set));                                         \
    }                                                                                              \
    /* For 32 bytes of k. */                                                                       \
    template <class Text, int set>                                                                 \
    static SINTER_DEVICE void run(unsigned long long a, unsigned long long b, bool keep) {         \
      asm volatile(                                                                                \
          "{.reg .pred keep; setp.ne.b32 keep, %3, 0; " SINTER_ONE_WGMMA(                          \
              columns, sum, list, "%1", "%2", "keep", "%4", "%5", "%6", "%7") "}" ::"n"(set),      \
          "l"(a), "l"(b), "r"(static_cast<int>(keep)), SINTER_WGMMA_STRINGS);                      \
    }                                                                                              \
    /* For `steps` times 32 bytes of k, at most 4. Operands lie `step_a` and `step_b` further each \
       time, in units of 16 bytes. */                                                              \
    template <class Text, int set, int step_a, int step_b, int steps>                              \
    static SINTER_DEVICE void run_steps(unsigned long long a, unsigned long long b, bool keep) {   \
      asm volatile(SINTER_FOUR_WGMMA(columns, sum, list, "%1", "%2", "%3", "%4", "%5", "%6", "%7", \
                                     "%8", "%9", "%10", "%11", "%12")::"n"(set),                   \
                   "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(step_a), "n"(step_b),          \
                   "C"(GuardText<(steps > 1)>::kText), "C"(GuardText<(steps > 2)>::kText),         \
                   "C"(GuardText<(steps > 3)>::kText), SINTER_WGMMA_STRINGS);                      \
    }                                                                                              \
    /* For 128 bytes of k of a left operand in registers. */                                       \
    template <class Text, int set, int step_b>                                                     \
    static SINTER_DEVICE void run_held(const unsigned (*a)[4], unsigned long long b, bool keep) {  \
      asm volatile(SINTER_FOUR_HELD(columns, sum, list, SINTER_HELD("%1", "%2", "%3", "%4"),       \
                                    SINTER_HELD("%5", "%6", "%7", "%8"),                           \
                                    SINTER_HELD("%9", "%10", "%11", "%12"),                        \
                                    SINTER_HELD("%13", "%14", "%15", "%16"), "%17", "%18", "%19",  \
                                    "%20", "%21", "%22", "%23")::"n"(set),                         \
                   SINTER_FOUR_HELD_OPERANDS(a), "l"(b), "r"(static_cast<int>(keep)), "n"(step_b), \
                   SINTER_WGMMA_STRINGS);                                                          \
    }                                                                                              \
    template <int set>                                                                             \
    static SINTER_DEVICE void clear() {                                                            \
      asm volatile(clear_all ::"n"(set));                                                          \
    }                                                                                              \
    template <int set, int other>                                                                  \
    static SINTER_DEVICE void add() {                                                              \
      asm volatile(add_all ::"n"(set), "n"(other));                                                \
    }                                                                                              \
    /* Of registers of f32. Up to ten chains of additions: one is a long wait. */                  \
    template <int set>                                                                             \
    static SINTER_DEVICE float total() {                                                           \
      float total;                                                                                 \
      asm volatile(SINTER_TOTAL_BEGIN total_all SINTER_TOTAL_END : "=f"(total) : "n"(set));        \
      return total;                                                                                \
    }                                                                                              \
    /* To and from memory, in their order. */                                                      \
    template <int set>                                                                             \
    static SINTER_DEVICE void save(float* to) {                                                    \
      asm volatile(save_all ::"n"(set), "l"(to) : "memory");                                       \
    }                                                                                              \
    template <int set>                                                                             \
    static SINTER_DEVICE void restore(const float* from) {                                         \
      asm volatile(restore_all ::"n"(set), "l"(from) : "memory");                                  \
    }                                                                                              \
  };

#endif
