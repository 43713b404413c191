// The user's graph, the plan and the lowered graph number their tensors differently; names join
// them.
#include "tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "console.hpp"
#include "documents.hpp"
#include "lower/lower.hpp"
#include "plan/tensor_names.hpp"
#include "reference/fills.hpp"
#include "runtime/bindings.hpp"
#include "runtime/free_memory.hpp"
#include "runtime/timing.hpp"
#include "work.hpp"

namespace sinter::cli {
namespace {

// Where the inputs of a graph lie that has the plan's.
HostPointers inputs_of(const TensorNames& names, std::span<const PlanTensor> tensors,
                       const TensorSet& host) {
  HostPointers inputs;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const TensorId t = names.find(tensors[i].name); !tensors[i].written && t >= 0)
      inputs[t] = host.pointer(i);
  return inputs;
}

}  // namespace

Status check_room(std::span<const PlanTensor> tensors, std::int64_t workspace_bytes,
                  Device device) {
  constexpr std::size_t kNamed = 4;
  const auto available = free_memory(device);
  SINTER_TRY(available);
  double total = static_cast<double>(workspace_bytes);  // a sum of many 2^60 is no 64-bit integer
  for (const auto& t : tensors) total += static_cast<double>(t.bytes);
  if (total <= static_cast<double>(*available)) return Done{};
  std::vector<const PlanTensor*> largest;
  for (const auto& t : tensors) largest.push_back(&t);
  std::stable_sort(largest.begin(), largest.end(),
                   [](auto* a, auto* b) { return a->bytes > b->bytes; });
  Diagnostic d;
  d.rule = Rule::memory;
  d.attribute = "on " + device_name(device);
  for (std::size_t i = 0; i < std::min(largest.size(), kNamed); ++i)
    d.seen += fmt::format("'{}' {} {}: {} bytes, ", detail::shortened(largest[i]->name, 80),
                          name(largest[i]->type), to_string(largest[i]->dim), largest[i]->bytes);
  if (largest.size() > kNamed) d.seen += fmt::format("{} more, ", largest.size() - kNamed);
  d.seen += fmt::format("workspace: {} bytes, in all {:.0f}", workspace_bytes, total);
  d.allowed = fmt::format("{} bytes, which are free", *available);
  return d;
}

Result<TensorSet> TensorSet::allocate(std::span<const PlanTensor> tensors, Device device) {
  auto room = check_room(tensors, 0, device);
  SINTER_TRY(room);
  TensorSet set;
  set.tensors_ = tensors;
  for (const auto& t : tensors) {
    auto memory = Memory::allocate(t.by_value ? Device::cpu() : device, t.bytes);
    SINTER_TRY(memory);
    if (device.is_cpu() || t.by_value)
      std::memset(memory->data(), 0, static_cast<std::size_t>(t.bytes));
    set.memories_.push_back(std::move(*memory));
  }
  return set;
}

std::vector<Binding> TensorSet::bindings() const {
  std::vector<Binding> bindings;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    bindings.push_back(binding_of(tensors_[i], pointer(i)));
  return bindings;
}

Status TensorSet::copy_from(const TensorSet& host) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto copied = memories_[i].copy_in(host.pointer(i), tensors_[i].bytes);
    SINTER_TRY(copied);
  }
  return Done{};
}

Status TensorSet::copy_outputs_to(TensorSet& host) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].written) continue;
    auto copied = memories_[i].copy_out(host.pointer(i), tensors_[i].bytes);
    SINTER_TRY(copied);
  }
  return Done{};
}

void TensorSet::spoil_outputs() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].written)
      std::memset(pointer(i), 0xff, static_cast<std::size_t>(tensors_[i].bytes));
}

Status fill_set(const Graph& graph, std::span<const PlanTensor> tensors, std::uint64_t seed,
                TensorSet& host) {
  return fill_inputs(graph, Fill::normal, seed, inputs_of(TensorNames(graph), tensors, host));
}

Result<std::vector<Checked>> check_outputs(const Graph& graph, std::span<const PlanTensor> tensors,
                                           const TensorSet& host, std::int64_t samples) {
  const Lowered lowered = lower(graph);
  const TensorNames names(*lowered.graph);
  std::vector<Written> written;
  std::vector<Checked> results;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].written) continue;
    written.push_back({names.find(tensors[i].name), host.pointer(i)});
    results.push_back({tensors[i].name, {}, count(tensors[i].dim)});
  }
  auto compared = compare(*lowered.graph, inputs_of(names, tensors, host), written, samples);
  SINTER_TRY(compared);
  for (std::size_t i = 0; i < results.size(); ++i)
    results[i].comparison = std::move((*compared)[i]);
  return results;
}

CheckEffort check_effort(const Graph& graph, const PlanData& plan) {
  constexpr double kLargeWork = 2e8;    // operations and bytes of the kernels
  constexpr double kSeconds = 1e10;     // steps
  constexpr double kBearable = 3.6e12;  // an hour of one core
  double work = 0;
  for (const auto& k : plan.kernels) work += k.flops + static_cast<double>(k.bytes);
  const Lowered lowered = lower(graph);
  const TensorNames names(*lowered.graph);
  std::vector<TensorId> outputs;
  for (const auto& t : plan.tensors)
    if (t.written) outputs.push_back(names.find(t.name));
  CheckEffort effort;
  for (const std::int64_t samples : {0, 4096, 1024, 256, 64, 16}) {
    if (samples == 0 && work >= kLargeWork) continue;
    effort = {samples, compare_cost(*lowered.graph, outputs, samples)};
    if (effort.steps <= kSeconds) return effort;
  }
  effort.bearable = effort.steps <= kBearable;
  return effort;
}

Result<std::vector<TensorSet>> rotating_sets(const Graph& graph,
                                             std::span<const PlanTensor> tensors, Device device,
                                             TensorSet& host) {
  constexpr int kMaxSets = 8;
  constexpr double kCacheRounds = 3;  // the sets together are this much larger than the cache
  constexpr std::int64_t kUsualCache = std::int64_t{60} << 20;
  const Progress progress("preparing the inputs");
  auto cache = cache_bytes(device);
  SINTER_TRY(cache);
  const double wanted = kCacheRounds * static_cast<double>(std::max(*cache, kUsualCache)) /
                        static_cast<double>(std::max<std::int64_t>(1, input_bytes(graph)));
  const int count =
      device.is_cpu() ? 1 : std::clamp(static_cast<int>(std::ceil(wanted)), 1, kMaxSets);
  std::vector<TensorSet> sets;
  for (int i = count - 1; i >= 0; --i) {
    auto set = TensorSet::allocate(tensors, device);
    if (!set && !sets.empty()) break;
    SINTER_TRY(set);
    auto filled = fill_set(graph, tensors, static_cast<std::uint64_t>(i), host);
    SINTER_TRY(filled);
    host.spoil_outputs();
    auto copied = set->copy_from(host);
    SINTER_TRY(copied);
    sets.push_back(std::move(*set));
  }
  return sets;
}

Result<Comparison> run_and_check(const Graph& graph, const Executable& executable,
                                 const TensorSet& set, Workspace workspace, TensorSet& host,
                                 std::int64_t samples) {
  auto executed = executable.execute(nullptr, set.bindings(), workspace);
  SINTER_TRY(executed);
  auto finished = synchronize(executable.device());
  SINTER_TRY(finished);
  auto copied = set.copy_outputs_to(host);
  SINTER_TRY(copied);
  const auto results = check_outputs(graph, executable.plan().data().tensors, host, samples);
  SINTER_TRY(results);
  Comparison all;
  for (const auto& r : *results) all.merge(r.comparison);
  return all;
}

}  // namespace sinter::cli
