// What every device file needs first: the function qualifiers and the few compile-time tools that
// the standard library would give. The device library includes nothing outside its own tree, so
// that NVRTC can be fed from memory and compiles a kernel in tens of milliseconds.
#pragma once

#ifndef SINTER_DEVICE
#define SINTER_DEVICE __device__ __forceinline__
#endif
#define SINTER_HD SINTER_DEVICE

// Blocks that can read each other's shared memory, from sm_90 on.
#if __CUDA_ARCH__ >= 900
#define SINTER_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define SINTER_CLUSTER(blocks)
#endif

namespace sinter {

template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

template <bool first, class A, class B>
struct ChoiceOf {
  using Type = A;
};
template <class A, class B>
struct ChoiceOf<false, A, B> {
  using Type = B;
};
template <bool first, class A, class B>
using Choice = typename ChoiceOf<first, A, B>::Type;

template <class... Items>
struct List {
  static constexpr int size = sizeof...(Items);
};

// Calls f<0>(), f<1>(), ... to f<count - 1>(), where a number must be known when compiling.
template <int count, int i = 0, class F>
SINTER_DEVICE void for_each_number(const F& f) {
  if constexpr (i < count) {
    f.template operator()<i>();
    for_each_number<count, i + 1>(f);
  }
}

// A number that is part of a type: overloads and lambdas tell it from others when they are
// compiled.
template <int number>
struct Int {
  SINTER_DEVICE constexpr operator int() const { return number; }
};

constexpr SINTER_DEVICE long long ceil_divide(long long a, long long b) { return (a + b - 1) / b; }

inline constexpr int kRegistersOfSm = 65536;  // of every architecture

}  // namespace sinter
