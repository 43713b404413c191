// The keys of a tile of rows divided among the thread blocks of a cluster (DividesKeys): as many
// SMs stream a head's keys and values, where few tiles of rows would leave most of them idle. Each
// block leaves its part in its own shared memory, where stages were; all parts of 16 rows, those of
// a warp's sums, are read there by one block, of the next 16 by the next one. So there is no second
// kernel, no counter and nothing in memory. (Distributed shared memory: NVIDIA, "CUDA C++
// Programming Guide", thread block clusters.)
//
// Each block's tiles of keys are taken in turns by `alternating` warpgroups: one's softmax runs
// beside another's products, of which few rows leave most idle.
//
// Of two walks, blocks tell each other between them what they know of the rows: then a block's
// weights are divided by the sum of all keys, and parts of results are added as they are.
//
// Config also has key_blocks, the blocks of a cluster; alternating; and part_rows, how many rows of
// a consumer there are, up to 64. The launch has S::tiles clusters.
#pragma once
#include "sinter/device/family/attention_forward_parts.cuh"
#include "sinter/device/family/attention_forward_tiles.cuh"

namespace sinter::attention {

template <class Config>
concept DividesKeys = requires {
  Config::key_blocks;
};

// Two walks: where a block's warps tell all blocks that what they know of their rows lies in their
// shared memory.
template <class Config>
constexpr bool joins_statistics() {
  return DividesKeys<Config> && WalksTwice<Config>;
}
struct StatisticsBarrier {
  static constexpr int bytes = 8;
  unsigned barrier;

  // By one thread; then barriers_are_ready() and a barrier of the cluster. `warps` of a block.
  template <class Config>
  SINTER_DEVICE void init(int warps) const {
    hopper::barrier_init(barrier, Config::key_blocks * warps);
  }
  // By whole warps, once: until all of the cluster's have come.
  template <class Config>
  SINTER_DEVICE void meet() const {
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (lane < Config::key_blocks) hopper::arrive_release_in_block(barrier, lane);
    hopper::wait_for_cluster(barrier, 0);
  }
};

// The one tile of rows of the cluster.
template <class Config, class S, class Bounds>
class TileOfCluster {
  KeyTiles whole_{};

 public:
  template <class Args>
  SINTER_DEVICE int next(const Args&, int round) const {
    return round == 0 ? static_cast<int>(blockIdx.x) / Config::key_blocks
                      : static_cast<int>(S::items);
  }
  SINTER_DEVICE TileOfRows tile(int number) const { return tile_of_rows<Config, S>(number); }
  template <class Args>
  SINTER_DEVICE BandOf<S, Bounds> band(const Args& args, const typename S::F::Coord& c,
                                       TileOfRows& tile) const {
    return band_of<S, Bounds>(args, c, tile);
  }
  // The tiles of keys that the block has.
  template <class Band>
  SINTER_DEVICE KeyTiles keys(const Band& band, const TileOfRows& tile) {
    whole_ = band.template tiles<S::tile_k>(tile.row, tile.row + S::tile_q);
    const int count = whole_.end > whole_.begin ? whole_.end - whole_.begin : 0,
              rank = hardware::cluster_rank();
    KeyTiles own = whole_;
    own.begin = whole_.begin + count * rank / Config::key_blocks;
    own.end = whole_.begin + count * (rank + 1) / Config::key_blocks;
    return own;
  }
  SINTER_DEVICE const KeyTiles& whole() const { return whole_; }
};

template <class Config, class Sums>
constexpr int bytes_of_part() {
  return Config::part_rows * (Sums::columns + 4) * 4;
}
// Between two walks: the softmax knows the rows of all blocks' keys instead of the own ones'. By
// all consumers of the cluster, whose producers go on loading: no barrier of all its threads.
// `epilogue_tile`: the warpgroup's own shared memory, to which nothing is written before
// join_cluster() has met the others.
template <class Config, class Sums, class Scale>
SINTER_DEVICE void join_statistics(StatisticsBarrier all, Scale scale, float* epilogue_tile,
                                   const Sums& out, RowSoftmax& softmax) {
  constexpr int blocks = Config::key_blocks;
  const bool writes = threadIdx.x % 4 == 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = join_quad(softmax.total[r], [](float a, float b) { return a + b; });
    if (writes)
      *reinterpret_cast<float4*>(epilogue_tile + out.row(2 * r) * 4) =
          float4{softmax.largest[r], total, 0, 0};
  }
  all.meet<Config>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float4 of_block[blocks];
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      of_block[b] = hopper::read_block(epilogue_tile + out.row(2 * r) * 4, b);
    float largest = minus_infinity(), total = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) largest = math::maximum(largest, of_block[b].x);
    const float factor = scale.of(largest), shift = RowSoftmax::shift_of(largest, factor);
    // A block with the largest score has summed weights as they will be made again: exactly once.
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      total = math::fma(of_block[b].y,
                        of_block[b].x == largest
                            ? 1.0f
                            : math::fast_exp2(math::fma(of_block[b].x, factor, -shift)),
                        total);
    softmax.largest[r] = largest;
    softmax.total[r] = writes ? total : 0.0f;
  }
}

// Leaves the part of warpgroup number `warpgroup` of the consumers, of which `consumers` have rows
// of their own, among the others at `parts`, in shared memory, of which nothing else is read any
// more; whether the warp has joined all parts of its rows, as those of one warpgroup in one block
// do. Other blocks may still read the parts: all warps call leave_cluster() when they are done. As
// join_parts(). `divided`: the softmax knows all keys, so that parts are added as they are.
template <class Config, int consumers, bool divided, class Sums, class Meet, class Scale>
SINTER_DEVICE bool join_cluster(float* parts, int warpgroup, Scale scale, float* epilogue_tile,
                                Sums& out, RowSoftmax& softmax, const Meet& meet) {
  constexpr int rows = Config::part_rows, columns = Sums::columns,
                alternating = Config::alternating, floats = bytes_of_part<Config, Sums>() / 4;
  constexpr int all_meet = 15, warpgroups = consumers * alternating;
  if constexpr (warpgroups > 1) hopper::wait_at<all_meet, warpgroups * 128>();
  float* const part = parts + warpgroup * floats;
  const float* const of_rows = part - warpgroup % alternating * floats;
  write_part<rows>(part, out, softmax, [&](int row, float largest, float total) {
    // Four of a row, so that one load brings them.
    *reinterpret_cast<float4*>(part + rows * columns + row * 4) =
        float4{divided ? 0.0f : largest, total, largest, 0};
  });
  hardware::cluster_barrier();
  constexpr int blocks_of_rows = (rows + BlocksOfRows::rows - 1) / BlocksOfRows::rows;
  const int rank = hardware::cluster_rank();
  const bool joins = rank < blocks_of_rows && warpgroup % alternating == 0;
  if (joins) {
    add_up_parts<rows, Config::key_blocks * alternating>(
        {rank, Config::key_blocks}, Config::key_blocks * alternating, scale, epilogue_tile, out,
        softmax,
        [&](int i, int row, int column) {
          const float* const from = of_rows + i % alternating * floats;
          const int block = i / alternating;
          const float4 of_row = hopper::read_block(from + rows * columns + row * 4, block);
          return QuadOfPart{hopper::read_block(from + row * columns + column, block), of_row.x,
                            of_row.y};
        },
        meet);
    if constexpr (divided)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = out.row(2 * r);
        if (row >= rows) continue;
        const float4 of_row = *reinterpret_cast<const float4*>(part + rows * columns + row * 4);
        softmax.largest[r] = of_row.z;
        softmax.total[r] = threadIdx.x % 4 == 0 ? of_row.y : 0.0f;
      }
  }
  // All that is wanted of the others is read, since the threads that read have met.
  hardware::cluster_arrive();
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  return joins && warp % Config::key_blocks == rank && warp < blocks_of_rows;
}
// A block's shared memory is there until the others have read it.
SINTER_DEVICE void leave_cluster() { hardware::cluster_wait(); }

}  // namespace sinter::attention
