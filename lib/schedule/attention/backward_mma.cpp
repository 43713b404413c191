#include "schedule/attention/backward_mma.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

using A = AttentionBackwardSpec;

constexpr std::int64_t kWidest = 128;  // sums of dK and dV of 16 keys a warp are 128 registers
constexpr int kBlock = 16;

// BackwardWarpsShape has the same. `bytes`: of a number.
int shared_bytes(const AttentionBackwardConfig& e, int depth, int width, int bytes, bool totals) {
  const int tiles =
      bytes * e.tile_k * (depth + width) +
      2 * e.tile_q * (bytes * (depth + width) + (2 + totals) * static_cast<int>(sizeof(float)));
  return up(tiles, 128) + bytes * e.tile_k * e.tile_q + kLostToAlignment;
}

}  // namespace

bool plan_backward_by_warps(const KernelSpec& spec, const DeviceModel& device,
                            AttentionBackwardConfig& e) {
  const A& a = spec.attention_backward();
  if (std::max(spec.extent[A::d], spec.extent[A::e]) > kWidest) return false;
  const int depth = up(spec.extent[A::d], kBlock), width = up(spec.extent[A::e], kBlock);
  // Narrow sums leave room for longer tiles; bodies of scores and masks of blocks take registers.
  // (b4 h16 s2048 on an H100, us, keys x queries: d64 128 x 64 882, 128 x 32 1,024, 64 x 64 1,324;
  // d128 128 x 16 2,070, 64 x 32 2,895, the expansion 2,204. Causal: 511, and 1,146 beside 2,217.)
  const bool narrow = std::max(depth, width) <= 64, plain = a.plain() && a.mask.statements.empty();
  e.tile_k = 128;
  const int bytes = info(a.q.type).bytes;
  e.tile_q = !narrow ? 16 : plain && bytes == 2 ? 64 : 32;
  e.threads = e.tile_k / kBlock * 32;
  while (e.tile_q > kBlock &&
         shared_bytes(e, depth, width, bytes, a.totals()) > device.shared_per_cta)
    e.tile_q /= 2;
  e.shared_bytes = static_cast<std::uint32_t>(shared_bytes(e, depth, width, bytes, a.totals()));
  if (static_cast<int>(e.shared_bytes) > device.shared_per_cta) return false;
  const std::int64_t heads = count(spec.extent, 0, A::batch) / a.group,
                     tiles = (spec.extent[A::n] + e.tile_k - 1) / e.tile_k;
  if (!order_tiles(spec, heads, tiles, device, e)) return false;

  // As forward by warps, of what was measured.
  constexpr double kEnds = 1;  // microseconds of the first and the last tile
  const double start = device.kernel_microseconds() + kEnds;
  // Numbers of tf32 run at half the rate; of f32 there are three for one, which are split again for
  // each product.
  constexpr double kTf32 = 0.35, kF32 = 0.12;
  const double of_type = bytes == 2 ? 1 : a.q.type == DataType::f32 ? kF32 : kTf32;
  const double reached = (narrow ? 0.4 : 0.33) * of_type;
  const double flops = 2 * pairs_of_an_sm(spec, e, heads, tiles, device) *
                       static_cast<double>(depths_multiplied(spec));
  // Of f32, what a row of queries takes the CTA that meets most. (h8 s2048 causal on an H200, us:
  // d64 719, d128 1,581.)
  constexpr double kRowF32 = 0.79, kRowF32Narrow = 0.35;
  if (a.q.type == DataType::f32) {
    const double queries = static_cast<double>(spec.extent[A::m] * a.group),
                 seen = keys_of_a_row(spec) / static_cast<double>(spec.extent[A::n]);
    const double rows = std::max(queries / a.parts,
                                 static_cast<double>(heads * tiles) * queries * seen / device.sms);
    // Where several CTAs share a tile of keys, all SMs are busy, and each CTA begins and ends with
    // all of the tile's numbers. (In one run, us in all, causal: h8 s512 d64 57, d128 125; b2 h4
    // s200 28 and 59; h8 s2048 d64 466.)
    constexpr double kBusy = 1.4, kOfPart = 16, kOfPartNarrow = 4;
    const double of_rows = rows * (narrow ? kRowF32Narrow : kRowF32);
    e.microseconds =
        start + (a.parts > 1 ? kBusy * of_rows + (narrow ? kOfPartNarrow : kOfPart) : of_rows);
    return true;
  }
  e.microseconds = start + std::max(flops / device.mma_operations / reached / device.clock,
                                    bytes_moved(spec) / device.memory_bandwidth);
  return true;
}

}  // namespace sinter
