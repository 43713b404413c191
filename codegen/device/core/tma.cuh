// The tensor memory accelerator of sm_90a (TMA): one thread moves a box of a tensor, which a tensor
// map describes, between global and shared memory. One instruction a function; addresses of shared
// memory are 32 bits wide, coordinates are elements, innermost first.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter {

// What the driver encodes of a tensor; an argument of the kernel.
struct alignas(64) TensorMap {
  char bytes[128];
};

}  // namespace sinter

#ifndef SINTER_OWN_HOPPER
namespace sinter::hopper {

SINTER_DEVICE void prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---- from global to shared memory: what lies outside of the tensor becomes zeros

// A box from these coordinates on. The innermost one is a multiple of 16 bytes, else the machine
// stops as at an illegal instruction; `to` is one of 128. `blocks`: a bit for each CTA of the
// cluster that receives it, at the same place; 0 for this one alone. `barrier` is told of the whole
// box's bytes.
#define SINTER_LOAD_BOX(dims, list, mask, ...)                                                  \
  if (blocks)                                                                                   \
    asm volatile("cp.async.bulk.tensor." dims                                                   \
                 "d.shared::cluster.global.mbarrier"                                            \
                 "::complete_tx::bytes.multicast::cluster [%0], [%1, {" list "}], [%2], " mask  \
                 ";" ::"r"(to),                                                                 \
                 "l"(&map), "r"(barrier), __VA_ARGS__, "h"(static_cast<unsigned short>(blocks)) \
                 : "memory");                                                                   \
  else                                                                                          \
    asm volatile("cp.async.bulk.tensor." dims                                                   \
                 "d.shared::cluster.global.mbarrier"                                            \
                 "::complete_tx::bytes [%0], [%1, {" list "}], [%2];" ::"r"(to),                \
                 "l"(&map), "r"(barrier), __VA_ARGS__                                           \
                 : "memory")
SINTER_DEVICE void load_box(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                            int x, int y) {
  SINTER_LOAD_BOX("2", "%3, %4", "%5", "r"(x), "r"(y));
}
SINTER_DEVICE void load_box(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                            int x, int y, int z) {
  SINTER_LOAD_BOX("3", "%3, %4, %5", "%6", "r"(x), "r"(y), "r"(z));
}
SINTER_DEVICE void load_box(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                            int x, int y, int z, int u) {
  SINTER_LOAD_BOX("4", "%3, %4, %5, %6", "%7", "r"(x), "r"(y), "r"(z), "r"(u));
}
SINTER_DEVICE void load_box(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                            int x, int y, int z, int u, int v) {
  SINTER_LOAD_BOX("5", "%3, %4, %5, %6, %7", "%8", "r"(x), "r"(y), "r"(z), "r"(u), "r"(v));
}
#undef SINTER_LOAD_BOX

// Pixels of a channels-last image, by a map that was encoded for this (im2col): from base pixel (n,
// [d,] h, w) on as many as the map says, w fastest, then h, d and n, within the bounds of bases
// that the map holds; each moved by the offsets of a filter's tap. `c`: the first channel. What
// lies outside of the image becomes zeros.
#define SINTER_LOAD_PIXELS(dims, list, offsets, mask, ...)                                         \
  if (blocks)                                                                                      \
    asm volatile("cp.async.bulk.tensor." dims                                                      \
                 "d.shared::cluster.global.im2col.mbarrier"                                        \
                 "::complete_tx::bytes.multicast::cluster [%0], [%1, {" list "}], [%2], {" offsets \
                 "}, " mask ";" ::"r"(to),                                                         \
                 "l"(&map), "r"(barrier), __VA_ARGS__, "h"(static_cast<unsigned short>(blocks))    \
                 : "memory");                                                                      \
  else                                                                                             \
    asm volatile("cp.async.bulk.tensor." dims                                                      \
                 "d.shared::cluster.global.im2col.mbarrier"                                        \
                 "::complete_tx::bytes [%0], [%1, {" list "}], [%2], {" offsets "};" ::"r"(to),    \
                 "l"(&map), "r"(barrier), __VA_ARGS__                                              \
                 : "memory")
struct PixelOffsets1 {
  unsigned short w;
};
struct PixelOffsets2 {
  unsigned short w, h;
};
struct PixelOffsets3 {
  unsigned short w, h, d;
};
SINTER_DEVICE void load_pixels(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                               PixelOffsets1 tap, int c, int w, int n) {
  SINTER_LOAD_PIXELS("3", "%3, %4, %5", "%6", "%7", "r"(c), "r"(w), "r"(n), "h"(tap.w));
}
SINTER_DEVICE void load_pixels(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                               PixelOffsets2 tap, int c, int w, int h, int n) {
  SINTER_LOAD_PIXELS("4", "%3, %4, %5, %6", "%7, %8", "%9", "r"(c), "r"(w), "r"(h), "r"(n),
                     "h"(tap.w), "h"(tap.h));
}
SINTER_DEVICE void load_pixels(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks,
                               PixelOffsets3 tap, int c, int w, int h, int d, int n) {
  SINTER_LOAD_PIXELS("5", "%3, %4, %5, %6, %7", "%8, %9, %10", "%11", "r"(c), "r"(w), "r"(h),
                     "r"(d), "r"(n), "h"(tap.w), "h"(tap.h), "h"(tap.d));
}
#undef SINTER_LOAD_PIXELS

// ---- from shared to global memory: what lies outside of the tensor is left out

// Who wrote the shared memory has called fence_async_proxy() and met this thread before; or this
// thread calls it behind the barrier where they met.
SINTER_DEVICE void store_box(const TensorMap& map, unsigned from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}
SINTER_DEVICE void store_box(const TensorMap& map, unsigned from, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(from), "r"(x), "r"(y), "r"(z)
      : "memory");
}
SINTER_DEVICE void store_box(const TensorMap& map, unsigned from, int x, int y, int z, int u) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
SINTER_DEVICE void store_box(const TensorMap& map, unsigned from, int x, int y, int z, int u,
                             int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
          "l"(&map),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
      : "memory");
}
// ---- to sums of f32 in global memory, in any order; groups and waits are those of stores

#define SINTER_ADD_BOX(dims, list, ...)                                                        \
  asm volatile("cp.reduce.async.bulk.tensor." dims                                             \
               "d.global.shared::cta.add.tile.bulk_group [%0, {" list "}], [%1];" ::"l"(&map), \
               "r"(from), __VA_ARGS__                                                          \
               : "memory")
SINTER_DEVICE void add_box(const TensorMap& map, unsigned from, int x, int y) {
  SINTER_ADD_BOX("2", "%2, %3", "r"(x), "r"(y));
}
SINTER_DEVICE void add_box(const TensorMap& map, unsigned from, int x, int y, int z) {
  SINTER_ADD_BOX("3", "%2, %3, %4", "r"(x), "r"(y), "r"(z));
}
SINTER_DEVICE void add_box(const TensorMap& map, unsigned from, int x, int y, int z, int u) {
  SINTER_ADD_BOX("4", "%2, %3, %4, %5", "r"(x), "r"(y), "r"(z), "r"(u));
}
SINTER_DEVICE void add_box(const TensorMap& map, unsigned from, int x, int y, int z, int u, int v) {
  SINTER_ADD_BOX("5", "%2, %3, %4, %5, %6", "r"(x), "r"(y), "r"(z), "r"(u), "r"(v));
}
#undef SINTER_ADD_BOX

// Ends a group of this thread's stores.
SINTER_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All but the newest `groups` have read their shared memory, which may be written again. The thread
// waits for all before it ends.
template <int groups>
SINTER_DEVICE void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}
// All are in memory; and what other threads find there by what this one does next, they may add to
// by TMA.
SINTER_DEVICE void wait_until_stored() {
  asm volatile("cp.async.bulk.wait_group 0;\n\tfence.proxy.async;" ::: "memory");
}
// Stores from here on are behind what this thread has seen.
SINTER_DEVICE void order_stores() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace sinter::hopper
#endif
