#include "schedule/contraction/stored_rows.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

const KernelPort* pooled_port(const KernelSpec& spec) {
  const PooledPixels& pooled = spec.contraction().pooled;
  return pooled.on() ? &spec.ports[static_cast<std::size_t>(pooled.port)] : nullptr;
}

// Elements of 16 bits, or of 8, `together` of which lie side by side along an index, the last of
// the columns unless said, at a multiple of their bytes.
bool lies_in_rows(const KernelSpec& spec, const KernelPort& p, int together, bool bytes_too = false,
                  int along = -1) {
  const Access& a = p.access;
  if (along < 0) along = spec.contraction().first_k() - 1;
  const bool bytes = bytes_too && multiplied_as_bytes(p.type, p.type);
  if (p.type != DataType::bf16 && p.type != DataType::f16 && !bytes) return false;
  if (p.alignment < std::min((bytes ? 1 : 2) * together, 16)) return false;
  if (a.stride[along] != 1 || spec.extent[along] % together != 0 || a.offset % together != 0)
    return false;
  if (&p == pooled_port(spec)) return true;  // a window's results lie so: see PooledPixels
  for (int i = 0; i < spec.contraction().first_k(); ++i)
    if (i != along && a.stride[i] % together != 0) return false;
  return true;
}

// The result's rows lie one behind another.
bool lies_packed(const KernelSpec& spec, const KernelPort& p) {
  const ContractionSpec& c = spec.contraction();
  std::int64_t row = spec.extent[c.first_k() - 1];
  for (int i = c.first_n() - 1; i >= c.first_m(); --i) {
    if (spec.extent[i] > 1 && p.access.stride[i] != row) return false;
    row *= spec.extent[i];
  }
  return true;
}

// Whether the live statements store a sum, and do nothing else.
bool stores_sums(const Body& body) {
  const std::vector<bool> live = live_statements(body, effects(body, 0));
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const Statement& s = body.statements[i];
    const Statement& sum = is_store(s) ? body.statements[static_cast<std::size_t>(s.args[0])] : s;
    if (sum.kind != StatementKind::accumulator || s.gather >= 0) return false;
  }
  return true;
}

}  // namespace

bool loads_apart(const KernelSpec& spec, const Packing& packing) {
  return std::ranges::any_of(spec.body.statements, [&](const Statement& s) {
    if (!is_load(s)) return false;
    const PortPack::Kind kind = packing.ports[static_cast<std::size_t>(s.port)].kind;
    return kind != PortPack::Kind::pack && kind != PortPack::Kind::same;
  });
}

void store_as_summed(const KernelSpec& spec, WarpgroupConfig& e, StoredTiles tiles) {
  const ContractionSpec& c = spec.contraction();
  constexpr std::size_t kMostSources = 2;
  constexpr int kPiece = 4;
  const bool in_pieces = tiles.in_pieces;
  const int along = tiles.lines ? c.first_n() - 1 : -1;
  e.stored_together = in_pieces ? kPiece : 8;
  e.stored_lines = tiles.lines;
  if (!e.n_fastest || c.rows.on || (c.n != 1 && !in_pieces) || !spec.cross_row_reductions.empty() ||
      (c.zero_dominates != ZeroOf::neither && !c.marked_zeros))
    return;
  int result = -1;
  std::vector<int> sources;
  for (const auto& s : spec.body.statements) {
    if (s.kind == StatementKind::random || s.kind == StatementKind::gather ||
        s.kind == StatementKind::index || s.kind == StatementKind::inside)
      return;
    if (!is_load(s) && !is_store(s)) continue;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
    const Access& a = p.access;
    if (!a.windows.empty() || !a.via.empty()) return;
    if (is_store(s)) {
      if (result >= 0) return;
      const auto lies = [&] {
        return lies_in_rows(spec, p, e.stored_together, tiles.bytes_too && e.stored_together == 8,
                            along);
      };
      if (!in_pieces && !tiles.lines && !lies()) e.stored_together = 1;
      if (!lies()) return;
      result = s.port;
      continue;
    }
    bool same = true;  // for all rows
    for (int i = c.first_m(); i < c.first_n(); ++i) same &= !moves_along(a, i);
    if (same || std::find(sources.begin(), sources.end(), s.port) != sources.end()) continue;
    if (in_pieces || !lies_in_rows(spec, p, e.stored_together)) return;
    sources.push_back(s.port);
  }
  if (result < 0 || sources.size() > (e.stored_lines ? 0 : kMostSources)) return;
  const KernelPort& stored = spec.ports[static_cast<std::size_t>(result)];
  e.packed_rows = tiles.rows_exist && lies_packed(spec, stored);
  e.stores_sums = info(stored.type).bytes == 2 && stores_sums(spec.body);
  if (e.stored_together == 1) {  // beside which nothing is read in rows
    if (sources.empty() && tiles.odd_too) e.stored_rows = result;
    return;
  }
  for (int i : sources)
    if (spec.ports[static_cast<std::size_t>(i)].type != stored.type) return;
  e.stored_rows = result;
  e.row_sources = std::move(sources);
  const bool bytes = info(stored.type).bytes == 1;
  if (e.row_sources.empty() && tiles.rows_exist && !in_pieces && !bytes &&
      (e.result = boxed_result(spec, result, c.batch, {c.first_m(), c.first_n()}, c.first_n())))
    set_box(*e.result, kStoredRows);
}

void store_tiles_as_summed(const KernelSpec& spec, WgmmaConfig& e, bool rows_exist) {
  const bool in_pieces = e.resident && spec.contraction().n > 1;
  if (e.b2 || e.scaled() || e.integers) return;
  store_as_summed(spec, e,
                  {.in_pieces = in_pieces,
                   .odd_too = !e.resident,
                   .rows_exist = rows_exist,
                   .bytes_too = !in_pieces && !spec.contraction().pooled.on()});
}

}  // namespace sinter
