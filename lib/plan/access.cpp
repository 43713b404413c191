#include "plan/access.hpp"

namespace sinter {

std::int64_t step(const Access& a, int i) {
  std::int64_t s = i < a.stride.size() && a.via.empty() ? a.stride[i] : 0;
  for (const auto& w : a.windows)
    if (i < w.coefficient.size()) s += w.coefficient[i] * w.stride;
  return s;
}

bool rows_lie_together(const KernelSpec& spec) {
  std::int64_t rows = 1;
  for (int i = 0; i < spec.kept; ++i) rows *= spec.extent[i];
  const int rank = spec.extent.size(), last_row = spec.kept - 1,
            last_column = rank > spec.kept ? rank - 1 : -1;
  return spec.kept > 0 && rows > 1 &&
         prefers(spec, spec.body, last_column, last_row, [](const Statement& s) {
           return s.kind == StatementKind::load || s.kind == StatementKind::store;
         });
}

}  // namespace sinter
