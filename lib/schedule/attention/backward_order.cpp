// In which order the tiles of keys of attention's gradients start, and what SMs then have of them.
#include <algorithm>
#include <cmath>

#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {

namespace {

using A = AttentionBackwardSpec;

}  // namespace

double pairs_of_an_sm(const KernelSpec& spec, const AttentionBackwardConfig& e, std::int64_t heads,
                      std::int64_t tiles, const DeviceModel& device) {
  const A& a = spec.attention_backward();
  const auto queries = static_cast<double>(length_of(spec.extent[A::m], a.sequences)),
             ctas = static_cast<double>(heads * tiles * a.parts),
             sms = static_cast<double>(device.sms);
  const bool by_index = !a.mask.statements.empty() && !is_block_mask(a.mask),
             bounded = a.band.left || a.band.right || by_index;
  const double seen = a.band.left && a.band.right
                          ? std::min(queries, static_cast<double>(*a.band.left + *a.band.right) +
                                                  e.tile_k + e.tile_q)
                          : queries * longest_walk(spec).share,
               longest =
                   std::ceil(std::ceil(seen / e.tile_q) * static_cast<double>(a.group) / a.parts) *
                   e.tile_q * e.tile_k,
               all = static_cast<double>(heads * a.group) * static_cast<double>(spec.extent[A::m]) *
                     keys_of_a_row(spec);
  // Bounds make tiles unlike each other. The longest start first and run the faster the more SMs
  // are done; the shares of several CTAs an SM do not come out even. (h8 s2048 d128 causal on an
  // H200: 84 us in all, of which 32 tiles of queries in a row take 2.1 each, where all SMs
  // take 2.5.)
  constexpr double kAlone = 0.82, kUneven = 0.25;
  if (bounded || a.sequences.count > 0)
    return std::max(kAlone * longest,
                    all / std::min(ctas, sms) + (ctas > sms ? kUneven * longest : 0));
  return std::max(longest * std::ceil(ctas / sms), all / std::min(ctas, sms));
}

namespace {

// Under a mask by indices some tiles of keys, that all queries see, may meet many times more of
// these than others. They start first, those of so many heads together that those of the last
// heads end while others still run: the SMs' shares, in walks over all queries, over the longest
// walk. (h16 s8192 d128, a window of 1024 or 64 first keys, by a model of 132 SMs: 16 heads one
// behind the other take 1.7 times as long as all together.)
std::int64_t heads_of_long_walks(const KernelSpec& spec, std::int64_t heads, std::int64_t tiles,
                                 const DeviceModel& device) {
  const A& a = spec.attention_backward();
  if (a.mask.statements.empty() || is_block_mask(a.mask) || spec.extent[A::n] == 0) return 1;
  const double share = static_cast<double>(heads * tiles) * keys_of_a_row(spec) /
                       static_cast<double>(spec.extent[A::n]) / device.sms,
               groups = std::max(
                   1.0, std::floor(share * a.parts / std::max(longest_walk(spec).share, 1e-3)));
  constexpr std::int64_t kLeast = 8;
  return std::max(kLeast,
                  static_cast<std::int64_t>(std::ceil(static_cast<double>(heads) / groups)));
}

}  // namespace

bool order_tiles(const KernelSpec& spec, std::int64_t heads, std::int64_t tiles,
                 const DeviceModel& device, AttentionBackwardConfig& e) {
  const A& a = spec.attention_backward();
  const std::int64_t of_long_walks = heads_of_long_walks(spec, heads, tiles, device);
  tiles *= a.parts;
  if (static_cast<double>(heads) * static_cast<double>(tiles) >= 0x1p30) return false;
  e.grid = clamp_grid(static_cast<double>(heads * tiles));
  // Bounds make tiles unlike each other: those of several heads run the longest first.
  const std::int64_t many = 2 * tiles > device.sms ? 8 : device.sms / tiles;
  e.heads_together = static_cast<int>(std::clamp<std::int64_t>(
      std::max(a.band.left || a.band.right ? many : 1, of_long_walks), 1, heads));
  return true;
}

}  // namespace sinter
