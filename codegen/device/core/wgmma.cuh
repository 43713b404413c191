// Warpgroup matrix multiplication: sums = keep * sums + a b for 64 rows and a number of columns,
// operands by their descriptors. The generated file says which numbers are multiplied and how the
// operands lie:
//
//   #define SINTER_MULTIPLY "n192k16.f32.bf16.bf16"  columns, k, types of the sums, of a and of b
//   #define SINTER_MULTIPLY_END ", 1, 1, 0, 0"       of floats, their signs; of 16 bits, 1 where
//                                                    an operand's k is not fastest
//   #define SINTER_SUM_COUNT 96                      that a thread holds: half the columns
//   #define SINTER_SUM_TYPE f32                      or s32
//
// Sums are registers with names of their own: s2_0_0 to s2_0_15, s2_1_0, ... are those of set 2.
// C++ never sees them: to follow some hundred values through a kernel took the compiler a fifth of
// its time. The statements that name them stay in their order, since all are volatile.
#pragma once
#include "sinter/device/core/device.cuh"

#ifdef SINTER_OWN_WGMMA
// The host's are arrays, thread_sums<set, type, count>(). It also defines multiply_as, forget and
// store_shared.
namespace sinter::hopper {

struct SumTypes {
  using f32 = float;
  using s32 = int;
};
template <int set>
SINTER_DEVICE auto& sums() {
  return thread_sums<set, SumTypes::SINTER_SUM_TYPE, SINTER_SUM_COUNT>();
}
template <int set>
SINTER_DEVICE void declare_sums() {
  forget(sums<set>());
}
template <int set, int step_a, int step_b>
SINTER_DEVICE void multiply(unsigned long long a, unsigned long long b, bool keep) {
  multiply_as<step_a, step_b>(SINTER_MULTIPLY SINTER_MULTIPLY_END, sums<set>(), a, b, keep);
}
template <int set>
SINTER_DEVICE void clear_sums() {
  for (auto& sum : sums<set>()) sum = 0;
}
template <int set, int other>
SINTER_DEVICE void add_sums() {
  for (int i = 0; i < SINTER_SUM_COUNT; ++i) sums<set>()[i] += sums<other>()[i];
}
template <int set, int other, int first>
SINTER_DEVICE void add_scaled(float f0, float f1, float f2, float f3) {
  const float factors[] = {f0, f1, f2, f3};
  for (int i = 0; i < 4; ++i)
    sums<set>()[first + i] += sums<other>()[first + i] * factors[i];
}
template <int set, int first, int below>
SINTER_DEVICE void store_sums(unsigned to) {
  store_shared(to, &sums<set>()[first], 8);
  store_shared(to + below, &sums<set>()[first + 2], 8);
}

}  // namespace sinter::hopper
#else
namespace sinter::hopper {

// Writes M(group, place, ...) for all sums, with `c` between them.
#define SINTER_FOUR(M, c, g, ...)             \
  M(g, 0, __VA_ARGS__) c M(g, 1, __VA_ARGS__) \
  c M(g, 2, __VA_ARGS__)                      \
  c M(g, 3, __VA_ARGS__)
#define SINTER_EIGHT(M, c, g, ...)                         \
  SINTER_FOUR(M, c, g, __VA_ARGS__) c M(g, 4, __VA_ARGS__) \
  c M(g, 5, __VA_ARGS__)                                   \
  c M(g, 6, __VA_ARGS__)                                   \
  c M(g, 7, __VA_ARGS__)
#define SINTER_TWELVE(M, c, g, ...)                          \
  SINTER_EIGHT(M, c, g, __VA_ARGS__) c M(g, 8, __VA_ARGS__) \
  c M(g, 9, __VA_ARGS__)                                    \
  c M(g, 10, __VA_ARGS__)                                   \
  c M(g, 11, __VA_ARGS__)
#define SINTER_GROUP(M, c, g, ...)                            \
  SINTER_TWELVE(M, c, g, __VA_ARGS__) c M(g, 12, __VA_ARGS__) \
  c M(g, 13, __VA_ARGS__)                                     \
  c M(g, 14, __VA_ARGS__)                                     \
  c M(g, 15, __VA_ARGS__)
#define SINTER_EACH_4(M, c, ...) SINTER_FOUR(M, c, 0, __VA_ARGS__)
#define SINTER_EACH_8(M, c, ...) SINTER_EIGHT(M, c, 0, __VA_ARGS__)
#define SINTER_EACH_12(M, c, ...) SINTER_TWELVE(M, c, 0, __VA_ARGS__)
#define SINTER_EACH_16(M, c, ...) SINTER_GROUP(M, c, 0, __VA_ARGS__)
#define SINTER_EACH_20(M, c, ...) \
  SINTER_EACH_16(M, c, __VA_ARGS__) c SINTER_FOUR(M, c, 1, __VA_ARGS__)
#define SINTER_EACH_24(M, c, ...) \
  SINTER_EACH_16(M, c, __VA_ARGS__) c SINTER_EIGHT(M, c, 1, __VA_ARGS__)
#define SINTER_EACH_28(M, c, ...) \
  SINTER_EACH_16(M, c, __VA_ARGS__) c SINTER_TWELVE(M, c, 1, __VA_ARGS__)
#define SINTER_EACH_32(M, c, ...) \
  SINTER_EACH_16(M, c, __VA_ARGS__) c SINTER_GROUP(M, c, 1, __VA_ARGS__)
#define SINTER_EACH_36(M, c, ...) \
  SINTER_EACH_32(M, c, __VA_ARGS__) c SINTER_FOUR(M, c, 2, __VA_ARGS__)
#define SINTER_EACH_40(M, c, ...) \
  SINTER_EACH_32(M, c, __VA_ARGS__) c SINTER_EIGHT(M, c, 2, __VA_ARGS__)
#define SINTER_EACH_44(M, c, ...) \
  SINTER_EACH_32(M, c, __VA_ARGS__) c SINTER_TWELVE(M, c, 2, __VA_ARGS__)
#define SINTER_EACH_48(M, c, ...) \
  SINTER_EACH_32(M, c, __VA_ARGS__) c SINTER_GROUP(M, c, 2, __VA_ARGS__)
#define SINTER_EACH_52(M, c, ...) \
  SINTER_EACH_48(M, c, __VA_ARGS__) c SINTER_FOUR(M, c, 3, __VA_ARGS__)
#define SINTER_EACH_56(M, c, ...) \
  SINTER_EACH_48(M, c, __VA_ARGS__) c SINTER_EIGHT(M, c, 3, __VA_ARGS__)
#define SINTER_EACH_60(M, c, ...) \
  SINTER_EACH_48(M, c, __VA_ARGS__) c SINTER_TWELVE(M, c, 3, __VA_ARGS__)
#define SINTER_EACH_64(M, c, ...) \
  SINTER_EACH_48(M, c, __VA_ARGS__) c SINTER_GROUP(M, c, 3, __VA_ARGS__)
#define SINTER_EACH_72(M, c, ...) \
  SINTER_EACH_64(M, c, __VA_ARGS__) c SINTER_EIGHT(M, c, 4, __VA_ARGS__)
#define SINTER_EACH_80(M, c, ...) \
  SINTER_EACH_64(M, c, __VA_ARGS__) c SINTER_GROUP(M, c, 4, __VA_ARGS__)
#define SINTER_EACH_88(M, c, ...) \
  SINTER_EACH_80(M, c, __VA_ARGS__) c SINTER_EIGHT(M, c, 5, __VA_ARGS__)
#define SINTER_EACH_96(M, c, ...) \
  SINTER_EACH_80(M, c, __VA_ARGS__) c SINTER_GROUP(M, c, 5, __VA_ARGS__)
#define SINTER_EACH_104(M, c, ...) \
  SINTER_EACH_96(M, c, __VA_ARGS__) c SINTER_EIGHT(M, c, 6, __VA_ARGS__)
#define SINTER_EACH_112(M, c, ...) \
  SINTER_EACH_96(M, c, __VA_ARGS__) c SINTER_GROUP(M, c, 6, __VA_ARGS__)
#define SINTER_EACH_120(M, c, ...) \
  SINTER_EACH_112(M, c, __VA_ARGS__) c SINTER_EIGHT(M, c, 7, __VA_ARGS__)
#define SINTER_EACH_128(M, c, ...) \
  SINTER_EACH_112(M, c, __VA_ARGS__) c SINTER_GROUP(M, c, 7, __VA_ARGS__)
#define SINTER_EACH_OF(count, M, c, ...) SINTER_EACH_##count(M, c, __VA_ARGS__)
#define SINTER_EACH(count, M, c, ...) SINTER_EACH_OF(count, M, c, __VA_ARGS__)

#define SINTER_TEXT_OF(x) #x
#define SINTER_TEXT(x) SINTER_TEXT_OF(x)

// Text for one sum; `s` is the name of its set, "s%0_" where operand 0 is the number.
#define SINTER_NAME(g, i, s) s #g "_" #i
#define SINTER_CLEAR(g, i, s) "mov.b32 " SINTER_NAME(g, i, s) ", 0;"
#define SINTER_ADD(g, i, s, t)                                                   \
  "add." SINTER_TEXT(SINTER_SUM_TYPE) " " SINTER_NAME(g, i, s) ", " SINTER_NAME( \
      g, i, s) ", " SINTER_NAME(g, i, t) ";"

// To be called once a kernel: a register is declared once in a function.
template <int set, int group = 0>
SINTER_DEVICE void declare_sums() {
  asm volatile(".reg ." SINTER_TEXT(SINTER_SUM_TYPE) " s%0_%1_<16>;" ::"n"(set), "n"(group));
  if constexpr ((group + 1) * 16 < SINTER_SUM_COUNT) declare_sums<set, group + 1>();
}

// For the 128 bytes of k of a stage: four multiplications in one statement, which takes the
// compiler less time than four. The operands of each lie `step_a` and `step_b` further than those
// of the one before, in units of 16 bytes.
template <int set, int step_a, int step_b>
SINTER_DEVICE void multiply(unsigned long long a, unsigned long long b, bool keep) {
#define SINTER_ONE(keep)                                               \
  "wgmma.mma_async.sync.aligned.m64" SINTER_MULTIPLY " {" SINTER_EACH( \
      SINTER_SUM_COUNT, SINTER_NAME, ", ", "s%0_") "}, a, b, " keep SINTER_MULTIPLY_END "; "
#define SINTER_ONE_MORE "add.s64 a, a, %4; add.s64 b, b, %5; " SINTER_ONE("more")
  asm volatile(
      "{.reg .pred keep, more; setp.ne.b32 keep, %3, 0; setp.eq.b32 more, 0, 0; "
      ".reg .b64 a, b; mov.b64 a, %1; mov.b64 b, %2; " SINTER_ONE("keep")
          SINTER_ONE_MORE SINTER_ONE_MORE SINTER_ONE_MORE "}" ::"n"(set),
      "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(step_a), "n"(step_b));
#undef SINTER_ONE_MORE
#undef SINTER_ONE
}

template <int set>
SINTER_DEVICE void clear_sums() {
  asm volatile(SINTER_EACH(SINTER_SUM_COUNT, SINTER_CLEAR, " ", "s%0_")::"n"(set));
}
template <int set, int other>
SINTER_DEVICE void add_sums() {
  asm volatile(SINTER_EACH(SINTER_SUM_COUNT, SINTER_ADD, " ", "s%0_", "s%1_")::"n"(set),
               "n"(other));
}
// Of four sums from the `first` on, a multiple of 4, adds the other set's times a factor each.
template <int set, int other, int first>
SINTER_DEVICE void add_scaled(float f0, float f1, float f2, float f3) {
  static_assert(first % 4 == 0);
  constexpr int group = first / 16, place = first % 16;
#define SINTER_ADD_SCALED(at, factor) \
  "fma.rn.f32 s%0_%2_" at ", s%1_%2_" at ", " factor ", s%0_%2_" at "; "
  asm volatile(SINTER_ADD_SCALED("%3", "%7") SINTER_ADD_SCALED("%4", "%8") SINTER_ADD_SCALED(
                   "%5", "%9") SINTER_ADD_SCALED("%6", "%10")::"n"(set),
               "n"(other), "n"(group), "n"(place), "n"(place + 1), "n"(place + 2), "n"(place + 3),
               "f"(f0), "f"(f1), "f"(f2), "f"(f3));
#undef SINTER_ADD_SCALED
}
// Stores four sums from the `first` on, a multiple of 4: two at `to` and two `below` bytes further.
template <int set, int first, int below>
SINTER_DEVICE void store_sums(unsigned to) {
  static_assert(first % 4 == 0);
  constexpr int group = first / 16, place = first % 16;
  asm volatile(
      "st.shared.v2.b32 [%6], {s%0_%1_%2, s%0_%1_%3}; "
      "st.shared.v2.b32 [%6 + %7], {s%0_%1_%4, s%0_%1_%5};" ::"n"(set),
      "n"(group), "n"(place), "n"(place + 1), "n"(place + 2), "n"(place + 3), "r"(to), "n"(below)
      : "memory");
}

}  // namespace sinter::hopper
#endif
