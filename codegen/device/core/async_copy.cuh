// Copies from memory to shared memory that a thread starts and does not wait for.
#pragma once
#include "sinter/device/core/clipped_pack.cuh"

#ifndef SINTER_OWN_ASYNC_COPY
namespace sinter {

// Takes 4, 8 or 16 bytes.
template <int bytes>
SINTER_DEVICE void copy_async(void* to, const void* from) {
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (bytes == 16)  // straight from the second-level cache: nobody else reads it
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(bytes)
                 : "memory");
}
// Everything that the thread has in flight has arrived.
SINTER_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// The copies that the thread started since the last call, also none, are a group.
SINTER_DEVICE void end_group_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups but the latest `count` have arrived.
template <int count>
SINTER_DEVICE void wait_for_groups_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(count) : "memory");
}

}  // namespace sinter
#endif

namespace sinter {

// Packs of a tensor in shared memory, `count` of them. A thread loads and reads its own only, so
// that no barrier is needed between the two.
template <class Pack, int count>
struct PacksAhead;
template <class Element, int width, int aligned, int count>
struct PacksAhead<Pack<Element, width, aligned>, count> {
  using Move = typename Word<Pack<Element, width, aligned>::step * sizeof(Element)>::Type;
  static constexpr int moves = width * sizeof(Element) / sizeof(Move);
  alignas(16) Move at[moves][count];  // neighbouring threads' moves side by side
};

// Starts to copy what `fetch` would fetch of a tensor without windows.
template <class Access, class Element, int width, int aligned, int count, class Coord>
SINTER_DEVICE void copy_ahead(const Element* base, const Coord& c,
                              PacksAhead<Pack<Element, width, aligned>, count>& ahead, int i) {
  using Ahead = PacksAhead<Pack<Element, width, aligned>, count>;
  static_assert(Access::Windows::size == 0);
  const auto* from = reinterpret_cast<const typename Ahead::Move*>(base + locate<Access>(c).offset);
#pragma unroll
  for (int m = 0; m < Ahead::moves; ++m)
    copy_async<sizeof(typename Ahead::Move)>(&ahead.at[m][i], from + m);
}
// The same where packs may reach out of their row. The tensor's last elements are loaded one by
// one and at once: compute-sanitizer takes an asynchronous copy of a part of 16 bytes for one of
// all.
template <class Access, class Element, int width, int aligned, int count, class Index, class Extent>
SINTER_DEVICE void copy_ahead(const Element* base, const ClippedCoordinates<Index, Extent>& c,
                              PacksAhead<Pack<Element, width, aligned>, count>& ahead, int i) {
  using Ahead = PacksAhead<Pack<Element, width, aligned>, count>;
  if (c.whole) return copy_ahead<Access>(base, unclipped(c), ahead, i);
  if (outside_row(c)) return;
  if (!past_end<Access, width>(c)) return copy_ahead<Access>(base, unclipped(c), ahead, i);
  constexpr int in_move = sizeof(typename Ahead::Move) / sizeof(Element);
  const Element* const from = base + locate<Access>(c).offset;
#pragma unroll 1
  for (int e = 0; e < width; ++e)
    if (inside_row(c, e))
      reinterpret_cast<Element*>(&ahead.at[e / in_move][i])[e % in_move] = hardware::load(from + e);
}
template <class Element, int width, int aligned, int count>
SINTER_DEVICE void take(const PacksAhead<Pack<Element, width, aligned>, count>& ahead, int i,
                        Pack<Element, width, aligned>& pack) {
  using Ahead = PacksAhead<Pack<Element, width, aligned>, count>;
#pragma unroll
  for (int m = 0; m < Ahead::moves; ++m)
    reinterpret_cast<typename Ahead::Move*>(pack.at)[m] = ahead.at[m][i];
}

}  // namespace sinter
