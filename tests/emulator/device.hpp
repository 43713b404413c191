// Stands before the text of a kernel that is compiled for the host: what NVRTC has built in, and
// what the device library asks of the hardware, defined apart from the machine instructions.
// Pointers to shared memory are numbers of 32 bits, counted from `anchor`.
#pragma once
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "emulator/machine.hpp"

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))
#define alignas(bytes) __attribute__((aligned(bytes)))
#define threadIdx (machine->thread)
#define blockIdx (machine->block)
#define gridDim (machine->grid)

// The device library's functions, not those of a host program.
#define __CUDACC_RTC__

inline thread_local emulator::Machine* machine = nullptr;
inline thread_local const long long* dynamic_numbers = nullptr;  // where the arguments begin
inline thread_local alignas(1024) char anchor[1024];

// What g++ -fsanitize=alignment calls before memory is read or written as a type whose alignment
// the address has not.
extern "C" inline __attribute__((used)) void __ubsan_handle_type_mismatch_v1(void*, void*) {
  machine->fault("memory is read or written at a misaligned address");
}

struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct float2 {
  float x, y;
} __attribute__((aligned(8)));
struct float4 {
  float x, y, z, w;
} __attribute__((aligned(16)));

#include "support/cuda_builtins.hpp"

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
inline float rsqrtf(float x) { return static_cast<float>(1 / std::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
inline void sincospi(double x, double* sine, double* cosine) {
  const double angle = 3.14159265358979323846 * std::remainder(x, 2);
  *sine = std::sin(angle);
  *cosine = std::cos(angle);
}
inline void sincospif(float x, float* sine, float* cosine) {
  const double angle = 3.14159265358979323846 * std::remainder(static_cast<double>(x), 2);
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}

inline void __syncthreads() { machine->block_barrier(); }
inline void __syncwarp() { machine->warp_barrier(); }

// Every lane shows `mine` and then looks at the words of all.
template <class T, class Look>
auto look_around(const T& mine, const Look& look) {
  static_assert(sizeof(T) <= sizeof machine->warp->to_show()[0]);
  std::memcpy(machine->warp->to_show()[threadIdx.x % emulator::kWarp], &mine, sizeof mine);
  machine->warp_barrier();
  return look([](unsigned lane) {
    T theirs;
    std::memcpy(&theirs, machine->warp->shown()[lane], sizeof theirs);
    return theirs;
  });
}
template <class T>
T exchanged(const T& mine, unsigned lane) {
  static_assert(sizeof(T) <= sizeof machine->warp->to_show()[0]);
  T theirs;
  machine->exchange(&mine, &theirs, lane, sizeof mine);
  return theirs;
}
template <class T>
T __shfl_sync(unsigned, T mine, int lane) {
  return exchanged(mine, static_cast<unsigned>(lane) % emulator::kWarp);
}
template <class T>
T __shfl_xor_sync(unsigned, T mine, int distance) {
  return exchanged(mine, threadIdx.x % emulator::kWarp ^ static_cast<unsigned>(distance));
}

inline unsigned __ballot_sync(unsigned, bool mine) { return machine->ballot(mine); }
inline bool __any_sync(unsigned, bool mine) { return machine->ballot(mine) != 0; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }

inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(static_cast<const char*>(p) - anchor);
}
inline unsigned long __cvta_generic_to_shared(const void* p) { return shared_address(p); }
inline char* shared_pointer(unsigned address) { return anchor + static_cast<int>(address); }

// ---- sinter/device/core/hardware.cuh

#define SINTER_OWN_HARDWARE
namespace sinter::hardware {

inline float maximum(float a, float b) {
  return a != a ? a : b != b ? b : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}
inline float minimum(float a, float b) {
  return a != a ? a : b != b ? b : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
inline float clamp_magnitude(float x, float limit) {
  return std::fabs(x) > limit ? std::copysign(limit, x) : x;
}
inline float reciprocal(float x) {
  const auto flushed = [](float y) {
    return std::fabs(y) < 0x1p-126f ? std::copysign(0.0f, y) : y;
  };
  return flushed(static_cast<float>(1.0 / flushed(x)));
}
inline float exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline void prefetch(const void*) {}
inline void add(float* to, float x) { *to += x; }
inline int take_number(int* counter) { return (*counter)++; }
inline int raise_and_count(int* counter) { return (*counter)++; }
template <int i>
long long dynamic_number() {
  return dynamic_numbers[i];
}
template <class... T>
void compute_here(T&...) {}
// Blocks run one after another: a wait would never end.
inline void wait_for_count(const int* counter, int count) {
  if (*counter != count) machine->fault("a thread block waits for one that has not started");
}
inline void raise_count(int* counter) { ++*counter; }
template <int threads>
void meet(int number) {
  machine->named_barrier(static_cast<unsigned>(number), threads, true);
}
inline constexpr bool kernels_overlap = false, has_clusters = __CUDA_ARCH__ >= 900;
inline int thread() { return static_cast<int>(threadIdx.x); }
inline void grid_dependency_wait() {}
inline void end_behind_kernel_before() {}
inline int cluster_rank() { return static_cast<int>(machine->rank); }
inline void cluster_arrive() { machine->cluster_arrive(); }
inline void cluster_wait() { machine->cluster_wait(); }
inline void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

inline unsigned short to_f16(float x) {
  unsigned u = __float_as_uint(x);
  const unsigned sign = u >> 16 & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return 0x7fff;
  if (u >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);
  if (u < 0x38800000u)  // subnormal: a multiple of 2^-24
    return static_cast<unsigned short>(sign |
                                       static_cast<unsigned>(std::rint(std::fabs(x) * 0x1p24f)));
  u += 0xfffu + (u >> 13 & 1u);
  return static_cast<unsigned short>(sign | (u - 0x38000000u) >> 13);
}
inline float from_f16(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, rest = bits & 0x3ffu;
  if (exponent == 31) return rest ? NAN : __uint_as_float(sign | 0x7f800000u);
  if (exponent == 0)
    return std::copysign(static_cast<float>(rest) * 0x1p-24f, __uint_as_float(sign | 0x3f800000u));
  return __uint_as_float(sign | (exponent + 112) << 23 | rest << 13);
}
inline unsigned short to_bf16(float x) {
  const unsigned u = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return static_cast<unsigned short>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
inline unsigned long long wide_product(unsigned a, unsigned b) {
  return static_cast<unsigned long long>(a) * b;
}
inline float rounded_to_bf16(float x) {
  return __uint_as_float(static_cast<unsigned>(to_bf16(x)) << 16);
}

}  // namespace sinter::hardware

// ---- sinter/device/core/async_copy.cuh

#define SINTER_OWN_ASYNC_COPY
namespace sinter {

template <int bytes>
void copy_async(void* to, const void* from) {
  machine->copy(to, from, bytes, bytes);
}
inline void wait_for_copies() { machine->wait_for_copies(-1); }
inline void end_group_of_copies() { machine->commit_copies(); }
template <int count>
void wait_for_groups_but() {
  machine->wait_for_copies(count);
}

}  // namespace sinter

// ---- sinter/device/core/warp_matrix.cuh

#define SINTER_OWN_WARP_MATRIX
#include "sinter/device/core/types.cuh"
namespace sinter {

struct tf32 {
  unsigned bits;
  static unsigned rounded(unsigned x) { return emulator::rounded_to_tf32(x); }
  static tf32 encode(float x) { return {rounded(__float_as_uint(x))}; }
};

namespace warp_matrix {

inline unsigned address(const void* shared) { return shared_address(shared); }
template <int bytes>
void copy(unsigned to, const void* from, bool inside = true) {
  machine->copy(shared_pointer(to), from, bytes, inside ? bytes : 0);
}
template <int bytes>
void copy_part(unsigned to, const void* from, int valid) {
  machine->copy(shared_pointer(to), from, bytes, valid);
}
inline void commit() { machine->commit_copies(); }
template <int groups>
void wait() {
  machine->wait_for_copies(groups);
}
inline void put(unsigned to, uint4 x) { std::memcpy(shared_pointer(to), &x, sizeof x); }
inline void put_word(unsigned to, unsigned x) { std::memcpy(shared_pointer(to), &x, sizeof x); }
inline void put(unsigned to, unsigned x) { put_word(to, x); }
inline void put(unsigned to, uint2 x) { std::memcpy(shared_pointer(to), &x, sizeof x); }
inline void put(unsigned to, unsigned short x) { std::memcpy(shared_pointer(to), &x, sizeof x); }
inline unsigned get_word(unsigned at) {
  unsigned r;
  std::memcpy(&r, shared_pointer(at), sizeof r);
  return r;
}
inline unsigned short get_half(unsigned at) {
  unsigned short r;
  std::memcpy(&r, shared_pointer(at), sizeof r);
  return r;
}
inline uint2 get_two_words(unsigned at) { return {get_word(at), get_word(at + 4)}; }
inline void get(unsigned& x, unsigned at) { x = get_word(at); }
inline void get(uint2& x, unsigned at) { x = get_two_words(at); }
inline float4 get_four(unsigned at) {
  float4 r;
  std::memcpy(&r, shared_pointer(at), sizeof r);
  return r;
}

inline unsigned pair(f16, float low, float high) {
  return hardware::to_f16(low) | static_cast<unsigned>(hardware::to_f16(high)) << 16;
}
inline unsigned pair(bf16, float low, float high) {
  return hardware::to_bf16(low) | static_cast<unsigned>(hardware::to_bf16(high)) << 16;
}

inline unsigned subtract(bf16, unsigned x, unsigned y) {
  const auto value = [](unsigned bits) { return __uint_as_float(bits << 16); };
  return pair(bf16{}, value(x) - value(y), value(x >> 16) - value(y >> 16));
}
inline unsigned subtract(f16, unsigned x, unsigned y) {
  const auto value = [](unsigned bits) {
    return hardware::from_f16(static_cast<unsigned short>(bits));
  };
  return pair(f16{}, value(x) - value(y), value(x >> 16) - value(y >> 16));
}
inline unsigned bytes_of(unsigned x, unsigned y, unsigned which) {
  const unsigned long long both = x | static_cast<unsigned long long>(y) << 32;
  unsigned r = 0;
  for (unsigned i = 0; i < 4; ++i)
    r |= static_cast<unsigned>(both >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return r;
}
inline unsigned low_halves(unsigned x, unsigned y) { return (x & 0xffffu) | y << 16; }
inline unsigned high_halves(unsigned x, unsigned y) { return x >> 16 | (y & 0xffff0000u); }

inline void get(unsigned (&blocks)[4], unsigned line) { machine->get_blocks(line, blocks, false); }
inline void get_transposed(unsigned (&blocks)[4], unsigned line) {
  machine->get_blocks(line, blocks, true);
}

inline void multiply(f16, float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  machine->multiply({emulator::Number::f16, d, a, {b0, b1}});
}
inline void multiply(bf16, float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  machine->multiply({emulator::Number::bf16, d, a, {b0, b1}});
}
inline void multiply(tf32, float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  machine->multiply({emulator::Number::tf32, d, a, {b0, b1}});
}

inline void multiply(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
  struct Operands {
    double a[4], b[2];
  };
  const unsigned lane = threadIdx.x % emulator::kWarp;
  look_around(Operands{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, [&](const auto& of) {
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned k = 0; k < 8; ++k)
        d[i] = std::fma(of(lane / 4 * 4 + k % 4).a[k / 4 * 2 + i / 2],
                        of((lane % 4 * 2 + i % 2) * 4 + k % 4).b[k / 4], d[i]);
    return 0;
  });
}

template <class Number>
void multiply_half(Number number, float* d, unsigned a0, unsigned a1, unsigned b) {
  const unsigned a[4] = {a0, a1, 0, 0};
  multiply(number, d, a, b, 0);
}

template <class Number>
void multiply(Number number, float* d, const float* c, const unsigned (&a)[4], unsigned b0,
              unsigned b1) {
  for (int i = 0; i < 4; ++i) d[i] = c[i];
  multiply(number, d, a, b0, b1);
}

}  // namespace warp_matrix

}  // namespace sinter

// ---- shared memory that a launch asks for

namespace sinter {

inline constexpr unsigned kMostShared = 227 << 10, kMargin = 4 << 10;
namespace rowwise {
inline thread_local alignas(1024) unsigned char dynamic_memory[kMostShared + kMargin];
}
namespace contraction {
inline thread_local alignas(1024) uint4 dynamic_memory[(kMostShared + kMargin) / sizeof(uint4)];
}  // namespace contraction
inline thread_local alignas(1024) unsigned char engine_memory[kMostShared + kMargin];

}  // namespace sinter

#include "emulator/hopper.hpp"
#include "emulator/wgmma.hpp"
