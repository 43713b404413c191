#include "schedule/statement_forms.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

std::vector<bool> values_of_segments(const KernelSpec& spec, const Body& body) {
  std::vector<bool> found(body.statements.size());
  if (!spec.as_rowwise() || spec.rowwise().segment == 0) return found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Statement& s = body.statements[i];
    if (s.per_row) continue;
    const auto of = [&](int a) { return found[static_cast<std::size_t>(a)]; };
    const auto same = [&](int a) {
      return of(a) || body.statements[static_cast<std::size_t>(a)].per_row;
    };
    found[i] = s.kind == StatementKind::reduced ||
               ((s.kind == StatementKind::pointwise || s.kind == StatementKind::convert) &&
                std::ranges::any_of(s.args, of) && std::ranges::all_of(s.args, same));
  }
  return found;
}

}  // namespace

StatementForms::StatementForms(const KernelSpec& spec, const Body& body, const Packing* packing,
                               std::vector<bool> prepared)
    : spec_(spec),
      body_(body),
      packing_(packing),
      prepared_(std::move(prepared)),
      of_segment_(values_of_segments(spec, body)) {}

int StatementForms::divisor(int i) const {
  const Statement& s = statement(i);
  const bool divides = s.kind == StatementKind::pointwise && s.mode == PointwiseMode::div;
  if (!divides || s.arithmetic != DataType::f32) return -1;
  const Statement& by = statement(s.args[1]);
  if (!prepared_.empty()) {
    const auto is_prepared = [&](int j) { return prepared_[static_cast<std::size_t>(j)]; };
    return is_prepared(s.args[1]) && !is_prepared(i) && by.arithmetic == DataType::f32 ? s.args[1]
                                                                                       : -1;
  }
  // A number of the graph is prepared by each thread, out of the loops over its elements.
  if (by.kind == StatementKind::scalar && by.arithmetic == DataType::f32 &&
      (spec_.as_pointwise() || spec_.as_contraction()))
    return s.args[1];
  if (!spec_.as_rowwise() || s.per_row || of_segment(i)) return -1;
  return (by.per_row || of_segment(s.args[1])) && by.arithmetic == DataType::f32 ? s.args[1] : -1;
}

bool StatementForms::is_power_of_two(int divisor) const {
  const Statement& s = statement(divisor);
  return s.kind == StatementKind::convert && s.type == DataType::f8e8m0;
}

bool StatementForms::of_row(int i) const {
  const Statement& s = statement(i);
  return packing_ && s.per_row && s.kind == StatementKind::load && s.args.empty();
}

bool StatementForms::packed(int i) const {
  const Statement& s = statement(i);
  if (!packing_ || s.per_row) return false;
  if (s.kind != StatementKind::load && s.kind != StatementKind::store) return false;
  return packing_->ports[static_cast<std::size_t>(s.port)].kind != PortPack::Kind::apart;
}

bool StatementForms::gathered(int i) const {
  const Statement& s = statement(i);
  return s.kind == StatementKind::gather && packing_ && !packing_->gathers.empty() &&
         packing_->gathers[static_cast<std::size_t>(s.gather)].together;
}

bool StatementForms::staged(int i) const {
  return packed(i) && packing_->ports[static_cast<std::size_t>(statement(i).port)].kind ==
                          PortPack::Kind::staged;
}

bool StatementForms::copied(int i) const {
  const Statement& s = statement(i);
  if (!spec_.as_pointwise()) return false;
  if (s.kind != StatementKind::store || !packed(i)) return false;
  const Statement& from = statement(s.args[0]);
  if (from.kind != StatementKind::load || !packed(s.args[0])) return false;
  const KernelPort &port = spec_.ports[static_cast<std::size_t>(from.port)],
                   &to = spec_.ports[static_cast<std::size_t>(s.port)];
  const bool whole = port.access.windows.empty() || !ports_of_pack(from.port).empty();
  return whole && port.type == to.type && port.together == 1 && to.together == 1;
}

bool StatementForms::part(int i) const {
  const Statement& s = statement(i);
  return packed(i) &&
         packing_->ports[static_cast<std::size_t>(s.port)].kind == PortPack::Kind::part;
}

std::vector<int> StatementForms::ports_of_pack(int port) const {
  std::vector<int> ports;
  for (std::size_t i = 0; i < packing_->ports.size(); ++i)
    if (packing_->ports[i].kind == PortPack::Kind::part && packing_->ports[i].into == port)
      ports.push_back(static_cast<int>(i));
  if (!ports.empty()) ports.push_back(port);
  return ports;
}

bool StatementForms::drawn(int i) const {
  return packing_ && !packing_->drawn.empty() && packing_->drawn[static_cast<std::size_t>(i)] > 0;
}

bool StatementForms::compares_integers(int i) const {
  const KernelReduction& r = spec_.rowwise().reductions[static_cast<std::size_t>(i)];
  if ((r.mode != ReductionMode::max && r.mode != ReductionMode::min) || r.length == 0 ||
      r.arithmetic != DataType::f64 || has_later_elements(spec_))
    return false;
  return std::ranges::all_of(body_.statements, [&](const Statement& s) {
    if (s.kind != StatementKind::reduce || s.port != i) return true;
    const Statement& x = statement(s.args[0]);
    if (x.kind != StatementKind::load || x.arithmetic != DataType::f64 || !packed(s.args[0]) ||
        !ports_of_pack(x.port).empty())
      return false;
    const KernelPort& p = spec_.ports[static_cast<std::size_t>(x.port)];
    return p.type == DataType::i32 && p.access.windows.empty();
  });
}

bool StatementForms::runs_once_a_segment(int i) const {
  const Statement& s = statement(i);
  if (s.kind != StatementKind::store) return of_segment(i);
  return of_segment(s.args[0]) && one_of_segment(s);
}

bool StatementForms::one_of_segment(const Statement& s) const {
  return spec_.as_rowwise() && spec_.rowwise().segment > 0 && !s.per_row &&
         !moves_along(spec_.ports[static_cast<std::size_t>(s.port)].access,
                      spec_.extent.size() - 1);
}

bool StatementForms::counts_from_vector(int i) const {
  const Statement& s = statement(i);
  return !spec_.as_contraction() && packing_ && packing_->width > 1 && packing_->dim == s.dim &&
         s.arithmetic == DataType::f32 && !s.per_row;
}

bool StatementForms::sums_products(const Statement& s) const {
  if (!spec_.as_rowwise()) return false;
  const auto i = static_cast<std::size_t>(s.port);
  const auto sums = [&](const auto& reduction) {
    const Statement& term = statement(s.args[0]);
    return (reduction.mode == ReductionMode::add || reduction.mode == ReductionMode::avg) &&
           term.kind == StatementKind::pointwise && term.mode == PointwiseMode::mul &&
           !term.per_row && term.arithmetic == reduction.arithmetic;
  };
  return s.kind == StatementKind::cross_row_reduce ? sums(spec_.cross_row_reductions[i])
                                                   : sums(spec_.rowwise().reductions[i]);
}

int StatementForms::fused_product(const Statement& s) const {
  if (!fuses_products_ || s.mode != PointwiseMode::add || s.arithmetic != DataType::f32) return -1;
  for (std::size_t a = 0; a < s.args.size(); ++a) {
    const Statement& of = statement(s.args[a]);
    const auto number = static_cast<std::size_t>(s.args[a]);
    if (number < prepared_.size() && prepared_[number]) continue;  // its factors are not at hand
    if (scaled(of) || (of.kind == StatementKind::pointwise && of.mode == PointwiseMode::mul &&
                       of.arithmetic == DataType::f32))
      return static_cast<int>(a);
  }
  return -1;
}
bool StatementForms::scaled(const Statement& s) const {
  return scales_sum_ && s.kind == StatementKind::accumulator && s.dim == 0;
}

}  // namespace sinter
