#include "planner/split/attention_splits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/zeros.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/attention/forward_parts.hpp"

namespace sinter {
namespace {

using A = AttentionSpec;

constexpr int kMostSplits = 128;

// In place of a number of parts.
constexpr int kEqualShares = 0, kCountedTiles = -1;

// Of CTAs that have equal shares of all keys; nothing where there is no such kernel.
std::optional<AttentionPlan> plan_of_shares(const KernelSpec& spec, const DeviceModel& device) {
  KernelSpec shares = spec;
  shares.attention().parts = 0;  // a port to be
  return plan_attention(shares, device);
}

// The number of parts with the least estimated time, or equal shares. The kernel that combines
// parts reads an f32 result for each of them.
int choose_splits(const KernelSpec& spec, const DeviceModel& device) {
  const A& a = spec.attention();
  const auto whole = plan_attention(spec, device);
  if (!whole) return 1;
  const AttentionConfig& e = whole->engine;
  const auto tiles = static_cast<std::int64_t>(std::ceil(keys_of_a_row(spec) / e.tile_k));
  int best = 1;
  double least = e.microseconds;
  const bool narrow = !e.by_warps && !e.wide, few = narrow && e.consumers == 1;
  if (const auto shares = narrow ? plan_of_shares(spec, device) : std::nullopt) {
    // Lengths that are known on the GPU alone may be unlike, whatever a whole batch takes: all the
    // longer where a tile has many rows, which shares are not to delay much where they are alike.
    constexpr int kUnlike = 4;  // tiles of keys
    // Of many tiles of rows, several of which a CTA has anyway, tiles side by side read keys from
    // the second-level cache. (b4 h32 of 8, d128, on an H200, us, a tile a CTA and shares: 16,384
    // keys 512 queries 875 and 884, 2048 3,527 and 3,992; beside three of 1024 keys 381 and 266,
    // 1,002 and 915.)
    constexpr double kDelay = 1.05, kRounds = 8;
    const double rounds = static_cast<double>(count(spec.extent, 0, A::batch)) *
                          static_cast<double>(spec.extent[A::member] * spec.extent[A::query]) /
                          e.tile_q / e.grid;
    const bool alone = spec.extent[0] == 1 && (e.key_blocks > 1 || !few);  // heads have its length
    if (a.length_kv >= 0 && a.band.padding && tiles > kUnlike && !alone &&
        (few || (rounds < kRounds && shares->engine.microseconds < kDelay * e.microseconds)))
      return kEqualShares;
    // Estimated alike, parts are faster on GPUs whose memory is slower: of b1, h32 of 8, d128,
    // 16,384 keys, shares take 22.1 us and parts 22.3 on an H200, 28.9 and 27.0 on an H100.
    constexpr double kAlike = 1;
    const double us = shares->engine.microseconds + device.launch_microseconds + kAlike;
    // Of one tile of keys there are none to share. (Windows of 49, b1024 h6, d32 50.7 us for 25.4.)
    if (few && tiles > 1 && us < least) least = us, best = kEqualShares;
  }
  // A row that sees nothing has a logarithm of -inf, which a sink's part does not tell; one with an
  // infinite score, written out, that score's. Weights that a body drops are NaN in all
  // parts where one of them has such scores. Nor are there parts of what stores totals or reduces
  // its results.
  if (e.grid >= static_cast<std::uint32_t>(device.sms * e.beside) ||
      (a.stats >= 0 && (a.has_sink() || a.written_out)) || a.totals() ||
      !unrounded(a.weight).statements.empty() || !spec.cross_row_reductions.empty())
    return best;
  const double results = static_cast<double>(count(spec.extent, 0, A::n));
  // CTAs that leave room for those of the kernel behind them, which then starts earlier. (On an
  // H200, h32 of 8, d128, us: b1, 4096 keys, 8 parts 9.9, 16 12.8; 16,384 keys, 8 parts 22.4,
  // 12 21.9, 16 24.4; 32,768 keys, 9 parts 37.4, 12 37.7, 16 39.6; b4, 8192 keys, 3 parts 36.6,
  // 4 37.2. b8, h8 of 1, d256, 8192 keys, 8 parts 23.4, 12 25.9, 16 25.8.)
  constexpr double kNoRoom = 2;
  const auto room = static_cast<std::uint32_t>(device.sms / 2);
  for (int n = 2; n <= std::min<std::int64_t>(kMostSplits, few ? tiles : tiles / 2); ++n) {
    KernelSpec parts = spec;
    parts.attention().splits = n;
    const auto plan = plan_attention(parts, device);
    if (!plan) continue;
    // The results of all parts stay in the second-level cache on their way.
    const double us = plan->engine.microseconds + device.kernel_microseconds() +
                      (few && plan->engine.grid > room ? kNoRoom : 0) +
                      2 * 4 * results * n / device.l2_bandwidth;
    if (us < least) least = us, best = n;
  }
  return best;
}

// What rows of parts are combined by: each part's largest score and sum of exp(score - largest).
// (Their logarithm in one f32 would be lost beside a largest score of -1e9, as of a row that sees
// nothing but such masks, and parts of unequally many keys would count alike.)
struct PartPorts {
  KernelPort largest, total;
};

// Rows of parts: each part's result, combined as those of one softmax.
class Combination {
 public:
  // Over the first `kept` indices of the attention's domain.
  Combination(const KernelSpec& attention, int kept, std::int64_t parts)
      : body_(attention, spec_, kept) {
    spec_.family = RowwiseSpec{.outer_rank = kept, .combines_partials = true};
    spec_.nodes = attention.nodes;
    spec_.scalars = attention.scalars;
    spec_.extent = part_of(attention.extent, 0, kept);
    spec_.extent.push_back(parts);
  }

  int load(const KernelPort& port, const std::string& label) {
    Statement s = statement(StatementKind::load, DataType::f32, label);
    s.port = body_.add_port(port);
    return body_.add(std::move(s));
  }
  int constant(double value) {
    Statement s = statement(StatementKind::scalar, DataType::f32, "constant");
    s.per_row = true;
    s.port = static_cast<int>(spec_.scalars.size());
    spec_.scalars.push_back({kNoTensor, "constant", DataType::f32, value, 0});
    return body_.add(std::move(s));
  }
  int pointwise(PointwiseMode mode, std::vector<int> args, const char* label) {
    Statement s = statement(StatementKind::pointwise, DataType::f32, label);
    s.mode = mode;
    s.args = std::move(args);
    return body_.add(std::move(s));
  }
  int reduce(ReductionMode mode, int value, const char* label) {
    RowwiseSpec& rows = spec_.rowwise();
    const int phase = spec_.body.statements[static_cast<std::size_t>(value)].phase;
    Statement s = statement(StatementKind::reduce, DataType::f32, label);
    s.args = {value};
    s.port = static_cast<int>(rows.reductions.size());
    rows.reductions.push_back({mode, DataType::f32, spec_.extent.back(), phase});
    const int number = s.port;
    body_.add(std::move(s));
    Statement reduced = statement(StatementKind::reduced, DataType::f32, label);
    reduced.port = number;
    reduced.per_row = true;
    reduced.phase = phase + 1;
    rows.phases = std::max(rows.phases, phase + 2);
    return body_.add(std::move(reduced));
  }

  // exp(largest - shift) total, where shift is the largest of all parts, or 0 where none is finite;
  // and the sum of these.
  struct Weights {
    int shift, weight, total;
  };
  Weights weights(const PartPorts& parts) {
    using M = PointwiseMode;
    const int of_part = load(parts.largest, "largest_of_part");
    const int largest = reduce(ReductionMode::max, of_part, "largest");
    const int nothing = pointwise(
        M::cmp_eq, {largest, constant(-std::numeric_limits<double>::infinity())}, "nothing");
    const int shift = pointwise(M::binary_select, {constant(0), largest, nothing}, "shift");
    const int unit = pointwise(M::exp, {pointwise(M::sub, {of_part, shift}, "shifted")}, "unit");
    const int weight = pointwise(M::mul, {unit, load(parts.total, "total_of_part")}, "weight");
    return {shift, weight, reduce(ReductionMode::add, weight, "total")};
  }

  KernelSpec spec_;
  BodyCopy body_;
};

// What the attention's body does with a result, on the combined ones.
KernelSpec combined_results(const KernelSpec& attention, const KernelPort& results,
                            const PartPorts& ports, std::int64_t parts) {
  using M = PointwiseMode;
  Combination c(attention, A::n, parts);
  const auto [shift, weight, total] = c.weights(ports);
  const int weighted = c.pointwise(M::mul, {weight, c.load(results, "result")}, "weighted");
  const int sum = c.reduce(ReductionMode::add, weighted, "sum");
  int divisor = total;
  if (!attention.attention().written_out) {
    const int nothing = c.pointwise(M::cmp_eq, {total, c.constant(0)}, "no_weight");
    divisor = c.pointwise(M::binary_select, {c.constant(1), total, nothing}, "divisor");
  }
  const int result = c.pointwise(M::div, {sum, divisor}, "combined");
  c.body_.set(0, result);
  const auto& statements = attention.body.statements;
  for (int i = 0; i < static_cast<int>(statements.size()); ++i)
    if (is_store(statements[static_cast<std::size_t>(i)])) c.body_.copy(i);
  auto& made = c.spec_.body.statements;
  for (std::size_t i = static_cast<std::size_t>(result); i < made.size(); ++i)
    made[i].per_row = true;
  drop_unused(c.spec_);
  simplify_domain(c.spec_);
  return std::move(c.spec_);
}

// shift + log(total), -inf where there is nothing.
KernelSpec combined_stats(const KernelSpec& attention, const PartPorts& ports, std::int64_t parts) {
  using M = PointwiseMode;
  Combination c(attention, A::e, parts);
  const auto [shift, weight, total] = c.weights(ports);
  const int sum = c.pointwise(M::add, {shift, c.pointwise(M::log, {total}, "log")}, "stats");
  KernelPort to = attention.ports[static_cast<std::size_t>(attention.attention().stats)];
  to.access.stride = part_of(to.access.stride, 0, A::e);
  to.access.stride.push_back(0);
  c.body_.add_store(sum, DataType::f32, to, true);
  drop_unused(c.spec_);
  simplify_domain(c.spec_);
  return std::move(c.spec_);
}

// Packed sequences and masks make tiles unlike: CTAs take one as they become free, by a counter,
// where each has so many that unequal shares cost more than a kernel of zeros. (h32, 16,384 tokens,
// causal, on an H200, us in steps and counted: 200 sequences, d64 270 and 196, d128 341 and 238; 64
// of 256 144 and 140, 190 and 168; 16, 250 and 233, 349 and 332; 8 of 2048 383 and 370, 582 and
// 544.)
bool counts_tiles(const KernelSpec& spec, const DeviceModel& device) {
  constexpr std::int64_t kRounds = 4;
  const auto plan = plan_attention(spec, device);
  if (!plan || plan->engine.by_warps || plan->engine.wide) return false;
  // Several threads of the producer walk over tiles, and would each take a number.
  if (!spec.attention().mask.statements.empty() &&
      (bytes_of_boxes(plan->engine) > 0 || is_f8(plan->engine.v.map.type)))
    return false;
  const std::int64_t rows = spec.extent[A::member] * spec.extent[A::query],
                     numbers = tiles_of(rows, plan->engine.tile_q, spec.attention().sequences);
  return count(spec.extent, 0, A::batch) * numbers >= kRounds * plan->engine.grid;
}
std::vector<KernelSpec> counted_tiles(KernelSpec spec, Temporaries& temporaries) {
  Access one;
  one.stride = {1};
  KernelPort counter = temporaries.add("tiles_taken", DataType::i32, {1}, one);
  std::vector<KernelSpec> kernels = {zeros(counter, {1})};
  kernels.front().nodes = {spec.nodes.front()};
  counter.access.stride = Dims::filled(spec.extent.size(), 0);
  spec.attention().tiles_taken = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(counter));
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace

namespace {

// Counters of parts that are there start as zeros.
std::vector<KernelSpec> shared_keys(KernelSpec spec, const DeviceModel& device,
                                    Temporaries& temporaries) {
  const auto plan = plan_of_shares(spec, device);
  if (!plan) return {std::move(spec)};
  const SharedParts size = shared_parts(spec, plan->engine, device);
  Access packed;
  packed.stride = {1};
  KernelPort parts = temporaries.add("parts_of_keys", DataType::f32, {size.floats}, packed),
             cleared = parts;
  cleared.access.stride = {size.step}, cleared.access.offset = size.first_zero;
  std::vector<KernelSpec> kernels = {zeros(std::move(cleared), {size.zeros})};
  kernels.front().nodes = {spec.nodes.front()};
  parts.access.stride = Dims::filled(spec.extent.size(), 0);
  spec.attention().parts = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(parts));
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace

std::vector<KernelSpec> split_keys(KernelSpec spec, const PlanContext& context,
                                   Temporaries& temporaries) {
  const DeviceModel& device = context.device;
  const A& a = spec.attention();
  if (a.sequences.count > 0 && !counts_tiles(spec, device)) return {std::move(spec)};
  if (a.sequences.count > 0) return counted_tiles(std::move(spec), temporaries);
  if (a.band.hidden) return {std::move(spec)};  // counted where rows are whole
  const auto parts = static_cast<int>(
      context.decisions.decide(Decisions::Kind::key_parts, spec.nodes.front(), [&] {
        return !a.mask.statements.empty() && counts_tiles(spec, device)
                   ? kCountedTiles
                   : choose_splits(spec, device);
      }));
  if (parts == 1) return {std::move(spec)};
  if (parts == kCountedTiles) return counted_tiles(std::move(spec), temporaries);
  if (parts == kEqualShares) return shared_keys(std::move(spec), device, temporaries);
  const int rank = spec.extent.size();
  const Dims rows = part_of(spec.extent, 0, A::e), results = part_of(spec.extent, 0, A::n);
  Dims all_rows = rows, all_results = results;
  all_rows[0] *= parts, all_results[0] *= parts;

  KernelSpec sums = spec;
  const Statement acc = spec.body.statements.front();
  Statement store = statement(StatementKind::store, DataType::f32, "");
  store.args = {0};
  store.port = static_cast<int>(sums.ports.size());
  sums.ports.push_back(temporaries.add(acc.label + "_parts", DataType::f32, all_results,
                                       packed_access(rank, 0, results)));
  sums.body.statements = {acc, store};
  sums.attention().stats = -1;
  for (auto [port, name] : {std::pair(&sums.attention().largest, "_largest"),
                            std::pair(&sums.attention().total, "_total")}) {
    *port = static_cast<int>(sums.ports.size());
    sums.ports.push_back(
        temporaries.add(acc.label + name, DataType::f32, all_rows, packed_access(rank, 0, rows)));
  }
  sums.attention().splits = parts;

  // Each part's lie behind those of the one before.
  const auto parts_of = [&](const KernelPort& written, const Dims& dim, int kept) {
    Access a;
    a.stride = part_of(packed_access(rank, 0, dim).stride, 0, kept);
    a.stride.push_back(count(dim, 0, dim.size()));
    return read_back(written, std::move(a));
  };
  const auto* const written = sums.ports.data() + sums.ports.size() - 3;
  const KernelPort &result = written[0], &largest = written[1], &total = written[2];
  const auto rows_of_parts = [&](int kept) {
    return PartPorts{parts_of(largest, rows, kept), parts_of(total, rows, kept)};
  };
  std::vector<KernelSpec> kernels;
  for (auto& k :
       split(combined_results(spec, parts_of(result, results, A::n), rows_of_parts(A::n), parts),
             context, temporaries))
    kernels.push_back(std::move(k));
  if (spec.attention().stats >= 0)
    for (auto& k : split(combined_stats(spec, rows_of_parts(A::e), parts), context, temporaries))
      kernels.push_back(std::move(k));
  drop_unused(sums);
  kernels.insert(kernels.begin(), std::move(sums));
  return kernels;
}

bool expands_faster(const KernelSpec& spec, double microseconds, const DeviceModel& device) {
  // The scores are written and read in the type of their sums, their weights with 16 bits. (On an
  // H200, us, as kernels of their own and as one of two walks: b1 h32 s2048 d128 459 and 180,
  // causal 464 and 104, b2 h16 s2048 d64 441 and 128, b8 h12 s1024 d64 causal 331 and 65.)
  constexpr double kReached = 0.6, kKernels = 3;
  constexpr double kWait = 1;  // microseconds of each of them, until the one before has ended
  // What bodies add to the kernel, microseconds a pair. (b2 h16 s1024 d128 with a mask of f32 112
  // us of 142, with dropout 141 of 137; b1 h32 s2048 d128, each step rounded to bf16, with a mask
  // 422 of 392; b8 h12 s1024 d64 with a mask by indices that are no band 167 of 272.)
  constexpr double kLoads = 1.9e-6, kComputes = 0.7e-6, kWeight = 2.9e-6;
  const auto& score = spec.attention().score.statements;
  const auto any = [&](const auto& is) { return std::any_of(score.begin(), score.end(), is); };
  const double body =
      (score.empty()                                                           ? 0
       : any([](const Statement& s) { return s.kind == StatementKind::load; }) ? kLoads
                                                                               : kComputes) +
      (unrounded(spec.attention().weight).statements.empty() ? 0 : kWeight);
  const bool narrow = score.size() > 1 && score[1].kind == StatementKind::convert;
  const double bytes_of_pair = (narrow ? 2 + 2 : 4 + 4) + 2 + 2;
  const double operations = device.has_wgmma ? device.tensor_operations : device.mma_operations;
  const auto heads = static_cast<double>(count(spec.extent, 0, A::batch)),
             rows = static_cast<double>(spec.extent[A::member] * spec.extent[A::query]),
             keys = static_cast<double>(spec.extent[A::n]),
             widths = static_cast<double>(spec.extent[A::d] + spec.extent[A::e]);
  const double pairs = heads * rows * keys,
               operands =
                   2 * widths * heads * (rows + keys / static_cast<double>(spec.attention().group));
  const bool cached = pairs * bytes_of_pair < static_cast<double>(device.l2_bytes) / 2;
  return microseconds + pairs * body >
         kKernels * (device.kernel_microseconds() + kWait) + operands / device.memory_bandwidth +
             pairs * bytes_of_pair / (cached ? device.l2_bandwidth : device.memory_bandwidth) +
             2 * pairs * widths / (operations * kReached * device.sms * device.clock);
}

}  // namespace sinter
