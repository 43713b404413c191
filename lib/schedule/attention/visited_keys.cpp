// Which keys rows see, and which tiles of them are visited, of attention in both directions.
#include <algorithm>
#include <cmath>

#include "plan/condition_range.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/attention/forward_tile.hpp"

namespace sinter {

namespace {

// The share of the scores that a band lets rows see.
double seen_share(const AttentionBand& band, double rows, double keys) {
  if (rows == 0 || keys == 0) return 0;
  const double shift = band.bottom_right ? keys - rows : 0;
  constexpr int kSamples = 64;
  double seen = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double at = (i + 0.5) / kSamples * rows + shift;
    double end = band.right ? std::min(keys, at + static_cast<double>(*band.right) + 0.5) : keys,
           first = band.left ? std::max(0.0, at - static_cast<double>(*band.left) + 0.5) : 0;
    if (band.chunk) {
      const auto size = static_cast<double>(*band.chunk), start = std::floor(at / size) * size;
      first = std::max(first, start), end = std::min(end, start + size);
    }
    seen += std::max(0.0, end - first);
  }
  return seen / kSamples / keys;
}

}  // namespace

bool is_block_mask(const Body& mask) {
  return !mask.statements.empty() && mask.statements.front().kind == StatementKind::gather;
}

bool visits_seen_tiles(const KernelSpec& spec, const DeviceModel& device) {
  constexpr std::int64_t kWidestOfTiles = 256;  // columns of one instruction
  const AttentionSpec& a = spec.attention();
  return has_warpgroups(device) && info(a.q.type).bytes == 2 &&
         spec.extent[AttentionSpec::d] <= kWidestOfTiles &&
         spec.extent[AttentionSpec::e] <= kWidestOfTiles && a.sequences.count == 0 &&
         spec.extent[AttentionSpec::member] == 1 &&
         spec.extent[AttentionSpec::query] > kConsumerRows &&
         spec.extent[AttentionSpec::n] > kMaskBlock;
}

namespace {

// Tiles of queries or keys, and how many of a line are looked at.
constexpr double kMaskTile = kMaskBlock;
constexpr int kMostSampled = 64;

// Where in a step the sample lies, so that a mask that repeats is not met at the same place of
// each: multiples of the golden ratio, which fill the range evenly.
double place_in_step(int sample) { return std::fmod(sample * 0.6180339887498949, 1.0); }

// Of attention in either direction, what `of` says of its spec and the indices of queries and keys.
double of_scores(const KernelSpec& spec, const auto& of) {
  using A = AttentionSpec;
  using B = AttentionBackwardSpec;
  return std::visit(
      Overloaded{[&](const A& a) { return of(a, A::query, A::n); },
                 [&](const B& b) { return of(b, B::m, B::n); }, [](const auto&) { return 0.0; }},
      spec.family);
}

double visited_share(const KernelSpec& spec, const auto& a, int query, int key) {
  if (a.mask.statements.empty() || is_block_mask(a.mask)) return 1;
  constexpr int kSamples = 16;
  const auto rows = static_cast<double>(spec.extent[query]),
             keys = static_cast<double>(spec.extent[key]);
  const double shift = a.band.bottom_right ? keys - rows : 0, tiles = std::ceil(rows / kMaskTile),
               samples = std::min<double>(tiles, kSamples);
  double all = 0, visited = 0;
  for (int i = 0; i < samples; ++i) {
    const double first = std::floor((i + place_in_step(i)) / samples * tiles) * kMaskTile,
                 last = std::min(rows, first + kMaskTile) - 1,
                 begin = a.band.left ? first + shift - static_cast<double>(*a.band.left) + 1 : 0,
                 end = a.band.right ? last + shift + static_cast<double>(*a.band.right) + 1 : keys;
    const double from = std::floor(std::max(begin, 0.0) / kMaskTile) * kMaskTile,
                 to = std::min(end, keys),
                 step = std::ceil(std::max(to - from, 1.0) / kMaskTile / kMostSampled) * kMaskTile;
    for (double n = from; n < to; n += step) {
      const double in_step = std::floor(place_in_step(static_cast<int>(all)) * step / kMaskTile) *
                             kMaskTile,
                   at = n + in_step < to ? n + in_step : n;
      ++all;
      visited += seen_pairs(spec, a.mask, query, {first, last}, key,
                            {at, std::min(keys, at + kMaskTile) - 1})
                     .some;
    }
  }
  return all > 0 ? visited / all : 1;
}

}  // namespace

double visited_share(const KernelSpec& spec) {
  return of_scores(
      spec, [&](const auto& a, int query, int key) { return visited_share(spec, a, query, key); });
}

double seen_by_some(const KernelSpec& spec) {
  using A = AttentionSpec;
  const A& a = spec.attention();
  if (a.mask.statements.empty() || is_block_mask(a.mask)) return 1;
  const auto rows = static_cast<double>(spec.extent[A::query]),
             keys = static_cast<double>(spec.extent[A::n]);
  const double step = std::ceil(keys / kMaskTile / kMostSampled) * kMaskTile,
               shift = a.band.bottom_right ? keys - rows : 0,
               begin =
                   a.band.left ? std::max(0.0, shift - static_cast<double>(*a.band.left) + 1) : 0,
               end = a.band.right
                         ? std::min(keys, rows + shift + static_cast<double>(*a.band.right))
                         : keys;
  double all = 0, seen = 0;
  for (double n = std::floor(begin / step) * step; n < end; n += step) {
    const double size = std::min(keys, n + step) - n;
    all += size;
    if (seen_pairs(spec, a.mask, A::query, {0, rows - 1}, A::n, {n, n + size - 1}).some)
      seen += size;
  }
  return all > 0 ? seen / all : 1;
}

LongestWalk longest_walk(const KernelSpec& spec) {
  using B = AttentionBackwardSpec;
  const B& a = spec.attention_backward();
  if (a.mask.statements.empty() || is_block_mask(a.mask)) return {};
  constexpr int kSamples = 16;
  const auto rows = static_cast<double>(spec.extent[B::m]),
             keys = static_cast<double>(spec.extent[B::n]);
  const double shift = a.band.bottom_right ? keys - rows : 0,
               last_tile = std::ceil(keys / kMaskTile) - 1,
               samples = std::min<double>(last_tile, kSamples),
               step = std::ceil(rows / kMaskTile / kMostSampled) * kMaskTile;
  double longest = 0;
  bool at_end = false;
  for (int i = 0; i <= samples; ++i) {
    const double first = samples > 0 ? std::floor(i / samples * last_tile) * kMaskTile : 0,
                 last = std::min(keys, first + kMaskTile) - 1,
                 begin = a.band.right ? first - shift - static_cast<double>(*a.band.right) : 0,
                 end = a.band.left ? last - shift + static_cast<double>(*a.band.left) : rows;
    double visited = 0;
    for (double m = std::floor(std::max(begin, 0.0) / kMaskTile) * kMaskTile;
         m < std::min(end, rows); m += step) {
      const double size = std::min(rows, m + step) - m;
      if (seen_pairs(spec, a.mask, B::m, {m, m + size - 1}, B::n, {first, last}).some)
        visited += size;
    }
    if (visited > longest) longest = visited, at_end = 2 * i > samples;
  }
  if (rows == 0) return {};
  return {longest / rows, at_end};
}

double keys_of_a_row(const KernelSpec& spec) {
  return of_scores(spec, [&](const auto& a, int query, int key) {
    const auto rows = static_cast<double>(length_of(spec.extent[query], a.sequences)),
               keys = static_cast<double>(length_of(spec.extent[key], a.sequences));
    return keys * seen_share(a.band, rows, keys) * visited_share(spec, a, query, key);
  });
}

}  // namespace sinter
