#include "planner/split/statistics.hpp"

#include <algorithm>

namespace sinter {
namespace {

// The statement of a rowwise spec that accumulates reduction `r`.
const Statement& accumulating(const KernelSpec& spec, int r) {
  return *std::find_if(
      spec.body.statements.begin(), spec.body.statements.end(),
      [r](const Statement& s) { return s.kind == StatementKind::reduce && s.port == r; });
}

}  // namespace

int centre_of(const KernelSpec& spec, int r) {
  const auto at = [&](int i) -> const Statement& {
    return spec.body.statements[static_cast<std::size_t>(i)];
  };
  const auto& reductions = spec.rowwise().reductions;
  const ReductionMode mode = reductions[static_cast<std::size_t>(r)].mode;
  const Statement& sum = accumulating(spec, r);
  const Statement& square = at(sum.args[0]);
  if ((mode != ReductionMode::avg && mode != ReductionMode::add) ||
      square.kind != StatementKind::pointwise || square.mode != PointwiseMode::mul ||
      square.args[0] != square.args[1])
    return -1;
  const Statement& centred = at(square.args[0]);
  if (centred.kind != StatementKind::pointwise || centred.mode != PointwiseMode::sub) return -1;
  const Statement& centre = at(centred.args[1]);
  if (centre.kind != StatementKind::reduced) return -1;
  const KernelReduction& mean = reductions[static_cast<std::size_t>(centre.port)];
  const Statement& values = accumulating(spec, centre.port);
  const bool same = values.args[0] == centred.args[0] && values.arithmetic == sum.arithmetic &&
                    centred.arithmetic == sum.arithmetic && square.arithmetic == sum.arithmetic &&
                    values.access.windows == sum.access.windows;
  return mean.mode == ReductionMode::avg && mean.phase == 0 && same ? centre.port : -1;
}

bool has_statistics(const KernelSpec& spec) {
  bool any = false;
  const auto& reductions = spec.rowwise().reductions;
  for (std::size_t r = 0; r < reductions.size(); ++r) {
    if (reductions[r].phase != 1) continue;
    any = true;
    if (centre_of(spec, static_cast<int>(r)) < 0) return false;
  }
  return any && std::none_of(spec.body.statements.begin(), spec.body.statements.end(),
                             [](const Statement& s) {
                               return s.kind == StatementKind::store && s.phase == 1 && !s.per_row;
                             });
}

int finish_squares(KernelSpec& spec, BodyCopy& body, const KernelPort& sums,
                   const KernelPort& squares, int mean, const KernelReduction& r, std::int64_t size,
                   const std::string& label) {
  const auto load = [&](const KernelPort& port) {
    Statement s = statement(StatementKind::load, r.arithmetic, port.name);
    s.port = body.add_port(port);
    return body.add(std::move(s));
  };
  const auto compute = [&](PointwiseMode mode, int a, int b, const std::string& name) {
    Statement s = statement(StatementKind::pointwise, r.arithmetic, name);
    s.mode = mode;
    s.args = {a, b};
    return body.add(std::move(s));
  };
  const auto number = [&](std::int64_t n, const std::string& name) {
    Statement s = statement(StatementKind::scalar, r.arithmetic, name);
    s.port = static_cast<int>(spec.scalars.size());
    s.per_row = true;
    spec.scalars.push_back({kNoTensor, name, r.arithmetic, static_cast<double>(n), n});
    return body.add(std::move(s));
  };
  const int length = number(size, "part_length");
  const int own = compute(PointwiseMode::div, load(sums), length, "part_mean");
  const int apart = compute(PointwiseMode::sub, own, mean, "apart");
  const int between =
      compute(PointwiseMode::mul, compute(PointwiseMode::mul, apart, apart, "apart_square"), length,
              "between");
  Statement reduce = statement(StatementKind::reduce, r.arithmetic, label);
  reduce.args = {compute(PointwiseMode::add, load(squares), between, "part_squares")};
  RowwiseSpec& rows = spec.rowwise();
  reduce.port = static_cast<int>(rows.reductions.size());
  rows.reductions.push_back({ReductionMode::add, r.arithmetic, spec.extent.back(), 1});
  Statement reduced = statement(StatementKind::reduced, r.arithmetic, label);
  reduced.port = reduce.port;
  reduced.per_row = true;
  reduced.phase = 2;
  body.add(std::move(reduce));
  rows.phases = 3;
  const int sum = body.add(std::move(reduced));
  if (r.mode != ReductionMode::avg) return sum;
  return compute(PointwiseMode::div, sum, number(r.length, "length"), label);
}

}  // namespace sinter
