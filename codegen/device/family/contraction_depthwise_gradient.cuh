// The filter gradient of a depthwise convolution: contraction_depthwise.cuh turned around. A thread
// keeps a sum for each tap, and the rows of the result's gradient that the pixels meet move up.
// Taps of Looped belong to thread blocks of their own. A thread block's sums are added in the order
// of its warps. Results and pixels that there are none of are zeros, and make NaN of numbers that
// are not finite: sums that are NaN are taken again.
#pragma once
#include "sinter/device/family/contraction_depthwise.cuh"

namespace sinter::depthwise {

// Neighbours of a line that are loaded together, where they lie so.
template <class Config>
constexpr SINTER_DEVICE int gradients_at_once() {
  if constexpr (requires { Config::gradient_pack; }) return Config::gradient_pack;
  return 1;
}

// A sum of nothing but what there is.
template <class Config, class Gradient, class Image, class Args>
SINTER_DEVICE float gradient_alone(const Args& args, typename Shape<Config>::Coord c) {
  using P = typename Shape<Config>::P;
  constexpr int pixels = static_cast<int>(P::product(P::first_k, Config::k));
  float sum = 0;
#pragma unroll 1
  for (int pixel = 0; pixel < pixels; ++pixel) {
    unravel<P::first_k, Config::k>(static_cast<typename Config::Index>(pixel), c);
    const auto at = locate<typename Image::Access>(c);
    if (!at.inside) continue;
    sum = math::fma(load<typename Image::Access, float>(Image::base(args), c),
                    load<typename Gradient::Access, float>(Gradient::base(args), c), sum);
  }
  return sum;
}

template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void run_gradient(const Args& args) {
  using S = Shape<Config>;
  using P = typename S::P;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  using Index = typename Config::Index;
  constexpr int each = S::each;
  hardware::grid_dependency_wait();
  static_assert(Config::shared_bytes == S::taps * S::channels * 4);
  float* const totals = contraction::dynamic_floats();  // taps, channels
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int first_channel = block % S::channel_blocks * S::channels, own = thread % S::lanes * each;
  const int rest_of_block = block / S::channel_blocks, looped = rest_of_block % S::looped_taps;
  typename S::Coord batch;
  unravel<0, Config::batch - 1>(static_cast<Index>(rest_of_block / S::looped_taps), batch);
  constexpr int in_plane = S::runs_down * S::blocks_across,
                items = static_cast<int>(P::product(P::first_k, Config::k - S::spatial)) * in_plane;
  float sums[S::taps][each] = {};
  if (first_channel + own < S::all_channels) {
#pragma unroll 1
    for (int item = thread / S::lanes; item < items; item += S::beside) {
      typename S::Coord c = batch;
      S::set_channel(c, first_channel + own);
      const int plane = item / in_plane, rest = item - plane * in_plane;
      unravel<P::first_k, Config::k - S::spatial>(static_cast<Index>(plane), c);
      const int first_block = rest / S::blocks_across * Config::run,
                column = rest % S::blocks_across * Config::columns;
      const auto place = S::at_looped(typename Config::Looped{}, c, looped);
      if (!place.inside) continue;
      const auto* const image = image_at<Config, Image>(args, c) + place.offset;
      const int end = first_block + Config::run < S::blocks_down ? first_block + Config::run
                                                                 : S::blocks_down,
                origin = Columns::origin(c, column), moved = Rows::moved(c);
      // In packs, as they are loaded: of channels, or of a line's pixels. Of the blocks that see a
      // row, the last one new.
      constexpr int pack = gradients_at_once<Config>(), packs = Config::columns / pack;
      using Row = Pack<typename Gradient::Element, pack * each>[Config::rows][packs];
      Row gradient[S::slots] = {}, arriving;
      const auto load_gradient = [&](Row& to, int b) {
#pragma unroll
        for (int v = 0; v < Config::rows; ++v)
#pragma unroll
          for (int q = 0; q < packs; ++q) {
            const int row = b * Config::rows + v, at = column + q * pack;
            S::set_pixel(c, row, at);
            to[v][q] = {};
            if (b < end && row < S::extent_of(Rows::pixel_index) &&
                at < S::extent_of(Columns::pixel_index))
              read_pack(Gradient::base(args) + locate<typename Gradient::Access>(c).offset,
                        to[v][q]);
          }
      };
      PixelRows<Config, typename Image::Element> now, next;
      const int begin = first_block - (S::slots - 1);
      now.load(image, true, begin, moved, origin);
      load_gradient(gradient[S::slots - 1], first_block);
#pragma unroll 1
      for (int b = begin; b < end; ++b) {
        next.load(image, b + 1 < end, b + 1, moved, origin);
        load_gradient(arriving, b + S::slots);
        if (now.any)
          now.for_taps([&](int slot, int v, int q, int tap, const auto& pixel) {
#pragma unroll
            for (int e = 0; e < each; ++e)
              sums[tap][e] = math::fma(
                  pixel(e), get<float>(gradient[slot][v][q / pack], pack > 1 ? q % pack : e),
                  sums[tap][e]);
          });
#pragma unroll
        for (int slot = 0; slot < S::slots; ++slot)
#pragma unroll
          for (int v = 0; v < Config::rows; ++v)
#pragma unroll
            for (int q = 0; q < packs; ++q)
              gradient[slot][v][q] = slot + 1 < S::slots
                                         ? gradient[slot + 1 < S::slots ? slot + 1 : 0][v][q]
                                         : arriving[v][q];
        now = next;
      }
    }
  }
  // Of a warp first, then warp by warp.
  constexpr int of_warp = S::lanes < 32 ? S::lanes : 32;
#pragma unroll
  for (int t = 0; t < S::taps; ++t)
#pragma unroll
    for (int e = 0; e < each; ++e)
#pragma unroll
      for (int apart = of_warp; apart < 32; apart *= 2)
        sums[t][e] += __shfl_xor_sync(~0u, sums[t][e], apart);
#pragma unroll 1
  for (int turn = 0; turn < Config::threads / 32; ++turn) {
    if (thread / 32 == turn && thread % 32 < of_warp) {
#pragma unroll
      for (int t = 0; t < S::taps; ++t)
#pragma unroll
        for (int e = 0; e < each; ++e) {
          float& total = totals[t * S::channels + own + e];
          total = turn == 0 ? sums[t][e] : total + sums[t][e];
        }
    }
    __syncthreads();
  }
#pragma unroll 1
  for (int i = thread; i < S::taps * S::lanes; i += Config::threads) {
    const int tap = i / S::lanes, channel = i % S::lanes * each;
    if (first_channel + channel >= S::all_channels) continue;
    typename S::Coord c = batch;
    S::set_channel(c, first_channel + channel);
    S::set_taps(typename Config::Looped{}, c, looped, tap);
    float sum[each];
#pragma unroll
    for (int e = 0; e < each; ++e) {
      sum[e] = totals[tap * S::channels + channel + e];
      if (sum[e] != sum[e])
        sum[e] = gradient_alone<Config, Gradient, Image>(args, neighbour<S::beside_each>(c, e));
    }
    finish<Config, Body, S::beside_each>(args, c, sum);
  }
}

}  // namespace sinter::depthwise
