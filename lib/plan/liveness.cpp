#include "plan/liveness.hpp"

#include <algorithm>

namespace sinter {

namespace {

bool follows(const Access& a, int dim) {
  return !a.via.empty() || a.stride[dim] != 0 ||
         std::ranges::any_of(a.windows, [&](const Window& w) { return w.coefficient[dim] != 0; });
}

}  // namespace

bool acts(const Statement& s) {
  return s.kind == StatementKind::store || s.kind == StatementKind::reduce ||
         s.kind == StatementKind::cross_row_reduce;
}

bool has_later_elements(const KernelSpec& spec) {
  for (const auto& s : spec.body.statements)
    if (acts(s) && !s.per_row && s.phase > 0) return true;
  return false;
}

std::vector<bool> live_statements(const Body& body, const std::vector<int>& roots,
                                  const std::set<int>& known) {
  std::vector<bool> needed(body.statements.size());
  for (int r : roots) needed[static_cast<std::size_t>(r)] = true;
  for (std::size_t i = body.statements.size(); i-- > 0;)  // operands stand before their use
    if (needed[i] && !known.contains(static_cast<int>(i)))
      for (int a : body.statements[i].args) needed[static_cast<std::size_t>(a)] = true;
  return needed;
}

std::vector<bool> same_along(const KernelSpec& spec, const Body& body,
                             const std::vector<int>& dims) {
  std::vector<bool> same;
  for (const Statement& s : body.statements) {
    const auto follows_any = [&](const Access& a) {
      return std::ranges::any_of(dims, [&](int d) { return follows(a, d); });
    };
    bool here =
        std::ranges::all_of(s.args, [&](int a) { return same[static_cast<std::size_t>(a)]; });
    switch (s.kind) {
      case StatementKind::scalar:
      case StatementKind::pointwise:
      case StatementKind::convert:
        break;
      case StatementKind::index:
        here = std::ranges::find(dims, s.dim) == dims.end();
        break;
      case StatementKind::load:
        here = here && !follows_any(spec.ports[static_cast<std::size_t>(s.port)].access);
        break;
      default:
        here = false;
    }
    same.push_back(here);
  }
  return same;
}

std::vector<int> effects(const Body& body, int phase) {
  std::vector<int> found;
  for (std::size_t i = 0; i < body.statements.size(); ++i) {
    const Statement& s = body.statements[i];
    if (acts(s) && s.phase == phase) found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace sinter
