// Tiles of attention forward by warpgroups, and how many heads' tiles run side by side.
#pragma once
#include "schedule/attention/forward_parts.hpp"

namespace sinter {

inline constexpr int kConsumerRows = 64;  // of a warpgroup
inline constexpr int kSwizzledLine =
    kLineBytes / 2;  // elements of 16 bits in a line of the swizzle

// Warpgroups, keys of a tile, stages, registers and shared memory of a configuration that has its
// operands; false where shared memory has too little room.
bool choose_forward_tile(AttentionConfig& e, const KernelSpec& spec, const DeviceModel& device);
// The same of tiles of one consumer, so many of whose CTAs, two to four, lie on an SM.
bool choose_tile_beside(AttentionConfig& e, const KernelSpec& spec, int blocks,
                        const DeviceModel& device);

// Whether parts of the keys of a tile of rows have room where Q and stages were, as join_cluster()
// leaves them (attention_forward_cluster.cuh).
bool has_room_for_parts(const AttentionConfig& e, const KernelSpec& spec);

// Whether all tiles of rows are looked at: there are not too many, and their keys are known.
bool counts_shares(const KernelSpec& spec);
// Keys that the CTA with the most to do walks over.
double longest_share(const KernelSpec& spec, const AttentionConfig& e);

// `heads`: how many there are, of so many tiles of rows each.
std::int64_t choose_heads_together(const KernelSpec& spec, const AttentionConfig& e,
                                   std::int64_t heads, std::int64_t tiles_q,
                                   const DeviceModel& device);

}  // namespace sinter
