// One entry of the kernel cache as bytes: a header with the key and a hash of the body, then the
// body. Whatever is wrong with the bytes, decoding gives nothing; it never gives another body.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sinter {

// Two hashes of the same material with different seeds: the first names the file, the second and
// the length tell apart what the first confuses.
struct CacheKey {
  std::uint64_t name[2] = {}, check[2] = {}, length = 0;
  bool operator==(const CacheKey&) const = default;
  auto operator<=>(const CacheKey&) const = default;
  std::string hex() const;  // of `name`: 32 digits
};

// Every fact that the body depends on; a part cannot run into the next one.
CacheKey cache_key(std::span<const std::string_view> parts);

inline constexpr std::size_t kCacheHeaderBytes = 72;

std::string encode_entry(const CacheKey& key, std::string_view body);
std::optional<std::string> decode_entry(const CacheKey& key, std::string_view bytes);

}  // namespace sinter
