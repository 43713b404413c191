#include "schedule/attention/forward_mma.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kWidest = 256;   // head dimension, whose sums are 128 registers
constexpr int kWarps = 4, kBlock = 16;  // rows of a warp's MMAs

DataType stored_type(DataType multiplied) {
  return multiplied == DataType::tf32 ? DataType::f32 : multiplied;
}

// Blocks of rows of a warp.
int blocks_of(const AttentionConfig& e) {
  return e.tile_q * e.key_warps / (e.threads / 32 * kBlock);
}

// Whether warps make f16 of fragments of K and V of 8 bits: of one warp's rows, heads of up to 128
// elements. WarpsShape has the same, and the next.
bool converts_fragments(const AttentionConfig& e, int depth, int width) {
  return is_f8(e.k.map.type) && is_f8(e.v.map.type) && e.tile_q == kBlock &&
         std::max(depth, width) <= 8 * kBlock;
}

int shared_bytes(const AttentionConfig& e, int depth, int width) {
  const auto bytes = [](const BoxedOperand& o) { return info(stored_type(o.map.type)).bytes; };
  const bool converts = converts_fragments(e, depth, width);
  const int k = bytes(e.k) * (converts ? up(depth, 32) : depth),
            v = bytes(e.v) * (converts ? up(width, 32) : width),
            wide = converts ? 0
                            : e.tile_k * std::max(bytes(e.k) == 1 ? 2 * depth : 0,
                                                  bytes(e.v) == 1 ? 2 * width : 0),
            q = bytes(e.q) * e.tile_q * depth, blocks = blocks_of(e);
  const bool q_stays_in_registers = blocks * depth / kBlock <= 8;
  const int first_stage = q_stays_in_registers ? std::max(q, wide) : q + wide;
  const int parts = (e.key_warps - 1) * 32 * (up(width, kBlock) / 2 + 4) * 4;
  return std::max({first_stage + e.key_warps * e.tile_k * e.stages * (k + v),
                   e.threads / 32 / e.key_warps * kEpilogueTileBytes, parts}) +
         kLostToAlignment;
}

// Four warps divide the keys of a CTA where each has many tiles: their parts are joined in shared
// memory, and memory brings keys that lie together. Of few keys the join takes longer than that
// gains. (On an H200, us, widened in shared memory by one warp, fragments by one warp and by four,
// of three stages but where it says two: b16 h32 of 8, 8192 keys of 128 83.6, 83.5, 68.1, of two
// stages 77.0, 69.9, by two warps 91.6, in pages of 64 108.4, 84.6, 67.5, of 16 109.9, 89.2, 71.6;
// b16 h32, 2048 keys 80.2, 81.1, 66.9; b1 h32 of 8, 8192 keys 16.2, 11.5, 12.5, b4, 1024
// keys 11.8, 8.7, 10.8.)
void choose_key_warps(AttentionConfig& e, int tile_k, double keys, int depth, int width,
                      const DeviceModel& device) {
  constexpr int kTogether = 4, kCtas = 2;  // warps; CTAs of theirs on an SM
  constexpr double kManyTiles = 8;
  AttentionConfig together = e;
  together.tile_k = tile_k;
  together.stages = 3;
  together.key_warps = kTogether;
  together.threads = 32 * kTogether;
  const bool fits = kCtas * (shared_bytes(together, depth, width) + device.shared_reserved) <=
                    device.shared_per_sm;
  if (!fits) return;
  if (keys / tile_k >= kManyTiles * kCtas * kTogether * device.sms)
    e = together;
  else
    e.stages = together.stages;
}

// Two blocks of rows a warp, which share what is read of keys and values, where their sums fit into
// registers beside their scores and no body makes code of each score. (b4 h16 s2048 on an H100, us:
// d64 two blocks and 64 keys 220, 32 keys 248, 128 keys 262; one block 258, of eight warps 296.
// d128 two blocks and 32 keys 418, 64 keys 420; one block and 64 keys 483. With a softcap 32 keys
// 1,008, 64 keys 933, but twice as long to compile.)
// f32 numbers take twice the room, and parts of them beside them.
// `keys`: of all heads.
bool choose_tile(AttentionConfig& e, std::int64_t rows, double keys, int depth, int width,
                 bool plain, const DeviceModel& device) {
  const int wide = std::max(depth, width);
  const bool of_16_bits = info(stored_type(e.q.map.type)).bytes == 2;
  const int blocks = plain && wide <= (of_16_bits ? 128 : 32) && rows > kWarps * kBlock ? 2 : 1;
  const bool widens = is_f8(e.k.map.type) || is_f8(e.v.map.type);
  // Widened tiles are those of few rows: CTAs of as many warps as have some, so that the SM's
  // tensor cores are shared by several.
  const int warps = !widens || rows > 2 * kBlock ? kWarps : rows > kBlock ? 2 : 1;
  e.threads = 32 * warps;
  e.tile_q = warps * kBlock * blocks;
  e.stages = widens && warps == kWarps ? 4 : 2;
  const int most_keys = plain && wide <= 64 && of_16_bits ? 64 : 32;
  if (converts_fragments(e, depth, width))
    choose_key_warps(e, most_keys, keys, depth, width, device);
  for (e.tile_k = most_keys; e.tile_k > 16; e.tile_k -= 16)
    if (shared_bytes(e, depth, width) <= device.shared_per_cta) break;
  return shared_bytes(e, depth, width) <= device.shared_per_cta;
}

// CTAs that an SM holds at once, by shared memory and registers.
int ctas_beside(const AttentionConfig& e, const DeviceModel& device) {
  constexpr int kRegisters = 224;  // of a thread
  return std::clamp(
      std::min(device.shared_per_sm / (static_cast<int>(e.shared_bytes) + device.shared_reserved),
               device.registers_per_sm / (kRegisters * e.threads)),
      1, 4 * 32 * kWarps / e.threads);
}

// Of a tile of keys and values. Few warps share an SM, so that one waits for itself: with six CTAs
// of one warp on an SM each takes 15 cycles a number and thread, all that it does beside included
// (b16 h32 of 8, s8192 d128 on an H200: 94 us); 12 at most where fragments are converted.
double cycles_of_widening(const AttentionConfig& e, int depth, int width) {
  const int widened = (is_f8(e.k.map.type) ? depth : 0) + (is_f8(e.v.map.type) ? width : 0);
  return (converts_fragments(e, depth, width) ? 12.0 : 15.0) * e.tile_k * widened / e.threads;
}

}  // namespace

std::optional<BoxedOperand> copied_rows(const KernelSpec& product, const ProductOperand& operand,
                                        int column, bool widened) {
  const bool keys = column == product.extent.size() - 1;
  if (auto pages = paged(product, operand, keys, widened)) return pages;
  const KernelPort* const p = plainly_loaded(product, operand.body);
  if (!p) return {};
  widened = widened && is_f8(p->type);
  const DataType stored = widened ? p->type : stored_type(operand.type);
  const std::int64_t piece = 16 / info(stored).bytes;  // elements
  if (p->type != stored || p->alignment < 16 || p->access.offset % piece != 0) return {};
  for (int i = 0; i < product.extent.size(); ++i) {
    const std::int64_t stride = p->access.stride[i];
    if (product.extent[i] > 1 && (i == column ? stride != 1 : stride % piece != 0)) return {};
  }
  BoxedOperand o;
  o.port = operand.body.statements.front().port;
  o.k_fastest = keys;
  o.map.type = widened ? stored : operand.type;
  return o;
}

bool plan_by_warps(const KernelSpec& spec, const DeviceModel& device, AttentionPlan& plan) {
  const AttentionSpec& a = spec.attention();
  AttentionConfig& e = plan.engine;
  if (std::max(spec.extent[AttentionSpec::d], spec.extent[AttentionSpec::e]) > kWidest)
    return false;
  const int depth = up(spec.extent[AttentionSpec::d], kBlock),
            width = up(spec.extent[AttentionSpec::e], kBlock);
  const std::int64_t rows = rows_of(spec);
  const std::int64_t heads = count(spec.extent, 0, AttentionSpec::batch);
  if (!choose_tile(e, rows, static_cast<double>(heads) * keys_of_a_row(spec), depth, width,
                   a.score.statements.empty() && unrounded(a.weight).statements.empty(), device))
    return false;
  e.shared_bytes = static_cast<std::uint32_t>(shared_bytes(e, depth, width));
  const std::int64_t tiles_q = (rows + e.tile_q - 1) / e.tile_q;
  const double items = static_cast<double>(heads) * static_cast<double>(tiles_q) * a.splits;
  if (items >= 0x1p30) return false;
  e.grid = clamp_grid(items);
  // CTAs start in order. Of a band that ends at the diagonal, tiles of so many heads run side by
  // side that all SMs have some of the same length.
  const int beside = ctas_beside(e, device);
  const std::int64_t group = std::min(heads, a.group),
                     wanted = a.band.right ? (device.sms * beside + tiles_q - 1) / tiles_q : 1;
  e.heads_together = static_cast<int>(std::min(heads, (wanted + group - 1) / group * group));
  if (e.tile_q < kWarps * kBlock) e.beside = beside;
  e.microseconds = microseconds_by_warps(spec, e, items, device);
  return true;
}

double microseconds_by_warps(const KernelSpec& spec, const AttentionConfig& e, double items,
                             const DeviceModel& device) {
  const int depth = up(spec.extent[AttentionSpec::d], kBlock),
            width = up(spec.extent[AttentionSpec::e], kBlock), beside = ctas_beside(e, device);
  // What an SM multiplies by mma.sync, as the estimate of contractions has it, at the share that
  // was measured with two blocks of rows a warp and with one. (b4 h16 s2048 on an H100: d64 220 us,
  // d128 418, causal 142 and 290; d256 1,007.)
  // Of tf32 what b4 h32 s4096 d128 took on an H200, 5,230 us; of f32, b2 h16 s1024 d128 308, d64
  // 162, b4 h12 s512 d64 66.5.
  constexpr double kReached = 0.62, kOneBlock = 0.54;
  constexpr double kEnds = 1;  // microseconds of the first and the last tile
  constexpr double kTf32 = 0.396, kF32 = 0.2;
  const double operations = device.mma_operations * (e.q.map.type == DataType::f32    ? kF32
                                                     : e.q.map.type == DataType::tf32 ? kTf32
                                                                                      : 1);
  const double each = std::ceil(items / device.sms);
  // A warp alone keeps a third of a quarter of the tensor cores busy, half of one where it does not
  // wait for widened tiles.
  const bool converts = converts_fragments(e, depth, width);
  double reached = e.tile_q > kWarps * kBlock ? kReached : kOneBlock;
  if (e.tile_q < kWarps * kBlock)
    reached *= std::min(1.0, std::min<double>(each, beside) * e.threads / 32 / (converts ? 8 : 12));
  const double tiles_k = std::ceil(keys_of_a_row(spec) / spec.attention().splits / e.tile_k);
  // Scores are computed again for weights that are divided before they are rounded.
  const double tile = 2.0 * e.tile_q * e.tile_k *
                      (depth * (rounds_divided(spec.attention().weight) ? 2 : 1) + width);
  const double bandwidth =
      std::min(device.memory_bandwidth, std::min<double>(e.grid, device.sms) * device.sm_bandwidth);
  constexpr double kOfCta = 1;  // until its first keys have come
  const double rounds = std::ceil(items / (device.sms * beside));
  return device.kernel_microseconds() + kEnds + (converts ? (rounds - 1) * kOfCta : 0) +
         std::max({each * tiles_k * tile / operations / reached / device.clock,
                   bytes_of_attention(spec, e, device) / bandwidth,
                   rounds * tiles_k * cycles_of_widening(e, depth, width) / device.clock});
}

}  // namespace sinter
