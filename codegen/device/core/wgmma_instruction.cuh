// The instruction wgmma.mma_async (PTX ISA): d = keep * d + a b for 64 rows and a number of
// columns, by the 128 threads of a warpgroup. `b` lies in shared memory and is named by a
// descriptor; `a` lies there too or comes in registers (engine/fragment.cuh says which thread holds
// what).
//
// The text of the instruction lists every register of d, so each number of columns is a text of its
// own. A file says which ones it uses, outside of all namespaces, since each costs time to compile:
//
//   SINTER_WGMMA(128, f32)    128 columns, sums of type float
//   SINTER_WGMMA(64, s32)     64 columns, sums of type int
//
// and has sinter::wgmma::Instruction<128, float>. The rest of the text comes from arrays of char:
// Text::Depth::kText, "16"; Text::A::kText and Text::B::kText, "bf16"; Text::End::kText, the
// immediates behind the operands, ", 1, 1, 0, 0" (signs of a and b; of 16-bit types, 1 where m or n
// is fastest and not k).
#pragma once
#include "sinter/device/core/device.cuh"

// For the registers of d: F(tens, ones, four, in_four) of the first, number 10 tens + ones, which
// is also 4 four + in_four; M of each of the others.
#define SINTER_EACH_8(F, M) F(0, 0, 0, 0) M(0, 1, 0, 1) M(0, 2, 0, 2) M(0, 3, 0, 3)
#define SINTER_EACH_16(F, M) \
  SINTER_EACH_8(F, M) M(0, 4, 1, 0) M(0, 5, 1, 1) M(0, 6, 1, 2) M(0, 7, 1, 3)
#define SINTER_EACH_24(F, M) \
  SINTER_EACH_16(F, M) M(0, 8, 2, 0) M(0, 9, 2, 1) M(1, 0, 2, 2) M(1, 1, 2, 3)
#define SINTER_EACH_32(F, M) \
  SINTER_EACH_24(F, M) M(1, 2, 3, 0) M(1, 3, 3, 1) M(1, 4, 3, 2) M(1, 5, 3, 3)
#define SINTER_EACH_40(F, M) \
  SINTER_EACH_32(F, M) M(1, 6, 4, 0) M(1, 7, 4, 1) M(1, 8, 4, 2) M(1, 9, 4, 3)
#define SINTER_EACH_48(F, M) \
  SINTER_EACH_40(F, M) M(2, 0, 5, 0) M(2, 1, 5, 1) M(2, 2, 5, 2) M(2, 3, 5, 3)
#define SINTER_EACH_56(F, M) \
  SINTER_EACH_48(F, M) M(2, 4, 6, 0) M(2, 5, 6, 1) M(2, 6, 6, 2) M(2, 7, 6, 3)
#define SINTER_EACH_64(F, M) \
  SINTER_EACH_56(F, M) M(2, 8, 7, 0) M(2, 9, 7, 1) M(3, 0, 7, 2) M(3, 1, 7, 3)
#define SINTER_EACH_72(F, M) \
  SINTER_EACH_64(F, M) M(3, 2, 8, 0) M(3, 3, 8, 1) M(3, 4, 8, 2) M(3, 5, 8, 3)
#define SINTER_EACH_80(F, M) \
  SINTER_EACH_72(F, M) M(3, 6, 9, 0) M(3, 7, 9, 1) M(3, 8, 9, 2) M(3, 9, 9, 3)
#define SINTER_EACH_88(F, M) \
  SINTER_EACH_80(F, M) M(4, 0, 10, 0) M(4, 1, 10, 1) M(4, 2, 10, 2) M(4, 3, 10, 3)
#define SINTER_EACH_96(F, M) \
  SINTER_EACH_88(F, M) M(4, 4, 11, 0) M(4, 5, 11, 1) M(4, 6, 11, 2) M(4, 7, 11, 3)
#define SINTER_EACH_104(F, M) \
  SINTER_EACH_96(F, M) M(4, 8, 12, 0) M(4, 9, 12, 1) M(5, 0, 12, 2) M(5, 1, 12, 3)
#define SINTER_EACH_112(F, M) \
  SINTER_EACH_104(F, M) M(5, 2, 13, 0) M(5, 3, 13, 1) M(5, 4, 13, 2) M(5, 5, 13, 3)
#define SINTER_EACH_120(F, M) \
  SINTER_EACH_112(F, M) M(5, 6, 14, 0) M(5, 7, 14, 1) M(5, 8, 14, 2) M(5, 9, 14, 3)
#define SINTER_EACH_128(F, M) \
  SINTER_EACH_120(F, M) M(6, 0, 15, 0) M(6, 1, 15, 1) M(6, 2, 15, 2) M(6, 3, 15, 3)
#define SINTER_EACH_136(F, M) \
  SINTER_EACH_128(F, M) M(6, 4, 16, 0) M(6, 5, 16, 1) M(6, 6, 16, 2) M(6, 7, 16, 3)
#define SINTER_EACH_144(F, M) \
  SINTER_EACH_136(F, M) M(6, 8, 17, 0) M(6, 9, 17, 1) M(7, 0, 17, 2) M(7, 1, 17, 3)
#define SINTER_EACH_152(F, M) \
  SINTER_EACH_144(F, M) M(7, 2, 18, 0) M(7, 3, 18, 1) M(7, 4, 18, 2) M(7, 5, 18, 3)
#define SINTER_EACH_160(F, M) \
  SINTER_EACH_152(F, M) M(7, 6, 19, 0) M(7, 7, 19, 1) M(7, 8, 19, 2) M(7, 9, 19, 3)
#define SINTER_EACH_168(F, M) \
  SINTER_EACH_160(F, M) M(8, 0, 20, 0) M(8, 1, 20, 1) M(8, 2, 20, 2) M(8, 3, 20, 3)
#define SINTER_EACH_176(F, M) \
  SINTER_EACH_168(F, M) M(8, 4, 21, 0) M(8, 5, 21, 1) M(8, 6, 21, 2) M(8, 7, 21, 3)
#define SINTER_EACH_184(F, M) \
  SINTER_EACH_176(F, M) M(8, 8, 22, 0) M(8, 9, 22, 1) M(9, 0, 22, 2) M(9, 1, 22, 3)
#define SINTER_EACH_192(F, M) \
  SINTER_EACH_184(F, M) M(9, 2, 23, 0) M(9, 3, 23, 1) M(9, 4, 23, 2) M(9, 5, 23, 3)
#define SINTER_EACH_200(F, M) \
  SINTER_EACH_192(F, M) M(9, 6, 24, 0) M(9, 7, 24, 1) M(9, 8, 24, 2) M(9, 9, 24, 3)
#define SINTER_EACH_208(F, M) \
  SINTER_EACH_200(F, M) M(10, 0, 25, 0) M(10, 1, 25, 1) M(10, 2, 25, 2) M(10, 3, 25, 3)
#define SINTER_EACH_216(F, M) \
  SINTER_EACH_208(F, M) M(10, 4, 26, 0) M(10, 5, 26, 1) M(10, 6, 26, 2) M(10, 7, 26, 3)
#define SINTER_EACH_224(F, M) \
  SINTER_EACH_216(F, M) M(10, 8, 27, 0) M(10, 9, 27, 1) M(11, 0, 27, 2) M(11, 1, 27, 3)
#define SINTER_EACH_232(F, M) \
  SINTER_EACH_224(F, M) M(11, 2, 28, 0) M(11, 3, 28, 1) M(11, 4, 28, 2) M(11, 5, 28, 3)
#define SINTER_EACH_240(F, M) \
  SINTER_EACH_232(F, M) M(11, 6, 29, 0) M(11, 7, 29, 1) M(11, 8, 29, 2) M(11, 9, 29, 3)
#define SINTER_EACH_248(F, M) \
  SINTER_EACH_240(F, M) M(12, 0, 30, 0) M(12, 1, 30, 1) M(12, 2, 30, 2) M(12, 3, 30, 3)
#define SINTER_EACH_256(F, M) \
  SINTER_EACH_248(F, M) M(12, 4, 31, 0) M(12, 5, 31, 1) M(12, 6, 31, 2) M(12, 7, 31, 3)

// The numbers of the operands that follow the registers.
#define SINTER_AFTER_8                                                                        \
  "%4", "%5", "%6", "%7", "%8", "%9", "%10", "%11", "%12", "%13", "%14", "%15", "%16", "%17", \
      "%18", "%19", "%20", "%21", "%22", "%23", "%24", "%25", "%26"
#define SINTER_AFTER_16                                                                           \
  "%8", "%9", "%10", "%11", "%12", "%13", "%14", "%15", "%16", "%17", "%18", "%19", "%20", "%21", \
      "%22", "%23", "%24", "%25", "%26", "%27", "%28", "%29", "%30"
#define SINTER_AFTER_24                                                                      \
  "%12", "%13", "%14", "%15", "%16", "%17", "%18", "%19", "%20", "%21", "%22", "%23", "%24", \
      "%25", "%26", "%27", "%28", "%29", "%30", "%31", "%32", "%33", "%34"
#define SINTER_AFTER_32                                                                      \
  "%16", "%17", "%18", "%19", "%20", "%21", "%22", "%23", "%24", "%25", "%26", "%27", "%28", \
      "%29", "%30", "%31", "%32", "%33", "%34", "%35", "%36", "%37", "%38"
#define SINTER_AFTER_40                                                                      \
  "%20", "%21", "%22", "%23", "%24", "%25", "%26", "%27", "%28", "%29", "%30", "%31", "%32", \
      "%33", "%34", "%35", "%36", "%37", "%38", "%39", "%40", "%41", "%42"
#define SINTER_AFTER_48                                                                      \
  "%24", "%25", "%26", "%27", "%28", "%29", "%30", "%31", "%32", "%33", "%34", "%35", "%36", \
      "%37", "%38", "%39", "%40", "%41", "%42", "%43", "%44", "%45", "%46"
#define SINTER_AFTER_56                                                                      \
  "%28", "%29", "%30", "%31", "%32", "%33", "%34", "%35", "%36", "%37", "%38", "%39", "%40", \
      "%41", "%42", "%43", "%44", "%45", "%46", "%47", "%48", "%49", "%50"
#define SINTER_AFTER_64                                                                      \
  "%32", "%33", "%34", "%35", "%36", "%37", "%38", "%39", "%40", "%41", "%42", "%43", "%44", \
      "%45", "%46", "%47", "%48", "%49", "%50", "%51", "%52", "%53", "%54"
#define SINTER_AFTER_72                                                                      \
  "%36", "%37", "%38", "%39", "%40", "%41", "%42", "%43", "%44", "%45", "%46", "%47", "%48", \
      "%49", "%50", "%51", "%52", "%53", "%54", "%55", "%56", "%57", "%58"
#define SINTER_AFTER_80                                                                      \
  "%40", "%41", "%42", "%43", "%44", "%45", "%46", "%47", "%48", "%49", "%50", "%51", "%52", \
      "%53", "%54", "%55", "%56", "%57", "%58", "%59", "%60", "%61", "%62"
#define SINTER_AFTER_88                                                                      \
  "%44", "%45", "%46", "%47", "%48", "%49", "%50", "%51", "%52", "%53", "%54", "%55", "%56", \
      "%57", "%58", "%59", "%60", "%61", "%62", "%63", "%64", "%65", "%66"
#define SINTER_AFTER_96                                                                      \
  "%48", "%49", "%50", "%51", "%52", "%53", "%54", "%55", "%56", "%57", "%58", "%59", "%60", \
      "%61", "%62", "%63", "%64", "%65", "%66", "%67", "%68", "%69", "%70"
#define SINTER_AFTER_104                                                                     \
  "%52", "%53", "%54", "%55", "%56", "%57", "%58", "%59", "%60", "%61", "%62", "%63", "%64", \
      "%65", "%66", "%67", "%68", "%69", "%70", "%71", "%72", "%73", "%74"
#define SINTER_AFTER_112                                                                     \
  "%56", "%57", "%58", "%59", "%60", "%61", "%62", "%63", "%64", "%65", "%66", "%67", "%68", \
      "%69", "%70", "%71", "%72", "%73", "%74", "%75", "%76", "%77", "%78"
#define SINTER_AFTER_120                                                                     \
  "%60", "%61", "%62", "%63", "%64", "%65", "%66", "%67", "%68", "%69", "%70", "%71", "%72", \
      "%73", "%74", "%75", "%76", "%77", "%78", "%79", "%80", "%81", "%82"
#define SINTER_AFTER_128                                                                     \
  "%64", "%65", "%66", "%67", "%68", "%69", "%70", "%71", "%72", "%73", "%74", "%75", "%76", \
      "%77", "%78", "%79", "%80", "%81", "%82", "%83", "%84", "%85", "%86"
#define SINTER_AFTER_136                                                                     \
  "%68", "%69", "%70", "%71", "%72", "%73", "%74", "%75", "%76", "%77", "%78", "%79", "%80", \
      "%81", "%82", "%83", "%84", "%85", "%86", "%87", "%88", "%89", "%90"
#define SINTER_AFTER_144                                                                     \
  "%72", "%73", "%74", "%75", "%76", "%77", "%78", "%79", "%80", "%81", "%82", "%83", "%84", \
      "%85", "%86", "%87", "%88", "%89", "%90", "%91", "%92", "%93", "%94"
#define SINTER_AFTER_152                                                                     \
  "%76", "%77", "%78", "%79", "%80", "%81", "%82", "%83", "%84", "%85", "%86", "%87", "%88", \
      "%89", "%90", "%91", "%92", "%93", "%94", "%95", "%96", "%97", "%98"
#define SINTER_AFTER_160                                                                     \
  "%80", "%81", "%82", "%83", "%84", "%85", "%86", "%87", "%88", "%89", "%90", "%91", "%92", \
      "%93", "%94", "%95", "%96", "%97", "%98", "%99", "%100", "%101", "%102"
#define SINTER_AFTER_168                                                                     \
  "%84", "%85", "%86", "%87", "%88", "%89", "%90", "%91", "%92", "%93", "%94", "%95", "%96", \
      "%97", "%98", "%99", "%100", "%101", "%102", "%103", "%104", "%105", "%106"
#define SINTER_AFTER_176                                                                      \
  "%88", "%89", "%90", "%91", "%92", "%93", "%94", "%95", "%96", "%97", "%98", "%99", "%100", \
      "%101", "%102", "%103", "%104", "%105", "%106", "%107", "%108", "%109", "%110"
#define SINTER_AFTER_184                                                                          \
  "%92", "%93", "%94", "%95", "%96", "%97", "%98", "%99", "%100", "%101", "%102", "%103", "%104", \
      "%105", "%106", "%107", "%108", "%109", "%110", "%111", "%112", "%113", "%114"
#define SINTER_AFTER_192                                                                      \
  "%96", "%97", "%98", "%99", "%100", "%101", "%102", "%103", "%104", "%105", "%106", "%107", \
      "%108", "%109", "%110", "%111", "%112", "%113", "%114", "%115", "%116", "%117", "%118"
#define SINTER_AFTER_200                                                                          \
  "%100", "%101", "%102", "%103", "%104", "%105", "%106", "%107", "%108", "%109", "%110", "%111", \
      "%112", "%113", "%114", "%115", "%116", "%117", "%118", "%119", "%120", "%121", "%122"
#define SINTER_AFTER_208                                                                          \
  "%104", "%105", "%106", "%107", "%108", "%109", "%110", "%111", "%112", "%113", "%114", "%115", \
      "%116", "%117", "%118", "%119", "%120", "%121", "%122", "%123", "%124", "%125", "%126"
#define SINTER_AFTER_216                                                                          \
  "%108", "%109", "%110", "%111", "%112", "%113", "%114", "%115", "%116", "%117", "%118", "%119", \
      "%120", "%121", "%122", "%123", "%124", "%125", "%126", "%127", "%128", "%129", "%130"
#define SINTER_AFTER_224                                                                          \
  "%112", "%113", "%114", "%115", "%116", "%117", "%118", "%119", "%120", "%121", "%122", "%123", \
      "%124", "%125", "%126", "%127", "%128", "%129", "%130", "%131", "%132", "%133", "%134"
#define SINTER_AFTER_232                                                                          \
  "%116", "%117", "%118", "%119", "%120", "%121", "%122", "%123", "%124", "%125", "%126", "%127", \
      "%128", "%129", "%130", "%131", "%132", "%133", "%134", "%135", "%136", "%137", "%138"
#define SINTER_AFTER_240                                                                          \
  "%120", "%121", "%122", "%123", "%124", "%125", "%126", "%127", "%128", "%129", "%130", "%131", \
      "%132", "%133", "%134", "%135", "%136", "%137", "%138", "%139", "%140", "%141", "%142"
#define SINTER_AFTER_248                                                                          \
  "%124", "%125", "%126", "%127", "%128", "%129", "%130", "%131", "%132", "%133", "%134", "%135", \
      "%136", "%137", "%138", "%139", "%140", "%141", "%142", "%143", "%144", "%145", "%146"
#define SINTER_AFTER_256                                                                          \
  "%128", "%129", "%130", "%131", "%132", "%133", "%134", "%135", "%136", "%137", "%138", "%139", \
      "%140", "%141", "%142", "%143", "%144", "%145", "%146", "%147", "%148", "%149", "%150"

#define SINTER_D_FIRST(t, i, q, j) "%" #t #i
#define SINTER_D(t, i, q, j) ", %" #t #i
#define SINTER_REGISTERS_f32_FIRST(t, i, q, j) "+f"(d[t * 10 + i])
#define SINTER_REGISTERS_f32(t, i, q, j) , "+f"(d[t * 10 + i])
#define SINTER_REGISTERS_s32_FIRST(t, i, q, j) "+r"(d[t * 10 + i])
#define SINTER_REGISTERS_s32(t, i, q, j) , "+r"(d[t * 10 + i])
#define SINTER_CALL(M, ...) M(__VA_ARGS__)

#define SINTER_TYPE_OF_f32 float
#define SINTER_TYPE_OF_s32 int

namespace sinter::wgmma {

template <int columns, class Sum>
struct Instruction;

}  // namespace sinter::wgmma

#ifdef SINTER_OWN_WGMMA
// The host's has the same functions, which follow the strings of `Text`.
#define SINTER_WGMMA(columns, sum)                                 \
  template <>                                                      \
  struct sinter::wgmma::Instruction<columns, SINTER_TYPE_OF_##sum> \
      : sinter::wgmma::HostInstruction<columns, SINTER_TYPE_OF_##sum> {};
#else
#define SINTER_WGMMA(columns, sum)                                 \
  SINTER_CALL(SINTER_WGMMA_OF, columns, sum, SINTER_TYPE_OF_##sum, \
              SINTER_EACH_##columns(SINTER_D_FIRST, SINTER_D), SINTER_AFTER_##columns)
#define SINTER_ONE_WGMMA(columns, sum, list, a, b, keep, k, of_a, of_b, end)                      \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k" k "." #sum "." of_a "." of_b " {" list "}, " a \
  ", " b ", " keep end "; "
#define SINTER_NEXT_WGMMA(columns, sum, list, guard, step_a, step_b, ...)        \
  "add.s64 a, a, " step_a "; add.s64 b, b, " step_b "; " guard SINTER_ONE_WGMMA( \
      columns, sum, list, "a", "b", "more", __VA_ARGS__)
// Four in one statement, which takes the compiler less time than four. `keep`: a predicate's value.
// Those of the last three with the guard "@none ", and not "", are left out.
#define SINTER_FOUR_WGMMA(columns, sum, list, a, b, keep_, step_a, step_b, guard1, guard2, guard3, \
                          ...)                                                                     \
  "{.reg .pred keep, more, none; setp.ne.b32 keep, " keep_                                         \
  ", 0; setp.eq.b32 more, 0, 0; setp.ne.b32 none, 0, 0; "                                          \
  ".reg .b64 a, b; mov.b64 a, " a "; mov.b64 b, " b                                                \
  "; " SINTER_ONE_WGMMA(columns, sum, list, "a", "b", "keep", __VA_ARGS__)                         \
      SINTER_NEXT_WGMMA(columns, sum, list, guard1, step_a, step_b, __VA_ARGS__)                   \
          SINTER_NEXT_WGMMA(columns, sum, list, guard2, step_a, step_b, __VA_ARGS__)               \
              SINTER_NEXT_WGMMA(columns, sum, list, guard3, step_a, step_b, __VA_ARGS__) "}"
#define SINTER_WGMMA_STRINGS \
  "C"(Text::Depth::kText), "C"(Text::A::kText), "C"(Text::B::kText), "C"(Text::End::kText)

// The same with the left operand's sixteen registers.
#define SINTER_FOUR_HELD(columns, sum, list, a0, a1, a2, a3, b, keep_, step_b, ...)                \
  "{.reg .pred keep, more; setp.ne.b32 keep, " keep_                                               \
  ", 0; setp.eq.b32 more, 0, 0; .reg .b64 b; mov.b64 b, " b "; " SINTER_ONE_WGMMA(                 \
      columns, sum, list, a0, "b", "keep",                                                         \
      __VA_ARGS__) "add.s64 b, b, " step_b                                                         \
                   "; " SINTER_ONE_WGMMA(columns, sum, list, a1, "b", "more",                      \
                                         __VA_ARGS__) "add.s64 b, b, " step_b                      \
                                                      "; " SINTER_ONE_WGMMA(                       \
                                                          columns, sum, list, a2, "b", "more",     \
                                                          __VA_ARGS__) "add.s64 b, b, " step_b     \
                                                                       "; " SINTER_ONE_WGMMA(      \
                                                                           columns, sum, list, a3, \
                                                                           "b", "more",            \
                                                                           __VA_ARGS__) "}"
#define SINTER_HELD(n0, n1, n2, n3) "{" n0 ", " n1 ", " n2 ", " n3 "}"
#define SINTER_FOUR_HELD_OPERANDS(a)                                                      \
  "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),     \
      "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]), \
      "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3])

#define SINTER_WGMMA_OF(columns, sum, Sum, list, n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, \
                        n12, n13, n14, n15, n16, n17, n18, n19, n20, n21, n22)                     \
  template <>                                                                                      \
  struct sinter::wgmma::Instruction<columns, Sum> {                                                \
    /* For 32 bytes of k. */                                                                       \
    template <class Text>                                                                          \
    static SINTER_DEVICE void run(Sum (&d)[columns / 2], unsigned long long a,                     \
                                  unsigned long long b, bool keep) {                               \
      asm volatile("{.reg .pred keep; setp.ne.b32 keep, " n2 ", 0; " SINTER_ONE_WGMMA(             \
                       columns, sum, list, n0, n1, "keep", n3, n4, n5, n6) "}"                     \
                   : SINTER_EACH_##columns(SINTER_REGISTERS_##sum##_FIRST, SINTER_REGISTERS_##sum) \
                   : "l"(a), "l"(b), "r"(static_cast<int>(keep)), SINTER_WGMMA_STRINGS);           \
    }                                                                                              \
    /* For 128 bytes of k. Operands lie `step_a` and `step_b` further each time, in units of 16    \
       bytes. */                                                                                   \
    template <class Text, int step_a, int step_b>                                                  \
    static SINTER_DEVICE void run_four(Sum (&d)[columns / 2], unsigned long long a,                \
                                       unsigned long long b, bool keep) {                          \
      asm volatile(                                                                                \
          SINTER_FOUR_WGMMA(columns, sum, list, n0, n1, n2, n3, n4, "", "", "", n5, n6, n7, n8)    \
          : SINTER_EACH_##columns(SINTER_REGISTERS_##sum##_FIRST, SINTER_REGISTERS_##sum)          \
          : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(step_a), "n"(step_b),                 \
            SINTER_WGMMA_STRINGS);                                                                 \
    }                                                                                              \
    /* For 32 bytes of k, `a` in registers. */                                                     \
    template <class Text>                                                                          \
    static SINTER_DEVICE void run(Sum (&d)[columns / 2], const unsigned (&a)[4],                   \
                                  unsigned long long b, bool keep) {                               \
      asm volatile("{.reg .pred keep; setp.ne.b32 keep, " n5 ", 0; " SINTER_ONE_WGMMA(             \
                       columns, sum, list, "{" n0 ", " n1 ", " n2 ", " n3 "}", n4, "keep", n6, n7, \
                       n8, n9) "}"                                                                 \
                   : SINTER_EACH_##columns(SINTER_REGISTERS_##sum##_FIRST, SINTER_REGISTERS_##sum) \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                           \
                     "r"(static_cast<int>(keep)), SINTER_WGMMA_STRINGS);                           \
    }                                                                                              \
    /* The same for 128 bytes of k. */                                                             \
    template <class Text, int step_b>                                                              \
    static SINTER_DEVICE void run_four(Sum (&d)[columns / 2], const unsigned (*a)[4],              \
                                       unsigned long long b, bool keep) {                          \
      asm volatile(                                                                                \
          SINTER_FOUR_HELD(columns, sum, list, SINTER_HELD(n0, n1, n2, n3),                        \
                           SINTER_HELD(n4, n5, n6, n7), SINTER_HELD(n8, n9, n10, n11),             \
                           SINTER_HELD(n12, n13, n14, n15), n16, n17, n18, n19, n20, n21, n22)     \
          : SINTER_EACH_##columns(SINTER_REGISTERS_##sum##_FIRST, SINTER_REGISTERS_##sum)          \
          : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]),    \
            "r"(a[1][2]), "r"(a[1][3]), "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]),    \
            "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]), "l"(b),                        \
            "r"(static_cast<int>(keep)), "n"(step_b), SINTER_WGMMA_STRINGS);                       \
    }                                                                                              \
  };
#endif
