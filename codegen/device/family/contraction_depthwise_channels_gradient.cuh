// The filter gradient of a convolution of up to 64 channels and filters, of stride 1 or 2, on the
// tensor cores of sm_90a, whose pixels are loaded as they lie.
//
// k are the pixels of a row of dy, the result's gradient. The left operand of a product has the
// filters at several rows of dy side by side: panels that begin a row apart in shared memory. The
// right one has the channels of a row of x, the image, at all taps of a row: panels that begin a
// line apart, a pixel or, with a stride, the pixels of one. So each pixel is loaded once;
// 3 x 3 taps, 32 channels and 32 filters take two products of 64 x 96 a row of x.
//
//   step y                rows of x (base + stride y + f, f < stride), the newest row of dy: y
//   f, product q, panel j dy(y - (taps_f - 1) + q panels + j, p): tap f + stride (taps_f - 1 - q
//                         panels - j) of the taps f, f + stride, ..., taps_f of them
//   panel i               x(base + stride (p + i) ...)
//
// A block is one warpgroup, which walks down the rows of the images of its batch entry. cp.async
// loads a step's rows, some steps ahead, into two rings of stages. Panels beyond the end of that of
// dy lie in copies of its first ones. That of x is the first: compute-sanitizer takes an operand
// for as many bytes as its elements have, though panels overlap, and bytes behind the last stage of
// x are the block's then. Each walk ends with rows of zeros of dy, which the next one's first rows
// of x meet. A batch entry may be a part of an image: then rows of dy outside of it are zeros. Sums
// of panels without a tap, and of the channels that pad a line (shared memory there is never
// written), are not read.
//
// Sums that are NaN are recomputed, since zeros outside make NaN of numbers that are not finite.
//
// Config is that of contraction_depthwise.cuh, its channel counting one group, with columns = 16 *
// across, the pixels of a walk, `group` channels of the image and `gradient_group` of the result,
// `inner` and `outer`, their indices, and `stages`, the steps that are loaded ahead.
#pragma once
#include "sinter/device/core/async_copy.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/contraction_depthwise_gradient.cuh"

namespace sinter::depthwise {

// Channels of a pixel in shared memory.
constexpr SINTER_DEVICE int filled_up(int channels) {
  return channels > 32 ? 64 : channels > 16 ? 32 : 16;
}

// Pixels of `group` channels in slots of shared memory, which threads bring a unit of 8 channels at
// a time; lines have `joined` of them.
template <int group, int pixels_, int joined>
struct ChannelPixels {
  static constexpr int units = group / 8, channels = filled_up(group), pixels = pixels_,
                       pixel_bytes = 2 * channels, line_bytes = joined * pixel_bytes,
                       slot = (pixels * pixel_bytes + 1023) / 1024 * 1024;
  static_assert(group % 8 == 0 && group <= 64 && line_bytes <= 128 && pixels % joined == 0);
  // A thread's pixels lie whole periods of the swizzle apart.
  static constexpr int apart = 128 / units / (8 * joined) * (8 * joined),
                       own = (pixels + apart - 1) / apart;

  int pixel, unit;  // the thread's first; none: behind all
  unsigned place;   // in a slot
  SINTER_DEVICE ChannelPixels() {
    const int thread = static_cast<int>(threadIdx.x);
    unit = thread % units;
    pixel = thread / units < apart ? thread / units : pixels;
    const auto at = static_cast<unsigned>(pixel * pixel_bytes + unit * 16);
    place = at ^ (at >> 7 & (line_bytes / 16 - 1)) << 4;
  }
  // visit(i, behind): for pixel + i * apart, so many bytes behind the first one's place.
  template <class Visit>
  SINTER_DEVICE void each(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < own; ++i)
      if (pixel + i * apart < pixels)
        visit(i * apart, static_cast<unsigned>(i * apart * pixel_bytes));
  }
};

template <class Config, class Number>
struct ChannelsGradientTiles {
  using S = Shape<Config>;
  using P = typename S::P;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int depth = Config::columns, down = Rows::step, across = Columns::step;
  static_assert(Config::threads == 128 && depth % 16 == 0 && S::looped_taps == 1 &&
                S::all_channels == 1);
  static_assert(Rows::apart == 1 && Rows::divisor == 1 && Columns::apart == 1 &&
                Columns::divisor == 1);

  using GradientPixels = ChannelPixels<Config::gradient_group, depth, 1>;
  static constexpr int lines = (Columns::taps + across - 1) / across;  // that a result sees
  using ImagePixels = ChannelPixels<Config::group, (depth + lines - 1) * across, across>;

  // Of the rows of x at f of a step: taps, and products.
  static constexpr int panels = 64 / GradientPixels::channels;
  static constexpr SINTER_DEVICE int taps_of_row(int f) {
    return (Rows::taps - f + down - 1) / down;
  }
  static constexpr SINTER_DEVICE int products_of_row(int f) {
    return (taps_of_row(f) + panels - 1) / panels;
  }
  static constexpr SINTER_DEVICE int first_product(int f) {
    return f == 0 ? 0 : first_product(f - 1) + products_of_row(f - 1);
  }
  static constexpr int products = first_product(down),
                       columns = lines * across * ImagePixels::channels;

  // A slot is filled again when all warps have finished the products that read it: those before the
  // last.
  static constexpr int seen = taps_of_row(0), ahead = Config::stages, image_slots = ahead + 2,
                       gradient_slots = ahead + seen + 1, copies = panels - 1;
  static constexpr int image_slot = down * ImagePixels::slot, gradient_slot = GradientPixels::slot,
                       gradient = image_slots * image_slot;  // behind the image's ring
  static_assert(copies <= gradient_slots);
  using Gradient = SharedTile<Number, Major::mn, 64, depth, GradientPixels::line_bytes, 8,
                              gradient_slot / GradientPixels::line_bytes>;
  using Image = SharedTile<Number, Major::mn, columns, depth, ImagePixels::line_bytes, 8, 1>;
  using Product = Mma<sinter::Shape<64, columns>, Types<Number, Number, float>, Gradient, Image>;
  template <int product>
  using Sums = NamedAccumulator<float, columns, product>;
  // Sums lie where the slots were in the end, rows of all products.
  static constexpr int pitch = columns + 8, sums = products * 64 * pitch * 4,
                       slots = gradient + (gradient_slots + copies) * gradient_slot,
                       bytes = sums > slots ? sums : slots;

  static constexpr int rows = S::extent_of(Rows::pixel_index),
                       steps = rows + seen - 1,  // of a walk
      tiles = (S::extent_of(Columns::pixel_index) + depth - 1) / depth,
                       walks =
                           static_cast<int>(P::product(P::first_k, Config::k - S::spatial)) * tiles;
};

// Has the rows of one step after another brought, walk after walk.
template <class Config, class Gradient, class Image>
struct StepLoader {
  using T = ChannelsGradientTiles<Config, typename Image::Element>;
  using S = typename T::S;
  using Element = typename Image::Element;
  using Rows = typename T::Rows;
  using Columns = typename T::Columns;
  using Stride = typename Gradient::Access::Stride;
  typename T::ImagePixels x;
  typename T::GradientPixels dy;
  const Element *image = nullptr,
                *gradient = nullptr;  // the thread's first pixels of the next rows
  int walk = 0, step = 0, column = 0, moved, image_slot = 0, gradient_slot = 0;
  typename S::Coord batch;

  SINTER_DEVICE StepLoader(const typename S::Coord& batch)
      : moved(Rows::base + Rows::moved(batch)), batch(batch) {}

  template <class Args>
  SINTER_DEVICE void enter(const Args& args) {
    typename S::Coord c = batch;
    unravel<T::P::first_k, Config::k - S::spatial>(
        static_cast<typename Config::Index>(walk / T::tiles), c);
    column = walk % T::tiles * T::depth;
    image = image_at<Config, Image>(args, c) + x.unit * 8 + moved * Rows::stride +
            (Columns::base + column * T::across + x.pixel) * Columns::stride;
    S::set_pixel(c, 0, 0);
    gradient = Gradient::base(args) + locate<typename Gradient::Access>(c).offset + dy.unit * 8 +
               (column + dy.pixel) * Stride::at(Columns::pixel_index);
  }
  // `shared`: the address of both rings. Copies of no bytes have the tensor's address: those
  // outside of it may be far from anything.
  template <class Args>
  SINTER_DEVICE void load(const Args& args, unsigned shared) {
    if (walk < T::walks) {
      if (step == 0) enter(args);
      const unsigned x_to = shared + x.place + static_cast<unsigned>(image_slot * T::image_slot),
                     dy_to = shared + dy.place + T::gradient +
                             static_cast<unsigned>(gradient_slot * T::gradient_slot);
#pragma unroll
      for (int f = 0; f < T::down; ++f) {
        const int row = moved + step * T::down + f,
                  first = Columns::base + column * T::across + x.pixel;
        const bool exists = row >= 0 && row < Rows::extent;
        x.each([&](int i, unsigned behind) {
          const bool inside = exists && first + i >= 0 && first + i < Columns::extent;
          warp_matrix::copy<16>(x_to + f * T::ImagePixels::slot + behind,
                                inside ? image + i * Columns::stride : Image::base(args), inside);
        });
        image += Rows::stride;
      }
      const bool exists = step < T::rows;
      dy.each([&](int i, unsigned behind) {
        const bool inside = exists && column + dy.pixel + i < S::extent_of(Columns::pixel_index);
        const Element* const from =
            inside ? gradient + i * Stride::at(Columns::pixel_index) : Gradient::base(args);
        warp_matrix::copy<16>(dy_to + behind, from, inside);
        if (gradient_slot < T::copies)
          warp_matrix::copy<16>(dy_to + T::gradient_slots * T::gradient_slot + behind, from,
                                inside);
      });
      gradient += Stride::at(Rows::pixel_index);
      if (++image_slot == T::image_slots) image_slot = 0;
      if (++gradient_slot == T::gradient_slots) gradient_slot = 0;
      if (++step == T::steps) step = 0, ++walk;
    }
    end_group_of_copies();
  }
};

// Stores the sums, which lie in shared memory.
template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void finish_channels(const Args& args, typename Shape<Config>::Coord c,
                                   const float* sums) {
  using T = ChannelsGradientTiles<Config, typename Image::Element>;
  using S = typename T::S;
  constexpr int pairs = Config::group / 2, taps = S::taps,
                count = Config::gradient_group * taps * pairs;
  c.at[Config::channel] = 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Config::threads) {
    const int channel = i % pairs * 2, tap = i / pairs % taps, filter = i / pairs / taps,
              row_tap = tap / T::Columns::taps, f = row_tap % T::down,
              panel = T::taps_of_row(f) - 1 - row_tap / T::down;  // the oldest row of dy first
    c.at[Config::inner] = channel;
    c.at[Config::outer] = filter;
    S::set_taps(List<>{}, c, 0, tap);
    const float* const at =
        sums +
        (T::first_product(f) * 64 + panel * T::GradientPixels::channels + filter) * T::pitch +
        tap % T::Columns::taps * T::ImagePixels::channels + channel;
    float pair[2] = {at[0], at[1]};
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (pair[e] != pair[e]) [[unlikely]]
        pair[e] = gradient_alone<Config, Gradient, Image>(args, neighbour<Config::inner>(c, e));
    finish<Config, Body, Config::inner>(args, c, pair);
  }
}

template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void run_channels_gradient(const Args& args) {
  using T = ChannelsGradientTiles<Config, typename Image::Element>;
  using S = typename T::S;
  static_assert(Config::shared_bytes == T::bytes + SharedMemory::lost);
  for_each_number<T::products>([]<int q>() { typename T::template Sums<q>{}.declare(); });
  const SharedMemory memory;
  const int thread = static_cast<int>(threadIdx.x);
  // Rows of dy that were before the first walk.
#pragma unroll 1
  for (int i = T::gradient / 16 + thread; i < T::slots / 16; i += Config::threads)
    reinterpret_cast<uint4*>(memory.pointer)[i] = uint4{};
  __syncthreads();
  hardware::grid_dependency_wait();
  typename S::Coord batch;
  unravel<0, Config::batch - 1>(static_cast<typename Config::Index>(blockIdx.x), batch);
  StepLoader<Config, Gradient, Image> loader(batch);
#pragma unroll 1
  for (int i = 0; i < T::ahead; ++i) loader.load(args, memory.address);
  const unsigned long long gradient = T::Gradient::descriptor(memory.address + T::gradient),
                           image = T::Image::descriptor(memory.address);
  constexpr int gradient_slot = T::gradient_slot / 16, image_slot = T::image_slot / 16;
  int newest = 0, slot = 0;
#pragma unroll 1
  for (int i = 0; i < T::walks * T::steps; ++i) {
    wait_for_groups_but<T::ahead - 1>();
    hopper::fence_async_proxy();
    __syncthreads();
    wgmma::fence();
    for_each_number<T::down>([&]<int f>() {
      for_each_number<T::products_of_row(f)>([&]<int q>() {
        int first = newest - (T::taps_of_row(f) - 1) + q * T::panels;
        if (first < 0) first += T::gradient_slots;
        T::Product::multiply(typename T::template Sums<T::first_product(f) + q>{},
                             gradient + first * gradient_slot,
                             image + slot * image_slot + f * (T::ImagePixels::slot / 16), i > 0);
      });
    });
    wgmma::commit();
    wgmma::wait<1>();
    loader.load(args, memory.address);
    if (++slot == T::image_slots) slot = 0;
    if (++newest == T::gradient_slots) newest = 0;
  }
  wgmma::wait<0>();
  wait_for_copies();
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(memory.pointer);
  const int row = thread / 32 * 16 + thread % 32 / 4;
  for_each_number<T::products>([&]<int q>() {
    int at[T::columns / 8];
#pragma unroll
    for (int j = 0; j < T::columns / 8; ++j)
      at[j] = (q * 64 + row) * T::pitch + 8 * j + thread % 4 * 2;
    typename T::template Sums<q>{}.template store<0, T::columns / 8, 8 * T::pitch>(sums, at);
  });
  __syncthreads();
  finish_channels<Config, Gradient, Image, Body>(args, batch, sums);
}

}  // namespace sinter::depthwise
