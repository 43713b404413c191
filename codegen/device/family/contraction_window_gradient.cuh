// The filter gradient of a convolution of stride 1 on the tensor cores of sm_90a, whose pixels stay
// in shared memory while all taps are multiplied.
//
// k runs over the pixels in the order of contraction_window_resident.cuh, with the zeros beside the
// image: there a tap of the filter is a constant number of lines, so that B of every tap is the
// same lines of shared memory from another one on. The result's gradient (A) is walked over in the
// same order, with zeros where there is no result. A tile has 64 rows and, of 64 channels, the
// columns of all taps; each consumer multiplies the same rows with some of the taps. What a tap
// would load again comes from the cache once.
//
// Neighbouring taps of a row are one product: their channels are panels of B that begin a line, or
// a dilation, apart. 64 rows and 192 columns read 85 bytes of shared memory a clock, 64 and 64 all
// 128 that there are.
//
// Stages may be blocks of the image, 8 pixels wide, as in contraction_window_resident.cuh.
//
// Of more taps than a tile has sums for, the rows of the filter are batch entries: TMA moves the
// pixels of a stage by the row's offset.
//
// Columns are numbered by lines of 64 channels, then taps, then channels (Config::Extent), so that
// a tile's lie side by side.
#pragma once
#include "sinter/device/family/contraction_wgmma.cuh"
#include "sinter/device/family/contraction_window.cuh"

namespace sinter::contraction {

template <class Config>
struct GradientShape {
  using S = Shape<Config>;
  using W = typename Config::Window;
  static constexpr int line = S::step;  // channels, and pixels of a stage
  static constexpr int taps = W::all_taps, taps_each = Config::taps_each;
  static_assert(Config::tile_n == taps * line && Config::tile_m == 64 && S::cluster == 1);
  static_assert(taps_each * S::consumers >= taps);
  // Taps of one product: neighbours, whose pixels begin as many lines apart each.
  static constexpr int together = Config::taps_together, sets = taps_each / together,
                       apart = together > 1 ? W::shift(1) - W::shift(0) : 0;
  static_assert(together == 1 ||
                (taps_each % together == 0 && taps_each * S::consumers == taps && apart > 0));
  template <int set>
  using Sums = NamedAccumulator<float, line * together, set>;
  static constexpr int pixels = W::kept(line);
  static constexpr int stage_bytes = S::a_bytes + (pixels * S::line + 1023) / 1024 * 1024;

  // Shared memory, from a multiple of 1024 on.
  static constexpr int epilogue_tiles = Config::stages * stage_bytes,
                       barriers = epilogue_tiles +
                                  S::consumers * 4 * static_cast<int>(sizeof(EpilogueTile));
  using Stages = Pipeline<Config::stages>;
};

template <class Config, class A, class B, class Args>
SINTER_DEVICE void produce_gradient(const Args& args, unsigned shared) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  using G = GradientShape<Config>;
  const typename G::Stages pipeline{shared + G::barriers};
  typename G::Stages::State state;
  for (TileWalk<Config, AllRows> walk(AllRows{}); walk.more(); walk.advance()) {
    const TileCoord<Config> place = walk.place(0);
    typename P::Coord c;
    P::set_batch(c, place.batch);
    const int channel = place.column / Config::tile_n * G::line, steps = S::steps(place.batch);
#pragma unroll 1
    for (int step = 0; step < steps; ++step, state.advance()) {
      const unsigned stage = shared + state.stage * G::stage_bytes, full = pipeline.full(state);
      pipeline.acquire(state);
      pipeline.expect(state, S::a_bytes + G::pixels * S::line);
      A::load(args, c, place.row, step * G::line, stage, full, 0);
      B::load(args, c, channel, step * G::line, stage + S::a_bytes, full, 0);
    }
  }
}

template <class Config, class A, class B, class Body, class Args>
SINTER_DEVICE void consume_gradient(const Args& args, unsigned char* memory, unsigned shared,
                                    int consumer) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  using G = GradientShape<Config>;
  using TileA = StageTile<A, Config::tile_m>;
  using TileB = SharedTile<typename B::Number, Major::mn, G::line * G::together, G::line, S::line,
                           G::W::eight_pitch, G::apart>;
  using Product = Mma<sinter::Shape<64, G::line * G::together>,
                      Types<typename A::Number, typename B::Number, float>, TileA, TileB>;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  EpilogueTile& epilogue_tile =
      reinterpret_cast<EpilogueTile*>(memory + G::epilogue_tiles)[consumer * 4 + warp];
  const typename G::Stages pipeline{shared + G::barriers};
  typename G::Stages::State state;
  const unsigned long long a = TileA::descriptor(shared),
                           b = TileB::descriptor(shared + S::a_bytes);
  const int first_tap = consumer * G::taps_each,
            own = G::taps - first_tap < G::taps_each ? G::taps - first_tap : G::taps_each;
  int from[G::sets];  // where the products' pixels start, in units of 16 bytes
#pragma unroll
  for (int i = 0; i < G::sets; ++i) {
    const int t = i * G::together;
    from[i] = t < own ? Config::Window::shift(first_tap + t) * (S::line / 16) : 0;
  }
  const EpilogueTile::Fragment fragment;
  for (TileWalk<Config, AllRows> walk(AllRows{}); walk.more(); walk.advance()) {
    const TileCoord<Config> place = walk.place(0);
    const int steps = S::steps(place.batch);
    int previous = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int offset = state.stage * (G::stage_bytes / 16);
      pipeline.wait(state);
      wgmma::fence();
      for_each_number<G::sets>([&]<int set>() {
        if (G::taps_each * S::consumers == G::taps || set < own)
          Product::multiply(typename G::template Sums<set>{}, a + offset, b + offset + from[set],
                            step > 0);
      });
      wgmma::commit();
      wgmma::wait<1>();
      if (step > 0) pipeline.release_stage(previous);
      previous = state.stage;
      state.advance();
    }
    wgmma::wait<0>();
    pipeline.release_stage(previous);
#pragma unroll 1
    for (int t = 0; t < own; ++t) {
      for_each_number<G::taps_each>([&]<int number>() {
        constexpr int first = number % G::together * G::line / 2;
        if (t == number)
          typename G::template Sums<number / G::together>{}
              .template store<first, G::line / 8, 8 * EpilogueTile::columns>(epilogue_tile.at,
                                                                             fragment.at);
      });
      __syncwarp();
      EpilogueCoord<Config> at;
      P::set_batch(at.batch, place.batch);
      at.row = place.row + warp * 16;
      at.column = place.column + (first_tap + t) * G::line;
      at.row_end = place.row_end;
      at.column_end = P::columns;
      finish<Config, Body>(args, epilogue_tile, at, AllRows{});
      __syncwarp();
    }
  }
}

// The whole kernel.
template <class Config, class A, class B, class Body, class Args>
SINTER_DEVICE void run_filter_gradient(const Args& args) {
  using G = GradientShape<Config>;
  for_each_number<G::sets>([]<int set>() { G::template Sums<set>::declare(); });
  static_assert(Config::shared_bytes == G::barriers + G::Stages::bytes + SharedMemory::lost);
  const SharedMemory all;
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    A::prefetch(args);
    B::prefetch(args);
    typename G::Stages{all.address + G::barriers}.init(1, Shape<Config>::consumers * 4);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    if (threadIdx.x == 0) produce_gradient<Config, A, B>(args, all.address);
    __syncwarp();
  } else {
    hopper::take_registers<Config::consumer_registers>();
    consume_gradient<Config, A, B, Body>(args, all.pointer, all.address, warpgroup - 1);
  }
}

}  // namespace sinter::contraction
