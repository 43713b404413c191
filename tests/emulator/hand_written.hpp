// Kernels that belong to no plan: their text from a file of tests/golden/device, changed in places,
// and the image of their arguments.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "emulator/machine.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

namespace sinter::test {

struct Change {
  std::string from, to;
};
inline std::string changed(std::string text, const std::vector<Change>& changes) {
  for (const auto& [from, to] : changes) {
    std::size_t at = text.find(from), count = 0;
    for (; at != std::string::npos; at = text.find(from, at + to.size()), ++count)
      text.replace(at, from.size(), to);
    INFO("no place for " << from);
    REQUIRE(count > 0);
  }
  return text;
}
inline std::string device_text(const std::string& name) {
  std::ifstream in(source_tree() + "/tests/golden/device/" + name + ".cu");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class ArgumentImage {
 public:
  void add(const emulator::BoxMap& map) {
    bytes_.resize(bytes_.size() + 128);
    std::memcpy(bytes_.data() + bytes_.size() - 128, &map, sizeof map);
  }
  void add(const void* pointer) {
    bytes_.resize(bytes_.size() + sizeof pointer);
    std::memcpy(bytes_.data() + bytes_.size() - sizeof pointer, &pointer, sizeof pointer);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// ---- numbers of 16 bits

struct Numbers {
  std::vector<std::uint16_t> bits;
  std::vector<double> values;
};

// The nearest of `digits` binary digits, ties to even; here far from the ends of the range.
inline double rounded(double x, int digits) {
  if (x == 0) return 0;
  const int exponent = std::ilogb(x) - digits + 1;
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}
inline std::uint16_t encoded(double x, bool half = false) {
  if (half) {
    if (x == 0) return 0;
    const int exponent = std::ilogb(x);
    const auto fraction =
        static_cast<std::uint16_t>(std::ldexp(std::fabs(x), 10 - exponent) - 1024);
    return static_cast<std::uint16_t>((x < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | fraction);
  }
  const auto f = static_cast<float>(x);
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<std::uint16_t>(u >> 16);
}

// Small integers, so that all sums are exact and only the two roundings to 16 bits are not.
inline Numbers small_integers(int count, int seed, bool half = false) {
  Numbers n;
  std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    n.values.push_back(static_cast<int>(state >> 16) % 5 - 2);
    n.bits.push_back(encoded(n.values.back(), half));
  }
  return n;
}

// A tensor of 16-bit elements as TMA sees it; extents, and elements from one to the next, innermost
// first.
inline emulator::BoxMap box_map(const void* tensor, std::vector<std::int64_t> extent,
                                std::vector<std::int64_t> step, std::vector<int> box,
                                int swizzle = 128) {
  emulator::BoxMap map{};
  map.tensor = static_cast<const char*>(tensor);
  map.rank = static_cast<std::uint8_t>(extent.size());
  map.bytes = 2;
  map.swizzle = static_cast<std::uint8_t>(swizzle);
  for (std::size_t d = 0; d < extent.size(); ++d) {
    map.extent[d] = extent[d];
    map.step[d] = 2 * step[d];
    map.box[d] = box[d];
  }
  return map;
}

}  // namespace sinter::test
