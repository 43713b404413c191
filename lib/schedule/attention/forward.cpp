#include "schedule/attention/forward.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/attention/forward_f8.hpp"
#include "schedule/attention/forward_mma.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/attention/forward_tile.hpp"
#include "schedule/schedule_parts.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kWidest = 256;  // head dimension: columns of one instruction
// Of wide heads: what two consumers hold, and what leaves room for two stages of 64 keys beside Q.
constexpr std::int64_t kWidestValues = 2 * kWidest, kWidestKeys = 576;

// Whether a box of rows holds the queries of several members of a group, which lie apart.
bool boxes_members(const BoxedOperand& o) {
  return !o.batch.empty() && o.batch.front() == AttentionSpec::member;
}

// Rows of q: the queries of a head or, one behind another, those of all members of a group; if
// these lie apart, a box brings them into one tile.
std::optional<BoxedOperand> boxed_rows(const KernelSpec& spec, const ProductOperand& operand) {
  using A = AttentionSpec;
  const std::int64_t members = spec.extent[A::member], queries = spec.extent[A::query];
  if (queries == 1 && members > 1) return boxed(spec, operand, A::member);
  auto o = boxed(spec, operand, A::query);
  if (!o || members == 1) return o;
  const Access& a = spec.ports[static_cast<std::size_t>(o->port)].access;
  const std::int64_t bytes = info(o->map.type).bytes, step = a.stride[A::member] * bytes;
  if (a.stride[A::member] == a.stride[A::query] * queries) {
    o->map.dim[o->k_fastest ? 1 : 0] *= members;
    return o;
  }
  if (!o->k_fastest || members * queries > kConsumerRows || kConsumerRows % queries != 0 ||
      !tma::takes_step(step) || o->map.dim.size() == tma::kMostDims)
    return {};
  TensorMap& map = o->map;
  const Dims dim = map.dim, stride = map.stride;
  map.dim = {dim[0], dim[1], members};
  map.stride = {stride[0], step};
  for (int i = 2; i < dim.size(); ++i)
    map.dim.push_back(dim[i]), map.stride.push_back(stride[i - 1]);
  o->batch.insert(o->batch.begin(), A::member);
  return o;
}

// Where heads of q share one of k and v, the map has those alone.
std::optional<BoxedOperand> boxed_shared(const KernelSpec& spec, const ProductOperand& operand,
                                         int row, std::int64_t group, bool keys) {
  if (auto pages = paged(spec, operand, keys); pages && pages->page % kSwizzledRows == 0)
    return pages;
  // Values of f8 are transposed in shared memory.
  auto o = boxed(spec, operand, row, !keys && is_f8(operand.type));
  if (!o) return {};
  for (std::size_t i = 0; i < o->batch.size(); ++i)
    if (o->batch[i] == AttentionSpec::head) o->map.dim[static_cast<int>(i) + 2] /= group;
  return o;
}

// The indices of the domain that differ within a head of a product.
std::vector<int> rows_and_columns(const ContractionSpec& c) {
  return {AttentionSpec::member, AttentionSpec::query, c.first_n()};
}

// The result as TMA stores it, where the epilogue does nothing but store the sums, rounded to the
// operands' type; of f8 operands, times a number of the head, to any type of 16 bits. A largest
// magnitude is found element by element.
std::optional<BoxedOperand> stored_sums(const KernelSpec& outputs, DataType operands) {
  const auto& body = outputs.body.statements;
  const ContractionSpec& c = outputs.contraction();
  const bool plain = body.size() == 2, f8 = is_f8(operands);
  if (body.size() < 2 || !outputs.cross_row_reductions.empty() ||
      std::count_if(body.begin(), body.end(), is_store) != 1 || !is_store(body.back()) ||
      body.back().args[0] + 2 != static_cast<int>(body.size()) || (!plain && !f8) ||
      !is_scaled_sum(outputs, body.size() - 2, rows_and_columns(c)))
    return {};
  auto o =
      boxed_result(outputs, body.back().port, c.batch, {c.first_m(), c.first_n()}, c.first_n());
  if (!o || (f8 ? info(o->map.type).bytes != 2 : o->map.type != operands)) return {};
  set_box(*o, kStoredRows);
  return o;
}

bool is_wide(const KernelSpec& spec) {
  return spec.extent[AttentionSpec::d] > kWidest || spec.extent[AttentionSpec::e] > kWidest;
}

// Whether the elements of a head must lie together: those of wide ones; and where sequences begin
// at any token, which is no multiple of 16 bytes in a line of tokens, as TMA wants it.
bool wants_elements_together(const KernelSpec& spec) {
  return is_wide(spec) || spec.attention().sequences.count > 0;
}

struct Operands {
  std::optional<BoxedOperand> q, k, v;
};
Operands operands_of(const KernelSpec& scores, const KernelSpec& outputs, std::int64_t group,
                     bool elements_together) {
  const ContractionSpec &first = scores.contraction(), &second = outputs.contraction();
  Operands o{boxed_rows(scores, first.a()),
             boxed_shared(scores, first.b(), first.first_n(), group, true),
             boxed_shared(outputs, second.b(), second.first_n(), group, false)};
  if (o.q && o.q->map.type != first.a().type) o.q = {};
  if (o.k && o.k->map.type != first.b().type) o.k = {};
  if (o.v && o.v->map.type != second.b().type) o.v = {};
  if (elements_together && o.q && !o.q->k_fastest) o.q = {};
  if (elements_together && o.k && !o.k->k_fastest) o.k = {};
  if ((elements_together || is_f8(second.b().type)) && o.v && o.v->k_fastest) o.v = {};
  return o;
}

// Of warps, whose copies take each head's rows as they lie. Where there is one tile of rows, K and
// V of f8 are widened tile by tile: no other tile reads them, so that a copy in memory would only
// cost.
Operands copied_operands(const KernelSpec& spec, const KernelSpec& scores,
                         const KernelSpec& outputs) {
  const ContractionSpec &first = scores.contraction(), &second = outputs.contraction();
  const int d = scores.extent.size() - 1;
  const bool widened = rows_of(spec) <= kConsumerRows && info(first.a().type).bytes == 2;
  return {copied_rows(scores, first.a(), d), copied_rows(scores, first.b(), d, widened),
          copied_rows(outputs, second.b(), second.first_n(), widened)};
}

// f32 operands, of which wgmma would want V's keys together, and K and V that are widened.
bool runs_by_warps(const KernelSpec& spec, const KernelSpec& scores, const KernelSpec& outputs,
                   const DeviceModel& device) {
  const AttentionSpec& a = spec.attention();
  if (!has_warpgroups(device) || info(a.q.type).bytes == 4) return true;
  if (is_f8(a.q.type)) return false;
  if (a.sequences.count > 0 || is_wide(spec)) return false;
  const Operands o = copied_operands(spec, scores, outputs);
  return o.k && o.v && (is_f8(o.k->map.type) || is_f8(o.v->map.type));
}

// Whether v is the first columns of k, in the same memory.
bool lies_in_keys(const AttentionConfig& e, const KernelSpec& outputs) {
  const auto tensor = [](const KernelSpec& spec, int port) {
    return spec.ports[static_cast<std::size_t>(port)].tensor;
  };
  const BoxedOperand &k = e.k, &v = e.v;
  if (tensor(e.scores, k.port) != tensor(outputs, v.port) || k.source != v.source ||
      k.map.offset != v.map.offset || k.map.stride != v.map.stride || k.batch != v.batch ||
      v.map.dim[0] > k.map.dim[0])
    return false;
  Dims rest = v.map.dim;
  rest[0] = k.map.dim[0];
  if (rest != k.map.dim) return false;
  if (k.source != BoxedOperand::Source::pages) return true;
  const auto table = [&](const KernelSpec& spec, const BoxedOperand& o) {
    const Gather& g = spec.gathers[static_cast<std::size_t>(o.gather)];
    return std::tuple(tensor(spec, g.ports[1]), g.dims[1], g.strides[1],
                      spec.ports[static_cast<std::size_t>(g.ports[1])].access.offset);
  };
  return table(e.scores, k) == table(outputs, v);
}

// Clusters whose blocks divide the keys of a tile of rows, where few tiles leave SMs idle: as many
// blocks as take the least time, while all clusters run at once. Two warpgroups take the tiles of a
// block in turns where it has so many that one would be late, unless they are, with many rows,
// later to join twice as many parts; not those of two walks, of which the second begins with the
// tile that the first one began with, whichever the last one was. These have no other way to divide
// keys, so that tiles of several consumers have clusters; those of one do not: kernels of their own
// are faster (h32 of 8, d128, one query, 4096 keys 11.9 us and 13.1 in clusters, 16 queries, 8192
// keys 28.3 both; b2 h16 d64, 2048 keys 9.2 and 12.3). (On an H200, h32 of 8, d128, us, two
// warpgroups and one: b4, 8192 keys, 2 blocks 34.0 and 37.9; 1024 keys 7.9 and 8.4; b1, 8 blocks,
// 1024 keys 5.1 and 4.8, 2048 keys 7.6 and 7.2.) Wider heads take longer than in parts (d256, b1,
// 8192 keys: 29.8 us by 8 blocks, 21.9 in parts).
void choose_key_blocks(const KernelSpec& spec, double items, const DeviceModel& device,
                       AttentionConfig& e) {
  const AttentionSpec& a = spec.attention();
  constexpr std::int64_t kWidestDivided = 128;
  if (std::max(spec.extent[AttentionSpec::d], spec.extent[AttentionSpec::e]) > kWidestDivided)
    return;
  const bool twice = rounds_divided(a.weight);
  if (!device.has_clusters || e.wide || (e.consumers > 1) != twice || a.splits > 1 ||
      a.parts >= 0 || a.sequences.count > 0 || !a.mask.statements.empty())
    return;
  AttentionConfig best = e;
  best.microseconds = microseconds_by_warpgroups(spec, e, items, device);
  constexpr double kManyKeys = 500;  // of a block
  const auto& at_once = device.clusters_at_once;
  const double keys = keys_of_a_row(spec);
  for (int n = 2; n <= static_cast<int>(at_once.size()); ++n) {
    if (items > at_once[static_cast<std::size_t>(n - 1)]) continue;
    // Values of f8 take more registers than two warpgroups and those that transpose have.
    const int most = !is_f8(e.v.map.type) && !twice && keys / n > kManyKeys ? 2 : 1;
    for (int alternating = most; alternating > 0; --alternating) {
      AttentionConfig divided = e;
      divided.alternating = alternating;
      divided.part_rows = static_cast<int>(std::min<std::int64_t>(rows_of(spec), kConsumerRows));
      divided.key_blocks = n;
      divided.grid = clamp_grid(items * n);
      if (!choose_forward_tile(divided, spec, device) || std::ceil(keys / divided.tile_k) < n ||
          !has_room_for_parts(divided, spec))
        continue;
      if (alternating < most && !joins_many_rows(divided, device)) continue;
      // With fewer, its one thread spilled two. They are taken from the consumers': there are no
      // more.
      if (twice && e.consumers == 2) {
        divided.producer_registers = 40;
        divided.consumer_registers = 232;
      }
      divided.microseconds = microseconds_by_warpgroups(spec, divided, items, device);
      if (divided.microseconds < best.microseconds) best = divided;
    }
  }
  e = std::move(best);
}

// Of heads of one tile of rows each, by CTAs of one consumer, what the SM takes that has the most
// of them: a row of scores waits for one product, the softmax and the next product of each tile of
// keys, while memory could bring more; several CTAs wait beside each other. Where all run at once,
// some SMs get one more than others, though these have room. (d64, one query, on an H200, us, one,
// two, three and four CTAs on an SM: 320 heads of 1500 keys 37.0, 36.0, 34.4, 34.5, 160 of 1500
// 25.5, 22.5, 18.4, -, 192 of 2000 33.3, 29.7, 25.7, -, 256 of 1024 19.4, 17.8, 23.5, -, 384 of 200
// 9.0, 8.3, 7.3, 8.2, 1024 of 577 43.4, 36.5, 40.3, 37.2. d128, 320 of 1500 60.1 and 62.3.)
double microseconds_beside(const KernelSpec& spec, const AttentionConfig& e, double items,
                           const DeviceModel& device) {
  constexpr double kClocks[] = {0.2, 0.175, 0.145};  // of a score, by CTAs on an SM
  // Microseconds of each tile of rows; how uneven; how much more than other kernels it has of the
  // memory's bandwidth.
  constexpr double kTile = 0.35, kUneven = 1.1, kStreamed = 1.12;
  const double slots = device.sms * e.least_blocks;
  const double of_sm =
      items > slots ? std::ceil(items / slots) * e.least_blocks
                    : std::min<double>(e.least_blocks, std::ceil(kUneven * items / device.sms));
  const double scores =
      up(static_cast<std::int64_t>(keys_of_a_row(spec)), e.tile_k) * static_cast<double>(e.tile_q);
  return device.kernel_microseconds() +
         std::max(of_sm * (scores * kClocks[e.least_blocks - 1] / device.clock + kTile),
                  bytes_of_attention(spec, e, device) / (kStreamed * device.memory_bandwidth));
}

// Several CTAs on an SM for heads of one tile of rows each, where that is faster; then with its
// time.
bool choose_blocks_beside(const KernelSpec& spec, double items, const DeviceModel& device,
                          AttentionConfig& e) {
  const AttentionSpec& a = spec.attention();
  constexpr double kGain = 0.97;
  constexpr int kMostBlocks = 3;
  if (e.wide || e.consumers > 1 || e.least_blocks > 1 || a.parts >= 0 || a.splits > 1 ||
      a.sequences.count > 0 || rows_of(spec) > kConsumerRows || items <= device.sms ||
      !a.score.statements.empty() || !a.weight.statements.empty())
    return false;
  AttentionConfig best = e;
  double least = kGain * microseconds_beside(spec, e, items, device);
  for (int blocks = 2; blocks <= kMostBlocks; ++blocks) {
    AttentionConfig beside = e;
    if (!choose_tile_beside(beside, spec, blocks, device)) continue;
    beside.microseconds = microseconds_beside(spec, beside, items, device);
    if (beside.microseconds >= least) continue;
    beside.grid = clamp_grid(std::min<double>(items, device.sms * blocks));
    best = beside, least = kGain * beside.microseconds;
  }
  e = std::move(best);
  return e.least_blocks > 1;
}

// Completes a plan that has its operands.
bool plan_by_warpgroups(const KernelSpec& spec, const DeviceModel& device, AttentionPlan& plan) {
  const AttentionSpec& a = spec.attention();
  AttentionConfig& e = plan.engine;
  const std::int64_t depth = spec.extent[AttentionSpec::d], width = spec.extent[AttentionSpec::e];
  if (depth > kWidestKeys || width > kWidestValues) return false;
  if (a.band.padding && e.v.k_fastest) return false;
  const auto& score = e.scores.body.statements;
  e.scales_heads =
      is_f8(a.q.type) && !score.empty() &&
      is_scaled_sum(e.scores, score.size() - 1, rows_and_columns(e.scores.contraction()));
  e.values_in_keys = e.wide && lies_in_keys(e, plan.spec);
  if (!choose_forward_tile(e, spec, device)) return false;
  const std::int64_t heads = count(spec.extent, 0, AttentionSpec::batch);
  const std::int64_t tiles_q = tiles_of(rows_of(spec), e.tile_q, a.sequences);
  if (tiles_q * e.tile_q >= std::int64_t{1} << 31) return false;
  const double items = static_cast<double>(heads) * static_cast<double>(tiles_q) * a.splits;
  if (items >= 0x1p30) return false;
  const double tiles_k = std::ceil(keys_of_a_row(spec) / a.splits / e.tile_k);
  const bool shares = a.parts >= 0;
  if (shares && (e.wide || a.sequences.count > 0 || items * tiles_k >= 0x1p30)) return false;
  e.part_rows = shares ? static_cast<int>(std::min<std::int64_t>(rows_of(spec), kConsumerRows)) : 0;
  e.grid = clamp_grid(std::min<double>(items, device.sms * e.least_blocks));
  if (shares) share_keys(spec, items * tiles_k, device, e);
  const bool beside = choose_blocks_beside(spec, items, device, e);
  if (!beside) choose_key_blocks(spec, items, device, e);
  set_swizzled_lines(e.q, kConsumerRows, up(depth, kSwizzledLine));
  if (boxes_members(e.q)) {
    const std::int64_t queries = spec.extent[AttentionSpec::query];
    e.q.map.box[1] = queries, e.q.map.box[2] = kConsumerRows / queries;
  }
  set_swizzled_lines(e.k, e.tile_k, up(depth, kSwizzledLine));
  set_swizzled_lines(e.v, up(up(width, 16), kSwizzledLine), e.tile_k);
  set_boxes_beside(e);
  for (const BoxedOperand* b : {&e.q, &e.k, &e.v})
    if (b->map.box[1] > tma::kMostBox) return false;
  e.result = stored_sums(plan.spec, e.q.map.type);
  e.threads = 128 * (e.consumers * e.alternating + 1);
  e.heads_together = static_cast<int>(choose_heads_together(spec, e, heads, tiles_q, device));
  if (!beside) e.microseconds = microseconds_by_warpgroups(spec, e, items, device);
  return true;
}

}  // namespace

bool draws_or_loads(const KernelSpec& spec, const Body& body, bool integers) {
  return std::all_of(body.statements.begin(), body.statements.end(), [&](const Statement& s) {
    if (s.kind == StatementKind::random) return s.arithmetic == DataType::f32;
    if (s.kind == StatementKind::gather)
      return spec.gathers[static_cast<std::size_t>(s.gather)].op == OpKind::block_mask;
    Body one;
    one.statements = {s};
    if (integers) one.statements[0].arithmetic = DataType::f32;
    return is_straight(spec, one, true);
  });
}

std::int64_t tiles_of(std::int64_t tokens, int tile, const PackedSequences& sequences) {
  return sequences.count > 0 ? tokens / tile + sequences.count + 2 : (tokens + tile - 1) / tile;
}
std::int64_t length_of(std::int64_t tokens, const PackedSequences& sequences) {
  return sequences.count > 0 ? (tokens + sequences.count - 1) / sequences.count : tokens;
}

std::array<int, 2> own_columns(std::int64_t width) {
  const int panels = up(width, kSwizzledLine) / kSwizzledLine, first = (panels + 1) / 2;
  return {first * kSwizzledLine, std::max(1, panels - first) * kSwizzledLine};
}

std::vector<ProductOperand AttentionSpec::*> not_loadable(const KernelSpec& spec,
                                                          const DeviceModel& device) {
  const AttentionSpec& a = spec.attention();
  const KernelSpec scores = scores_of(spec), outputs = outputs_of(spec);
  const Operands o = runs_by_warps(spec, scores, outputs, device)
                         ? copied_operands(spec, scores, outputs)
                         : operands_of(scores, outputs, a.group, wants_elements_together(spec));
  std::vector<ProductOperand AttentionSpec::*> left;
  if (!o.q) left.push_back(&AttentionSpec::q);
  if (!o.k) left.push_back(&AttentionSpec::k);
  // Values past a length are cleared along their rows.
  if (!o.v || (a.band.padding && o.v->k_fastest)) left.push_back(&AttentionSpec::v);
  return left;
}

std::optional<AttentionPlan> plan_attention(const KernelSpec& spec, const DeviceModel& device) {
  const AttentionSpec& a = spec.attention();
  if (count(spec.extent, 0, spec.extent.size()) == 0) return {};
  if (rows_of(spec) >= 1 << 30 || spec.extent[AttentionSpec::n] >= 1 << 30) return {};
  Body epilogue = spec.body;
  std::erase_if(epilogue.statements,
                [](const Statement& s) { return s.kind == StatementKind::cross_row_reduce; });
  if (!is_straight(spec, epilogue, true) || !draws_or_loads(spec, a.score, true) ||
      !draws_or_loads(spec, a.weight) || !draws_or_loads(spec, a.mask, true))
    return {};

  AttentionPlan plan{outputs_of(spec), {}};
  AttentionConfig& e = plan.engine;
  e.scores = scores_of(spec);
  const KernelSpec of_pairs = without_index(spec, AttentionSpec::e);
  e.weight = of_pairs.attention().weight;
  e.mask = of_pairs.attention().mask;
  if (!a.mask.statements.empty() && !is_block_mask(a.mask))
    e.visited_percent = static_cast<int>(
        std::max(1L, std::lround(100 * keys_of_a_row(spec) /
                                 static_cast<double>(spec.extent[AttentionSpec::n]))));
  e.by_warps = runs_by_warps(spec, e.scores, plan.spec, device);
  e.wide = !e.by_warps && is_wide(spec);
  if (a.sequences.count == 0) e.loads_beside = loads_beside(e.scores, !e.by_warps && !e.wide);
  if ((a.sequences.count > 0 || a.parts >= 0) && (e.wide || e.by_warps)) return {};
  if (a.parts >= 0 && !a.mask.statements.empty()) return {};  // tiles are no equal shares
  // The sums by which weights are divided are those of all keys, and of these alone.
  if (rounds_divided(a.weight) && (e.wide || a.splits > 1 || a.parts >= 0 || a.has_sink()))
    return {};
  const Operands o = e.by_warps
                         ? copied_operands(spec, e.scores, plan.spec)
                         : operands_of(e.scores, plan.spec, a.group, wants_elements_together(spec));
  const bool f8 = is_f8(a.q.type) && is_f8(a.k.type) && !e.by_warps && !e.wide;
  if (!o.q || !o.k || !o.v || (!f8 && (a.q.type != a.k.type || a.k.type != a.v.type))) return {};
  e.q = *o.q, e.k = *o.k, e.v = *o.v;
  if (rounds_divided(a.weight) && e.by_warps && (is_f8(e.k.map.type) || is_f8(e.v.map.type)))
    return {};
  e.attention = a;
  e.attention.q = e.attention.k = e.attention.v = {};
  e.attention.score = e.attention.weight = e.attention.mask = {};
  e.wide_index = needs_wide_index(plan.spec) || needs_wide_index(e.scores);
  const ContractionSpec& of = plan.spec.contraction();
  e.n_fastest = !prefers(plan.spec, plan.spec.body, of.first_n(), of.first_n() - 1, is_store);
  // Rows of packed sequences begin at any token: no packs of several of them.
  const bool any_row = a.sequences.count > 0 && !e.n_fastest;
  e.packing =
      choose_packing(plan.spec, e.n_fastest ? of.first_n() : of.first_n() - 1, any_row ? 1 : 8);
  if (!(e.by_warps ? plan_by_warps(spec, device, plan) : plan_by_warpgroups(spec, device, plan)))
    return {};
  return plan;
}

std::optional<AttentionPlan> schedule_as(const AttentionConfig& decided, const KernelSpec& spec,
                                         const DeviceModel& device) {
  auto plan = plan_attention(spec, device);
  if (!plan || !spec.gathers.empty() || spec.attention().sequences.count > 0) return {};
  const AttentionConfig& own = plan->engine;
  if (own.by_warps != decided.by_warps || own.wide != decided.wide ||
      own.values_in_keys != decided.values_in_keys || own.n_fastest != decided.n_fastest ||
      own.attention.splits != decided.attention.splits ||
      (own.attention.parts >= 0) != (decided.attention.parts >= 0) ||
      own.mask.statements.empty() != decided.mask.statements.empty() ||
      !std::equal(decided.loads_beside.begin(), decided.loads_beside.end(),
                  own.loads_beside.begin(), own.loads_beside.end(), loads_alike) ||
      own.part_rows != decided.part_rows || own.share_lanes != decided.share_lanes ||
      own.key_blocks != decided.key_blocks || own.alternating != decided.alternating ||
      (own.part_rows > 0 && own.tile_q != decided.tile_q) ||
      (boxes_members(own.q) && own.q.map.box != decided.q.map.box) ||
      own.scores.extent.back() != decided.scores.extent.back() || !decided.q.loads_like(own.q) ||
      !decided.k.loads_like(own.k) || !decided.v.loads_like(own.v) ||
      (decided.result && !(own.result && decided.result->loads_like(*own.result))) ||
      !holds(decided.packing, own.packing))
    return {};
  AttentionConfig e = decided;
  e.scores = own.scores, e.weight = own.weight, e.mask = own.mask, e.attention = own.attention;
  e.visited_percent = own.visited_percent;
  e.q.take_tensor(own.q), e.k.take_tensor(own.k), e.v.take_tensor(own.v);
  if (e.result) e.result->take_tensor(*own.result);
  for (std::size_t i = 0; i < e.loads_beside.size(); ++i)
    if (auto& box = e.loads_beside[i].box) box->take_tensor(*own.loads_beside[i].box);
  e.wide_index |= own.wide_index;
  const double items = elements(spec.extent, 0, AttentionSpec::batch) *
                       std::ceil(static_cast<double>(rows_of(spec)) / e.tile_q) *
                       e.attention.splits;
  if (items >= 0x1p30) return {};
  if (e.attention.parts >= 0 || e.key_blocks > 1)
    e.grid = own.grid;
  else
    e.grid = clamp_grid(e.by_warps ? items : std::min<double>(items, device.sms * e.least_blocks));
  e.heads_together = own.heads_together;
  e.microseconds = e.by_warps ? microseconds_by_warps(spec, e, items, device)
                              : microseconds_by_warpgroups(spec, e, items, device);
  plan->engine = std::move(e);
  return plan;
}

// Its pattern has asked the only engine before.
ScheduledKernel schedule(const AttentionSpec&, const KernelSpec& spec, const PlanContext& context) {
  auto attention = plan_attention(spec, context.device);
  return scheduled(std::move(attention->spec), std::move(attention->engine));
}

}  // namespace sinter
