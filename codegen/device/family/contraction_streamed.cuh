// Weights of 8 bits that stream past few rows of 16-bit numbers, on the tensor cores that every GPU
// from sm_80 on has. Both come to shared memory as they are by asynchronous copies, so that as many
// steps are under way as there are stages; a warp converts the weights in registers, on their way
// from there to the tensor cores. Scales, where there are any, follow the sums.
//
// What a product sums over has no order: of 64 elements of k a lane takes 16 that lie together, of
// either operand, as those that fragments hold of four MMAs. So weights are read 16
// bytes at a time, and nothing is exchanged between lanes.
#pragma once
#include "sinter/device/family/contraction_loader.cuh"
#include "sinter/device/family/contraction_warp_tiles.cuh"

namespace sinter::contraction {

// A lane's part of 64 elements of k of 16 rows: of rows lane / 4 and the ones eight further down,
// two neighbours a word.
struct StreamedBlock {
  unsigned at[2][8];

  // Of MMA number i of four.
  SINTER_DEVICE void as_left(int i, unsigned (&a)[4]) const {
    a[0] = at[0][2 * i], a[1] = at[1][2 * i], a[2] = at[0][2 * i + 1], a[3] = at[1][2 * i + 1];
  }
};

// Reads them of a copied operand, or of one of bytes, which it converts. `row`: the warp's first in
// the panel.
template <class Operand, class Loader, int blocks>
class StreamedReader {
  using Layout = typename Loader::Layout;
  using Number = typename Loader::Number;
  static constexpr int line = Layout::chunks * 16;  // bytes
  // A lane's 16 elements, in chunks of 16 bytes, and what 64 elements of k take of a line.
  static constexpr int chunks = Loader::streamed ? 1 : 2, part_bytes = Loader::streamed ? 64 : 128;
  unsigned lane_at[chunks];

 public:
  SINTER_DEVICE explicit StreamedReader(int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < chunks; ++i)
      lane_at[i] = Layout::place(row + lane / 4, lane % 4 * chunks + i);
  }
  // Number `part` of the 64 elements of k.
  SINTER_DEVICE void get(unsigned panel, int part, StreamedBlock (&to)[blocks]) const {
#pragma unroll
    for (int i = 0; i < blocks * 2; ++i) {
      unsigned(&words)[8] = to[i / 2].at[i % 2];
      float4 fours[chunks];
#pragma unroll
      for (int c = 0; c < chunks; ++c)
        fours[c] = warp_matrix::get_four(panel + (lane_at[c] ^ part * part_bytes) + i * 8 * line);
      if constexpr (Loader::streamed) {
        const auto pack = Operand::pack(fours[0]);
#pragma unroll
        for (int w = 0; w < 8; ++w) words[w] = pair(Number{}, pack, w);
      } else {
#pragma unroll
        for (int c = 0; c < chunks; ++c) {
          words[c * 4] = __float_as_uint(fours[c].x),
                    words[c * 4 + 1] = __float_as_uint(fours[c].y);
          words[c * 4 + 2] = __float_as_uint(fours[c].z);
          words[c * 4 + 3] = __float_as_uint(fours[c].w);
        }
      }
    }
  }
};

// Sums a tile over steps [first_step, end_step). One barrier a step: behind it the step has come to
// all, and nobody reads the stage of the one before it any more, which is filled again.
template <class Config, class A, class B, class Args, class LoaderA, class LoaderB>
SINTER_DEVICE void sum_streamed_tile(
    const Args& args, const LoaderA& a, const LoaderB& b, unsigned shared, int row, int column,
    typename Config::Index first_step, typename Config::Index end_step,
    float (&acc)[WarpTiles<Config>::blocks_m][WarpTiles<Config>::columns / 2]) {
  using T = WarpTiles<Config>;
  using Index = typename Config::Index;
  using Number = typename Config::Number;
  using LayoutA = typename LoaderA::Layout;
  using LayoutB = typename LoaderB::Layout;
  constexpr int stages = Config::stages, stage_bytes = LayoutA::bytes + LayoutB::bytes;
  const StreamedReader<A, LoaderA, T::blocks_m> read_a(row);
  const StreamedReader<B, LoaderB, T::blocks_n> read_b(column);
  unsigned filled = shared, current = shared;  // stages
  const auto following = [&](unsigned stage) {
    return stage == shared + (stages - 1) * stage_bytes ? shared : stage + stage_bytes;
  };
#pragma unroll 1
  for (Index step = first_step + 1 - stages; step < end_step; ++step) {
    if (step >= first_step) {
      warp_matrix::wait<stages - 2>();
      __syncthreads();
    }
    const Index ahead = step + stages - 1;
    if (ahead < end_step) {
      a.copy(args, ahead, filled);
      b.copy(args, ahead, filled + LayoutA::bytes);
    }
    warp_matrix::commit();
    filled = following(filled);
    if (step < first_step) continue;
#pragma unroll
    for (int part = 0; part < Config::tile_k / 64; ++part) {
      StreamedBlock of_a[T::blocks_m], of_b[T::blocks_n];
      read_a.get(current, part, of_a);
      read_b.get(current + LayoutA::bytes, part, of_b);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int m = 0; m < T::blocks_m; ++m) {
          unsigned left[4];
          of_a[m].as_left(i, left);
#pragma unroll
          for (int n = 0; n < 2 * T::blocks_n; ++n) {
            const unsigned(&right)[8] = of_b[n / 2].at[n % 2];
            warp_matrix::multiply(Number{}, acc[m] + n * 4, left, right[2 * i], right[2 * i + 1]);
          }
        }
    }
    current = following(current);
  }
  __syncthreads();  // nobody reads the stages any more
}

}  // namespace sinter::contraction
