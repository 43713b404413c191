// Depthwise convolutions and those in narrow groups on CUDA cores whose images lie plane by
// plane (channels first): forward, and the data gradient. The walk is that of
// contraction_depthwise.cuh.
//
// Rows of such images are short and begin anywhere: 7 pixels of bf16 are 14 bytes. Threads that
// load their pixels one by one, and store results so, wait for memory at each and move sectors of
// 32 bytes for two. But the planes of neighbouring channels are one run of memory. A thread block
// copies whole planes of `units` channels (or groups), of `images` images, to shared memory as they
// lie, 16 bytes at a time. Its threads read their pixels there, and leave results there, so that
// these, too, leave in runs. So a pixel comes from memory once, however many results see it.
//
// Where results are the sums, or what becomes of them by numbers of their channel alone, they wait
// in shared memory in their own type, as a run of memory, and leave 16 bytes at a time (Result).
// So they do where the epilogue reads one tensor of their shape and size (Beside): its planes are
// copied to where the results will wait, and each result takes the place of the number that it was
// computed with. Else sums of f32 wait there, and the epilogue takes them in packs along a line.
//
// Config is that of contraction_depthwise.cuh with lanes = each = 1, along_columns, and
//
//   units, images            channels or groups, and images, of a thread block
//
// Thread blocks of several tiles, of which the next is copied while one is computed, gained
// nothing: several blocks are on an SM. (256 x 960 x 7 x 7, 3 x 3 on an H200: 23.2 us, with four
// tiles 23.3; 128 x 512 x 14 x 14 23.8 and 23.1.)
#pragma once
#include "sinter/device/core/async_copy.cuh"
#include "sinter/device/family/contraction_depthwise.cuh"

namespace sinter::depthwise {

// Whether results wait in their own type, and the bytes of what waits.
template <class Result>
inline constexpr bool results_wait = true;
template <>
inline constexpr bool results_wait<void> = false;
template <class Result>
inline constexpr int bytes_left = sizeof(typename Result::Element);
template <>
inline constexpr int bytes_left<void> = 4;

inline constexpr int kFewSlots = 4;  // rows of a thread's sums

template <class Config, class Image>
struct PlaneTiles {
  using S = Shape<Config>;
  using P = typename S::P;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  using Element = typename Image::Element;
  static_assert(S::lanes == 1 && S::each == 1);
  static constexpr int unit = 16;  // bytes that are copied at once
  static constexpr int units = Config::units, images = Config::images;
  // Elements that a channel, or group, has of an image and of a result.
  static constexpr int pixels = Image::plane, results_across = S::extent_of(Columns::pixel_index),
                       plane = S::extent_of(Rows::pixel_index) * results_across,
                       results = S::of_group * plane;
  static constexpr int all_units = S::all_channels / S::of_group,
                       unit_blocks = (all_units + units - 1) / units;
  static constexpr int tile_bytes =
      (images * units * pixels * static_cast<int>(sizeof(Element)) + unit - 1) / unit * unit;
  // Factors of a channel, an odd number of words apart, which keeps all banks apart.
  static constexpr int taps = S::looped_taps * S::taps, factors = taps | 1;
  static constexpr int filter = tile_bytes,
                       left = (filter + units * S::of_group * factors * 4 + unit - 1) / unit * unit;
  template <class Result>
  static constexpr int end =
      left + (images * units * results * bytes_left<Result> + unit - 1) / unit* unit;
  static constexpr int items_of_unit = S::of_group * S::runs_down * S::blocks_across,
                       items = images * units * items_of_unit;
};

// Copies runs of `run` bytes, of which `there` exist, of images from `first` on; `at(image)`: where
// an image's begins. Runs begin and end at multiples of 16 bytes.
template <int threads, int images, int run, class At>
SINTER_DEVICE void copy_runs(unsigned char* to, int there, int first, int end, const At& at) {
  constexpr int unit = 16, pieces = (run + unit - 1) / unit;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < images * pieces; i += threads) {
    const int image = i / pieces, from = i % pieces * unit;
    if (first + image >= end || from >= there) continue;
    copy_async<unit>(to + image * run + from,
                     reinterpret_cast<const unsigned char*>(at(first + image)) + from);
  }
}

// Copies whole planes of `size` elements, of images `first` on and the channels from `first_unit`
// on; `at(c)`: where that of the coordinate begins.
template <class Config, class T, int size, class At>
SINTER_DEVICE void copy_planes(unsigned char* to, int first_unit, int first, int end,
                               const At& at) {
  using S = typename T::S;
  constexpr int bytes = size * static_cast<int>(sizeof(*at(typename S::Coord())));
  copy_runs<Config::threads, T::images, T::units * bytes>(
      to, (T::all_units - first_unit) * bytes, first, end, [&](int plane) {
        typename S::Coord c;
        S::set_plane(c, plane);
        S::set_channel(c, first_unit * S::of_group);
        S::set_pixel(c, 0, 0);
        return at(c);
      });
}

// Takes the factors of a thread block's channels to shared memory: channels, then taps.
template <class Config, class Filter, class T, class Args>
SINTER_DEVICE void load_factors_of_planes(const Args& args, float* filter, int first_channel) {
  using S = typename T::S;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < T::units * S::of_group * T::taps;
       i += Config::threads) {
    const int channel = i / T::taps, tap = i % T::taps;
    if (first_channel + channel >= S::all_channels) break;
    typename S::Coord c;
    S::set_channel(c, first_channel + channel);
    S::set_taps(typename Config::Looped{}, c, tap / S::taps, tap % S::taps);
    filter[channel * T::factors + tap] =
        load<typename Filter::Access, float>(Filter::base(args), c);
  }
}

// Brings the results of a tile, which wait in their own type, to memory.
template <class Config, class Result, class T, class Args>
SINTER_DEVICE void store_planes(const Args& args, const unsigned char* left, int first_unit,
                                int first, int end) {
  using S = typename T::S;
  using Element = typename Result::Element;
  constexpr int bytes = static_cast<int>(sizeof(Element)), run = T::units * T::results * bytes,
                pieces = (run + T::unit - 1) / T::unit;
  const int there = (T::all_units - first_unit) * T::results * bytes;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < T::images * pieces; i += Config::threads) {
    const int image = i / pieces, at = i % pieces * T::unit;
    if (first + image >= end || at >= there) continue;
    typename S::Coord c;
    S::set_plane(c, first + image);
    S::set_channel(c, first_unit * S::of_group);
    S::set_pixel(c, 0, 0);
    auto* const to = reinterpret_cast<unsigned char*>(Result::base(args) +
                                                      locate<typename Result::Access>(c).offset);
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(left + image * run + at);
  }
}

// The epilogue of a tile's sums.
template <class Config, class Body, class T, class Args>
SINTER_DEVICE void finish_planes(const Args& args, const float* left, int first_unit, int first,
                                 int end) {
  using S = typename T::S;
  constexpr int width = Config::width, packs = T::results_across / width,
                all = T::images * T::units * T::results / width;
  static_assert(T::results_across % width == 0);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < all; i += Config::threads) {
    const int line = i / packs, column = i % packs * width,
              row = line % S::extent_of(Config::Rows::pixel_index),
              channel = line / S::extent_of(Config::Rows::pixel_index),
              image = channel / (T::units * S::of_group),
              own = first_unit * S::of_group + channel % (T::units * S::of_group);
    if (first + image >= end || own >= S::all_channels) continue;
    typename S::Coord c;
    S::set_plane(c, first + image);
    S::set_channel(c, own);
    S::set_pixel(c, row, column);
    float sums[width];
#pragma unroll
    for (int e = 0; e < width; ++e) sums[e] = left[i * width + e];
    finish<Config, Body, Config::Columns::pixel_index>(args, c, sums);
  }
}

// Leaves the complete block of a thread's sums, at row `row`, column `column` of the plane `to`.
template <class Config, class Body, class Result, class Beside, class Sums, class Fragment,
          class Args>
SINTER_DEVICE void leave_block(const Args& args, const Sums& sums, typename Shape<Config>::Coord c,
                               const Fragment& fragment, unsigned char* to, int row, int column) {
  using S = Shape<Config>;
  constexpr int width = Config::width, across = S::extent_of(Config::Columns::pixel_index);
#pragma unroll
  for (int v = 0; v < Config::rows; ++v) {
    if (row + v >= S::extent_of(Config::Rows::pixel_index)) break;
    const int line = (row + v) * across + column;
#pragma unroll
    for (int q = 0; q < Config::columns; q += width) {
      if (column + q >= across) break;
      if constexpr (results_wait<Result>) {
        using Element = typename Result::Element;
        using Move = typename Word<width * sizeof(Element)>::Type;
        float some[width];
#pragma unroll
        for (int e = 0; e < width; ++e) some[e] = sums.at[0][v][q + e][0];
        Fragment own = fragment;
        if constexpr (has_beside<Beside>)
          read_pack(reinterpret_cast<const typename Beside::Element*>(to) + line + q,
                    Beside::of(own));
        const auto pack =
            results_of<Config, Body, Result, Config::Columns::pixel_index>(args, some, c, own);
        *reinterpret_cast<Move*>(to + (line + q) * static_cast<int>(sizeof(Element))) =
            *reinterpret_cast<const Move*>(pack.at);
      } else {
#pragma unroll
        for (int e = 0; e < width; ++e)
          reinterpret_cast<float*>(to)[line + q + e] = sums.at[0][v][q + e][0];
      }
    }
  }
}

template <class Config, class Image, class Filter, class Body, class Result, class Beside = void,
          class Args>
SINTER_DEVICE void run_planes(const Args& args) {
  using T = PlaneTiles<Config, Image>;
  using S = typename T::S;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  using Coord = typename S::Coord;
  using Element = typename Image::Element;
  using Fragment = typename Body::template Fragment<Config::width>;
  hardware::grid_dependency_wait();
  static_assert(Config::shared_bytes == T::template end<Result>);
  unsigned char* const memory = reinterpret_cast<unsigned char*>(contraction::dynamic_floats());
  float* const filter = reinterpret_cast<float*>(memory + T::filter);
  unsigned char* const left = memory + T::left;
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x),
            first_unit = block % T::unit_blocks * T::units,
            first = block / T::unit_blocks * T::images, end_images = S::planes();
  copy_planes<Config, T, T::pixels>(memory, first_unit, first, end_images, [&](const Coord& c) {
    return image_at<Config, Image>(args, c);
  });
  if constexpr (has_beside<Beside>)  // to where the results will wait
    copy_planes<Config, T, T::results>(left, first_unit, first, end_images, [&](const Coord& c) {
      return Beside::base(args) + locate<typename Beside::Access>(c).offset;
    });
  load_factors_of_planes<Config, Filter, T>(args, filter, first_unit * S::of_group);
  wait_for_copies();
  __syncthreads();
#pragma unroll 1
  for (int item = thread; item < T::items; item += Config::threads) {
    const int column = item % S::blocks_across * Config::columns,
              first_block = item / S::blocks_across % S::runs_down * Config::run,
              channel = item / (S::blocks_across * S::runs_down),  // of the thread block's
        own = channel % (T::units * S::of_group), image = channel / (T::units * S::of_group);
    if (first + image >= end_images || first_unit * S::of_group + own >= S::all_channels) continue;
    typename S::Coord c;
    S::set_plane(c, first + image);
    S::set_channel(c, first_unit * S::of_group + own);
    Fragment fragment;
    if constexpr (results_wait<Result>) {
      S::set_pixel(c, 0, 0);
      Body::fetch(args, c, fragment);
    }
    const Element* const pixels =
        reinterpret_cast<const Element*>(memory) + channel / S::of_group * T::pixels;
    const float* const factor = filter + own * T::factors;
    unsigned char* const to = left + channel * T::plane * bytes_left<Result>;
    const int end = first_block + Config::run < S::blocks_down ? first_block + Config::run
                                                               : S::blocks_down,
              origin = Columns::origin(c, column), moved = Rows::moved(c);
    BlockSums<Config> sums;
    PixelRows<Config, Element> now;
    if constexpr (S::looped_taps == 1) sums.set_factors(factor);
#pragma unroll 1
    for (int b = first_block - (S::slots - 1); b < end; ++b) {
      if constexpr (S::looped_taps > 1) {
#pragma unroll 1
        for (int looped = 0; looped < S::looped_taps; ++looped) {
          const auto there = S::at_looped(typename Config::Looped{}, c, looped);
          now.load(pixels + there.offset, there.inside, b, moved, origin);
          if (!now.any) continue;
          sums.set_factors(factor + looped * S::taps);
          sums.add(now);
        }
      } else {
        now.load(pixels, true, b, moved, origin);
        // Many rows that a large filter reaches are outside of a small image. (64 x 1536 x 7 x 7, 7
        // x 7 on an H200: 29.7 us, 38.0 with their products; 128 x 512 x 14 x 14, 3 x
        // 3 27.9, 23.8.)
        if (S::slots <= kFewSlots || now.any)
          sums.move_up_and_add(now);
        else
          sums.move_up();
      }
      if (b >= first_block)
        leave_block<Config, Body, Result, Beside>(args, sums, c, fragment, to, b * Config::rows,
                                                  column);
      if constexpr (S::looped_taps > 1) sums.move_up();
    }
  }
  __syncthreads();
  if constexpr (results_wait<Result>)
    store_planes<Config, Result, T>(args, left, first_unit, first, end_images);
  else
    finish_planes<Config, Body, T>(args, reinterpret_cast<const float*>(left), first_unit, first,
                                   end_images);
}

}  // namespace sinter::depthwise
