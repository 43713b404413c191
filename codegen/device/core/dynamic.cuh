// Numbers that are constants of the generated file or, in a file that serves many extents, come
// with the launch: the first member of its Args, `long long dynamic[count]`. In lists of integers
// (Dims) dynamic(i) stands for number i of them.
//
// What follows from such numbers is `number<known>(f)`: where all of them are known when compiling,
// f()'s value, a constant as any other; else an object that computes it where it is used.
#pragma once
#include "sinter/device/core/hardware.cuh"

namespace sinter {

inline constexpr long long kFirstDynamic = -(1LL << 62), kMostDynamic = 1 << 10;
constexpr SINTER_DEVICE long long dynamic(int i) { return kFirstDynamic + i; }

template <long long number>
inline constexpr bool is_literal = number < kFirstDynamic || number >= kFirstDynamic + kMostDynamic;

// The number that one of a list stands for.
template <long long number>
constexpr SINTER_DEVICE long long value_of() {
  if constexpr (is_literal<number>)
    return number;
  else
    return hardware::dynamic_number<static_cast<int>(number - kFirstDynamic)>();
}

template <class F>
struct AtLaunch {
  using Value = decltype(F{}());
  constexpr SINTER_DEVICE operator Value() const { return F{}(); }
};
template <bool known, class F>
constexpr SINTER_DEVICE auto number(F) {
  if constexpr (known)
    return F{}();
  else
    return AtLaunch<F>{};
}

// One of a list, on its own.
template <long long value>
inline constexpr auto number_of = number<is_literal<value>>([] {
  return static_cast<int>(value_of<value>());
});

template <long long value>
inline constexpr auto long_number_of = number<is_literal<value>>([] { return value_of<value>(); });

// Whether all of what `number` gave are constants.
template <class T>
inline constexpr bool comes_at_launch = false;
template <class F>
inline constexpr bool comes_at_launch<AtLaunch<F>> = true;
template <class... T>
constexpr SINTER_DEVICE bool is_known(const T&...) {
  return !(comes_at_launch<T> || ...);
}

}  // namespace sinter
