// A convolution on the tensor cores of sm_90a whose pixels stay in shared memory while all taps of
// the filter are multiplied.
//
// The image is walked in lines of 128 bytes of channels, one a pixel, with the zeros beside it: a
// row of pixels is followed by as many zeros as the next row's taps reach back over, and rows of an
// image by such rows. In that order a tap of the filter is a constant number of lines, so that the
// pixels of every tap are the same lines of shared memory from another one on. (The swizzle goes by
// addresses: wgmma reads what begins at any line, with a base offset of 0 in the descriptor; seen
// on an H200 for A with k fastest and B with n fastest.) Of a tile's pixels each comes from the
// cache once, and not once for each tap: 2 to 4 times fewer bytes, which is what costs power.
//
// Results at the zeros are computed, too, and left out (Config::Bounds).
//
// With strides the image falls into planes of every so many-th pixel of each dim. A tap sees the
// pixels of one plane, of which it is a convolution of stride 1: planes come to shared memory one
// after another, each with its taps.
//
// With Config::swap_products 64 columns of the filter are the left operand of products of up to 256
// pixels: those of 64 rows and 64 columns read as many bytes of shared memory a clock as there are,
// and what TMA writes and the epilogue moves comes on top.
//
// Tiles may be blocks of the image, which TMA brings as boxes: where only rows have taps, a tile of
// 16 x 16 pixels and 4 taps takes 304 lines, where 256 that lie one behind another in an image of
// 112 columns take 592. Where columns have taps, too, blocks are 8 pixels wide: eight rows of an
// operand lie one behind another, and the next eight a constant number of lines further. 8 x 32
// pixels and 3 x 3 taps are 340 lines, of an image of 256 columns 770.
//
// A filter that the ring has room for is loaded once, and stays for all tiles of the block.
//
// There are two rings of stages: of pixels, a line of channels each, and of the filter, a tap and a
// line of channels each. All else is as in contraction_wgmma.cuh.
#pragma once
#include "sinter/device/family/contraction_store_swapped.cuh"
#include "sinter/device/family/contraction_wgmma.cuh"
#include "sinter/device/family/contraction_window.cuh"

namespace sinter::contraction {

inline constexpr int kTapBytes = 8;  // of TapOrder, a tap

template <class Config>
struct WindowShape {
  using S = Shape<Config>;
  using W = typename Config::Window;
  static_assert(Config::split == 1 && Config::cluster_n == 1 && !W::phased && W::taps_in_k);
  static constexpr int pixels = W::kept(Config::tile_m);
  static constexpr int pixel_bytes = (pixels * S::line + 1023) / 1024 * 1024;  // of a stage
  static constexpr int steps = W::all_taps * W::lines, pixel_steps = W::planes * W::lines;
  static constexpr bool filter_stays =
      steps <= Config::stages && S::tiles_n == 1 && S::P::batches == 1;

  // Shared memory, from a multiple of 1024 on.
  static constexpr int filter = Config::window_stages * pixel_bytes,
                       epilogue_tiles = filter + Config::stages * S::b_bytes,
                       pixel_barriers = epilogue_tiles +
                                        S::consumers * 4 * static_cast<int>(sizeof(EpilogueTile)),
                       filter_barriers = pixel_barriers + Config::window_stages * 16,
                       order = filter_barriers + Config::stages * 16,
                       end = order + (W::planes > 1 ? W::all_taps * kTapBytes : 0);
  using Pixels = Pipeline<Config::window_stages>;
  using Filter = Pipeline<Config::stages, S::neighbours>;
};

// The taps in the order in which they are multiplied: those of a plane lie together.
template <class W, bool ordered = (W::planes > 1)>
struct TapOrder {  // one plane
  SINTER_DEVICE explicit TapOrder(unsigned char*) {}
  template <int threads>
  SINTER_DEVICE void write() const {}
  SINTER_DEVICE int tap(int i) const { return i; }
  SINTER_DEVICE int shift(int i) const { return W::shift(i); }
  SINTER_DEVICE int end(int) const { return W::all_taps; }  // of the plane that begins there
};
template <class W>
struct TapOrder<W, true> {
  struct Tap {
    short tap, end;
    int shift;
  };
  static_assert(sizeof(Tap) == kTapBytes);
  Tap* at;

  SINTER_DEVICE explicit TapOrder(unsigned char* memory) : at(reinterpret_cast<Tap*>(memory)) {}
  template <int threads>
  SINTER_DEVICE void write() const {
    for (int tap = static_cast<int>(threadIdx.x); tap < W::all_taps; tap += threads) {
      int before = 0, end = 0;
#pragma unroll 1
      for (int other = 0; other < W::all_taps; ++other) {
        const int apart = W::plane(other) - W::plane(tap);
        before += apart < 0 || (apart == 0 && other < tap);
        end += apart <= 0;
      }
      at[before] = {static_cast<short>(tap), static_cast<short>(end), W::shift(tap)};
    }
  }
  SINTER_DEVICE int tap(int i) const { return at[i].tap; }
  SINTER_DEVICE int shift(int i) const { return at[i].shift; }
  SINTER_DEVICE int end(int i) const { return at[i].end; }
};

template <class Config, class A, class B, class Args>
SINTER_DEVICE void produce_window(const Args& args, unsigned char* memory, unsigned shared,
                                  int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  using R = WindowShape<Config>;
  using W = typename Config::Window;
  const typename R::Pixels pixels{shared + R::pixel_barriers};
  const typename R::Filter filter{shared + R::filter_barriers};
  const TapOrder<W> order(memory + R::order);
  typename R::Pixels::State pixel_state;
  typename R::Filter::State filter_state;
  bool first_tile = true;
  for (TileWalk<Config, AllRows> walk(AllRows{}); walk.more(); walk.advance(), first_tile = false) {
    const TileCoord<Config> place = walk.place(rank);
    typename P::Coord c;
    P::set_batch(c, place.batch);
#pragma unroll 1
    for (int line = 0; line < W::lines; ++line) {
      const auto k = [&](int i) { return (order.tap(i) * W::lines + line) * S::step; };
#pragma unroll 1
      for (int i = 0; i < W::all_taps; pixel_state.advance()) {
        const int end = order.end(i);
        pixels.acquire(pixel_state);
        pixels.expect(pixel_state, R::pixels * S::line);
        A::load(args, c, place.row, k(i), shared + pixel_state.stage * R::pixel_bytes,
                pixels.full(pixel_state), 0);
        if (R::filter_stays && !first_tile) i = end;
#pragma unroll 1
        for (; i < end; ++i, filter_state.advance()) {
          const unsigned full = filter.full(filter_state);
          filter.acquire(filter_state);
          filter.expect(filter_state, S::b_bytes);
          ColumnBoxes<Config, B>::load_at(args, c, place.column, k(i), rank,
                                          shared + R::filter + filter_state.stage * S::b_bytes,
                                          full);
        }
      }
    }
  }
}

template <class Config, class A, class B, class Body, class Args>
SINTER_DEVICE void consume_window(const Args& args, unsigned char* memory, unsigned shared,
                                  int consumer, int rank) {
  using S = Shape<Config>;
  using R = WindowShape<Config>;
  using W = typename Config::Window;
  using TileA =
      SharedTile<typename A::Number, Major::k, Config::tile_m, S::step, S::line, W::eight_pitch>;
  using TileB = StageTile<B, S::loaded_columns>;
  using Product =
      Mma<sinter::Shape<64, Config::tile_n>,
          Types<typename A::Number, typename B::Number, typename Config::Sum>, TileA, TileB>;
  using Swapped =
      Mma<sinter::Shape<64, S::rows>,
          Types<typename B::Number, typename A::Number, typename Config::Sum>, TileB, TileA>;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int first_row = Config::alternate ? 0 : consumer * S::rows;
  EpilogueTile* const epilogue_tiles =
      reinterpret_cast<EpilogueTile*>(memory + R::epilogue_tiles) + consumer * 4;
  const typename R::Pixels pixels{shared + R::pixel_barriers};
  const typename R::Filter filter{shared + R::filter_barriers};
  const TapOrder<W> order(memory + R::order);
  typename R::Pixels::State pixel_state;
  typename R::Filter::State filter_state;
  const unsigned long long a = TileA::descriptor(shared + TileA::further(first_row)),
                           b = TileB::descriptor(shared + R::filter);
  int number = 0;  // of the block's tile
  TileWalk<Config, AllRows> walk{AllRows{}}, next = walk;
  for (; walk.more(); walk = next, ++number) {
    next.advance();
    if (Config::alternate && number % S::consumers != consumer) {
      pixel_state.skip(R::pixel_steps);
      filter_state.skip(R::steps);
      continue;
    }
    const TileCoord<Config> place = walk.place(rank);
    if constexpr (Config::prefetch) {
      EpilogueCoord<Config> own = epilogue_place(place, first_row, 0);
      own.row += (S::rows / 4 - 16) * warp;
      prefetch_tile<Config, Body, S::rows / 4, S::columns>(args, own, AllRows{});
    }
    if (Config::alternate && number > 0) wait_for_turn(consumer);
    if constexpr (R::filter_stays) filter_state = {};  // nobody fills a stage again
    int previous_pixels = 0, previous_filter = 0;
#pragma unroll 1
    for (int line = 0; line < W::lines; ++line) {
#pragma unroll 1
      for (int first = 0, end; first < W::all_taps; first = end) {
        const int of_pixels = pixel_state.stage * (R::pixel_bytes / 16);
        end = order.end(first);
        pixels.wait(pixel_state);
#pragma unroll 1
        for (int i = first; i < end; ++i) {
          const int from = of_pixels + order.shift(i) * (S::line / 16),
                    of_filter = filter_state.stage * (S::b_bytes / 16);
          filter.wait(filter_state);
          wgmma::fence();
          S::with_steps(line, [&]<int steps>() {
            if constexpr (SwapsProducts<Config>)
              Swapped::template multiply<steps>(Sums<Config, 0>{}, b + of_filter, a + from,
                                                line + i > 0);
            else
              for_each_number<S::blocks>([&]<int block>() {
                Product::template multiply<steps>(Sums<Config, block>{},
                                                  a + from + TileA::further(block * 64) / 16,
                                                  b + of_filter, line + i > 0);
              });
            wgmma::commit();
          });
          wgmma::wait<1>();
          if (!R::filter_stays && line + i > 0) filter.release_stage(previous_filter);
          if (i == first && line + first > 0) pixels.release_stage(previous_pixels);
          previous_filter = filter_state.stage;
          filter_state.advance();
        }
        previous_pixels = pixel_state.stage;
        pixel_state.advance();
      }
    }
    if (Config::alternate && next.more()) give_turn(consumer);
    wgmma::wait<0>();
    if constexpr (!R::filter_stays) filter.release_stage(previous_filter);
    pixels.release_stage(previous_pixels);
    if constexpr (SwapsProducts<Config>)
      store_rows_swapped<Config, Body>(args, place, first_row, epilogue_tiles, consumer);
    else if constexpr (StoresRows<Body>)
      store_rows<Config, Body>(args, place, first_row, epilogue_tiles[warp]);
    else
      finish_tile<Config, Body>(args, AllRows{}, place, first_row, epilogue_tiles[warp]);
  }
}

// The whole kernel.
template <class Config, class A, class B, class Body, class Args>
SINTER_DEVICE void run_window(const Args& args) {
  using S = Shape<Config>;
  using R = WindowShape<Config>;
  TileSums<Config>::declare();
  static_assert(Config::shared_bytes == R::end + SharedMemory::lost);
  const SharedMemory all;
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const int rank = S::cluster > 1 ? hardware::cluster_rank() : 0;
  if (threadIdx.x == 0) {
    A::prefetch(args);
    B::prefetch(args);
    typename R::Pixels{all.address + R::pixel_barriers}.init(1, S::sharing * 4);
    typename R::Filter{all.address + R::filter_barriers}.init(1, S::sharing * 4);
    hopper::barriers_are_ready();
  }
  TapOrder<typename Config::Window>(all.pointer + R::order).template write<Config::threads>();
  if constexpr (S::cluster > 1)
    hardware::cluster_barrier();
  else
    __syncthreads();
  hardware::grid_dependency_wait();
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    if (threadIdx.x == 0) produce_window<Config, A, B>(args, all.pointer, all.address, rank);
    __syncwarp();
  } else {
    hopper::take_registers<Config::consumer_registers>();
    consume_window<Config, A, B, Body>(args, all.pointer, all.address, warpgroup - 1, rank);
  }
  if constexpr (S::cluster > 1) hardware::cluster_barrier();
}

}  // namespace sinter::contraction
