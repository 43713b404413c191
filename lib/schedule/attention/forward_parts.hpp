// What the ways to run attention are made of.
#pragma once
#include "schedule/attention/forward.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {

inline constexpr int kLineBytes = 128;  // of a line of the swizzle

// The first multiple of `to` from x on.
inline int up(std::int64_t x, int to) { return static_cast<int>((x + to - 1) / to * to); }

// Whether kernels are of warpgroups.
inline bool has_warpgroups(const DeviceModel& device) { return device.has_wgmma && device.has_tma; }

// The kernel's products as contractions of their own.
KernelSpec scores_of(const KernelSpec& spec);
KernelSpec outputs_of(const KernelSpec& spec);

// Rows of one tile's head: its queries or those of all heads that share one of K and V.
std::int64_t rows_of(const KernelSpec& spec);

// Keys or values that lie in pages of [blocks, heads, rows, columns], whose columns lie together,
// with what TMA has to know of them.
// `widened`: of f8, too, whatever the operand is multiplied in.
std::optional<BoxedOperand> paged(const KernelSpec& spec, const ProductOperand& operand, bool keys,
                                  bool widened = false);

// The box of an operand of so many rows and so much k: one instruction loads a line of the swizzle
// for all lines of the tile.
void set_swizzled_lines(BoxedOperand& o, int rows, int k);

// Whether a weight's body ends with a rounding to 16 bits, which sees the weight divided by its
// row's sum: then the kernel walks over the keys twice, first for the sums (WalksTwice in
// codegen/device/family/attention_forward_tiles.cuh). Else weights are rounded as they come, and
// the result is divided.
bool rounds_divided(const Body& weight);
// What is left of it without the rounding, which is that of the second product's operand; nothing
// where that is the weight itself.
Body unrounded(Body weight);

// Loads of a score's body: by TMA, if `boxes` says so, where a box brings them, of one row where
// all rows read the same or of more than a few; else those that threads take for eight neighbouring
// keys at once, which lie together and begin where a load of 16 bytes (8 of one-byte types) may.
std::vector<LoadBeside> loads_beside(const KernelSpec& scores, bool boxes);
// The boxes of a configuration that has its tile.
void set_boxes_beside(AttentionConfig& e);
bool loads_alike(const LoadBeside& a, const LoadBeside& b);
// In shared memory, of the rows of a tile.
int bytes_of_boxes(const AttentionConfig& e);
// Keys of a tile of which a thread holds what it loads beside are a multiple of this.
inline constexpr int kKeysBeside = 32;

// Where CTAs share keys, what a warpgroup hands on of a tile of rows: so many f32 numbers, a row
// behind the other or as threads hold them. Behind them lies a counter.
struct PartOfKeys {
  bool by_rows;
  int floats;
};
PartOfKeys part_of_keys(const AttentionConfig& e, std::int64_t width);

// Where CTAs share keys: lanes of heads, as many as leave few SMs without a CTA, and the number of
// CTAs. `units`: tiles of keys of all.
void share_keys(const KernelSpec& spec, double units, const DeviceModel& device,
                AttentionConfig& e);
// Rows that a warpgroup joins at once, those of one warp's sums: struct BlocksOfRows of
// codegen/device/family/attention_forward_parts.cuh.
inline constexpr int kJoinedRows = 16;
// Whether the blocks of clusters on most SMs join more rows than one warp's sums have, each some.
bool joins_many_rows(const AttentionConfig& e, const DeviceModel& device);
// What joining the parts of a tile of rows takes; `items`: how many tiles there are; `width`:
// columns of the result.
double microseconds_of_join(const AttentionConfig& e, double items, int width,
                            const DeviceModel& device);

// The bytes that a kernel brings from memory; pages are read once.
double bytes_of_attention(const KernelSpec& spec, const AttentionConfig& e,
                          const DeviceModel& device);
// What a kernel by warpgroups takes for so many tiles of rows.
double microseconds_by_warpgroups(const KernelSpec& spec, const AttentionConfig& e, double items,
                                  const DeviceModel& device);

}  // namespace sinter
