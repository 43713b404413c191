#include "plan/access.hpp"

#include <algorithm>
#include <limits>

namespace sinter {

std::int64_t count(const Dims& extent, int from, int to) {
  std::int64_t n = 1;
  for (int i = from; i < to; ++i)
    if (__builtin_mul_overflow(n, extent[i], &n)) n = std::numeric_limits<std::int64_t>::max();
  return n;
}

Dims part_of(const Dims& extent, int from, int to) {
  Dims d;
  for (int i = from; i < to; ++i) d.push_back(extent[i]);
  return d;
}

Access packed_access(int rank, int first, const Dims& dim) {
  Access a;
  a.stride = Dims::filled(rank, 0);
  const Dims packed = packed_strides(dim);
  for (int i = 0; i < dim.size(); ++i) a.stride[first + i] = packed[i];
  return a;
}

std::vector<JoinedPart> joined_parts(const KernelSpec& spec, const Body& body) {
  const int k = spec.extent.size() - 1;
  const auto& all = body.statements;
  std::vector<JoinedPart> parts;
  std::int64_t end = 0;
  for (int i = static_cast<int>(all.size()) - 1; i >= 0; --i) {
    const Statement& s = all[static_cast<std::size_t>(i)];
    const bool last = i == 0;
    if (!is_load(s) || (last ? !s.args.empty() : s.args != std::vector{i - 1})) return {};
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    if (!a.via.empty() || a.windows.size() != 1 || a.stride[k] != 0) return {};
    const Window& w = a.windows.front();
    Dims along = Dims::filled(k + 1, 0);
    along[k] = 1;
    if (w.coefficient != along || w.divisor != 1 || w.base != -end) return {};
    parts.push_back({s.port, end, w.extent, a});
    parts.back().access.windows.clear();
    parts.back().access.stride[k] = w.stride;
    end += w.extent;
  }
  return parts.size() > 1 && end == spec.extent[k] ? parts : std::vector<JoinedPart>{};
}

bool joins_products(const KernelSpec& spec) {
  const ContractionSpec* const c = spec.as_contraction();
  return c &&
         (!joined_parts(spec, c->a().body).empty() || !joined_parts(spec, c->b().body).empty());
}

const KernelPort* loaded_as_it_is(const KernelSpec& spec, const Body& body) {
  if (body.statements.size() != 1) return nullptr;
  const Statement& s = body.statements.front();
  if (!is_load(s) || !s.args.empty()) return nullptr;
  const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
  return p.access.via.empty() ? &p : nullptr;
}

const KernelPort* plainly_loaded(const KernelSpec& spec, const Body& body) {
  const KernelPort* const p = loaded_as_it_is(spec, body);
  return p && p->access.windows.empty() ? p : nullptr;
}

std::int64_t step(const Access& a, int i) {
  std::int64_t s = i < a.stride.size() && a.via.empty() ? a.stride[i] : 0;
  for (const auto& w : a.windows)
    if (i < w.coefficient.size()) s += w.coefficient[i] * w.stride;
  return s;
}

bool moves_along(const Access& a, int i) {
  bool moves = a.stride[i] != 0;
  for (const auto& w : a.windows) moves |= w.coefficient[i] != 0;
  return moves;
}

bool varies(const KernelSpec& spec, int i) {
  const ContractionSpec* const c = spec.as_contraction();
  const bool of_rows = c && i >= c->first_m() && i < c->first_n();
  return spec.extent[i] > 1 || (of_rows && c->rows.gathers());
}

bool depends_on(const KernelSpec& spec, const Body& body, int i) {
  return std::any_of(body.statements.begin(), body.statements.end(), [&](const Statement& s) {
    if (s.kind == StatementKind::index) return s.dim == i;
    if (!s.access.stride.empty()) return moves_along(s.access, i);
    if (!is_load(s) && s.kind != StatementKind::inside) return false;
    return moves_along(spec.ports[static_cast<std::size_t>(s.port)].access, i);
  });
}

int outer_rank(const KernelSpec& spec) {
  const RowwiseSpec* const r = spec.as_rowwise();
  return r ? r->outer_rank : 0;
}

std::int64_t elements_reached(const Dims& extent, const Access& a) {
  const auto moves = [](const Window& w, int i) { return w.coefficient[i] != 0; };
  // Along i alone: no more than the window holds, as of a part of a concatenation.
  const auto along = [&](int i) {
    std::int64_t n = extent[i];
    for (const Window& w : a.windows)
      if (moves(w, i) && std::ranges::count_if(w.coefficient, [](auto c) { return c != 0; }) == 1)
        n = std::min(n, w.extent);
    return n;
  };
  const auto elsewhere = [&](int i) {  // a window may only say which of them count
    return a.stride[i] != 0 ||
           std::any_of(a.windows.begin(), a.windows.end(),
                       [&](const Window& w) { return moves(w, i) && w.stride != 0; });
  };
  std::int64_t n = 1;
  if (!a.via.empty()) {
    if (!a.windows.empty()) return count(extent);
    for (int i = 0; i < a.via.size(); ++i)
      if (a.stride[i] != 0) n *= a.via[i];
    return n;
  }
  for (int i = 0; i < extent.size(); ++i)
    if (elsewhere(i)) n *= along(i);
  return n;
}

// What is the same for all rows, or along a row, is little beside what differs, but where it is
// read again very often: then caches take longer than memory, a line for each element of neighbours
// that do not lie together. (Distances of 3000 vectors of 16 f32 to 2000 others, with neighbouring
// rows side by side as their results lie, on an H200: 209 us, memory 6.) Rows of a group are
// scheduled side by side whatever lies how: a block holds whole groups.
bool rows_lie_together(const KernelSpec& spec) {
  if (spec.rowwise().group > 1) return true;
  const int rank = spec.extent.size(), outer = spec.rowwise().outer_rank, row = outer - 1,
            column = rank > outer ? rank - 1 : -1;
  if (outer == 0 || count(spec.extent, 0, outer) <= 1) return false;
  constexpr double kCached = 16;  // reads that take no longer than one from memory
  double balance = 0;
  for (const auto& s : spec.body.statements) {
    if (!is_load(s) && !is_store(s)) continue;
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    const double read = is_load(s) && !s.per_row ? static_cast<double>(count(spec.extent)) : 0,
                 elements = std::max(static_cast<double>(elements_reached(spec.extent, a)),
                                     read / kCached);
    if (step(a, row) == 1) balance += elements;
    if (column >= 0 && step(a, column) == 1) balance -= elements;
  }
  return balance > 0;
}

int column_kinds_from(const KernelSpec& spec) {
  int from = spec.rowwise().outer_rank;
  for (const CrossRowReduction& c : spec.cross_row_reductions)
    for (int i = 0; i < from; ++i)
      if (spec.extent[i] > 1 && moves_along(c.result.access, i)) from = i;
  return from;
}

std::int64_t column_kinds(const KernelSpec& spec) {
  return count(spec.extent, column_kinds_from(spec), spec.rowwise().outer_rank);
}

}  // namespace sinter
