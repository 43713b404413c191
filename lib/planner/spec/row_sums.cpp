#include "planner/spec/row_sums.hpp"

#include <algorithm>

#include "plan/liveness.hpp"

namespace sinter {
namespace {

bool applies(const KernelSpec& c) {
  if (c.family != Family::contraction || (c.m > 0 && c.n > 0) || c.k == 0) return false;
  if (c.annihilates != ZeroOf::neither || c.rows.on || !c.gathers.empty() || c.two_products() ||
      !c.columns.empty())
    return false;
  return std::all_of(c.ports.begin(), c.ports.end(), [](const KernelPort& p) {
    return p.access.windows.empty() && p.access.via.empty();
  });
}

// Adds statements one behind another and says of each when it runs.
class RowBody {
 public:
  explicit RowBody(KernelSpec& spec) : spec_(spec) {}

  int add(Statement s) {
    if (s.args.empty())
      s.per_row = of_row(s);
    else
      s.per_row = s.kind != StatementKind::reduce;
    for (int a : s.args) {
      const Statement& operand = spec_.body.statements[static_cast<std::size_t>(a)];
      s.phase = std::max(s.phase, operand.phase);
      s.per_row = s.per_row && operand.per_row;
    }
    spec_.body.statements.push_back(std::move(s));
    return static_cast<int>(spec_.body.statements.size()) - 1;
  }

  // A whole body, whose accumulator is statement `sum`; the place of its last statement.
  int add(const Body& body, int sum = -1) {
    std::vector<int> copy;
    for (Statement s : body.statements) {
      for (int& a : s.args) a = copy[static_cast<std::size_t>(a)];
      copy.push_back(s.kind == StatementKind::accumulator ? sum : add(std::move(s)));
    }
    return copy.back();
  }

 private:
  bool of_row(const Statement& s) const {
    const Access* access = nullptr;
    if (s.kind == StatementKind::load)
      access = &spec_.ports[static_cast<std::size_t>(s.port)].access;
    if (s.kind == StatementKind::random) access = &s.access;
    if (s.kind == StatementKind::index) return s.dim < spec_.kept;
    for (int i = spec_.kept; access && i < access->stride.size(); ++i)
      if (access->stride[i] != 0) return false;
    return true;
  }

  KernelSpec& spec_;
};

}  // namespace

KernelSpec as_row_sums(KernelSpec c) {
  if (!applies(c)) return c;
  KernelSpec r = c;  // ports, scalars and extents stay as they are
  r.family = Family::rowwise;
  r.kept = c.batch + c.m + c.n;
  r.batch = r.m = r.n = r.k = 0;
  r.body = r.a = r.b = {};
  r.phases = 2;
  std::int64_t length = 1;
  for (int i = r.kept; i < r.extent.size(); ++i) length *= r.extent[i];
  r.reductions = {{ReductionMode::add, c.accumulate, length, 0}};
  RowBody body(r);
  Statement product;
  product.kind = StatementKind::pointwise;
  product.mode = PointwiseMode::mul;
  product.arithmetic = c.accumulate;
  product.label = "product";
  product.args = {body.add(c.a)};
  product.args.push_back(body.add(c.b));
  Statement reduce;
  reduce.kind = StatementKind::reduce;
  reduce.port = 0;
  reduce.arithmetic = c.accumulate;
  reduce.args = {body.add(product)};
  body.add(reduce);
  Statement sum = c.body.statements.front();  // the accumulator, with its label
  sum.kind = StatementKind::reduced;
  sum.port = 0;
  sum.phase = 1;
  sum.per_row = true;
  r.body.statements.push_back(sum);
  body.add(c.body, static_cast<int>(r.body.statements.size()) - 1);
  return r;
}

}  // namespace sinter
