// Warpgroup matrix multiplication: d = keep * d + a b for 64 rows and a number of columns, operands
// by their descriptors. The generated file says which numbers are multiplied and how the operands
// lie:
//
//   #define SINTER_MULTIPLY_SUMS 128             that a thread holds: half the number of columns
//   #define SINTER_MULTIPLY "k16.f32.bf16.bf16"  k in one multiplication, types of d, a and b
//   #define SINTER_MULTIPLY_END ", 1, 1, 0, 0"   of floats, their signs; of 16 bits, 1 where an
//                                                operand's k is not fastest
//   #define SINTER_MULTIPLY_SUM float            the type of d, and the constraint that names it
//   #define SINTER_SUM "+f"
#pragma once
#include "sinter/device/core/device.cuh"

#ifdef SINTER_OWN_WGMMA
namespace sinter::hopper {

template <int step_a, int step_b>
SINTER_DEVICE void multiply(SINTER_MULTIPLY_SUM (&d)[SINTER_MULTIPLY_SUMS], unsigned long long a,
                            unsigned long long b, bool keep) {
  multiply_as<step_a, step_b>(SINTER_MULTIPLY SINTER_MULTIPLY_END, d, a, b, keep);
}

}  // namespace sinter::hopper
#else
namespace sinter::hopper {

// The places and the operands of so many accumulators.
#define SINTER_PLACES_4 "%0, %1, %2, %3"
#define SINTER_PLACES_8 \
  SINTER_PLACES_4       \
  ", %4, %5, %6, %7"
#define SINTER_PLACES_16 \
  SINTER_PLACES_8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SINTER_PLACES_32 \
  SINTER_PLACES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SINTER_PLACES_48 \
  SINTER_PLACES_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SINTER_PLACES_64 \
  SINTER_PLACES_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SINTER_PLACES_80 \
  SINTER_PLACES_64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define SINTER_PLACES_96 \
  SINTER_PLACES_80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SINTER_PLACES_112 \
  SINTER_PLACES_96        \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define SINTER_PLACES_128                                                                        \
  SINTER_PLACES_112                                                                              \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
#define SINTER_SUMS_4 SINTER_SUM(d[0]), SINTER_SUM(d[1]), SINTER_SUM(d[2]), SINTER_SUM(d[3])
#define SINTER_SUMS_8 \
  SINTER_SUMS_4, SINTER_SUM(d[4]), SINTER_SUM(d[5]), SINTER_SUM(d[6]), SINTER_SUM(d[7])
#define SINTER_SUMS_16                                                                     \
  SINTER_SUMS_8, SINTER_SUM(d[8]), SINTER_SUM(d[9]), SINTER_SUM(d[10]), SINTER_SUM(d[11]), \
      SINTER_SUM(d[12]), SINTER_SUM(d[13]), SINTER_SUM(d[14]), SINTER_SUM(d[15])
#define SINTER_SUMS_32                                                                        \
  SINTER_SUMS_16, SINTER_SUM(d[16]), SINTER_SUM(d[17]), SINTER_SUM(d[18]), SINTER_SUM(d[19]), \
      SINTER_SUM(d[20]), SINTER_SUM(d[21]), SINTER_SUM(d[22]), SINTER_SUM(d[23]),             \
      SINTER_SUM(d[24]), SINTER_SUM(d[25]), SINTER_SUM(d[26]), SINTER_SUM(d[27]),             \
      SINTER_SUM(d[28]), SINTER_SUM(d[29]), SINTER_SUM(d[30]), SINTER_SUM(d[31])
#define SINTER_SUMS_48                                                                        \
  SINTER_SUMS_32, SINTER_SUM(d[32]), SINTER_SUM(d[33]), SINTER_SUM(d[34]), SINTER_SUM(d[35]), \
      SINTER_SUM(d[36]), SINTER_SUM(d[37]), SINTER_SUM(d[38]), SINTER_SUM(d[39]),             \
      SINTER_SUM(d[40]), SINTER_SUM(d[41]), SINTER_SUM(d[42]), SINTER_SUM(d[43]),             \
      SINTER_SUM(d[44]), SINTER_SUM(d[45]), SINTER_SUM(d[46]), SINTER_SUM(d[47])
#define SINTER_SUMS_64                                                                        \
  SINTER_SUMS_48, SINTER_SUM(d[48]), SINTER_SUM(d[49]), SINTER_SUM(d[50]), SINTER_SUM(d[51]), \
      SINTER_SUM(d[52]), SINTER_SUM(d[53]), SINTER_SUM(d[54]), SINTER_SUM(d[55]),             \
      SINTER_SUM(d[56]), SINTER_SUM(d[57]), SINTER_SUM(d[58]), SINTER_SUM(d[59]),             \
      SINTER_SUM(d[60]), SINTER_SUM(d[61]), SINTER_SUM(d[62]), SINTER_SUM(d[63])
#define SINTER_SUMS_80                                                                        \
  SINTER_SUMS_64, SINTER_SUM(d[64]), SINTER_SUM(d[65]), SINTER_SUM(d[66]), SINTER_SUM(d[67]), \
      SINTER_SUM(d[68]), SINTER_SUM(d[69]), SINTER_SUM(d[70]), SINTER_SUM(d[71]),             \
      SINTER_SUM(d[72]), SINTER_SUM(d[73]), SINTER_SUM(d[74]), SINTER_SUM(d[75]),             \
      SINTER_SUM(d[76]), SINTER_SUM(d[77]), SINTER_SUM(d[78]), SINTER_SUM(d[79])
#define SINTER_SUMS_96                                                                        \
  SINTER_SUMS_80, SINTER_SUM(d[80]), SINTER_SUM(d[81]), SINTER_SUM(d[82]), SINTER_SUM(d[83]), \
      SINTER_SUM(d[84]), SINTER_SUM(d[85]), SINTER_SUM(d[86]), SINTER_SUM(d[87]),             \
      SINTER_SUM(d[88]), SINTER_SUM(d[89]), SINTER_SUM(d[90]), SINTER_SUM(d[91]),             \
      SINTER_SUM(d[92]), SINTER_SUM(d[93]), SINTER_SUM(d[94]), SINTER_SUM(d[95])
#define SINTER_SUMS_112                                                                       \
  SINTER_SUMS_96, SINTER_SUM(d[96]), SINTER_SUM(d[97]), SINTER_SUM(d[98]), SINTER_SUM(d[99]), \
      SINTER_SUM(d[100]), SINTER_SUM(d[101]), SINTER_SUM(d[102]), SINTER_SUM(d[103]),         \
      SINTER_SUM(d[104]), SINTER_SUM(d[105]), SINTER_SUM(d[106]), SINTER_SUM(d[107]),         \
      SINTER_SUM(d[108]), SINTER_SUM(d[109]), SINTER_SUM(d[110]), SINTER_SUM(d[111])
#define SINTER_SUMS_128                                                                            \
  SINTER_SUMS_112, SINTER_SUM(d[112]), SINTER_SUM(d[113]), SINTER_SUM(d[114]), SINTER_SUM(d[115]), \
      SINTER_SUM(d[116]), SINTER_SUM(d[117]), SINTER_SUM(d[118]), SINTER_SUM(d[119]),              \
      SINTER_SUM(d[120]), SINTER_SUM(d[121]), SINTER_SUM(d[122]), SINTER_SUM(d[123]),              \
      SINTER_SUM(d[124]), SINTER_SUM(d[125]), SINTER_SUM(d[126]), SINTER_SUM(d[127])
#define SINTER_MULTIPLY_ONCE(columns, sums, a, b, keep)                                  \
  "wgmma.mma_async.sync.aligned.m64n" #columns SINTER_MULTIPLY " {" SINTER_PLACES_##sums \
      "}, " a ", " b ", " keep SINTER_MULTIPLY_END "; "
// Several in one statement: the compiler's time goes by the operands of statements.
#define SINTER_MULTIPLY_LINE(columns, sums, at_a, at_b, at_keep, at_step_a, at_step_b)             \
  asm volatile("{.reg .pred keep, more; .reg .b64 a, b; setp.ne.b32 keep, %" #at_keep              \
               ", 0; setp.eq.b32 more, 0, 0; " SINTER_MULTIPLY_ONCE(                               \
                   columns, sums, "%" #at_a, "%" #at_b,                                            \
                   "keep") "add.s64 a, %" #at_a ", %" #at_step_a "; add.s64 b, %" #at_b            \
                           ", %" #at_step_b "; " SINTER_MULTIPLY_ONCE(                             \
                               columns, sums, "a", "b",                                            \
                               "more") "add.s64 a, a, %" #at_step_a "; add.s64 b, b, %" #at_step_b \
                                       "; " SINTER_MULTIPLY_ONCE(                                  \
                                           columns, sums, "a", "b",                                \
                                           "more") "add.s64 a, a, %" #at_step_a                    \
                                                   "; add.s64 b, b, %" #at_step_b                  \
                                                   "; " SINTER_MULTIPLY_ONCE(columns, sums, "a",   \
                                                                             "b", "more") "}"      \
               : SINTER_SUMS_##sums                                                                \
               : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(step_a), "n"(step_b))

// The 128 bytes of k of a stage: four multiplications, of which the operands of each lie `step_a`
// and `step_b` further, in units of 16 bytes.
template <int step_a, int step_b>
SINTER_DEVICE void multiply(SINTER_MULTIPLY_SUM (&d)[SINTER_MULTIPLY_SUMS], unsigned long long a,
                            unsigned long long b, bool keep) {
#if SINTER_MULTIPLY_SUMS == 4
  SINTER_MULTIPLY_LINE(8, 4, 4, 5, 6, 7, 8);
#elif SINTER_MULTIPLY_SUMS == 8
  SINTER_MULTIPLY_LINE(16, 8, 8, 9, 10, 11, 12);
#elif SINTER_MULTIPLY_SUMS == 16
  SINTER_MULTIPLY_LINE(32, 16, 16, 17, 18, 19, 20);
#elif SINTER_MULTIPLY_SUMS == 32
  SINTER_MULTIPLY_LINE(64, 32, 32, 33, 34, 35, 36);
#elif SINTER_MULTIPLY_SUMS == 48
  SINTER_MULTIPLY_LINE(96, 48, 48, 49, 50, 51, 52);
#elif SINTER_MULTIPLY_SUMS == 64
  SINTER_MULTIPLY_LINE(128, 64, 64, 65, 66, 67, 68);
#elif SINTER_MULTIPLY_SUMS == 80
  SINTER_MULTIPLY_LINE(160, 80, 80, 81, 82, 83, 84);
#elif SINTER_MULTIPLY_SUMS == 96
  SINTER_MULTIPLY_LINE(192, 96, 96, 97, 98, 99, 100);
#elif SINTER_MULTIPLY_SUMS == 112
  SINTER_MULTIPLY_LINE(224, 112, 112, 113, 114, 115, 116);
#elif SINTER_MULTIPLY_SUMS == 128
  SINTER_MULTIPLY_LINE(256, 128, 128, 129, 130, 131, 132);
#else
#error "no such number of columns"
#endif
}

// Keeps the compiler from moving uses of the sums over a wait.
SINTER_DEVICE void hold(SINTER_MULTIPLY_SUM (&d)[SINTER_MULTIPLY_SUMS]) {
#define SINTER_SUMS_OF(count) SINTER_SUMS_##count
#define SINTER_ALL_SUMS(count) SINTER_SUMS_OF(count)
  asm volatile("" : SINTER_ALL_SUMS(SINTER_MULTIPLY_SUMS)::"memory");
}

}  // namespace sinter::hopper
#endif
