#include "planner/spec/scales.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"

namespace sinter {
namespace {

const Statement& at(const Body& body, int i) {
  return body.statements[static_cast<std::size_t>(i)];
}

// Whether the rows of a grouped product along which the tensor lies have other numbers where the
// results are.
bool renumbered(const KernelSpec& spec, const Access& a) {
  const ContractionSpec& c = spec.contraction();
  if (!c.rows.on || c.rows.mode == MoeMode::none) return false;
  for (int m = c.first_m(); m < c.first_n(); ++m)
    if (moves_along(a, m)) return true;
  return false;
}

// Whether a statement and what it needs is the same for all of k; gathers what it needs.
bool constant_along_k(const KernelSpec& spec, const Body& body, int i, std::set<int>& needed) {
  const Statement& s = at(body, i);
  switch (s.kind) {
    case StatementKind::load: {
      const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
      if (!s.args.empty() || !a.windows.empty() || !a.via.empty() || renumbered(spec, a))
        return false;
      for (int k = spec.contraction().first_k(); k < spec.extent.size(); ++k)
        if (moves_along(a, k)) return false;
      break;
    }
    case StatementKind::scalar:
    case StatementKind::pointwise:
    case StatementKind::convert:
      break;
    default:
      return false;
  }
  needed.insert(i);
  return std::all_of(s.args.begin(), s.args.end(),
                     [&](int operand) { return constant_along_k(spec, body, operand, needed); });
}

// An 8-bit tensor, but not of powers of two: their products may leave the range of f32.
bool loads_bytes(const KernelSpec& spec, const Statement& s) {
  if (s.kind != StatementKind::load || !s.args.empty()) return false;
  const DataType type = spec.ports[static_cast<std::size_t>(s.port)].type;
  return info(type).bytes == 1 && type != DataType::f8e8m0;
}

struct Scale {
  PointwiseMode mode{};
  DataType arithmetic{};
  std::string label;
  int value;             // statement
  std::set<int> needed;  // with those before it
};

// The scales of an operand, the innermost first, down to the load of an 8-bit tensor.
std::optional<std::vector<Scale>> scales_of(const KernelSpec& spec, const Body& body, int& loaded) {
  std::vector<Scale> scales;
  for (int i = static_cast<int>(body.statements.size()) - 1;;) {
    const Statement& s = at(body, i);
    if (loads_bytes(spec, s)) {
      loaded = i;
      std::reverse(scales.begin(), scales.end());
      return scales;
    }
    if (s.kind != StatementKind::pointwise || s.arithmetic != DataType::f32 ||
        (s.mode != PointwiseMode::mul && s.mode != PointwiseMode::div))
      return {};
    int scaled = -1;
    for (int side = 0; side < (s.mode == PointwiseMode::mul ? 2 : 1) && scaled < 0; ++side) {
      Scale scale{s.mode, s.arithmetic, s.label, s.args[static_cast<std::size_t>(1 - side)], {}};
      if (!constant_along_k(spec, body, scale.value, scale.needed)) continue;
      scaled = s.args[static_cast<std::size_t>(side)];
      scales.push_back(std::move(scale));
    }
    if (scaled < 0) return {};
    i = scaled;
  }
}

// Multiplies sum number `product` with the scales; what read the sum reads the result.
void scale_sum(KernelSpec& spec, const Body& operand, const std::vector<Scale>& scales,
               int product) {
  auto& body = spec.body.statements;
  const auto sum = std::find_if(body.begin(), body.end(), [&](const Statement& s) {
    return s.kind == StatementKind::accumulator && s.dim == product;
  });
  if (sum == body.end()) return;
  const int place = static_cast<int>(sum - body.begin());
  std::vector<Statement> added;
  const auto add = [&](Statement s) {
    added.push_back(std::move(s));
    return place + static_cast<int>(added.size());
  };
  int scaled = place;
  for (const Scale& scale : scales) {
    std::vector<int> copies(operand.statements.size(), -1);
    for (int i : scale.needed) {
      Statement s = at(operand, i);
      for (int& a : s.args) a = copies[static_cast<std::size_t>(a)];
      copies[static_cast<std::size_t>(i)] = add(std::move(s));
    }
    Statement s = statement(StatementKind::pointwise, scale.arithmetic, scale.label);
    s.mode = scale.mode;
    s.args = {scaled, copies[static_cast<std::size_t>(scale.value)]};
    scaled = add(std::move(s));
  }
  const int more = static_cast<int>(added.size());
  for (auto s = body.begin() + place + 1; s != body.end(); ++s)
    for (int& a : s->args) a = a == place ? scaled : a > place ? a + more : a;
  body.insert(body.begin() + place + 1, added.begin(), added.end());
}

}  // namespace

void move_scales_behind_sums(KernelSpec& spec) {
  ContractionSpec& c = spec.contraction();
  if (c.accumulate != DataType::f32 || !spec.gathers.empty()) return;
  struct Operand {
    ProductOperand* of;
    std::vector<int> products;  // that multiply it
    int loaded = -1;
    std::vector<Scale> scales{};
  };
  // Tensor cores sum products of 8-bit floats with fewer bits than f32 has. Where the products are
  // to be those of f32 the factors are multiplied as bf16, which holds them.
  const auto summed_as_bytes = [&](const Operand& o) {
    const auto port = static_cast<std::size_t>(at(o.of->body, o.loaded).port);
    return o.of->type != DataType::f32 || !is_floating(spec.ports[port].type);
  };
  std::vector<Operand> operands{{&c.a(), {0, 1}}, {&c.b(), {0}}};
  if (c.paired()) operands.push_back({&c.b(1), {1}});
  for (Operand& o : operands)
    if (auto scales = scales_of(spec, o.of->body, o.loaded)) o.scales = std::move(*scales);
  // Both products multiply the same type.
  if (c.paired() && operands[1].scales.empty() != operands[2].scales.empty())
    operands[1].scales = operands[2].scales = {};
  for (const Operand& o : operands) {
    if (o.scales.empty()) continue;
    Body& body = o.of->body;
    for (int product : o.products) scale_sum(spec, body, o.scales, product);
    const bool as_bytes = summed_as_bytes(o);
    Statement load = at(body, o.loaded);
    const std::string load_label = load.label;
    if (as_bytes) o.of->type = spec.ports[static_cast<std::size_t>(load.port)].type;
    body.statements = {std::move(load)};
    if (as_bytes) continue;
    Statement widened = statement(StatementKind::convert, DataType::f32, load_label);
    widened.type = DataType::bf16;
    widened.args = {0};
    body.statements.push_back(std::move(widened));
  }
}

}  // namespace sinter
