#include "planner/spec/row_sums.hpp"

#include <algorithm>

#include "plan/liveness.hpp"

namespace sinter {
namespace {

// Many products of matrices that fill no tile. (100,000 of 4 x 4 x 4 of f32 on an H200: 216 us in
// tiles of CUDA cores.)
bool is_tiny(const KernelSpec& c, const ContractionSpec& space) {
  constexpr std::int64_t kMany = 1024, kResults = 64, kDepth = 32;
  const int m = space.first_m(), k = space.first_k();
  return count(c.extent, 0, m) >= kMany && count(c.extent, m, k) <= kResults &&
         count(c.extent, k, c.extent.size()) <= kDepth;
}

bool applies(const KernelSpec& c) {
  const ContractionSpec* const space = c.as_contraction();
  if (!space || space->k() == 0 || (space->m > 0 && space->n > 0 && !is_tiny(c, *space)))
    return false;
  if (space->zero_dominates != ZeroOf::neither || space->rows.on || !c.gathers.empty() ||
      space->products.size() > 1 || !c.cross_row_reductions.empty())
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
    if (s.kind == StatementKind::index) return s.dim < spec_.rowwise().outer_rank;
    for (int i = spec_.rowwise().outer_rank; access && i < access->stride.size(); ++i)
      if (access->stride[i] != 0) return false;
    return true;
  }

  KernelSpec& spec_;
};

}  // namespace

KernelSpec as_row_sums(KernelSpec c) {
  if (!applies(c)) return c;
  const ContractionSpec& space = c.contraction();
  KernelSpec r = c;  // ports, scalars and extents stay as they are
  r.body = {};
  std::int64_t length = 1;
  for (int i = space.first_k(); i < r.extent.size(); ++i) length *= r.extent[i];
  r.family = RowwiseSpec{.outer_rank = space.first_k(),
                         .phases = 2,
                         .reductions = {{ReductionMode::add, space.accumulate, length, 0}}};
  RowBody body(r);
  Statement product;
  product.kind = StatementKind::pointwise;
  product.mode = PointwiseMode::mul;
  product.arithmetic = space.accumulate;
  product.label = "product";
  product.args = {body.add(space.a().body)};
  product.args.push_back(body.add(space.b().body));
  Statement reduce;
  reduce.kind = StatementKind::reduce;
  reduce.port = 0;
  reduce.arithmetic = space.accumulate;
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
