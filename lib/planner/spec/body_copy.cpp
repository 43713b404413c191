#include "planner/spec/body_copy.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "planner/spec/body_builder.hpp"

namespace sinter {
namespace {

// How partial results of one mode are combined.
ReductionMode combining(ReductionMode mode) {
  switch (mode) {
    case ReductionMode::avg:
    case ReductionMode::norm1:
    case ReductionMode::norm2:
      return ReductionMode::add;
    case ReductionMode::mul_no_zeros:  // no partial result is a zero of the input
      return ReductionMode::mul;
    default:
      return mode;
  }
}

}  // namespace

int BodyCopy::copy(int statement) {
  int& known = map_[static_cast<std::size_t>(statement)];
  if (known >= 0) return known;
  Statement s = from_.body.statements[static_cast<std::size_t>(statement)];
  for (int& a : s.args) a = copy(a);
  if (names_ports(s))
    for (int* p : {&s.port2, &s.port})
      if (*p >= 0) *p = port(*p);
  if (!s.access.stride.empty()) s.access = restricted(s.access);
  return map_[static_cast<std::size_t>(statement)] = add(std::move(s));
}

int BodyCopy::add(Statement s) {
  if (!s.args.empty()) {
    s.phase = 0;
    bool per_row = true;
    for (int a : s.args) {
      const auto& operand = to_.body.statements[static_cast<std::size_t>(a)];
      s.phase = std::max(s.phase, operand.phase);
      per_row = per_row && operand.per_row;
    }
    if (is_load(s)) per_row = per_row && s.per_row;
    if (!acts(s) || !per_row) s.per_row = per_row;
  }
  if (!to_.as_rowwise()) s.per_row = false;
  to_.body.statements.push_back(std::move(s));
  return static_cast<int>(to_.body.statements.size()) - 1;
}

int BodyCopy::add_port(KernelPort p) { return sinter::add_port(to_, std::move(p)); }

int BodyCopy::add_convert(int value, DataType arithmetic, DataType type, const std::string& label) {
  Statement s = statement(StatementKind::convert, arithmetic, label);
  s.type = type;
  s.args = {value};
  return add(std::move(s));
}

int BodyCopy::add_store(int value, DataType arithmetic, const KernelPort& port, bool per_row) {
  Statement s = statement(StatementKind::store, arithmetic, port.name);
  s.args = {value};
  s.port = add_port(port);
  s.per_row = per_row;
  return add(std::move(s));
}

Access BodyCopy::restricted(const Access& a) const {
  const auto fit = [&](const Dims& d) {
    Dims r = Dims::filled(to_.extent.size(), 0);
    for (int i = 0; i < std::min(shared_, d.size()); ++i) r[i] = d[i];
    return r;
  };
  Access r = a;
  r.stride = fit(a.stride);
  for (auto& w : r.windows) w.coefficient = fit(w.coefficient);
  return r;
}

int BodyCopy::port(int p) {
  KernelPort copy = from_.ports[static_cast<std::size_t>(p)];
  copy.access = restricted(copy.access);
  return add_port(std::move(copy));
}

Statement statement(StatementKind kind, DataType arithmetic, const std::string& label) {
  Statement s;
  s.kind = kind;
  s.arithmetic = arithmetic;
  s.label = label;
  return s;
}

KernelPort read_back(KernelPort port, Access access) {
  port.written = false;
  port.access = std::move(access);
  return port;
}

int finish_parts(KernelSpec& spec, BodyCopy& body, const KernelPort& partials, ReductionMode mode,
                 DataType arithmetic, std::int64_t length, const std::string& label) {
  const DataType type = partial_type(mode, arithmetic);
  RowwiseSpec& rows = spec.rowwise();
  Statement load = statement(StatementKind::load, type, label);
  load.port = body.add_port(partials);
  Statement reduce = statement(StatementKind::reduce, type, label);
  reduce.args = {body.add(std::move(load))};
  reduce.port = static_cast<int>(rows.reductions.size());
  rows.reductions.push_back({combining(mode), type, spec.extent.back(), 0});
  const int reduction = reduce.port;
  body.add(std::move(reduce));
  Statement reduced = statement(StatementKind::reduced, type, label);
  reduced.port = reduction;
  reduced.per_row = true;
  reduced.phase = 1;
  int result = body.add(std::move(reduced));
  if (mode == ReductionMode::avg) {
    Statement n = statement(StatementKind::scalar, type, "length");
    n.port = static_cast<int>(spec.scalars.size());
    n.per_row = true;
    spec.scalars.push_back({kNoTensor, "length", type, static_cast<double>(length), length});
    Statement divide = statement(StatementKind::pointwise, type, label);
    divide.mode = PointwiseMode::div;
    const int divisor = body.add(std::move(n));
    divide.args = {result, divisor};
    result = body.add(std::move(divide));
  } else if (mode == ReductionMode::norm2) {
    Statement root = statement(StatementKind::pointwise, type, label);
    root.mode = PointwiseMode::sqrt;
    root.args = {result};
    result = body.add(std::move(root));
    if (arithmetic != type) result = body.add_convert(result, arithmetic, arithmetic, label);
  }
  rows.phases = std::max(rows.phases, 2);
  return result;
}

}  // namespace sinter
