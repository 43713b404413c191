#include "runtime/cache_entry.hpp"

#include "support/catch.hpp"

using namespace sinter;

namespace {

CacheKey entry_key(std::initializer_list<std::string_view> parts) {
  return cache_key(std::span<const std::string_view>(parts.begin(), parts.size()));
}

}  // namespace

TEST_CASE("a cache entry gives back its body") {
  const CacheKey key = entry_key({"source", "sm_90a"});
  for (const std::string& body : {std::string(), std::string("\0x", 2), std::string(70000, 'b')}) {
    const auto read = decode_entry(key, encode_entry(key, body));
    REQUIRE(read);
    CHECK(*read == body);
  }
}

TEST_CASE("a cache entry that is cut anywhere, or longer, is no entry") {
  const CacheKey key = entry_key({"source"});
  const std::string entry = encode_entry(key, "machine code");
  for (std::size_t length = 0; length < entry.size(); ++length)
    CHECK_FALSE(decode_entry(key, std::string_view(entry).substr(0, length)));
  CHECK_FALSE(decode_entry(key, entry + '\0'));
}

TEST_CASE("a cache entry with any one bit flipped is no entry") {
  const CacheKey key = entry_key({"source"});
  const std::string entry = encode_entry(key, "machine code");
  REQUIRE(entry.size() == kCacheHeaderBytes + 12);
  for (std::size_t bit = 0; bit < entry.size() * 8; ++bit) {
    std::string damaged = entry;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    CHECK_FALSE(decode_entry(key, damaged));
  }
}

TEST_CASE("a cache entry of another key is no entry, even where the file's name agrees") {
  const CacheKey key = entry_key({"source"});
  CacheKey same_name = entry_key({"other source"});
  same_name.name[0] = key.name[0];
  same_name.name[1] = key.name[1];
  CHECK_FALSE(decode_entry(key, encode_entry(same_name, "machine code")));
}

TEST_CASE("cache keys differ by every part and by where a part ends") {
  const CacheKey key = entry_key({"ab", "c"});
  CHECK(key == entry_key({"ab", "c"}));
  CHECK(key != entry_key({"a", "bc"}));
  CHECK(key != entry_key({"ab", "c", ""}));
  CHECK(key != entry_key({"ab", "d"}));
  CHECK(key.hex() != entry_key({"a", "bc"}).hex());
  CHECK(key.hex().size() == 32);
  CHECK(key.hex().find_first_not_of("0123456789abcdef") == std::string::npos);
}
