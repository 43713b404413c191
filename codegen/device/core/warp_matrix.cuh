// What a warp of sm_80 or later does with matrices: asynchronous copies to shared memory, fragments
// from shared memory to registers, and MMAs of 16 x 8 tiles. One instruction a function;
// addresses of shared memory are 32 bits wide.
//
// A fragment is four 8 x 8 blocks of 16-bit elements, or 8 x 4 blocks of 32-bit ones: a thread
// holds 4 bytes of each, those of row lane / 4 at lane % 4.
#pragma once
#include "sinter/device/core/types.cuh"

#ifndef SINTER_OWN_WARP_MATRIX
namespace sinter {

// An operand of the tensor cores in 32 bits, of which they use the upper 19.
struct tf32 {
  unsigned bits;
  static SINTER_DEVICE unsigned rounded(unsigned x) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(x)));
    return r;
  }
  static SINTER_DEVICE tf32 encode(float x) { return {rounded(__float_as_uint(x))}; }
};

namespace warp_matrix {

SINTER_DEVICE unsigned address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// ---- asynchronous copies

// `bytes` bytes, or as many zeros.
template <int bytes>
SINTER_DEVICE void copy(unsigned to, const void* from, bool inside = true) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  const auto global = __cvta_generic_to_global(from);
  if constexpr (bytes == 16)
    asm volatile(
        "{\n\t.reg .pred outside;\n\tsetp.eq.s32 outside, %2, 0;\n\t"
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, outside;\n\t}" ::"r"(to),
        "l"(global), "r"(static_cast<int>(inside))
        : "memory");
  else
    asm volatile(
        "{\n\t.reg .pred outside;\n\tsetp.eq.s32 outside, %2, 0;\n\t"
        "cp.async.ca.shared.global [%0], [%1], %3, outside;\n\t}" ::"r"(to),
        "l"(global), "r"(static_cast<int>(inside)), "n"(bytes)
        : "memory");
}
// The same of which the first `valid` bytes are read and the others become zeros.
template <int bytes>
SINTER_DEVICE void copy_part(unsigned to, const void* from, int valid) {
  const auto global = __cvta_generic_to_global(from);
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(global), "r"(valid),
                 "n"(bytes)
                 : "memory");
}
// Ends a group of copies.
SINTER_DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// This thread's groups but the newest `groups` are finished.
template <int groups>
SINTER_DEVICE void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
SINTER_DEVICE void put(unsigned to, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}
SINTER_DEVICE void put_word(unsigned to, unsigned x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
SINTER_DEVICE void put(unsigned to, unsigned x) { put_word(to, x); }
SINTER_DEVICE void put(unsigned to, uint2 x) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x.x), "r"(x.y) : "memory");
}
SINTER_DEVICE void put(unsigned to, unsigned short x) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}

// ---- numbers on their way to the tensor cores: two in 32 bits, rounded to nearest even

SINTER_DEVICE unsigned pair(f16, float low, float high) {
  unsigned r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
SINTER_DEVICE unsigned pair(bf16, float low, float high) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// Four bytes of two words: digit i of `which` is the number of byte i, those of y from 4 on.
SINTER_DEVICE unsigned bytes_of(unsigned x, unsigned y, unsigned which) {
  return __byte_perm(x, y, which);
}
// The lower, or the upper, halves of two words.
SINTER_DEVICE unsigned low_halves(unsigned x, unsigned y) { return __byte_perm(x, y, 0x5410); }
SINTER_DEVICE unsigned high_halves(unsigned x, unsigned y) { return __byte_perm(x, y, 0x7632); }
// Differences of two pairs.
SINTER_DEVICE unsigned subtract(bf16, unsigned x, unsigned y) {
  unsigned r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(y), "r"(0xbf80bf80u), "r"(x));
  return r;
}
SINTER_DEVICE unsigned subtract(f16, unsigned x, unsigned y) {
  unsigned r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  return r;
}
#ifdef SINTER_HARDWARE_F8
SINTER_DEVICE unsigned pair(f16, f8e4m3 low, f8e4m3 high) {
  unsigned r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
      : "=r"(r)
      : "h"(static_cast<unsigned short>(low.bits | high.bits << 8)));
  return r;
}
#endif

// ---- fragments

// Lane 8 i + j names line j of block i, 16 bytes.
SINTER_DEVICE void get(unsigned (&blocks)[4], unsigned line) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(line)
               : "memory");
}
// The same where a line is a column of its block of 16-bit elements.
SINTER_DEVICE void get_transposed(unsigned (&blocks)[4], unsigned line) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(line)
               : "memory");
}
SINTER_DEVICE unsigned get_word(unsigned at) {
  unsigned r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(at) : "memory");
  return r;
}
SINTER_DEVICE unsigned short get_half(unsigned at) {
  unsigned short r;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(r) : "r"(at) : "memory");
  return r;
}
SINTER_DEVICE uint2 get_two_words(unsigned at) {
  uint2 r;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "r"(at) : "memory");
  return r;
}
SINTER_DEVICE void get(unsigned& x, unsigned at) { x = get_word(at); }
SINTER_DEVICE void get(uint2& x, unsigned at) { x = get_two_words(at); }

SINTER_DEVICE float4 get_four(unsigned at) {
  float4 r;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w)
               : "r"(at)
               : "memory");
  return r;
}

// ---- MMAs

// d += a b, for 32 bytes of k. Blocks of a: rows 0 to 7 and 8 to 15 of the first 16 bytes, then of
// the others; of b: the first 16 bytes and the others. The thread holds of d what it holds of a row
// of pairs: two elements of row lane / 4, two of the row eight further down. With `c`: d = c + a b.
#define SINTER_MULTIPLY_BLOCKS(Number, shape, type)                                                \
  SINTER_DEVICE void multiply(Number, float* d, const unsigned(&a)[4], unsigned b0, unsigned b1) { \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type                           \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                  \
  }                                                                                                \
  SINTER_DEVICE void multiply(Number, float* d, const float* c, const unsigned(&a)[4],             \
                              unsigned b0, unsigned b1) {                                          \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type                           \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"        \
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]),        \
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));                                               \
  }
SINTER_MULTIPLY_BLOCKS(f16, "m16n8k16", "f16")
SINTER_MULTIPLY_BLOCKS(bf16, "m16n8k16", "bf16")
SINTER_MULTIPLY_BLOCKS(tf32, "m16n8k8", "tf32")
#undef SINTER_MULTIPLY_BLOCKS

// The same for 16 bytes of k.
#define SINTER_MULTIPLY_HALF(Number, type)                                                   \
  SINTER_DEVICE void multiply_half(Number, float* d, unsigned a0, unsigned a1, unsigned b) { \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." type "." type                       \
                 ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                            \
                 : "r"(a0), "r"(a1), "r"(b));                                                \
  }
SINTER_MULTIPLY_HALF(f16, "f16")
SINTER_MULTIPLY_HALF(bf16, "bf16")
#undef SINTER_MULTIPLY_HALF

// d += a b of f64, for 8 elements of k: a thread holds of a rows lane / 4 and eight further down,
// by turns, at k = lane % 4 and 4 + lane % 4; of b column lane / 4 at the same k; of d what it
// holds of every product.
SINTER_DEVICE void multiply(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d[i % 2 * 2]), "+d"(d[i % 2 * 2 + 1])
                 : "d"(a[i]), "d"(b[i / 2]));
#endif
}

}  // namespace warp_matrix
}  // namespace sinter
#endif

namespace sinter::warp_matrix {

// The bits of f8e5m2 are the upper half of those of f16.
SINTER_DEVICE unsigned pair(f16, f8e5m2 low, f8e5m2 high) {
  return static_cast<unsigned>(low.bits) << 8 | static_cast<unsigned>(high.bits) << 24;
}
// Elements of any type that f16 or bf16 holds.
template <class Number, class Element>
SINTER_DEVICE unsigned pair(Number number, Element low, Element high) {
  return pair(number, static_cast<float>(Format<Element>::decode(low)),
              static_cast<float>(Format<Element>::decode(high)));
}
// Two elements of 8 bits that lie next to each other.
template <class Number, class Element>
SINTER_DEVICE unsigned widened(Number number, Element, unsigned short two) {
  return pair(number, Element{static_cast<unsigned char>(two & 0xff)},
              Element{static_cast<unsigned char>(two >> 8)});
}
// Integers behind 0x64 are the last bits of f16 numbers from 1,024 on, which are taken off.
SINTER_DEVICE unsigned widened(f16 number, u8, unsigned short two) {
  return subtract(number, bytes_of(two, 0x64, 0x4140), 0x64006400u);
}
SINTER_DEVICE unsigned widened(f16 number, i8, unsigned short two) {
  return subtract(number, bytes_of(two ^ 0x8080u, 0x64, 0x4140), 0x64806480u);
}
// Four elements of 8 bits as f16: those of the lower half of a word, and those of the upper one.
template <class Element>
SINTER_DEVICE void widened_four(Element element, unsigned word, unsigned& low, unsigned& high) {
  low = widened(f16{}, element, static_cast<unsigned short>(word));
  high = widened(f16{}, element, static_cast<unsigned short>(word >> 16));
}
SINTER_DEVICE void widened_four(f8e5m2, unsigned word, unsigned& low, unsigned& high) {
  low = bytes_of(word, 0, 0x1404), high = bytes_of(word, 0, 0x3424);
}
#ifdef SINTER_HARDWARE_F8
SINTER_DEVICE void widened_four(f8e4m3, unsigned word, unsigned& low, unsigned& high) {
  asm("{\n\t.reg .b16 lower, upper;\n\tmov.b32 {lower, upper}, %2;\n\t"
      "cvt.rn.f16x2.e4m3x2 %0, lower;\n\tcvt.rn.f16x2.e4m3x2 %1, upper;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(word));
}
// There is no conversion to bf16: through f16, which holds both and takes them at once.
template <class Element>
SINTER_DEVICE unsigned widened(bf16 number, Element element, unsigned short two) {
  const unsigned halves = widened(f16{}, element, two);
  return pair(number, f16{static_cast<unsigned short>(halves)},
              f16{static_cast<unsigned short>(halves >> 16)});
}
#endif

}  // namespace sinter::warp_matrix
