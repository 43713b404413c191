// How long a call takes on a device: the median over replays of a captured graph of many calls, as
// repeated launches are timed without the launches' own cost on the host.
#pragma once
#include <functional>

#include "sinter/compile.hpp"

namespace sinter {

struct Timing {
  double us = 0, us_min = 0, us_max = 0;  // per call: median, least and most of the samples
  double host_us = 0;                     // that the caller's thread spends per call
  bool captured = false;                  // else timed by events, or on the CPU by the clock
};

// Enqueues one call on the stream. Calls with different sets touch different memory, so that
// rotating over them leaves nothing useful in the cache.
using TimedCall = std::function<Status(int set, Stream stream)>;

Result<Timing> time_calls(Device device, int sets, const TimedCall& call);

// Bytes of the device's second-level cache; 0 on the CPU.
Result<std::int64_t> cache_bytes(Device device);

}  // namespace sinter
