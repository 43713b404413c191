#include "planner/passes/transposed_rows.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/rearrange/written_first.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"

namespace sinter {
namespace {

// Of fewer elements than those of so many blocks a kernel takes longer than what it saves. (An
// element that lies across takes about 4 to 30 ps on an H200.)
constexpr std::int64_t kBlocks = 16;
constexpr std::int64_t kLong = 8;  // of both directions: shorter ones share sectors

// The index along which a kernel's threads are neighbours.
int index_of_threads(const KernelSpec& spec) {
  const bool together = spec.cross_row_reductions.empty() && rows_lie_together(spec);
  return together ? spec.rowwise().outer_rank - 1 : spec.extent.size() - 1;
}

// Whether all elements of the domain are at places of their own, and neighbours in memory are so
// along another index of more than a few. The first-level cache has all sectors of a small matrix,
// one of half as many elements as are worth a block.
bool lies_across(const KernelSpec& spec, const KernelPort& p, int along,
                 const DeviceModel& device) {
  const Access& a = p.access;
  if (!a.windows.empty() || !a.via.empty() || p.together != 1 || spec.extent[along] < kLong ||
      a.stride[along] <= 1 || elements_reached(spec.extent, a) != count(spec.extent) ||
      2 * a.stride[along] * spec.extent[along] < elements_of_block(device))
    return false;
  for (int i = 0; i < spec.extent.size(); ++i)
    if (a.stride[i] == 1 && spec.extent[i] >= kLong) return true;
  return false;
}

// In the order of the domain, the one of the threads last.
std::vector<int> indices_of_copy(const KernelSpec& spec, int along) {
  std::vector<int> indices;
  for (int i = 0; i < spec.extent.size(); ++i)
    if (i != along) indices.push_back(i);
  indices.push_back(along);
  return indices;
}

// The kernel that brings what the spec then writes in this order to where it belongs.
KernelSpec copied_behind(KernelSpec& spec, Statement& store, const std::vector<int>& indices,
                         Temporaries& temporaries) {
  const KernelPort result = spec.ports[static_cast<std::size_t>(store.port)];
  KernelSpec kernel;
  kernel.extent = at_indices(spec.extent, indices);
  Access packed{.stride = packed_strides(kernel.extent)}, access = result.access;
  access.stride = at_indices(access.stride, indices);
  KernelPort port =
      temporaries.add(result.name + "_transposed", result.type, kernel.extent, packed);
  kernel.ports = {read_back(port, packed), result};
  kernel.ports.back().access = access;
  Statement load = statement(StatementKind::load, store.arithmetic, result.name);
  load.port = 0;
  Statement written = statement(StatementKind::store, store.arithmetic, "");
  written.args = {0};
  written.port = 1;
  kernel.body.statements = {load, written};
  for (std::size_t i = 0; i < indices.size(); ++i)
    port.access.stride[indices[i]] = packed.stride[static_cast<int>(i)];
  store.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(port));
  drop_unused(spec);
  simplify_domain(kernel);
  return kernel;
}

}  // namespace

TransposedRows transpose_rows(KernelSpec& spec, const PlanContext& context,
                              Temporaries& temporaries) {
  TransposedRows copies;
  const bool candidate = spec.as_rowwise() && spec.gathers.empty() && spec.extent.size() > 1 &&
                         spec.rowwise().outer_rank > 0 &&
                         spec.rowwise().outer_rank < spec.extent.size() &&
                         spec.rowwise().segment == 0;
  if (!candidate || !context.decisions.decide(Decisions::Kind::transposed, spec.nodes.front(), [&] {
        return count(spec.extent) >= kBlocks * elements_of_block(context.device);
      }))
    return copies;
  const int along = index_of_threads(spec);
  const auto indices = indices_of_copy(spec, along);
  const auto across = [&](const Statement& s) {
    return s.port >= 0 && !s.per_row &&
           lies_across(spec, spec.ports[static_cast<std::size_t>(s.port)], along, context.device);
  };
  for (std::size_t i = 0; i < spec.body.statements.size(); ++i) {
    const Statement s = spec.body.statements[i];
    if (s.kind == StatementKind::load && across(s)) {
      copies.before.push_back(
          copied_first(spec, spec.body, static_cast<int>(i), indices, temporaries));
      copies.before.back().nodes = {spec.nodes.front()};
    } else if (s.kind == StatementKind::store && across(s)) {
      copies.behind.push_back(copied_behind(spec, spec.body.statements[i], indices, temporaries));
      copies.behind.back().nodes = {spec.nodes.front()};
    }
  }
  return copies;
}

}  // namespace sinter
