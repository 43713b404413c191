// One atomic counter hands out the pieces, so that uneven ones balance; the caller works along.
#include "reference/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sinter::reference {

int worker_threads() {
  static const int n = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return n;
}

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto run = [&] {
    try {
      for (std::int64_t i; (i = next.fetch_add(1)) < n;) work(i);
    } catch (...) {
      next = n;
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  const auto wanted = std::min<std::int64_t>(worker_threads(), n) - 1;
  for (std::int64_t i = 0; i < wanted; ++i) {
    try {
      threads.emplace_back(run);
    } catch (const std::system_error&) {
      break;  // fewer threads do the same work
    }
  }
  run();
  for (auto& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace sinter::reference
