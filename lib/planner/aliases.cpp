#include "planner/aliases.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace sinter {
namespace {

std::vector<int> ports_of(const KernelSpec& spec, TensorId t, bool written) {
  std::vector<int> ports;
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (spec.ports[i].tensor == t && spec.ports[i].written == written)
      ports.push_back(static_cast<int>(i));
  return ports;
}

// Whether a port is used by loads and stores of the kernel's own body alone. Operands of a product
// are read by other threads than those that store its results, and gathers go where they like.
bool only_in_body(const KernelSpec& spec, int port) {
  const auto used = [&](const Body& body) {
    return std::any_of(body.statements.begin(), body.statements.end(), [&](const Statement& s) {
      return s.port == port && s.kind == StatementKind::load;
    });
  };
  for (const Gather& g : spec.gathers)
    if (std::find(g.ports.begin(), g.ports.end(), port) != g.ports.end()) return false;
  const std::vector<const Body*> bodies = spec.bodies();
  for (std::size_t i = 1; i < bodies.size(); ++i)  // the first one is the kernel's own
    if (used(*bodies[i])) return false;
  return used(spec.body);
}

// Of a rowwise kernel, where an element is loaded and stored by one thread: whether all its loads
// come before the store. They do where the last phase stores, as each phase loads a place before it
// stores there, and where the row is fetched once and stays in registers. Rows that a cluster holds
// are fetched again where there are no clusters.
bool stored_behind_loads(const ScheduledKernel& k, int from, int to, bool clusters) {
  const RowwiseConfig& config = *k.rowwise();
  const RowwiseSpec& rows = k.spec.rowwise();
  if (config.aligned_by >= 0) return false;  // threads side by side may hold an element twice
  const PortPack& pack = config.packing.ports[static_cast<std::size_t>(from)];
  const bool once = config.resident && (config.blocks_per_row == 1 || clusters) &&
                    pack.kind == PortPack::Kind::pack && !pack.weight && !pack.late &&
                    k.spec.cross_row_reductions.empty();
  const auto& statements = k.spec.body.statements;
  return std::all_of(statements.begin(), statements.end(), [&](const Statement& s) {
    if (s.kind == StatementKind::load && s.port == from) return !s.per_row;
    if (s.kind != StatementKind::store || s.port != to) return true;
    return !s.per_row && (once || s.phase == rows.phases - 1);
  });
}

// Why a kernel that reads `in` and writes `out` may not do so in the same memory; empty: it may.
// In these families the thread that stores an element has loaded it, and no other one loads it.
std::string conflict(const ScheduledKernel& kernel, TensorId in, TensorId out, bool clusters) {
  const KernelSpec& spec = kernel.spec;
  const std::vector<int> reads = ports_of(spec, in, false), writes = ports_of(spec, out, true);
  if (reads.empty()) return {};
  const bool own = std::visit(
      Overloaded{[](const PointwiseSpec&) { return true; }, [](const RowwiseSpec&) { return true; },
                 [](const ContractionSpec&) { return true; }, [](const auto&) { return false; }},
      spec.family);
  if (!own) return "it is read by other threads than write it";
  if (writes.size() != 1) return "the output is written in parts";
  const KernelPort& to = spec.ports[static_cast<std::size_t>(writes[0])];
  for (int r : reads) {
    const KernelPort& from = spec.ports[static_cast<std::size_t>(r)];
    if (!only_in_body(spec, r)) return "it is an operand of a product, or gathered from";
    if (!(from.access == to.access) || from.together != to.together)
      return "an element is read where another one is written";
    if (spec.as_rowwise() && !stored_behind_loads(kernel, r, writes[0], clusters))
      return "its rows are read again after the output is written";
  }
  return {};
}

}  // namespace

std::vector<Alias> aliases_of(const Graph& user, const Graph& lowered,
                              const std::set<std::string>& apart) {
  std::vector<Alias> all;
  for (const TensorDesc& t : user.tensors()) {
    if (t.alias < 0) continue;
    const auto out = lowered.find(t.name), in = lowered.find(user[t.alias].name);
    if (out && in) all.push_back({*out, *in, apart.contains(t.name)});
  }
  return all;
}

Diagnostics unsafe_aliases(const Graph& user, const Graph& lowered,
                           std::span<const ScheduledKernel> kernels, const DeviceModel& device) {
  Diagnostics all;
  for (const auto& [out, in, apart] : aliases_of(user, lowered)) {
    const TensorDesc& t = user[*user.find(lowered[out].name)];
    Diagnostic d{.rule = Rule::tensor_alias,
                 .tensor = t.name,
                 .allowed = "an input that no kernel reads once its memory is written",
                 .fix = "leave the alias out and bind memory of its own",
                 .file = t.where.file,
                 .line = t.where.line};
    bool written = false;
    for (std::size_t k = 0; k < kernels.size() && d.seen.empty(); ++k) {
      const bool writes = !ports_of(kernels[k].spec, out, true).empty();
      const bool reads = !ports_of(kernels[k].spec, in, false).empty();
      if (written && reads)
        d.seen = fmt::format("'{}' is read by kernel {}, after the output is written",
                             user[t.alias].name, k);
      else if (writes && reads)
        if (const auto reason = conflict(kernels[k], in, out, device.has_clusters); !reason.empty())
          d.seen = fmt::format("'{}' in kernel {}: {}", user[t.alias].name, k, reason);
      written |= writes;
    }
    if (!d.seen.empty()) all.push_back(std::move(d));
  }
  return all;
}

}  // namespace sinter
