// Kernels that belong to no plan: their text from a file of tests/golden/device, changed in places,
// and the image of their arguments.
#pragma once
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
