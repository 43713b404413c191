// Depthwise convolutions of 16-bit numbers on the tensor cores that every GPU from sm_80 on has:
// forward, and the data gradient of stride 1.
//
// Of one channel and one row r of its filter, the results of a tile of `columns` neighbours are
//
//   sum(x) = sum over k of pixel(k) * T_r(k, x),   T_r(k, x) = w(r, tap that x has for pixel k),
//
// with zeros where x has no tap for the pixel: a band matrix (Toeplitz). With k over the 16 pixels
// that the tile sees and x over up to 8 results it is the right operand of one multiplication of
// tensor cores, whose 16 rows are tiles that have nothing to do with each other: `across` of them
// side by side in an image, of 16 / across planes. Of 7 taps 44 % of the products count, which
// still are seven times as many as ordinary cores compute. (7 x 7: 115 us on those.)
//
// A warp has the `each` channels of a vector, 2 or 4, and walks down its planes. It reads a row's
// pixels once and multiplies them with the bands of all rows of the filter, which stay in
// registers, for all rows of results that see them: that of slot s goes on in slot s - 1 with the
// next row, and that of slot 0 is complete. So nothing but sums moves, and these by the
// instruction that adds to them, whose result may lie elsewhere than its addend.
//
// A register of the left operand holds two neighbouring pixels of a channel, a word of memory two
// neighbouring channels of a pixel: words of two pixels are mixed. All lanes read the same channels
// of different pixels, therefore pixels lie an odd number of vectors apart in shared memory, even
// ones first and odd ones behind them, and planes so that those of a warp fall into other banks.
//
// A row's pixels of a thread block's lanes * each channels come by asynchronous copies, one vector
// each, `stages` rows ahead. Sums leave through shared memory, where a row of results of all
// channels comes together, so that they are stored in whole packs; the row before is stored while
// one is multiplied, with one barrier for both.
//
// A pixel that is infinite or NaN makes NaN of the results beside it that do not see it, by its
// products with the band's zeros. Sums that are NaN are therefore taken again on ordinary cores.
//
// Config is that of contraction_depthwise.cuh with rows = 1, lanes = warps of a block, and `across`
// and `stages`; Image and Filter are the same.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/family/contraction_depthwise.cuh"

namespace sinter::depthwise {

// A block's parts and where they lie in shared memory.
template <class Config>
struct Bands {
  using S = Shape<Config>;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int tiles = 16, depth = 16, width = 8;  // of a multiplication
  static constexpr int across = Config::across, planes = tiles / across;
  static constexpr int each = Config::each, words = each / 2, bytes = 4 * words,
                       lanes = Config::lanes;
  static_assert(Config::threads == 32 * lanes && Config::columns <= width && Config::rows == 1);
  static_assert(Columns::divisor == 1 && Rows::divisor == 1 && lanes % 2 == 0);

  // Pixels from tile to tile; of a tile that some result sees; of a row.
  static constexpr int pitch = Config::columns * Columns::step, first = Columns::first(0),
                       seen = Columns::last(Config::columns) - first + 1,
                       pixels = (across - 1) * pitch + seen;
  static_assert(seen <= depth);
  static constexpr int advance = S::advance, slots = S::slots,
                       new_row = S::first_row + (slots - 1) * advance;
  // The tap that the row of results in a slot has for a step's row; -1: none.
  static constexpr SINTER_DEVICE int tap_of(int slot, int row) {
    return Rows::tap_of(0, new_row + row - slot * advance);
  }

  // Vectors: a pixel's are an odd number, those of even pixels lie before those of odd ones. A tile
  // with fewer than `depth` pixels multiplies others by zero, which at the end of a stage are none.
  static constexpr int pixel = lanes + 1, half = (pixels + 1) / 2, row = 2 * half * pixel;
  static constexpr int bank = 4 * across % 32, plane = (row * advance + 31 - bank) / 32 * 32 + bank,
                       stage = plane * planes + depth / 2 * pixel;
  static constexpr bool even = pitch % 2 == 0;
  static SINTER_DEVICE int place(int i) { return (even ? i / 2 + i % 2 * half : i) * pixel; }
  // Floats of a row of results: a tile's even columns lie before the odd ones of all tiles, which
  // lie in other banks, since packs of an even and an odd column are read at once.
  static constexpr int result = lanes * each + 4, odd = tiles * width / 2 * result + 4,
                       results = 2 * odd;
  static SINTER_DEVICE int result_at(int tile, int column) {
    return column % 2 * odd + (tile * (width / 2) + column / 2) * result;
  }
  // The filter, a line of channels for each tap and one of zeros.
  static constexpr int filter = (S::taps + 1) * lanes * words;  // words
};

// Hides from the compiler how the number came about: it is kept, and not computed again in a loop.
SINTER_DEVICE void keep(unsigned& x) { asm volatile("" : "+r"(x)); }
SINTER_DEVICE void keep(int& x) { asm volatile("" : "+r"(x)); }

// A warp's filters as right operands: lane 4 x + t has, of column x, k = 2 t, 2 t + 1 and eight on.
template <class Config>
struct BandMatrices {
  using B = Bands<Config>;
  unsigned at[B::Rows::taps][B::each][2];

  SINTER_DEVICE void load(const unsigned* filter, int warp) {
    using Columns = typename B::Columns;
    const int lane = static_cast<int>(threadIdx.x) % 32, column = lane / 4, k = lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < B::Rows::taps; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const unsigned* line[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int s =
              column < Config::columns ? Columns::tap_of(column, B::first + k + 8 * h + i) : -1;
          line[i] =
              filter + ((s < 0 ? B::S::taps : r * Columns::taps + s) * B::lanes + warp) * B::words;
        }
#pragma unroll
        for (int w = 0; w < B::words; ++w) {
          at[r][2 * w][h] = warp_matrix::low_halves(line[0][w], line[1][w]);
          at[r][2 * w + 1][h] = warp_matrix::high_halves(line[0][w], line[1][w]);
        }
      }
  }
};

// A warp's pixels of one row as left operands: lane 4 g + t has those of tiles g and g + 8.
template <class Config>
struct PixelMatrices {
  using B = Bands<Config>;
  using Vector = typename Word<B::bytes>::Type;
  unsigned at[B::each][4];

  // `row`: of the row and the lane's vector; `tile`: of both tiles' pixel 2 t.
  SINTER_DEVICE void load(const unsigned* row, const int (&tile)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned x[B::words], y[B::words];
      get(row + (tile[i % 2] + B::place(i / 2 * 8)) * B::words, x);
      get(row + (tile[i % 2] + B::place(i / 2 * 8 + 1)) * B::words, y);
#pragma unroll
      for (int w = 0; w < B::words; ++w) {
        at[2 * w][i] = warp_matrix::low_halves(x[w], y[w]);
        at[2 * w + 1][i] = warp_matrix::high_halves(x[w], y[w]);
      }
    }
  }

 private:
  static SINTER_DEVICE void get(const unsigned* from, unsigned (&to)[B::words]) {
    *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(from);
  }
};

// The copies of a block's rows: which pixels a thread brings, the same in every row.
template <class Config, class Image>
struct RowCopies {
  using B = Bands<Config>;
  using Index = typename Config::Index;
  using Element = typename Image::Element;
  static constexpr int units = B::planes * B::pixels, count = (units + 31) / 32;
  static_assert(count <= 32);
  const Element* image;
  Index from[count];   // elements of the image's row 0
  unsigned to[count];  // in stage 0
  unsigned inside;     // of the image's columns, a bit for each

  // `start_of(plane)`: the element where the image's row 0 of a plane begins; `planes`: how many
  // there are.
  template <class StartOf>
  SINTER_DEVICE void aim(const Element* base, unsigned stages, int column, int planes,
                         const StartOf& start_of) {
    image = base;
    inside = 0;
    const int lane = static_cast<int>(threadIdx.x) % B::lanes;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int unit = static_cast<int>(threadIdx.x) / B::lanes + 32 * i, plane = unit / B::pixels,
                x = unit % B::pixels, at = column + x;
      from[i] = start_of(plane) + static_cast<Index>(at) * static_cast<Index>(B::Columns::stride) +
                lane * B::each;
      to[i] = stages + static_cast<unsigned>((plane * B::plane + B::place(x) + lane) * B::bytes);
      if (plane < planes && static_cast<unsigned>(at) < static_cast<unsigned>(B::Columns::extent))
        inside |= 1u << i;
      keep(to[i]);
    }
  }
  SINTER_DEVICE void start(int stage, int block) const {
    using Rows = typename B::Rows;
#pragma unroll
    for (int j = 0; j < B::advance; ++j) {
      const int row = block * B::advance + B::new_row + j;
      const Index start = static_cast<Index>(row) * static_cast<Index>(Rows::stride);
      const unsigned exist =
          static_cast<unsigned>(row) < static_cast<unsigned>(Rows::extent) ? inside : 0;
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (32 * (i + 1) <= units || static_cast<int>(threadIdx.x) < B::lanes * (units - 32 * i))
          warp_matrix::copy<B::bytes>(
              to[i] + static_cast<unsigned>((stage * B::stage + j * B::row) * B::bytes),
              image + (start + from[i]), (exist & 1u << i) != 0);
    }
  }
};

// One result on ordinary cores.
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

// The packs of a row of results that a thread stores, the same in every row.
template <class Config, class Image, class Filter, class Body>
struct RowOfResults {
  using B = Bands<Config>;
  using S = typename B::S;
  using Coord = typename S::Coord;
  static constexpr int packs = S::channels / Config::width,
                       count = B::tiles * B::width * packs / Config::threads;
  Coord c[count];
  int at[count];    // floats
  unsigned exists;  // a bit for each

  // `set_plane(c, i)`: sets the plane's coordinates; `planes`: how many there are.
  template <class SetPlane>
  SINTER_DEVICE void aim(int first_channel, int first_tile, int planes, const SetPlane& set_plane) {
    using Columns = typename B::Columns;
    exists = 0;
#pragma unroll
    for (int n = 0; n < count; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * Config::threads,
                channel = i % packs * Config::width, tile = i / packs / B::width,
                column = i / packs % B::width, plane = tile / B::across,
                x = (first_tile + tile % B::across) * Config::columns + column;
      set_plane(c[n], plane);
      S::set_pixel(c[n], 0, x);
      c[n].at[Config::channel] = first_channel + channel;
      at[n] = B::result_at(tile, column) + channel;
      if (column < Config::columns && plane < planes && x < S::extent_of(Columns::pixel_index) &&
          first_channel + channel < S::all_channels)
        exists |= 1u << n;
    }
  }
  template <class Args>
  SINTER_DEVICE void store(const Args& args, float* results, int row) {
#pragma unroll
    for (int n = 0; n < count; ++n) {
      if ((exists >> n & 1) == 0) continue;
      if constexpr (B::Rows::pixel_index >= 0) c[n].at[B::Rows::pixel_index] = row;
      float* const sums = results + at[n];
      Pack<float, Config::width> pack;
      read_pack(sums, pack);
      float nothing = 0;
#pragma unroll
      for (int e = 0; e < Config::width; ++e) nothing = math::fma(pack.at[e], 0.0f, nothing);
      if (nothing != 0) {  // but NaN: one of them is not finite
#pragma unroll 1
        for (int e = 0; e < Config::width; ++e)
          if (sums[e] != sums[e])
            sums[e] = sum_alone<Config, Image, Filter>(args, neighbour<Config::channel>(c[n], e));
        read_pack(sums, pack);
      }
      finish<Config, Body, Config::channel>(args, c[n], pack.at);
    }
  }
};

// The steps of a thread block: down the rows of results [line, last) of all groups, those of one
// group of tiles and planes behind those of another.
template <class Config>
struct BandSteps {
  using B = Bands<Config>;
  // Rows above the image are zeros, as the sums are: the first block that sees others.
  static constexpr int top =
      B::new_row <= 0 ? -B::new_row / B::advance : -((B::new_row + B::advance - 1) / B::advance);
  int line, last;                 // `line`: behind this group's
  int group, first = 0, end = 0;  // rows of results
  int begin = 0, block = 0;       // of the group's steps the first, and this one

  SINTER_DEVICE BandSteps(int line, int last) : line(line), last(last) {
    if (line < last) enter();
  }
  SINTER_DEVICE bool more() const { return block < end; }
  SINTER_DEVICE bool begins() const { return block == begin; }
  // Whether another group begins.
  SINTER_DEVICE bool next() {
    if (++block < end || line == last) return false;
    enter();
    return true;
  }

 private:
  SINTER_DEVICE void enter() {
    constexpr int lines = B::S::blocks_down;
    group = line / lines;
    first = line - group * lines;
    end = first + last - line < lines ? first + last - line : lines;
    line += end - first;
    begin = first - (B::slots - 1) < top ? top : first - (B::slots - 1);
    begin = begin < first ? begin : first;
    block = begin;
  }
};

template <class Config, class Image, class Filter, class Body>
struct BandWalk {
  using B = Bands<Config>;
  using S = typename B::S;
  using Coord = typename S::Coord;
  using Index = typename Config::Index;
  using Element = typename Image::Element;
  static constexpr int each = B::each, lanes = B::lanes;
  static constexpr int tile_groups = (S::blocks_across + B::across - 1) / B::across,
                       groups = (S::planes() + B::planes - 1) / B::planes * tile_groups;
  float* results;    // of two rows
  unsigned* stages;  // of rows of pixels
  unsigned* filter;
  int first_channel;
  RowCopies<Config, Image> copies;
  RowOfResults<Config, Image, Filter, Body> finished;
  BandMatrices<Config> bands;

  template <class Args>
  SINTER_DEVICE void run(const Args& args, int line, int last) {
    const int lane = static_cast<int>(threadIdx.x) % 32, tile = lane / 4;
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    BandSteps<Config> ahead(line, last), now = ahead;
    const auto bring = [&](int stage) {
      if (ahead.more()) {
        if (ahead.begins()) aim_copies(args, ahead.group);
        copies.start(stage, ahead.block);
        ahead.next();
      }
      warp_matrix::commit();
    };
#pragma unroll 1
    for (int i = 0; i < Config::stages - 1; ++i) bring(i);
    load_filter(args);
    __syncthreads();
    bands.load(filter, warp);

    int tile_at[2];  // vectors of the first pixels of the lane's two tiles
#pragma unroll
    for (int h = 0; h < 2; ++h)
      tile_at[h] = (tile + 8 * h) / B::across * B::plane +
                   B::place((tile + 8 * h) % B::across * B::pitch + lane % 4 * 2);
    float sums[B::slots][each][4] = {};
    int filled = Config::stages - 1, current = 0;  // stages
    const auto following = [](int stage) { return stage == Config::stages - 1 ? 0 : stage + 1; };
    int row = -1, turn = 0;  // the row of results to be stored, which lies in the other turn's half
#pragma unroll 1
    while (now.more()) {
      // Behind the barrier this step's rows have come, nobody reads the stage before any more, and
      // the row of results before lies in shared memory.
      warp_matrix::wait<Config::stages - 2>();
      __syncthreads();
      bring(filled);
      filled = following(filled);

      PixelMatrices<Config> pixels[B::advance];
#pragma unroll
      for (int j = 0; j < B::advance; ++j)
        pixels[j].load(stages + (current * B::stage + j * B::row + warp) * B::words, tile_at);
      current = following(current);
      multiply(sums, pixels);
      if (row >= 0) finished.store(args, results + (turn ^ 1) * B::results, row);
      if (now.begins()) aim_results(now.group);
      row = -1;
      if (now.block >= now.first) {
        put(results + turn * B::results + warp * each, tile, sums[0]);
        row = now.block;
        turn ^= 1;
      }
      if (now.next()) {
        keep(turn);  // makes this a branch, not a choice for each sum in every step
#pragma unroll
        for (int slot = 0; slot < B::slots; ++slot)
#pragma unroll
          for (int i = 0; i < each * 4; ++i) sums[slot][i / 4][i % 4] = 0;
      }
    }
    __syncthreads();
    if (row >= 0) finished.store(args, results + (turn ^ 1) * B::results, row);
  }

 private:
  static SINTER_DEVICE int first_tile(int group) { return group % tile_groups * B::across; }
  static SINTER_DEVICE int first_plane(int group) { return group / tile_groups * B::planes; }

  template <class Args>
  SINTER_DEVICE void aim_copies(const Args& args, int group) {
    const bool exists =
        first_channel + static_cast<int>(threadIdx.x) % lanes * each < S::all_channels;
    copies.aim(
        Image::base(args), warp_matrix::address(stages), first_tile(group) * B::pitch + B::first,
        exists ? S::planes() - first_plane(group) : 0, [&](int plane) {
          Coord c;
          S::set_plane(c, first_plane(group) + plane);
          c.at[Config::channel] = first_channel;
          return static_cast<Index>(Image::offset) + dot(typename Image::Access::Stride{}, c.at);
        });
  }
  SINTER_DEVICE void aim_results(int group) {
    finished.aim(first_channel, first_tile(group), S::planes() - first_plane(group),
                 [&](Coord& c, int plane) { S::set_plane(c, first_plane(group) + plane); });
  }
  template <class Args>
  SINTER_DEVICE void load_filter(const Args& args) const {
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < B::filter * 2; i += Config::threads) {
      const int channel = first_channel + i % S::channels, tap = i / S::channels;
      Coord c;
      c.at[Config::channel] = channel;
      S::set_taps(List<>{}, c, 0, tap);
      Element value{};
      if (tap < S::taps && channel < S::all_channels)
        value = hardware::load(Filter::base(args) + locate<typename Filter::Access>(c).offset);
      reinterpret_cast<Element*>(filter)[i] = value;
    }
  }
  // Adds a step's products to the sums that see its rows, each of which moves up a slot.
  SINTER_DEVICE void multiply(float (&sums)[B::slots][each][4],
                              const PixelMatrices<Config> (&pixels)[B::advance]) const {
    constexpr float zero[4] = {};
#pragma unroll
    for (int slot = 0; slot < B::slots; ++slot)
#pragma unroll
      for (int e = 0; e < each; ++e) {
        const float* before =
            slot + 1 < B::slots ? sums[slot + 1 < B::slots ? slot + 1 : 0][e] : zero;
#pragma unroll
        for (int j = 0; j < B::advance; ++j) {
          const int r = B::tap_of(slot, j);
          if (r < 0) continue;
          warp_matrix::multiply(Element{}, sums[slot][e], before, pixels[j].at[e],
                                bands.at[r][e][0], bands.at[r][e][1]);
          before = sums[slot][e];
        }
        if (before != sums[slot][e])
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[slot][e][i] = before[i];
      }
  }
  // `to`: the warp's first channel of a row of results.
  static SINTER_DEVICE void put(float* to, int tile, const float (&sums)[each][4]) {
    using Move = typename Word<4 * each>::Type;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Pack<float, each> pack;
#pragma unroll
      for (int e = 0; e < each; ++e) pack.at[e] = sums[e][i];
      *reinterpret_cast<Move*>(to + B::result_at(tile + i / 2 * 8, column + i % 2)) =
          *reinterpret_cast<const Move*>(pack.at);
    }
  }
};

// Forward, and the data gradient of stride 1. A thread block has `run` rows of results of all
// groups; those of other channels lie beside it.
template <class Config, class Image, class Filter, class Body, class Args>
SINTER_DEVICE void run_mma(const Args& args) {
  using Walk = BandWalk<Config, Image, Filter, Body>;
  using B = typename Walk::B;
  using S = typename B::S;
  hardware::grid_dependency_wait();
  Walk walk;
  walk.results = contraction::dynamic_floats();
  walk.stages = reinterpret_cast<unsigned*>(walk.results + 2 * B::results);
  walk.filter = walk.stages + Config::stages * B::stage * B::words;
  // Places that no copy reaches are multiplied by zero.
  static_assert(Config::stages * B::stage * B::words % 4 == 0);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Config::stages * B::stage * B::words / 4;
       i += Config::threads)
    reinterpret_cast<uint4*>(walk.stages)[i] = uint4{};
  __syncthreads();
  constexpr int lines = Walk::groups * S::blocks_down;
  const int block = static_cast<int>(blockIdx.x);
  const int line = block / S::channel_blocks * Config::run;
  walk.first_channel = block % S::channel_blocks * S::channels;
  walk.run(args, line, line + Config::run < lines ? line + Config::run : lines);
}

}  // namespace sinter::depthwise
