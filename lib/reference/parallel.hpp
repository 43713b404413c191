// Runs independent pieces of work on all cores.
#pragma once
#include <cstdint>
#include <functional>

namespace sinter::reference {

// Calls work(i) for every i in [0, n), in no particular order. The first exception is thrown on in
// the caller after all threads have ended.
void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& work);

int worker_threads();

}  // namespace sinter::reference
