#include "schedule/packing.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "plan/access.hpp"
#include "schedule/gathering.hpp"

namespace sinter {
namespace {

bool multiple(std::int64_t value, std::int64_t of) { return value % of == 0; }

}  // namespace

std::vector<bool> reached_ports(const KernelSpec& spec) {
  std::vector<bool> r(spec.ports.size());
  for (const auto& s : spec.body.statements)
    if (s.kind == StatementKind::load || s.kind == StatementKind::store)
      if (!s.per_row) r[static_cast<std::size_t>(s.port)] = true;
  return r;
}

std::int64_t common_step(const KernelSpec& spec, const Access& a, int dim, int width) {
  std::int64_t step = 0;
  if (a.via.empty()) {
    step = a.stride[dim];
  } else {
    // The last index is split off last, so neighbours stay together in the last of `via`.
    const int last = a.via.size() - 1;
    if (dim != spec.extent.size() - 1 || !multiple(a.via[last], width)) return -1;
    step = a.stride[last];
  }
  for (const auto& w : a.windows) {
    if (w.coefficient[dim] == 0) continue;
    if (w.coefficient[dim] != 1 || w.divisor != 1) return -1;
    if (!multiple(w.base, width) || !multiple(w.extent, width)) return -1;
    for (int i = 0; i < w.coefficient.size(); ++i)
      if (i != dim && !multiple(w.coefficient[i], width)) return -1;
    step += w.stride;
  }
  return step;
}

int alignment(const KernelSpec& spec, const KernelPort& p, int dim, int width) {
  const int bytes = info(p.type).bytes;
  const Access& a = p.access;
  const auto fits = [&](std::int64_t n) {
    if (n * bytes > kMoveBytes || n * bytes > p.alignment || !multiple(a.offset, n)) return false;
    const int along = a.via.empty() ? dim : a.via.size() - 1;
    for (int i = 0; i < a.stride.size(); ++i) {
      const bool moves = a.via.empty() ? varies(spec, i) : a.via[i] > 1;
      if (i != along && moves && !multiple(a.stride[i], n)) return false;
    }
    for (const auto& w : a.windows)
      if (w.coefficient[dim] == 0 && !multiple(w.stride, n)) return false;
    return true;
  };
  int n = 1;
  while (2 * n <= width && fits(2 * n)) n *= 2;
  return n;
}

namespace {

// Loads that stand in for each other outside their windows (parts of a concatenation) share a pack:
// an element is in one of them only.
void share_packs(const KernelSpec& spec, Packing& packing) {
  const auto& statements = spec.body.statements;
  std::vector<int> loads(spec.ports.size()), uses(statements.size());
  for (const auto& s : statements) {
    if (is_load(s)) ++loads[static_cast<std::size_t>(s.port)];
    for (int a : s.args) ++uses[static_cast<std::size_t>(a)];
  }
  const auto pack = [&](const Statement& s) -> PortPack& {
    return packing.ports[static_cast<std::size_t>(s.port)];
  };
  for (std::size_t i = statements.size(); i-- > 0;) {  // the last of a chain comes first
    const Statement& first = statements[i];
    if (!is_load(first) || first.args.empty() || pack(first).kind == PortPack::Kind::part) continue;
    std::vector<const Statement*> chain{&first};
    while (!chain.back()->args.empty()) {
      const auto next = static_cast<std::size_t>(chain.back()->args[0]);
      if (!is_load(statements[next]) || uses[next] > 1) break;
      chain.push_back(&statements[next]);
    }
    const DataType type = spec.ports[static_cast<std::size_t>(first.port)].type;
    int aligned = pack(first).aligned;
    const bool alike = std::all_of(chain.begin(), chain.end(), [&](const Statement* s) {
      const KernelPort& p = spec.ports[static_cast<std::size_t>(s->port)];
      aligned = std::min(aligned, pack(*s).aligned);
      return !s->per_row && loads[static_cast<std::size_t>(s->port)] == 1 && p.type == type &&
             p.together == 1 && pack(*s).kind == PortPack::Kind::pack &&
             pack(*s).weight == pack(first).weight;
    });
    if (!alike || !chain.back()->args.empty()) continue;
    pack(first).aligned = aligned;
    for (std::size_t s = 1; s < chain.size(); ++s) {
      pack(*chain[s]) = {.kind = PortPack::Kind::part, .into = first.port};
      packing.fetched_bytes -= packing.width * info(type).bytes;
    }
  }
}

// Rowwise: what a row reads does not depend on which row it is.
bool same_for_all_rows(const KernelSpec& spec, const Access& a) {
  if (!spec.as_rowwise() || !a.via.empty()) return false;
  for (int i = 0; i < spec.rowwise().outer_rank; ++i) {
    if (a.stride[i] != 0) return false;
    for (const auto& w : a.windows)
      if (w.coefficient[i] != 0) return false;
  }
  return true;
}

// Threads that wrote more than a vector of 16 bytes each would write halves of sectors in turn.
// What is read so comes from the first-level cache and makes no difference. (On an H200, with 32
// and 16 bytes of f32 a thread: an optimiser's step of f32 and bf16 241 and 225 us, an rmsnorm of
// 16384 x 4096 from bf16 to f32 143 and 102, a softmax along axis 1 141 and 101.)
int width_of_stores(const KernelSpec& spec, int dim) {
  int most = 1;  // bytes of an element
  for (const auto& s : spec.body.statements) {
    if (s.kind != StatementKind::store || s.per_row) continue;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
    if (common_step(spec, p.access, dim, 1) == p.together)
      most = std::max(most, p.together * info(p.type).bytes);
  }
  return std::max(1, kMoveBytes / most);
}

}  // namespace

Packing choose_packing(const KernelSpec& spec, int dim, int widest, bool stores) {
  Packing packing;
  packing.dim = dim;
  packing.ports.resize(spec.ports.size());
  if (dim < 0) return packing;
  const std::vector<bool> used = reached_ports(spec);
  MovedBytes moved;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    if (!used[i] || common_step(spec, p.access, dim, 1) != p.together) continue;
    moved.add(p.together * info(p.type).bytes);
  }
  // Results that are reduced and not stored have no port here.
  if (spec.as_contraction() && !spec.cross_row_reductions.empty())
    moved.least = std::min(moved.least, 4);
  int width = moved.width(widest);
  if (stores) width = std::min(width, width_of_stores(spec, dim));
  const bool ragged = spec.as_pointwise() && spec.extent.size() == 1;
  // A port that would have to go element by element for the width alone makes it narrower.
  const auto works = [&](int w) {
    if (!ragged && !multiple(spec.extent[dim], w)) return false;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const Access& a = spec.ports[i].access;
      if (used[i] && common_step(spec, a, dim, 1) == 1 && common_step(spec, a, dim, w) != 1)
        return false;
    }
    return std::all_of(spec.gathers.begin(), spec.gathers.end(), [&](const Gather& g) {
      return !g.resamples() || gathers_together(spec, g, dim, w);
    });
  };
  while (width > 1 && !works(width)) width /= 2;
  packing.width = width;
  packing.narrowest = moved.least;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    const KernelPort& p = spec.ports[i];
    const std::int64_t step = common_step(spec, p.access, dim, width);
    PortPack& pack = packing.ports[i];
    pack.weight = !p.written && same_for_all_rows(spec, p.access);
    if (step == p.together) {
      pack.kind = PortPack::Kind::pack;
      pack.aligned = alignment(spec, p, dim, p.together * width);
      if (!p.written) packing.fetched_bytes += pack_bytes(p, width);
    } else if (step == 0 && !p.written) {
      pack.kind = PortPack::Kind::same;
      packing.fetched_bytes += info(p.type).bytes;
    }
  }
  for (std::size_t i = 0; i < spec.gathers.size(); ++i) {
    const Gather& g = spec.gathers[i];
    GatherPack& pack = packing.gathers.emplace_back();
    if (!g.resamples()) continue;
    pack.together = true;
    for (std::size_t p = 0; p < g.ports.size(); ++p)
      pack.aligned.push_back(reads_operand(g, static_cast<int>(p))
                                 ? gather_alignment(spec, g, static_cast<int>(p), dim, width)
                                 : 1);
    if (gathered_with(spec, static_cast<int>(i)) == static_cast<int>(i))
      packing.fetched_bytes += gathered_bytes(spec, g, width);
  }
  share_packs(spec, packing);
  return packing;
}

bool holds(const Packing& decided, const Packing& own) {
  const auto alike = [](const PortPack& a, const PortPack& b) {
    return a.kind == b.kind && a.weight == b.weight && a.into == b.into && a.aligned <= b.aligned;
  };
  return decided.dim == own.dim && decided.width == own.width && decided.clipped == own.clipped &&
         decided.gathers.empty() == own.gathers.empty() &&
         decided.ports.size() == own.ports.size() &&
         std::equal(decided.ports.begin(), decided.ports.end(), own.ports.begin(), alike);
}

bool choose_wide_stores(const KernelSpec& spec, int widest, Packing& packing) {
  const int dim = spec.extent.size() - 1;
  if (dim < 0 || !spec.gathers.empty()) return false;
  const std::vector<bool> used = reached_ports(spec);
  MovedBytes stored;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i] && spec.ports[i].written) stored.add(info(spec.ports[i].type).bytes);
  int width = stored.width(widest);
  while (width > 1 && !multiple(spec.extent[dim], width)) width /= 2;
  if (width * stored.least <= 2 * kNarrowMove) return false;
  Packing p;
  p.dim = dim;
  p.width = width;
  p.narrowest = stored.least;
  p.ports.resize(spec.ports.size());
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    const KernelPort& port = spec.ports[i];
    const std::int64_t step = common_step(spec, port.access, dim, width);
    if (port.together != 1 || !port.access.via.empty() || (port.written && step != 1)) return false;
    if (step == 1)
      p.ports[i] = {.kind = PortPack::Kind::pack, .aligned = alignment(spec, port, dim, width)};
    else
      p.ports[i].kind = step == 0 ? PortPack::Kind::same : PortPack::Kind::each;
    if (port.written && p.ports[i].aligned < width) return false;
    if (!port.written) p.fetched_bytes += info(port.type).bytes * (step == 0 ? 1 : width);
  }
  packing = std::move(p);
  return true;
}

namespace {

bool same_for_many_rows(const KernelSpec& spec, const KernelPort& p) {
  constexpr std::int64_t kMany = 8;
  return elements_reached(spec.extent, p.access) <= count(spec.extent) / kMany;
}

}  // namespace

void ask_early(const KernelSpec& spec, Packing& packing) {
  for (std::size_t i = 0; i < packing.ports.size(); ++i) {
    PortPack& pack = packing.ports[i];
    const KernelPort& p = spec.ports[i];
    pack.early = has_pack(pack) && !pack.weight && !p.written && !same_for_many_rows(spec, p);
  }
}

bool fetch_late(const KernelSpec& spec, Packing& packing) {
  bool any = false;
  for (std::size_t i = 0; i < packing.ports.size(); ++i) {
    PortPack& pack = packing.ports[i];
    const KernelPort& p = spec.ports[i];
    if (!has_pack(pack) || pack.weight || p.written) continue;
    pack.late = same_for_many_rows(spec, p);
    any |= pack.late;
  }
  return any;
}

bool aligned_alike(const KernelSpec& spec, const KernelPort& p, const KernelPort& other,
                   int width) {
  const Access &a = p.access, &b = other.access;
  if (!a.via.empty() || !a.windows.empty() || p.alignment < kMoveBytes) return false;
  if (!multiple(a.offset - b.offset, width)) return false;
  for (int i = 0; i < a.stride.size(); ++i)
    if (spec.extent[i] > 1 && !multiple(a.stride[i] - b.stride[i], width)) return false;
  return true;
}

int drawn_together(const KernelSpec& spec, const Packing& packing, int aligned_by,
                   const Statement& s) {
  const int width = std::min(4, packing.width);
  if (s.per_row) return 0;
  if (packing.dim < 0 || common_step(spec, s.access, packing.dim, packing.width) != 1) return 1;
  KernelPort indices;  // a run is what 16 bytes would be of a tensor of 4-byte elements
  indices.type = DataType::i32;
  indices.access = s.access;
  if (aligned_by < 0) return alignment(spec, indices, packing.dim, width);
  const KernelPort& by = spec.ports[static_cast<std::size_t>(aligned_by)];
  if (packing.ports[static_cast<std::size_t>(aligned_by)].kind == PortPack::Kind::shifted) return 1;
  return aligned_alike(spec, indices, by, width) ? width : 1;
}

std::vector<int> ports_of_rows(const KernelSpec& spec, const Packing& packing) {
  std::vector<int> ports;
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (const PortPack& pack = packing.ports[i];
        has_pack(pack) && !pack.weight && !spec.ports[i].written)
      ports.push_back(static_cast<int>(i));
  return ports;
}

namespace {

// What struct Shifted of codegen/device/core/shifted.cuh can hold.
bool can_shift(const KernelPort& p, int width) {
  const int bytes = info(p.type).bytes;
  return p.access.via.empty() && p.access.windows.empty() && bytes <= 4 && width * bytes >= 8 &&
         p.alignment >= kMoveBytes;
}

// Weights that are cut out of aligned pieces, as packs of rows do not start where theirs do. The
// first weight is aligned, so that no piece in the middle of a row lies before it.
bool shifts(const KernelSpec& spec, const KernelPort& p, int dim, int width) {
  return !p.written && same_for_all_rows(spec, p.access) && can_shift(p, width) &&
         common_step(spec, p.access, dim, 1) == 1 &&
         multiple(p.access.offset * info(p.type).bytes, kMoveBytes);
}

// One element for a whole row: packs that start anywhere would not heed the edge of a window.
bool same_along(const Access& a, int dim) {
  return a.via.empty() && a.stride[dim] == 0 &&
         std::all_of(a.windows.begin(), a.windows.end(),
                     [&](const auto& w) { return w.coefficient[dim] == 0; });
}

}  // namespace

bool choose_misaligned_rows(const KernelSpec& spec, int widest, Packing& packing, int& aligned_by) {
  const int dim = spec.extent.size() - 1;
  if (spec.rowwise().outer_rank != dim) return false;
  const std::vector<bool> used = reached_ports(spec);
  Packing p;
  p.dim = dim;
  p.ports.resize(spec.ports.size());
  const auto moves_rows = [&](std::size_t i) {
    const Access& a = spec.ports[i].access;
    return used[i] && common_step(spec, a, dim, 1) == 1 &&
           (spec.ports[i].written || !same_for_all_rows(spec, a));
  };
  MovedBytes moved;
  int by = -1;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (moves_rows(i)) {
      by = static_cast<int>(i);
      moved.add(info(spec.ports[i].type).bytes);
    }
  if (by < 0) return false;
  const bool sums = !spec.cross_row_reductions.empty();
  p.width = moved.width(widest);
  if (!sums) {
    p.width = std::min(p.width, width_of_stores(spec, dim));
    // Sixteen elements of more than a byte would be two vectors, with ends and values of both.
    if (moved.most > 1) p.width = std::min(p.width, 8);
  }
  p.narrowest = moved.least;
  p.clipped = true;
  if (p.width * (sums ? moved.least : moved.most) < kMoveBytes) return false;
  if (p.width <= packing.width) return false;  // what lies in its row is as wide
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& port = spec.ports[i];
    if (!used[i]) continue;
    if (moves_rows(i)) {
      if (!aligned_alike(spec, port, spec.ports[static_cast<std::size_t>(by)], p.width))
        return false;
      p.ports[i] = {.kind = PortPack::Kind::pack, .aligned = p.width};
      if (!port.written) p.fetched_bytes += p.width * info(port.type).bytes;
    } else if (shifts(spec, port, dim, p.width)) {
      p.ports[i] = {.kind = PortPack::Kind::shifted, .weight = true};
      p.fetched_bytes += p.width * info(port.type).bytes;
    } else if (!port.written && same_along(port.access, dim)) {
      p.ports[i] = {.kind = PortPack::Kind::same, .weight = same_for_all_rows(spec, port.access)};
      p.fetched_bytes += info(port.type).bytes;
    }
  }
  // Blocks that walk over the rows take those that start alike, and write where they do.
  const RowwiseSpec& rows = spec.rowwise();
  if (rows.num_partials > 0) {
    const Access& a = spec.ports[static_cast<std::size_t>(by)].access;
    if (rows.outer_rank != 1 || rows.num_partials % p.width != 0 || !multiple(a.offset, p.width) ||
        !multiple(a.stride[0] - spec.extent[1], p.width))
      return false;
  }
  packing = std::move(p);
  aligned_by = by;
  return true;
}

bool choose_misaligned_across(const KernelSpec& spec, int widest, Packing& packing,
                              int& aligned_by) {
  const int dim = spec.rowwise().outer_rank - 1;
  if (dim < 0) return false;
  const std::vector<bool> used = reached_ports(spec);
  const auto cut = [&](std::size_t i) {
    return common_step(spec, spec.ports[i].access, dim, 1) == 1;
  };
  // Pieces around all but the last element of a row lie in the tensor.
  const auto apart = [&](const Access& a, int width) {
    for (int i = spec.rowwise().outer_rank; i < a.stride.size(); ++i)
      if (spec.extent[i] > 1 && a.stride[i] < 2 * width) return false;
    return true;
  };
  Packing p;
  p.dim = dim;
  p.ports.resize(spec.ports.size());
  MovedBytes moved;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i] && cut(i)) moved.add(info(spec.ports[i].type).bytes);
  // What larger pieces would take of registers leaves too few of them in flight.
  constexpr int kPiece = 8;
  p.width = moved.width(widest, kPiece);
  p.narrowest = moved.least;
  if (spec.extent[dim] < p.width) return false;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const KernelPort& port = spec.ports[i];
    const int bytes = info(port.type).bytes;
    if (!used[i]) continue;
    if (port.written || port.together > 1) return false;
    if (cut(i) && can_shift(port, p.width) && apart(port.access, p.width)) {
      p.ports[i] = {.kind = PortPack::Kind::shifted};
      p.fetched_bytes += p.width * bytes + std::min(kMoveBytes, p.width * bytes);
      aligned_by = static_cast<int>(i);
    } else if (same_along(port.access, dim)) {
      p.ports[i] = {.kind = PortPack::Kind::same, .weight = same_for_all_rows(spec, port.access)};
      p.fetched_bytes += bytes;
    } else {
      return false;
    }
  }
  packing = std::move(p);
  return true;
}

bool choose_misaligned_packs(const KernelSpec& spec, int widest, Packing& packing, int& aligned_by,
                             std::int64_t& vectors) {
  const int dim = spec.extent.size() - 1;
  if (dim < 0 || !spec.gathers.empty() || count(spec.extent) == 0) return false;
  const std::vector<bool> used = reached_ports(spec);
  const auto bytes = [&](std::size_t i) { return info(spec.ports[i].type).bytes; };
  const auto in_row = [&](std::size_t i) {
    return common_step(spec, spec.ports[i].access, dim, 1) == 1;
  };
  MovedBytes moved;
  int by = -1;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    if (spec.ports[i].together > 1) return false;
    if (!in_row(i)) continue;
    moved.add(bytes(i));
    if (spec.ports[i].written && (by < 0 || bytes(i) > bytes(static_cast<std::size_t>(by))))
      by = static_cast<int>(i);
  }
  if (by < 0) return false;
  const KernelPort& written = spec.ports[static_cast<std::size_t>(by)];
  Packing p;
  const auto try_width = [&](int width) {
    p = {};
    p.dim = dim;
    p.width = width;
    p.narrowest = moved.least;
    p.clipped = true;
    p.ports.resize(spec.ports.size());
    for (std::size_t i = 0; i < used.size(); ++i) {
      const KernelPort& port = spec.ports[i];
      if (!used[i]) continue;
      if (in_row(i) && aligned_alike(spec, port, written, width))
        p.ports[i] = {.kind = PortPack::Kind::pack, .aligned = width};
      else if (!port.written && in_row(i) && can_shift(port, width))
        p.ports[i] = {.kind = PortPack::Kind::shifted};
      else if (!port.written && same_along(port.access, dim))
        p.ports[i] = {.kind = PortPack::Kind::same};
      else
        return false;
      if (!port.written) p.fetched_bytes += bytes(i) * (in_row(i) ? width : 1);
    }
    return true;
  };
  const int limit = moved.width(widest);
  int width = std::min(kMoveBytes / bytes(static_cast<std::size_t>(by)), limit);
  while (2 <= width && width <= limit && !try_width(width)) width *= 2;
  if (width < 2 || width > limit) return false;
  // How much earlier than a row its first pack starts, where that is the same for all.
  std::int64_t early = ((written.access.offset % width) + width) % width;
  for (int i = 0; i < dim; ++i)
    if (spec.extent[i] > 1 && !multiple(written.access.stride[i], width)) early = width - 1;
  const std::int64_t of_row = (spec.extent[dim] + early + width - 1) / width;
  if (of_row > std::numeric_limits<int>::max()) return false;
  packing = std::move(p);
  aligned_by = by;
  vectors = of_row;
  return true;
}

}  // namespace sinter
