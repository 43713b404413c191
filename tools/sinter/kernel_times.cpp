// Each kernel is a plan of its own, on the tensors and the workspace of the whole one. It is timed
// once those before it have run, so that it reads what it reads in the whole plan: kernels follow
// tables that others compute.
#include "kernel_times.hpp"

#include <fmt/format.h>

#include "console.hpp"
#include "plan/plan_data.hpp"
#include "runtime/timing.hpp"
#include "tensors.hpp"

namespace sinter::cli {
namespace {

Plan alone(const PlanData& plan, std::size_t kernel) {
  PlanData one = plan;
  one.kernels = {plan.kernels[kernel]};
  return Plan(Shared<const PlanData>::make(std::move(one)));
}

}  // namespace

Result<std::vector<double>> kernel_times(Graph& graph, const Plan& plan, Device device) {
  const PlanData& data = plan.data();
  auto host = TensorSet::allocate(data.tensors, Device::cpu());
  SINTER_TRY(host);
  auto sets = rotating_sets(graph, data.tensors, device, *host);
  SINTER_TRY(sets);
  std::vector<std::vector<Binding>> bindings;
  for (const auto& s : *sets) bindings.push_back(s.bindings());
  auto workspace = Memory::allocate(device, data.workspace_bytes);
  SINTER_TRY(workspace);
  const Workspace scratch = *workspace;
  std::vector<double> times;
  for (std::size_t k = 0; k < data.kernels.size(); ++k) {
    const Progress progress(fmt::format("timing kernel {} of {}", k + 1, data.kernels.size()));
    auto kernel = load(alone(data, k), device);
    SINTER_TRY(kernel);
    for (const auto& b : bindings) {
      auto ready = kernel->execute(nullptr, b, scratch);
      SINTER_TRY(ready);
    }
    auto timing =
        time_calls(device, static_cast<int>(bindings.size()), [&](int set, Stream stream) {
          return kernel->execute(stream, bindings[static_cast<std::size_t>(set)], scratch);
        });
    SINTER_TRY(timing);
    times.push_back(timing->us);
  }
  return times;
}

}  // namespace sinter::cli
