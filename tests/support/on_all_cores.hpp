#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace sinter::test {

// Calls `what` with each number below `count`, on as many threads as there are cores.
inline void on_all_cores(std::size_t count, const std::function<void(std::size_t)>& what) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads(
      std::min<std::size_t>(count, std::max(1u, std::thread::hardware_concurrency())));
  for (auto& thread : threads)
    thread = std::thread([&] {
      for (std::size_t i; (i = next++) < count;) what(i);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace sinter::test
