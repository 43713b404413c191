// Single machine instructions that CUDA C++ has no name for. They have no effect but their result,
// so that the compiler may move, merge and drop them. A program that compiles device code for the
// host defines SINTER_OWN_HARDWARE and these functions. At the end: how kernels read memory.
#pragma once
#include "sinter/device/core/device.cuh"

#ifndef SINTER_OWN_HARDWARE
namespace sinter::hardware {

// IEEE 754-2019 maximum and minimum: NaN in either operand gives NaN, and -0 lies below +0.
SINTER_DEVICE float maximum(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
SINTER_DEVICE float minimum(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
// x, but at most `limit` (0 or more) in magnitude; NaN stays. One instruction from sm_86 on.
SINTER_DEVICE float clamp_magnitude(float x, float limit) {
#if __CUDA_ARCH__ >= 860
  float r;
  asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(limit));
  return r;
#else
  return maximum(minimum(x, limit), -limit);
#endif
}

// 1 / x within one ulp; subnormals count as zeros.
SINTER_DEVICE float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// 2^x within two ulp; subnormals, of x and of the result, count as zeros.
SINTER_DEVICE float exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// All bits of a product: of 64-bit factors whose upper halves are zeros, NVRTC 13.0 multiplies
// these, too, and adds the zeros.
SINTER_DEVICE unsigned long long wide_product(unsigned a, unsigned b) {
  unsigned long long r;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(r) : "r"(a), "r"(b));
  return r;
}

// Asks for a line of memory to come to the second-level cache.
SINTER_DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// A barrier of some of a block's warps, number 1 to 15.
template <int threads>
SINTER_DEVICE void meet(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(threads) : "memory");
}

// Number `i` of those that come with the launch (dynamic.cuh): an operand in constant memory. They
// are read by the name of the kernel's parameter, so that no function needs to be given them; the
// generated file says it before it includes anything.
#ifndef SINTER_PARAMETER
#define SINTER_PARAMETER ""
#endif
template <int i>
SINTER_DEVICE long long dynamic_number() {
  long long r;
  asm("ld.param.s64 %0, [" SINTER_PARAMETER "+%1];" : "=l"(r) : "n"(i * 8));
  return r;
}

// Values that are computed where this stands, not where they are used.
template <class... T>
SINTER_DEVICE void compute_here(T&... values) {
  (([](T& value) { asm volatile("" : "+r"(value)); })(values), ...);
}

// ---- kernels that overlap

// Whether a kernel may be started while the one before it in the stream still runs, see
// lib/runtime/launch.hpp.
#if __CUDA_ARCH__ >= 900
inline constexpr bool kernels_overlap = true;
#else
inline constexpr bool kernels_overlap = false;
#endif
// threadIdx.x, read again where it is asked for rather than held in a register from before.
SINTER_DEVICE int thread() {
  int number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
  return number;
}
// Waits for the end of the kernel before, whose writes are visible from then on, and lets the next
// one start as early. Every thread calls it before it reads or writes memory. In the other order a
// row of small kernels all start at once and hinder each other while they wait (2.3 instead of
// 1.3 us for 64 x 5120 results of bf16 on an H200).
SINTER_DEVICE void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The same, of a kernel that needs nothing of the one before it: it ends behind that one if one of
// its blocks waits before it ends.
SINTER_DEVICE void end_behind_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- clusters of blocks

#if __CUDA_ARCH__ >= 900
inline constexpr bool has_clusters = true;
SINTER_DEVICE int cluster_rank() {
  unsigned r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return static_cast<int>(r);
}
// What the blocks wrote to their shared memory before, all of them see behind it.
SINTER_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
// The same in two steps. It orders nothing but barriers that were announced as ready.
SINTER_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
SINTER_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#else
inline constexpr bool has_clusters = false;
SINTER_DEVICE int cluster_rank() { return 0; }
SINTER_DEVICE void cluster_barrier() {}
SINTER_DEVICE void cluster_arrive() {}
SINTER_DEVICE void cluster_wait() {}
#endif

// ---- sums in memory

// Adds to a number that other threads add to, in any order.
SINTER_DEVICE void add(float* to, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x));
}

// ---- order among thread blocks, by counters in memory

// The next number, in the order in which threads ask.
SINTER_DEVICE int take_number(int* counter) {
  int r;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(r) : "l"(counter) : "memory");
  return r;
}
// The same in one order with what memory holds: what the block's threads wrote before they met is
// seen by whoever raises the counter later, and what others wrote before is seen from here.
SINTER_DEVICE int raise_and_count(int* counter) {
  int r;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(r) : "l"(counter) : "memory");
  return r;
}
// Waits until a counter is `count`. What was written before it was raised is seen from here.
SINTER_DEVICE void wait_for_count(const int* counter, int count) {
  int r;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(r) : "l"(counter) : "memory");
  } while (r != count);
}
SINTER_DEVICE void raise_count(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

// ---- conversions to nearest even

SINTER_DEVICE unsigned short to_f16(float x) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
SINTER_DEVICE float from_f16(unsigned short bits) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
  return r;
}
SINTER_DEVICE unsigned short to_bf16(float x) {
  unsigned short r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
// x rounded to bf16, as a float: the upper half of a packed pair whose lower half is zero. The
// conversion of one number runs at a quarter of the rate of that of a pair.
SINTER_DEVICE float rounded_to_bf16(float x) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(0.0f));
  return __uint_as_float(r);
}

#if __CUDA_ARCH__ >= 890
#define SINTER_HARDWARE_F8 1
// Two at once take as long as one. What lies above the largest number becomes it, NaN becomes 0x7f.
SINTER_DEVICE unsigned short to_f8e4m3_pair(float low, float high) {
  unsigned short r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
SINTER_DEVICE unsigned short to_f8e5m2_pair(float low, float high) {
  unsigned short r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
SINTER_DEVICE unsigned char to_f8e4m3(float x) {
  return static_cast<unsigned char>(to_f8e4m3_pair(x, 0.0f));
}
SINTER_DEVICE unsigned char to_f8e5m2(float x) {
  return static_cast<unsigned char>(to_f8e5m2_pair(x, 0.0f));
}
// Every number of the format is one of f16. Number `i` of a pair: the compiler sees that both come
// of one conversion.
SINTER_DEVICE float from_f8e4m3_pair(unsigned short bits, int i) {
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bits));
  return from_f16(static_cast<unsigned short>(i == 0 ? pair : pair >> 16));
}
SINTER_DEVICE float from_f8e4m3(unsigned char bits) { return from_f8e4m3_pair(bits, 0); }
SINTER_DEVICE float from_f8e5m2(unsigned char bits) {
  return from_f16(static_cast<unsigned short>(bits << 8));
}
#endif

}  // namespace sinter::hardware
#endif

namespace sinter::hardware {

// What lies at an address that no thread of this kernel writes. An ordinary load: those of the
// read-only path (ld.global.nc, __ldg) the assembler may move ahead of grid_dependency_wait's wait,
// where the kernel before may still write.
template <class T>
SINTER_DEVICE T load(const T* p) {
  return *p;
}

}  // namespace sinter::hardware
