// Depthwise convolutions of 16-bit numbers whose pixels of a line lie together (channels first), on
// the tensor cores that every GPU from sm_80 on has: forward, and the data gradient of stride 1.
//
// Eight neighbouring results of a channel and the pixels that they see, sixteen at a time, meet
// band matrices as in contraction_depthwise_bands.cuh. Here two neighbouring pixels are a word of
// memory, and so a register of the left operand as it lies: a lane loads its words, those of a
// tile's four lanes and of the tiles beside it lie one behind another, and nothing goes through
// shared memory. What tiles see of their neighbours comes from the first-level cache.
//
// A warp has a channel, whose bands are registers. It walks down the rows of its 16 tiles, `across`
// of them side by side and the others in other planes, as the walk over bands does: each row's
// words meet the bands of all rows of the filter, for all rows of results that see them. Those of
// the next steps are on their way meanwhile.
//
// A pixel that is infinite or NaN makes NaN of results that do not see it, by its products with
// zeros of the band: sums that are NaN are taken again on CUDA cores.
//
// Config is that of contraction_depthwise.cuh with rows = 1, columns = 8 and along_columns, and
// `across`; a warp takes `run` rows of results of all groups of tiles.
#pragma once
#include "sinter/device/family/contraction_depthwise_bands.cuh"

namespace sinter::depthwise {

template <class Config>
struct LineTiles {
  using S = Shape<Config>;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int tiles = 16, depth = 16, width = 8;  // of an MMA
  static_assert(Config::columns == width && Config::rows == 1);
  static_assert(Columns::divisor == 1 && Rows::divisor == 1);
  // Pixels from tile to tile, and those that a tile sees, from an even one on.
  static constexpr int pitch = width * Columns::step, first = Columns::first(0) & ~1,
                       seen = Columns::last(width) - first + 1, chunks = (seen + depth - 1) / depth;
  static_assert(Columns::extent % 2 == 0, "words do not straddle ends");
  static constexpr int across = Config::across, planes = tiles / across;
  // Of the walk, see Bands.
  static constexpr int advance = S::advance, slots = S::slots,
                       new_row = S::first_row + (slots - 1) * advance;
  static constexpr SINTER_DEVICE int tap_of(int slot, int row) {
    return Rows::tap_of(0, new_row + row - slot * advance);
  }
  static SINTER_DEVICE int beside() { return (S::blocks_across + across - 1) / across; }
  static SINTER_DEVICE int groups() { return (S::planes() + planes - 1) / planes * beside(); }
};

// A lane's words of a step as left operands: lane 4 g + t has those of tiles g and g + 8.
template <class Config>
struct LineWords {
  using T = LineTiles<Config>;
  unsigned at[T::advance][T::chunks][4];
};

// Where a lane's words and results of a group of tiles lie.
template <class Config, class Image>
struct LinePlaces {
  using T = LineTiles<Config>;
  using S = typename T::S;
  using Columns = typename T::Columns;
  using Coord = typename S::Coord;
  using Index = typename Config::Index;
  using Element = typename Image::Element;
  const Element* line[2];  // tile g's and g + 8's first word in row 0
  unsigned inside;         // of the image's columns, a bit for each word

  static SINTER_DEVICE int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static SINTER_DEVICE int plane(int group, int h) {
    return group / T::beside() * T::planes + (lane() / 4 + 8 * h) / T::across;
  }
  static SINTER_DEVICE int position(int group, int h) {
    return group % T::beside() * T::across + (lane() / 4 + 8 * h) % T::across;
  }
  // `image`: the channel's pixel 0 of plane 0.
  SINTER_DEVICE void aim(const Element* image, int group) {
    inside = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int plane_of_tile = plane(group, h),
                x = position(group, h) * T::pitch + T::first + lane() % 4 * 2;
      Coord c{};
      S::set_plane(c, plane_of_tile);
      line[h] = image + (dot(typename Image::Access::Stride{}, c.at) + x);
      if (plane_of_tile < S::planes())
#pragma unroll
        for (int i = 0; i < 2 * T::chunks; ++i)
          if (static_cast<unsigned>(x + 8 * i) < static_cast<unsigned>(Columns::extent))
            inside |= 1u << (2 * i + h);
    }
  }
  SINTER_DEVICE void load(LineWords<Config>& words, int row) const {
    using Rows = typename T::Rows;
#pragma unroll
    for (int j = 0; j < T::advance; ++j) {
      const unsigned exist =
          static_cast<unsigned>(row + j) < static_cast<unsigned>(Rows::extent) ? inside : 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Element* const from =
            line[h] + static_cast<Index>(row + j) * static_cast<Index>(Rows::stride);
#pragma unroll
        for (int i = 0; i < 2 * T::chunks; ++i) {
          unsigned& word = words.at[j][i / 2][i % 2 * 2 + h];
          word = 0;
          if (exist >> (2 * i + h) & 1)
            word = hardware::load(reinterpret_cast<const unsigned*>(from + 8 * i));
        }
      }
    }
  }
};

// The channel's filter as right operands: lane 4 x + t has, of column x, k = 2 t, 2 t + 1 and eight
// on.
template <class Config>
struct LineBands {
  using T = LineTiles<Config>;
  using Columns = typename T::Columns;
  unsigned at[T::Rows::taps][T::chunks][2];

  // `tap(r, s)`: the bits of a factor.
  template <class Tap>
  SINTER_DEVICE void load(const Tap& tap) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < T::Rows::taps; ++r)
#pragma unroll
      for (int i = 0; i < 2 * T::chunks; ++i) {
        unsigned halves[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int s = Columns::tap_of(lane / 4, T::first + 8 * i + lane % 4 * 2 + j);
          halves[j] = s < 0 ? 0 : tap(r, s);
        }
        at[r][i / 2][i % 2] = halves[0] | halves[1] << 16;
      }
  }
};

template <class Config, class Image, class Filter, class Body>
struct LineWalk {
  using T = LineTiles<Config>;
  using S = typename T::S;
  using Coord = typename S::Coord;
  using Index = typename Config::Index;
  using Element = typename Image::Element;
  using Places = LinePlaces<Config, Image>;
  // Steps. (1 to 4 of them, 64 x 384 x 28 x 28, 7 x 7 on an H200: 63.2, 51.5, 47.8, 44.8 us.)
  static constexpr int ahead = 4;
  int channel;
  const Element* image;
  LineBands<Config> bands;
  float sums[T::slots][4] = {};

  template <class Args>
  SINTER_DEVICE LineWalk(const Args& args, int channel) : channel(channel) {
    Coord c{};
    S::set_channel(c, channel);
    image = Image::base(args) + static_cast<Index>(Image::offset) +
            dot(typename Image::Access::Stride{}, c.at);
    bands.load([&](int r, int s) -> unsigned {
      Coord at{};
      S::set_channel(at, channel);
      S::set_taps(List<>{}, at, 0, r * T::Columns::taps + s);
      return hardware::load(reinterpret_cast<const unsigned short*>(
          Filter::base(args) + locate<typename Filter::Access>(at).offset));
    });
  }
  // The rows of results [line, last) of all groups of tiles, group by group.
  template <class Args>
  SINTER_DEVICE void run(const Args& args, int line, int last) {
    constexpr int rows = S::blocks_down;
#pragma unroll 1
    while (line < last) {
      const int group = line / rows, first = line - group * rows,
                end = first + last - line < rows ? first + last - line : rows;
      line += end - first;
      walk(args, group, first, end);
    }
  }

 private:
  // Rows of results [first, end) of a group.
  template <class Args>
  SINTER_DEVICE void walk(const Args& args, int group, int first, int end) {
    // Rows above the image are zeros, as the sums are.
    constexpr int top =
        T::new_row <= 0 ? -T::new_row / T::advance : -((T::new_row + T::advance - 1) / T::advance);
    int block = first - (T::slots - 1) < top ? top : first - (T::slots - 1);
    block = block < first ? block : first;
    LineWords<Config> words[ahead + 1];
    Places places;
    places.aim(image, group);
    const auto load = [&](LineWords<Config>& to, int block) {
      places.load(to, block * T::advance + T::new_row);
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) load(words[i], block + i);
#pragma unroll
    for (int i = 0; i < T::slots * 4; ++i) sums[i / 4][i % 4] = 0;
#pragma unroll 1
    while (true)
#pragma unroll
      for (int i = 0; i <= ahead; ++i) {
        if (block >= end) return;
        load(words[(i + ahead) % (ahead + 1)], block + ahead);
        multiply(words[i]);
        if (block >= first) store(args, group, block);
        ++block;
      }
  }
  SINTER_DEVICE void multiply(const LineWords<Config>& words) {
    constexpr float zero[4] = {};
#pragma unroll
    for (int slot = 0; slot < T::slots; ++slot) {
      const float* before = slot + 1 < T::slots ? sums[slot + 1 < T::slots ? slot + 1 : 0] : zero;
#pragma unroll
      for (int j = 0; j < T::advance; ++j) {
        const int r = T::tap_of(slot, j);
        if (r < 0) continue;
#pragma unroll
        for (int q = 0; q < T::chunks; ++q) {
          warp_matrix::multiply(Element{}, sums[slot], before, words.at[j][q], bands.at[r][q][0],
                                bands.at[r][q][1]);
          before = sums[slot];
        }
      }
      if (before != sums[slot])
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[slot][i] = before[i];
    }
  }
  template <class Args>
  SINTER_DEVICE void store(const Args& args, int group, int row) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int plane = Places::plane(group, h),
                x = Places::position(group, h) * T::width + Places::lane() % 4 * 2;
      if (plane >= S::planes() || x >= S::extent_of(T::Columns::pixel_index)) continue;
      Coord c{};
      S::set_plane(c, plane);
      S::set_channel(c, channel);
      S::set_pixel(c, row, x);
      float two[2] = {sums[0][2 * h], sums[0][2 * h + 1]};
      if (!(math::fma(two[0], 0.0f, two[1] * 0.0f) == 0)) sum_again(args, c, two);
      finish<Config, Body, T::Columns::pixel_index>(args, c, two);
    }
  }
  // Sums that are NaN, on CUDA cores.
  template <class Args>
  static SINTER_DEVICE void sum_again(const Args& args, const Coord& first, float (&sums)[2]) {
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      const Coord c = neighbour<T::Columns::pixel_index>(first, i);
      const float sum = i == 0 ? sums[0] : sums[1];
      if (sum == sum || c.at[T::Columns::pixel_index] >= S::extent_of(T::Columns::pixel_index))
        continue;
      const float again = sum_alone<Config, Image, Filter>(args, c);
      sums[0] = i == 0 ? again : sums[0];
      sums[1] = i == 1 ? again : sums[1];
    }
  }
};

// Neighbouring warps have parts of a channel, then those of the next one.
template <class Config, class Image, class Filter, class Body, class Args>
SINTER_DEVICE void run_lines(const Args& args) {
  using Walk = LineWalk<Config, Image, Filter, Body>;
  using T = typename Walk::T;
  hardware::grid_dependency_wait();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0) +
                   static_cast<int>(blockIdx.x) * (Config::threads / 32),
            lines = T::groups() * T::S::blocks_down,
            parts = (lines + Config::run - 1) / Config::run, channel = warp / parts,
            line = (warp - channel * parts) * Config::run;
  if (channel >= T::S::all_channels) return;
  Walk walk(args, channel);
  walk.run(args, line, line + Config::run < lines ? line + Config::run : lines);
}

}  // namespace sinter::depthwise
