#include "schedule/attention/backward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/access.hpp"
#include "plan/large_scores.hpp"
#include "schedule/attention/backward_mma.hpp"
#include "schedule/attention/backward_time.hpp"
#include "schedule/attention/forward_mma.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/schedule_parts.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

using A = AttentionBackwardSpec;

constexpr int kRows = 64;      // of a consumer
constexpr int kLine = 64;      // elements of 16 bits in a line of the swizzle
constexpr int kSumsLine = 32;  // of f32
// Head dimensions up to which a consumer's registers hold the sums of dK and dV for 64 keys, and
// of the wide kernel.
constexpr std::int64_t kNarrow = 128, kWidest = 256;

std::optional<BoxedOperand> loaded(const KernelSpec& spec, const ProductOperand& operand, int row,
                                   int column, std::int64_t group) {
  const KernelPort* const p = plainly_loaded(spec, operand.body);
  if (!p || p->type != operand.type) return {};
  return boxed_port(spec, static_cast<int>(p - spec.ports.data()), A::batch, {row, row + 1}, column,
                    {A::head, group});
}

struct Operands {
  std::optional<BoxedOperand> q, k, v, d_o;
};
Operands operands_of(const KernelSpec& spec, bool by_warps) {
  const A& a = spec.attention_backward();
  if (by_warps)
    return {copied_rows(spec, a.q, A::d), copied_rows(spec, a.k, A::d),
            copied_rows(spec, a.v, A::e), copied_rows(spec, a.d_o, A::e)};
  return {loaded(spec, a.q, A::m, A::d, 1), loaded(spec, a.k, A::n, A::d, a.group),
          loaded(spec, a.v, A::n, A::e, a.group), loaded(spec, a.d_o, A::m, A::e, 1)};
}

// Whether two neighbours along `column` lie in 4 bytes of their own.
bool in_pairs(const KernelSpec& spec, const KernelPort& p, std::initializer_list<int> others,
              int column) {
  return info(p.type).bytes == 2 && p.access.windows.empty() && p.access.via.empty() &&
         p.alignment >= 4 && p.access.offset % 2 == 0 && p.access.stride[column] == 1 &&
         std::ranges::all_of(
             others, [&](int i) { return spec.extent[i] == 1 || p.access.stride[i] % 2 == 0; });
}

// Boxes and lines hold numbers of the operands' type.
KeyGradient key_gradient(const KernelSpec& spec, int number, int column, bool by_warps) {
  using By = KeyGradient::By;
  if (number < 0) return {};
  const A& a = spec.attention_backward();
  const KernelPort& p = spec.ports[static_cast<std::size_t>(number)];
  if (p.type != a.q.type || info(p.type).bytes != 2) return {By::elements, {}};
  if (by_warps)
    return {in_pairs(spec, p, {0, A::head, A::n}, column) ? By::lines : By::elements, {}};
  const auto box =
      boxed_result(spec, number, A::batch, {A::n, A::n + 1}, column, {A::head, a.group});
  return box ? KeyGradient{By::boxes, *box} : KeyGradient{By::elements, {}};
}

void set_lines(BoxedOperand& o, int columns, int rows) {
  o.map.box = Dims::filled(o.map.dim.size(), 1);
  o.map.box[0] = columns;
  o.map.box[1] = rows;
}

constexpr int kToRecompute = 48;  // ToRecompute::bytes

// As BackwardShape::shared_bytes and WideBackwardShape's.
int shared_bytes(const AttentionBackwardConfig& e, const A& a, std::int64_t depth,
                 std::int64_t width) {
  const bool blocks = !a.mask.statements.empty();
  const bool keys_ahead = e.windows > 1 && e.parts_of_dq();
  const int of_q = up(depth, kLine), of_do = up(width, kLine),
            // dS twice, or weights and dS
      weights = (keys_ahead ? 1 : 2) * 2 * e.tile_q * e.tile_k,
            keys = (keys_ahead ? 2 : 1) * e.tile_k;
  const int of_dq = e.wide                              ? kLine
                    : e.rows_of_dq() || e.parts_of_dq() ? up(up(depth, 8), kSumsLine)
                                                        : kRows;
  return 2 * (of_q * (keys + e.stages * e.tile_q) + of_do * (keys + e.stages_do * e.tile_q)) +
         weights + e.consumers * of_dq * kRows * 4 +
         (e.stages + e.stages_do) * (e.tile_q * 4 + 16) + 16 + kToRecompute +
         (a.totals() ? e.stages * e.tile_q * 4 : 0) + (blocks ? e.stages * 8 : 0) +
         (e.beside ? 2 * 16 : 0) + (!e.wide && (a.additive() || a.masks_pairs) ? e.stages * 8 : 0) +
         (e.windows > 1 ? (keys_ahead ? 32 : 4 * e.tile_q * e.tile_k + 8) : 0) + kLostToAlignment;
}

bool is_wide(std::int64_t depth, std::int64_t width) {
  return std::max(depth, width) > kNarrow || (depth <= kLine && width > kLine);
}

// Tiles and stages. Nothing where shared memory has too little room. With a mask of blocks tiles
// lie within its blocks of 128 keys.
bool choose_tile(AttentionBackwardConfig& e, const A& a, std::int64_t depth, std::int64_t width,
                 const DeviceModel& device) {
  const bool blocks = is_block_mask(a.mask);
  const auto fits = [&] {
    e.shared_bytes = static_cast<std::uint32_t>(shared_bytes(e, a, depth, width));
    return static_cast<int>(e.shared_bytes) <= device.shared_per_cta;
  };
  // The consumers of the narrow kernel take halves of dQ's columns, two lines of the swizzle; or of
  // its rows where the tiles of queries are long: they are multiplied with fewer loads, but
  // registers hold them beside narrow sums of 64 keys alone.
  e.wide = is_wide(depth, width);
  if (!e.wide) {
    e.tile_k = e.consumers * e.blocks * kRows;
    e.tile_q = depth <= kLine && !e.parts_of_dq() ? e.tile_k : kRows;
    return fits();
  }
  // A consumer holds tile_k / 2 sums of each of its blocks of 64 elements of dK and dV, and what a
  // score's body needs. (b2 h16 s4096 d256 on an H200: 80 keys 3,621 us, 64 3,894; b4 h16 s2048
  // with a softcap: 80 keys 1,741, 64 1,478. d192 and 128: 96 keys 2,094, 80 2,337; two stages,
  // one 2,171.)
  const int most_sums = a.plain() ? 160 : 128;
  const auto own = [](std::int64_t dim) { return (up(dim, kLine) / kLine + 1) / 2; };
  const int most = blocks ? 64 : 96, step = blocks ? 32 : 16;
  e.tile_k = std::min(most, most_sums * 2 / (own(depth) + own(width)) / 16 * 16);
  struct Stages {
    int q, d_o;
  };
  for (; e.tile_k >= 32; e.tile_k -= step)
    for (const Stages& stages : {Stages{2, 2}, Stages{2, 1}, Stages{1, 1}}) {
      e.stages = stages.q, e.stages_do = stages.d_o;
      if (fits()) return true;
    }
  return false;
}

// 129 to 256 keys whose dQ the kernel stores, of narrow heads, are one tile: of three consumers
// with 64 each, or of two with twice as many. (On an H200, us of all kernels, as two tiles with f32
// sums of dQ, of two consumers and of three: b64 h12 s192 d64 141, 79.4 and 72.6, causal 132, 98.9
// and 83.9, with a bias of heads 174, 117 and 102; d32 causal 98.5, 74.7 and 60.4.)
void choose_blocks(AttentionBackwardConfig& e, const KernelSpec& spec, int least_tile) {
  const A& a = spec.attention_backward();
  const std::int64_t keys = std::max<std::int64_t>(spec.extent[A::n], least_tile);
  constexpr std::int64_t kTwoTiles = 2 * kRows, kThree = 3 * kRows, kFour = 4 * kRows;
  if (!a.dq_factor || keys <= kTwoTiles || keys > kFour ||
      std::max(spec.extent[A::d], spec.extent[A::e]) > kLine)
    return;
  if (keys <= kThree) {
    e.consumers = 3;
    e.consumer_registers = 160;
  } else {
    e.blocks = 2;
  }
}

// Of up to 64 keys, as windows have them, a second consumer would have none. Where the walk is one
// tile of queries, a CTA waits for its operands, products and results one behind another, so that
// several lie on an SM beside each other; three where the sums of narrow heads leave their
// registers. (On an H200, us of all kernels, with forward's: b1024 h6, windows of 49, d32 by two
// consumers 248, by one, two on an SM 132, three 120; the gradients of b2048 h8 s24 d80 550 and,
// two on an SM, 266.)
void choose_few_keys(AttentionBackwardConfig& e, const KernelSpec& spec,
                     const DeviceModel& device) {
  const A& a = spec.attention_backward();
  const std::int64_t depth = spec.extent[A::d], width = spec.extent[A::e],
                     wide = std::max(depth, width);
  constexpr std::int64_t kTwo = 96, kThree = 32;  // elements of heads whose sums registers hold
  if (spec.extent[A::n] > kRows || wide > kTwo || a.sequences.count > 0) return;
  AttentionBackwardConfig few = e;
  few.consumers = 1;
  const bool one_tile = a.group == 1 && spec.extent[A::m] <= kRows;
  if (one_tile) few.stages = few.stages_do = 1;
  few.least_blocks = one_tile && wide <= kThree ? 3 : 2;
  few.consumer_registers = few.least_blocks == 3 ? 136 : 232;
  if (choose_tile(few, a, depth, width, device) && !few.wide &&
      static_cast<int>(few.shared_bytes) <=
          device.shared_per_sm / few.least_blocks - device.shared_reserved)
    e = few;
}

// Where windows of one tile have the same bias, and its gradient is wanted, a CTA takes several
// windows of a head in turn and adds what they sum to.
void choose_windows(AttentionBackwardConfig& e, const KernelSpec& spec, const DeviceModel& device) {
  const A& a = spec.attention_backward();
  const AttentionBand& band = a.band;
  if (e.consumers > 1 || a.dbias < 0 || a.group > 1 || a.parts > 1 || spec.extent[A::m] > kRows ||
      band.left || band.right || band.padding || a.length_q >= 0 || a.length_kv >= 0 ||
      !a.mask.statements.empty())
    return;
  const BiasGradient b = bias_gradient_of(spec);
  if (!b.by_query || !b.by_key || !b.shared ||
      moves_along(spec.ports[static_cast<std::size_t>(a.dbias)].access, 0))
    return;
  AttentionBackwardConfig several = e;  // whose tile and shared memory any number has
  several.windows = 2;
  if (!choose_tile(several, a, spec.extent[A::d], spec.extent[A::e], device) ||
      static_cast<int>(several.shared_bytes) >
          device.shared_per_sm / e.least_blocks - device.shared_reserved)
    return;
  constexpr int kMost = 64;
  int fastest = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int windows = 1; windows <= std::min<std::int64_t>(kMost, spec.extent[0]); ++windows) {
    several.windows = windows;
    const double grid = heads_of_windows(spec, windows),
                 us = microseconds_of_few_keys(several, spec, grid, device) +
                      microseconds_of_dbias(spec, grid);
    if (us < least) least = us, fastest = windows;
  }
  if (fastest == 1) return;
  e = several;
  e.windows = fastest;
}

// Of one tile of keys that fills an SM, a CTA takes several batch entries of a head in turn, whose
// operands come while those before are multiplied. Beside a head's products, of one unit, a CTA
// waits for its start and its end (a guess).
void choose_turns(AttentionBackwardConfig& e, const KernelSpec& spec, const DeviceModel& device) {
  const A& a = spec.attention_backward();
  if (!e.parts_of_dq() || e.beside || a.parts > 1) return;
  AttentionBackwardConfig several = e;
  several.windows = 2;
  if (!choose_tile(several, a, spec.extent[A::d], spec.extent[A::e], device)) return;
  constexpr double kStartAndEnd = 0.3;
  double least = std::numeric_limits<double>::infinity();
  for (int windows = 1; windows <= spec.extent[0]; ++windows) {
    const double rounds = std::ceil(heads_of_windows(spec, windows) / a.group / device.sms),
                 time = rounds * (windows + kStartAndEnd);
    if (time < least) least = time, e.windows = windows;
  }
}

// What a score reads of memory for each pair of query and key, in boxes of 16 bits: of several
// loads the first.
std::optional<BoxedOperand> box_beside(const KernelSpec& spec) {
  const A& a = spec.attention_backward();
  if (a.sequences.count > 0) return {};
  for (const Statement& s : a.score.statements) {
    if (s.kind != StatementKind::load || s.arithmetic != DataType::f32 || !s.args.empty()) continue;
    if (info(spec.ports[static_cast<std::size_t>(s.port)].type).bytes != 2) continue;
    const auto loads = [&](const Body& body) {
      return std::count_if(body.statements.begin(), body.statements.end(),
                           [&](const Statement& x) { return is_load(x) && x.port == s.port; });
    };
    if (loads(a.score) != 1 || loads(a.gradient) != 1) continue;
    if (auto box = boxed_port(spec, s.port, A::batch, {A::m, A::m + 1}, A::n)) return box;
  }
  return {};
}

// Whether scores read numbers of pairs that all entries share: memory is read once for all of them
// where these are the fastest index. Not beside additions to a dBias that they share.
bool shares_pairs(const KernelSpec& spec) {
  const A& a = spec.attention_backward();
  return a.dbias < 0 && std::ranges::any_of(a.score.statements, [&](const Statement& s) {
           if (s.kind != StatementKind::load) return false;
           const Access& access = spec.ports[static_cast<std::size_t>(s.port)].access;
           return !moves_along(access, 0) && moves_along(access, A::m) && moves_along(access, A::n);
         });
}

// Completes a configuration that has its operands. `least_tile`: see below. (b4 h32 s4096 on an
// H200, causal, head dimension 128: 2,303 us in tiles of 64 queries; 64: 1,326 us in tiles of 128.)
bool plan_backward_by_warpgroups(const KernelSpec& spec, const DeviceModel& device,
                                 bool several_windows, int least_tile, AttentionBackwardConfig& e) {
  const A& a = spec.attention_backward();
  const std::int64_t depth = spec.extent[A::d], width = spec.extent[A::e], keys = spec.extent[A::n];
  if (depth > kWidest || width > kWidest) return false;
  if (a.sums >= 0) {
    e.sums = a.dq_factor ? boxed_result(spec, a.sums, A::batch, {A::m, A::m + 1}, A::d)
                         : boxed_port(spec, a.sums, A::batch, {A::m, A::m + 1}, A::d);
    if (!e.sums) return false;
  }
  if (least_tile == 0) choose_few_keys(e, spec, device);
  choose_blocks(e, spec, least_tile);
  if (!choose_tile(e, a, depth, width, device)) return false;
  // With 24 the warp that brings rows, and looks for tiles, spills; there are no more than the
  // consumers leave, whose products are serialised then where they sum rows of dBias.
  if (!a.mask.statements.empty() && a.dbias < 0 && e.consumers == 2)
    e.producer_registers = 40, e.consumer_registers = 232;
  if (!e.wide) {
    e.beside = box_beside(spec);
    if (e.beside && !choose_tile(e, a, depth, width, device)) return false;
    if (several_windows) {
      choose_windows(e, spec, device);
      choose_turns(e, spec, device);
      if (const auto last = static_cast<int>(up(spec.extent[A::m] % e.tile_q, 16));
          e.parts_of_dq() && a.weight.statements.empty() && last > 0 && last < e.tile_q)
        e.last_queries = last;
    }
    if (!choose_tile(e, a, depth, width, device)) return false;
  }
  set_lines(e.q, kLine, e.tile_q);
  set_lines(e.d_o, kLine, e.tile_q);
  set_lines(e.k, kLine, e.tile_k);
  set_lines(e.v, kLine, e.tile_k);
  if (e.sums) set_lines(*e.sums, a.dq_factor ? kLine : kSumsLine, kRows);
  if (e.beside) set_lines(*e.beside, kLine, kRows);
  for (KeyGradient* const gradient : {&e.dk, &e.dv})
    if (gradient->by == KeyGradient::By::boxes)
      set_lines(gradient->box, kLine, e.wide ? e.tile_k : kRows);
  e.threads = 128 * (e.consumers + 1);
  const std::int64_t heads = count(spec.extent, 0, A::batch) / a.group,
                     tiles = tiles_of(keys, e.tile_k, a.sequences);
  if (tiles * e.tile_k >= std::int64_t{1} << 31 || !order_tiles(spec, heads, tiles, device, e))
    return false;
  if (e.windows > 1) e.grid = clamp_grid(heads_of_windows(spec, e.windows) / a.group);

  // What all SMs multiply, at the share that was measured; or what memory brings.
  constexpr double kEnds = 1;                  // microseconds of the first and the last tile
  const double reached = e.wide ? 0.45 : 0.6;  // wide: 0.40 (d256), 0.45 (d192 and 128)
  const double flops = 2 * pairs_of_an_sm(spec, e, heads, tiles, device) *
                       static_cast<double>(depths_multiplied(spec));
  double us = flops / device.tensor_operations / reached / device.clock;
  if (e.consumers == 1) us = std::max(us, microseconds_of_few_keys(e, spec, e.grid, device));
  e.microseconds =
      device.kernel_microseconds() + kEnds +
      std::max(us, bytes_moved(spec) / device.memory_bandwidth) +
      microseconds_of_dbias(
          spec, e.windows > 1 && !e.parts_of_dq() ? e.grid : static_cast<double>(heads * a.group));
  e.entries_first = shares_pairs(spec);
  return true;
}

// f32 operands, of which wgmma would want all with k along lines.
bool runs_by_warps(DataType multiplied, const DeviceModel& device) {
  return !has_warpgroups(device) || info(multiplied).bytes == 4;
}

}  // namespace

bool takes_masks(const KernelSpec& spec) {
  const A& a = spec.attention_backward();
  return a.totals() || std::ranges::any_of(a.score.statements, [&](const Statement& s) {
           if (s.kind != StatementKind::scalar || s.port < 0) return s.kind == StatementKind::load;
           return is_large_score(spec.scalars[static_cast<std::size_t>(s.port)].value);
         });
}

std::vector<ProductOperand A::*> not_loadable_backward(const KernelSpec& spec,
                                                       const DeviceModel& device) {
  const Operands o = operands_of(spec, runs_by_warps(spec.attention_backward().q.type, device));
  std::vector<ProductOperand A::*> left;
  if (!o.q) left.push_back(&A::q);
  if (!o.k) left.push_back(&A::k);
  if (!o.v) left.push_back(&A::v);
  if (!o.d_o) left.push_back(&A::d_o);
  return left;
}

bool masks_pairs(DataType multiplied, std::int64_t depth, std::int64_t width,
                 const DeviceModel& device) {
  return !runs_by_warps(multiplied, device) && !is_wide(depth, width);
}

std::int64_t depths_multiplied(const KernelSpec& spec) {
  const A& a = spec.attention_backward();
  const bool of_scores = a.wants_dq() || a.dk >= 0 || a.dbias >= 0;
  return spec.extent[A::d] * (1 + a.wants_dq() + (a.dk >= 0)) +
         spec.extent[A::e] * (of_scores + (a.dv >= 0));
}

BiasGradient bias_gradient_of(const KernelSpec& spec) {
  const A& a = spec.attention_backward();
  if (a.dbias < 0) return {};
  const KernelPort& port = spec.ports[static_cast<std::size_t>(a.dbias)];
  const Access& access = port.access;
  const auto by = [&](int i) { return spec.extent[i] == 1 || moves_along(access, i); };
  BiasGradient b{by(A::m), by(A::n)};
  const bool of_one_head = by(0) && by(A::head);
  b.of_rows = of_one_head && b.by_query && !b.by_key;
  b.of_blocks = a.dbias_of_blocks;
  b.shared = !(of_one_head && b.by_query && b.by_key) && !b.of_blocks;
  b.in_pairs = !b.shared && !b.of_blocks && a.additive() && port.type == a.q.type &&
               spec.extent[A::n] % 2 == 0 && in_pairs(spec, port, {0, A::head, A::m}, A::n);
  return b;
}

namespace {

// The blocks of a round, where walks are to be tile by tile (QueryTile): where, head by head,
// neighbouring tiles of keys are so far apart under a causal bound, half of their difference of all
// heads on average, that what all SMs load and add to meanwhile is more than the second-level cache
// keeps. (d128 on an H200, us, head by head and so, some 2 of which are those of dQ's zeros: h64 of
// 8, s8192 5,545 and 5,090; h32 of 8, b4 s4096 2,781 and 2,761, b4 s2048 799 and 779, b8 s1024 483
// and 473. h64 of 8, s8192, all from the last tile of queries on 5,618, all heads in one order
// 5,107. Wide heads, like scores and weights with bodies, wait for memory less: b2 h16 of 4, s4096
// d256 1,815 and 1,867. b4 h32 of 8, s4096 d64, which the cache keeps, 1,512 and 1,526; more heads
// of 64 elements over one were not measured. Heads of their own K, in rounds that keep blocks two
// tiles apart, take as long as in any order.)
int blocks_of_round(const KernelSpec& spec, const AttentionBackwardConfig& e,
                    const DeviceModel& device) {
  const A& a = spec.attention_backward();
  if (e.by_warps || e.wide || !a.plain() || spec.extent[A::d] <= kLine || !a.band.right ||
      a.band.left || a.parts > 1 || a.sequences.count > 0 || !a.mask.statements.empty() ||
      a.deterministic)
    return 0;
  // Q, dO and f32 sums of dQ.
  const std::int64_t row = 2 * (spec.extent[A::d] + spec.extent[A::e]) + 4 * spec.extent[A::d],
                     apart = a.group * e.tile_k / 2;
  constexpr double kKept = 0.6;  // of the cache, whose halves keep copies of each other's lines
  const auto bytes = static_cast<double>(device.sms * apart * row);
  return bytes > kKept * static_cast<double>(device.l2_bytes) ? device.sms : 0;
}

// `least_tile`: as many keys a tile has that has all of them, where others of its class are more;
// else 0.
std::optional<AttentionBackwardConfig> plan_in_class(const KernelSpec& spec,
                                                     const DeviceModel& device,
                                                     bool several_windows, int least_tile) {
  const A& a = spec.attention_backward();
  if (count(spec.extent, 0, spec.extent.size()) == 0) return {};
  if (spec.extent[A::m] >= 1 << 30 || spec.extent[A::n] >= 1 << 30) return {};
  if (!is_straight(spec, a.score, true) || !is_straight(spec, a.gradient, true) ||
      !draws_or_loads(spec, a.weight) || !draws_or_loads(spec, a.mask, true))
    return {};
  if (a.dbias >= 0) {
    // Its element is the score's, of which there is one with a body where there is a bias.
    const DataType type = spec.ports[static_cast<std::size_t>(a.dbias)].type;
    if (a.score.statements.empty() || (type != DataType::f32 && info(type).bytes != 2)) return {};
    // Rows are summed by blocks of keys; what else is shared is added in any order.
    const BiasGradient b = bias_gradient_of(spec);
    if (a.deterministic && b.shared && !b.of_rows) return {};
  }
  AttentionBackwardConfig e;
  e.by_warps = runs_by_warps(a.q.type, device);
  if (e.by_warps && a.sequences.count > 0) return {};
  const Operands o = operands_of(spec, e.by_warps);
  if (!o.q || !o.k || !o.v || !o.d_o) return {};
  for (const ProductOperand* x : {&a.k, &a.v, &a.d_o})
    if (x->type != a.q.type) return {};

  e.q = *o.q, e.k = *o.k, e.v = *o.v, e.d_o = *o.d_o;
  e.dk = key_gradient(spec, a.dk, A::d, e.by_warps);
  e.dv = key_gradient(spec, a.dv, A::e, e.by_warps);
  e.dbias = bias_gradient_of(spec);
  e.wide_index = needs_wide_index(spec);
  if (!(e.by_warps ? plan_backward_by_warps(spec, device, e)
                   : plan_backward_by_warpgroups(spec, device, several_windows, least_tile, e)))
    return {};
  e.blocks_of_round = blocks_of_round(spec, e, device);
  // Of two additions to zero the order does not matter.
  e.in_order =
      a.deterministic && a.sums >= 0 && (a.sequences.count > 0 || spec.extent[A::n] > 2 * e.tile_k);
  e.last_keys_first = !e.in_order && longest_walk(spec).at_end;
  return e;
}

}  // namespace

std::optional<AttentionBackwardConfig> plan_attention_backward(const KernelSpec& spec,
                                                               const DeviceModel& device,
                                                               bool several_windows) {
  return plan_in_class(spec, device, several_windows, 0);
}

std::optional<AttentionBackwardConfig> schedule_as(const AttentionBackwardConfig& decided,
                                                   const KernelSpec& spec,
                                                   const DeviceModel& device) {
  auto e =
      plan_in_class(spec, device, decided.windows > 1, decided.parts_of_dq() ? decided.tile_k : 0);
  if (!e) return {};
  // Tiles follow from head dimensions and, of few, from keys and queries. An order that few tiles
  // do without does no harm.
  const AttentionBackwardSpec& a = spec.attention_backward();
  if (a.deterministic && !a.dq_factor) e->in_order |= decided.in_order;
  e->last_keys_first = decided.last_keys_first && !e->in_order;
  return e;
}

// Its pattern has asked the only engine before.
ScheduledKernel schedule(const AttentionBackwardSpec&, const KernelSpec& spec,
                         const PlanContext& context) {
  // Plans of a class, of any batch, have one text.
  return scheduled(spec, *plan_attention_backward(spec, context.device, !context.of_class));
}

}  // namespace sinter
