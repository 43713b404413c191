// The arithmetic of the device library that needs no GPU, compiled for the host. A namespace of its
// own keeps the device's types apart from the host library's names; what hardware does is defined
// here independently of it.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/element.hpp"
#include "sinter/ops/pointwise_host.hpp"

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline double normcdf(double x) { return sinter::math::normal_tail(-x); }

namespace on_device {

// What NVRTC has built in.
#define SINTER_DEVICE inline
#include "support/cuda_builtins.hpp"
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = std::sin(3.14159265358979323846 * x);
  *cosine = std::cos(3.14159265358979323846 * x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = static_cast<float>(std::sin(3.14159265358979323846 * x));
  *cosine = static_cast<float>(std::cos(3.14159265358979323846 * x));
}
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

// What hardware does, defined independently of it.
#define SINTER_OWN_HARDWARE
namespace sinter::hardware {
inline float converted(::sinter::DataType type, float x) {
  return static_cast<float>(::sinter::round_to(type, x));
}
inline float maximum(float a, float b) { return ::sinter::math::maximum(a, b); }
inline float minimum(float a, float b) { return ::sinter::math::minimum(a, b); }
inline float clamp_magnitude(float x, float limit) {
  return ::sinter::math::clamp_magnitude(x, limit);
}
// Either neighbour of the exact value: both lie within one ulp of it.
inline float exp2(float x) { return std::exp2(x); }
inline float reciprocal(float x) {
  static unsigned turn = 0;
  const double exact = 1.0 / x;
  const float near = static_cast<float>(exact);
  if (near == exact || near != near || ++turn % 3 == 0) return near;
  return std::nextafter(near, near < exact ? 2 * near : 0.0f);
}
inline unsigned short to_f16(float x) {
  unsigned short bits;
  ::sinter::store_element(::sinter::f16, &bits, 0, x);
  return bits;
}
inline float from_f16(unsigned short bits) {
  return static_cast<float>(::sinter::load_element(::sinter::f16, &bits, 0));
}
inline unsigned short to_bf16(float x) {
  unsigned short bits;
  ::sinter::store_element(::sinter::bf16, &bits, 0, x);
  return bits;
}
inline unsigned long long wide_product(unsigned a, unsigned b) {
  return static_cast<unsigned long long>(a) * b;
}
inline void prefetch(const void*) {}
inline void add(float* to, float x) { *to += x; }
inline int take_number(int* counter) { return (*counter)++; }
inline int raise_and_count(int* counter) { return (*counter)++; }
inline void wait_for_count(const int*, int) {}
inline void raise_count(int* counter) { ++*counter; }
template <int i>
long long dynamic_number() {  // of a launch, of which there is none
  return 0;
}
inline float rounded_to_bf16(float x) { return converted(::sinter::bf16, x); }
}  // namespace sinter::hardware

#include "sinter/device/core/math.cuh"

}  // namespace on_device
