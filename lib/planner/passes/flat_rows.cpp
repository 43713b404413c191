#include "planner/passes/flat_rows.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/packing.hpp"

namespace sinter {
namespace {

// Longer runs are cut into packs where memory is aligned (pointwise_misaligned.cuh). Of `kPack`
// elements, whole packs move already.
constexpr std::int64_t kLongRun = 512, kPack = 4;  // bytes; elements
// Elements that share one of what runs share: fewer are too many look-ups.
constexpr std::int64_t kShared = 8;

// Whether the port steps over all indices from i to `last` as over one.
bool steps_on(const KernelSpec& spec, const Access& a, int i, int last) {
  std::int64_t step = 1;
  for (int d = last; d >= i; --d) {
    if (spec.extent[d] > 1 && a.stride[d] != step) return false;
    step *= spec.extent[d];
  }
  return true;
}

// Where the runs that follow each other begin: the first index that all which moves steps over.
int first_joined(const KernelSpec& spec, int last) {
  const std::int64_t all = count(spec.extent);
  const std::vector<bool> moves = reached_ports(spec);
  int from = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    const Access& a = p.access;
    if (!a.windows.empty() || !a.via.empty() || p.together != 1) return last;
    const bool shared = elements_reached(spec.extent, a) * kShared <= all;
    if (!p.written && (shared || !moves[i])) continue;
    while (from < last && !steps_on(spec, a, from, last)) ++from;
  }
  return from;
}

// The indices, the first ones, of which neighbours may become one: of elements all, of rows that
// lie together those that name a row.
int joinable(const KernelSpec& spec) {
  return std::visit(Overloaded{[&](const PointwiseSpec&) { return spec.extent.size(); },
                               [&](const RowwiseSpec& r) {
                                 const bool plain = r.group <= 1 && !r.any_length &&
                                                    spec.cross_row_reductions.empty();
                                 return plain && rows_lie_together(spec) ? r.outer_rank : 0;
                               },
                               [](const auto&) { return 0; }},
                    spec.family);
}

}  // namespace

void flatten_rows(KernelSpec& spec) {
  const int last = joinable(spec) - 1;
  if (last < 1 || spec.extent[last] % kPack == 0) return;
  const auto is_long = [&](const KernelPort& p) {
    return step(p.access, last) == 1 && spec.extent[last] * info(p.type).bytes >= kLongRun;
  };
  if (std::ranges::any_of(spec.ports, is_long)) return;
  const int from = first_joined(spec, last);
  if (count(spec.extent, from, last + 1) % kPack != 0) return;
  for (int i = last - 1; i >= from; --i) {
    if (!join_indices(spec, i)) return;
    if (spec.as_rowwise()) --spec.rowwise().outer_rank;
  }
}

}  // namespace sinter
