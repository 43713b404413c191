// The asynchronous machinery of sm_90a: barriers in shared memory and the order of warpgroup matrix
// MMAs; for copies see tma.cuh. One instruction a function; addresses of shared memory
// are 32 bits wide.
//
// A barrier's phase ends when all arrivals and all announced bytes have come. A waiter names the
// parity of the phase that it waits for: 0 for the first; a wait for parity 1 on a fresh barrier
// passes at once.
#pragma once
#include "sinter/device/core/device.cuh"
#include "sinter/device/core/tma.cuh"

namespace sinter {

namespace hopper {

SINTER_DEVICE unsigned address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

}  // namespace hopper
}  // namespace sinter

#ifndef SINTER_OWN_HOPPER
namespace sinter::hopper {

// ---- barriers

SINTER_DEVICE void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes the barriers of this thread visible to the cluster and to TMA.
SINTER_DEVICE void barriers_are_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
SINTER_DEVICE void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the barrier at the same place in another block of the cluster. It orders nothing but what TMA
// and products did, so that no wider fence is needed.
SINTER_DEVICE void arrive_in_block(unsigned barrier, int rank) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\t"
      "mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// The same, and a release at the cluster's scope: who has waited with wait_for_cluster() sees what
// this thread wrote before, and its warp before a __syncwarp().
SINTER_DEVICE void arrive_release_in_block(unsigned barrier, int rank) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\t"
      "mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n\t}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
SINTER_DEVICE void arrive_and_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
#define SINTER_WAIT(acquire)                 \
  asm volatile(                              \
      "{\n\t.reg .pred done;\n\t"            \
      "again:\n\t"                           \
      "mbarrier.try_wait.parity" acquire     \
      ".shared::cta.b64 done, [%0], %1;\n\t" \
      "@done bra finished;\n\t"              \
      "bra again;\n\t"                       \
      "finished:\n\t}" ::"r"(barrier),       \
      "r"(parity)                            \
      : "memory")
SINTER_DEVICE void wait(unsigned barrier, int parity) { SINTER_WAIT(""); }
// For what other blocks of the cluster have written.
SINTER_DEVICE void wait_for_cluster(unsigned barrier, int parity) {
  SINTER_WAIT(".acquire.cluster");
}
#undef SINTER_WAIT

// Makes what this thread has written to shared memory visible to MMAs and to TMA.
SINTER_DEVICE void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four bytes of shared memory become zeros.
SINTER_DEVICE void clear_word(unsigned to) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(0) : "memory");
}

// Two neighbours to shared memory.
SINTER_DEVICE void put_pair(unsigned to, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}

// ---- MMAs of warpgroups (wgmma)

// One number of 16 bits to shared memory.
SINTER_DEVICE void put_half(unsigned to, unsigned short bits) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(bits) : "memory");
}
// Four 8 x 8 blocks of 16-bit elements from registers to shared memory: lane 8 i + j names line j
// of block i, 16 bytes; of each line, lane 4 j + q holds elements 2 q and 2 q + 1.
SINTER_DEVICE void put_blocks(unsigned line, const unsigned (&blocks)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(line),
               "r"(blocks[0]), "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}
// The same where a line is a column of its block.
SINTER_DEVICE void put_blocks_transposed(unsigned line, const unsigned (&blocks)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(line),
               "r"(blocks[0]), "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

// Registers that were written otherwise are in place before the next MMAs use them.
SINTER_DEVICE void multiply_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SINTER_DEVICE void multiply_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All but the newest `groups` commits are finished.
template <int groups>
SINTER_DEVICE void multiply_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

// ---- the shared memory of the cluster's blocks

// Four numbers at the same place in the shared memory of another block.
SINTER_DEVICE float4 read_block(const float* shared, int rank) {
  float4 x;
  asm volatile(
      "{\n\t.reg .b32 there;\n\t"
      "mapa.shared::cluster.u32 there, %4, %5;\n\t"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n\t}"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "r"(address(shared)), "r"(rank)
      : "memory");
  return x;
}

// Writes a number to the same place in another block's shared memory, and announces its bytes to
// the barrier at the same place there: who has waited for that sees the number.
SINTER_DEVICE void send(const float* to, unsigned barrier, int rank, float x) {
  asm volatile(
      "{\n\t.reg .b32 there, signal;\n\t"
      "mapa.shared::cluster.u32 there, %0, %2;\n\t"
      "mapa.shared::cluster.u32 signal, %1, %2;\n\t"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %3, "
      "[signal];\n\t}" ::"r"(address(to)),
      "r"(barrier), "r"(rank), "f"(x)
      : "memory");
}
SINTER_DEVICE void send(const double* to, unsigned barrier, int rank, double x) {
  asm volatile(
      "{\n\t.reg .b32 there, signal;\n\t"
      "mapa.shared::cluster.u32 there, %0, %2;\n\t"
      "mapa.shared::cluster.u32 signal, %1, %2;\n\t"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f64 [there], %3, "
      "[signal];\n\t}" ::"r"(address(to)),
      "r"(barrier), "r"(rank), "d"(x)
      : "memory");
}

// ---- roles of warps

// Barriers of some of a block's warps, numbers 1 to 15; `threads` wait or pass.
template <int id, int threads>
SINTER_DEVICE void wait_at() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}
template <int id, int threads>
SINTER_DEVICE void pass() {
  asm volatile("bar.arrive %0, %1;" ::"n"(id), "n"(threads) : "memory");
}
template <int registers>
SINTER_DEVICE void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
SINTER_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace sinter::hopper
#endif
