// The keys of a tile of rows divided among the thread blocks of a cluster (DividesKeys): as many
// SMs stream a head's keys and values, where few tiles of rows would leave most of them idle. Each
// block leaves its part in its own shared memory, where stages were; the first block reads all of
// them there. So there is no second kernel, no counter and nothing in memory. (Distributed shared
// memory: NVIDIA, "CUDA C++ Programming Guide", thread block clusters.)
//
// Each block's tiles of keys are taken in turns by `alternating` warpgroups: one's softmax runs
// beside another's products, of which few rows leave most idle.
//
// Config also has key_blocks, the blocks of a cluster; alternating; and part_rows, how many rows of
// a tile there are, up to 64. The launch has S::tiles clusters.
#pragma once
#include "sinter/device/family/attention_forward_parts.cuh"
#include "sinter/device/family/attention_forward_tiles.cuh"

namespace sinter::attention {

template <class Config>
concept DividesKeys = requires {
  Config::key_blocks;
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
// Leaves the part of consumer number `consumer` among the others at `parts`, in shared memory, of
// which nothing else is read any more; whether it is the first one of the first block, which has
// joined all. As join_parts().
template <class Config, class Sums, class Meet, class Scale>
SINTER_DEVICE bool join_cluster(float* parts, int consumer, Scale scale, float* slab, Sums& out,
                                RowSoftmax& softmax, const Meet& meet) {
  constexpr int rows = Config::part_rows, columns = Sums::columns,
                alternating = Config::alternating, floats = bytes_of_part<Config, Sums>() / 4;
  constexpr int all_meet = 15;
  if constexpr (alternating > 1) hopper::wait_at<all_meet, alternating * 128>();
  float* const part = parts + consumer * floats;
  write_part<rows>(part, out, softmax, [&](int row, float largest, float total) {
    // Four of a row, so that one load brings them.
    *reinterpret_cast<float4*>(part + rows * columns + row * 4) = float4{largest, total, 0, 0};
  });
  hardware::cluster_barrier();
  const bool first = hardware::cluster_rank() == 0 && consumer == 0;
  if (first)
    add_up_parts<rows>(
        Config::key_blocks * alternating, scale, slab, out, softmax,
        [&](int i, int row, int column) {
          const float* const from = parts + i % alternating * floats;
          const int block = i / alternating;
          const float4 of_row = hopper::read_block(from + rows * columns + row * 4, block);
          return QuadOfPart{hopper::read_block(from + row * columns + column, block), of_row.x,
                            of_row.y};
        },
        meet);
  // All that is wanted of the others is read, since the threads that read have met.
  hardware::cluster_arrive();
  if (!first) hardware::cluster_wait();
  return first;
}

}  // namespace sinter::attention
