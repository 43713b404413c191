// The tiles of rows of a CTA, one after another: in steps of the grid; or, where packed sequences
// make tiles unlike and leave numbers without a tile, or masks make them unlike, the next one
// whenever it has become free (CountsTiles). Then the producer takes a number from a counter in
// memory, looks for its tile, and hands it to the consumers in shared memory, one tile ahead of
// them: nobody waits for the look.
// (Shah et al., "FlashAttention-3", 2024, its dynamic tile scheduler.)
//
// A generated file's Bounds also have counts_tiles and int* tiles_taken(args), which is zero before
// the kernel runs. Or CTAs have equal shares of all tiles of keys: attention_forward_shares.cuh;
// or a cluster has one tile of rows: attention_forward_cluster.cuh.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/family/attention_forward_cluster.cuh"
#include "sinter/device/family/attention_forward_shares.cuh"
#include "sinter/device/family/attention_key_walk.cuh"

namespace sinter::attention {

template <class Bounds>
concept CountsTiles = requires {
  Bounds::counts_tiles;
};

// Tiles whose number tells where they are, with all the keys that their part of a split has.
template <class Config, class S>
struct NumberedTiles {
  SINTER_DEVICE TileOfRows tile(int number) const { return tile_of_rows<Config, S>(number); }
  template <class Band>
  SINTER_DEVICE KeyTiles keys(const Band& band, const TileOfRows& tile) const {
    return keys_of<S>(band, tile);
  }
};

// In steps of the grid, in rounds.
template <class Config, class S, class Bounds>
struct EveryTile : NumberedTiles<Config, S> {
  // The number of the next tile; S::items or more: there is none any more.
  template <class Args>
  SINTER_DEVICE int next(const Args&, int round) {
    return number_of_tile(round);
  }
  // What its rows see, behind next(); a packed tile's row becomes its first one.
  template <class Args>
  SINTER_DEVICE BandOf<S, Bounds> band(const Args& args, const typename S::F::Coord& c,
                                       TileOfRows& tile) {
    return band_of<S, Bounds>(args, c, tile);
  }
};

// What lies in shared memory of tiles that are handed over: two, and the barriers of both.
struct TileQueue {
  using Pipe = Pipeline<2>;
  static constexpr int stage_bytes = 32, bytes = Pipe::bytes + Pipe::stages * stage_bytes;
  unsigned char* pointer;
  unsigned address;

  template <class S, class Bounds>
  struct Slot {
    int number, row;
    BandOf<S, Bounds> band;
  };
  SINTER_DEVICE Pipe pipe() const { return {address}; }
  template <class S, class Bounds>
  SINTER_DEVICE Slot<S, Bounds>& slot(int round) const {
    static_assert(sizeof(Slot<S, Bounds>) <= stage_bytes);
    return *reinterpret_cast<Slot<S, Bounds>*>(pointer + Pipe::bytes + round % 2 * stage_bytes);
  }
  static SINTER_DEVICE Pipe::State state(int round) { return {round & 1, round >> 1 & 1}; }
};

// By one thread of the producer, which loads each tile before it asks for the next one; or, under a
// mask, by a warp, of which one thread asks.
template <class Config, class S, class Bounds>
class HandsOutTiles : public NumberedTiles<Config, S> {
  TileQueue queue_;
  int taken_ = 0;  // a number that is not looked for yet, of the thread that asks
  int round_ = 0;

 public:
  SINTER_DEVICE HandsOutTiles(unsigned char* pointer, unsigned shared)
      : queue_{pointer + S::queue, shared + S::queue} {}

  template <class Args>
  SINTER_DEVICE int next(const Args& args, int round) {
    round_ = round;
    int number = shared_by_warp(round == 0 ? take(args) : taken_);
    queue_.pipe().acquire(queue_.state(round));
    auto& slot = queue_.template slot<S, Bounds>(round);
    static_assert(!(PacksSequences<Bounds> && MasksTiles<Bounds>));  // each lane takes for itself
    if constexpr (PacksSequences<Bounds>)
#pragma unroll 1
      for (; number < S::items; number = take(args)) {
        TileOfRows tile = tile_of_rows<Config, S>(number);
        slot.band = band_of<S, Bounds>(args, {}, tile);
        slot.row = tile.row;
        if (slot.row < slot.band.rows) break;
      }
    if (loads<Bounds>()) {
      slot.number = number;
      hopper::arrive(queue_.pipe().full(queue_.state(round)));
    }
    if (number < S::items) taken_ = take(args);  // comes during the loads
    return number;
  }
  template <class Args>
  SINTER_DEVICE BandOf<S, Bounds> band(const Args& args, const typename S::F::Coord& c,
                                       TileOfRows& tile) {
    if constexpr (MasksTiles<Bounds>) return BandOf<S, Bounds>(args, c);
    const auto& slot = queue_.template slot<S, Bounds>(round_);
    tile.row = slot.row;
    return slot.band;
  }

 private:
  template <class Args>
  static SINTER_DEVICE int take(const Args& args) {
    int* const counter = Bounds::tiles_taken(args);
    if constexpr (!MasksTiles<Bounds>) return hardware::take_number(counter);
    return loads<Bounds>() ? hardware::take_number(counter) : 0;
  }
  static SINTER_DEVICE int shared_by_warp(int number) {
    return MasksTiles<Bounds> ? __shfl_sync(~0u, number, 0) : number;
  }
};

// By all threads of consumers.
template <class Config, class S, class Bounds>
class TakesTiles : public NumberedTiles<Config, S> {
  TileQueue queue_;
  typename TileQueue::template Slot<S, Bounds> slot_{0, 0, BandOf<S, Bounds>::nothing()};

 public:
  SINTER_DEVICE TakesTiles(unsigned char* pointer, unsigned shared)
      : queue_{pointer + S::queue, shared + S::queue} {}

  template <class Args>
  SINTER_DEVICE int next(const Args&, int round) {
    queue_.pipe().wait(queue_.state(round));
    slot_ = queue_.template slot<S, Bounds>(round);
    // The producer writes the slot again when all warps have told its barrier. A lane tells it for
    // its warp, behind the reads of all lanes. (racecheck takes the arrival for that lane's alone
    // and names the other lanes' reads.)
    __syncwarp();
    queue_.pipe().release(queue_.state(round));
    return slot_.number;
  }
  template <class Args>
  SINTER_DEVICE BandOf<S, Bounds> band(const Args& args, const typename S::F::Coord& c,
                                       TileOfRows& tile) {
    if constexpr (MasksTiles<Bounds>) return BandOf<S, Bounds>(args, c);
    tile.row = slot_.row;
    return slot_.band;
  }
};

// What they have in shared memory besides.
template <class Bounds>
constexpr int bytes_of_tiles() {
  return CountsTiles<Bounds> ? TileQueue::bytes : SharesKeys<Bounds> ? ShareStart::bytes : 0;
}

template <class Config, class S, class Bounds>
SINTER_DEVICE auto tiles_of_producer(unsigned char* pointer, unsigned shared) {
  if constexpr (CountsTiles<Bounds>)
    return HandsOutTiles<Config, S, Bounds>(pointer, shared);
  else if constexpr (SharesKeys<Bounds>)
    return TilesOfShare<Config, S, Bounds>(
        *reinterpret_cast<const ShareStart*>(pointer + S::queue));
  else if constexpr (DividesKeys<Config>)
    return TileOfCluster<Config, S, Bounds>{};
  else
    return EveryTile<Config, S, Bounds>{};
}
template <class Config, class S, class Bounds>
SINTER_DEVICE auto tiles_of_consumers(unsigned char* pointer, unsigned shared) {
  if constexpr (CountsTiles<Bounds>)
    return TakesTiles<Config, S, Bounds>(pointer, shared);
  else
    return tiles_of_producer<Config, S, Bounds>(pointer, shared);
}

}  // namespace sinter::attention
