#include "embed/embedded.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string>

namespace sinter {

std::string_view embedded_digest() {
  static const std::string digest = [] {
    // Lengths go in as well, so that text cannot move between a name and its file unnoticed.
    std::string all;
    for (const auto& file : embedded_files())
      all += fmt::format("{} {}\n{}{}", file.name.size(), file.text.size(), file.name, file.text);
    const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }();
  return digest;
}

}  // namespace sinter
