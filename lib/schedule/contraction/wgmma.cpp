#include "schedule/contraction/wgmma.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/access.hpp"
#include "schedule/contraction/implicit_gemm.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/stored_rows.hpp"
#include "schedule/contraction/wgmma_orientation.hpp"
#include "schedule/contraction/wgmma_stages.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr int kStoredBox = 64;  // columns that TMA stores, with kStoredRows
constexpr int kPooledTogether = 8;

std::string window_text(const ConvolutionWindow& w) {
  std::string text = fmt::format(", window of {} channels", w.channels);
  for (const WindowAxis& axis : w.axes)
    text += fmt::format(", {} pixels by {} taps {}, {} apart", axis.result, to_string(axis.taps),
                        axis.step, axis.offset_step);
  return text;
}

std::string problem_text(const Orientation& o) {
  const WgmmaConfig& e = o.engine;
  const TileProblem& p = o.problem;
  const auto type = [&](const BoxedOperand& operand) {
    return name(o.spec.ports[static_cast<std::size_t>(operand.port)].type);
  };
  const auto lines = [](bool shifted) { return shifted ? " shifted" : ""; };
  return fmt::format("{}{}{} x {}{}{}, {} {}, m {}, n {}, k {}, {} bytes a result{}{}{}{}{}",
                     type(e.a), e.a.k_fastest ? "" : " transposed", lines(p.a_shifted), type(e.b),
                     e.b.k_fastest ? "" : " transposed", lines(p.b_shifted),
                     p.gathered     ? "gathered groups"
                     : p.groups > 0 ? "groups"
                                    : "batch",
                     p.batches, p.rows, p.columns, p.depth, p.extra_bytes,
                     e.n_fastest ? "" : " along m", e.scaled() ? ", scaled" : "",
                     e.b2 ? ", two products" : "", p.reduces ? ", with totals" : "",
                     o.spec.contraction().promote_accumulators ? ", promoted" : "") +
         (p.pools ? ", pooled" : "") + (e.window ? window_text(*e.window) : "");
}

bool sooner(const EstimatedTile& a, const EstimatedTile& b) {
  return a.microseconds < b.microseconds;
}

// Taps of a consumer that one product takes: those of a row, if each row is one consumer's, or each
// consumer has a part of one row.
int taps_together(const ConvolutionWindow& window, int each) {
  int taps = 1;
  std::int64_t row = 1, apart = 0;
  for (auto axis = window.axes.rbegin(); axis != window.axes.rend(); ++axis) {
    taps *= static_cast<int>(axis->taps[0]);
    if (axis->taps[0] > 1) row = axis->taps[0], apart = axis->offset_step;
  }
  const bool even = taps % each == 0 && (each % row == 0 || row % each == 0);
  return even && apart > 0 ? static_cast<int>(std::min<std::int64_t>(row, each)) : 1;
}

// Of a k that ends in the first stage boxes have what MMAs read, whole 32 bytes of it,
// and not the line's end, which would be filled with zeros.
int loaded_depth(const TileProblem& p, const WgmmaConfig& e) {
  constexpr int kRead = 32;  // bytes of k of one MMA
  const auto whole = [](const BoxedOperand& o) {
    const bool read_by_threads = !o.k_fastest && !takes_either_major(o.map.type);
    return o.source != BoxedOperand::Source::boxes || !o.behind.empty() || read_by_threads;
  };
  const double bytes = std::ceil(p.depth * e.operand_bytes / kRead) * kRead;
  if (e.window || p.gathered || bytes == 0 || bytes >= kStageLine || whole(e.a) || whole(e.b) ||
      (e.b2 && whole(*e.b2)))
    return 0;
  return static_cast<int>(bytes) / e.operand_bytes;
}
void narrow_boxes(WgmmaConfig& e) {
  if (e.loaded_depth == 0) return;
  for (BoxedOperand* o : {&e.a, &e.b, e.b2 ? &*e.b2 : nullptr})
    if (o) o->map.box[o->k_fastest ? 0 : 1] = e.loaded_depth;
}

// Of the producer and of each consumer: of the 504 that three warpgroups have, in steps of eight.
void choose_registers(const TileProblem& p, WgmmaConfig& e) {
  const Tile& t = e.tile;
  const int kept =
      sums_per_thread(t) * (e.promote_accumulators ? 1 + promoted_sets(t) : 1) + (e.ahead ? 64 : 0);
  e.producer_registers = kept >= 192 ? 24 : 40;
  e.consumer_registers = t.consumers == 1 ? 248 : kept >= 192 ? 240 : 232;
  if (p.gradient) e.producer_registers = 24, e.consumer_registers = 240;
  if (t.consumers == 3) e.producer_registers = 24, e.consumer_registers = kRegistersOfThree;
  if (p.gathered) e.producer_registers = 56, e.consumer_registers = 224;
  if (p.shifted()) {
    e.producer_registers = 104;
    if (t.consumers == 2) e.consumer_registers = 200;
  }
  if (e.least_blocks > 1) e.consumer_registers = 216;  // with the producer's, half of all
}

// What follows from the tile.
void complete(Orientation& o, const EstimatedTile& choice, const DeviceModel& device) {
  WgmmaConfig& e = o.engine;
  const TileProblem& p = o.problem;
  const Tile& t = e.tile = choice.tile;
  e.microseconds = choice.microseconds;
  e.loaded_rows = loaded_rows(p, t);
  set_box(e.a, p.taps > 0 && !p.gradient ? window_pixels(p, t) : e.loaded_rows / t.cluster_n);
  const int columns = t.n / p.products / t.cluster_m;
  set_box(e.b, p.columns_together > 0 ? std::gcd(columns, p.columns_together) : columns);
  if (p.gradient) {
    if (p.block == 0) e.b.map.box[1] = gradient_pixels(p);
    e.taps_each = (p.taps + t.consumers - 1) / t.consumers;
    e.taps_together = taps_together(*e.window, e.taps_each);
  }
  if (e.b2) set_box(*e.b2, t.n / p.products / t.cluster_m);
  e.loaded_depth = loaded_depth(p, e);
  narrow_boxes(e);
  e.packing = choose_packing(o.spec, e.n_fastest ? n_index(o.spec) : m_index(o.spec), 8);
  if (e.window && !e.window->bounds.empty() && e.packing.dim >= 0)
    for (const auto& b : e.window->bounds)  // packs lie within or past an end as a whole
      if (b.coefficient[e.packing.dim] != 0 && b.end % e.packing.width != 0)
        e.packing = choose_packing(o.spec, e.packing.dim, 1);
  // Where every result reads memory of its own, several packs are read before one is computed.
  e.prefetch = p.reads;
  e.unroll = e.promote_accumulators ? 1 : 2;
  if (e.prefetch) e.unroll = p.extra_bytes > 8 || has_little_room(t) ? 2 : 4;
  // Where a long side is read by one tile alone, those that run at once should not all read the
  // same columns of memory. (64 x 8192 x 8192 of bf16 on an H200: 35.8 us, 34.6 with five steps
  // from one to the next; with 1, 3, 31 it gains less. Wider tiles whose k is split lose: 32.3
  // and 34.1 us for 64 x 4096 x 14336.)
  constexpr int kNarrow = 32, kApart = 5;
  const bool streams_a = t.n <= kInstructionRows && p.columns <= t.n * t.cluster_n,
             streams_b = p.rows_each() <= kInstructionRows,
             wide = t.split > 1 && (streams_a ? t.n : e.loaded_rows) > kNarrow;
  // Scales are found by their place in k, which is then the same for all; who copies rows walks
  // from its start.
  e.rotate =
      (streams_a || streams_b) && !wide && !e.scaled() && !p.gathered && !p.shifted() && !e.window
          ? kApart
          : 0;
  if (!stores_as_summed(p, t)) e.stored_rows = -1;
  for (int i : e.row_sources)
    if (e.packing.ports[static_cast<std::size_t>(i)].kind != PortPack::Kind::pack)
      e.stored_rows = -1;
  // Where columns are read one by one, or past the last of the result.
  if ((e.stored_together == 1 || std::fmod(p.columns, t.n) != 0) && loads_apart(o.spec, e.packing))
    e.stored_rows = -1;
  if (e.stored_rows < 0 || t.n % kStoredBox != 0) e.result.reset();
  // One consumer's epilogue runs beside the other's products: with that many steps of k it ends
  // first also where a lane moves one pack at a time, which takes a twelfth less to compile.
  constexpr int kStepsBeside = 64, kStepsBesideReads = 128;
  if (t.alternate && e.stored_rows < 0 && e.unroll == 2 && !p.reduces &&
      p.depth * p.bytes >= kStageLine * (p.reads ? kStepsBesideReads : kStepsBeside))
    e.unroll = 1;
  if (p.reduces && e.packing.width == 1) e.unroll = std::max(e.unroll, 2);
  if (e.b2) e.unroll = std::min(e.unroll, 2);  // epilogue tiles of half the columns
  const int lane_packs = 1024 / p.products / 32 / e.packing.width;
  e.ahead = e.prefetch && t.split == 1 && e.unroll == lane_packs && t.consumers < 3;
  e.threads = 128 * (t.consumers + 1);
  e.wide_index = needs_wide_index(o.spec);
  e.least_blocks = blocks_that_fit(p, t, device);
  choose_registers(p, e);
  e.grid = static_cast<std::uint32_t>(grid_of(p, t, device));
  e.through_ring = leaves_through_ring(p, t, device);
  e.shared_bytes = static_cast<std::uint32_t>(shared_bytes(p, t, device));
  e.counted = counted_products(o.spec, e);
}

}  // namespace

bool of_whole_tile(const KernelSpec& spec, const KernelPort& port) {
  const ContractionSpec& c = spec.contraction();
  const int m = c.first_m(), n = c.first_n(), k = c.first_k();
  const auto varies = [&](int from, int to) {
    for (int i = from; i < to; ++i)
      if (step(port.access, i) != 0) return true;
    return false;
  };
  return !port.written && varies(m, n) && varies(n, k);
}

KernelChoice TileChoice::ranked() const {
  std::vector<EstimatedTile> sorted = tiles;
  std::stable_sort(sorted.begin(), sorted.end(), sooner);
  KernelChoice choice{problem, {}, {}};
  for (const EstimatedTile& t : sorted) {
    choice.configurations.push_back(to_text(t.tile));
    choice.microseconds.push_back(t.microseconds);
  }
  return choice;
}

namespace {

// Of the orientations' tiles the one that was measured to be the fastest, else the one estimated
// to be. The usual orientation comes first; of the others, tiles say which one they are of.
std::optional<WgmmaPlan> choose_tile(std::vector<std::optional<Orientation>> orientations,
                                     const DeviceModel& device, const Tuning& tuning,
                                     KnownTiles& tiles) {
  TileChoice choice{problem_text(*orientations.front()), {}};
  std::vector<std::size_t> from;
  for (std::size_t i = 0; i < orientations.size(); ++i) {
    if (!orientations[i]) continue;
    for (EstimatedTile t : tiles.of(orientations[i]->problem, device)) {
      t.tile.swap_ab |= orientations[i]->other_way;
      choice.tiles.push_back(t);
      from.push_back(i);
    }
  }
  if (choice.tiles.empty()) return {};
  auto best = std::min_element(choice.tiles.begin(), choice.tiles.end(), sooner);
  const double least = best->microseconds;
  bool tuned = false;
  if (const auto known = tuning.best.find(choice.problem); known != tuning.best.end())
    if (const auto at =
            std::find_if(choice.tiles.begin(), choice.tiles.end(),
                         [&](const EstimatedTile& t) { return to_text(t.tile) == known->second; });
        at != choice.tiles.end()) {
      best = at;
      tuned = true;
    }
  Orientation& chosen = *orientations[from[static_cast<std::size_t>(best - choice.tiles.begin())]];
  complete(chosen, *best, device);
  return WgmmaPlan{std::move(chosen.spec), std::move(chosen.engine), std::move(choice), tuned,
                   least};
}

constexpr double kShortSide = 1024;

// A short side that leaves much of the last of its tiles empty: tiles have as many columns as there
// are, but not as many rows. (777 x 1000 x 16384 on an H200: 58.7 us in halves of 128 x 112, 54.4
// in 128 x 104 with 777 columns.)
bool fills_few_columns(double side, double most) {
  constexpr double kRows = 128, kMuch = 1.125;
  return side <= kInstructionRows ||
         (side <= most && std::ceil(side / kRows) * kRows > kMuch * side);
}

// Operands in boxes of rows and one index of k.
std::optional<WgmmaPlan> plan_boxes(const KernelSpec& given, const DeviceModel& device,
                                    const Tuning& tuning, KnownTiles& tiles) {
  const ContractionSpec* const c = given.as_contraction();
  if (c->k() != (c->has_scale_blocks() ? 2 : 1)) return {};
  // Rows and columns of reductions are numbered over all indices of m and of n.
  const bool two = c->paired(), dominated = c->zero_dominates != ZeroOf::neither;
  if (c->chained()) return {};
  if (!given.cross_row_reductions.empty() && (c->m != 1 || c->n != 1)) return {};
  if (two && dominated) return {};
  KernelSpec spec = given;
  widen_batch(spec);
  // A short side may lie along the tile's rows or its columns; of others, what lies together in
  // memory lies along the columns. Two products share rows.
  const bool columns_together = !prefers(spec, spec.body, n_index(spec), m_index(spec), is_store);
  const double rows = extent(spec, m_index(spec)), columns = extent(spec, n_index(spec));
  const bool short_m = rows <= kInstructionRows && columns > rows,
             short_n = columns <= kInstructionRows && rows > columns;
  if (two && !columns_together && !short_n) return {};
  // Rows of groups are rows of tiles, and begin anywhere.
  if (c->rows.on && (!columns_together || dominated)) return {};
  const bool swapped = !two && !c->rows.on && (short_m || (!columns_together && !short_n));
  auto usual = orient(spec, columns_together, swapped);
  const bool turns = !usual && !two && !c->rows.on && given.cross_row_reductions.empty();
  if (turns) usual = orient(spec, columns_together, !swapped);
  if (!usual) return {};
  usual->other_way = turns;
  std::optional<Orientation> other;
  if (!turns && !two && !c->rows.on && fills_few_columns(std::min(rows, columns), kShortSide))
    other = orient(spec, columns_together, !swapped);
  if (other) other->other_way = true;
  return choose_tile({std::move(usual), std::move(other)}, device, tuning, tiles);
}

// Those whose pixels are pooled: blocks of the image alone hold windows, and these lie together
// where results leave as they are summed.
std::optional<WgmmaPlan> plan_pooled(const KernelSpec& given, const DeviceModel& device,
                                     const Tuning& tuning, KnownTiles& tiles) {
  auto o = orient_convolution(given, true, true, false, Pixels::blocks);
  if (!o || !o->problem.stores_rows || o->engine.stored_together != kPooledTogether ||
      o->engine.window->axes.front().result != kSwizzledRows)
    return {};
  o->problem.pools = true;
  return choose_tile({std::move(o)}, device, tuning, tiles);
}

// Convolutions.
std::optional<WgmmaPlan> plan_window(const KernelSpec& given, const DeviceModel& device,
                                     const Tuning& tuning, KnownTiles& tiles) {
  const ContractionSpec& c = given.contraction();
  // What a pixel is multiplied by lies along k or, of a filter's gradient, along the columns.
  const bool gradient =
      std::find(c.k_indices.begin(), c.k_indices.end(), KIndex::pixels) != c.k_indices.end();
  const bool image_is_a = !gradient;
  const bool columns_together =
      !prefers(given, given.body, n_index(given), m_index(given), is_store);
  const bool swapped = !columns_together;
  auto usual = orient_convolution(given, image_is_a, columns_together, swapped);
  const auto resident = [&](Pixels how) {
    return orient_convolution(given, image_is_a, columns_together, swapped, how);
  };
  if (!usual) {  // parts of an image are boxes alone
    auto blocks = gradient ? resident(Pixels::blocks) : std::nullopt;
    if (!blocks) return {};
    return choose_tile({std::move(blocks)}, device, tuning, tiles);
  }
  std::optional<Orientation> other;
  // Filters of a gradient may leave much of the last tile of rows empty. (128 x 64 x 55 x 55, 192
  // of 5 x 5, stride 2 on an H100: 187 us in tiles of 128 filters, 110 in 192 columns.)
  if ((usual->problem.columns <= kInstructionRows ||
       fills_few_columns(usual->problem.rows, kShortSide / 2)) &&
      !usual->problem.reduces)
    other = orient_convolution(given, image_is_a, columns_together, !swapped);
  if (other) other->other_way = true;
  return choose_tile(
      {std::move(usual), std::move(other), resident(Pixels::lines), resident(Pixels::blocks)},
      device, tuning, tiles);
}

// Oriented as a kernel that was decided for other extents.
std::optional<Orientation> orient_boxes_as(const WgmmaConfig& decided, const KernelSpec& given) {
  const ContractionSpec& c = given.contraction();
  if ((!given.cross_row_reductions.empty() && (c.m != 1 || c.n != 1)) ||
      c.k() != (c.has_scale_blocks() ? 2 : 1))
    return {};
  KernelSpec spec = given;
  widen_batch(spec);
  const bool columns_together = !prefers(spec, spec.body, n_index(spec), m_index(spec), is_store);
  return orient(std::move(spec), columns_together, columns_together != decided.n_fastest);
}

// Of convolutions whose number of images alone is another: all else is constant in their text.
std::optional<Orientation> orient_window_as(const WgmmaConfig& decided, const KernelSpec& given) {
  const ConvolutionWindow& window = *decided.window;
  if (!may_be_convolution(given.contraction()) || !given.cross_row_reductions.empty()) return {};
  const bool gradient = window.taps_of != ConvolutionWindow::Taps::k;
  const bool columns_together =
      !prefers(given, given.body, n_index(given), m_index(given), is_store);
  const Pixels pixels = !decided.resident       ? Pixels::each_tap
                        : window.blocks.empty() ? Pixels::lines
                                                : Pixels::blocks;
  auto o = orient_convolution(given, !gradient, columns_together,
                              columns_together != decided.n_fastest, pixels);
  if (o) o->problem.pools = given.contraction().pooled.on();
  const bool alike = o && o->engine.window->taps_of == window.taps_of &&
                     o->engine.window->axes.size() == window.axes.size() &&
                     o->engine.window->channels == window.channels &&
                     o->engine.window->blocks == window.blocks;
  return alike ? std::move(o) : std::nullopt;
}

// Of a tile whose rows, or columns, come in boxes by the launch: as few tiles as the maximum
// allows, alike. (More, which leave fewer SMs idle, load the other operand again: 64 tokens of a
// decoder block on an H200 took 12.9 us for 4096 x 4096 in two tiles of 32 rows, estimated at 13.6,
// and 8.0 in one whose k is split, estimated at 14.5.)
Tile with_fewest_boxes(const TileProblem& p, const WgmmaConfig& e) {
  Tile t = e.tile;
  const bool rows = t.boxed_m > 0;
  const int most = rows ? t.m : t.n, beside = rows ? t.cluster_m : t.cluster_n,
            shared = rows ? t.cluster_n : t.cluster_m,
            unit = (rows && e.result ? kStoredRows : kSwizzledRows) * shared;
  const double side = rows ? p.rows : p.columns, tiles = std::ceil(side / (most * beside)) * beside;
  (rows ? t.boxed_m : t.boxed_n) =
      std::min(static_cast<int>(std::ceil(side / tiles / unit)) * unit, most);
  return t;
}

void set_boxes(const TileProblem& p, WgmmaConfig& e) {
  const Tile& t = e.tile;
  e.boxed_tiles =
      static_cast<int>(t.boxed_m > 0 ? std::ceil(p.rows / (t.boxed_m * t.cluster_m))
                                     : std::ceil(p.columns / (t.boxed_n * t.cluster_n)));
  if (e.tile.boxed_m > 0) set_box(e.a, e.tile.boxed_m / e.tile.cluster_n);
  if (e.tile.boxed_n > 0) set_box(e.b, e.tile.boxed_n / e.tile.cluster_m);
  narrow_boxes(e);
}

}  // namespace

std::optional<WgmmaPlan> boxed_by_launch(const WgmmaConfig& decided, const KernelSpec& spec,
                                         const KernelSpec& other, const DeviceModel& device) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || decided.window || c->rows.on || c->chained() || !spec.gathers.empty() ||
      !spec.cross_row_reductions.empty() || c->zero_dominates != ZeroOf::neither ||
      decided.scaled())
    return {};
  auto o = orient_boxes_as(decided, spec);
  const auto of_other = orient_boxes_as(decided, other);
  if (!o || !of_other) return {};
  const bool rows = o->problem.rows != of_other->problem.rows,
             columns = o->problem.columns != of_other->problem.columns;
  if (rows == columns || !(rows ? o->engine.a : o->engine.b).k_fastest || o->problem.shifted() ||
      (columns && o->problem.products > 1))
    return {};
  Tile t = decided.tile;
  (rows ? t.boxed_m : t.boxed_n) = rows ? t.m : t.n;
  t.stages = stages_that_fit(o->problem, t, 1, device);
  complete(*o, {tile_microseconds(o->problem, t, device), t}, device);
  return schedule_as(o->engine, spec, device);
}

std::optional<WgmmaPlan> plan_wgmma(const KernelSpec& given, const DeviceModel& device,
                                    const Tuning& tuning, KnownTiles& tiles) {
  if (!device.has_wgmma || !device.has_tma) return {};
  const ContractionSpec* const c = given.as_contraction();
  if (!c || reads_joined_indices(given)) return {};
  if (c->pooled.on())
    return may_be_convolution(*c) ? plan_pooled(given, device, tuning, tiles) : std::nullopt;
  auto plain = plan_boxes(given, device, tuning, tiles);
  if (!may_be_convolution(*c)) return plain;
  auto convolution = plan_window(given, device, tuning, tiles);
  if (!plain || !convolution) return plain ? plain : convolution;
  const bool windows = plain->tuned == convolution->tuned
                           ? convolution->microseconds < plain->microseconds
                           : convolution->tuned;
  return windows ? convolution : plain;
}

std::optional<WgmmaPlan> schedule_as(const WgmmaConfig& decided, const KernelSpec& given,
                                     const DeviceModel& device) {
  const ContractionSpec* const c = given.as_contraction();
  if (!c || reads_joined_indices(given) || c->rows.on || c->chained() || !given.gathers.empty())
    return {};
  auto o = decided.window ? orient_window_as(decided, given) : orient_boxes_as(decided, given);
  if (!o) return {};
  WgmmaConfig& own = o->engine;
  const Tile& t = decided.tile;
  const bool all_rows = decided.loaded_rows == t.m || o->problem.rows <= decided.loaded_rows,
             stored = decided.stored_rows < 0 || (own.stored_rows == decided.stored_rows &&
                                                  own.stored_together == decided.stored_together &&
                                                  own.row_sources == decided.row_sources);
  own.packing = choose_packing(o->spec, own.n_fastest ? n_index(o->spec) : m_index(o->spec), 8);
  if (!all_rows || !stored || !decided.a.loads_like(own.a) || !decided.b.loads_like(own.b) ||
      decided.b2.has_value() != own.b2.has_value() ||
      (own.b2 && !decided.b2->loads_like(*own.b2)) ||
      (decided.result && !(own.result && decided.result->loads_like(*own.result))) ||
      decided.promote_accumulators != own.promote_accumulators ||
      decided.integers != own.integers || !holds(decided.packing, own.packing) ||
      (decided.loaded_depth > 0 && o->problem.depth > decided.loaded_depth) ||
      (decided.through_ring && !leaves_through_ring(o->problem, t, device)))
    return {};
  WgmmaConfig e = decided;
  e.a.take_tensor(own.a);
  e.b.take_tensor(own.b);
  if (e.window) {  // how many images a part of a gradient's sums has
    e.window = own.window;
    e.a.image_steps = own.a.image_steps;
    e.b.image_steps = own.b.image_steps;
  }
  if (e.b2) e.b2->take_tensor(*own.b2);
  if (e.result) e.result->take_tensor(*own.result);
  e.packed_rows = own.packed_rows;
  e.counted = counted_products(o->spec, e);
  e.wide_index |= needs_wide_index(o->spec);
  e.tile.group = tiles_beside(o->problem);
  if (t.boxed()) {
    e.tile = with_fewest_boxes(o->problem, e);
    set_boxes(o->problem, e);
  }
  const double tiles = tiles_of(o->problem, e.tile);
  if (tiles * t.split >= 0x1p30 || !has_steps_for(o->problem, t)) return {};
  e.grid = static_cast<std::uint32_t>(grid_of(o->problem, e.tile, device));
  e.microseconds = tile_microseconds(o->problem, e.tile, device);
  const double microseconds = e.microseconds;
  return WgmmaPlan{std::move(o->spec), std::move(e), {}, false, microseconds};
}

}  // namespace sinter
