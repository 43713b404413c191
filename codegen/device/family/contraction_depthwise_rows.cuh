// Depthwise convolutions on CUDA cores whose pixels TMA brings, on sm_90a: forward, and the
// data gradient, of 16-bit numbers. The walk is that of contraction_depthwise.cuh.
//
// A thread block has `across` blocks of results side by side, of `planes` images, and walks down
// them. A stage is a box: the rows of the image that come with a step, of all of the thread block's
// channels, pixels and images, as they lie in memory; what lies outside is zero. A warp that does
// nothing else has the stages filled. Bytes are in flight without a register that waits for them,
// each pixel comes once from memory and not from the first-level cache for each neighbour, and a
// thread keeps nothing but its sums and factors: as many threads run as instructions need to be
// issued without a pause. (128 x 144 x 56 x 56, 3 x 3 on an H200: 83 us with loads to registers, 12
// warps an SM.)
//
// Of volumes a stage has a box of each frame that the results of one see (`Looped`), which threads
// take one after another. A frame comes once for each of these, but from the second-level cache.
//
// Config is that of contraction_depthwise.cuh with `across`, `planes`, `stages` and `image_line`,
// the pixels of a box's row; each = 2. Image::load as in contraction_depthwise_mma_boxes.cuh.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/contraction_depthwise.cuh"

namespace sinter::depthwise {

template <class Config, class Element>
struct RowTiles {
  using S = Shape<Config>;
  using Columns = typename Config::Columns;
  using Pixels = PixelRows<Config, Element>;
  using Line = PixelRow<Config, Element>;
  static constexpr int across = Config::across, planes = Config::planes,
                       workers = S::lanes * across * planes, warps = (workers + 31) / 32;
  static constexpr int frames = S::looped_taps;
  static_assert(Config::threads == 32 * warps + 32 && (frames == 1 || planes == 1));
  // Pixels from one block of results to the next.
  static constexpr int pitch =
      Columns::divisor > 1 ? Config::columns / Columns::divisor : Config::columns* Columns::step;
  static_assert(Config::image_line == (across - 1) * pitch + Line::count);
  static constexpr int row = Config::image_line * S::channels,  // elements
      plane = row * S::advance, box_bytes = planes * plane * static_cast<int>(sizeof(Element)),
                       frame_bytes = (box_bytes + 127) / 128 * 128,
                       stage_bytes = frames * frame_bytes;
  static constexpr int filter = Config::stages * stage_bytes,
                       barriers = (filter + frames * S::taps * S::channels * 4 + 7) / 8 * 8;
  static constexpr int strips = (S::blocks_across + across - 1) / across;
  using Pipe = Pipeline<Config::stages>;
};

// The looped tap's coordinate of the image in place of the result's.
template <class... Axes, class Coord>
SINTER_DEVICE void move_to_tap(List<Axes...>, Coord& c, int tap) {
  static_assert(sizeof...(Axes) <= 1 && ((Axes::divisor == 1) && ...));
  ((c.at[Axes::pixel_index] =
        Axes::base + Axes::step * static_cast<int>(c.at[Axes::pixel_index]) + Axes::apart * tap),
   ...);
}

template <class Config, class Image, class Filter, class Body, class Args>
SINTER_DEVICE void run_rows(const Args& args) {
  using Element = typename Image::Element;
  using T = RowTiles<Config, Element>;
  using S = typename T::S;
  using Columns = typename Config::Columns;
  static_assert(Config::shared_bytes == T::barriers + T::Pipe::bytes + SharedMemory::lost);
  const SharedMemory memory;
  const typename T::Pipe pipe{memory.address + T::barriers};
  float* const filter = reinterpret_cast<float*>(memory.pointer + T::filter);
  const int thread = static_cast<int>(threadIdx.x), warp = __shfl_sync(~0u, thread / 32, 0);
  int block = static_cast<int>(blockIdx.x);
  const int first_channel = block % S::channel_blocks * S::channels;
  block /= S::channel_blocks;
  const int strip = block % T::strips;
  block /= T::strips;
  const int first_block = block % S::runs_down * Config::run,
            first_plane = block / S::runs_down * T::planes;
  const int end = first_block + Config::run < S::blocks_down ? first_block + Config::run
                                                             : S::blocks_down,
            begin = first_block - (S::slots - 1);
  if (thread == 0) {
    pipe.init(1, T::warps);
    hopper::barriers_are_ready();
  }
  hardware::grid_dependency_wait();
  load_factors<Config, Filter>(args, filter, first_channel);
  __syncthreads();
  typename T::Pipe::State state;
  if (warp == T::warps) {
    if (thread % 32 > 0) return;
    typename S::Coord c;
    S::set_plane(c, first_plane);
    const int column = Columns::origin(c, strip * T::across * Config::columns) + T::Line::first;
#pragma unroll 1
    for (int b = begin; b < end; ++b) {
      pipe.acquire(state);
      pipe.expect(state, T::frames * T::box_bytes);
#pragma unroll
      for (int frame = 0; frame < T::frames; ++frame) {
        typename S::Coord at = c;
        move_to_tap(typename Config::Looped{}, at, frame);
        Image::load(args, at,
                    memory.address + static_cast<unsigned>(state.stage * T::stage_bytes +
                                                           frame * T::frame_bytes),
                    pipe.full(state), first_channel, column, b * S::advance + T::Pixels::new_row);
      }
      state.advance();
    }
    return;
  }

  // Threads without results of their own repeat those of the first ones, and store nothing.
  const int item = thread < T::workers ? thread : 0, own = item % S::lanes * S::each,
            beside = item / S::lanes % T::across, plane = item / (S::lanes * T::across),
            column = (strip * T::across + beside) * Config::columns;
  const bool exists = thread < T::workers && first_plane + plane < S::planes() &&
                      first_channel + own < S::all_channels &&
                      column < S::extent_of(Columns::pixel_index);
  typename S::Coord c;
  S::set_plane(c, exists ? first_plane + plane : 0);
  c.at[Config::channel] = first_channel + own;
  BlockSums<Config> sums;
  sums.set_factors(filter + own);
  const auto* const pixels_at = reinterpret_cast<const Element*>(memory.pointer) +
                                plane * T::plane + beside * T::pitch * S::channels + own;
#pragma unroll 1
  for (int b = begin; b < end; ++b) {
    pipe.wait(state);
    const auto* const stage =
        pixels_at + state.stage * (T::stage_bytes / static_cast<int>(sizeof(Element)));
    typename T::Pixels pixels;
    const auto take = [&](const Element* frame) {
#pragma unroll
      for (int j = 0; j < S::advance; ++j) pixels.row[j].take(frame + j * T::row, S::channels);
    };
    take(stage);
    if constexpr (T::frames > 1) sums.set_factors(filter + own);
    sums.move_up_and_add(pixels);
#pragma unroll 1
    for (int frame = 1; frame < T::frames; ++frame) {
      take(stage + frame * (T::frame_bytes / static_cast<int>(sizeof(Element))));
      sums.set_factors(filter + frame * S::taps * S::channels + own);
      sums.add(pixels);
    }
    __syncwarp();
    pipe.release(state);
    state.advance();
    if (exists && b >= first_block) sums.template store<Body>(args, c, b, column);
  }
}

}  // namespace sinter::depthwise
