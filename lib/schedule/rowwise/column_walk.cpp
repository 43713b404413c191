// Rows whose columns are reduced, too: blocks loop over the rows and keep running results.
#include "schedule/rowwise/column_walk.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/rowwise/rowwise_parts.hpp"

namespace sinter {

int bytes_ahead(const KernelSpec& spec, const Packing& packing) {
  int bytes = 0;
  for (int i : ports_of_rows(spec, packing)) {
    const KernelPort& p = spec.ports[static_cast<std::size_t>(i)];
    const PortPack& pack = packing.ports[static_cast<std::size_t>(i)];
    const int size = info(p.type).bytes;
    if (pack.kind != PortPack::Kind::pack || !p.access.windows.empty() ||
        std::min(pack.aligned, packing.width) * size < 4)
      return 0;
    bytes += packing.width * size;
  }
  return bytes;
}

// Each quarter of an SM has its own, for whole warps.
double registers_with(const DeviceModel& device, int threads) {
  const int of_quarter = device.registers_per_sm / 4;
  const int warps = (threads + 127) / 128;  // of a quarter
  return std::min(of_quarter / (32 * warps) / 8 * 8, 248);
}

namespace {

constexpr double kLongWalk = 10;  // rows, in which a ring pays for its filling

// How the threads of a block that has an SM for itself are divided among rows, where
// columns have several results; `numbers`: registers of a vector, `walk`: rows of each block. What
// a step costs a warp beside its elements is a third of all, so that a thread holds some vectors:
// the threads of a row are few, and there are more rows. (A layernorm's gradients on an H200: 2560
// columns 71.8 -> 66.0 us, 3072 81.5 -> 77.5, 1152 66.8 -> 60.7.) 0 rows: not divided.
struct Division {
  int threads_per_row = 0, rows = 0;
};
Division divide_block(double vectors, double numbers, double walk, int vector_bytes,
                      const DeviceModel& device) {
  constexpr int kThreads = 640, kFewThreads = 384, kEnoughWarps = 16, kSlotBytes = 56 << 10;
  constexpr double kShort = 288;  // vectors of a row, which instructions bound rather than memory
  Division best;
  double busiest = 0;
  for (int each : {2, 3}) {
    const int threads = threads_for(vectors, each);
    int most = 0;  // rows that fit
    while ((most + 1) * kLongWalk <= walk && (most + 1) * threads <= kThreads &&
           (most + 1) * threads * each * vector_bytes <= kSlotBytes &&
           registers_with(device, (most + 1) * threads) >= each * numbers + kBesideHeld)
      ++most;
    const double busy = busy_share(vectors, each);
    // Among equals, of long rows, those that leave a block more than one.
    if (most * threads < kFewThreads || busy < busiest ||
        (busy == busiest && vectors > kShort && best.rows > 1))
      continue;
    busiest = busy;
    best = {threads, 0};
    // Whole quarters of an SM, and a last step that is whole, too.
    double fullest = 0;
    for (int rows = most; 2 * rows > most; --rows) {
      if (rows * threads % 32 != 0) continue;  // no whole warps
      const double warps = rows * threads / 32.0, steps = walk / rows,
                   full = warps / (4 * std::ceil(warps / 4)) * steps / std::ceil(steps) *
                          std::min(1.0, warps / kEnoughWarps);
      if (full > fullest) fullest = full, best.rows = rows;
    }
  }
  return best;
}

// Whether all that belongs to rows as a whole are numbers of f32 at addresses of their own.
bool loads_row_numbers(const KernelSpec& spec) {
  int loads = 0;
  for (const auto& s : spec.body.statements) {
    if (s.kind != StatementKind::load || !s.per_row) continue;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
    if (p.type != DataType::f32 || !p.access.windows.empty()) return false;
    ++loads;
  }
  return loads > 0;
}

// What threads and registers are chosen by.
struct Walk {
  double rows = 0, columns = 0;
  double num_partials = 0;  // persistent CTAs: rows are divided among so many
  double blocks = 0;        // of an SM
  double vectors = 0;       // packs of a row, or of a block's share of it
  VectorBytes bytes;        // of a vector
  double numbers = 0;       // that a thread holds of a vector
  bool several = false;     // columns have several results
  bool doubles = false;     // sums of doubles take twice the registers
  int vector_ahead = 0;     // bytes of a vector that may be loaded ahead
  bool divided = false;     // the threads of a block among rows, as divide_block says
};

Walk walk_of(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  const int rank = spec.extent.size();
  Walk w;
  w.rows = elements(spec.extent, 0, spec.rowwise().outer_rank);
  w.columns = elements(spec.extent, spec.rowwise().outer_rank, rank);
  w.num_partials = static_cast<double>(spec.rowwise().num_partials);
  s.blocks_per_row = column_cluster(static_cast<std::int64_t>(w.columns),
                                    spec.cross_row_reductions.size(), device);
  w.vectors =
      std::ceil(choose_vectors(spec, std::min(8, widest_pack(spec) / 2), s) / s.blocks_per_row);
  w.blocks = std::ceil(w.num_partials * s.blocks_per_row / device.sms);
  w.bytes = vector_bytes(spec, s.packing);
  w.numbers = s.packing.width * static_cast<double>(spec.cross_row_reductions.size()) +
              (w.bytes.row + w.bytes.weights) / 4;
  w.several = spec.cross_row_reductions.size() > 1;
  w.doubles = spec.sums_doubles();
  w.vector_ahead = bytes_ahead(spec, s.packing);
  return w;
}

// Threads of a row, and rows of a block.
void choose_threads(const KernelSpec& spec, const DeviceModel& device, Walk& w, RowwiseConfig& s) {
  constexpr double kLeastBusy = 0.85;      // of a row's warps
  constexpr double kFewNumbers = 20;       // that a thread holds beside what else it needs
  constexpr std::size_t kLittleCode = 24;  // statements
  const double vectors = w.vectors, numbers = w.numbers;
  // Rows that one persistent CTA takes side by side, and an SM's such CTAs.
  const double beside = spec.rowwise().rows_per_cta, ctas = w.blocks * beside;
  // A short row's vectors go to neighbouring threads of one warp, which need no barrier; so do
  // those of a longer one whose warps would idle, to half as many threads. (Gradients of 517 and
  // 777 columns on an H200: 61 -> 34 us and 42 -> 34; of 1001, which 126 of 128 threads take: 33
  // and 34.)
  const bool idle = vectors > 32 && vectors <= 32 * kUsualVectors &&
                    vectors / (std::ceil(vectors / 32) * 32) < kLeastBusy;
  const bool one_warp = w.columns <= kShortRow || idle;
  // With 48 registers there are more threads: 5120 columns in 64 instead of 78 us.
  const bool light =
      !w.doubles && numbers <= kFewNumbers && spec.body.statements.size() <= kLittleCode;
  // Where columns have several results, a body that needs more registers gets half as many threads.
  const bool heavy = w.several && numbers + w.bytes.values + kBesideValues >
                                      registers_with(device, kColumnThreads);
  const double together = idle || heavy ? kColumnThreads / 2
                          : light       ? kLightColumnThreads
                                        : kColumnThreads;
  // Long rows then take fewer threads, too, if these can hold them. (A layernorm's gradients of
  // 8192 x 7168 on an H200: 103 us with 896 threads, 95 with 448.)
  constexpr int kMany = 640, kFewer = 512;
  const bool fewer = (w.several || s.blocks_per_row > 1) && vectors > kMany &&
                     std::ceil(vectors / static_cast<double>(kFewer)) * numbers + kBesideHeld <=
                         registers_with(device, kFewer);
  // A block has at most 1024, of the rows that it takes side by side.
  const double most = std::min(fewer ? kFewer : 1024.0, std::floor(1024 / beside / 32) * 32),
               threads = std::min(together / ctas, most);
  s.threads_per_row = threads_for(vectors, std::ceil(vectors / (one_warp ? 32 : threads)));
  // (An rmsnorm's gradients of 4096 x 20480: 136 us with 448 threads of three vectors, 123 with 640
  // of two. A layernorm's are 2 % slower so.)
  if (fewer && !w.several && vectors <= 2 * kMany &&
      busy_share(vectors, 2) > busy_share(vectors, 3))
    s.threads_per_row = threads_for(vectors, 2);
  const int least = std::max(1, 32 / s.threads_per_row);  // rows of a warp
  s.rows_per_block =
      std::max(least, power_of_two_to(std::min(threads / (w.doubles ? 2 : 1) / s.threads_per_row,
                                               w.rows / std::max(w.num_partials * beside, 1.0)),
                                      1024));
  if (s.blocks_per_row > 1) s.rows_per_block = 1;
  s.rows_per_block *= spec.rowwise().rows_per_cta;
  const bool narrow_sums =
      std::none_of(spec.cross_row_reductions.begin(), spec.cross_row_reductions.end(),
                   [](const CrossRowReduction& c) {
                     return partial_type(c.mode, c.arithmetic) == DataType::f64;
                   });
  Division divided;
  if (w.several && narrow_sums && s.blocks_per_row == 1 && w.num_partials <= device.sms &&
      w.columns > kShortRow && w.rows >= kLongWalk * w.num_partials && w.vector_ahead > 0)
    divided = divide_block(vectors, numbers, w.rows / w.num_partials, w.vector_ahead, device);
  w.divided = divided.rows > 0;
  if (w.divided) {
    s.threads_per_row = divided.threads_per_row;
    s.rows_per_block = divided.rows;
  }
  s.threads = s.threads_per_row * s.rows_per_block;
  s.least_blocks = w.doubles ? 1 : static_cast<int>(w.blocks);
}

// What stays in a thread's registers, and the ring of a block's rows to come.
void choose_ring(const KernelSpec& spec, const DeviceModel& device, const Walk& w,
                 RowwiseConfig& s) {
  // For the rings of an SM's blocks, beside what their totals take: 192 KB of 228, 80 of 100.
  const int ring_bytes = device.shared_per_sm / 100 * 85 >> 14 << 14;
  // Weights stay in registers where these suffice; a row's values are computed again from its packs
  // where they would not fit beside those.
  const double each = std::ceil(w.vectors / s.threads_per_row),
               registers = registers_with(device, s.threads * s.least_blocks);
  s.prefetch = each * w.numbers + kBesideHeld <= registers;
  s.recompute = each * (w.numbers + w.bytes.values) + kBesideValues > registers;
  const int stage_bytes = s.threads * static_cast<int>(each) * w.vector_ahead;
  const bool few = w.rows < kLongWalk * w.num_partials * s.rows_per_block;
  // The next row comes to registers only where these hold it beside the present one.
  const bool crowded =
      s.prefetch && each * (w.numbers + w.bytes.row / 4.0) + kBesideHeld > registers;
  if (stage_bytes > 0 && (!few || crowded))
    s.pipeline_stages = std::min(2, ring_bytes / static_cast<int>(w.blocks) / stage_bytes);
  if (s.pipeline_stages > 0) {
    // More on their way at once than keep memory busy hinder each other. (12288 columns: 91 -> 84
    // us; with dropout and a residual, 4096 columns, 194 -> 183.)
    constexpr int kInFlight = 48 << 10;
    s.stage_bytes = stage_bytes;
    s.in_flight = w.divided && stage_bytes >= kInFlight ? 0 : s.pipeline_stages - 1;
    // (12288 columns: 97 -> 91 us; 10240: 77 -> 64; 2304: 57.1 -> 56.0; but 4096: 54 -> 57.)
    s.by_lanes = w.divided && (s.rows_per_block == 1 || w.columns <= kShortWalk) &&
                 s.threads_per_row % 32 == 0 && loads_row_numbers(spec);
  }
  s.ahead = s.pipeline_stages > 0 || (s.prefetch && !crowded);
}

}  // namespace

// Blocks that loop over the rows and keep running results of the columns. The planner gives as many
// persistent CTAs as pay (columns.cpp): fewer than there are SMs, or some on each, which then share
// its threads.
void schedule_columns(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s) {
  Walk w = walk_of(spec, device, s);
  choose_threads(spec, device, w, s);
  s.resident = true;
  choose_ring(spec, device, w, s);
  s.grid = static_cast<std::uint32_t>(spec.rowwise().num_partials * s.blocks_per_row);
}

}  // namespace sinter
