// Workspace by lifetime: first fit in the order of first use.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "plan/workspace_alignment.hpp"
#include "planner/planner.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 61;  // a tensor has 2^60 bytes at most

}  // namespace

void place_workspace(const Graph& lowered, Partition& p) {
  auto& tensors = p.lifetimes;
  std::unordered_map<TensorId, std::size_t> places;
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    for (const auto& port : p.kernels[k].ports) {
      const auto temporary = p.temporaries.find(port.tensor);
      const bool ours = temporary != p.temporaries.end();
      if (!ours && !lowered.is_virtual(port.tensor)) continue;
      if (p.kept.contains(port.tensor)) continue;
      const auto [place, fresh] = places.try_emplace(port.tensor, tensors.size());
      if (fresh) {
        const auto bytes =
            ours ? temporary->second
                 : span_elements(lowered[port.tensor].dim, lowered.stride(port.tensor)) *
                       info(port.type).bytes;
        tensors.push_back({port.tensor, port.name, port.type, bytes, static_cast<int>(k), 0});
      }
      tensors[place->second].last = static_cast<int>(k);
    }
  using Bytes = std::pair<std::int64_t, std::int64_t>;  // begin, end
  std::set<std::pair<Bytes, TensorId>> busy;
  std::multimap<int, std::pair<Bytes, TensorId>> by_last;  // of those: the kernel that ends it
  for (const auto& t : tensors) {
    while (!by_last.empty() && by_last.begin()->first < t.first) {
      busy.erase(by_last.begin()->second);
      by_last.erase(by_last.begin());
    }
    std::int64_t at = 0;
    for (const auto& [bytes, tensor] : busy) {
      if (at + t.bytes <= bytes.first) break;
      at = std::max(
          at, (bytes.second + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
    }
    // More than any memory is: who allocates it is told so.
    at = std::min(at, kMost);
    const std::pair<Bytes, TensorId> placed{{at, at + t.bytes}, t.tensor};
    busy.insert(placed);
    by_last.emplace(t.last, placed);
    p.workspace[t.tensor] = at;
    p.workspace_bytes = std::max(p.workspace_bytes, at + t.bytes);
  }
}

}  // namespace sinter
