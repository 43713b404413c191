#include "planner/passes/siblings.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/access.hpp"
#include "schedule/pointwise/pointwise.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr double kSmall = 2 << 20;  // bytes that a kernel moves
struct Most {                       // of the merged kernel
  std::size_t ports, statements;
};
// (Updates: as many statements as a kernel has nodes at the most, and their tensors.)
constexpr Most kOfSmall{12, 64}, kOfUpdates{28, 160};

bool reads_only_here(const Statement& s) {
  switch (s.kind) {
    case StatementKind::random:
    case StatementKind::gather:
    case StatementKind::cross_row_reduce:
    case StatementKind::accumulator:
      return false;
    default:
      return true;
  }
}

bool is_of_graph(const KernelPort& p, const Graph& lowered) {
  return p.tensor < static_cast<TensorId>(lowered.tensors().size());
}

// Whether the kernel may be merged with another one.
bool may_be_merged(const KernelSpec& spec, const Graph& lowered) {
  if (!spec.gathers.empty() || !spec.cross_row_reductions.empty()) return false;
  const bool of_family =
      std::visit(Overloaded{[](const PointwiseSpec& p) { return !p.beside_before; },
                            [](const RowwiseSpec& r) {
                              return r.group <= 1 && r.segment == 0 && r.num_partials == 0;
                            },
                            [](const auto&) { return false; }},
                 spec.family);
  if (!of_family) return false;
  // prepare() takes whole kernels that read constants alone.
  for (const KernelPort& p : spec.ports)
    if (is_of_graph(p, lowered) && lowered[p.tensor].constant) return false;
  return std::ranges::all_of(spec.body.statements, reads_only_here);
}

bool is_small(const KernelSpec& spec, std::span<const Alias> aliases) {
  if (bytes_moved(spec) > kSmall) return false;
  return std::ranges::none_of(spec.ports, [&](const KernelPort& p) {
    return std::ranges::any_of(
        aliases, [&](const Alias& a) { return p.tensor == a.input || p.tensor == a.output; });
  });
}

// Whether the kernel reads whole contiguous inputs of the graph, and single elements, and writes
// such outputs (what a training step makes of a parameter). Nothing that it reads was just
// written, and no kernel behind it reads what it writes, so that merging loses nothing from the
// second-level cache; nor does an element of an output that lies in an input pass from one
// thread to another.
bool is_update(const KernelSpec& spec, const Graph& lowered, std::span<const Alias> aliases) {
  if (!spec.as_pointwise()) return false;
  Access packed;
  packed.stride = packed_strides(spec.extent);
  return std::ranges::all_of(spec.ports, [&](const KernelPort& p) {
    if (!p.written && elements_reached(spec.extent, p.access) == 1) return true;
    if (!is_of_graph(p, lowered) || p.together != 1 || !(p.access == packed)) return false;
    const bool apart = std::ranges::any_of(
        aliases, [&](const Alias& a) { return a.apart && p.tensor == a.output; });
    return !apart && (p.written ? lowered[p.tensor].output : lowered[p.tensor].producer < 0);
  });
}

bool alike(const KernelSpec& a, const KernelSpec& b) {
  if (a.extent != b.extent || a.family.index() != b.family.index()) return false;
  return std::visit(Overloaded{[](const PointwiseSpec&) { return true; },
                               [&](const RowwiseSpec& r) {
                                 const RowwiseSpec& s = b.rowwise();
                                 return r.outer_rank == s.outer_rank && r.phases == s.phases &&
                                        r.combines_partials == s.combines_partials &&
                                        r.any_length == s.any_length &&
                                        rows_lie_together(a) == rows_lie_together(b);
                               },
                               [](const auto&) { return false; }},
                    a.family);
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

// Whether all that a kernel does is to write zeros to a tensor, element behind element.
bool writes_zeros(const KernelSpec& spec) {
  if (!spec.as_pointwise() || spec.ports.size() != 1 || spec.scalars.size() != 1 ||
      spec.scalars[0].tensor != kNoTensor || spec.scalars[0].value != 0 ||
      spec.body.statements.size() != 2)
    return false;
  Access packed;
  packed.stride = packed_strides(spec.extent);
  return spec.ports[0].access == packed;
}

bool sums_dq(const KernelSpec& spec, TensorId tensor) {
  const AttentionBackwardSpec* const a = spec.as_attention_backward();
  return a && a->sums >= 0 && spec.ports[static_cast<std::size_t>(a->sums)].tensor == tensor;
}

// Of rows that `spec` sums, whether it may write zeros beside them: elements of whole rows, which
// it visits once.
bool visits_elements(const KernelSpec& spec) {
  const RowwiseSpec* const r = spec.as_rowwise();
  return r && r->group <= 1 && r->segment == 0 && r->num_partials == 0 && !r->any_length &&
         !r->combines_partials && spec.cross_row_reductions.empty() && spec.gathers.empty() &&
         !rows_lie_together(spec);
}

// The place of `zeros` is a row's, in the first phase.
void write_beside(KernelSpec& rows, const KernelSpec& zeros) {
  const int values = static_cast<int>(rows.body.statements.size());
  Statement zero = zeros.body.statements[0], store = zeros.body.statements[1];
  zero.port = static_cast<int>(rows.scalars.size());
  zero.per_row = true;
  store.port = static_cast<int>(rows.ports.size());
  store.args = {values};
  rows.scalars.push_back(zeros.scalars[0]);
  rows.ports.push_back(zeros.ports[0]);
  rows.ports.back().access.stride = packed_strides(rows.extent);
  rows.body.statements.push_back(std::move(zero));
  rows.body.statements.push_back(std::move(store));
  rows.nodes.insert(rows.nodes.end(), zeros.nodes.begin(), zeros.nodes.end());
}

}  // namespace

void write_zeros_beside(std::vector<KernelSpec>& kernels) {
  std::vector<KernelSpec> left;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    KernelSpec& k = kernels[i];
    const bool of_dq = writes_zeros(k) && std::any_of(kernels.begin() + static_cast<int>(i),
                                                      kernels.end(), [&](const KernelSpec& x) {
                                                        return sums_dq(x, k.ports[0].tensor);
                                                      });
    const auto before = std::find_if_not(left.rbegin(), left.rend(), writes_zeros);
    if (of_dq && before != left.rend() && visits_elements(*before) &&
        count(before->extent, 0, before->extent.size()) == count(k.extent, 0, k.extent.size()) &&
        !writes_for(*before, k))
      write_beside(*before, k);
    else
      left.push_back(std::move(k));
  }
  kernels = std::move(left);
}

namespace {

struct Sibling {
  KernelSpec spec;
  std::map<TensorId, bool> memory;  // that it reaches, and whether it writes there
  bool small = false, update = false;
};

Sibling sibling_of(KernelSpec spec, const Graph& lowered, std::span<const Alias> aliases) {
  Sibling k;
  k.spec = std::move(spec);
  for (const KernelPort& p : k.spec.ports) {
    const auto shared = std::ranges::find(aliases, p.tensor, &Alias::output);
    k.memory[shared == aliases.end() ? p.tensor : shared->input] |= p.written;
  }
  if (may_be_merged(k.spec, lowered)) {
    k.small = is_small(k.spec, aliases);
    k.update = is_update(k.spec, lowered, aliases);
  }
  return k;
}

// Whether one writes what the other one reads or writes.
bool depend(const Sibling& a, const Sibling& b) {
  return std::ranges::any_of(b.memory, [&](const auto& reached) {
    const auto same = a.memory.find(reached.first);
    return same != a.memory.end() && (same->second || reached.second);
  });
}

// Whether `b` is merged to `a`.
bool merge(Sibling& a, const Sibling& b, const Graph& lowered, std::span<const Alias> aliases,
           const DeviceModel& device) {
  const bool small = a.small && b.small, updates = a.update && b.update;
  const Most most = updates ? kOfUpdates : kOfSmall;
  if (!(small || updates) || !alike(a.spec, b.spec) ||
      a.spec.ports.size() + b.spec.ports.size() > most.ports ||
      a.spec.body.statements.size() + b.spec.body.statements.size() > most.statements)
    return false;
  KernelSpec both = a.spec;
  append(both, b.spec);
  if (!small && (widest_pack(both) < std::min(widest_pack(a.spec), widest_pack(b.spec)) ||
                 schedule_pointwise(both, device).microseconds >=
                     schedule_pointwise(a.spec, device).microseconds +
                         schedule_pointwise(b.spec, device).microseconds))
    return false;
  a = sibling_of(std::move(both), lowered, aliases);
  return true;
}

}  // namespace

void merge_siblings(std::vector<KernelSpec>& kernels, const Graph& lowered,
                    std::span<const Alias> aliases, const DeviceModel& device) {
  std::vector<Sibling> merged;
  for (KernelSpec& spec : kernels) {
    Sibling k = sibling_of(std::move(spec), lowered, aliases);
    // Back past kernels that it neither waits for nor holds up.
    bool found = false;
    for (auto before = merged.rbegin();
         !found && (k.small || k.update) && before != merged.rend() && !depend(*before, k);
         ++before)
      found = merge(*before, k, lowered, aliases, device);
    if (!found) merged.push_back(std::move(k));
  }
  kernels.clear();
  for (Sibling& k : merged) kernels.push_back(std::move(k.spec));
}

}  // namespace sinter
