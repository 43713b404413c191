#include "schedule/rowwise/rowwise.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "schedule/rowwise/column_walk.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

VectorBytes vector_bytes(const KernelSpec& spec, const Packing& packing) {
  std::vector<int> phases(spec.ports.size());
  for (int p = 0; p < spec.rowwise().phases; ++p) {
    std::vector<bool> used(spec.ports.size());
    const auto live = live_statements(spec.body, effects(spec.body, p));
    for (std::size_t i = 0; i < live.size(); ++i)
      if (const Statement& s = spec.body.statements[i];
          live[i] && s.kind == StatementKind::load && !s.per_row)
        used[static_cast<std::size_t>(s.port)] = true;
    for (std::size_t i = 0; i < used.size(); ++i) phases[i] += used[i];
  }
  VectorBytes bytes;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const PortPack::Kind kind = packing.ports[i].kind;
    if (phases[i] == 0 || !has_pack(packing.ports[i])) continue;
    const bool shifted = kind == PortPack::Kind::shifted;
    const int values = kind == PortPack::Kind::pack || shifted ? packing.width : 1;
    const int moved = info(spec.ports[i].type).bytes * values +
                      (shifted ? std::min(kMoveBytes, info(spec.ports[i].type).bytes * values) : 0);
    const PortPack& pack = packing.ports[i];
    (pack.weight ? bytes.weights : pack.late ? bytes.late : bytes.row) += moved;
    if (!pack.weight && !pack.late) bytes.values += values;
    if (phases[i] > 1) bytes.kept += moved;
  }
  // Numbers that are drawn stay, too; of Bernoulli's there is but a bit each.
  for (const auto& s : spec.body.statements) {
    if (s.kind != StatementKind::random || s.per_row) continue;
    if (s.rng.distribution == Distribution::bernoulli) continue;
    bytes.row += info(s.arithmetic).bytes * packing.width;
    bytes.kept += info(s.arithmetic).bytes * packing.width;
    bytes.values += packing.width;
  }
  return bytes;
}

bool computes_doubles(const KernelSpec& spec) {
  return std::any_of(spec.body.statements.begin(), spec.body.statements.end(),
                     [](const Statement& s) { return s.arithmetic == DataType::f64; });
}

// Threads for a row so that each has `each` vectors: whole warps where one is not enough.
int threads_for(double vectors, double each) {
  each = std::max({each, std::ceil(vectors / 1024), 1.0});
  const double n = std::ceil(vectors / each);
  if (n <= 32) return power_of_two_from(n, 32);
  return static_cast<int>(std::ceil(n / 32) * 32);
}

// The share of those threads that have work.
double busy_share(double vectors, double each) {
  return vectors / (threads_for(vectors, each) * each);
}

namespace {

constexpr int kLongRow = 32 << 10, kShortMisaligned = 1536;  // bytes

}  // namespace

double choose_vectors(const KernelSpec& spec, int widest, RowwiseConfig& s) {
  const int rank = spec.extent.size();
  const double columns = elements(spec.extent, spec.rowwise().outer_rank, rank);
  // Short rows of gradients keep wide packs, as instructions bound them. (From bf16 to f32, 1152
  // columns take 80 us with 32 bytes a thread and 86 with 16; 5120 columns 62 and 46.)
  const bool stores = spec.cross_row_reductions.empty() || columns > kShortWalk;
  s.packing =
      choose_packing(spec, rank > spec.rowwise().outer_rank ? rank - 1 : -1, widest, stores);
  const double row_bytes = columns * s.packing.narrowest;
  const bool is_short =
      spec.cross_row_reductions.empty() ? row_bytes < kShortMisaligned : columns <= kShortRow;
  const bool apart = s.packing.width * s.packing.narrowest <= (row_bytes > kLongRow ? 4 : 2);
  if (apart && !is_short && column_kinds(spec) == 1 && spec.rowwise().segment == 0 &&
      choose_misaligned_rows(spec, widest, s.packing, s.aligned_by))
    return std::floor((columns - 2) / s.packing.width) + 2;
  return columns / s.packing.width;
}

namespace {

// Blocks that run at once, at the most, if they should prefetch: rows that are needed in several
// phases.
int early_blocks(const KernelSpec& spec, const DeviceModel& device, const RowwiseConfig& s) {
  if (!s.resident || !s.staged.empty() || !has_later_elements(spec)) return 0;
  return device.sms * device.threads_per_sm / s.threads;
}

// As if memory were all that it waits for. Where rows are not held each phase reads them again, and
// few blocks load no more than their SMs can. (Batch norms of 5 x 64 x 56 x 56 with channels last,
// forward and backward by 4 blocks each, on an H200: 48.5 and 75.7 us.)
double microseconds(const KernelSpec& spec, const DeviceModel& device, const RowwiseConfig& s) {
  const double bytes = bytes_moved(spec), sms = std::min<double>(s.grid, device.sms);
  const bool again = !s.resident && has_later_elements(spec);
  const RowwiseSpec& of = spec.rowwise();
  const double few =
      again ? bytes * (spec.rowwise().phases + 1) / 2 / (sms * device.sm_bandwidth / 2) : 0;
  constexpr double kSameLines = 0.137;  // of the cache's bandwidth, where all blocks ask for them
  const double vectors = elements(spec.extent, of.outer_rank, spec.extent.size()) / s.packing.width;
  const double weights =
      s.persistent_ctas == 0 && !s.rows_fastest && spec.cross_row_reductions.empty() &&
              shares_long_weights(spec, s.packing, vectors)
          ? elements(spec.extent, 0, of.outer_rank) * vectors *
                vector_bytes(spec, s.packing).weights / (kSameLines * device.l2_bandwidth)
          : 0;
  return device.launch_microseconds + std::max({bytes / device.memory_bandwidth, few, weights});
}

}  // namespace

std::optional<RowwiseConfig> schedule_as(const RowwiseConfig& decided, const KernelSpec& spec,
                                         const DeviceModel& device) {
  const bool walks = !spec.cross_row_reductions.empty() || decided.persistent_ctas > 0;
  if (decided.aligned_by >= 0 || !spec.gathers.empty() ||
      (!spec.cross_row_reductions.empty() ? column_kinds(spec) > 1
                                          : rows_lie_together(spec) != decided.rows_fastest))
    return {};
  RowwiseConfig own;
  if (decided.rows_fastest)
    own.packing = choose_packing(spec, decided.packing.dim, decided.packing.width, true);
  else
    choose_vectors(spec, decided.packing.width, own);
  if (own.aligned_by >= 0 || !holds(decided.packing, own.packing)) return {};
  if (!decided.row_aligned.empty() && decided.row_aligned != rows_together(spec, decided.packing))
    return {};
  if (!decided.staged.empty() && decided.staged != staged_ports(spec, own.packing)) return {};
  RowwiseConfig s = decided;
  const RowwiseSpec& of = spec.rowwise();
  if (s.held_vectors > 0 && elements(spec.extent, of.outer_rank, spec.extent.size()) >
                                static_cast<double>(s.held_vectors) * s.threads_per_row)
    return {};
  s.wide_index |= needs_wide_index(spec);
  const int at_once = s.rows_fastest ? s.packing.width : s.rows_at_once;
  const double rows = elements(spec.extent, 0, of.outer_rank);
  if (!walks)  // else as many blocks as before loop over the rows
    s.grid = clamp_grid(std::ceil(rows / (s.rows_per_block * at_once)) * s.blocks_per_row);
  s.microseconds = microseconds(spec, device, s);
  return s;
}

bool holds_segments(const RowwiseConfig& config, const KernelSpec& spec) {
  constexpr int kWarp = 32;
  const std::int64_t segment = spec.rowwise().segment, width = config.packing.width,
                     lanes = segment / width;
  return config.resident && !config.rows_fastest && config.aligned_by < 0 && segment % width == 0 &&
         (lanes & (lanes - 1)) == 0 && lanes <= kWarp && config.threads_per_row % lanes == 0 &&
         config.packing.dim == spec.extent.size() - 1;
}

RowwiseConfig schedule_rowwise(const KernelSpec& spec, const DeviceModel& device) {
  RowwiseConfig s;
  s.wide_index = needs_wide_index(spec);
  s.rows_fastest = spec.cross_row_reductions.empty() && rows_lie_together(spec);
  if (!spec.cross_row_reductions.empty())
    schedule_columns(spec, device, s);
  else if (s.rows_fastest)
    schedule_across(spec, device, s);
  else
    schedule_along(spec, device, s);
  s.kept = kept_values(spec, s);
  s.early = early_blocks(spec, device, s);
  if (s.early > 0) ask_early(spec, s.packing);
  s.shared_bytes = static_cast<std::uint32_t>(s.pipeline_stages * s.stage_bytes);
  if (s.microseconds == 0) s.microseconds = microseconds(spec, device, s);
  return s;
}

ScheduledKernel schedule(const RowwiseSpec&, const KernelSpec& spec, const PlanContext& context) {
  return scheduled(spec, schedule_rowwise(spec, context.device));
}

}  // namespace sinter
