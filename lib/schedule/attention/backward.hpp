// How attention backward runs in one kernel: of warpgroups (wgmma), see
// codegen/device/family/attention_backward.cuh and attention_backward_wide.cuh; or of warps
// (mma.sync), see attention_backward_mma.cuh. A pure function of the spec and the device model.
#pragma once
#include <optional>

#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// Which pairs of query and key have different elements of dbias; `shared`: several have the same;
// `of_rows`: all keys of a query, and no others; `of_blocks`: it holds sums of blocks of keys;
// `in_pairs`: an element is that of dS which products take, of 16 bits, beside the next key's.
struct BiasGradient {
  bool by_query = true, by_key = true, shared = false, of_rows = false, of_blocks = false,
       in_pairs = false;
};
BiasGradient bias_gradient_of(const KernelSpec& spec);

// Elements of heads that are multiplied for a pair of query and key: those of five products where
// all gradients are wanted.
std::int64_t depths_multiplied(const KernelSpec& spec);

// How a gradient of keys leaves the kernel: in boxes by TMA, by warps in lines of pairs; or, what
// lies or is rounded otherwise, element by element.
struct KeyGradient {
  enum class By : std::uint8_t { nothing, boxes, lines, elements } by = By::nothing;
  BoxedOperand box;
};

struct AttentionBackwardConfig : Launch {
  BoxedOperand q, k, v, d_o;         // loaded; by warps: no boxes, but port and type
  std::optional<BoxedOperand> sums;  // of dQ, added to in boxes
  KeyGradient dk, dv;
  bool by_warps = false;  // attention_backward_mma.cuh; else by warpgroups
  bool wide = false;      // attention_backward_wide.cuh
  int consumers = 2;      // warpgroups
  int blocks = 1;         // of 64 keys, of a consumer; not wide
  int tile_q = 64;        // queries
  int last_queries = 0;   // of a head's last tile, where fewer than tile_q are multiplied
  int tile_k = 128;       // keys
  // dQ as consumers multiply it: each has rows of it, columns, or what its own keys sum to.
  bool rows_of_dq() const { return tile_q == tile_k; }
  bool parts_of_dq() const { return !wide && tile_k > 128; }
  int stages = 2;                // of the pipeline of Q
  int stages_do = 2;             // and of that of dO
  int heads_together = 1;        // of K, whose tiles of keys run beside each other
  int blocks_of_round = 0;       // that run at once, where they walk tile by tile, not head by head
  int windows = 1;               // batch entries of one tile each that a CTA takes in turn
  bool in_order = false;         // dQ's sums are added in one order
  bool entries_first = false;    // tiles of a head run side by side for all entries
  bool last_keys_first = false;  // tiles of the last keys, which see the most, start first
  BiasGradient dbias;
  std::optional<BoxedOperand> beside;  // what the score reads of 16 bits, by TMA
  int producer_registers = 24, consumer_registers = 240;
};

// Whether scores may be masks of large numbers, which rounding by log 2 would take apart (RowShift
// of codegen/device/family/attention_softmax.cuh).
bool takes_masks(const KernelSpec& spec);

// Pairs of query and key that the SM with the most of them multiplies, one after another. `heads`:
// of K, each of which has so many `tiles` of keys.
double pairs_of_an_sm(const KernelSpec& spec, const AttentionBackwardConfig& e, std::int64_t heads,
                      std::int64_t tiles, const DeviceModel& device);

// CTAs for each of `tiles` tiles of keys of each of `heads` heads of K, and how many heads' tiles
// run side by side. False where they are too many to be counted.
bool order_tiles(const KernelSpec& spec, std::int64_t heads, std::int64_t tiles,
                 const DeviceModel& device, AttentionBackwardConfig& e);

// Whether there are so many keys that a kernel looks for the tiles of queries that a condition on
// indices lets each tile of keys visit: all of few may be one tile, whose dQ is stored as it is.
inline constexpr std::int64_t kFewKeysUnderMask = 256;
// Whether it can then hide the condition's pairs apart from its score
// (AttentionBackwardSpec::masks_pairs): not that of wide heads or of f32.
bool masks_pairs(DataType multiplied, std::int64_t depth, std::int64_t width,
                 const DeviceModel& device);

// `spec`: of the attention_backward family, with a place for dQ's sums. Nothing where TMA, or
// copies of 16 bytes, cannot reach operands or results, heads are wider than registers hold, or the
// score has more than straight-line arithmetic. `several_windows`: whether a CTA may take several,
// whose number follows from the batch.
std::optional<AttentionBackwardConfig> plan_attention_backward(const KernelSpec& spec,
                                                               const DeviceModel& device,
                                                               bool several_windows = true);
// With what was decided for another spec of the same structure; nothing where that is not right.
std::optional<AttentionBackwardConfig> schedule_as(const AttentionBackwardConfig& decided,
                                                   const KernelSpec& spec,
                                                   const DeviceModel& device);

// The operands that TMA, or copies of 16 bytes, cannot load as they lie in memory: some of q, k, v,
// d_o.
std::vector<ProductOperand AttentionBackwardSpec::*> not_loadable_backward(
    const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
