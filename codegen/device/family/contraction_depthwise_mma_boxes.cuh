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
// Warps have roles, as in contraction_wgmma.cuh. `lanes` of them multiply and leave rows of sums in
// shared memory; of the last four one has stages filled and three store finished rows. What is
// between them are rings, so that each waits for its own need alone: with one barrier a step for
// all warps, they waited for pixels, multiplications and stores one after the other. Registers move
// to those that multiply.
//
// Config is that of contraction_depthwise_bands.cuh with `image_line`, `result_rows` that may be in
// shared memory at once, and registers of both kinds of warps; Image has load(args, coordinates,
// to, barrier, channel, column, row), too.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
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
  using Stages = Pipeline<Config::stages>;
  using Rows = Pipeline<Config::result_rows>;
  static constexpr int results = Config::stages * stage,
                       filter = results + Rows::stages * B::results * 4,
                       barriers = filter + B::filter * 4;
  static_assert(barriers % 8 == 0);
};

// A warp's pixels of one row as left operands: lane 4 g + t has those of tiles g and g + 8.
template <class Config>
struct BoxedPixels {
  using B = Bands<Config>;
  using Vector = typename Word<B::bytes>::Type;
  unsigned at[B::each][4];

  // `zero`: which the compiler does not know; so a register that is the same as another one is not
  // copied for each multiplication, whose left operand is four registers in a row.
  template <class Lane>
  SINTER_DEVICE void load(const Lane& lane, int bytes, unsigned zero) {
    // A tile's second half is its neighbour's first, but where tiles have none.
    constexpr bool shared = B::across > 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (shared && i == 2) {
#pragma unroll
        for (int e = 0; e < B::each; ++e) at[e][2] = at[e][1] | zero;
        continue;
      }
      const int fours = i / 2 * 2 + i % 2 * (shared ? B::pitch / 4 : 8 * Config::image_line / 4);
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
  typename L::Stages stages{memory.address + L::barriers};
  typename L::Rows rows{stages.barriers + L::Stages::bytes};

  template <class Args>
  SINTER_DEVICE void bring(const Args& args, typename L::Stages::State& state,
                           BandSteps<Config>& ahead) const {
    typename S::Coord c;
    S::set_plane(c, Work::first_plane(ahead.group));
    stages.acquire(state);
    stages.expect(state, L::box_bytes);
    Image::load(args, c, memory.address + static_cast<unsigned>(state.stage * L::stage),
                stages.full(state), first_channel,
                Work::first_tile(ahead.group) * B::pitch + B::first, ahead.block + B::new_row);
    state.advance();
    ahead.next();
  }
  SINTER_DEVICE void multiply_rows(int warp, BandSteps<Config> now) {
    const int lane = static_cast<int>(threadIdx.x) % 32, tile = lane / 4;
    const LaneLines<L::units> pixels_at(
        memory.pointer + warp % sharing * B::bytes,
        B::plane_of(tile) * L::line + B::position_of(tile) * B::pitch + lane % 4, warp / sharing);
    float* const put_at = results + warp * each;
    const unsigned zero = filter[S::taps * lanes * B::words];
    float sums[B::slots][each][4] = {};
    typename L::Stages::State stage;
    typename L::Rows::State row;
#pragma unroll 1
    while (now.more()) {
      stages.wait(stage);
      BoxedPixels<Config> pixels[1];
      pixels[0].load(pixels_at, stage.stage * L::stage, zero);
      __syncwarp();
      stages.release(stage);
      stage.advance();
      Work::multiply(sums, pixels);
      if (now.block >= now.first) {
        rows.acquire(row);
        this->put(put_at + row.stage * B::results, tile, sums[0]);
        __syncwarp();
        if (lane == 0) hopper::arrive(rows.full(row));
        row.advance();
      }
      if (now.next()) {
        keep(stage.stage);  // makes this a branch, not a choice for each sum in every step
#pragma unroll
        for (int slot = 0; slot < B::slots; ++slot)
#pragma unroll
          for (int i = 0; i < each * 4; ++i) sums[slot][i / 4][i % 4] = 0;
      }
    }
  }
  template <class Args>
  SINTER_DEVICE void store_rows(const Args& args, int thread, BandSteps<Config> now) {
    typename L::Rows::State row;
#pragma unroll 1
    for (; now.more(); now.next()) {
      if (now.begins()) this->aim_results(thread, now.group);
      if (now.block < now.first) continue;
      rows.wait(row);
      finished.store(args, results + row.stage * B::results, now.block);
      __syncwarp();
      rows.release(row);
      row.advance();
    }
  }

  template <class Args>
  SINTER_DEVICE void run(const Args& args, int line, int last) {
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    constexpr int loading = Config::threads / 32 - 1;
    const bool loads = static_cast<int>(threadIdx.x) == 32 * loading;
    typename L::Stages::State state;
    BandSteps<Config> steps(line, last);
    if (loads)
#pragma unroll 1
      for (int i = 0; i < Config::stages && steps.more(); ++i) bring(args, state, steps);
    this->load_filter(args);
    __syncthreads();
    if (warp >= lanes) {
      hopper::keep_registers<Config::producer_registers>();
      if (warp < loading)
        store_rows(args, static_cast<int>(threadIdx.x) - 32 * lanes, steps);
      else if (loads)
#pragma unroll 1
        while (steps.more()) bring(args, state, steps);
    } else {
      hopper::take_registers<Config::consumer_registers>();
      bands.load(filter, warp);
      multiply_rows(warp, steps);
    }
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
  if (threadIdx.x == 0) {
    walk.stages.init(1, Walk::lanes);
    walk.rows.init(Walk::lanes, Walk::B::storing / 32);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  walk_rows<Config>(walk, args, walk.first_channel);
}

}  // namespace sinter::depthwise
