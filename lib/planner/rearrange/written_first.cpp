#include "planner/rearrange/written_first.hpp"

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
  const auto of_keys = [&](const auto& a) {
    return &operand == &a.k || &operand == &a.v ? a.group : 1;
  };
  return std::visit(Overloaded{[&](const AttentionSpec& a) { return of_keys(a); },
                               [&](const AttentionBackwardSpec& a) { return of_keys(a); },
                               [](const auto&) { return std::int64_t{1}; }},
                    spec.family);
}

}  // namespace

std::vector<int> indices_of(const KernelSpec& spec, const OperandPlace& o, DataType type) {
  const Body& body = operand_at(spec, o).body;
  const int k = spec.extent.size() - 1;
  std::vector<int> indices;
  for (int i = 0; i < spec.contraction().batch; ++i)
    if (depends_on(spec, body, i)) indices.push_back(i);
  for (int i = o.row; i < o.row + o.rows; ++i) indices.push_back(i);
  for (int i = spec.contraction().first_k(); i <= k; ++i) indices.push_back(i);
  const int row = o.rows > 0 ? o.row + o.rows - 1 : -1;
  if (spec.contraction().k() > 1) {
    const bool together = std::ranges::any_of(body.statements, [&](const Statement& s) {
      return row >= 0 && is_load(s) && info(type).bytes == 2 &&
             step(spec.ports[static_cast<std::size_t>(s.port)].access, row) == 1;
    });
    if (together)
      std::rotate(indices.end() - spec.contraction().k() - o.rows,
                  indices.end() - spec.contraction().k(), indices.end());
    return indices;
  }
  const auto large = [&](const Statement& s) {
    if (!is_load(s)) return false;
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    return row >= 0 && moves_along(a, row) && moves_along(a, k);
  };
  const bool transposed = info(type).bytes == 2 && prefers(spec, body, k, row, large);
  if (transposed) std::swap(indices.back(), indices[indices.size() - 2]);
  return indices;
}

Dims at_indices(const Dims& dims, const std::vector<int>& indices) {
  Dims r;
  for (int i : indices) r.push_back(dims[i]);
  return r;
}

KernelSpec over_indices(const KernelSpec& spec, const Body& body, const std::vector<int>& indices) {
  const auto these = [&](const Dims& dims) { return at_indices(dims, indices); };
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

namespace {

// The kernel that writes what a body of `spec` ends in, over these indices, of which `group`
// neighbouring heads share one and the last `of_line` are a line, which begins where TMA may; and
// the port from which `spec` may load it.
struct Written {
  KernelSpec kernel;
  KernelPort port;
};
Written written(const KernelSpec& spec, const Body& body, const std::vector<int>& indices,
                std::int64_t group, int of_line, DataType stored, Temporaries& temporaries) {
  const auto place = [&](int i) {
    return static_cast<int>(std::find(indices.begin(), indices.end(), i) - indices.begin());
  };
  KernelSpec kernel = over_indices(spec, body, indices);
  const int head = place(AttentionSpec::head);  // of both directions
  if (group > 1 && head < kernel.extent.size()) kernel.extent[head] /= group;

  const std::int64_t unit = 16 / info(stored).bytes;
  const int lines = kernel.extent.size() - of_line;
  Dims padded;
  for (int i = 0; i < lines; ++i) padded.push_back(kernel.extent[i]);
  padded.push_back(1);
  for (int i = lines; i < kernel.extent.size(); ++i) padded.back() *= kernel.extent[i];
  padded.back() = (padded.back() + unit - 1) / unit * unit;
  Access written;
  written.stride = packed_strides(kernel.extent);
  const Dims of_lines = packed_strides(padded);
  for (int i = 0; i < lines; ++i) written.stride[i] = of_lines[i];
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
  return {std::move(kernel), read_back(std::move(port), std::move(read))};
}

}  // namespace

KernelSpec written_first(KernelSpec& spec, ProductOperand& operand, const std::vector<int>& indices,
                         DataType type, Temporaries& temporaries, int of_line) {
  auto [kernel, port] = written(spec, operand.body, indices, group_of(spec, operand), of_line,
                                type == DataType::tf32 ? DataType::f32 : type, temporaries);
  Statement load =
      statement(StatementKind::load, DataType::f32, operand.body.statements.back().label);
  load.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(port));
  operand.body.statements = {std::move(load)};
  operand.type = type;
  drop_unused(spec);
  return std::move(kernel);
}

KernelSpec copied_first(KernelSpec& spec, Body& body, int load, const std::vector<int>& indices,
                        Temporaries& temporaries) {
  Statement& s = body.statements[static_cast<std::size_t>(load)];
  Body alone;
  alone.statements = {s};
  auto [kernel, port] = written(spec, alone, indices, 1, 1,
                                spec.ports[static_cast<std::size_t>(s.port)].type, temporaries);
  s.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(port));
  drop_unused(spec);
  return std::move(kernel);
}

}  // namespace sinter
