#include "schedule/contraction/mma.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/contraction/fma_tiles.hpp"
#include "schedule/contraction/held_type.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// The type that holds the operand's values, or what they may be rounded to.
DataType operand_type(const KernelSpec& spec, const ProductOperand& o) {
  const bool rounded = info(o.type).bytes == 2 && is_floating(o.type),
             loaded = o.body.statements.size() == 1 && is_load(o.body.statements.back());
  if (rounded && !loaded) return o.type;
  const DataType held = held_type(spec, o.body);
  return held != DataType::none && info(held).precision <= 11 ? held : o.type;
}

// Whether f32 holds the operand's values as they are computed, or as they may be rounded.
bool fits_f32(const KernelSpec& spec, const ProductOperand& o) {
  const Statement& s = o.body.statements.back();
  const DataType computed =
      is_load(s) ? spec.ports[static_cast<std::size_t>(s.port)].type : s.arithmetic;
  return holds_type(DataType::f32, o.type == DataType::none ? computed : o.type);
}

// What is multiplied. Sums of integers alone must come out as on CUDA cores, none rounded.
struct Factors {
  DataType a, b;
  bool integers;
  double largest_product = 0, depth;  // of integers

  explicit Factors(const KernelSpec& spec)
      : a(operand_type(spec, spec.contraction().a())),
        b(operand_type(spec, spec.contraction().b())) {
    integers = !is_floating(a) && !is_floating(b);
    largest_product = largest_of(a) * largest_of(b);
    const int end = spec.extent.size();
    depth = static_cast<double>(count(spec.extent, end - spec.contraction().k(), end));
  }

  // The type that holds both; none where there is no such type, or sums may leave 32 bits.
  DataType number() const {
    if (integers && !(depth * largest_product < 0x1p31)) return DataType::none;
    for (DataType t : {DataType::f16, DataType::bf16, DataType::tf32})
      if (holds_type(t, a) && holds_type(t, b)) return t;
    return DataType::none;
  }
  // How many products f32 adds up without rounding; 0: as many as there are.
  int exact_run() const {
    constexpr double exact = 0x1p24;
    return integers && depth * largest_product > exact ? static_cast<int>(exact / largest_product)
                                                       : 0;
  }
};

// Whether operands come in whole copies whose addresses are simple.
bool light(const KernelSpec& spec, const MmaConfig& e) {
  if (spec.contraction().k() != 1) return false;
  for (const MmaOperand* o : {&e.a, &e.b})
    if (!o->copied || o->ragged || o->packing.width * info(e.number).bytes < kMoveBytes ||
        (e.number == DataType::tf32 && !o->k_fastest))
      return false;
  return true;
}

// Clocks that ordinary instructions add for an element of k, of a tile: where k has several indices
// the place of every chunk of 16 bytes is computed from its number; fragments that were copied as
// f32 are rounded. (Filter gradient of 128 channels of 28 x 28 in tf32, 64 images, on an H200: 180
// us, 75 without these. 64 images of 33 x 33, 100 channels, 3 x 3 of bf16: 53.6, 28.8 without.)
// Copies of less than 16 bytes pass through the first-level cache, one after another. (Rows of k of
// bf16 on an H200, us, measured, estimated without and so: 2048 x 2048 x 1002 in fours of bytes
// 61.8, 25.0 and 62.6; in eights 512 x 2048 x 4100 53.5, 29.7 and 58.5, 8 of 1024 x 1024 x 500
// 55.1, 28.7 and 56.8, 2000 x 2048 x 500 24.9, 15.4 and 24.8, 200 of 100 x 100 x 500 25.6, 17.4
// and 26.8. Of short ones other blocks' epilogues hide it: 100352 x 58 x 58 with scale, bias and
// relu 18.5, 18.8 without.)
// Few warps do not hide what rounding takes. (Filter gradient of 64 x 256 x 56 x 56, 64 of 1 x 1,
// in tf32, in tiles of 64 x 128 with 8 warps on an SM and with 16 140.6 and 88.2 us, 74.0 and 74.8
// estimated without.)
double clocks_beside(const KernelSpec& spec, const MmaConfig& e, const MmaTile& t, double warps) {
  // Instructions of a thread, or as much time as so many take; a clock.
  constexpr double kPlace = 28, kRound = 3, kNarrow = 30, kIssued = 4 * 32, kBusy = 24;
  constexpr int kShort = 96;  // elements of k
  const bool places = spec.contraction().k() > 1,
             copies = !places && elements(spec.extent, spec.contraction().first_k(),
                                          spec.extent.size()) >= kShort;
  const int bytes = info(e.number).bytes;
  const auto of = [&](const MmaOperand& o, int rows, int readers) {
    if (!o.copied) return 0.0;
    const bool narrow = copies && o.packing.width * bytes < kMoveBytes;
    const double place = places ? kPlace * rows * bytes / kMoveBytes : 0,
                 copy = narrow ? kNarrow * rows / o.packing.width : 0,
                 rounds = e.number == DataType::tf32
                              ? kRound * rows * readers * std::max(1.0, kBusy / warps)
                              : 0;
    return place + copy + rounds;
  };
  return (of(e.a, t.m, t.warps_n) + of(e.b, t.n, t.warps_m)) / kIssued;
}

// The plan as far as it depends on no tile.
struct Started {
  MmaPlan plan;
  MmaWork work;
  Group m, n;
};

// Bytes that stream past few rows, which are copied in whole moves, come as they are.
void stream(Started& s) {
  if (!streams(s.work)) return;
  const bool past_rows = rows_are_fewer(s.work);
  MmaConfig& e = s.plan.engine;
  MmaOperand &bytes = past_rows ? e.b : e.a, &rows = past_rows ? e.a : e.b;
  if (!rows.k_fastest || rows.ragged || rows.packing.width * info(e.number).bytes != kMoveBytes)
    return;
  const ContractionSpec& c = s.plan.spec.contraction();
  const auto streamed =
      stream_operand(s.plan.spec, (past_rows ? c.b() : c.a()).body, bytes, streamed_depth(s.work));
  if (!streamed) return;
  bytes = *streamed;
  (past_rows ? s.work.b : s.work.a).streamed = true;
}

Started start(const KernelSpec& given, DataType number, int run) {
  Started s{{given, {}, {}, false, 0}, {}, {}, {}};
  KernelSpec& spec = s.plan.spec;
  MmaConfig& e = s.plan.engine;
  e.number = number;
  order_depth(spec);
  const ContractionSpec& c = spec.contraction();
  const int first_m = c.first_m(), first_n = c.first_n(), first_k = c.first_k();
  s.m = {c.m ? first_n - 1 : -1, c.m};
  s.n = {c.n ? first_k - 1 : -1, c.n};
  e.a = choose_operand(spec, c.a().body, number, s.m, c.rows.on);
  // On CUDA cores, see contraction.md. Where A lies along k, copies of single elements cost
  // more than what they save. (2048 x 2048 x 2048 on an H200: 403 us and 437; with A along m 496
  // and 427.)
  e.b = choose_operand(spec, c.b().body, number, s.n, false,
                       number == DataType::f32 && !e.a.k_fastest);
  e.n_fastest = !prefers(spec, spec.body, s.n.last, s.m.last, is_store);

  const auto extent = [&](int from, int to) {
    return static_cast<double>(count(spec.extent, from, to));
  };
  s.work = {extent(0, first_m),
            extent(first_m, first_n),
            extent(first_n, first_k),
            extent(first_k, spec.extent.size()),
            number == DataType::tf32 || number == DataType::f32 ? 4 : 2,
            0,
            light(spec, e),
            run > 0,
            weigh(spec, c.a().body, e.a),
            weigh(spec, c.b().body, e.b),
            c.rows.on ? extent(0, first_m) : 0};
  stream(s);
  for (const auto& st : spec.body.statements)
    if (is_load(st) || is_store(st))
      s.work.extra_bytes += info(spec.ports[static_cast<std::size_t>(st.port)].type).bytes;
  const bool packs = e.n_fastest || !c.rows.on;  // rows of a group start anywhere
  e.packing = choose_packing(spec, e.n_fastest ? s.n.last : s.m.last, packs ? 8 : 1);
  if (!e.cuda_cores() && e.packing.width * e.packing.narrowest < kMoveBytes)
    s.work.packed = std::min(s.work.packed, e.packing.width);
  return s;
}

// `t`: a tile with what the model of tiles says of it.
double microseconds(const Started& s, const EstimatedMmaTile& t, const DeviceModel& device) {
  // Fitted on an H200: operations of an SM in a clock on operands that lie at odd addresses and so
  // pass through registers; by how much the model of such operands is too fast, at the least.
  constexpr double kOdd = 284, kThroughRegisters = 1.4;
  const KernelSpec& spec = s.plan.spec;
  const MmaConfig& e = s.plan.engine;
  const double memory = bytes_moved(spec) / device.memory_bandwidth;
  const auto lies_odd = [&](const MmaOperand& o, const Body& body) {
    const KernelPort* const port = plainly_loaded(spec, body);
    return !o.copied && port && port->type == e.number;
  };
  const bool odd =
      lies_odd(e.a, spec.contraction().a().body) || lies_odd(e.b, spec.contraction().b().body);
  const bool copied = e.a.copied && e.b.copied;
  // The model of tiles on CUDA cores knows of places.
  const double clocks = e.cuda_cores()
                            ? 0
                            : clocks_beside(spec, e, t.tile, warps_beside(s.work, t.tile, device)),
               beside = std::ceil(worked_tiles(s.work, t.tile) / device.sms) * s.work.depth *
                        clocks / device.clock;
  const double operations = 2.0 * static_cast<double>(count(spec.extent, 0, spec.extent.size())) /
                            std::max(1.0, s.work.groups);
  return device.launch_microseconds +
         std::max({t.microseconds * (copied ? 1 : kThroughRegisters) + beside,
                   odd ? operations / (kOdd * device.sms * device.clock) : 0, memory});
}

// Measured with several steps alone. (One step: i8 52.4 us instead of 54.6, scaled 69.0 and 62.4;
// four 31.3 and 37.0, scaled 32.0 and 35.0; see held_tile.)
bool holds_byte_packs(const MmaOperand& o, const MmaTile& tile) {
  return (tile.held_steps > 1 || o.streamed) && o.packing.width % 4 == 0;
}

// The rest, for the tile.
MmaPlan finished(Started s, const EstimatedMmaTile& chosen, int least_blocks) {
  const MmaTile& tile = chosen.tile;
  const KernelSpec& spec = s.plan.spec;
  MmaConfig& e = s.plan.engine;
  e.tile = tile;
  e.wide_index = needs_wide_index(spec);
  e.threads = 32 * tile.warps_m * tile.warps_n;
  e.least_blocks = least_blocks;
  e.tiles = most_tiles(s.work, tile) * tile.split;
  e.grid = clamp_grid(e.tiles);
  e.microseconds = s.plan.microseconds = chosen.microseconds;
  e.unroll = e.packing.width >= 8 ? 2 : 4;
  e.counted = counted_products(spec);
  for (MmaOperand* const o : {&e.a, &e.b}) o->byte_packs = holds_byte_packs(*o, tile);
  e.shared_bytes = static_cast<std::uint32_t>(shared_bytes(s.work, tile));
  return std::move(s.plan);
}

// The same for every kernel with the same choice of tiles to make.
std::string problem_text(const Started& s) {
  const MmaConfig& e = s.plan.engine;
  const auto text = [](const MmaOperand& o) {
    return fmt::format("f32{}{}", o.k_fastest ? "" : " transposed",
                       o.copied ? fmt::format(" by {}", o.packing.width) : " computed");
  };
  return fmt::format("{} x {} on CUDA cores, batch {}, m {}, n {}, k {} of {}, {} bytes a result{}",
                     text(e.a), text(e.b), s.work.batches, s.work.rows, s.work.columns,
                     s.work.depth, s.plan.spec.contraction().k(), s.work.extra_bytes,
                     e.n_fastest ? "" : " along m");
}

bool sooner(const EstimatedMmaTile& a, const EstimatedMmaTile& b) {
  return a.microseconds < b.microseconds;
}

// What no engine of this file does.
bool out_of_reach(const KernelSpec& spec) {
  return !spec.as_contraction() || spec.contraction().promote_accumulators ||
         (spec.contraction().zero_dominates != ZeroOf::neither && !spec.gathers.empty());
}

}  // namespace

DataType factor_type(const KernelSpec& spec) { return Factors(spec).number(); }

std::optional<MmaPlan> plan_mma(const KernelSpec& spec, const DeviceModel& device) {
  if (out_of_reach(spec)) return {};
  const Factors factors(spec);
  if (spec.contraction().accumulate != DataType::f32 && !factors.integers) return {};
  const DataType number = factors.number();
  if (number == DataType::none) return {};
  const int run = factors.exact_run();
  Started started = start(spec, number, run);
  const MmaWork work = started.work;
  const auto tile = choose_tile(work, device);
  if (!tile) return {};
  const double us = microseconds(started, {*tile, tile_microseconds(work, *tile, device)}, device);
  MmaPlan plan = finished(std::move(started), {*tile, us}, least_blocks(work, *tile));
  plan.engine.promote_every = run / (tile->line / info(number).bytes);  // a run is longer
  return plan;
}

std::optional<MmaPlan> plan_fma(const KernelSpec& spec, const DeviceModel& device,
                                const Tuning& tuning) {
  if (out_of_reach(spec)) return {};
  const ContractionSpec& c = spec.contraction();
  if (c.accumulate != DataType::f32 || factor_type(spec) != DataType::none ||
      !fits_f32(spec, c.a()) || !fits_f32(spec, c.b()))
    return {};
  Started started = start(spec, DataType::f32, 0);
  const MmaWork work = started.work;
  MmaChoice choice{problem_text(started), fma_tiles(work, device)};
  if (choice.tiles.empty()) return {};
  for (EstimatedMmaTile& t : choice.tiles) t.microseconds = microseconds(started, t, device);
  const EstimatedMmaTile likeliest =
      *std::min_element(choice.tiles.begin(), choice.tiles.end(), sooner);
  EstimatedMmaTile best = likeliest;
  bool tuned = false;
  if (const auto known = tuning.best.find(choice.problem); known != tuning.best.end())
    for (const EstimatedMmaTile& t : choice.tiles)
      if (to_text(t.tile) == known->second) best = t, tuned = true;
  MmaPlan plan = finished(std::move(started), best, fma_blocks(work, best.tile, device));
  plan.choice = std::move(choice);
  plan.tuned = tuned;
  plan.microseconds = likeliest.microseconds;
  return plan;
}

KernelChoice MmaChoice::ranked() const {
  std::vector<EstimatedMmaTile> sorted = tiles;
  std::stable_sort(sorted.begin(), sorted.end(), sooner);
  KernelChoice choice{problem, {}, {}};
  for (const EstimatedMmaTile& t : sorted) {
    choice.configurations.push_back(to_text(t.tile));
    choice.microseconds.push_back(t.microseconds);
  }
  return choice;
}

std::optional<MmaPlan> schedule_as(const MmaConfig& decided, const KernelSpec& spec,
                                   const DeviceModel& device) {
  const bool ordinary = decided.cuda_cores();
  auto plan = ordinary ? plan_fma(spec, device, {}) : plan_mma(spec, device);
  if (!plan || spec.contraction().rows.on || !spec.gathers.empty()) return {};
  const MmaConfig& own = plan->engine;
  const auto alike = [](const MmaOperand& a, const MmaOperand& b) {
    return a.k_fastest == b.k_fastest && a.copied == b.copied && a.ragged == b.ragged &&
           a.joined == b.joined && a.streamed == b.streamed && a.plain == b.plain &&
           holds(a.packing, b.packing);
  };
  if (own.number != decided.number || own.n_fastest != decided.n_fastest ||
      (own.promote_every > 0) != (decided.promote_every > 0) || !alike(decided.a, own.a) ||
      !alike(decided.b, own.b) || !holds(decided.packing, own.packing))
    return {};
  MmaConfig e = decided;
  e.wide_index |= own.wide_index;
  const ContractionSpec& c = plan->spec.contraction();
  const auto tiles = [&](int from, int to, int tile) {
    return std::ceil(elements(plan->spec.extent, from, to) / tile);
  };
  e.tiles = elements(plan->spec.extent, 0, c.batch) * tiles(c.first_m(), c.first_n(), e.tile.m) *
            tiles(c.first_n(), c.first_k(), e.tile.n) * e.tile.split;
  e.grid = clamp_grid(e.tiles);
  if (ordinary) {
    const auto& legal = plan->choice.tiles;
    const auto same = std::find_if(legal.begin(), legal.end(), [&](const EstimatedMmaTile& t) {
      return to_text(t.tile) == to_text(e.tile);
    });
    if (same == legal.end()) return {};
    e.microseconds = plan->microseconds = same->microseconds;
  } else {
    const Started started = start(spec, e.number, Factors(spec).exact_run());
    e.microseconds = plan->microseconds =
        microseconds(started, {e.tile, tile_microseconds(started.work, e.tile, device)}, device);
  }
  plan->engine = std::move(e);
  return plan;
}

}  // namespace sinter
