// The kernel cache: memory in front of the disk, and one compilation per key however many threads
// ask for it at once. A failure reaches everybody who waits for it and is not kept, because the
// compiler reports a lack of memory like a mistake in the source.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/disk_cache.hpp"
#include "sinter/base/result.hpp"

namespace sinter {

class KernelCache {
 public:
  explicit KernelCache(CacheConfig config) : disk_(std::move(config)) {}

  using Make = std::function<Result<std::string>()>;
  Result<std::string> get(const CacheKey& key, const Make& make);
  CacheStatus status() const { return disk_.status(); }

 private:
  struct Slot {
    bool done = false;
    Result<std::string> result = std::string();
  };
  void keep(const CacheKey& key, std::size_t bytes);

  DiskCache disk_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::map<CacheKey, std::shared_ptr<Slot>> slots_;
  std::deque<CacheKey> order_;  // of the finished slots, oldest first
  std::size_t kept_bytes_ = 0;
};

// The process's cache, configured by the environment at the first call.
KernelCache& kernel_cache();

}  // namespace sinter
