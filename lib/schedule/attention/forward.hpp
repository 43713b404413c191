// How attention forward runs in one kernel: of warpgroups (wgmma), see
// codegen/device/family/attention_forward.cuh and, for heads of more than 256 elements,
// attention_forward_wide.cuh; or of warps (mma.sync), see attention_forward_mma.cuh. A pure
// function of the spec and the device model.
#pragma once
#include <array>
#include <optional>

#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// A load of the score's body that neither threads nor TMA take element by element: what comes in
// boxes, or what a thread loads of eight neighbouring keys at once
// (codegen/device/family/attention_neighbours.cuh).
struct LoadBeside {
  int statement;
  std::optional<BoxedOperand> box;
  bool same_rows = false;  // of a head: a box of one row
};

struct AttentionConfig : Launch {
  KernelSpec scores;          // the first product: over (batch, m, n, d), its body is the score
  Body weight, mask;          // over the same domain
  int visited_percent = 0;    // of all tiles of pairs, under a mask by indices, rounded; else 0
  BoxedOperand q, k, v;       // by warps: no boxes, but port, type and pages
  AttentionSpec attention;    // what is left of the family's own: band, ports, scale, group
  bool by_warps = false;      // attention_forward_mma.cuh; else by warpgroups
  bool wide = false;          // attention_forward_wide.cuh: two consumers share 64 rows
  bool scales_heads = false;  // of f8: scores are their sums times a number of the head
  std::vector<LoadBeside> loads_beside;  // of the score
  bool values_in_keys = false;           // wide: v is the first columns of k, which is loaded alone
  int consumers = 2;                     // warpgroups of 64 rows
  int tile_q = 128;                      // rows
  int tile_k = 128;                      // keys
  int stages = 2;                        // of the pipelines of K and V
  int box_stages = 2;                    // of what scores read beside their sums
  int part_rows = 0;                     // where CTAs share keys: rows of a part, of each consumer
  int key_blocks = 1;                    // CTAs of a cluster that divide the keys of a tile of rows
  int share_lanes = 1;                   // groups of heads whose keys are shared apart
  int key_warps = 1;                     // by warps: those that share rows and divide tiles of keys
  int beside = 1;                        // CTAs that an SM needs to be busy
  int alternating = 1;     // of such a CTA: warpgroups that take its tiles of keys in turns
  int heads_together = 1;  // whose tiles of rows run beside each other
  bool ping_pong = true;   // consumers take turns to issue products
  int producer_registers = 24, consumer_registers = 240;
  bool n_fastest = true;  // along which index the result lies in memory
  int unroll = 2;         // of the epilogue
  Packing packing;        // of the epilogue
  // Where the epilogue only stores, in the operands' type: boxes of 16 rows and 64 columns.
  std::optional<BoxedOperand> result;

  template <class Self>
  static auto own_bodies(Self& e) {
    return std::vector{&e.scores.body, &e.weight, &e.mask};
  }
};

// Columns of the result that each consumer of a wide head sums: half of them, in whole panels.
std::array<int, 2> own_columns(std::int64_t width);

struct AttentionPlan {
  KernelSpec spec;  // the second product, over (batch, m, e, n), with the epilogue
  AttentionConfig engine;
};

// `spec`: of the attention family. Nothing where TMA, or copies of 16 bytes, cannot load the
// operands, heads are wider than registers hold, or a body has more than straight-line arithmetic.
std::optional<AttentionPlan> plan_attention(const KernelSpec& spec, const DeviceModel& device);

// Where CTAs share keys: the f32 numbers that they hand each other, and the counters.
struct SharedParts {
  std::int64_t floats;
  std::int64_t zeros, first_zero, step;  // which of them begin as zeros: the counters
};
SharedParts shared_parts(const KernelSpec& spec, const AttentionConfig& e,
                         const DeviceModel& device);

// With what was decided for another spec of the same structure and heads of the same width; nothing
// where that does not hold.
std::optional<AttentionPlan> schedule_as(const AttentionConfig& decided, const KernelSpec& spec,
                                         const DeviceModel& device);

// The operands that TMA, or copies of 16 bytes, cannot load as they lie in memory: some of q, k, v.
std::vector<ProductOperand AttentionSpec::*> not_loadable(const KernelSpec& spec,
                                                          const DeviceModel& device);

// Whether a body of the score or of a weight is straight-line f32 arithmetic on what is loaded,
// looked up in block masks, or drawn; and, where `integers` says so, of wider types, as integers
// are compared in.
bool draws_or_loads(const KernelSpec& spec, const Body& body, bool integers = false);

// Whether a mask is looked at for whole tiles, of which those that hide all are not visited: by
// warpgroups, of so many rows and keys that tiles matter. Else it is part of the score. `spec`:
// with its extents, operand types, band and sequences.
bool visits_seen_tiles(const KernelSpec& spec, const DeviceModel& device);
// A mask has a bit a block of so many rows and keys.
inline constexpr int kMaskBlock = 128;
bool is_block_mask(const Body& mask);
// Of a kernel of either direction, the share of the band's tiles of pairs that a mask by indices
// lets it visit.
double visited_share(const KernelSpec& spec);
// Of a forward kernel, the share of the band's keys that some row sees under a mask by indices.
double seen_by_some(const KernelSpec& spec);
// Of a kernel of gradients, the largest share of the queries that a tile of keys visits under a
// mask by indices, and whether only tiles of the last half of the keys visit so many.
struct LongestWalk {
  double share = 1;
  bool at_end = false;
};
LongestWalk longest_walk(const KernelSpec& spec);

// Of a kernel of either direction, how many keys the band lets a row see on average, not counting
// lengths, and with a mask by indices those of the tiles that it visits.
double keys_of_a_row(const KernelSpec& spec);

// How many tiles there are of so many tokens: of packed sequences, which begin tiles of their own,
// as many as there can be (codegen/device/family/attention_sequences.cuh); and what is estimated
// for the length of each.
std::int64_t tiles_of(std::int64_t tokens, int tile, const PackedSequences& sequences);
std::int64_t length_of(std::int64_t tokens, const PackedSequences& sequences);

}  // namespace sinter
