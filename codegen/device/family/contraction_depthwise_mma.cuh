// Depthwise convolutions of 16-bit numbers on the tensor cores that every GPU from sm_80 on has:
// forward, and the data gradient of stride 1. A row's pixels come by asynchronous copies, and meet
// the bands of all rows of the filter (contraction_depthwise_bands.cuh).
//
// All lanes read the same channels of different pixels, therefore pixels lie an odd number of
// vectors apart in shared memory, even ones first and odd ones behind them, and planes so that
// those of a warp fall into other banks. A copy is a vector of a pixel, `stages` rows ahead. Sums
// are stored in whole packs of a row that has come together in shared memory. One barrier a row is
// for the stages and for the rows of results.
#pragma once
#include "sinter/device/family/contraction_depthwise_bands.cuh"

namespace sinter::depthwise {

// A warp's pixels of one row as left operands: lane 4 g + t has those of tiles g and g + 8.
template <class Config>
struct PixelMatrices {
  using B = Bands<Config>;
  using Vector = typename Word<B::bytes>::Type;
  unsigned at[1][B::each][4];

  // `row`: of the row and the lane's vector; `tile`: of both tiles' pixel 2 t.
  SINTER_DEVICE void load(const unsigned* row, const int (&tile)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned x[B::words], y[B::words];
      get(row + (tile[i % 2] + B::place(i / 2 * 8)) * B::words, x);
      get(row + (tile[i % 2] + B::place(i / 2 * 8 + 1)) * B::words, y);
#pragma unroll
      for (int w = 0; w < B::words; ++w) {
        at[0][2 * w][i] = warp_matrix::low_halves(x[w], y[w]);
        at[0][2 * w + 1][i] = warp_matrix::high_halves(x[w], y[w]);
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

// Floats of a row of sums: a tile's even columns lie before the odd ones of all tiles, which lie in
// other banks, since packs of an even and an odd column are read at once.
template <class Config>
struct SumsOfRow {
  using B = Bands<Config>;
  static constexpr int line = B::lanes * B::each + 4, odd = B::tiles * B::width / 2 * line + 4,
                       all = 2 * odd;
  static SINTER_DEVICE int at(int tile, int column) {
    return column % 2 * odd + (tile * (B::width / 2) + column / 2) * line;
  }
  // `to`: the warp's first channel of a row of results.
  static SINTER_DEVICE void put(float* to, int tile, const float (&sums)[B::each][4]) {
    using Move = typename Word<4 * B::each>::Type;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Pack<float, B::each> pack;
#pragma unroll
      for (int e = 0; e < B::each; ++e) pack.at[e] = sums[e][i];
      *reinterpret_cast<Move*>(to + at(tile + i / 2 * 8, column + i % 2)) =
          *reinterpret_cast<const Move*>(pack.at);
    }
  }
};

// The packs of a row of results that a thread stores, the same in every row.
template <class Config, class Image, class Filter, class Body>
struct RowOfResults {
  using B = Bands<Config>;
  using S = typename B::S;
  using Coord = typename S::Coord;
  static constexpr int packs = S::channels / Config::width, of_tile = packs * B::width,
                       count = B::tiles * of_tile / Config::threads;
  static_assert(Config::threads % of_tile == 0 && count <= 32);
  Coord c[count];
  int at[count];    // floats
  unsigned exists;  // a bit for each

  // `set_plane(c, i)`: sets the plane's coordinates; `planes`: how many there are.
  template <class SetPlane>
  SINTER_DEVICE void aim(int first_channel, int first_tile, int planes, const SetPlane& set_plane) {
    using Columns = typename B::Columns;
    const int i = static_cast<int>(threadIdx.x), channel = i % packs * Config::width,
              column = i / packs % B::width;
    exists = 0;
#pragma unroll
    for (int n = 0; n < count; ++n) {  // a thread's packs are tiles apart, and only these differ
      const int tile = i / of_tile + n * (Config::threads / of_tile), plane = B::plane_of(tile),
                x = (first_tile + B::position_of(tile)) * Config::columns + column;
      set_plane(c[n], plane);
      S::set_pixel(c[n], 0, x);
      c[n].at[Config::channel] = first_channel + channel;
      at[n] = SumsOfRow<Config>::at(tile, column) + channel;
      if (column < Config::columns && plane < planes && x < S::extent_of(Columns::pixel_index) &&
          first_channel + channel < S::all_channels)
        exists |= 1u << n;
    }
  }
  // Some packs at a time, so that their reads do not wait for each other.
  template <class Args>
  SINTER_DEVICE void store(const Args& args, float* results, int row) {
    constexpr int together = count < 3 ? count : 3;
#pragma unroll
    for (int first = 0; first < count; first += together) {
      Pack<float, Config::width> packs[together] = {};
      float nothing[together] = {};
#pragma unroll
      for (int i = 0; i < together && first + i < count; ++i)
        if (exists >> (first + i) & 1) read_pack(results + at[first + i], packs[i]);
#pragma unroll
      for (int e = 0; e < Config::width; ++e)
#pragma unroll
        for (int i = 0; i < together; ++i) nothing[i] = math::fma(packs[i].at[e], 0.0f, nothing[i]);
      float all = 0;
#pragma unroll
      for (int i = 0; i < together; ++i) all += nothing[i];
      const bool again = all != 0;  // but NaN: one of them is not finite
#pragma unroll
      for (int i = 0; i < together && first + i < count; ++i) {
        const int n = first + i;
        if ((exists >> n & 1) == 0) continue;
        const Coord place = coordinates(n, row);
        if (again) sum_again(args, place, results + at[n], packs[i]);
        finish<Config, Body, Config::channel, Config::width>(args, place, packs[i].at);
      }
    }
  }

 private:
  SINTER_DEVICE Coord coordinates(int n, int row) const {
    Coord at_row = c[n];
    if constexpr (B::Rows::pixel_index >= 0) at_row.at[B::Rows::pixel_index] = row;
    return at_row;
  }
  // Sums that are NaN, on CUDA cores.
  template <class Args>
  static SINTER_DEVICE void sum_again(const Args& args, const Coord& c, float* sums,
                                      Pack<float, Config::width>& pack) {
#pragma unroll 1
    for (int e = 0; e < Config::width; ++e)
      if (sums[e] != sums[e])
        sums[e] = sum_alone<Config, Image, Filter>(args, neighbour<Config::channel>(c, e));
    read_pack(sums, pack);
  }
};

template <class Config, class Image, class Filter, class Body>
struct BandWalk : BandWork<Config, Image, Filter, Body> {
  using Work = BandWork<Config, Image, Filter, Body>;
  using B = typename Work::B;
  using S = typename Work::S;
  using Coord = typename S::Coord;
  using Index = typename Config::Index;
  static constexpr int each = B::each, lanes = B::lanes;
  using Sums = SumsOfRow<Config>;
  using Work::bands, Work::filter, Work::first_channel;
  float* results;    // of two rows
  unsigned* stages;  // of rows of pixels
  RowOfResults<Config, Image, Filter, Body> finished;
  RowCopies<Config, Image> copies;

  template <class Args>
  SINTER_DEVICE void run(const Args& args, int line, int last) {
    const int lane = static_cast<int>(threadIdx.x) % 32, tile = lane / 4;
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    BandSteps<Config> ahead(line, last), now = ahead;
    const auto fill = [&](int stage) {
      if (ahead.more()) {
        if (ahead.begins()) aim_copies(args, ahead.group);
        copies.start(stage, ahead.block);
        ahead.next();
      }
      warp_matrix::commit();
    };
#pragma unroll 1
    for (int i = 0; i < Config::stages - 1; ++i) fill(i);
    this->load_filter(args);
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
      fill(filled);
      filled = following(filled);

      PixelMatrices<Config> pixels[B::advance];
#pragma unroll
      for (int j = 0; j < B::advance; ++j)
        pixels[j].load(stages + (current * B::stage + j * B::row + warp) * B::words, tile_at);
      current = following(current);
      this->multiply(sums, pixels);
      if (row >= 0) finished.store(args, results + (turn ^ 1) * Sums::all, row);
      if (now.begins()) aim_results(now.group);
      row = -1;
      if (now.block >= now.first) {
        Sums::put(results + turn * Sums::all + warp * each, tile, sums[0]);
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
    if (row >= 0) finished.store(args, results + (turn ^ 1) * Sums::all, row);
  }

 private:
  SINTER_DEVICE void aim_results(int group) {
    finished.aim(first_channel, Work::first_tile(group), S::planes() - Work::first_plane(group),
                 [&](Coord& c, int plane) { S::set_plane(c, Work::first_plane(group) + plane); });
  }
  template <class Args>
  SINTER_DEVICE void aim_copies(const Args& args, int group) {
    const bool exists =
        first_channel + static_cast<int>(threadIdx.x) % lanes * each < S::all_channels;
    copies.aim(Image::base(args), warp_matrix::address(stages),
               Work::first_tile(group) * B::pitch + B::first,
               exists ? S::planes() - Work::first_plane(group) : 0, [&](int plane) {
                 Coord c;
                 S::set_plane(c, Work::first_plane(group) + plane);
                 c.at[Config::channel] = first_channel;
                 return static_cast<Index>(Image::offset) +
                        dot(typename Image::Access::Stride{}, c.at);
               });
  }
};

// Forward, and the data gradient of stride 1. A thread block has `run` rows of results of all
// groups; those of other channels lie beside it.
template <class Config, class Image, class Filter, class Body, class Args>
SINTER_DEVICE void run_mma(const Args& args) {
  using Walk = BandWalk<Config, Image, Filter, Body>;
  using B = typename Walk::B;
  hardware::grid_dependency_wait();
  Walk walk;
  static_assert(Config::shared_bytes ==
                (2 * Walk::Sums::all + Config::stages * B::stage * B::words + B::filter) * 4);
  walk.results = contraction::dynamic_floats();
  walk.stages = reinterpret_cast<unsigned*>(walk.results + 2 * Walk::Sums::all);
  walk.filter = walk.stages + Config::stages * B::stage * B::words;
  // Places that no copy reaches are multiplied by zero.
  static_assert(Config::stages * B::stage * B::words % 4 == 0);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Config::stages * B::stage * B::words / 4;
       i += Config::threads)
    reinterpret_cast<uint4*>(walk.stages)[i] = uint4{};
  __syncthreads();
  walk_rows<Config>(walk, args, walk.first_channel);
}

}  // namespace sinter::depthwise
