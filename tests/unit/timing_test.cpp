// Timing where there is no GPU: the clock, the rotation over sets, and errors.
#include "runtime/timing.hpp"

#include <chrono>
#include <set>
#include <thread>

#include "support/catch.hpp"

using namespace sinter;

TEST_CASE("calls on the CPU are timed by the clock and rotate over the sets") {
  std::set<int> sets;
  int calls = 0;
  const auto t = time_calls(Device::cpu(), 3, [&](int set, Stream) -> Status {
    sets.insert(set);
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return Done{};
  });
  REQUIRE(t.ok());
  CHECK(calls == 7);
  CHECK(sets == std::set<int>{0, 1, 2});
  CHECK(t->us >= 2000);
  CHECK(t->us_min <= t->us);
  CHECK(t->us <= t->us_max);
  CHECK_FALSE(t->captured);
}

TEST_CASE("an error of a timed call is the error of the timing") {
  const auto t = time_calls(Device::cpu(), 1, [](int, Stream) -> Status {
    Diagnostic d;
    d.rule = Rule::workspace_size;
    return d;
  });
  REQUIRE_FALSE(t.ok());
  CHECK(t.error().rule == Rule::workspace_size);
}
