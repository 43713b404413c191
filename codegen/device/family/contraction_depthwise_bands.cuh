// Band matrices: what kernels of depthwise convolutions on tensor cores are made of.
//
// Of one channel and one row r of its filter, the results of a tile of `columns` neighbours are
//
//   sum(x) = sum over k of pixel(k) * T_r(k, x),   T_r(k, x) = w(r, tap that x has for pixel k),
//
// with zeros where x has no tap for the pixel: a band matrix (Toeplitz). With k over the 16 pixels
// that the tile sees and x over up to 8 results it is the right operand of one MMA of
// tensor cores, whose 16 rows are tiles that have nothing to do with each other: `across` of them
// side by side in an image, of 16 / across planes. Of 7 taps 44 % of the products count, which
// still are seven times as many as CUDA cores compute. (7 x 7 on an H100: 106 us on those.)
//
// A warp has the `each` channels of a vector, 2 or 4, and walks down its planes. It reads a row's
// pixels once and multiplies them with the bands of all rows of the filter, which stay in
// registers, for all rows of results that see them: that of slot s goes on in slot s - 1 with the
// next row, and that of slot 0 is complete. So nothing but sums moves, and these by the
// instruction that adds to them, whose result may lie elsewhere than its addend.
//
// Boxed, a tile may see more than 16 pixels: as many MMAs as these have sixteens add up,
// each with its own band. So 31 taps of one row, three for 8 results, are 128 products a result
// where CUDA cores multiply 31, and still eight times as fast.
//
// A register of the left operand holds two neighbouring pixels of a channel, a word of memory two
// neighbouring channels of a pixel: words of two pixels are mixed.
//
// Results leave through shared memory, where a row of all channels comes together; the row before
// is stored while one is multiplied.
//
// A pixel that is infinite or NaN makes NaN of the results beside it that do not see it, by its
// products with the band's zeros. Sums that are NaN are therefore taken again on CUDA cores.
//
// Config is that of contraction_depthwise.cuh with rows = 1, lanes = warps that multiply, and
// `across` and `stages`; Image and Filter are the same.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/family/contraction_depthwise.cuh"

namespace sinter::depthwise {

SINTER_DEVICE unsigned word_of(unsigned x, int) { return x; }
SINTER_DEVICE unsigned word_of(const uint2& x, int w) { return w == 0 ? x.x : x.y; }

// A block's parts and where they lie in shared memory.
template <class Config>
struct Bands {
  using S = Shape<Config>;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int tiles = 16, depth = 16, width = 8;          // of an MMA
  static constexpr bool boxed = requires { Config::image_line; };  // by TMA
  static constexpr int across = Config::across, planes = tiles / across;
  static constexpr int each = Config::each, words = each / 2, bytes = 4 * words,
                       lanes = Config::lanes;
  // Boxed, four more have boxes loaded and stored.
  static_assert(Config::columns <= width && Config::rows == 1 &&
                Config::threads == 32 * (lanes + (boxed ? 4 : 0)));
  static_assert(Columns::divisor == 1 && Rows::divisor == 1 && lanes % 2 == 0);

  // Pixels from tile to tile; of a tile that some result sees; of a row.
  static constexpr int pitch = Config::columns * Columns::step, first = Columns::first(0),
                       seen = Columns::last(Config::columns) - first + 1,
                       pixels = (across - 1) * pitch + seen;
  // Groups of tiles side by side. Where there is one, boxed: of a plane, lines of a row of results,
  // an even number, and the fewest of a row of the image. These are all pixels that results see,
  // and behind them as many more as the next plane's row does not begin with, as zeros.
  static constexpr int tile_groups = (S::blocks_across + across - 1) / across,
                       line_pixels = S::extent_of(Columns::pixel_index),
                       result_line = tile_groups == 1 ? (line_pixels + 1) / 2 * 2 : across * pitch,
                       zeros = first < 0 ? -first : 0, of_image = Columns::extent - first,
                       seen_by_all = (line_pixels - Config::columns) * Columns::step + seen,
                       own = of_image < seen_by_all ? of_image : seen_by_all,
                       least_line = own > seen_by_all - zeros ? own : seen_by_all - zeros;
  // MMAs, of `depth` pixels each, that a tile's pixels are.
  static constexpr int chunks = (seen + depth - 1) / depth;
  static_assert(chunks == 1 || (boxed && pitch == width));
  static constexpr int advance = S::advance, slots = S::slots,
                       new_row = S::first_row + (slots - 1) * advance;
  // The tap that the row of results in a slot has for a step's row; -1: none.
  static constexpr SINTER_DEVICE int tap_of(int slot, int row) {
    return Rows::tap_of(0, new_row + row - slot * advance);
  }

  // Tiles lie side by side, behind them those of the next plane; boxed, the other way round, and
  // tile g + 8 is g's neighbour, which sees half of its pixels.
  static SINTER_DEVICE int plane_of(int tile) { return boxed ? tile % planes : tile / across; }
  static SINTER_DEVICE int position_of(int tile) {
    if (!boxed) return tile % across;
    return across == 1 ? 0 : tile % 8 / planes * 2 + tile / 8;
  }
  // Which of a tile's pixels are a lane's elements of k, 0 to 3, `t` the lane's number in its row:
  // neighbours, as they lie in a register; or, boxed, those that put neighbouring lanes in other
  // banks.
  static SINTER_DEVICE int pixel_of(int t, int i) {
    return boxed ? t + 4 * i : 2 * t + i % 2 + i / 2 * 8;
  }

  // Vectors: a pixel's are an odd number, those of even pixels lie before those of odd ones. A tile
  // with fewer than `depth` pixels multiplies others by zero, which at the end of a stage are none.
  static constexpr int pixel = lanes + 1, half = (pixels + 1) / 2, row = 2 * half * pixel;
  static constexpr int bank = 4 * across % 32, plane = (row * advance + 31 - bank) / 32 * 32 + bank,
                       stage = plane * planes + depth / 2 * pixel;
  static constexpr bool even = pitch % 2 == 0;
  static SINTER_DEVICE int place(int i) { return (even ? i / 2 + i % 2 * half : i) * pixel; }
  // The filter, a line of channels for each tap and one of zeros.
  static constexpr int filter = (S::taps + 1) * lanes * words;  // words
};

// A warp's filters as right operands, for each chunk of pixels: lane 4 x + t has, of column x, k =
// 2 t, 2 t + 1 and eight on, which are the pixels that Bands says.
template <class Config>
struct BandMatrices {
  using B = Bands<Config>;
  static constexpr int halves = 2 * B::chunks;
  unsigned at[B::Rows::taps][B::chunks][B::each][2];

  // Where a lane's taps of the filter's first row lie, and how far from there those of the next
  // one; of an element that has none zeros, for all rows.
  struct Taps {
    const unsigned* first[halves][2];
    int row[halves][2];
    SINTER_DEVICE Taps(const unsigned* filter, int warp, int lane) {
      using Columns = typename B::Columns;
      constexpr int line = B::lanes * B::words;
      const int column = lane / 4;
#pragma unroll
      for (int n = 0; n < halves * 2; ++n) {
        const int h = n / 2, pixel = h / 2 * B::depth + B::pixel_of(lane % 4, h % 2 * 2 + n % 2),
                  s = column < Config::columns ? Columns::tap_of(column, B::first + pixel) : -1;
        first[h][n % 2] = filter + (s < 0 ? B::S::taps : s) * line + warp * B::words;
        row[h][n % 2] = s < 0 ? 0 : Columns::taps * line;
      }
    }
  };
  SINTER_DEVICE void load(const unsigned* filter, int warp) {
    const Taps taps(filter, warp, static_cast<int>(threadIdx.x) % 32);
#pragma unroll
    for (int r = 0; r < B::Rows::taps; ++r) load_row(taps, r);
  }
  SINTER_DEVICE void load_row(const Taps& taps, int r) {
    using Vector = typename Word<B::bytes>::Type;
#pragma unroll
    for (int h = 0; h < halves; ++h) {
      const auto of = [&](int i) {
        return *reinterpret_cast<const Vector*>(taps.first[h][i] + r * taps.row[h][i]);
      };
      const Vector x = of(0), y = of(1);
#pragma unroll
      for (int w = 0; w < B::words; ++w) {
        at[r][h / 2][2 * w][h % 2] = warp_matrix::low_halves(word_of(x, w), word_of(y, w));
        at[r][h / 2][2 * w + 1][h % 2] = warp_matrix::high_halves(word_of(x, w), word_of(y, w));
      }
    }
  }
};

// One result on CUDA cores.
template <class Config, class Image, class Filter, class Args>
SINTER_DEVICE float sum_alone(const Args& args, typename Shape<Config>::Coord c) {
  float sum = 0;
#pragma unroll 1
  for (int tap = 0; tap < Shape<Config>::taps; ++tap) {
    Shape<Config>::set_taps(List<>{}, c, 0, tap);
    sum += sinter::load<typename Image::Access, float>(Image::base(args), c) *
           sinter::load<typename Filter::Access, float>(Filter::base(args), c);
  }
  return sum;
}

// The steps of a thread block: down the rows of results [line, last) of all groups, those of one
// group of tiles and planes behind those of another.
template <class Config, class Tiles = Bands<Config>>
struct BandSteps {
  using B = Tiles;
  static constexpr int lines = B::S::blocks_down, before = B::slots - 1, advance = B::advance;
  // Rows above the image are zeros, as the sums are: the first block that sees others.
  static constexpr int top =
      B::new_row <= 0 ? -B::new_row / advance : -((B::new_row + advance - 1) / advance);
  int line, last;                 // `line`: behind this group's
  int group, first = 0, end = 0;  // rows of results
  int begin = 0, block = 0;       // of the group's steps the first, and this one

  SINTER_DEVICE BandSteps(int line, int last) : line(line), last(last) {
    if (line < last) enter();
  }
  SINTER_DEVICE bool more() const { return block < end; }
  SINTER_DEVICE bool begins() const { return block == begin; }
  // The first row of the image that the step's results see and those before do not.
  SINTER_DEVICE int image_row() const { return block * advance + B::new_row; }
  // Whether another group begins.
  SINTER_DEVICE bool next() {
    if (++block < end || line == last) return false;
    enter();
    return true;
  }

 private:
  SINTER_DEVICE void enter() {
    group = line / lines;
    first = line - group * lines;
    end = first + last - line < lines ? first + last - line : lines;
    line += end - first;
    begin = first - before < top ? top : first - before;
    begin = begin < first ? begin : first;
    block = begin;
  }
};

// What a thread block's warps do with rows of pixels, wherever they come from.
template <class Config, class Image, class Filter, class Body>
struct BandWork {
  using B = Bands<Config>;
  using S = typename B::S;
  using Steps = BandSteps<Config>;
  using Coord = typename S::Coord;
  using Index = typename Config::Index;
  using Element = typename Image::Element;
  static constexpr int each = B::each, lanes = B::lanes;
  static constexpr int tile_groups = B::tile_groups,
                       groups = (S::planes() + B::planes - 1) / B::planes * tile_groups;
  unsigned* filter;
  int first_channel;
  BandMatrices<Config> bands;

  static SINTER_DEVICE int first_tile(int group) { return group % tile_groups * B::across; }
  static SINTER_DEVICE int first_plane(int group) { return group / tile_groups * B::planes; }

  template <class Args>
  SINTER_DEVICE void load_filter(const Args& args) const {
    // All loads of a thread before its stores, which wait for them.
    constexpr int elements = 2 * B::filter,
                  own = (elements + Config::threads - 1) / Config::threads;
    const int thread = static_cast<int>(threadIdx.x);
    Element values[own];
#pragma unroll
    for (int n = 0; n < own; ++n) {
      const int i = thread + n * Config::threads, channel = first_channel + i % S::channels,
                tap = i / S::channels;
      Coord c;
      c.at[Config::channel] = channel;
      S::set_taps(List<>{}, c, 0, tap);
      values[n] = Element{};
      if (tap < S::taps && channel < S::all_channels)
        values[n] = hardware::load(Filter::base(args) + locate<typename Filter::Access>(c).offset);
    }
#pragma unroll
    for (int n = 0; n < own; ++n)
      if (thread + n * Config::threads < elements)
        reinterpret_cast<Element*>(filter)[thread + n * Config::threads] = values[n];
  }
  // Adds a step's products to the sums that see its rows, each of which moves up a slot: those of
  // slots [from, to), in this order.
  template <int from = 0, int to = B::slots, class Pixels>
  SINTER_DEVICE void multiply(float (&sums)[B::slots][each][4],
                              const Pixels (&pixels)[B::advance]) const {
    constexpr float zero[4] = {};
#pragma unroll
    for (int slot = from; slot < to; ++slot)
#pragma unroll
      for (int e = 0; e < each; ++e) {
        const float* before =
            slot + 1 < B::slots ? sums[slot + 1 < B::slots ? slot + 1 : 0][e] : zero;
#pragma unroll
        for (int j = 0; j < B::advance; ++j) {
          const int r = B::tap_of(slot, j);
          if (r < 0) continue;
#pragma unroll
          for (int n = 0; n < B::chunks; ++n) {
            warp_matrix::multiply(Element{}, sums[slot][e], before, pixels[j].at[n][e],
                                  bands.at[r][n][e][0], bands.at[r][n][e][1]);
            before = sums[slot][e];
          }
        }
        if (before != sums[slot][e])
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[slot][e][i] = before[i];
      }
  }
};

// A thread block's part: `run` rows of results of all groups, of the channels from `first` on,
// which the walk holds; those of other channels lie beside it.
template <class Config, class Walk, class Args>
SINTER_DEVICE void walk_rows(Walk& walk, const Args& args, int& first) {
  using S = Shape<Config>;
  constexpr int lines = Walk::groups * Walk::Steps::lines;
  const int block = static_cast<int>(blockIdx.x);
  const int line = block / S::channel_blocks * Config::run;
  first = block % S::channel_blocks * S::channels;
  walk.run(args, line, line + Config::run < lines ? line + Config::run : lines);
}

}  // namespace sinter::depthwise
