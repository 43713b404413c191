// The left operand of a convolution as a product of matrices: a row is a pixel of the result, in
// the order n, [d,] h, w; k is the filter's taps and, fastest, the channels, in whole lines:
// channels past the last are zeros. One instruction brings a line of channels of all the tile's
// pixels, moved by a tap; the tensor map's bounds of base pixels say where a row of pixels ends, so
// that tiles may begin and end anywhere.
//
// `Window` says, innermost index first (w, h, d):
//   Result    the result's extents          Filter    taps
//   First     base pixel of result 0        Dilation  pixels from tap to tap
//   Step      base pixels from result to result
//   channels  of the image                  reversed  taps count down (gradient of the image)
// `Operand`: prefetch(args), load_pixels(args, to, barrier, tap, c, w, [h, [d,]] n).
#pragma once
#include "sinter/device/core/index.cuh"
#include "sinter/device/engine/loader/loader.cuh"

namespace sinter {

// Steps of k: of each tap, outermost first, lines of channels.
template <class Window, class Tile>
struct WindowSteps {
  static constexpr int lines = static_cast<int>(ceil_divide(Window::channels, Tile::depth));
  static constexpr int taps = static_cast<int>(Window::Filter::product), steps = taps * lines;
  static SINTER_DEVICE int channel(int step) { return step % lines * Tile::depth; }
  static SINTER_DEVICE int tap(int step) { return step / lines; }  // w fastest
};

template <class Operand, class Window, class Tile_>
struct TmaIm2col {
  using Tile = Tile_;
  using Steps = WindowSteps<Window, Tile>;
  static constexpr int threads = 1, tma_bytes = Tile::bytes, rank = Window::Result::size;
  static_assert(rank >= 1 && rank <= 3, "TMA knows images of one to three dimensions");
  static_assert(Tile::major == Major::k && Tile::slabs == 1, "a step of k is one line of channels");
  static_assert(Tile::extent <= 1024, "TMA brings at most 1024 pixels at once");
  int base[rank], image;  // the tile's first base pixel

  // At the tile's first row.
  SINTER_DEVICE void aim(int row) {
#pragma unroll
    for (int d = 0; d < rank; ++d) {
      const int extent = static_cast<int>(Window::Result::at(d)), rest = quotient(row, extent);
      base[d] = static_cast<int>(Window::First::at(d)) +
                (row - rest * extent) * static_cast<int>(Window::Step::at(d));
      row = rest;
    }
    image = row;
  }
  template <class Args>
  SINTER_DEVICE void load(const Args& args, int step, unsigned to, unsigned full) const {
    const int c = Steps::channel(step);
    int tap = Steps::tap(step);
    unsigned short offset[rank];
#pragma unroll
    for (int d = 0; d < rank; ++d) {
      const int count = static_cast<int>(Window::Filter::at(d)), rest = quotient(tap, count),
                at = tap - rest * count;
      offset[d] = static_cast<unsigned short>((Window::reversed ? count - 1 - at : at) *
                                              Window::Dilation::at(d));
      tap = rest;
    }
    if constexpr (rank == 1)
      Operand::load_pixels(args, to, full, hopper::PixelOffsets1{offset[0]}, c, base[0], image);
    else if constexpr (rank == 2)
      Operand::load_pixels(args, to, full, hopper::PixelOffsets2{offset[0], offset[1]}, c, base[0],
                           base[1], image);
    else
      Operand::load_pixels(args, to, full, hopper::PixelOffsets3{offset[0], offset[1], offset[2]},
                           c, base[0], base[1], base[2], image);
  }
};

// The filter beside it: columns are its outputs; k as above. `Operand`: load_tap(args, to, barrier,
// c, tap, column), by a tiled map of [outputs, taps, channels].
template <class Operand, class Window, class Tile_>
struct TmaFilter {
  using Tile = Tile_;
  using Steps = WindowSteps<Window, Tile>;
  static constexpr int threads = 1, tma_bytes = Tile::bytes;
  static_assert(Tile::major == Major::k && Tile::slabs == 1, "a step of k is one line of channels");
  int column;

  template <class Args>
  SINTER_DEVICE void load(const Args& args, int step, unsigned to, unsigned full) const {
    Operand::load_tap(args, to, full, Steps::channel(step), Steps::tap(step), column);
  }
};

}  // namespace sinter
