#include "planner/split/split.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/columns.hpp"
#include "planner/split/cut_rows.hpp"
#include "planner/split/grouped_rows.hpp"
#include "planner/split/statistics.hpp"
#include "planner/split/walked_sums.hpp"
#include "schedule/rowwise/rowwise.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Blocks of a kernel: two or four on each SM, or too few to be worth a kernel.
constexpr std::int64_t kManyOfSm = 4, kFewBlocks = 32;
constexpr std::int64_t kAcross = 256;  // rows that one block takes side by side
// A block takes up to 1024 threads along one row, and 256 across rows.
constexpr std::int64_t kEnoughLong = 128, kEnoughAcrossOfSm = 2;
// Of a row, that is worth two partial results.
constexpr std::int64_t kShortestPart = 64;
// The same where only parts of one length will do, such as images of 7 x 7.
constexpr std::int64_t kShortestUnit = 32;
// Of rows that are pieces of memory: shorter ones than a line of it are better moved with what lies
// beside them, and so many, for each element that is worth a block, that this pays. (On an H200,
// one kernel for a groupnorm over channels last takes 3 us and 40 to 90 ps a piece, of 20 to 80
// bytes; three take 6 us and as long as it takes to read once more and write.)
constexpr std::int64_t kLine = 128, kManyPieces = 16;

std::int64_t shortest_part(const DeviceModel& device) {
  return std::min(kShortestPart, elements_of_block(device));
}

std::int64_t outer_rows(const KernelSpec& s) { return count(s.extent, 0, s.rowwise().outer_rank); }
std::int64_t columns_of(const KernelSpec& s) {
  return count(s.extent, s.rowwise().outer_rank, s.extent.size());
}

std::int64_t blocks_of(const KernelSpec& s) {
  const std::int64_t rows = outer_rows(s);
  return rows_lie_together(s) ? (rows + kAcross - 1) / kAcross : rows;
}

bool divisible(const KernelSpec& s) {
  if (!s.gathers.empty()) return false;
  for (const auto& p : s.ports)
    if (!p.access.via.empty()) return false;
  for (const auto& x : s.body.statements)
    if (x.kind == StatementKind::index && x.dim >= s.rowwise().outer_rank) return false;
  return true;
}

// Whether clusters of blocks hold whole rows in their registers: then even one row takes them less
// time than several kernels.
bool held_by_clusters(const RowwiseConfig& s, const DeviceModel& device) {
  return device.has_clusters && s.resident && s.blocks_per_row > 1;
}

// Whether few blocks that read their rows in each phase take longer than a kernel for the parts of
// rows, one that combines them and one for what follows, or two more for each further phase. (On an
// H200, us of one kernel and of several: batch norms with channels last of 1 x 16 x 112 x 112 22.9
// and 4.1, 3 x 64 x 56 x 56 30.7 and 4.9, gradients of 5 x 64 x 56 x 56 75.7 and 10.8; softmax over
// 10,000 rows of 100 columns 31.4 and 8.5.)
bool slower_alone(const KernelSpec& spec, const RowwiseConfig& s, const DeviceModel& device) {
  const int kernels = has_statistics(spec) ? 3 : 2 * spec.rowwise().phases - 1;
  return !s.resident &&
         s.microseconds - device.launch_microseconds >
             kernels * device.launch_microseconds + 2 * bytes_moved(spec) / device.memory_bandwidth;
}

// Elements of a row that lie together where the next row goes on behind them: the last index. 1: no
// such pieces, or none that are short.
std::int64_t short_piece(const KernelSpec& spec) {
  const int last = spec.extent.size() - 1;
  if (spec.rowwise().outer_rank == 0 || last <= spec.rowwise().outer_rank) return 1;
  const KernelPort* most = nullptr;
  for (const auto& p : spec.ports)
    if (!most ||
        elements_reached(spec.extent, p.access) > elements_reached(spec.extent, most->access))
      most = &p;
  const std::int64_t piece = spec.extent[last];
  const bool beside = most && step(most->access, last) == 1 &&
                      step(most->access, spec.rowwise().outer_rank - 1) == piece;
  return beside && piece * info(most->type).bytes < kLine ? piece : 1;
}

// ---- a kernel a phase

// Which values of a row are finished in the first `count` phases and of use behind them.
std::vector<bool> handed_over(const KernelSpec& spec, int count) {
  const auto& all = spec.body.statements;
  const auto finished = [&](const Statement& s) {
    return !acts(s) && s.per_row && s.phase > 0 && s.phase <= count;
  };
  std::vector<int> later;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (acts(all[i]) && all[i].phase >= count &&
        !(is_store(all[i]) && all[i].per_row && all[i].phase == count))
      later.push_back(static_cast<int>(i));
  const auto live = live_statements(spec.body, later);
  std::vector<bool> handed(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (live[i] && !finished(all[i]))
      for (int a : all[i].args)
        handed[static_cast<std::size_t>(a)] =
            handed[static_cast<std::size_t>(a)] || finished(all[static_cast<std::size_t>(a)]);
  return handed;
}

// Everything of the first `count` phases, with temporaries for those of their results that are of
// use behind them, and all later phases. `pieces`: of these results there is one for each place
// along the first index of the row, too, so that this index keeps its place in the first spec.
std::pair<KernelSpec, KernelSpec> split_first_phase(const KernelSpec& spec, int count, bool pieces,
                                                    Temporaries& temporaries) {
  const int rank = spec.extent.size();
  KernelSpec first = spec, rest = spec;
  for (KernelSpec* part : {&first, &rest}) {
    part->body.statements.clear();
    part->rowwise().reductions.clear();
    part->ports.clear();
  }
  const Dims copies = part_of(spec.extent, 0, spec.rowwise().outer_rank + pieces);
  const Access copied = packed_access(rank, 0, copies);
  const std::vector<bool> handed = handed_over(spec, count);

  const RowwiseSpec& rows = spec.rowwise();
  first.rowwise().phases = count + 1;
  rest.rowwise().phases = rows.phases - count;
  if (rows.phases - count == 1) rest.family = PointwiseSpec{};
  BodyCopy head(spec, first, rank), tail(spec, rest, rank);
  std::vector<int> renumbered(rows.reductions.size(), -1);
  for (std::size_t i = 0; i < spec.body.statements.size(); ++i) {
    const Statement& s = spec.body.statements[i];
    const int id = static_cast<int>(i);
    const auto r = static_cast<std::size_t>(std::max(s.port, 0));
    if (s.kind == StatementKind::store) {
      const bool first_rows = s.per_row && s.phase <= count;
      s.phase < count || first_rows ? head.copy(id) : tail.copy(id);
    } else if (s.kind == StatementKind::reduce) {
      KernelReduction reduction = rows.reductions[r];
      const bool early = s.phase < count;
      KernelSpec& part = early ? first : rest;
      if (!early) reduction.phase -= count;
      renumbered[r] = static_cast<int>(part.rowwise().reductions.size());
      part.rowwise().reductions.push_back(reduction);
      const int copy = early ? head.copy(id) : tail.copy(id);
      part.body.statements[static_cast<std::size_t>(copy)].port = renumbered[r];
    } else if (s.kind == StatementKind::reduced) {
      Statement reduced = s;
      reduced.port = renumbered[r];
      const bool early = rows.reductions[r].phase < count;
      if (!early) reduced.phase -= count;
      BodyCopy& part = early ? head : tail;
      part.set(id, part.add(std::move(reduced)));
    }
    if (handed[i]) {
      const KernelPort port = temporaries.add(s.label, s.arithmetic, copies, copied);
      head.add_store(head.copy(id), s.arithmetic, port, !pieces);
      Statement load = statement(StatementKind::load, s.arithmetic, s.label);
      load.port = tail.add_port(read_back(port, copied));
      load.per_row = !pieces;
      tail.set(id, tail.add(std::move(load)));
    }
  }
  if (!pieces) simplify_domain(first);
  simplify_domain(rest);
  return {std::move(first), std::move(rest)};
}

// ---- rows cut in parts

// Rows whose length changes are cut in parts that are as long in all plans of the class, so that
// these differ in numbers of rows: `unit` divides all lengths. Nothing where rows do not lie
// together, or no such part is worth a block.
std::optional<CutRows> in_any_parts(const KernelSpec& spec, std::int64_t wished, std::int64_t unit,
                                    const PlanContext& context) {
  const int d = spec.rowwise().outer_rank;
  if (unit == 0 || d + 1 != spec.extent.size() || spec.extent[d] % unit != 0) return {};
  const auto known = context.decisions.of(Decisions::Kind::part_size);
  const auto decided = known.find(spec.nodes.front());
  std::int64_t size = 0;
  if (decided != known.end())
    size = decided->second;
  else
    for (std::int64_t n = 1; n <= unit && n * wished <= spec.extent[d]; ++n)
      if (unit % n == 0) size = n;
  if (size < std::min(kShortestUnit, elements_of_block(context.device)) || size == spec.extent[d])
    return {};
  CutRows cut{.spec = spec, .parts = spec.extent[d] / size, .added = 1, .any_number = true};
  cut_index(cut.spec, d, cut.parts, size);
  ++cut.spec.rowwise().outer_rank;
  return rows_lie_together(cut.spec) ? std::optional(std::move(cut)) : std::nullopt;
}

// What divides all lengths of the spec's rows, where it changes; else 0.
std::int64_t unit_of(const KernelSpec& spec, const PlanContext& context) {
  return context.decisions.decide(Decisions::Kind::row_unit, spec.nodes.front(), [] { return 0; });
}
// For the other plans of the class.
void keep_size(const KernelSpec& spec, std::int64_t size, const PlanContext& context) {
  if (size > 0)
    context.decisions.decide(Decisions::Kind::part_size, spec.nodes.front(), [&] { return size; });
}

// How many parts of each row, or of what a row has at one place of a piece, give enough blocks.
std::int64_t wished_parts(const KernelSpec& spec, const DeviceModel& device) {
  const std::int64_t blocks = std::max<std::int64_t>(blocks_of(spec), 1);
  // Where there are some blocks a second kernel gains less, as for the parts of a filter's
  // gradient.
  const std::int64_t least = (blocks < kFewBlocks ? 1 : 2) * elements_of_block(device);
  return std::min(kManyOfSm * device.sms / blocks,
                  outer_rows(spec) * columns_of(spec) / blocks / least);
}

// Averages and squared distances from them in one pass: both of parts that stay in a block's
// registers, and of the whole from these. Empty where there are none, or no such parts.
// `pieces`: as for cut_rows.
std::vector<KernelSpec> split_statistics(const KernelSpec& spec, bool pieces, std::int64_t wished,
                                         const PlanContext& context, Temporaries& temporaries) {
  if (!has_statistics(spec)) return {};
  Temporaries tried = temporaries;
  auto [first, rest] = split_first_phase(spec, 2, pieces, tried);
  KernelSpec fine = first;
  fine.rowwise().outer_rank += pieces;
  // Blocks of few threads leave room for others on an SM while they wait.
  for (const int most : {256, 1024})
    for (std::int64_t n = wished; columns_of(fine) / n >= shortest_part(context.device); n *= 2) {
      auto any = in_any_parts(fine, n, pieces ? 0 : unit_of(spec, context), context);
      CutRows rows = any ? std::move(*any) : in_parts(fine, n);
      if ((rows.parts == 1 && !pieces) || !rows.even) continue;
      const std::int64_t size = rows.any_number ? columns_of(rows.spec) : 0;
      Temporaries with_parts = tried;
      std::vector<KernelSpec> kernels = cut_rows(first, std::move(rows), pieces, with_parts);
      const RowwiseConfig schedule = schedule_rowwise(kernels.front(), context.device);
      if (!schedule.resident || schedule.blocks_per_row > 1 || schedule.threads > most) continue;
      keep_size(spec, size, context);
      temporaries = std::move(with_parts);
      if (std::any_of(rest.body.statements.begin(), rest.body.statements.end(), acts))
        for (auto& k : split(std::move(rest), context, temporaries))
          kernels.push_back(std::move(k));
      return kernels;
    }
  return {};
}

// The same of rows whose memory is short pieces, for each place of the pieces: as these lie
// together, whole lines of memory are moved. The values of the row that later kernels need are
// stored for each such place, too, so that they also move what lies together.
std::vector<KernelSpec> split_pieces(KernelSpec spec, const PlanContext& context,
                                     Temporaries& temporaries) {
  move_index(spec, spec.extent.size() - 1, spec.rowwise().outer_rank);
  KernelSpec fine = spec;
  ++fine.rowwise().outer_rank;
  if (!rows_lie_together(fine)) return {};
  const std::int64_t wished = std::min(wished_parts(fine, context.device),
                                       columns_of(fine) / shortest_part(context.device));
  return split_statistics(spec, true, std::max<std::int64_t>(wished, 1), context, temporaries);
}

// Whether pieces of rows are so many that three kernels take no longer than one.
bool many_pieces(const KernelSpec& spec, const DeviceModel& device) {
  return outer_rows(spec) * columns_of(spec) / short_piece(spec) / elements_of_block(device) >=
         kManyPieces;
}

// Groups of channels, which lie last: one kernel where clusters hold an image's lines of them, or
// those of the pieces, where these are many and estimated to take less: few clusters run at once,
// which load and store in turns. Empty where clusters hold none. (Group norms and swish, channels
// last, 32 groups, on an H200, us held by clusters and in three kernels: 8 x 960 x 64 x 64 79.4 and
// 65.0, 8 x 640 x 64 x 64 44.7 and 38.4, 8 x 1920 x 32 x 32 52.2 and 35.6, 8 x 960 x 32 x 32 24.2
// and 20.2; of few pieces, 16 x 1280 x 16 x 16 11.1.)
std::vector<KernelSpec> hold_groups(const KernelSpec& spec, const PlanContext& context,
                                    Temporaries& temporaries) {
  auto grouped = as_grouped_rows(spec);
  if (!grouped) return {};
  const RowwiseConfig held = schedule_rowwise(*grouped, context.device);
  if (!held.resident || 2 * held.packing.width * held.packing.narrowest < kMoveBytes) return {};
  Temporaries tried = temporaries;
  std::vector<KernelSpec> pieces;
  if (many_pieces(spec, context.device)) pieces = split_pieces(spec, context, tried);
  const bool together = context.decisions.decide(Decisions::Kind::grouped, spec.nodes.front(), [&] {
    double apart = 0;
    for (const KernelSpec& k : pieces) apart += schedule_kernel(k, context).launch().microseconds;
    return pieces.empty() || held.microseconds <= apart;
  });
  if (together || pieces.empty()) return {std::move(*grouped)};
  temporaries = std::move(tried);
  return pieces;
}

}  // namespace

// (On an H200, us with 32768, 16384 and 8192: gradients of batch norms of 5 x 64 x 56 x
// 56 10.8, 8.5 and 7.4, 8 x 100 x 512 9.9, 6.8 and 5.7; softmax over a million 10.8, 9.0 and 8.4,
// the sum of four millions 4.1, 4.0 and 4.7.)
std::int64_t elements_of_block(const DeviceModel& device) {
  constexpr std::int64_t kElementsOfBlock = 16384;
  return device.overrides.split_elements.value_or(kElementsOfBlock);
}

KernelPort Temporaries::add(std::string name, DataType type, const Dims& dim, Access access) {
  bytes_[next_] = count(dim) * info(type).bytes;
  return {next_++, std::move(name), type, std::move(access), true, 256};
}

std::vector<KernelSpec> split(KernelSpec spec, const PlanContext& context,
                              Temporaries& temporaries) {
  const DeviceModel& device = context.device;
  if (!spec.cross_row_reductions.empty())
    return split_columns(std::move(spec), context, temporaries);
  if (!spec.as_rowwise() || spec.rowwise().segment > 0) return {std::move(spec)};
  context.decisions.decide(Decisions::Kind::row_length, spec.nodes.front(),
                           [&] { return columns_of(spec); });
  const std::int64_t unit = unit_of(spec, context);
  if (unit > 0)
    if (auto walk = as_walked_sums(spec)) {
      // What one kernel adds up fast is not walked over. (Of 128 tokens of 1024 bf16 two kernels
      // take twice as long.) Of fewer terms than these, other plans of the class may have one,
      // whose kernel has no loop.
      constexpr std::int64_t kFewest = 4;
      if (context.decisions.decide(Decisions::Kind::walked, spec.nodes.front(), [&] {
            return wished_parts(spec, device) > 1 || columns_of(spec) < kFewest;
          }))
        return split_columns(std::move(*walk), context, temporaries);
      spec.rowwise().any_length = true;
      return {std::move(spec)};
    }
  const std::int64_t least = elements_of_block(device), blocks = blocks_of(spec),
                     elements = outer_rows(spec) * columns_of(spec);
  if (!divisible(spec) || elements == 0) return {std::move(spec)};
  const std::int64_t wished = wished_parts(spec, device);
  if (has_later_elements(spec)) {
    if (unit == 0 && short_piece(spec) > 1)
      if (auto kernels = hold_groups(spec, context, temporaries); !kernels.empty()) return kernels;
    const RowwiseConfig whole = schedule_rowwise(spec, device);
    if (elements / least < 2 * kFewBlocks && !slower_alone(spec, whole, device))
      return {std::move(spec)};
    if (short_piece(spec) > 1 && spec.rowwise().phases == 3 &&
        (!whole.resident || many_pieces(spec, device)))
      if (auto kernels = split_pieces(spec, context, temporaries); !kernels.empty()) return kernels;
    // A row alone may be shared by a cluster of blocks; where each phase reads it again, parts of
    // it can just as well be a kernel's own rows. (Batchnorm's gradients of 64 rows of 802,816
    // elements on an H200: 213 us in one kernel, 184 in three.)
    // So can parts of rows that lie together. (Columns of 8192 x 8192 over their largest magnitude,
    // as f8, on an H100: 210 us in one kernel, 115 in three; of 4096 x 14336 138 and 102; softmax
    // down the columns of 8192 x 8192 229 and 189.)
    const bool across = rows_lie_together(spec);
    const bool busy = across && !whole.resident ? whole.grid >= kManyOfSm * device.sms
                      : across                  ? blocks >= kFewBlocks
                      : whole.resident          ? blocks >= kFewBlocks / 2
                                                : blocks >= kEnoughLong;
    if ((busy && whole.resident) || held_by_clusters(whole, device)) return {std::move(spec)};
    if (wished > 1)
      if (auto kernels = split_statistics(spec, false, wished, context, temporaries);
          !kernels.empty())
        return kernels;
    if (busy) return {std::move(spec)};
    auto [first, rest] = split_first_phase(spec, 1, false, temporaries);
    std::vector<KernelSpec> kernels = split(std::move(first), context, temporaries);
    for (auto& k : split(std::move(rest), context, temporaries)) kernels.push_back(std::move(k));
    return kernels;
  }
  const std::int64_t enough =
      rows_lie_together(spec) ? kEnoughAcrossOfSm * device.sms : kEnoughLong;
  if (blocks >= enough || wished < 2) {
    spec.rowwise().any_length = unit > 0 && rows_lie_together(spec);
    return {std::move(spec)};
  }
  if (auto any = in_any_parts(spec, wished, unit, context)) {
    keep_size(spec, columns_of(any->spec), context);
    return cut_rows(spec, std::move(*any), false, temporaries);
  }
  if (auto even = in_even_parts(spec, wished, device))
    return cut_rows(spec, std::move(*even), false, temporaries);
  const std::int64_t shortest = std::max(shortest_part(device), least * blocks / outer_rows(spec));
  return cut_rows(spec, in_whole_rounds(spec, wished, in_parts(spec, wished), shortest, device),
                  false, temporaries);
}

}  // namespace sinter
