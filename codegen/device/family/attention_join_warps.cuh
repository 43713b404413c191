// Warps of a thread block that had tiles of keys of the same rows in turns: their parts are joined
// in shared memory.
#pragma once
#include "sinter/device/family/attention_softmax.cuh"

namespace sinter::attention {

// What warps have of the same rows becomes the first one's, in whose lanes the same rows and
// columns lie. All tiles of keys have been read.
template <class S, class Outputs, class Scale>
SINTER_DEVICE void join_warps(float* parts, int warp, Scale scale, Outputs& out,
                              RowSoftmax& softmax) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int floats = S::part_floats, sums = Outputs::count;
  if (warp > 0) {
    float* const part = parts + (warp - 1) * 32 * floats + lane;
#pragma unroll
    for (int i = 0; i < sums; ++i) part[i * 32] = out.at[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      part[(sums + r) * 32] = softmax.largest[r];
      part[(sums + 2 + r) * 32] = softmax.total[r];
    }
  }
  __syncthreads();
  if (warp > 0) return;
#pragma unroll 1
  for (int w = 1; w < S::key_warps; ++w) {
    const float* const part = parts + (w - 1) * 32 * floats + lane;
    float own[2], others[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float other = part[(sums + r) * 32], largest = math::maximum(softmax.largest[r], other),
                  factor = scale.of(largest), shift = RowSoftmax::shift_of(largest, factor);
      own[r] = math::fast_exp2(math::fma(softmax.largest[r], factor, -shift));
      others[r] = math::fast_exp2(math::fma(other, factor, -shift));
      softmax.largest[r] = largest;
      softmax.total[r] = math::fma(part[(sums + 2 + r) * 32], others[r], softmax.total[r] * own[r]);
    }
#pragma unroll
    for (int i = 0; i < sums; ++i)
      out.at[i] = math::fma(part[i * 32], others[i / 2 % 2], out.at[i] * own[i / 2 % 2]);
  }
}

}  // namespace sinter::attention
