#include "planner/passes/siblings.hpp"

#include <algorithm>
#include <utility>

#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr double kSmall = 2 << 20;                    // bytes that a kernel moves
constexpr std::size_t kPorts = 12, kStatements = 64;  // of the merged kernel

bool reads_only_here(const Statement& s) {
  switch (s.kind) {
    case StatementKind::random:
    case StatementKind::gather:
    case StatementKind::column:
    case StatementKind::accumulator:
      return false;
    default:
      return true;
  }
}

// Whether the kernel may be merged with another one.
bool is_small(const KernelSpec& spec, const Graph& lowered, std::span<const Alias> aliases) {
  if (!spec.gathers.empty() || !spec.columns.empty() || bytes_moved(spec) > kSmall) return false;
  if (!spec.as_pointwise() && !spec.as_rowwise()) return false;
  if (const RowwiseSpec* const r = spec.as_rowwise();
      r && (r->group > 1 || r->segment > 0 || r->num_partials > 0))
    return false;
  for (const auto& p : spec.ports) {
    for (const Alias& a : aliases)
      if (p.tensor == a.input || p.tensor == a.output) return false;
    // prepare() takes whole kernels that read constants alone.
    if (p.tensor < static_cast<TensorId>(lowered.tensors().size()) && lowered[p.tensor].constant)
      return false;
  }
  return std::ranges::all_of(spec.body.statements, reads_only_here);
}

bool alike(const KernelSpec& a, const KernelSpec& b) {
  if (a.extent != b.extent || a.family.index() != b.family.index()) return false;
  if (a.as_pointwise()) return true;
  const RowwiseSpec &r = a.rowwise(), &s = b.rowwise();
  return r.outer_rank == s.outer_rank && r.phases == s.phases &&
         r.combines_partials == s.combines_partials && r.any_length == s.any_length &&
         rows_lie_together(a) == rows_lie_together(b);
}

bool writes_for(const KernelSpec& a, const KernelSpec& b) {
  return std::ranges::any_of(a.ports, [&](const KernelPort& p) {
    return p.written &&
           std::ranges::any_of(b.ports, [&](const KernelPort& q) { return q.tensor == p.tensor; });
  });
}

void append(KernelSpec& to, const KernelSpec& from) {
  std::vector<int> ports;
  for (const auto& p : from.ports) {
    const auto same = std::ranges::find_if(to.ports, [&](const KernelPort& q) {
      return !p.written && !q.written && q.tensor == p.tensor && q.access == p.access &&
             q.together == p.together;
    });
    ports.push_back(static_cast<int>(same - to.ports.begin()));
    if (same == to.ports.end()) to.ports.push_back(p);
  }
  const int values = static_cast<int>(to.body.statements.size()),
            scalars = static_cast<int>(to.scalars.size());
  to.scalars.insert(to.scalars.end(), from.scalars.begin(), from.scalars.end());
  int reductions = 0;
  if (to.as_rowwise()) {
    auto& all = to.rowwise().reductions;
    reductions = static_cast<int>(all.size());
    all.insert(all.end(), from.rowwise().reductions.begin(), from.rowwise().reductions.end());
  }
  for (Statement s : from.body.statements) {
    for (int& a : s.args) a += values;
    switch (s.kind) {
      case StatementKind::load:
      case StatementKind::store:
      case StatementKind::inside:
        s.port = ports[static_cast<std::size_t>(s.port)];
        break;
      case StatementKind::scalar:
        s.port += scalars;
        break;
      case StatementKind::reduced:
      case StatementKind::partial:
      case StatementKind::reduce:
        s.port += reductions;
        break;
      default:
        break;
    }
    to.body.statements.push_back(std::move(s));
  }
  to.nodes.insert(to.nodes.end(), from.nodes.begin(), from.nodes.end());
}

}  // namespace

void merge_siblings(std::vector<KernelSpec>& kernels, const Graph& lowered,
                    std::span<const Alias> aliases) {
  std::vector<KernelSpec> merged;
  for (auto& k : kernels) {
    KernelSpec* const before = merged.empty() ? nullptr : &merged.back();
    if (before && is_small(*before, lowered, aliases) && is_small(k, lowered, aliases) &&
        alike(*before, k) && before->ports.size() + k.ports.size() <= kPorts &&
        before->body.statements.size() + k.body.statements.size() <= kStatements &&
        !writes_for(*before, k) && !writes_for(k, *before))
      append(*before, k);
    else
      merged.push_back(std::move(k));
  }
  kernels = std::move(merged);
}

}  // namespace sinter
