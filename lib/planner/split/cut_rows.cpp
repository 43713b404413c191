#include "planner/split/cut_rows.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/statistics.hpp"
#include "schedule/rowwise/rowwise.hpp"

namespace sinter {
namespace {

std::int64_t length_of_rows(const KernelSpec& s) {
  return count(s.extent, s.rowwise().outer_rank, s.extent.size());
}

// In how many parts of what size an extent is cut: as wished where that divides it, else in parts
// that are multiples of 64, the last one short. Of millions of parts a divisor is sought near the
// wished one alone: all of them would take minutes. `packs`: parts are moved in packs of 8.
std::pair<std::int64_t, std::int64_t> parts_of(std::int64_t extent, std::int64_t wished,
                                               bool packs) {
  constexpr std::int64_t kFarthest = 1 << 16;
  for (std::int64_t off = 0; off <= std::min(wished / 2, kFarthest); ++off)
    for (const std::int64_t n : {wished + off, wished - off})
      if (n > 0 && extent % n == 0 && (!packs || extent / n % 8 == 0 || extent % 8 != 0))
        return {n, extent / n};
  std::int64_t size = (extent + wished - 1) / wished;
  if (size > 64) size = (size + 63) / 64 * 64;
  return {(extent + size - 1) / size, size};
}

// `rest`: of an uneven last index the parts are even, and what they leave is a spec of its own.
CutRows in_parts(const KernelSpec& spec, std::int64_t wished, bool rest, bool packs = true) {
  CutRows cut{spec};
  const int last = spec.extent.size() - 1;
  for (int d = spec.rowwise().outer_rank; d <= last && wished > 1; ++d) {
    const std::int64_t extent = spec.extent[d];
    auto [n, size] =
        extent <= wished ? std::pair{extent, std::int64_t{1}} : parts_of(extent, wished, packs);
    if (n <= 1) continue;
    if (rest && d == last && n * size != extent) {
      size = extent / n / kMoveBytes * kMoveBytes;  // whole vectors of any type
      if (size == 0) return CutRows{spec};
      cut.rest = cut.spec;
      keep_part(*cut.rest, d + cut.added, n * size, extent - n * size);
      keep_part(cut.spec, d + cut.added, 0, n * size);
    } else {
      cut.even &= n * size == extent;
    }
    cut_index(cut.spec, d + cut.added, n, size);
    ++cut.spec.rowwise().outer_rank;
    ++cut.added;
    cut.parts *= n;
    if (cut.rest) cut.parts += cut.parts / n;
    wished /= n;
  }
  return cut;
}

// Writes the partial results of what even parts leave, which lie behind those of the parts.
KernelSpec rest_of_rows(const KernelSpec& rest, const std::vector<KernelPort>& parts,
                        std::int64_t behind) {
  KernelSpec k = rest;
  k.body.statements.clear();
  k.ports.clear();
  BodyCopy body(rest, k, rest.extent.size());
  for (std::size_t i = 0; i < rest.body.statements.size(); ++i) {
    const Statement& s = rest.body.statements[i];
    if (s.kind == StatementKind::reduce || (s.kind == StatementKind::store && s.phase == 0))
      body.copy(static_cast<int>(i));
    if (s.kind != StatementKind::reduced) continue;
    const auto number = static_cast<std::size_t>(s.port);
    KernelPort port = parts[number];
    port.access.offset += behind * port.access.stride[0];
    const Dims& stride = port.access.stride;
    port.access.stride = part_of(stride, 1, stride.size());
    Statement partial = statement(StatementKind::partial, port.type, s.label);
    partial.port = s.port;
    partial.per_row = true;
    partial.phase = 1;
    body.add_store(body.add(std::move(partial)), port.type, port, true);
    k.rowwise().reductions[number].length = length_of_rows(rest);
  }
  simplify_domain(k);
  return k;
}

}  // namespace

CutRows in_parts(const KernelSpec& spec, std::int64_t wished) {
  return in_parts(spec, wished, false);
}

std::optional<CutRows> in_even_parts(const KernelSpec& spec, std::int64_t wished,
                                     const DeviceModel& device) {
  if (spec.rowwise().phases > 2) return {};
  CutRows even = in_parts(spec, wished, true);
  if (!even.rest || !even.even) return {};
  const auto width = [&](const KernelSpec& k) { return schedule_rowwise(k, device).packing.width; };
  if (width(even.spec) <= width(in_parts(spec, wished).spec)) return {};
  return even;
}

namespace {

// How many rounds of blocks that run at once the parts are, and the share of the GPU that they keep
// busy until the last one ends; rounds of 0 where nobody knows how many run at once.
struct Rounds {
  double all = 0, busy = 0;
};
Rounds rounds_of(const KernelSpec& parts, const DeviceModel& device) {
  constexpr int kLargest = 1024;  // threads, of which an SM holds two blocks
  const RowwiseConfig s = schedule_rowwise(parts, device);
  const int beside = s.least_blocks > 1 ? s.least_blocks : s.threads == kLargest ? 2 : 0;
  if (beside == 0) return {};
  const double rounds = static_cast<double>(s.grid) / (device.sms * beside);
  return {rounds, rounds / std::ceil(rounds)};
}

}  // namespace

CutRows in_whole_rounds(const KernelSpec& spec, std::int64_t wished, CutRows given,
                        std::int64_t shortest, const DeviceModel& device) {
  constexpr double kWorth = 0.15;
  if (given.parts == 1 || given.rest) return given;
  const Rounds rounds = rounds_of(given.spec, device);
  if (rounds.all <= 1) return given;
  CutRows best = std::move(given);
  double least = rounds.busy + kWorth;
  const bool packs = !rows_lie_together(spec);
  std::int64_t last = best.parts;
  for (std::int64_t n = std::max<std::int64_t>(2, 2 * wished / 3); n <= 2 * wished; ++n) {
    CutRows cut = in_parts(spec, n, false, packs);
    if (!cut.even || cut.parts == last || cut.parts > 2 * wished ||
        length_of_rows(cut.spec) < shortest)
      continue;
    last = cut.parts;
    const double busy = rounds_of(cut.spec, device).busy;
    if (busy <= least) continue;
    least = busy;
    best = std::move(cut);
  }
  return best;
}

std::vector<KernelSpec> cut_rows(const KernelSpec& spec, CutRows rows, bool pieces,
                                 Temporaries& temporaries) {
  if (rows.parts == 1 && !pieces) return {spec};
  const int shared = spec.rowwise().outer_rank + pieces;
  KernelSpec cut = std::move(rows.spec), whole;

  // Partial results lie part by part, so that neighbouring rows stay neighbours.
  Dims partial_dim = part_of(cut.extent, 0, cut.rowwise().outer_rank);
  const std::int64_t even_parts = cut.extent[0];
  if (rows.rest) ++partial_dim[0];
  const Access written = packed_access(cut.extent.size(), 0, partial_dim);
  const std::int64_t size = length_of_rows(cut);

  const RowwiseSpec& of_rows = spec.rowwise();
  whole.family = RowwiseSpec{.outer_rank = of_rows.outer_rank};
  whole.nodes = spec.nodes;
  whole.extent = part_of(spec.extent, 0, shared);
  whole.extent.push_back(rows.parts);
  Access read;
  read.stride = Dims::filled(shared + 1, 0);
  for (int i = 0; i < shared; ++i) read.stride[i] = written.stride[i + rows.added];
  read.stride[shared] = count(spec.extent, 0, shared);

  const KernelSpec source = cut;
  // What the parts of each reduction are read from, and the statement with its result.
  std::vector<KernelPort> parts(of_rows.reductions.size()), stored = parts;
  std::vector<int> results(of_rows.reductions.size());
  cut.body.statements.clear();
  cut.ports.clear();
  whole.scalars = cut.scalars;
  BodyCopy head(source, cut, source.extent.size()), tail(spec, whole, shared);
  for (std::size_t i = 0; i < source.body.statements.size(); ++i) {
    const Statement& s = source.body.statements[i];
    const int id = static_cast<int>(i);
    if (s.kind == StatementKind::reduce || (s.kind == StatementKind::store && s.phase == 0)) {
      head.copy(id);
    } else if (s.kind == StatementKind::store) {
      const Statement& copy = whole.body.statements[static_cast<std::size_t>(tail.copy(id))];
      if (s.per_row) continue;
      Window first;  // of the parts, each of which comes here
      first.coefficient = Dims::filled(shared + 1, 0);
      first.coefficient[shared] = 1;
      first.extent = 1;
      whole.ports[static_cast<std::size_t>(copy.port)].access.windows.push_back(std::move(first));
    } else if (s.kind == StatementKind::reduced) {
      const auto number = static_cast<std::size_t>(s.port);
      const KernelReduction& r = of_rows.reductions[number];
      const DataType type = partial_type(r.mode, r.arithmetic);
      Statement partial = statement(StatementKind::partial, type, s.label);
      partial.port = s.port;
      partial.per_row = true;
      partial.phase = r.phase + 1;
      const KernelPort port = temporaries.add(s.label + "_parts", type, partial_dim, written);
      head.add_store(head.add(std::move(partial)), type, port, true);
      parts[number] = read_back(port, read);
      stored[number] = port;
      if (r.phase == 0) {
        cut.rowwise().reductions[number].length = size;
        if (of_rows.phases > 2) head.set(id, head.add(s));  // of the part alone
        results[number] =
            finish_parts(whole, tail, parts[number], r.mode, r.arithmetic, r.length, s.label);
      } else {
        const auto centre = static_cast<std::size_t>(centre_of(spec, s.port));
        results[number] = finish_squares(whole, tail, parts[centre], parts[number], results[centre],
                                         r, size, s.label);
      }
      tail.set(id, results[number]);
    }
  }
  whole.rowwise().any_length = rows.any_number;
  simplify_domain(cut);
  simplify_domain(whole);
  if (!rows.rest) return {std::move(cut), std::move(whole)};
  return {std::move(cut), rest_of_rows(*rows.rest, stored, even_parts), std::move(whole)};
}

}  // namespace sinter
