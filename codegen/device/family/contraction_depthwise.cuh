// Depthwise convolutions, whose channels are not summed over: on CUDA cores, in f32.
//
// Neighbouring lanes have neighbouring channels, `each` of them, so that a pixel is loaded and
// stored in whole lines; where pixels of a line lie together instead, there is one such lane. A
// thread walks down the image and computes `columns` results of each row, or of `rows` of them at
// once (the phases of strided data gradients): it loads the pixels that these see once, and adds
// them, times their taps, to the sums of all rows of results that see them. Sums of a row that is
// complete are stored, and those of the rows below move up. So a pixel of a thread's columns is
// loaded once, the filter stays in registers, and the loop is short enough for the instruction
// cache. (A 7 x 7 filter with all of a block of 4 x 4 results in straight-line code: 144 us where
// its instructions are issued in 48.) Which tap a result has for a pixel is known when compiling,
// also for steps, dilation and the phases of strided data gradients, so that nothing is computed
// with a zero between pixels. Neighbouring columns belong to neighbouring threads, whose common
// pixels come from the first-level cache.
//
// A generated Config has
//
//   channel                  the index of the domain that counts channels, the last of the batch
//   lanes, each              threads side by side along channels, and channels of a thread
//   rows, columns            of a thread's block of results
//   run                      blocks down the image that a thread walks over
//   along_columns            packs of the epilogue lie along a line's pixels, not along channels
//   using Rows, Columns      Axis of the image's last two dims, or NoAxis
//   using Looped             List of the Axis whose taps are taken one after another, each with the
//                            pixels that it moves to: those of a third dim, or of large filters,
//                            and the channels of a group, whose pixels lie elsewhere, too
//   line_pack                where pixels of a line lie together: those that are loaded at once
//   filters                  where a channel, or group, has several: the index that counts them. A
//                            thread's channels are then filters of one group, which see one pixel.
//
// and an Image and a Filter (of a gradient: a Gradient) with `Access`, `base(args)`; Image::offset
// is that of coordinate 0. Pixels of Looped, of Rows and of Columns are the last indices of m (of
// k).
#pragma once
#include "sinter/device/core/pack.cuh"
#include "sinter/device/family/contraction_depthwise_shape.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"

namespace sinter::contraction {

SINTER_DEVICE float* dynamic_floats() {
  extern __shared__ uint4 dynamic_memory[];
  return reinterpret_cast<float*>(dynamic_memory);
}

}  // namespace sinter::contraction

namespace sinter::depthwise {

// Hides from the compiler how the number came about: it is kept, and not computed again in a loop.
SINTER_DEVICE void keep(unsigned& x) { asm volatile("" : "+r"(x)); }
SINTER_DEVICE void keep(int& x) { asm volatile("" : "+r"(x)); }

// What a generated file has of the tensor that the epilogue reads in the results' places, or void.
template <class Beside>
inline constexpr bool has_beside = true;
template <>
inline constexpr bool has_beside<void> = false;

// The pixels of one row of the image that a block of results sees, in whole packs: of channels, or,
// where pixels of a line lie together, of pixels, inside of the line or outside.
template <class Config, class Element>
struct PixelRow {
  using Columns = typename Config::Columns;
  static constexpr int first = Columns::first(Config::columns),
                       count = Columns::last(Config::columns) - first + 1,
                       pack = pixels_at_once<Config>(),
                       begin =
                           first >= 0 ? first / pack * pack : -((pack - 1 - first) / pack * pack),
                       packs = (first + count - begin + pack - 1) / pack;
  Pack<Element, pack * Shape<Config>::pixel_each> at[packs];

  // Pixel `i` of channel `e`.
  SINTER_DEVICE float value(int i, int e) const {
    const int place = i + first - begin;
    return get<float>(at[place / pack], pack > 1                        ? place % pack
                                        : Shape<Config>::pixel_each > 1 ? e
                                                                        : 0);
  }
  // `from`: of the row's coordinate 0; `origin`: of the block.
  SINTER_DEVICE void load(const Element* from, bool inside, int origin) {
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int column = origin + begin + i * pack;
      at[i] = {};
      if (inside && static_cast<unsigned>(column) < static_cast<unsigned>(Columns::extent))
        read_pack(from + column * Columns::stride, at[i]);
    }
  }
  // `from`: the first of them, which lie `apart` elements from each other.
  SINTER_DEVICE void take(const Element* from, int apart) {
#pragma unroll
    for (int i = 0; i < count; ++i) read_pack(from + i * apart, at[i]);
  }
};

// The image's element of the channels at `c`, with its spatial coordinates 0.
template <class Config, class Image, class Args>
SINTER_DEVICE auto image_at(const Args& args, typename Shape<Config>::Coord c) {
  using Index = typename Config::Index;
  using S = Shape<Config>;
  S::set_pixel(c, 0, 0);
  const auto clear = [&]<class... Axes>(List<Axes...>) {
    ((Axes::pixel_index >= 0 ? void(c.at[Axes::pixel_index < 0 ? 0 : Axes::pixel_index] = 0)
                             : void()),
     ...);
  };
  clear(typename Config::Looped{});
  return Image::base(args) + static_cast<Index>(Image::offset) +
         dot(typename Image::Access::Stride{}, c.at);
}

// The rows that come with block `block` of a walk: the last that its results see.
template <class Config, class Element>
struct PixelRows {
  using S = Shape<Config>;
  using Rows = typename Config::Rows;
  static constexpr int new_row = S::first_row + (S::slots - 1) * S::advance;
  PixelRow<Config, Element> row[S::advance];
  bool any;  // some row is inside

  SINTER_DEVICE void load(const Element* image, bool inside, int block, int moved,
                          int column_origin) {
    const int at = block * S::advance + moved + new_row;
    any = false;
#pragma unroll
    for (int j = 0; j < S::advance; ++j) {
      const bool exists =
          inside && static_cast<unsigned>(at + j) < static_cast<unsigned>(Rows::extent);
      row[j].load(image + (at + j) * Rows::stride, exists, column_origin);
      any |= exists;
    }
  }

  // Calls visit(slot, row, column, tap, pixel(channel)) for each result that sees a pixel, of the
  // block and the ones below, of which slot 0 is the block's.
  template <class Visit>
  SINTER_DEVICE void for_taps(const Visit& visit) const {
    using Columns = typename Config::Columns;
    using Line = PixelRow<Config, Element>;
#pragma unroll
    for (int j = 0; j < S::advance; ++j)
#pragma unroll
      for (int i = 0; i < Line::count; ++i)
#pragma unroll
        for (int slot = 0; slot < S::slots; ++slot)
#pragma unroll
          for (int v = 0; v < Config::rows; ++v) {
            const int r = Rows::tap_of(v, new_row + j - slot * S::advance);
            if (r < 0) continue;
#pragma unroll
            for (int q = 0; q < Config::columns; ++q) {
              const int s = Columns::tap_of(q, Line::first + i);
              if (s >= 0)
                visit(slot, v, q, r * Columns::taps + s, [&](int e) { return row[j].value(i, e); });
            }
          }
  }
  // Calls visit(tap, pixel(channel)) for each pixel that one result sees.
  template <class Visit>
  SINTER_DEVICE void for_pixels_of(int slot, int v, int q, const Visit& visit) const {
    using Columns = typename Config::Columns;
    using Line = PixelRow<Config, Element>;
#pragma unroll
    for (int j = 0; j < S::advance; ++j) {
      const int r = Rows::tap_of(v, new_row + j - slot * S::advance);
      if (r < 0) continue;
#pragma unroll
      for (int i = 0; i < Line::count; ++i) {
        const int s = Columns::tap_of(q, Line::first + i);
        if (s >= 0) visit(r * Columns::taps + s, [&](int e) { return row[j].value(i, e); });
      }
    }
  }
};

// What the epilogue reads for `count` neighbours along index `dim` from `c` on, and that epilogue.
// Reads cannot pass the stores before them: who has several such neighbours fetches for all first.
// (On an H200, with two tensors: 64 x 144 x 56 x 56, 3 x 3 197 us pack by pack, 75.7 so.)
template <class Config, class Body, int dim, int count>
struct PackEpilogue {
  static constexpr int width = Config::width, packs = count / width;
  static_assert(count % width == 0);
  typename Body::template Fragment<width> held[packs];

  template <class Args, class Coord>
  SINTER_DEVICE void fetch(const Args& args, const Coord& c) {
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const Coord at = neighbour<dim>(c, i * width);
      if (ended(at)) break;
      Body::fetch(args, at, held[i]);
    }
  }
  template <class Args, class Coord>
  SINTER_DEVICE void operator()(const Args& args, const Coord& c, const float (&sums)[count]) {
    typename Body::Reductions none;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const Coord at = neighbour<dim>(c, i * width);
      if (ended(at)) break;
      draw_numbers<Body>(args, at, held[i]);
#pragma unroll
      for (int e = 0; e < width; ++e) {
        const typename Config::Accumulator sum[1] = {sums[i * width + e]};
        Body::element(args, neighbour<dim>(at, e), e, sum, held[i], none);
      }
      Body::flush(args, at, held[i]);
    }
  }

 private:
  template <class Coord>
  static SINTER_DEVICE bool ended(const Coord& at) {
    constexpr int line = dim < 0 ? 0 : dim;
    return Config::along_columns && at.at[line] >= Coord::Extent::at(line);
  }
};
template <class Config, class Body, int dim, int count, class Args, class Coord>
SINTER_DEVICE void finish(const Args& args, const Coord& c, const float (&sums)[count]) {
  PackEpilogue<Config, Body, dim, count> epilogue;
  epilogue.fetch(args, c);
  epilogue(args, c, sums);
}

// What neighbouring sums along `dim` become: a Pack of results. `c`: the first one's coordinates,
// of which results depend on the channel alone; `fragment`: has what the body loads there.
template <class Config, class Body, class Result, int dim, int count, class Args>
SINTER_DEVICE auto results_of(const Args& args, const float (&sums)[count],
                              const typename Shape<Config>::Coord& c = {},
                              typename Body::template Fragment<count> fragment = {}) {
  typename Body::Reductions none;
#pragma unroll
  for (int e = 0; e < count; ++e) {
    const typename Config::Accumulator sum[1] = {sums[e]};
    Body::element(args, neighbour<dim>(c, e), e, sum, fragment, none);
  }
  return Result::of(fragment);
}

// Takes the filter's factors of a thread block's channels to shared memory: taps, then channels.
template <class Config, class Filter, class Args>
SINTER_DEVICE void load_factors(const Args& args, float* filter, int first_channel) {
  using S = Shape<Config>;
  constexpr int taps = S::looped_taps * S::taps;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < taps * S::channels; i += Config::threads) {
    const int channel = i / taps, tap = i % taps;
    typename S::Coord c;
    S::set_channel(c, first_channel + channel);
    S::set_taps(typename Config::Looped{}, c, tap / S::taps, tap % S::taps);
    float value = 0;
    if (first_channel + channel < S::all_channels)
      value = load<typename Filter::Access, float>(Filter::base(args), c);
    filter[tap * S::channels + channel] = value;
  }
}

// A thread's factors, and its sums of the blocks of results that see a row, the first of which is
// complete with it.
template <class Config>
struct BlockSums {
  using S = Shape<Config>;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int each = S::each;
  float at[S::slots][Config::rows][Config::columns][each] = {}, factor[S::taps][each];

  // `filter`: of the thread's channels.
  SINTER_DEVICE void set_factors(const float* filter) {
#pragma unroll
    for (int t = 0; t < S::taps; ++t)
#pragma unroll
      for (int e = 0; e < each; ++e) factor[t][e] = filter[t * S::channels + e];
  }
  template <class Pixels>
  SINTER_DEVICE void add(const Pixels& pixels) {
    pixels.for_taps([&](int slot, int v, int q, int tap, const auto& pixel) {
#pragma unroll
      for (int e = 0; e < each; ++e)
        at[slot][v][q][e] = math::fma(pixel(e), factor[tap][e], at[slot][v][q][e]);
    });
  }
  SINTER_DEVICE void move_up() {
#pragma unroll
    for (int slot = 0; slot < S::slots; ++slot)
#pragma unroll
      for (int v = 0; v < Config::rows; ++v)
#pragma unroll
        for (int q = 0; q < Config::columns; ++q)
#pragma unroll
          for (int e = 0; e < each; ++e)
            at[slot][v][q][e] =
                slot + 1 < S::slots ? at[slot + 1 < S::slots ? slot + 1 : 0][v][q][e] : 0.0f;
  }
  // Both at once: the first product of a sum is added where it came from, which costs no move.
  template <class Pixels>
  SINTER_DEVICE void move_up_and_add(const Pixels& pixels) {
#pragma unroll
    for (int slot = 0; slot < S::slots; ++slot)
#pragma unroll
      for (int v = 0; v < Config::rows; ++v)
#pragma unroll
        for (int q = 0; q < Config::columns; ++q)
#pragma unroll
          for (int e = 0; e < each; ++e) {
            float sum =
                slot + 1 < S::slots ? at[slot + 1 < S::slots ? slot + 1 : 0][v][q][e] : 0.0f;
            pixels.for_pixels_of(slot, v, q, [&](int tap, const auto& pixel) {
              sum = math::fma(pixel(e), factor[tap][e], sum);
            });
            at[slot][v][q][e] = sum;
          }
  }
  // The complete block `b`, from `column` on.
  template <class Body, class Args>
  SINTER_DEVICE void store(const Args& args, typename S::Coord c, int b, int column) const {
#pragma unroll
    for (int v = 0; v < Config::rows; ++v) {
      const int row = b * Config::rows + v;
      if (row >= S::extent_of(Rows::pixel_index)) break;
      if constexpr (Config::along_columns) {
        S::set_pixel(c, row, column);
        float line[Config::columns];
#pragma unroll
        for (int q = 0; q < Config::columns; ++q) line[q] = at[0][v][q][0];
        finish<Config, Body, Columns::pixel_index>(args, c, line);
      } else {
        PackEpilogue<Config, Body, S::beside_each, each> epilogue[Config::columns];
#pragma unroll
        for (int q = 0; q < Config::columns; ++q) {
          if (column + q >= S::extent_of(Columns::pixel_index)) break;
          S::set_pixel(c, row, column + q);
          epilogue[q].fetch(args, c);
        }
#pragma unroll
        for (int q = 0; q < Config::columns; ++q) {
          if (column + q >= S::extent_of(Columns::pixel_index)) break;
          S::set_pixel(c, row, column + q);
          epilogue[q](args, c, at[0][v][q]);
        }
      }
    }
  }
};

// Whether the pixels of the next looped tap are loaded while those of this one are multiplied.
template <class Config>
constexpr SINTER_DEVICE bool loads_ahead() {
  return Shape<Config>::filters < 0 || Config::along_columns;
}

// Forward, and the data gradient.
template <class Config, class Image, class Filter, class Body, class Args>
SINTER_DEVICE void run(const Args& args) {
  using S = Shape<Config>;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  hardware::grid_dependency_wait();
  static_assert(Config::shared_bytes == S::looped_taps * S::taps * S::channels * 4);
  float* const filter = contraction::dynamic_floats();
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int first_channel = block % S::channel_blocks * S::channels;
  // Planes of batch entries and pixels, then runs down the image, then columns side by side.
  int item = block / S::channel_blocks * S::beside + thread / S::lanes;
  constexpr int in_plane = S::runs_down * S::blocks_across;
  const int plane = item / in_plane;
  item -= plane * in_plane;
  const int first_block = item / S::blocks_across * Config::run,
            column = item % S::blocks_across * Config::columns;
  load_factors<Config, Filter>(args, filter, first_channel);
  __syncthreads();
  const int own = thread % S::lanes * S::each;
  if (plane >= S::planes() || first_channel + own >= S::all_channels) return;

  typename S::Coord c;
  S::set_plane(c, plane);
  S::set_channel(c, first_channel + own);
  const auto* const image = image_at<Config, Image>(args, c);
  using Pixels = PixelRows<Config, typename Image::Element>;
  const int end = first_block + Config::run < S::blocks_down ? first_block + Config::run
                                                             : S::blocks_down,
            origin = Columns::origin(c, column), moved = Rows::moved(c);
  BlockSums<Config> sums;
  const int begin = first_block - (S::slots - 1);
  if constexpr (S::looped_taps > 1) {
    Pixels now, next;
    const auto load = [&](Pixels& to, int b, int looped) {
      const auto place = S::at_looped(typename Config::Looped{}, c, looped);
      to.load(image + place.offset, place.inside && b < end, b, moved, origin);
    };
    if constexpr (loads_ahead<Config>()) load(now, begin, 0);
#pragma unroll 1
    for (int b = begin; b < end; ++b) {
#pragma unroll 1
      for (int looped = 0; looped < S::looped_taps; ++looped) {
        const bool last = looped + 1 == S::looped_taps;
        if constexpr (loads_ahead<Config>())
          load(next, last ? b + 1 : b, last ? 0 : looped + 1);
        else
          load(now, b, looped);
        if (now.any) {
          sums.set_factors(filter + looped * S::taps * S::channels + own);
          sums.add(now);
        }
        if constexpr (loads_ahead<Config>()) now = next;
      }
      if (b >= first_block) sums.template store<Body>(args, c, b, column);
      sums.move_up();
    }
  } else {
    const auto place = S::at_looped(typename Config::Looped{}, c, 0);
    sums.set_factors(filter + own);
    Pixels now, next;
    now.load(image + place.offset, place.inside, begin, moved, origin);
#pragma unroll 1
    for (int b = begin; b < end; ++b) {
      next.load(image + place.offset, place.inside && b + 1 < end, b + 1, moved, origin);
      if (now.any) sums.add(now);
      if (b >= first_block) sums.template store<Body>(args, c, b, column);
      sums.move_up();
      now = next;
    }
  }
}

}  // namespace sinter::depthwise
