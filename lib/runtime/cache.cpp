#include "runtime/cache.hpp"

#include <exception>

namespace sinter {
namespace {

constexpr std::size_t kMemoryLimit = std::size_t{64} << 20;

// Whatever happens, the threads that wait must get an answer.
Result<std::string> guarded(const std::function<Result<std::string>()>& make) {
  try {
    return make();
  } catch (const std::exception& e) {
    return Diagnostic{.rule = Rule::compiler_error, .seen = e.what()};
  }
}

}  // namespace

Result<std::string> KernelCache::get(const CacheKey& key, const Make& make) {
  std::shared_ptr<Slot> slot;
  {
    std::unique_lock lock(mutex_);
    auto& place = slots_[key];
    if (place) {
      slot = place;
      finished_.wait(lock, [&] { return slot->done; });
      return slot->result;
    }
    slot = place = std::make_shared<Slot>();
  }
  bool from_disk = false;
  auto result = guarded([&]() -> Result<std::string> {
    if (auto body = disk_.read(key)) return from_disk = true, std::move(*body);
    return make();
  });
  {
    const std::lock_guard lock(mutex_);
    slot->result = result;
    slot->done = true;
    if (result)
      keep(key, result->size());
    else
      slots_.erase(key);
  }
  finished_.notify_all();
  if (result && !from_disk) disk_.write(key, *result);
  return result;
}

void KernelCache::keep(const CacheKey& key, std::size_t bytes) {
  order_.push_back(key);
  kept_bytes_ += bytes;
  while (kept_bytes_ > kMemoryLimit && order_.size() > 1) {
    const auto oldest = slots_.find(order_.front());
    kept_bytes_ -= oldest->second->result->size();
    slots_.erase(oldest);
    order_.pop_front();
  }
}

KernelCache& kernel_cache() {
  static auto* cache = new KernelCache(cache_config_from_environment());
  return *cache;
}

}  // namespace sinter
