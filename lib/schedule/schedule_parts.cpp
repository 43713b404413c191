#include "schedule/schedule_parts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/gathering.hpp"

namespace sinter {
namespace {

constexpr double kNarrow = 0x1p30;  // below it, sums of two such numbers fit in 31 bits

double last(const Dims& extent, int i) {
  return extent[i] > 0 ? static_cast<double>(extent[i] - 1) : 0.0;
}

// The largest magnitude that evaluating the access can meet.
double reach(const Access& a, const Dims& extent) {
  double sum = std::abs(static_cast<double>(a.offset));
  const Dims& strided = a.via.empty() ? extent : a.via;
  for (int i = 0; i < a.stride.size(); ++i)
    sum += std::abs(static_cast<double>(a.stride[i])) * last(strided, i);
  for (const auto& w : a.windows) {
    double c = std::abs(static_cast<double>(w.base));
    for (int i = 0; i < w.coefficient.size(); ++i)
      c += std::abs(static_cast<double>(w.coefficient[i])) * last(extent, i);
    sum += c * std::max(1.0, std::abs(static_cast<double>(w.stride)));
  }
  return sum;
}

double reach(const Gather& g) {
  double most = 0;
  for (std::size_t i = 0; i < g.dims.size(); ++i)
    most = std::max(most, static_cast<double>(span_elements(g.dims[i], g.strides[i])));
  if (const auto* r = std::get_if<ResampleAttributes>(&g.attributes)) {
    double window = 1, axis = 0;
    for (auto w : r->window) window *= static_cast<double>(w);
    for (int d = 0; d < r->window.size() && d + 2 < g.output_dim.size(); ++d) {
      const double step = r->stride.empty() ? 1.0 : static_cast<double>(r->stride[d]);
      const double pre = r->pre_padding.empty() ? 0.0 : static_cast<double>(r->pre_padding[d]);
      axis = std::max(axis, static_cast<double>(g.output_dim[d + 2]) * step + pre +
                                static_cast<double>(r->window[d]));
    }
    most = std::max({most, window, axis});
  }
  return most;
}

}  // namespace

bool needs_wide_index(const KernelSpec& spec) {
  // The rows that a table names are known to the caller only.
  const ContractionSpec* const c = spec.as_contraction();
  if (c && c->rows.gathers()) return true;
  const int rank = spec.extent.size();
  double most = 0;
  int from = 0;
  for (const std::int64_t end : spec.group_ends()) {
    most = std::max(most, elements(spec.extent, from, static_cast<int>(end)));
    from = static_cast<int>(end);
  }
  for (const auto& p : spec.ports) {
    if (!p.access.via.empty()) most = std::max(most, elements(spec.extent, 0, rank));
    most = std::max(most, reach(p.access, spec.extent));
  }
  for (const auto& g : spec.gathers) most = std::max(most, reach(g));
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (s.kind == StatementKind::random) most = std::max(most, reach(s.access, spec.extent));
  return !(most < kNarrow);
}

double elements(const Dims& extent, int from, int to) {
  double n = 1;
  for (int i = from; i < to; ++i) n *= static_cast<double>(extent[i]);
  return n;
}

// Random numbers are mostly drawn for four neighbours at once: ten rounds of two products and two
// differences.
int element_cost(const KernelSpec& spec, const Body& body) {
  constexpr int kRun = 48, kOfRun = 4;
  int cost = 0;
  for (const auto& s : body.statements) {
    if (s.per_row) continue;
    if (s.kind == StatementKind::random) {
      cost += kRun / kOfRun;
      continue;
    }
    const int single = s.kind == StatementKind::gather ? gather_cost(spec, s.gather) : 1;
    cost += s.arithmetic == DataType::f64 ? 4 * single : single;
  }
  return cost;
}

double bytes_moved(const KernelSpec& spec) {
  double bytes = resampled_bytes(spec);
  for (const auto& p : spec.ports)
    bytes += static_cast<double>(elements_reached(spec.extent, p.access)) * info(p.type).bytes;
  return bytes;
}

std::uint32_t clamp_grid(double blocks) {
  return static_cast<std::uint32_t>(std::clamp(blocks, 1.0, 0x1p31 - 1));
}

int power_of_two_from(double n, int largest) {
  const double clamped = std::clamp(n, 1.0, static_cast<double>(largest));
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::ceil(clamped))));
}

int power_of_two_to(double n, int largest) {
  const double clamped = std::clamp(n, 1.0, static_cast<double>(largest));
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(clamped)));
}

int widest_pack(const KernelSpec& spec) {
  return power_of_two_to(kMostCode / std::max(1, element_cost(spec, spec.body)), 16);
}

// Short rows have too many ends. (Rows of 258 bytes, copied on an H200: 12.4 us by elements, 13.6
// by packs; columns of 1001 to 3003, joined: 74.7 and 56.3.)
bool moves_narrowly(const KernelSpec& spec, const Packing& packing) {
  constexpr std::int64_t kShortRow = 512;  // bytes
  const std::vector<bool> used = reached_ports(spec);
  for (std::size_t i = 0; i < used.size(); ++i) {
    const int bytes = info(spec.ports[i].type).bytes;
    if (used[i] && packing.ports[i].kind == PortPack::Kind::pack &&
        packing.ports[i].aligned * bytes <= kNarrowMove &&
        spec.extent[packing.dim] * bytes >= kShortRow)
      return true;
  }
  return false;
}

// Without index i of the domain, on which nothing that is left depends.
KernelSpec without_index(KernelSpec spec, int i) {
  const auto drop = [i](Dims& dims) {
    Dims left;
    for (int j = 0; j < dims.size(); ++j)
      if (j != i) left.push_back(dims[j]);
    dims = left;
  };
  drop(spec.extent);
  for (auto& p : spec.ports) {
    drop(p.access.stride);
    for (auto& w : p.access.windows) drop(w.coefficient);
  }
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) {
      if (s.kind == StatementKind::index && s.dim > i) --s.dim;
      if (!s.access.stride.empty()) drop(s.access.stride);
    }
  for (auto& g : spec.gathers)
    for (auto& d : g.indices)
      if (d > i) --d;
  return spec;
}

// Whether it is straight-line f32 arithmetic, on loads only where these do not wait for each other.
bool is_straight(const KernelSpec& spec, const Body& body, bool loads) {
  return std::all_of(body.statements.begin(), body.statements.end(), [&](const Statement& s) {
    if (s.arithmetic != DataType::f32) return false;
    if (is_load(s)) {
      const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
      return loads && s.args.empty() && a.windows.empty() && a.via.empty();
    }
    return s.kind == StatementKind::scalar || s.kind == StatementKind::index ||
           s.kind == StatementKind::pointwise || s.kind == StatementKind::convert ||
           s.kind == StatementKind::accumulator || s.kind == StatementKind::store;
  });
}

}  // namespace sinter
