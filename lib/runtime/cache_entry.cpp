#include "runtime/cache_entry.hpp"

#include <fmt/format.h>

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sinter {
namespace {

constexpr char kMagic[8] = {'S', 'i', 'n', 't', 'e', 'r', 'K', '1'};
constexpr std::uint64_t kCheckSeed = 0x9e3779b97f4a7c15;  // any number but the first hash's zero

struct Header {  // little-endian, as every machine that CUDA runs on
  char magic[8];
  std::uint64_t body_bytes;
  CacheKey key;
  std::uint64_t body_hash[2];
};
static_assert(sizeof(Header) == kCacheHeaderBytes);

Header make_header(const CacheKey& key, std::string_view body) {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.body_bytes = body.size();
  h.key = key;
  const auto hash = XXH3_128bits(body.data(), body.size());
  h.body_hash[0] = hash.low64;
  h.body_hash[1] = hash.high64;
  return h;
}

}  // namespace

std::string CacheKey::hex() const { return fmt::format("{:016x}{:016x}", name[1], name[0]); }

CacheKey cache_key(std::span<const std::string_view> parts) {
  std::string material;
  for (const auto part : parts) {
    const std::uint64_t length = part.size();
    material.append(reinterpret_cast<const char*>(&length), sizeof length);
    material.append(part);
  }
  const auto name = XXH3_128bits(material.data(), material.size());
  const auto check = XXH3_128bits_withSeed(material.data(), material.size(), kCheckSeed);
  return {{name.low64, name.high64}, {check.low64, check.high64}, material.size()};
}

std::string encode_entry(const CacheKey& key, std::string_view body) {
  const Header h = make_header(key, body);
  std::string bytes;
  bytes.reserve(sizeof h + body.size());
  bytes.append(reinterpret_cast<const char*>(&h), sizeof h);
  bytes.append(body);
  return bytes;
}

// The header is a function of key and body, so a whole comparison checks every bit of it.
std::optional<std::string> decode_entry(const CacheKey& key, std::string_view bytes) {
  if (bytes.size() < sizeof(Header)) return std::nullopt;
  const std::string_view body = bytes.substr(sizeof(Header));
  const Header expected = make_header(key, body);
  if (std::memcmp(bytes.data(), &expected, sizeof expected) != 0) return std::nullopt;
  return std::string(body);
}

}  // namespace sinter
