#include "plan/liveness.hpp"

namespace sinter {

bool acts(const Statement& s) {
  return s.kind == StatementKind::store || s.kind == StatementKind::reduce ||
         s.kind == StatementKind::column;
}

bool has_later_elements(const KernelSpec& spec) {
  for (const auto& s : spec.body.statements)
    if (acts(s) && !s.per_row && s.phase > 0) return true;
  return false;
}

std::vector<bool> live_statements(const Body& body, const std::vector<int>& roots) {
  std::vector<bool> needed(body.statements.size());
  for (int r : roots) needed[static_cast<std::size_t>(r)] = true;
  for (std::size_t i = body.statements.size(); i-- > 0;)  // operands stand before their use
    if (needed[i])
      for (int a : body.statements[i].args) needed[static_cast<std::size_t>(a)] = true;
  return needed;
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
