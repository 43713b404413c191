#include "planner/rearrange/index_map.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {

Affine affine(std::initializer_list<std::pair<int, std::int64_t>> terms, std::int64_t base,
              bool bounded) {
  Affine a;
  for (const auto& [index, coefficient] : terms) {
    while (a.coefficient.size() <= index) a.coefficient.push_back(0);
    a.coefficient[index] = coefficient;
  }
  a.base = base;
  a.bounded = bounded;
  return a;
}

Access mapped(const Access& a, const Dims& old_extent, const std::vector<Affine>& old, int rank) {
  Access r;
  r.offset = a.offset;
  r.stride = Dims::filled(rank, 0);
  const auto add = [](Dims& to, const Affine& of, std::int64_t times) {
    for (int j = 0; j < of.coefficient.size(); ++j) to[j] += times * of.coefficient[j];
  };
  for (const Window& w : a.windows) {
    Window v = w;
    v.coefficient = Dims::filled(rank, 0);
    for (int i = 0; i < w.coefficient.size(); ++i) {
      add(v.coefficient, old[static_cast<std::size_t>(i)], w.coefficient[i]);
      v.base += w.coefficient[i] * old[static_cast<std::size_t>(i)].base;
    }
    const auto divided = [&](std::int64_t x) { return x % w.divisor == 0; };
    if (divided(v.base) && std::all_of(v.coefficient.begin(), v.coefficient.end(), divided)) {
      for (auto& x : v.coefficient) x /= w.divisor;
      v.base /= w.divisor;
      v.divisor = 1;
    }
    r.windows.push_back(std::move(v));
  }
  for (int i = 0; i < a.stride.size(); ++i) {
    const Affine& of = old[static_cast<std::size_t>(i)];
    if (a.stride[i] == 0) continue;
    if (!of.bounded) {
      add(r.stride, of, a.stride[i]);
      r.offset += a.stride[i] * of.base;
      continue;
    }
    Window v;
    v.coefficient = Dims::filled(rank, 0);
    add(v.coefficient, of, 1);
    v.base = of.base;
    v.extent = old_extent[i];
    v.stride = a.stride[i];
    r.windows.push_back(std::move(v));
  }
  return r;
}

Access packed_in_order(int rank, const std::vector<int>& indices, const Dims& extent) {
  const Dims packed = packed_strides(extent);
  Access access;
  access.stride = Dims::filled(rank, 0);
  for (std::size_t i = 0; i < indices.size(); ++i)
    access.stride[indices[i]] = packed[static_cast<int>(i)];
  return access;
}

const KernelPort* loaded_alone(const KernelSpec& spec, const ProductOperand& operand) {
  const KernelPort* const p = loaded_as_it_is(spec, operand.body);
  return p && (p->type == DataType::bf16 || p->type == DataType::f16) ? p : nullptr;
}

bool names_numbers(const KernelSpec& spec) {
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (s.kind == StatementKind::index || s.kind == StatementKind::random) return true;
  return false;
}

void load_sum(KernelSpec& spec, KernelPort port) {
  Statement load =
      statement(StatementKind::load, DataType::f32, spec.body.statements.front().label);
  load.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(port));
  spec.body.statements.front() = load;
  drop_unused(spec);
  simplify_domain(spec);
}

KernelSpec copy_kernel(const KernelSpec& from, const KernelPort& load, const Dims& extent,
                       const std::string& name, Temporaries& temporaries, KernelPort& written,
                       const Dims& padded, DataType type) {
  KernelSpec k;
  k.nodes = from.nodes;
  k.extent = extent;
  k.ports.push_back(load);
  Access packed;
  const Dims& size = padded.empty() ? extent : padded;
  packed.stride = packed_strides(size);
  written = temporaries.add(name, type == DataType::none ? load.type : type, size, packed);
  k.ports.push_back(written);
  Statement value = statement(StatementKind::load, DataType::f32, load.name);
  value.port = 0;
  Statement store = statement(StatementKind::store, DataType::f32, "");
  store.args = {0};
  store.port = 1;
  k.body.statements = {value, store};
  simplify_domain(k);
  return k;
}

void mark_zeros(KernelSpec& copy, KernelSpec& product) {
  using Mode = PointwiseMode;
  copy.scalars = {{kNoTensor, "zero", DataType::f32, 0, 0},
                  {kNoTensor, "beside", DataType::f32, -0.0, 0},
                  {kNoTensor, "one", DataType::f32, 1, 1}};
  const Statement load = copy.body.statements.front();
  Statement store = copy.body.statements.back();
  auto& body = copy.body.statements;
  body = {load};
  const auto add = [&](StatementKind kind, int port, std::vector<int> args, Mode mode = {}) {
    Statement s = statement(kind, DataType::f32, load.label);
    s.port = port;
    s.args = std::move(args);
    s.mode = mode;
    body.push_back(std::move(s));
    return static_cast<int>(body.size()) - 1;
  };
  const int zero = add(StatementKind::scalar, 0, {}), beside = add(StatementKind::scalar, 1, {}),
            one = add(StatementKind::scalar, 2, {}),
            tap = add(StatementKind::pointwise, -1, {0, zero}, Mode::add),
            inside = add(StatementKind::inside, load.port, {one});
  store.args = {add(StatementKind::pointwise, -1, {tap, beside, inside}, Mode::binary_select)};
  body.push_back(std::move(store));
  product.contraction().zero_dominates = ZeroOf::b;
  product.contraction().marked_zeros = true;
}

void read_instead(KernelSpec& spec, ProductOperand& operand, const KernelPort& written,
                  Access access) {
  Statement& load = operand.body.statements.front();
  load.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(read_back(written, std::move(access)));
}

}  // namespace sinter
