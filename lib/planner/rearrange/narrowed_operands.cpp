#include "planner/rearrange/narrowed_operands.hpp"

#include <algorithm>
#include <map>

#include "lower/op_kinds.hpp"
#include "plan/access.hpp"
#include "planner/spec/contraction_spec.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {
namespace {

bool may_be_narrow(const Graph& lowered, const KernelPort& p) {
  return p.tensor < static_cast<TensorId>(lowered.tensors().size()) &&
         lowered.is_virtual(p.tensor) && p.type == DataType::f32;
}

bool names(const Body& body, int port) {
  return std::ranges::any_of(body.statements, [&](const Statement& s) {
    return names_ports(s) && (s.port == port || s.port2 == port);
  });
}

// The type in which the kernel multiplies the port's elements, where it does nothing else with
// them; else none.
DataType multiplied_as(const AttentionSpec& a, const KernelSpec& spec, int port) {
  if (port == a.sink || port == a.stats || port == a.largest || port == a.total)
    return DataType::none;
  for (const Body* body : {&spec.body, &a.score, &a.weight})
    if (names(*body, port)) return DataType::none;
  return info(a.q.type).bytes == 2 ? a.q.type : DataType::none;
}
DataType multiplied_as(const AttentionBackwardSpec& a, const KernelSpec&, int port) {
  for (int of_row : {a.stats, a.largest, a.total, a.delta, a.dbias})
    if (port == of_row) return DataType::none;
  for (const Body* body : {&a.score, &a.gradient, &a.weight, &a.dq})
    if (names(*body, port)) return DataType::none;
  return info(a.q.type).bytes == 2 ? a.q.type : DataType::none;
}
DataType multiplied_as(const ContractionSpec& c, const KernelSpec& spec, int port) {
  if (c.accumulate != DataType::f32) return DataType::none;
  for (const Body* body : spec.bodies())
    if (names(*body, port) && (body == &spec.body || body->statements.size() != 1))
      return DataType::none;
  const DataType type = factor_type(spec);
  return type == DataType::f16 || type == DataType::bf16 ? type : DataType::none;
}
DataType multiplied_as(const auto&, const KernelSpec&, int) { return DataType::none; }

DataType multiplied_as(const KernelSpec& spec, int port) {
  return std::visit([&](const auto& family) { return multiplied_as(family, spec, port); },
                    spec.family);
}

}  // namespace

void narrow_alone(const FusionState& state, KernelSpec& spec) {
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    KernelPort& p = spec.ports[i];
    if (p.written || !may_be_narrow(state.graph(), p)) continue;
    const auto& readers = state.consumers(p.tensor);
    if (!std::all_of(readers.begin(), readers.end(),
                     [&](NodeId n) { return is_contraction(state.node(n).op); }))
      continue;
    if (const DataType type = multiplied_as(spec, static_cast<int>(i)); type != DataType::none)
      p.type = type;
  }
}

void narrow_operands(const Graph& lowered, std::vector<KernelSpec>& kernels) {
  std::map<TensorId, DataType> types;  // none: somebody needs the f32
  const auto each_port = [&](const auto& visit) {
    for (auto& spec : kernels)
      for (std::size_t i = 0; i < spec.ports.size(); ++i)
        if (may_be_narrow(lowered, spec.ports[i])) visit(spec, static_cast<int>(i));
  };
  each_port([&](const KernelSpec& spec, int i) {
    const KernelPort& p = spec.ports[static_cast<std::size_t>(i)];
    if (p.written) return;
    const DataType type = multiplied_as(spec, i);
    if (const auto [known, fresh] = types.try_emplace(p.tensor, type); !fresh)
      if (known->second != type) known->second = DataType::none;
  });
  each_port([&](KernelSpec& spec, int i) {
    KernelPort& p = spec.ports[static_cast<std::size_t>(i)];
    if (const auto t = types.find(p.tensor); t != types.end() && t->second != DataType::none)
      p.type = t->second;
  });
}

}  // namespace sinter
