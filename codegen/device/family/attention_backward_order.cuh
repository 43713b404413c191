// One order of additions to dQ's sums, so that their bits are the same in each run
// (Config::in_order). A tile of queries is added to by the tiles of keys in their order, each of
// which waits until a counter says that those before it have added. (Shah et al.,
// "FlashAttention-3", 2024, its semaphores of dQ.)
//
// Thread blocks take their tiles in the order in which they start, by one more counter: those that
// one waits for run already. Queries are walked over from the last one: under a causal bound those
// are what all tiles of keys meet, and a block reaches a tile of queries after the blocks before
// it, which started earlier.
//
// The counters lie behind the rows of a head's sums and start as zeros with them: two of each row,
// of which the first row of a tile uses one a consumer, and of the first head that of blocks.
//
// SumsDQ also has float* line(args, coordinates): where a row's sums lie.
#pragma once
#include "sinter/device/family/attention_backward_tiles.cuh"

namespace sinter::attention {

// `c`: entry and head.
template <class S, class SumsDQ, class Args>
SINTER_DEVICE int* counters_of(const Args& args, typename S::Coord c) {
  c.at[2] = S::queries;
  return reinterpret_cast<int*>(SumsDQ::line(args, c));
}
template <class S, class SumsDQ, class Args>
SINTER_DEVICE int* counter_of(const Args& args, const typename S::Coord& c, int row, int consumer) {
  return counters_of<S, SumsDQ>(args, c) + 2 * row + consumer;
}

// The number of the thread block among all. `place`: in shared memory, which is free again behind
// the second barrier, since all threads have read it then.
template <class S, class SumsDQ, class Args>
SINTER_DEVICE int number_of_block(const Args& args, unsigned char* place) {
  if constexpr (S::in_order) {
    int* const number = reinterpret_cast<int*>(place);
    if (threadIdx.x == 0)
      *number = hardware::take_number(counters_of<S, SumsDQ>(args, {}) + 2 * S::queries);
    __syncthreads();
    const int taken = *number;
    __syncthreads();
    return taken;
  } else {
    return static_cast<int>(blockIdx.x);
  }
}

}  // namespace sinter::attention
