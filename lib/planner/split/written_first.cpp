#include "planner/split/written_first.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

// Heads that share one of the operand, whose index counts those.
std::int64_t group_of(const KernelSpec& spec, const ProductOperand& operand) {
  if (const AttentionSpec* const a = spec.as_attention()) return &operand == &a->q ? 1 : a->group;
  if (const AttentionBackwardSpec* const a = spec.as_attention_backward())
    return &operand == &a->k || &operand == &a->v ? a->group : 1;
  return 1;
}

}  // namespace

std::vector<int> indices_of(const KernelSpec& spec, const OperandPlace& o, DataType type) {
  const Body& body = operand_at(spec, o).body;
  const int k = spec.extent.size() - 1;
  std::vector<int> indices;
  for (int i = 0; i < spec.contraction().batch; ++i)
    if (depends_on(spec, body, i)) indices.push_back(i);
  for (int i = o.row; i < o.row + o.rows; ++i) indices.push_back(i);
  indices.push_back(k);
  const int row = o.rows > 0 ? o.row + o.rows - 1 : -1;
  const auto large = [&](const Statement& s) {
    if (!is_load(s)) return false;
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    return row >= 0 && moves_along(a, row) && moves_along(a, k);
  };
  const bool transposed = info(type).bytes == 2 && prefers(spec, body, k, row, large);
  if (transposed) std::swap(indices.back(), indices[indices.size() - 2]);
  return indices;
}

KernelSpec over_indices(const KernelSpec& spec, const Body& body, const std::vector<int>& indices) {
  const auto these = [&](const Dims& dims) {
    Dims r;
    for (int i : indices) r.push_back(dims[i]);
    return r;
  };
  const auto project = [&](Access& a) {
    a.stride = these(a.stride);
    for (auto& w : a.windows) w.coefficient = these(w.coefficient);
  };
  KernelSpec kernel;
  kernel.extent = these(spec.extent);
  kernel.ports = spec.ports;
  kernel.scalars = spec.scalars;
  kernel.body = body;
  for (auto& p : kernel.ports) project(p.access);
  for (auto& s : kernel.body.statements) {
    if (s.kind == StatementKind::index)
      s.dim = static_cast<int>(std::find(indices.begin(), indices.end(), s.dim) - indices.begin());
    if (!s.access.stride.empty()) project(s.access);
  }
  return kernel;
}

KernelSpec written_first(KernelSpec& spec, ProductOperand& operand, const std::vector<int>& indices,
                         DataType type, Temporaries& temporaries) {
  Body& body = operand.body;
  const auto place = [&](int i) {
    return static_cast<int>(std::find(indices.begin(), indices.end(), i) - indices.begin());
  };
  KernelSpec kernel = over_indices(spec, body, indices);
  const int head = place(AttentionSpec::head);  // of both directions
  if (const std::int64_t group = group_of(spec, operand); group > 1 && head < kernel.extent.size())
    kernel.extent[head] /= group;

  const DataType stored = type == DataType::tf32 ? DataType::f32 : type;
  const std::int64_t line = 16 / info(stored).bytes;
  Dims padded = kernel.extent;
  padded.back() = (padded.back() + line - 1) / line * line;
  Access written;
  written.stride = packed_strides(padded);
  const Statement value = body.statements.back();
  std::string name = value.label;
  if (const KernelPort* const from = plainly_loaded(spec, body))
    name += from->type == stored ? "_aligned" : fmt::format("_{}", sinter::name(stored));
  KernelPort port = temporaries.add(std::move(name), stored, padded, written);
  Statement store = statement(StatementKind::store, value.arithmetic, "");
  store.args = {static_cast<int>(body.statements.size()) - 1};
  store.port = static_cast<int>(kernel.ports.size());
  kernel.ports.push_back(port);
  kernel.body.statements.push_back(std::move(store));
  drop_unused(kernel);
  simplify_domain(kernel);

  Access read;
  read.stride = Dims::filled(spec.extent.size(), 0);
  for (int i : indices) read.stride[i] = written.stride[place(i)];
  Statement load = statement(StatementKind::load, DataType::f32, value.label);
  load.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(read_back(std::move(port), std::move(read)));
  body.statements = {std::move(load)};
  operand.type = type;
  drop_unused(spec);
  return kernel;
}

}  // namespace sinter
