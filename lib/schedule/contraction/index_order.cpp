#include "schedule/contraction/index_order.hpp"

#include <algorithm>

namespace sinter {

void reorder(KernelSpec& spec, const std::vector<int>& order) {
  const auto permute = [&](Dims& d) {
    if (d.empty()) return;
    Dims r;
    for (int i : order) r.push_back(d[i]);
    d = r;
  };
  const auto access = [&](Access& a) {
    if (a.via.empty()) permute(a.stride);
    for (auto& w : a.windows) permute(w.coefficient);
  };
  if (auto* const c = spec.as_contraction()) {  // indices of k stay among themselves
    const auto before = c->k_indices;
    const auto first = static_cast<std::size_t>(c->first_k());
    for (std::size_t i = 0; i < before.size(); ++i)
      c->k_indices[i] = before[static_cast<std::size_t>(order[first + i]) - first];
  }
  permute(spec.extent);
  for (auto& p : spec.ports) access(p.access);
  for (auto& c : spec.cross_row_reductions) access(c.result.access);
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) {
      access(s.access);
      if (s.kind == StatementKind::index)
        s.dim = static_cast<int>(std::find(order.begin(), order.end(), s.dim) - order.begin());
    }
}

bool reads_joined_indices(const KernelSpec& spec) {
  if (!spec.gathers.empty()) return true;
  for (const auto& p : spec.ports)
    if (!p.access.via.empty()) return true;
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (s.kind == StatementKind::random && !s.access.via.empty()) return true;
  return false;
}

void split_index(KernelSpec& spec, int i, std::int64_t run) {
  const auto split = [&](Dims& dims, std::int64_t outer, std::int64_t inner) {
    if (dims.empty()) return;
    Dims r;
    for (int j = 0; j < dims.size(); ++j) {
      if (j == i) r.push_back(outer);
      r.push_back(j == i ? inner : dims[j]);
    }
    dims = r;
  };
  const auto access = [&](Access& a) {
    if (a.via.empty() && !a.stride.empty()) split(a.stride, a.stride[i] * run, a.stride[i]);
    for (auto& w : a.windows) split(w.coefficient, w.coefficient[i] * run, w.coefficient[i]);
  };
  split(spec.extent, (spec.extent[i] + run - 1) / run, run);
  for (auto& p : spec.ports) access(p.access);
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) {
      access(s.access);
      if (s.kind == StatementKind::index && s.dim > i) ++s.dim;
    }
  ContractionSpec& c = spec.contraction();
  ++(i < c.first_m() ? c.batch : i < c.first_n() ? c.m : c.n);
}

void reverse_index(KernelSpec& spec, int i) {
  const std::int64_t last = spec.extent[i] - 1;
  const auto access = [&](Access& a) {
    if (a.via.empty() && !a.stride.empty()) {
      a.offset += last * a.stride[i];
      a.stride[i] = -a.stride[i];
    }
    for (auto& w : a.windows) {
      w.base += last * w.coefficient[i];
      w.coefficient[i] = -w.coefficient[i];
    }
  };
  for (auto& p : spec.ports) access(p.access);
  for (auto& c : spec.cross_row_reductions) access(c.result.access);
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) access(s.access);
}

void add_unit_index(KernelSpec& spec, int at) {
  const auto access = [at](Access& a) {
    if (a.via.empty() && !a.stride.empty()) a.stride.insert(at, 0);
    for (auto& w : a.windows) w.coefficient.insert(at, 0);
  };
  spec.extent.insert(at, 1);
  for (auto& p : spec.ports) access(p.access);
  for (auto& c : spec.cross_row_reductions) access(c.result.access);
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) {
      access(s.access);
      if (s.kind == StatementKind::index && s.dim >= at) ++s.dim;
    }
}

bool names_index(const KernelSpec& spec, int i) {
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (s.kind == StatementKind::index && s.dim == i) return true;
  return false;
}

void widen_batch(KernelSpec& spec) {
  ContractionSpec& c = spec.contraction();
  const int m = std::max(0, c.m - 1), n = std::max(0, c.n - 1);
  std::vector<int> order;
  const auto take = [&](int from, int count) {
    for (int i = 0; i < count; ++i) order.push_back(from + i);
  };
  const int first_m = c.first_m(), first_n = c.first_n(), first_k = c.first_k();
  take(0, c.batch + m);
  take(first_n, n);
  take(first_m + m, c.m - m);
  take(first_n + n, c.n - n);
  take(first_k, c.k());
  reorder(spec, order);
  c.batch += m + n;
  c.m -= m;
  c.n -= n;
}

void swap_operands(KernelSpec& spec) {
  std::vector<int> order;
  ContractionSpec& c = spec.contraction();
  const int first_m = c.first_m(), first_n = c.first_n(), first_k = c.first_k();
  for (int i = 0; i < c.batch; ++i) order.push_back(i);
  for (int i = first_n; i < first_k; ++i) order.push_back(i);
  for (int i = first_m; i < first_n; ++i) order.push_back(i);
  for (int i = first_k; i < spec.extent.size(); ++i) order.push_back(i);
  reorder(spec, order);
  std::swap(c.a(), c.b());
  std::swap(c.m, c.n);
  if (c.zero_dominates != ZeroOf::neither)
    c.zero_dominates = c.zero_dominates == ZeroOf::a ? ZeroOf::b : ZeroOf::a;
  for (auto& reduction : spec.cross_row_reductions)
    std::swap(reduction.partial_stride_m, reduction.partial_stride_n);
}

}  // namespace sinter
