// Depthwise convolutions on tensor cores whose pixels TMA brings, on sm_90a: forward, and the data
// gradient, of stride 1. A row's pixels meet the bands of all rows of the filter
// (contraction_depthwise_bands.cuh).
//
// A stage is a box: a row of `image_line` pixels of each of the tiles' planes. What lies outside is
// zero. (A box for each plane, which ends where the image does, took longer: 64 x 384 x 28 x 28,
// 7 x 7 on an H100 43.6 us, one box 39.2.) Rows of neighbouring planes lie an odd number of times
// four lines apart, and a lane takes every fourth of a tile's pixels, so that half a warp finds its
// pixels in all 16-byte units of shared memory, two in each (it wants 8 bytes of a unit).
//
// Nothing stops a warp but its own need: a stage's barrier when pixels have come, and one barrier a
// step, at which a warp arrives when it has read the step's pixels and left its results, and for
// which it waits only after it has issued the next step's multiplications. Behind it a thread has
// TMA fill the stage again, and the row of results of the step before is stored. There is no warp
// that only loads: with one, each thread could have a third of the registers less.
//
// Config is that of contraction_depthwise_bands.cuh with `image_line`; Image has
// load(args, coordinates, to, barrier, channel, column, row), too.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/contraction_depthwise_bands.cuh"
#include "sinter/device/family/contraction_depthwise_boxes.cuh"

namespace sinter::depthwise {

// Where a block's parts lie in shared memory, from a multiple of 1024 on.
template <class Config>
struct BoxedBands {
  using B = Bands<Config>;
  static constexpr int units = B::lanes * B::each / 8, line = Config::image_line;
  static_assert(B::advance == 1 && B::Columns::step == 1 && B::pitch == 8 && B::planes > 1 &&
                line % 8 == 4 && line >= (B::across - 1) * B::pitch + B::depth);
  static constexpr int box_bytes = B::planes * line * Lines<units>::bytes,
                       stage = (box_bytes + 1023) / 1024 * 1024;
  static constexpr int results = Config::stages * stage, filter = results + 2 * B::results * 4,
                       barriers = filter + B::filter * 4;
  static_assert(barriers % 8 == 0);
};

// A warp's pixels of one row as left operands: lane 4 g + t has those of tiles g and g + 8.
template <class Config>
struct BoxedPixels {
  using B = Bands<Config>;
  using Vector = typename Word<B::bytes>::Type;
  unsigned at[B::each][4];

  template <class Lane>
  SINTER_DEVICE void load(const Lane& lane, int bytes) {
    // The second tile, in four lines.
    constexpr int tiles_on =
        B::planes > 8 ? 8 * Config::image_line / 4 : 8 / B::planes * B::pitch / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int fours = i % 2 * tiles_on + i / 2 * 2;
      const auto x = lane.template get<Vector>(fours, bytes),
                 y = lane.template get<Vector>(fours + 1, bytes);
#pragma unroll
      for (int w = 0; w < B::words; ++w) {
        at[2 * w][i] = warp_matrix::low_halves(word(x, w), word(y, w));
        at[2 * w + 1][i] = warp_matrix::high_halves(word(x, w), word(y, w));
      }
    }
  }

 private:
  static SINTER_DEVICE unsigned word(unsigned x, int) { return x; }
  static SINTER_DEVICE unsigned word(const uint2& x, int w) { return w == 0 ? x.x : x.y; }
};

template <class Config, class Image, class Filter, class Body>
struct BoxedWalk : BandWork<Config, Image, Filter, Body> {
  using Work = BandWork<Config, Image, Filter, Body>;
  using B = typename Work::B;
  using S = typename Work::S;
  using L = BoxedBands<Config>;
  static constexpr int each = B::each, lanes = B::lanes, sharing = 8 / each;  // warps of a unit
  using Work::bands, Work::filter, Work::finished, Work::first_channel, Work::results;
  SharedMemory memory;
  BandSteps<Config> ahead{0, 0};
  LaneLines<L::units> pixels_at{memory.pointer, 0, 0};
  float sums[B::slots][each][4];
  int warp, tile;
  int row = -1;  // of results, to be stored
  int turn = 0;  // the half of shared memory's results that the next row takes

  SINTER_DEVICE unsigned full(int stage) const {
    return memory.address + static_cast<unsigned>(L::barriers + 8 * stage);
  }
  SINTER_DEVICE unsigned passed() const { return full(Config::stages); }
  template <class Args>
  SINTER_DEVICE void bring(const Args& args, int stage) {
    if (threadIdx.x > 0 || !ahead.more()) return;
    typename S::Coord c;
    S::set_plane(c, Work::first_plane(ahead.group));
    hopper::arrive_and_expect(full(stage), L::box_bytes);
    Image::load(args, c, memory.address + static_cast<unsigned>(stage * L::stage), full(stage),
                first_channel, Work::first_tile(ahead.group) * B::pitch + B::first,
                ahead.block + B::new_row);
    ahead.next();
  }
  SINTER_DEVICE void multiply(int stage) {
    BoxedPixels<Config> pixels[1];
    pixels[0].load(pixels_at, stage * L::stage);
    Work::multiply(sums, pixels);
  }
  SINTER_DEVICE void clear() {
#pragma unroll
    for (int slot = 0; slot < B::slots; ++slot)
#pragma unroll
      for (int i = 0; i < each * 4; ++i) sums[slot][i / 4][i % 4] = 0;
  }
  SINTER_DEVICE void begin(int group) { this->aim_results(group); }
  template <class Args>
  SINTER_DEVICE void put_row(const Args&, int done) {
    this->put(results + turn * B::results + warp * each, tile, sums[0]);
    row = done;
    turn ^= 1;
  }
  template <class Args>
  SINTER_DEVICE void store_row(const Args& args) {
    if (row >= 0) finished.store(args, results + (turn ^ 1) * B::results, row);
    row = -1;
  }
  SINTER_DEVICE void before_arriving() const {}

  template <class Args>
  SINTER_DEVICE void run(const Args& args, int line, int last) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    tile = lane / 4;
    ahead = BandSteps<Config>(line, last);
    const BandSteps<Config> first = ahead;
    if (threadIdx.x == 0)
#pragma unroll 1
      for (int i = 0; i < Config::stages; ++i) bring(args, i);
    this->load_filter(args);
    __syncthreads();
    bands.load(filter, warp);
    pixels_at = LaneLines<L::units>(
        memory.pointer + warp % sharing * B::bytes,
        tile % B::planes * L::line + tile / B::planes * B::pitch + lane % 4, warp / sharing);
    clear();
    walk_boxes<Config>(*this, args, first);
  }
};

// A thread block has `run` rows of results of all groups, as in contraction_depthwise_mma.cuh.
template <class Config, class Image, class Filter, class Body, class Args>
SINTER_DEVICE void run_mma_boxes(const Args& args) {
  using Walk = BoxedWalk<Config, Image, Filter, Body>;
  using L = BoxedBands<Config>;
  Walk walk;
  walk.results = reinterpret_cast<float*>(walk.memory.pointer + L::results);
  walk.filter = reinterpret_cast<unsigned*>(walk.memory.pointer + L::filter);
  init_barriers<Config>(walk);
  __syncthreads();
  hardware::grid_dependency_wait();
  walk_rows<Config>(walk, args, walk.first_channel);
}

}  // namespace sinter::depthwise
