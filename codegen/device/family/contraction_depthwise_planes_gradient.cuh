// Filter gradients of depthwise convolutions whose images lie plane by plane, with whole planes of
// pixels and of the result's gradient in shared memory: contraction_depthwise_planes.cuh turned
// around, as contraction_depthwise_gradient.cuh is.
//
// A thread block has some channels of a batch entry, and takes its images tile by tile: a ring of
// `stages` tiles, which are filled while others are computed. Each thread has one part of one plane
// of a tile, the same of all tiles: a run of rows, `columns` wide, of a channel. It walks down this
// part, with the rows of the result's gradient that a row of pixels meets in registers, in f32, and
// its sums of all taps stay there for all tiles. At the end all sums lie in shared memory, where
// the tiles were, and those of a channel are added in the order of the threads.
//
// Config is that of contraction_depthwise_planes.cuh with `stages`, not along_columns.
#pragma once
#include "sinter/device/family/contraction_depthwise_gradient.cuh"
#include "sinter/device/family/contraction_depthwise_planes.cuh"

namespace sinter::depthwise {

template <class Config, class Gradient, class Image>
struct GradientTiles {
  using S = Shape<Config>;
  using Pixel = typename Image::Element;
  using Result = typename Gradient::Element;
  static_assert(S::lanes == 1 && S::each == 1 && S::of_group == 1 && S::looped_taps == 1 &&
                Config::rows == 1);
  static constexpr int unit = 16;  // bytes that are copied at once
  static constexpr int units = Config::units, images = Config::images, stages = Config::stages;
  static constexpr int across = S::extent_of(Config::Columns::pixel_index),
                       down = S::extent_of(Config::Rows::pixel_index), plane = down * across;
  // Bytes of a channel, and of an image's channels.
  static constexpr int of_pixels = Image::plane * static_cast<int>(sizeof(Pixel)),
                       of_results = plane * static_cast<int>(sizeof(Result));
  static constexpr int image_run = units * of_pixels, result_run = units * of_results,
                       results_at = (images * image_run + unit - 1) / unit * unit,
                       tile = results_at + (images * result_run + unit - 1) / unit * unit;
  static constexpr int unit_blocks = (S::all_channels + units - 1) / units;
  // Parts of a plane, each of a thread; sums of a thread, an odd number of words apart.
  static constexpr int parts = S::runs_down * S::blocks_across, items = images * units * parts,
                       sums = S::taps | 1;
  static_assert(items <= Config::threads);
  static constexpr int tiles_bytes = stages * tile, sums_bytes = Config::threads * sums * 4,
                       shared_bytes = tiles_bytes > sums_bytes ? tiles_bytes : sums_bytes;
};

// The most teams of whole warps, all alike, of which each has an image to copy.
constexpr SINTER_DEVICE int teams_of(int images, int warps) {
  int teams = 1;
  for (int n = 2; n <= images && n <= warps; ++n)
    if (warps % n == 0) teams = n;
  return teams;
}

// Copies `there` bytes of each image from `first` on to runs of `run` bytes; `at(image)`: where an
// image's begins. Runs begin and end at multiples of 16 bytes. Warps share out the images of a
// tile, where these are several: each finds few places, and all lanes have pieces.
template <int threads, int images, class At>
SINTER_DEVICE void copy_images(unsigned char* to, int run, int there, int first, int end,
                               const At& at) {
  constexpr int unit = 16, warps = threads / 32, teams = teams_of(images, warps),
                team = threads / teams;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int image = thread / team; image < images; image += teams) {
    if (first + image >= end) break;
    const auto* const from = reinterpret_cast<const unsigned char*>(at(first + image));
#pragma unroll 1
    for (int i = thread % team * unit; i < there; i += team * unit)
      copy_async<unit>(to + image * run + i, from + i);
  }
}

// Whether result `q` of a line that one part has whole meets a column of the image at tap `s`.
template <class Config>
constexpr SINTER_DEVICE bool meets_column(int q, int s) {
  using Columns = typename Config::Columns;
  if (Shape<Config>::blocks_across > 1) return true;
  const int at = Columns::base + Columns::step * q + Columns::apart * s;
  return at >= 0 && at < Columns::extent;
}

inline constexpr int kMostInTurn = 500;  // multiplications of a loop's body

// Adds to the sums of all taps what a part of a plane gives: `run` rows of results from `row` on,
// the columns from `column` on. Rows outside of the image, and those behind the part, are not
// loaded: threads of a warp are mostly of one mind. With few taps the loop's body is as many steps
// as rows are held, so that each has its registers, and none are moved.
template <class Config, class T>
SINTER_DEVICE void add_part(const typename T::Pixel* pixels, const typename T::Result* results,
                            int row, int column, int origin, float (&sums)[T::S::taps]) {
  using S = typename T::S;
  using Rows = typename Config::Rows;
  using Lines = PixelRows<Config, typename T::Pixel>;
  constexpr int pack = gradients_at_once<Config>(), columns = Config::columns,
                turns = S::slots * columns * S::taps <= kMostInTurn ? S::slots : 1;
  const int end = row + Config::run < T::down ? row + Config::run : T::down;
  int arriving = row, from = row * T::across + column;  // the row of results, and its place
  keep(from);
  float gradient[S::slots][columns] = {};
  const auto step = [&](int turn) {
    float(&last)[columns] = gradient[(S::slots - 1 + turn) % S::slots];
    if (arriving < end) {
#pragma unroll
      for (int q = 0; q < columns; q += pack) {
        Pack<typename T::Result, pack> some = {};
        if (T::across % columns == 0 || column + q < T::across) read_pack(results + from + q, some);
#pragma unroll
        for (int e = 0; e < pack; ++e) last[q + e] = get<float>(some, e);
      }
    } else {
#pragma unroll
      for (int q = 0; q < columns; ++q) last[q] = 0;
    }
    const int block = arriving - (S::slots - 1), at = block * S::advance + Lines::new_row;
    if (at + S::advance > 0 && at < Rows::extent) {
      Lines now;
      now.load(pixels, true, block, 0, origin);
      now.for_taps([&](int slot, int, int q, int tap, const auto& pixel) {
        if (meets_column<Config>(q, tap % Config::Columns::taps))
          sums[tap] = math::fma(pixel(0), gradient[(slot + turn) % S::slots][q], sums[tap]);
      });
    }
    ++arriving;
    from += T::across;
  };
#pragma unroll 1
  while (arriving < end + S::slots - 1) {
#pragma unroll
    for (int turn = 0; turn < turns; ++turn)
      if (turn == 0 || arriving < end + S::slots - 1) step(turn);
    if constexpr (turns == 1) {
#pragma unroll
      for (int slot = 0; slot + 1 < S::slots; ++slot)
#pragma unroll
        for (int q = 0; q < columns; ++q) gradient[slot][q] = gradient[slot + 1][q];
    }
  }
}

template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void run_planes_gradient(const Args& args) {
  using T = GradientTiles<Config, Gradient, Image>;
  using S = typename T::S;
  using P = typename S::P;
  using Index = typename Config::Index;
  hardware::grid_dependency_wait();
  static_assert(Config::shared_bytes == T::shared_bytes);
  unsigned char* const memory = reinterpret_cast<unsigned char*>(contraction::dynamic_floats());
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x),
            first_unit = block % T::unit_blocks * T::units,
            channels =
                S::all_channels - first_unit < T::units ? S::all_channels - first_unit : T::units,
            planes = static_cast<int>(P::product(P::first_k, Config::k - S::spatial));
  typename S::Coord batch;
  unravel<0, Config::batch - 1>(static_cast<Index>(block / T::unit_blocks), batch);
  S::set_channel(batch, first_unit);
  S::set_pixel(batch, 0, 0);
  const auto at_plane = [&](int plane) {
    typename S::Coord c = batch;
    unravel<P::first_k, Config::k - S::spatial>(static_cast<Index>(plane), c);
    return c;
  };
  const auto copy = [&](unsigned char* to, int first) {
    copy_images<Config::threads, T::images>(
        to, T::image_run, channels * T::of_pixels, first, planes,
        [&](int plane) { return image_at<Config, Image>(args, at_plane(plane)); });
    copy_images<Config::threads, T::images>(
        to + T::results_at, T::result_run, channels * T::of_results, first, planes, [&](int plane) {
          return Gradient::base(args) + locate<typename Gradient::Access>(at_plane(plane)).offset;
        });
    end_group_of_copies();
  };
#pragma unroll
  for (int s = 0; s < T::stages; ++s) copy(memory + s * T::tile, s * T::images);

  const int column = thread % S::blocks_across * Config::columns,
            row = thread / S::blocks_across % S::runs_down * Config::run,
            origin = Config::Columns::origin(batch, column);
  int plane = thread / T::parts;  // of a tile
  keep(plane);
  const int own = plane % T::units, image = plane / T::units;
  const bool has_part = thread < T::items && own < channels;
  float sums[S::taps] = {};
  int stage = 0;
#pragma unroll 1
  for (int first = 0; first < planes; first += T::images) {
    wait_for_groups_but<T::stages - 1>();
    __syncthreads();
    unsigned char* const here = memory + stage * T::tile;
    if (has_part && first + image < planes)
      add_part<Config, T>(
          reinterpret_cast<const typename T::Pixel*>(here) + plane * Image::plane,
          reinterpret_cast<const typename T::Result*>(here + T::results_at) + plane * T::plane, row,
          column, origin, sums);
    __syncthreads();
    copy(here, first + T::stages * T::images);
    stage = stage + 1 == T::stages ? 0 : stage + 1;
  }
  // No copy is in flight: those behind the last plane are none.
  float* const totals = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int t = 0; t < S::taps; ++t) totals[thread * T::sums + t] = sums[t];
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < channels * S::taps; i += Config::threads) {
    const int channel = i / S::taps, tap = i % S::taps;
    float sum[1] = {0};
#pragma unroll 1
    for (int of = 0; of < T::images; ++of)
#pragma unroll 1
      for (int part = 0; part < T::parts; ++part)
        sum[0] += totals[((of * T::units + channel) * T::parts + part) * T::sums + tap];
    typename S::Coord c = batch;
    S::set_channel(c, first_unit + channel);
    S::set_taps(typename Config::Looped{}, c, 0, tap);
    if (sum[0] != sum[0]) sum[0] = gradient_alone<Config, Gradient, Image>(args, c);
    finish<Config, Body, S::beside_each>(args, c, sum);
  }
}

}  // namespace sinter::depthwise
