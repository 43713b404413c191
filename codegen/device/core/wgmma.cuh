// Warpgroup matrix multiplication: d = keep * d + a b for 64 rows and a number of columns, operands
// by their descriptors. The generated file says which numbers are multiplied and how the operands
// lie:
//
//   #define SINTER_MULTIPLY_SUMS 128              that a thread holds: half the number of columns
//   #define SINTER_MULTIPLY "k16.f32.bf16.bf16"  k in one multiplication, types of d, a and b
//   #define SINTER_MULTIPLY_MAJOR ", 0, 0"       1 where an operand's k is not fastest; none but
//   for
//                                                16-bit numbers
#pragma once
#include "sinter/device/core/device.cuh"

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
#define SINTER_SUMS_4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define SINTER_SUMS_8 SINTER_SUMS_4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define SINTER_SUMS_16                                                                       \
  SINTER_SUMS_8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), \
      "+f"(d[14]), "+f"(d[15])
#define SINTER_SUMS_32                                                                           \
  SINTER_SUMS_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define SINTER_SUMS_48                                                                           \
  SINTER_SUMS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),  \
      "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), \
      "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define SINTER_SUMS_64                                                                           \
  SINTER_SUMS_48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),  \
      "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), \
      "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define SINTER_SUMS_80                                                                           \
  SINTER_SUMS_64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]),  \
      "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), \
      "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define SINTER_SUMS_96                                                                           \
  SINTER_SUMS_80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]),  \
      "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), \
      "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define SINTER_SUMS_112                                                                           \
  SINTER_SUMS_96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), \
      "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),         \
      "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define SINTER_SUMS_128                                                                   \
  SINTER_SUMS_112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]),  \
      "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), \
      "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
#define SINTER_MULTIPLY_ONCE(columns, sums, at_a, at_b, at_keep)                   \
  asm volatile("{.reg .pred keep; setp.ne.b32 keep, %" #at_keep                    \
               ", 0; "                                                             \
               "wgmma.mma_async.sync.aligned.m64n" #columns SINTER_MULTIPLY        \
               " {" SINTER_PLACES_##sums "}, %" #at_a ", %" #at_b                  \
                                         ", keep, 1, 1" SINTER_MULTIPLY_MAJOR ";}" \
               : SINTER_SUMS_##sums                                                \
               : "l"(a), "l"(b), "r"(static_cast<int>(keep)))

SINTER_DEVICE void multiply(float (&d)[SINTER_MULTIPLY_SUMS], unsigned long long a,
                            unsigned long long b, bool keep) {
#if SINTER_MULTIPLY_SUMS == 4
  SINTER_MULTIPLY_ONCE(8, 4, 4, 5, 6);
#elif SINTER_MULTIPLY_SUMS == 8
  SINTER_MULTIPLY_ONCE(16, 8, 8, 9, 10);
#elif SINTER_MULTIPLY_SUMS == 16
  SINTER_MULTIPLY_ONCE(32, 16, 16, 17, 18);
#elif SINTER_MULTIPLY_SUMS == 32
  SINTER_MULTIPLY_ONCE(64, 32, 32, 33, 34);
#elif SINTER_MULTIPLY_SUMS == 48
  SINTER_MULTIPLY_ONCE(96, 48, 48, 49, 50);
#elif SINTER_MULTIPLY_SUMS == 64
  SINTER_MULTIPLY_ONCE(128, 64, 64, 65, 66);
#elif SINTER_MULTIPLY_SUMS == 80
  SINTER_MULTIPLY_ONCE(160, 80, 80, 81, 82);
#elif SINTER_MULTIPLY_SUMS == 96
  SINTER_MULTIPLY_ONCE(192, 96, 96, 97, 98);
#elif SINTER_MULTIPLY_SUMS == 112
  SINTER_MULTIPLY_ONCE(224, 112, 112, 113, 114);
#elif SINTER_MULTIPLY_SUMS == 128
  SINTER_MULTIPLY_ONCE(256, 128, 128, 129, 130);
#else
#error "no such number of columns"
#endif
}

}  // namespace sinter::hopper
