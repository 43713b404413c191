// A random source whose results are the same on every platform and standard library, so that a seed
// printed by one machine shows the same graph on another.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <random>
#include <utility>

namespace sinter::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  // 0 to n - 1, n at least 1. The bias of the remainder is below 2^-40 for the sizes used here.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  double real(double low, double high) {
    return low + (high - low) * (static_cast<double>(engine_() >> 11) * 0x1p-53);
  }
  bool chance(double probability) { return real(0, 1) < probability; }

  template <class Container>
  auto pick(const Container& c) {
    return *(std::begin(c) + below(static_cast<std::int64_t>(std::size(c))));
  }
  template <class T>
  T pick(std::initializer_list<T> c) {
    return *(c.begin() + below(static_cast<std::int64_t>(c.size())));
  }
  // An element of a range of (value, weight) pairs.
  template <class Rows>
  auto weighted(const Rows& rows) {
    double total = 0;
    for (const auto& [value, weight] : rows) total += weight;
    double at = real(0, total);
    for (const auto& [value, weight] : rows)
      if ((at -= weight) < 0) return value;
    return std::begin(rows)->first;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace sinter::test
