// Depthwise convolutions of 16-bit numbers on the tensor cores that every GPU from sm_80 on has:
// forward, and the data gradient of stride 1. A row's pixels come by asynchronous copies, and meet
// the bands of all rows of the filter (contraction_depthwise_bands.cuh).
//
// All lanes read the same channels of different pixels, therefore pixels lie an odd number of
// vectors apart in shared memory, even ones first and odd ones behind them, and planes so that
// those of a warp fall into other banks. A copy is a vector of a pixel, `stages` rows ahead. One
// barrier a row is for the stages and for the rows of results.
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

template <class Config, class Image, class Filter, class Body>
struct BandWalk : BandWork<Config, Image, Filter, Body> {
  using Work = BandWork<Config, Image, Filter, Body>;
  using B = typename Work::B;
  using S = typename Work::S;
  using Coord = typename S::Coord;
  using Index = typename Config::Index;
  static constexpr int each = B::each, lanes = B::lanes;
  using Work::bands, Work::filter, Work::finished, Work::first_channel, Work::results;
  unsigned* stages;  // of rows of pixels
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
      if (row >= 0) finished.store(args, results + (turn ^ 1) * B::results, row);
      if (now.begins()) this->aim_results(static_cast<int>(threadIdx.x), now.group);
      row = -1;
      if (now.block >= now.first) {
        this->put(results + turn * B::results + warp * each, tile, sums[0]);
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
                (2 * B::results + Config::stages * B::stage * B::words + B::filter) * 4);
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
  walk_rows<Config>(walk, args, walk.first_channel);
}

}  // namespace sinter::depthwise
