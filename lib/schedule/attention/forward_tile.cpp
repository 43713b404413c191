#include "schedule/attention/forward_tile.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "plan/access.hpp"
#include "schedule/attention/forward_parts.hpp"

namespace sinter {

bool counts_shares(const KernelSpec& spec) {
  constexpr std::int64_t kMostTiles = 1 << 16;
  const AttentionSpec& a = spec.attention();
  return a.parts < 0 && a.sequences.count == 0 && a.length_kv < 0 && !a.band.left &&
         !a.band.chunk && a.mask.statements.empty() &&
         count(spec.extent, 0, AttentionSpec::batch) *
                 ((rows_of(spec) + kConsumerRows - 1) / kConsumerRows) <=
             kMostTiles;
}

namespace {

// Of keys and values as they are loaded; ForwardShape has the same, and the next.
int stage_bytes(const AttentionConfig& e, int depth, int width) {
  const auto line = [](const BoxedOperand& o) { return kLineBytes / info(o.map.type).bytes; };
  return up(e.tile_k, e.k.k_fastest ? kSwizzledRows : line(e.k)) * up(depth, line(e.k)) *
             info(e.k.map.type).bytes +
         up(up(width, 16), line(e.v)) * up(e.tile_k, e.v.k_fastest ? line(e.v) : kSwizzledRows) *
             info(e.v.map.type).bytes;
}
int shared_bytes(const AttentionConfig& e, int depth, int width) {
  const int element = info(e.q.map.type).bytes,
            q = e.consumers * kConsumerRows * up(depth, kLineBytes / element) * element;
  // Values of f8 twice: as they come, and lines of keys.
  const int transposed = is_f8(e.v.map.type) ? up(width, 16) * up(e.tile_k, kLineBytes) + 16 : 0;
  const int taken = e.attention.tiles_taken >= 0 ? 2 * (16 + 32) : 0;  // tiles, with their barriers
  const int share = e.attention.parts >= 0 ? 4 * (4 + 20) : 0;         // where the CTA's begins
  const int twice = rounds_divided(e.weight) ? 8 : 0;                  // a barrier of clusters
  const int boxes =
      bytes_of_boxes(e) > 0 ? e.box_stages * (bytes_of_boxes(e) + 16 * e.consumers) : 0;
  return q + e.stages * (stage_bytes(e, depth, width) + transposed) + boxes +
         e.consumers * 4 * kEpilogueTileBytes + 16 + 2 * 16 * e.stages + taken + share + twice +
         kLostToAlignment;
}

// WideForwardShape has the same.
int wide_shared_bytes(const AttentionConfig& e, int depth, int width) {
  const int panels_k = up(depth, kSwizzledLine) / kSwizzledLine,
            panels_v = up(width, kSwizzledLine) / kSwizzledLine,
            panel = e.tile_k * kSwizzledLine * 2;
  const int q = std::max(kConsumerRows * panels_k * kSwizzledLine * 2,
                         e.consumers * 4 * kEpilogueTileBytes),
            weights = kConsumerRows * e.tile_k * 2;
  const bool weights_in_keys = e.values_in_keys && panels_k > panels_v && weights <= panel;
  const int rows = 2 * (2 * kConsumerRows * 4) + e.consumers * 128 * 2 * 4,
            pipes = std::min(panels_k, 3) + (e.values_in_keys ? 0 : 1);  // of K's parts and V
  return q + e.stages * panel * (panels_k + (e.values_in_keys ? 0 : panels_v)) +
         (weights_in_keys ? 0 : 2 * weights) + rows + 16 + 2 * 16 + pipes * 16 * e.stages +
         kLostToAlignment;
}

// Warpgroups of 64 rows, the registers of each, the producer's, and the keys of a tile; how many
// CTAs an SM holds.
struct Consumers {
  int count, registers, producer_registers, most_keys;
  double time;  // of a row, beside the others'
  int blocks = 1;
};
constexpr Consumers kOne{1, 240, 24, 128, 1}, kTwo{2, 240, 24, 128, 1.24},
    kTwoUnderMask{2, 224, 56, 128, 1.24};

// Several CTAs on an SM, of one consumer, which share its registers.
constexpr Consumers kTwoBlocks{1, 232, 24, 128, 1, 2}, kThreeBlocks{1, 136, 24, 128, 1, 3},
    kFourBlocks{1, 104, 24, 128, 1, 4};

// Of so few keys a tile of rows is soon done (beside_each_other).
constexpr std::int64_t kFewKeys = 128;

// The tiles of keys that each tile of rows of a head walks over, or its first part, with what it
// costs besides.
std::vector<double> keys_of_tiles(const KernelSpec& spec, int tile_q, int tile_k) {
  const AttentionSpec& a = spec.attention();
  const auto keys = static_cast<double>(spec.extent[AttentionSpec::n]),
             rows = static_cast<double>(spec.extent[AttentionSpec::query]);
  const double shift = a.band.bottom_right ? keys - rows : 0;
  constexpr double kOutside = 0.6;  // of a tile of keys
  std::vector<double> tiles(static_cast<std::size_t>((rows_of(spec) + tile_q - 1) / tile_q));
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const double last = std::min(rows, static_cast<double>(i + 1) * tile_q) - 1,
                 end = a.band.right ? last + shift + static_cast<double>(*a.band.right) + 1 : keys;
    const double all = std::ceil(std::max(0.0, std::min(keys, end)) / tile_k);
    tiles[i] = std::ceil(all / a.splits) + kOutside;
  }
  return tiles;
}

// What the CTA with the most to do walks over: each takes tiles of rows in steps of the grid, of
// `together` heads those with the most keys first, every other round backwards (number_of_tile).
double longest_share(const std::vector<double>& tiles, std::int64_t heads, std::int64_t together,
                     int grid) {
  const auto of_head = static_cast<std::int64_t>(tiles.size());
  std::vector<double> load(static_cast<std::size_t>(grid), 0.0);
  for (std::int64_t i = 0; i < heads * of_head; ++i) {
    const std::int64_t first = i / (together * of_head) * together,
                       beside = std::min(together, heads - first);
    const std::int64_t round = i / grid, at = i % grid;
    load[static_cast<std::size_t>(round % 2 == 0 ? at : grid - 1 - at)] +=
        tiles[static_cast<std::size_t>(of_head - 1 - i % (together * of_head) / beside)];
  }
  return *std::max_element(load.begin(), load.end());
}

// The same in keys. Of many unlike tiles CTAs have shares that are alike (choose_heads_together).
double longest_share(const KernelSpec& spec, int tile_q, int tile_k, int grid) {
  constexpr std::int64_t kManyRounds = 8;
  const std::vector<double> tiles = keys_of_tiles(spec, tile_q, tile_k);
  const std::int64_t heads = count(spec.extent, 0, AttentionSpec::batch),
                     parts = heads * spec.attention().splits,
                     all = parts * static_cast<std::int64_t>(tiles.size());
  if (spec.attention().band.right && all > kManyRounds * grid)
    return std::accumulate(tiles.begin(), tiles.end(), 0.0) * static_cast<double>(parts) / grid *
           tile_k;
  return longest_share(tiles, parts, heads, grid) * tile_k;
}

// As many as leave the longest share of the tiles least to do: smaller tiles are more alike, and
// fewer of their rows are empty, see none of a consumer's keys, or wait for a last round. Several
// take the same time, one alone waits for its own products. (d64 on an H200, us, with one, two,
// three, four: b1 h12 s2048 causal 28.6, 22.2, 27.8, 37.1, s1024 10.2, 12.8, -, 17.8; h16 s1024
// 17.5, 12.5, -, 19.2; h12 s2048 46.1, 39.9, 32.3, -; h4 s8192 230, 145, 215, 145; b2 h10 s4096
// 287, 182, 212, -; b32 h12 s577 155, 100, 109, -; b4 h20 s1500 168, 117, 105, -; b16 h16 s512
// 68.7, 45.1, 45.9, 43.1; b4 h32 s4096 causal -, 638, 626, 586. d128: h8 s2048 causal 23.0 and
// 28.2, h32 of 8 s512 10.4 and 11.3, h16 s577 14.9 and 11.9. With a bias or mask of pairs or of
// keys in boxes: b16 h16 s512 d64 92.0, 60.3, 60.4, 57.2, h16 s4096 -, 225, 237, 213, keys of
// b32 h12 s512 -, 97.5, -, 78.0; d32, pairs, b128 h8 s256 93.0, 60.1, 65.3, 48.1.) Four have fewer
// keys a tile. Values of f8 are transposed by the producer's warps, which take more registers.
Consumers choose_consumers(const KernelSpec& spec, bool plain, bool boxes, bool transposes,
                           const DeviceModel& device) {
  constexpr Consumers two_transposing{2, 232, 40, 128, 1.24}, three_transposing{3, 152, 40, 128, 1};
  constexpr Consumers one{1, 240, 24, 128, 1.66}, two{2, 240, 24, 128, 1.08},
      three{3, 160, 32, 128, 1}, four{4, 112, 24, 64, 1.05}, two_boxes{2, 240, 24, 128, 1.15},
      four_boxes{4, 112, 24, 64, 1}, one_wide{1, 240, 24, 128, 1.45}, two_wide{2, 240, 24, 128, 1};
  constexpr std::int64_t kNarrow = 64, kWide = 128;
  using A = AttentionSpec;
  const AttentionBand& band = spec.attention().band;
  const std::int64_t rows = length_of(rows_of(spec), spec.attention().sequences),
                     heads = count(spec.extent, 0, A::batch),
                     wide = std::max(spec.extent[A::d], spec.extent[A::e]);
  if (rows <= kConsumerRows) return kOne;
  // A tile of two lies within a block of a mask. What looks for tiles takes more registers of the
  // producer.
  if (!spec.attention().mask.statements.empty()) return kTwoUnderMask;
  if (wide > kWide || (wide > kNarrow && !plain) || !(plain || boxes))
    return transposes ? two_transposing : kTwo;
  // Fewer tiles than a quarter of the SMs are over before it matters.
  const bool few = heads * ((rows + kConsumerRows - 1) / kConsumerRows) * 4 < device.sms,
             counted = !few && spec.attention().splits == 1 && counts_shares(spec) &&
                       spec.extent[A::n] > kFewKeys;
  const auto time = [&](const Consumers& c) {
    const int tile = kConsumerRows * c.count;
    if (counted) return tile * c.time * longest_share(spec, tile, c.most_keys, device.sms);
    return up(rows, tile) * c.time *
           (keys_of_a_row(spec) + (band.bounded() ? kConsumerRows + c.most_keys : 0));
  };
  const auto faster = [&](const Consumers& x, const Consumers& y) { return time(x) < time(y); };
  if (wide > kNarrow)
    return transposes ? two_transposing : counted ? std::min({two_wide, one_wide}, faster) : kTwo;
  return transposes ? std::min(three_transposing, two_transposing, faster)
         : !plain   ? std::min({three, four_boxes, two_boxes}, faster)
         : counted  ? std::min({three, four, two, one}, faster)
                    : std::min({three, four, kTwo}, faster);
}

// Of few keys a tile of rows is soon done, and waits for its rows, keys and results: several CTAs
// on an SM wait beside each other, where there are tiles for all. With bodies fewer. (On an H200,
// us, one, two, three, four: one consumer, b256 h12, 17 queries and keys, d64 34.2, 24.0, 18.7,
// 12.3; d32, windows of 64 31.5, 21.7, -, 18.8, with a bias of pairs and a mask 26.6, 19.8, 19.3,
// 21.9; of 49, whose rows TMA does not take, 44.0, 27.9, 23.7, 38.3. Four have tiles of 48 keys: of
// 49 to 64 keys three, which have one tile of these, are faster: b1024 h6, d32, windows of 49 30.4
// and 25.4, of 64 33.6 and 27.1. Two consumers: b256 h8 s100 d48 34.7 and 29.7; b8 h10, 4096
// queries, 77 keys, d64 with a mask of keys 62.3 and 41.8.)
std::vector<Consumers> beside_each_other(const KernelSpec& spec, bool plain,
                                         const DeviceModel& device) {
  const AttentionSpec& a = spec.attention();
  const std::int64_t rows = rows_of(spec);
  if (spec.extent[AttentionSpec::n] > kFewKeys || a.sequences.count > 0 || a.splits > 1 ||
      a.parts >= 0 || rounds_divided(a.weight))
    return {};
  const auto tiles = [&](const Consumers& c) {
    return elements(spec.extent, 0, AttentionSpec::batch) *
           std::ceil(static_cast<double>(rows) / (kConsumerRows * c.count));
  };
  std::vector<Consumers> some;
  constexpr std::int64_t kOfFour = 48, kOfThree = 64;  // the most keys of a tile
  const std::int64_t keys = spec.extent[AttentionSpec::n];
  if (rows > kConsumerRows)
    some = {{2, 104, 24, 128, 1, 2}};
  else if (plain && (keys <= kOfFour || keys > kOfThree))
    some = {kFourBlocks, kThreeBlocks, kTwoBlocks};
  else
    some = {kThreeBlocks, kTwoBlocks};
  std::erase_if(some, [&](const Consumers& c) { return tiles(c) < c.blocks * device.sms; });
  return some;
}

// Pages in a tile, or tiles in a page.
bool has_whole_pages(const AttentionConfig& e) {
  const auto whole = [&](std::int64_t page) {
    return page == 0 || e.tile_k % page == 0 || page % e.tile_k == 0;
  };
  return whole(e.k.page) && whole(e.v.page);
}

// Of wide heads the largest tile of keys of which two stages fit.
bool choose_wide_tile(AttentionConfig& e, int depth, int width, const DeviceModel& device) {
  e.ping_pong = false;
  e.tile_q = kConsumerRows;
  constexpr int kMostKeys = 64, kMostStages = 4;
  for (e.tile_k = kMostKeys; e.tile_k >= 16; e.tile_k -= 16)
    for (e.stages = kMostStages; has_whole_pages(e) && e.stages >= 2; --e.stages)
      if (wide_shared_bytes(e, depth, width) <= device.shared_per_cta) return true;
  return false;
}

// Whether what bodies add takes few registers: there are no others than the score's, and of what
// belongs to keys that reads nothing of memory but what lies in boxes, numbers of 16 bits or less,
// or what all rows share. (On an H100, us in tiles of 64 and 128 keys: b16 h16 s512 d64 with a bias
// of bf16 66.8 and 60.0, of f32 78.1 and 81.6, ALiBi 68.2 and 62.0; h16 s4096 d64, one mask, 241
// and 208; b2 h16 s2048 d128, masks of bool 151 and 132, a softcap 213 and 199, on an H200 masks of
// bf16 in tiles of 64, 96 and 128 164, 154, 141.)
bool reads_boxes_alone(const AttentionConfig& e, const AttentionSpec& a) {
  if (!unrounded(a.weight).statements.empty() || a.sequences.count > 0) return false;
  const auto& score = e.scores.body.statements;
  const int key = e.scores.contraction().first_n();
  const auto reads = std::count_if(score.begin(), score.end(), [&](const Statement& s) {
    if (is_load(s))
      return moves_along(e.scores.ports[static_cast<std::size_t>(s.port)].access, key);
    return s.kind == StatementKind::gather || s.kind == StatementKind::random;
  });
  const auto boxes =
      std::count_if(e.loads_beside.begin(), e.loads_beside.end(), [](const LoadBeside& load) {
        return load.box && (load.same_rows || info(load.box->map.type).bytes <= 2);
      });
  return reads == boxes;
}
// And whether it does nothing with that but to add it to the scaled sum.
bool adds_boxes_alone(const AttentionConfig& e, const AttentionSpec& a) {
  const auto& score = e.scores.body.statements;
  return reads_boxes_alone(e, a) && std::all_of(score.begin(), score.end(), [](const Statement& s) {
           const bool sums = s.kind == StatementKind::pointwise &&
                             (s.mode == PointwiseMode::add || s.mode == PointwiseMode::mul);
           return is_load(s) || sums || s.kind == StatementKind::accumulator ||
                  s.kind == StatementKind::scalar;
         });
}

// Of a head, up to which tiles of few keys were measured; for wider ones classes of extents would
// have more texts.
constexpr int kFewElements = 64;

// A single tile of keys is as long as they are.
void fit_tile_to_keys(AttentionConfig& e, const KernelSpec& spec, int each) {
  const std::int64_t keys = spec.extent[AttentionSpec::n];
  const int before = e.tile_k;
  if (keys <= e.tile_k) e.tile_k = up(keys, each);
  if (!has_whole_pages(e)) e.tile_k = before;
}

// Whether weights are multiplied with random numbers. These take longer than the products, and the
// consumers' take turns at nothing else. (b4 h16 s2048 d128 causal with dropout on an H200, us, in
// turns and without: 270 and 268, d64 236 and 233; b8 h12 s1024 d64 180 and 169. Three consumers
// 292, 263, 220; tiles of 32, 64, 96, 128 keys 326, 270, 271, 278.)
bool draws(const AttentionSpec& a) {
  return std::any_of(a.weight.statements.begin(), a.weight.statements.end(),
                     [](const Statement& s) { return s.kind == StatementKind::random; });
}

// Tiles, warpgroups and stages. What a consumer holds of 64 rows: scores and, half as large,
// weights of a tile of keys, and the results. (b4 h32 s4096 d128 on an H200: tiles of 128 keys
// 1,896 us and of 160 1,931.)
bool choose_narrow_tile(AttentionConfig& e, const KernelSpec& spec, int depth, int width,
                        const Consumers& c, bool plain, const DeviceModel& device) {
  const AttentionSpec& a = spec.attention();
  const bool transposes = is_f8(e.v.map.type);
  e.consumers = c.count;
  e.least_blocks = c.blocks;
  e.tile_q = kConsumerRows * c.count;
  e.producer_registers = c.producer_registers;
  e.consumer_registers = c.registers;
  // Nor under masks by indices in narrow heads: what is masked pair by pair takes longer than the
  // products. (h16 s8192 d64 on an H200, us, in turns and without: a prefix 355 and 350, a window
  // or first keys 118 and 115, every fourth key of a window 287 and 282, every other block of 512
  // keys 321 and 323.)
  const bool masked = !a.mask.statements.empty() && !is_block_mask(a.mask);
  e.ping_pong = e.consumers == 2 && !transposes && !draws(a) &&
                !(masked && std::max(depth, width) <= kFewElements);
  // Warpgroups that take tiles of keys in turns have two stages each, of keys that are soon used.
  const int most_keys = (plain || (c.count > 1 && reads_boxes_alone(e, a))) && e.alternating == 1
                            ? c.most_keys
                            : 64,
            fewest_stages = 2 * e.alternating, others = transposes ? 24 : 32,
            each = transposes || !e.loads_beside.empty() ? kKeysBeside : 16;
  // Weights of f8 are half as large; what they add for a tile of values is summed apart.
  const auto held = [&](int tile_k) {
    return transposes ? tile_k * 5 / 8 + up(width, 16) : tile_k * 3 / 4 + up(width, 16) / 2;
  };
  // One consumer waits for memory rather than for the tensor cores; short tiles are soon read.
  const int most_stages = c.count == 1 ? 8 : c.count == 4 ? 3 : 2;
  // But more than so many bytes on their way to each SM hinder each other. (One query, on an H200,
  // us: d128, stages of 128 keys, two and three: b64 h32 of 8, 1024 keys 64.2 and 65.5; lengths 64,
  // 128, ... 4096 in pages 138 and 142. d256, two of 64 and of 80 keys: 25.5 and 26.6.)
  constexpr int kInFlight = 144 << 10;
  const int room =
      std::min(device.shared_per_cta, device.shared_per_sm / c.blocks - device.shared_reserved);
  const auto fits = [&] {
    return shared_bytes(e, depth, width) <= room &&
           (c.count > 1 || e.stages * stage_bytes(e, depth, width) <= kInFlight);
  };
  // What scores read beside their sums is wanted later than the keys: one stage will do, but where
  // a consumer waits for memory.
  const bool waits = c.count == 1 && c.blocks == 1, as_keys = e.alternating > 1 || transposes;
  for (e.tile_k = most_keys; e.tile_k >= each; e.tile_k -= each) {
    if (held(e.tile_k) + others > c.registers) continue;
    if (!has_whole_pages(e)) continue;
    if (is_block_mask(a.mask) && kMaskBlock % e.tile_k != 0) continue;
    for (e.stages = most_stages; e.stages >= fewest_stages; --e.stages)
      for (e.box_stages = waits ? e.stages : fewest_stages;
           e.box_stages >= (waits     ? e.stages
                            : as_keys ? fewest_stages
                                      : 1);
           --e.box_stages)
        if (fits()) {
          if (std::max(depth, width) <= kFewElements && a.mask.statements.empty())
            fit_tile_to_keys(e, spec, each);
          return true;
        }
  }
  return false;
}

// Of several CTAs on an SM each has tiles of 32 or, of two consumers, 48 keys at least; four
// consumers have 64.
bool choose_narrow_tile(AttentionConfig& e, const KernelSpec& spec, int depth, int width,
                        const DeviceModel& device) {
  const AttentionSpec& a = spec.attention();
  const bool plain = (a.score.statements.empty() || e.scales_heads) &&
                     unrounded(a.weight).statements.empty(),
             transposes = is_f8(e.v.map.type);
  const auto choose = [&](const Consumers& c) {
    return choose_narrow_tile(e, spec, depth, width, c, plain, device);
  };
  const auto enough = [&](std::int64_t keys) {
    return e.tile_k >= std::min(spec.extent[AttentionSpec::n], keys);
  };
  const Consumers c = choose_consumers(spec, plain, adds_boxes_alone(e, a), transposes, device);
  if (!transposes && e.alternating == 1 && c.count <= 2 && std::max(depth, width) <= kFewElements)
    for (const Consumers& some : beside_each_other(spec, plain, device))
      if (choose(some) && enough(some.count > 1 ? 48 : 32)) return true;
  if (choose(c) && (plain || c.count <= 2 || enough(64))) return true;
  return c.count > 2 && !plain && choose(kTwo);
}

// Heads whose tiles run side by side, of packed sequences, whose lengths are not known, and under
// masks, whose longest tiles would else end alone: so many that a sequence's keys and values fill
// half of the second-level cache. (h16 s8192, a prefix of 1024 keys, on an H200, us, head by head
// and so, masks computed with fewer instructions, too: d64 370 and 355, d128 514 and 495.)
std::int64_t choose_heads_of_sequences(const KernelSpec& spec, std::int64_t heads,
                                       std::int64_t group, const DeviceModel& device) {
  using A = AttentionSpec;
  const std::int64_t bytes = length_of(spec.extent[A::n], spec.attention().sequences) *
                             (spec.extent[A::d] + spec.extent[A::e]) * 2,
                     together = std::max<std::int64_t>(device.l2_bytes / 2 / bytes, 1) * group;
  return std::min(heads, together);
}

}  // namespace

double longest_share(const KernelSpec& spec, const AttentionConfig& e) {
  return longest_share(spec, e.tile_q, e.tile_k, static_cast<int>(e.grid));
}

bool choose_forward_tile(AttentionConfig& e, const KernelSpec& spec, const DeviceModel& device) {
  const int depth = static_cast<int>(spec.extent[AttentionSpec::d]),
            width = static_cast<int>(spec.extent[AttentionSpec::e]);
  if (!(e.wide ? choose_wide_tile(e, depth, width, device)
               : choose_narrow_tile(e, spec, depth, width, device)))
    return false;
  e.shared_bytes = static_cast<std::uint32_t>(e.wide ? wide_shared_bytes(e, depth, width)
                                                     : shared_bytes(e, depth, width));
  return true;
}

bool choose_tile_beside(AttentionConfig& e, const KernelSpec& spec, int blocks,
                        const DeviceModel& device) {
  const int depth = static_cast<int>(spec.extent[AttentionSpec::d]),
            width = static_cast<int>(spec.extent[AttentionSpec::e]);
  const Consumers& c = blocks == 2 ? kTwoBlocks : blocks == 3 ? kThreeBlocks : kFourBlocks;
  if (is_f8(e.v.map.type) || std::max(depth, width) > kFewElements ||
      !choose_narrow_tile(e, spec, depth, width, c, true, device))
    return false;
  e.shared_bytes = static_cast<std::uint32_t>(shared_bytes(e, depth, width));
  return true;
}

bool has_room_for_parts(const AttentionConfig& e, const KernelSpec& spec) {
  const int depth = static_cast<int>(spec.extent[AttentionSpec::d]),
            width = static_cast<int>(spec.extent[AttentionSpec::e]),
            element = info(e.q.map.type).bytes;
  constexpr int kOfRow = 4;  // numbers of a row beside its sums
  return e.consumers * e.alternating * e.part_rows * (up(width, 16) + kOfRow) * 4 <=
         e.consumers * kConsumerRows * up(depth, kLineBytes / element) * element +
             e.stages * stage_bytes(e, depth, width);
}

// How many heads' tiles run side by side. Few, so that others' keys and values do not drive theirs
// out of the second-level cache, but so many that the SMs' shares of the work are alike: each takes
// tiles in steps of the grid, those with the most keys first (tile_of_rows). (b4 h32 s4096 d128 on
// an H200: 1 head 1,749 us, 2 1,778, 8 1,816, 16 1,896; causal 2 918, 4 1,028, 8, whose shares
// differ by half, 1,328, all 1,119.) They have a tile for each SM at least. (d64, of which a head
// has 22 tiles: 2 heads 691 us, 4 682, 7 642, 16 645.)
std::int64_t choose_heads_together(const KernelSpec& spec, const AttentionConfig& e,
                                   std::int64_t heads, std::int64_t tiles_q,
                                   const DeviceModel& device) {
  const AttentionSpec& a = spec.attention();
  const std::int64_t group = std::min(heads, a.group);
  constexpr std::int64_t kMostTiles = 1 << 16, kMostTried = 12;
  if (a.sequences.count > 0 || (!a.mask.statements.empty() && a.splits == 1))
    return choose_heads_of_sequences(spec, heads, group, device);
  if (!a.band.right || heads * tiles_q > kMostTiles || a.splits > 1) return group;
  const int grid = static_cast<int>(e.grid);
  const std::vector<double> tiles = keys_of_tiles(spec, e.tile_q, e.tile_k);
  constexpr double kOfHead = 0.004;  // what a head more costs in cache misses
  std::int64_t best = group;
  double least = 0;
  const std::int64_t fewest = (grid + tiles_q * group - 1) / (tiles_q * group);
  for (std::int64_t n = 0; n < kMostTried && (fewest + n - 1) * group < heads; ++n) {
    const std::int64_t together = std::min(heads, (fewest + n) * group);
    const double us =
        longest_share(tiles, heads, together, grid) * (1 + kOfHead * static_cast<double>(together));
    if (least == 0 || us < least) least = us, best = together;
  }
  return best;
}

}  // namespace sinter
