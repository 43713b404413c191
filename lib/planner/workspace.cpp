// Workspace by lifetime: first fit in the order of first use.
#include <algorithm>

#include "planner/planner.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kAlignment = 256;

struct Lifetime {
  TensorId tensor;
  std::int64_t bytes;
  int first, last;
  std::int64_t offset = 0;
};

}  // namespace

void place_workspace(const Graph& lowered, Partition& p) {
  std::vector<Lifetime> alive;
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    for (const auto& port : p.kernels[k].ports) {
      const auto temporary = p.temporaries.find(port.tensor);
      const bool ours = temporary != p.temporaries.end();
      if (!ours && !lowered.is_virtual(port.tensor)) continue;
      const auto same = [&](const Lifetime& l) { return l.tensor == port.tensor; };
      auto it = std::find_if(alive.begin(), alive.end(), same);
      if (it == alive.end()) {
        const auto bytes = ours ? temporary->second
                                : span_elements(lowered[port.tensor].dim,
                                                lowered.stride(port.tensor)) *
                                      info(port.type).bytes;
        alive.push_back({port.tensor, bytes, static_cast<int>(k), 0});
        it = alive.end() - 1;
      }
      it->last = static_cast<int>(k);
    }
  std::vector<Lifetime> placed;
  for (auto& l : alive) {
    std::vector<std::pair<std::int64_t, std::int64_t>> busy;
    for (const auto& o : placed)
      if (o.first <= l.last && l.first <= o.last) busy.emplace_back(o.offset, o.offset + o.bytes);
    std::sort(busy.begin(), busy.end());
    std::int64_t at = 0;
    for (const auto& [begin, end] : busy) {
      if (at + l.bytes <= begin) break;
      at = std::max(at, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    l.offset = at;
    placed.push_back(l);
    p.workspace[l.tensor] = at;
    p.workspace_bytes = std::max(p.workspace_bytes, at + l.bytes);
  }
}

}  // namespace sinter
