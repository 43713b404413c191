// Short rows that start anywhere in memory and follow one another without gaps. Those of a block
// are one run of memory, which comes to shared memory in pieces of 16 bytes before its threads take
// their rows out of it, in whatever order: a thread can have a row to itself, so that nothing is
// exchanged.
//
// Buffers start at multiples of 16 bytes, and so do the runs of all blocks; nothing is read behind
// the end of a buffer.
#pragma once
#include "sinter/device/core/async_copy.cuh"
#include "sinter/device/family/block_order.cuh"

namespace sinter::rowwise {

// Has the block's rows of a tensor copied. Returns where the tensor would begin, were all of it
// where these are. A kernel calls this once for each such tensor and then rows_have_come().
template <class Config, int number, class Element>
SINTER_DEVICE const Element* bring_rows(const Element* base) {
  using Index = typename Config::Index;
  using Extent = typename Config::Extent;
  constexpr int outer = Config::outer_rank, threads = Config::threads, size = sizeof(Element);
  constexpr int run =
      Config::rows_per_block * Extent::template multiplied<int>(outer, Extent::size - outer);
  static_assert(run * size % 16 == 0 && Config::rows_at_once == 1 && Config::blocks_per_row == 1);
  __shared__ __align__(16) unsigned char memory[run * size];
  hardware::grid_dependency_wait();
  const Index first = static_cast<Index>(block_number<Config>()) * run;
  const Index left = Extent::template multiplied<Index>(0, Extent::size) - first;
  const int bytes = (left < run ? static_cast<int>(left) : run) * size;
  const auto* from = reinterpret_cast<const unsigned char*>(base + first);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int k = 0; k < (run * size / 16 + threads - 1) / threads; ++k)
    if (const int at = (k * threads + thread) * 16; at + 16 <= bytes)
      copy_async<16>(memory + at, from + at);
  // What is less than a piece, at the tensor's end.
  if (const int at = bytes / 16 * 16 + thread * size; at < bytes)
    *reinterpret_cast<Element*>(memory + at) = *reinterpret_cast<const Element*>(from + at);
  return reinterpret_cast<const Element*>(memory) - first;
}

SINTER_DEVICE void rows_have_come() {
  wait_for_copies();
  __syncthreads();
}

}  // namespace sinter::rowwise
