// What kernels for sm_90a ask of the hardware: sinter/device/core/hopper.cuh and tma.cuh; for
// products of matrices see wgmma.hpp.
// Included by device.hpp.
#pragma once

#define SINTER_OWN_HOPPER
#include "sinter/device/core/hopper.cuh"
namespace sinter {
namespace hopper {

inline void barrier_init(unsigned barrier, int arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals);
  const emulator::Barrier fresh{count, count, 0};
  std::memcpy(shared_pointer(barrier), &fresh, sizeof fresh);
}
inline void barriers_are_ready() {}
inline void arrive(unsigned barrier) { machine->barrier_arrive(machine->rank, barrier, 0); }
inline void arrive_in_block(unsigned barrier, int rank) {
  machine->barrier_arrive(static_cast<unsigned>(rank), barrier, 0);
}
inline void arrive_release_in_block(unsigned barrier, int rank) { arrive_in_block(barrier, rank); }
inline void arrive_and_expect(unsigned barrier, int bytes) {
  machine->barrier_arrive(machine->rank, barrier, bytes);
}
inline void wait(unsigned barrier, int parity) { machine->barrier_wait(barrier, parity); }
inline void wait_for_cluster(unsigned barrier, int parity) { wait(barrier, parity); }

inline void fence_async_proxy() {}

inline void put_pair(unsigned to, float x, float y) {
  const float pair[] = {x, y};
  std::memcpy(shared_pointer(to), pair, sizeof pair);
}

// ---- sinter/device/core/tma.cuh

inline const emulator::BoxMap& box_map(const TensorMap& map) {
  return reinterpret_cast<const emulator::BoxMap&>(map);
}
inline void prefetch(const TensorMap&) {}
template <class... At>
void load_box(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks, At... at) {
  machine->load_box(box_map(map), to, barrier, blocks, {{at...}, {}});
}
struct PixelOffsets1 {
  unsigned short w;
};
struct PixelOffsets2 {
  unsigned short w, h;
};
struct PixelOffsets3 {
  unsigned short w, h, d;
};
template <class Offsets, class... At>
void load_pixels(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                 const Offsets& tap, At... at) {
  emulator::BoxPlace place{{at...}, {}};
  for (unsigned d = 0; d < sizeof tap / 2; ++d)
    place.offset[d] = reinterpret_cast<const unsigned short*>(&tap)[d];
  machine->load_box(box_map(map), to, barrier, blocks, place);
}
template <class... At>
void store_box(const TensorMap& map, unsigned from, At... at) {
  machine->store_box(box_map(map), from, {{at...}, {}});
}
template <class... At>
void add_box(const TensorMap& map, unsigned from, At... at) {
  machine->add_box(box_map(map), from, {{at...}, {}});
}
inline void commit_stores() { machine->commit_stores(); }
template <int groups>
void wait_for_stores() {
  machine->wait_for_stores(groups);
}
inline void wait_until_stored() { machine->wait_for_stores(0); }
inline void order_stores() {}

// ---- of a warp

// Lane 8 i + j names line j of block i.
inline void put_blocks(unsigned line, const unsigned (&blocks)[4]) {
  machine->put_blocks(line, blocks, false);
}
inline void put_blocks_transposed(unsigned line, const unsigned (&blocks)[4]) {
  machine->put_blocks(line, blocks, true);
}

inline void put_half(unsigned to, unsigned short bits) {
  std::memcpy(shared_pointer(to), &bits, 2);
}
inline void clear_word(unsigned to) { std::memset(shared_pointer(to), 0, 4); }

inline float4 read_block(const float* shared, int rank) {
  float4 x;
  machine->read(static_cast<unsigned>(rank), address(shared), &x, sizeof x);
  return x;
}
template <class T>
void send(const T* to, unsigned barrier, int rank, T x) {
  machine->send(address(to), barrier, static_cast<unsigned>(rank), &x, sizeof x);
}

template <int id, int threads>
void wait_at() {
  machine->named_barrier(id, threads, true);
}
template <int id, int threads>
void pass() {
  machine->named_barrier(id, threads, false);
}
template <int registers>
void keep_registers() {}
template <int registers>
void take_registers() {}

inline void multiply_fence() { machine->warp_barrier(); }
inline void multiply_commit() { machine->commit_multiplications(); }
template <int groups>
void multiply_wait() {
  machine->wait_for_multiplications(groups);
}

}  // namespace hopper
}  // namespace sinter
