// One captured graph of many calls lasts long enough for events to time it, and a call in it costs
// no launch from the host. Where something refuses capture, the same calls are enqueued one by one.
#include "runtime/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "runtime/driver.hpp"
#include "runtime/stream_functions.hpp"

namespace sinter {
namespace {

constexpr double kReplayMs = 20;  // how long one captured graph should last
constexpr int kMaxCalls = 4000;   // in a captured graph
constexpr int kSamples = 7, kFewSamples = 3;
constexpr double kSlowMs = 100;     // a call that is not worth many repetitions
constexpr int kHostLaunches = 256;  // that fit the driver's queue, so that the host never waits

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Timing timing_of(std::vector<double> samples_us) {
  std::sort(samples_us.begin(), samples_us.end());
  Timing t;
  t.us = samples_us[samples_us.size() / 2];
  t.us_min = samples_us.front();
  t.us_max = samples_us.back();
  return t;
}

// A stream, two events and at most one captured graph, on the current context.
class GpuTimer {
 public:
  GpuTimer(const Driver& driver, const StreamFunctions& f, int sets, const TimedCall& call)
      : driver_(driver), f_(f), sets_(sets), call_(call) {}
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;
  ~GpuTimer() {
    drop_graph();
    if (begin_) f_.event_destroy(begin_);
    if (end_) f_.event_destroy(end_);
    if (stream_) f_.stream_destroy(stream_);
  }

  Result<Timing> run();

 private:
  Status checked(const char* call, CUresult r) { return check(driver_, call, r); }
  Status open();
  Status loop(int calls);
  template <class Work>
  Result<double> elapsed_ms(Work&& work);
  int calls_for(double ms_per_call) const;
  bool capture(int calls);  // false where something refuses
  void drop_graph();
  Result<double> host_us(double ms_per_call);

  const Driver& driver_;
  const StreamFunctions& f_;
  int sets_;
  const TimedCall& call_;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUgraphExec graph_ = nullptr;
};

Status GpuTimer::open() {
  auto stream = checked("cuStreamCreate", f_.stream_create(&stream_, CU_STREAM_NON_BLOCKING));
  SINTER_TRY(stream);
  auto begin = checked("cuEventCreate", f_.event_create(&begin_, CU_EVENT_DEFAULT));
  SINTER_TRY(begin);
  return checked("cuEventCreate", f_.event_create(&end_, CU_EVENT_DEFAULT));
}

Status GpuTimer::loop(int calls) {
  for (int i = 0; i < calls; ++i) {
    auto called = call_(i % sets_, stream_);
    SINTER_TRY(called);
  }
  return Done{};
}

template <class Work>
Result<double> GpuTimer::elapsed_ms(Work&& work) {
  auto begun = checked("cuEventRecord", f_.event_record(begin_, stream_));
  SINTER_TRY(begun);
  Status worked = work();
  SINTER_TRY(worked);
  auto ended = checked("cuEventRecord", f_.event_record(end_, stream_));
  SINTER_TRY(ended);
  auto waited = checked("cuEventSynchronize", f_.event_synchronize(end_));
  SINTER_TRY(waited);
  float ms = 0;
  auto read = checked("cuEventElapsedTime", f_.event_elapsed_time(&ms, begin_, end_));
  SINTER_TRY(read);
  return static_cast<double>(ms);
}

// A multiple of the sets that lasts about kReplayMs; fewer where one round over the sets is slow.
int GpuTimer::calls_for(double ms_per_call) const {
  const double wanted = std::min<double>(kMaxCalls, kReplayMs / std::max(ms_per_call, 1e-4));
  if (ms_per_call > kSlowMs) return 1;
  return sets_ * std::max(1, static_cast<int>(std::ceil(wanted / sets_)));
}

void GpuTimer::drop_graph() {
  if (graph_) f_.exec_destroy(graph_);
  graph_ = nullptr;
}

bool GpuTimer::capture(int calls) {
  drop_graph();
  if (f_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS) return false;
  const bool enqueued = loop(calls).ok();
  CUgraph graph = nullptr;
  const bool ended = f_.end_capture(stream_, &graph) == CUDA_SUCCESS;
  const bool ok = enqueued && ended && f_.graph_instantiate(&graph_, graph, 0) == CUDA_SUCCESS;
  if (graph) f_.graph_destroy(graph);
  if (!ok) graph_ = nullptr;
  return ok;
}

Result<double> GpuTimer::host_us(double ms_per_call) {
  std::vector<double> samples;
  const int calls = ms_per_call > kSlowMs ? 1 : kHostLaunches / 8;
  for (int i = 0; i < (ms_per_call > kSlowMs ? 1 : kSamples); ++i) {
    const auto begin = Clock::now();
    auto looped = loop(calls);
    samples.push_back(milliseconds_since(begin) * 1000 / calls);
    SINTER_TRY(looped);
    auto waited = checked("cuStreamSynchronize", f_.stream_synchronize(stream_));
    SINTER_TRY(waited);
  }
  return timing_of(std::move(samples)).us;
}

Result<Timing> GpuTimer::run() {
  auto opened = open();
  SINTER_TRY(opened);
  auto first = elapsed_ms([&] { return loop(1); });
  SINTER_TRY(first);
  const bool slow = *first > kSlowMs;
  if (!slow) {
    auto warm = loop(2 * sets_);
    SINTER_TRY(warm);
  }
  const int guess = slow ? 1 : sets_;
  auto round = elapsed_ms([&] { return loop(guess); });
  SINTER_TRY(round);
  int calls = calls_for(*round / guess);
  auto host = host_us(*round / guess);
  SINTER_TRY(host);

  const auto replay = [&] {
    return graph_ ? checked("cuGraphLaunch", f_.graph_launch(graph_, stream_)) : loop(calls);
  };
  bool captured = capture(calls);
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto uploaded = elapsed_ms(replay);  // the first launch also uploads the graph
    SINTER_TRY(uploaded);
    auto ms = elapsed_ms(replay);
    SINTER_TRY(ms);
    // Once more with more calls where launch gaps misled the first guess.
    const int better = calls_for(*ms / calls);
    if (attempt == 1 || *ms > kReplayMs / 2 || better <= calls) break;
    calls = better;
    captured = captured && capture(calls);
  }
  std::vector<double> samples;
  for (int i = 0; i < (slow ? kFewSamples : kSamples); ++i) {
    auto ms = elapsed_ms(replay);
    SINTER_TRY(ms);
    samples.push_back(*ms * 1000 / calls);
  }
  Timing timing = timing_of(std::move(samples));
  timing.host_us = *host;
  timing.captured = captured;
  return timing;
}

Result<Timing> time_on_cpu(int sets, const TimedCall& call) {
  std::vector<double> samples;
  double total = 0;
  while (samples.empty() || (samples.size() < kSamples && total < 1000)) {
    const auto begin = Clock::now();
    auto called = call(static_cast<int>(samples.size()) % sets, nullptr);
    SINTER_TRY(called);
    const double ms = milliseconds_since(begin);
    total += ms;
    samples.push_back(ms * 1000);
  }
  Timing timing = timing_of(std::move(samples));
  timing.host_us = timing.us;
  return timing;
}

}  // namespace

Result<Timing> time_calls(Device device, int sets, const TimedCall& call) {
  if (device.is_cpu()) return time_on_cpu(sets, call);
  auto d = driver();
  SINTER_TRY(d);
  ContextScope scope;
  auto entered = scope.enter(device.ordinal());
  SINTER_TRY(entered);
  auto functions = stream_functions(**d);
  SINTER_TRY(functions);
  return GpuTimer(**d, *functions, sets, call).run();
}

Result<std::int64_t> cache_bytes(Device device) {
  if (device.is_cpu()) return std::int64_t{0};
  auto d = driver();
  SINTER_TRY(d);
  CUdevice handle = 0;
  auto got = check(**d, "cuDeviceGet", (*d)->device_get(&handle, device.ordinal()));
  SINTER_TRY(got);
  int bytes = 0;
  auto read = check(**d, "cuDeviceGetAttribute",
                    (*d)->device_get_attribute(&bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, handle));
  SINTER_TRY(read);
  return std::int64_t{bytes};
}

}  // namespace sinter
