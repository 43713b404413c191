#include "runtime/free_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "runtime/driver.hpp"

namespace sinter {
namespace {

// /proc/meminfo has lines such as "MemAvailable:   123456 kB".
std::int64_t host_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string field, unit;
  std::int64_t kilobytes = 0, available = -1, swap = 0, bytes = 0;
  while (meminfo >> field >> kilobytes) {
    std::getline(meminfo, unit);
    if (field == "MemAvailable:") available = kilobytes;
    if (field == "SwapFree:") swap = kilobytes;
  }
  if (available >= 0)
    bytes = (available + swap) * 1024;
  else  // no /proc: all that the machine has
    bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::int64_t limit = 0;
  if (std::ifstream group("/sys/fs/cgroup/memory.max"); group >> limit)  // or the word "max"
    bytes = std::min(bytes, limit);
  return bytes;
}

}  // namespace

Result<std::int64_t> free_memory(Device device) {
  if (device.is_cpu()) return host_bytes();
  auto d = driver();
  SINTER_TRY(d);
  ContextScope scope;
  auto entered = scope.enter(device.ordinal());
  SINTER_TRY(entered);
  std::size_t free = 0, total = 0;
  auto got = check(**d, "cuMemGetInfo", (*d)->mem_get_info(&free, &total));
  SINTER_TRY(got);
  return static_cast<std::int64_t>(free);
}

}  // namespace sinter
