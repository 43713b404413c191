// Memory for the tensors of a plan, on the host or on a device, and the check of what a plan wrote.
#pragma once
#include <span>
#include <vector>

#include "plan/plan_data.hpp"
#include "reference/reference.hpp"
#include "sinter/compile.hpp"

namespace sinter::cli {

// One memory for each tensor of the plan, in the plan's order and in the tensors' stride layout.
class TensorSet {
 public:
  // Refused by Rule::memory where it cannot be held, see check_room.
  static Result<TensorSet> allocate(std::span<const PlanTensor> tensors, Device device);

  void* pointer(std::size_t i) const { return memories_[i].data(); }
  std::vector<Binding> bindings() const;
  Status copy_from(const TensorSet& host);  // everything; `host` lies on the CPU
  Status copy_outputs_to(TensorSet& host) const;
  // Bytes that are NaN in every floating format, so that an element nobody writes is noticed.
  void spoil_outputs();

 private:
  std::span<const PlanTensor> tensors_;
  std::vector<Memory> memories_;
};

// Whether memory for the tensors and a workspace is free on the device; else a diagnostic that
// names the largest tensors, what they need and what there is. Nothing is allocated.
Status check_room(std::span<const PlanTensor> tensors, std::int64_t workspace_bytes, Device device);

// Fills every input with values that fit its role, from the seed (GRAPH_JSON.md, "random inputs").
Status fill_set(const Graph& graph, std::span<const PlanTensor> tensors, std::uint64_t seed,
                TensorSet& host);

// For timing: as many sets as keep the inputs of one call out of the cache, fewer where memory
// ends. The last set's values stay in `host`.
Result<std::vector<TensorSet>> rotating_sets(const Graph& graph,
                                             std::span<const PlanTensor> tensors, Device device,
                                             TensorSet& host);

struct Checked {
  std::string name;
  Comparison comparison;
  std::int64_t elements = 0;  // that the output has
};
// Each output against the float64 reference. At most `samples` elements each; 0 means all.
Result<std::vector<Checked>> check_outputs(const Graph& graph, std::span<const PlanTensor> tensors,
                                           const TensorSet& host, std::int64_t samples);
// Runs the plan on `set`, whose inputs `host` holds as well, and judges all outputs.
Result<Comparison> run_and_check(const Graph& graph, const Executable& executable,
                                 const TensorSet& set, Workspace workspace, TensorSet& host,
                                 std::int64_t samples);

// How many elements of each output to judge where the user does not say.
struct CheckEffort {
  std::int64_t samples = 0;  // of each output; 0: all
  double steps = 0;          // of the reference, about 10^9 a second on one core
  bool bearable = true;      // false: even the fewest samples take an hour of one core
};
// The most that takes seconds: all elements of small graphs, 4096 of large ones, fewer where each
// depends on much (a row of a softmax, the layers of a network in front of it).
CheckEffort check_effort(const Graph& graph, const PlanData& plan);

}  // namespace sinter::cli
