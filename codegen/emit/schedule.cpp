#include "emit/schedule.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "emit/gathering.hpp"
#include "emit/schedule_parts.hpp"
#include "plan/access.hpp"
#include "plan/device_model.hpp"

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

bool needs_wide_index(const KernelSpec& spec) {
  // The rows that a table names are known to the caller only.
  const ContractionSpec* const c = spec.as_contraction();
  if (c && c->rows.gathers()) return true;
  const int rank = spec.extent.size();
  double most = 0;
  const auto count_to = [&](std::initializer_list<int> ends) {
    int from = 0;
    for (int to : ends) {
      most = std::max(most, elements(spec.extent, from, to));
      from = to;
    }
  };
  std::visit(Overloaded{[&](const PointwiseSpec&) { count_to({rank}); },
                        [&](const RowwiseSpec& r) {
                          count_to({r.outer_rank, rank});
                        },
                        [&](const ContractionSpec& of) {
                          count_to({of.first_m(), of.first_n(), of.first_k(), rank});
                        }},
             spec.family);
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

}  // namespace

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

namespace {

// Bytes at a place of what few others share: what is fetched of it or, where that is less, what is
// written.
int own_bytes(const KernelSpec& spec, const Packing& packing, int shared) {
  int written = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (spec.ports[i].written && packing.ports[i].kind == PortPack::Kind::pack)
      written += pack_bytes(spec.ports[i], packing.width);
  return std::max({packing.fetched_bytes - shared, written, 1});
}

// Bytes at a place of what is the same in all rows (scales of channels), or in all of an image.
int column_bytes(const KernelSpec& spec, const Packing& packing, bool of_image) {
  const int rank = spec.extent.size();
  int bytes = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    if (rank < 2 || p.written || packing.ports[i].kind != PortPack::Kind::pack) continue;
    if (of_image ? p.access.via.empty() && !moves_along(p.access, rank - 2)
                 : elements_reached(spec.extent, p.access) <= spec.extent[rank - 1])
      bytes += pack_bytes(p, packing.width);
  }
  return bytes;
}

// Where columns share most of what is fetched, a thread's places lie in one column, which it
// fetches once. (Inference of a batchnorm with 256 channels on an H200: 315 -> 279 us.)
void share_columns(const KernelSpec& spec, int cost, Schedule& s) {
  constexpr int kTogether = 4, kMostThreads = 384;
  const int rank = spec.extent.size();
  const std::int64_t row = rank > 1 ? spec.extent[rank - 1] / s.packing.width : 0;  // places
  if (row == 0 || kTogether * cost > kMostCode) return;
  for (int threads = 256; threads <= kMostThreads; threads += 32) {
    if (threads % row != 0) continue;
    const bool of_image = rank > 2 && spec.extent[rank - 2] % (kTogether * threads / row) == 0;
    const int columns = column_bytes(spec, s.packing, of_image),
              own = own_bytes(spec, s.packing, columns);
    if (columns <= own || kTogether * own > 2 * kFlightBytes) continue;
    s.threads = threads;
    s.unroll = kTogether;
    return;
  }
}

void schedule_pointwise(const KernelSpec& spec, Schedule& s) {
  const int rank = spec.extent.size();
  if ((s.tiling = choose_tiling(spec, widest_pack(spec), s.packing)).on) {
    s.threads = s.tiling.threads;
    s.skew = s.tiling.skew;
    const int most = kMostCode / std::max(1, element_cost(spec, spec.body) * s.packing.width);
    for (int u = 1; u <= s.tiling.rounds && u <= std::min(most, 16); ++u)
      if (s.tiling.rounds % u == 0) s.unroll = u;
    s.grid = clamp_grid(s.tiling.tiles);
    return;
  }
  const int widest = widest_pack(spec);
  s.packing = choose_packing(spec, rank - 1, widest, true);
  double places = elements(spec.extent, 0, rank) / s.packing.width;
  if (moves_narrowly(spec, s.packing) &&
      choose_skewed_packs(spec, widest, s.packing, s.skew, s.places))
    places = elements(spec.extent, 0, rank - 1) * static_cast<double>(s.places);
  const int cost = element_cost(spec, spec.body) * s.packing.width;
  const int own = own_bytes(spec, s.packing, column_bytes(spec, s.packing, false));
  // In rows that start anywhere a thread has one place: two are no gain. (Joined odd columns on an
  // H200: 56.2 us with two, 55.1 with one, which compiles in 30 ms less.)
  if (s.skew < 0) {
    s.unroll = power_of_two_to(std::min(kMostCode / std::max(cost, 1), kFlightBytes / 2 / own), 16);
    share_columns(spec, cost, s);
  }
  while (s.unroll > 1 && places / (s.threads * s.unroll) < kEnoughBlocks) s.unroll /= 2;
  // Few results, of which each may read a large window, are spread over the multiprocessors.
  const bool resamples = std::any_of(spec.gathers.begin(), spec.gathers.end(),
                                     [](const Gather& g) { return g.resamples(); });
  while (resamples && s.threads > 32 && places / (s.threads * s.unroll) < kMultiprocessors)
    s.threads /= 2;
  s.grid = clamp_grid(std::ceil(places / (s.threads * s.unroll)));
}

void schedule_contraction(const KernelSpec& spec, Schedule& s) {
  const ContractionSpec& c = spec.contraction();
  const int m = c.first_m(), n = c.first_n(), k = c.first_k();
  const int last_m = c.m ? n - 1 : -1, last_n = c.n ? k - 1 : -1,
            last_k = c.k() ? k + c.k() - 1 : -1;
  s.a_k_fastest = !prefers(spec, c.a().body, last_k, last_m, is_load);
  s.b_k_fastest = !prefers(spec, c.b().body, last_k, last_n, is_load);
  s.n_fastest = !prefers(spec, spec.body, last_n, last_m, is_store);
  // Large tiles read half as many factors for each product and are 1.3 times as fast, but need
  // enough results to occupy most multiprocessors, and four times the registers: those of doubles
  // would not fit.
  const auto tiles = [&](int tile) {
    const auto along = [&](int from, int size) {
      return std::ceil(elements(spec.extent, from, from + size) / tile);
    };
    return elements(spec.extent, 0, m) * along(m, c.m) * along(n, c.n);
  };
  constexpr int kOperands = kLargeTile / 16;  // that a thread loads of each in a step
  const bool large =
      c.accumulate == DataType::f32 && c.zero_dominates == ZeroOf::neither && !c.rows.on &&
      3 * tiles(kLargeTile) >= 2 * kMultiprocessors &&
      4 * tiles(kLargeTile) <= 1.3 * tiles(kSmallTile) &&
      (element_cost(spec, c.a().body) + element_cost(spec, c.b().body)) * kOperands <= kMostCode;
  s.tile = large ? kLargeTile : kSmallTile;
  s.grid = clamp_grid(tiles(s.tile));
}

}  // namespace

Schedule choose_schedule(const KernelSpec& spec, std::string_view architecture) {
  Schedule s;
  s.wide_index = needs_wide_index(spec);
  std::visit(Overloaded{[&](const PointwiseSpec&) { schedule_pointwise(spec, s); },
                        [&](const RowwiseSpec&) { schedule_rowwise(spec, architecture, s); },
                        [&](const ContractionSpec&) { schedule_contraction(spec, s); }},
             spec.family);
  return s;
}

}  // namespace sinter
