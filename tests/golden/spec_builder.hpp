// Shorthand for writing kernel specs by hand.
#pragma once
#include <utility>

#include "plan/access.hpp"
#include "plan/kernel_spec.hpp"

namespace sinter::golden {

inline Access strided(Dims stride, std::int64_t offset = 0) {
  return {.stride = stride, .offset = offset, .windows = {}, .via = {}};
}

class SpecBuilder {
 public:
  SpecBuilder(Family family, Dims extent) {
    if (family == Family::rowwise) spec.family = RowwiseSpec{};
    if (family == Family::contraction) spec.family = ContractionSpec{};
    spec.extent = extent;
  }

  int port(std::string name, DataType type, Access access, bool written = false) {
    spec.ports.push_back({static_cast<TensorId>(spec.ports.size()), std::move(name), type,
                          std::move(access), written});
    return static_cast<int>(spec.ports.size()) - 1;
  }
  int scalar_input(std::string name, DataType type, double value, std::int64_t integer = 0) {
    spec.scalars.push_back(
        {static_cast<TensorId>(100 + spec.scalars.size()), std::move(name), type, value, integer});
    return static_cast<int>(spec.scalars.size()) - 1;
  }

  // Statements go to `body()`, which `into` switches.
  SpecBuilder& into(Body& body) {
    body_ = &body;
    return *this;
  }
  int add(Statement s) {
    Body& b = body_ ? *body_ : spec.body;
    // As the planner does: a value belongs to the latest phase and the widest level of its
    // operands.
    const bool leaf = s.args.empty();
    if (!leaf) s.per_row = spec.as_rowwise() != nullptr;
    for (int a : s.args) {
      const Statement& operand = b.statements[static_cast<std::size_t>(a)];
      s.phase = std::max(s.phase, operand.phase);
      s.per_row = s.per_row && operand.per_row;
    }
    b.statements.push_back(std::move(s));
    return static_cast<int>(b.statements.size()) - 1;
  }
  int load(std::string label, int port, std::vector<int> otherwise = {}) {
    Statement s = make(StatementKind::load, std::move(label), std::move(otherwise));
    s.port = port;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(port)];
    s.arithmetic = fits_f32(p.type) ? DataType::f32 : DataType::f64;
    if (spec.as_rowwise() && s.args.empty()) {
      s.per_row = p.access.windows.empty() && p.access.via.empty();
      for (int i = spec.rowwise().outer_rank; i < p.access.stride.size(); ++i)
        s.per_row = s.per_row && p.access.stride[i] == 0;
    }
    return add(std::move(s));
  }
  // A packed port over the whole domain, and its load.
  int packed(std::string name, DataType type) {
    const int p = port(name, type, strided(packed_strides(spec.extent)));
    return load(name, p);
  }
  int scalar(std::string label, int scalar) {
    Statement s = make(StatementKind::scalar, std::move(label), {});
    s.port = scalar;
    s.arithmetic = fits_f32(spec.scalars[static_cast<std::size_t>(scalar)].type) ? DataType::f32
                                                                                 : DataType::f64;
    s.per_row = spec.as_rowwise() != nullptr;
    return add(std::move(s));
  }
  int index(std::string label, int dim) {
    Statement s = make(StatementKind::index, std::move(label), {});
    s.dim = dim;
    s.per_row = dim < outer_rank(spec);
    return add(std::move(s));
  }
  int op(std::string label, PointwiseMode mode, std::vector<int> args,
         std::array<double, 3> params = {}, DataType arithmetic = DataType::f32) {
    Statement s = make(StatementKind::pointwise, std::move(label), std::move(args));
    s.mode = mode;
    s.params = params;
    s.arithmetic = arithmetic;
    return add(std::move(s));
  }
  int convert(std::string label, DataType type, int value) {
    Statement s = make(StatementKind::convert, std::move(label), {value});
    s.type = type;
    s.arithmetic = fits_f32(type) ? DataType::f32 : DataType::f64;
    return add(std::move(s));
  }
  int accumulator(std::string label, int product = 0) {
    Statement s = make(StatementKind::accumulator, std::move(label), {});
    s.arithmetic = spec.contraction().accumulate;
    s.dim = product;
    return add(std::move(s));
  }
  int inside(int value, int port) {
    Statement s = make(StatementKind::inside, "inside", {value});
    s.port = port;
    return add(std::move(s));
  }
  // Accumulates `value` and gives the finished reduction.
  int reduce(std::string label, ReductionMode mode, int value,
             DataType arithmetic = DataType::f32) {
    KernelReduction r;
    r.mode = mode;
    r.arithmetic = arithmetic;
    r.length = 1;
    for (int i = spec.rowwise().outer_rank; i < spec.extent.size(); ++i) r.length *= spec.extent[i];
    r.phase = spec.body.statements[static_cast<std::size_t>(value)].phase;
    spec.rowwise().reductions.push_back(r);
    Statement s = make(StatementKind::reduce, label, {value});
    s.port = static_cast<int>(spec.rowwise().reductions.size()) - 1;
    add(s);
    spec.body.statements.back().per_row = false;
    Statement result = make(StatementKind::reduced, std::move(label), {});
    result.port = s.port;
    result.phase = r.phase + 1;
    result.per_row = true;
    result.arithmetic = arithmetic;
    spec.rowwise().phases = std::max(spec.rowwise().phases, r.phase + 2);
    return add(std::move(result));
  }
  // The same over each segment, the last index, behind the reductions of whole rows.
  int reduce_segments(std::string label, ReductionMode mode, int value) {
    RowwiseSpec& rows = spec.rowwise();
    rows.segment = spec.extent.back();
    const int phase = rows.phases - 1, reduced = reduce(std::move(label), mode, value);
    KernelReduction& r = rows.reductions.back();
    r.length = rows.segment;
    r.segmented = true;
    r.phase = phase;
    auto& statements = spec.body.statements;
    statements[static_cast<std::size_t>(reduced) - 1].phase = phase;
    statements.back().phase = phase + 1;
    statements.back().per_row = false;
    rows.phases = phase + 2;
    return reduced;
  }
  // Reduces `value` down the columns of a domain of two indices.
  void column(std::string label, ReductionMode mode, int value) {
    CrossRowReduction r;
    r.mode = mode;
    r.length = spec.extent[0];
    r.label = label;
    r.port = port(label + "_parts", DataType::f32, strided({0, 1}), true);
    Statement s = make(StatementKind::cross_row_reduce, std::move(label), {value});
    s.port = static_cast<int>(spec.cross_row_reductions.size());
    spec.cross_row_reductions.push_back(std::move(r));
    add(std::move(s));
    spec.body.statements.back().per_row = false;
  }
  int gather(std::string label, Gather g, DataType arithmetic = DataType::f32) {
    spec.gathers.push_back(std::move(g));
    Statement s = make(StatementKind::gather, std::move(label), {});
    s.gather = static_cast<int>(spec.gathers.size()) - 1;
    s.arithmetic = arithmetic;
    return add(std::move(s));
  }
  void store(int value, int port) {
    Statement s =
        make(StatementKind::store, spec.ports[static_cast<std::size_t>(port)].name, {value});
    s.port = port;
    add(std::move(s));
  }
  // A packed output over the whole domain.
  void store(int value, std::string name, DataType type) {
    store(value, port(std::move(name), type, strided(packed_strides(spec.extent)), true));
  }

  KernelSpec spec;

 private:
  static Statement make(StatementKind kind, std::string label, std::vector<int> args) {
    Statement s;
    s.kind = kind;
    s.label = std::move(label);
    s.args = std::move(args);
    return s;
  }
  Body* body_ = nullptr;
};

}  // namespace sinter::golden
