#include "embed/embedded.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <set>
#include <string>

namespace sinter {
namespace {

XXH128_hash_t digest_of_files() {
  // A digest each, so that text cannot move between a name and its file unnoticed.
  std::string digests;
  for (const auto& file : embedded_files())
    for (const std::string_view part : {file.name, file.text}) {
      const XXH128_hash_t hash = XXH3_128bits(part.data(), part.size());
      digests.append(reinterpret_cast<const char*>(&hash), sizeof hash);
    }
  return XXH3_128bits(digests.data(), digests.size());
}

}  // namespace

std::string_view embedded_digest() {
  static const std::string digest = [] {
    const XXH128_hash_t hash = digest_of_files();
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }();
  return digest;
}

std::vector<EmbeddedFile> included_files(std::string_view text) {
  constexpr std::string_view kInclude = "#include \"";
  const auto all = embedded_files();
  std::vector<EmbeddedFile> found;
  std::set<std::string_view> names;
  for (std::size_t next = 0;; text = found[next++].text) {
    for (auto at = text.find(kInclude); at != text.npos; at = text.find(kInclude, at)) {
      at += kInclude.size();
      const auto name = text.substr(at, text.find('"', at) - at);
      const auto file = std::ranges::lower_bound(all, name, {}, &EmbeddedFile::name);
      if (file != all.end() && file->name == name && names.insert(name).second)
        found.push_back(*file);
    }
    if (next == found.size()) return found;
  }
}

}  // namespace sinter
