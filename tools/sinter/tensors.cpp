// The user's graph, the plan and the lowered graph number their tensors differently; names join
// them.
#include "tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "console.hpp"
#include "lower/lower.hpp"
#include "reference/fills.hpp"
#include "runtime/timing.hpp"
#include "work.hpp"

namespace sinter::cli {
namespace {

std::map<std::string_view, TensorId> ids_by_name(const Graph& graph) {
  std::map<std::string_view, TensorId> ids;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i)
    ids.emplace(graph.tensors()[i].name, static_cast<TensorId>(i));
  return ids;
}

}  // namespace

Result<TensorSet> TensorSet::allocate(std::span<const PlanTensor> tensors, Device device) {
  TensorSet set;
  set.tensors_ = tensors;
  for (const auto& t : tensors) {
    auto memory = Memory::allocate(device, t.bytes);
    SINTER_TRY(memory);
    if (device.is_cpu()) std::memset(memory->data(), 0, static_cast<std::size_t>(t.bytes));
    set.memories_.push_back(std::move(*memory));
  }
  return set;
}

std::vector<Binding> TensorSet::bindings() const {
  std::vector<Binding> bindings;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    bindings.emplace_back(tensors_[i].name, pointer(i));
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
  const auto ids = ids_by_name(graph);
  HostPointers memory;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const auto found = ids.find(tensors[i].name); !tensors[i].written && found != ids.end())
      memory[found->second] = host.pointer(i);
  return fill_inputs(graph, Fill::normal, seed, memory);
}

Result<std::vector<Checked>> check_outputs(const Graph& graph, std::span<const PlanTensor> tensors,
                                           const TensorSet& host, std::int64_t samples) {
  const Lowered lowered = lower(graph);
  const auto ids = ids_by_name(*lowered.graph);
  HostPointers inputs;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const auto found = ids.find(tensors[i].name); !tensors[i].written && found != ids.end())
      inputs[found->second] = host.pointer(i);
  std::vector<Checked> results;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].written) continue;
    auto compared =
        compare(*lowered.graph, inputs, ids.at(tensors[i].name), host.pointer(i), samples);
    SINTER_TRY(compared);
    results.push_back({tensors[i].name, std::move(*compared)});
  }
  return results;
}

std::int64_t usual_samples(const PlanData& plan) {
  constexpr double kSeconds = 2e8;  // of element operations that the reference does in seconds
  double work = 0;
  for (const auto& k : plan.kernels) work += k.flops + static_cast<double>(k.bytes);
  return work < kSeconds ? 0 : 4096;
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
