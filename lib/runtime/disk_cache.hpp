// Compiled kernels on disk, one self-checking file each, shared by any number of processes. A file
// appears by rename only, so a process that is killed leaves at worst a temporary file, which is
// swept by age. Machine code is run, so the directory must be ours alone: it is opened once per
// operation as a descriptor, checked through it, and entries are reached through it only. Nothing
// here fails a build: what cannot be read is a miss, what cannot be written is not kept.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/cache_entry.hpp"

namespace sinter {

struct CacheConfig {
  std::string directory;  // empty: nothing is kept on disk
  std::string why_none;   // why it is empty
  std::int64_t limit_bytes = std::int64_t{512} << 20;
};
// SINTER_CACHE, SINTER_CACHE_DIR, SINTER_CACHE_LIMIT_MB, XDG_CACHE_HOME, HOME.
CacheConfig cache_config_from_environment();

struct CacheStatus {
  std::string directory;
  bool usable = false;
  std::string reason;  // why not
  std::int64_t entries = 0, bytes = 0, limit_bytes = 0;
};

class DiskCache {
 public:
  explicit DiskCache(CacheConfig config) : config_(std::move(config)) {}

  std::optional<std::string> read(const CacheKey& key) const;
  bool write(const CacheKey& key, std::string_view body);
  CacheStatus status() const;

 private:
  void sweep(int directory, std::int64_t written);
  CacheConfig config_;
  std::atomic<std::int64_t> since_sweep_{-1};  // bytes written; negative: none was made yet
};

}  // namespace sinter
