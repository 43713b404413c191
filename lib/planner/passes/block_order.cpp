#include "planner/passes/block_order.hpp"

#include <map>

#include "planner/kernel_work.hpp"

namespace sinter {
namespace {

// Of the second-level cache: the least that two kernels both move for a part of it not to be there
// any more when the second one begins, and the most that kernels in between may have moved.
constexpr std::int64_t kOfCache = 2, kBetween = 8;

// Its blocks may run in either order.
bool has_order(const KernelSpec& spec) {
  return spec.gathers.empty() &&
         std::visit(Overloaded{[](const PointwiseSpec& p) { return !p.beside_before; },
                               [](const RowwiseSpec& r) { return r.num_partials == 0; },
                               [](const auto&) { return false; }},
                    spec.family);
}

}  // namespace

void order_blocks(std::vector<KernelSpec>& kernels, const Graph& lowered,
                  const PlanContext& context) {
  const std::int64_t cache = context.device.l2_bytes;
  if (!context.decisions.decide(Decisions::Kind::from_end, 0,
                                [&] { return cache > 0 && !context.of_class; }))
    return;
  struct Moved {
    std::int64_t end = 0;  // by this kernel and all before it
    bool from_end = false;
  };
  std::vector<Moved> before;
  std::map<TensorId, std::size_t> last;  // the kernel that read or wrote a tensor last
  for (KernelSpec& spec : kernels) {
    const std::int64_t begin = before.empty() ? 0 : before.back().end;
    std::map<std::size_t, std::int64_t> shared;  // bytes, by kernel
    Moved own{begin};
    for (const Traffic& t : compulsory_traffic(lowered, spec)) {
      own.end += t.bytes;
      const auto [found, first] = last.try_emplace(t.tensor, before.size());
      if (first || found->second == before.size()) continue;
      shared[found->second] += t.bytes;
      found->second = before.size();
    }
    if (has_order(spec))
      for (const auto& [kernel, bytes] : shared)
        if (bytes >= cache / kOfCache && begin - before[kernel].end <= cache / kBetween)
          spec.from_end = !before[kernel].from_end;
    own.from_end = spec.from_end;
    before.push_back(own);
  }
}

}  // namespace sinter
