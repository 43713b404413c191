// Depthwise convolutions on tensor cores whose pixels TMA brings, on sm_90a: forward, and the data
// gradient, of stride 1. A row's pixels meet the bands of all rows of the filter
// (contraction_depthwise_bands.cuh).
//
// A stage is a box: a row of `image_line` pixels of each of the tiles' planes. What lies
// outside is zero. (A box for each plane, which ends where the image does, took longer: 64 x 384 x
// 28 x 28, 7 x 7 on an H100 43.6 us, one box 39.2.) Rows of neighbouring planes lie an odd number
// of times four lines apart, and a lane takes every fourth of a tile's pixels, so that half a warp
// finds its pixels in all 16-byte units of shared memory, two in each (it wants 8 bytes of a unit).
//
// Where tiles side by side are a whole row of results, a plane's lines in the box are no more than
// the image has with the zeros in front of it: what results see to the right of it are zeros, as
// those in front of the next plane are. Tiles that read further, into the next plane's pixels,
// multiply them with zeros of the band, or for results that are none and are not put away. TMA
// takes about three clocks for a line, whether it exists or not (64 x 768 x 14 x 14, 7 x 7 on an
// H200 18.1 us, 17.1 so).
//
// Warps have roles, as in contraction_wgmma.cuh. `lanes` of them multiply and leave rows of results
// in shared memory; of the last four one has stages filled, one has finished rows stored by TMA,
// and one has what the epilogue reads brought to their place. What is between them are rings, so
// that each waits for its own need alone: with one barrier a step for all warps, they waited for
// pixels, MMAs and stores one after the other. Registers move to those that multiply.
//
// Config is that of contraction_depthwise_bands.cuh with `image_line`, `result_rows` that may be in
// shared memory at once, and registers of both kinds of warps; Image has load(args, coordinates,
// to, barrier, channel, column, row), too.
#pragma once
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/contraction_depthwise_bands.cuh"
#include "sinter/device/family/contraction_depthwise_boxes.cuh"

namespace sinter::depthwise {

// A warp's packs of `bytes` bytes in a row of results, or of what the epilogue reads beside them.
template <class Config, int bytes>
struct PacksOfRow {
  using B = Bands<Config>;
  static_assert(bytes <= 16);
  static constexpr int units = B::lanes * bytes / 16, line = B::result_line,
                       row_bytes = B::planes * line * 16 * units,
                       row = (row_bytes + 1023) / 1024 * 1024,
                       second = B::across > 1 ? B::pitch : 8 * line;  // tile g + 8
  using Lines = depthwise::Lines<units>;
  static_assert(Lines::swizzled);
  using Move = typename Word<bytes>::Type;
  unsigned at;
  int columns;  // of the row, from the lane's first one on
  // Of lanes of odd tiles the odd column of two, which they leave first: it lies in other banks.
  SINTER_DEVICE PacksOfRow(int warp, int lane) {
    const int tile = lane / 4, left = warp * bytes,  // bytes of a pixel
        column = B::position_of(tile) * B::pitch + lane % 4 * 2;
    at = static_cast<unsigned>(left % 16) +
         Lines::place(B::plane_of(tile) * line + column + tile % 2, left / 16);
    columns = line - column;
  }
  // Whether the i-th is of the row, not behind it, where the next plane's lies.
  SINTER_DEVICE bool has(int i) const {
    if (line == B::across * B::pitch) return true;
    return columns > (B::across > 1 ? i / 2 * B::pitch : 0);
  }
  // Where the lane's i-th lies in a row.
  SINTER_DEVICE unsigned place(int i) const {
    const unsigned column = at ^ (i % 2 == 0 ? 0u : Lines::beside);
    return column + static_cast<unsigned>(i / 2 * second * Lines::bytes);
  }
};

// What the epilogue reads of a row of results, in that row's place: behind `from`, or where the
// results will be.
template <class Config, int from, class... Besides>
struct BesideRows {
  static constexpr int end = from, loaded = 0;
  SINTER_DEVICE BesideRows(int, int) {}
  template <class... Where>
  static SINTER_DEVICE void load(const Where&...) {}
  template <class Fragment>
  SINTER_DEVICE void read(unsigned char*, int, Fragment&) const {}
};
template <class Config, int from, class First, class... Others>
struct BesideRows<Config, from, First, Others...> {
  static constexpr int bytes =
      Bands<Config>::each * static_cast<int>(sizeof(typename First::Element));
  using Packs = PacksOfRow<Config, bytes>;
  static constexpr int at = First::in_place ? 0 : from;
  using Behind = BesideRows<Config, First::in_place ? from : from + Packs::row, Others...>;
  static constexpr int end = Behind::end, loaded = Packs::row_bytes + Behind::loaded;
  Packs packs;
  Behind behind;
  SINTER_DEVICE BesideRows(int warp, int lane) : packs(warp, lane), behind(warp, lane) {}
  // Brings its boxes; `where`: channel, column and row.
  template <class Args, class Coord, class... Where>
  static SINTER_DEVICE void load(const Args& args, const Coord& c, unsigned to, unsigned barrier,
                                 const Where&... where) {
    First::load(args, c, to + at, barrier, where...);
    Behind::load(args, c, to, barrier, where...);
  }
  template <class Fragment>
  SINTER_DEVICE void read(unsigned char* row, int i, Fragment& fragment) const {
    *reinterpret_cast<typename Packs::Move*>(First::of(fragment).at) =
        *reinterpret_cast<const typename Packs::Move*>(row + at + packs.place(i));
    behind.read(row, i, fragment);
  }
};
template <class Config, int from, class Beside>
struct BesideOf {
  using Rows = BesideRows<Config, from>;
};
template <class Config, int from, class... Besides>
struct BesideOf<Config, from, List<Besides...>> {
  using Rows = BesideRows<Config, from, Besides...>;
};

// Where a block's parts lie in shared memory, from a multiple of 1024 on.
template <class Config, class Result, class Beside>
struct BoxedBands {
  using B = Bands<Config>;
  static constexpr int units = B::lanes * B::each / 8, line = Config::image_line;
  static_assert(B::advance == 1 && B::Columns::step == 1 && B::pitch == 8 && B::planes > 1 &&
                line % 8 == 4);
  // Lines of the image that tiles see behind a plane's own: those of the next plane, or zeros.
  static constexpr int seen = (B::across - 1) * B::pitch + B::chunks * B::depth,
                       behind = seen > line ? seen - line : 0;
  static_assert(behind == 0 || (B::tile_groups == 1 && line >= B::least_line));
  static constexpr int row_lines = B::planes * line,  // of the image
      box_bytes = row_lines * Lines<units>::bytes,
                       stage = (box_bytes + behind * Lines<units>::bytes + 1023) / 1024 * 1024;
  using Stages = Pipeline<Config::stages>;
  using Rows = Pipeline<Config::result_rows>;
  // Of a row of results: its packs, and what the epilogue reads in its place.
  using Packs = PacksOfRow<Config, B::each* static_cast<int>(sizeof(typename Result::Element))>;
  using Besides = typename BesideOf<Config, Packs::row, Beside>::Rows;
  static constexpr int result_row = Besides::end;
  static constexpr int results = Config::stages * stage,
                       filter = results + Rows::stages * result_row,
                       barriers = filter + B::filter * 4;
  static_assert(barriers % 8 == 0);
  static_assert(Config::shared_bytes ==
                barriers + Stages::bytes + 2 * Rows::bytes + SharedMemory::lost);
};

// A warp's pixels of one row as left operands: lane 4 g + t has those of tiles g and g + 8.
template <class Config>
struct BoxedPixels {
  using B = Bands<Config>;
  using Vector = typename Word<B::bytes>::Type;
  unsigned at[B::chunks][B::each][4];

  // Those of rows below the image.
  SINTER_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < B::chunks * B::each * 4; ++i)
      at[i / 4 / B::each][i / 4 % B::each][i % 4] = 0;
  }
  // `zero`: which the compiler does not know; so a register that is the same as another one is not
  // copied for each MMA, whose left operand is four registers in a row.
  template <class Lane>
  SINTER_DEVICE void load(const Lane& lane, int bytes, unsigned zero) {
    // A tile's second half is its neighbour's first, where that is tile g + 8, and the next chunk's
    // first is that one's second.
    constexpr bool shared = B::across > 1;
    constexpr int beside = shared ? B::pitch : 8 * Config::image_line;  // tile g + 8
#pragma unroll
    for (int n = 0; n < B::chunks * 4; ++n) {
      const int chunk = n / 4, i = n % 4;
      if (shared && (i == 2 || n == 4 * chunk && chunk > 0)) {
#pragma unroll
        for (int e = 0; e < B::each; ++e)
          at[chunk][e][i] = (i == 2 ? at[chunk][e][1] : at[chunk > 0 ? chunk - 1 : 0][e][3]) | zero;
        continue;
      }
      const int fours = chunk * 4 + i / 2 * 2 + i % 2 * (beside / 4);
      Vector x, y;
      warp_matrix::get(x, lane.place(fours, bytes));
      warp_matrix::get(y, lane.place(fours + 1, bytes));
#pragma unroll
      for (int w = 0; w < B::words; ++w) {
        at[chunk][2 * w][i] = warp_matrix::low_halves(word_of(x, w), word_of(y, w));
        at[chunk][2 * w + 1][i] = warp_matrix::high_halves(word_of(x, w), word_of(y, w));
      }
    }
  }
};

template <class Config, class Image, class Filter, class Body, class Result, class Beside>
struct BoxedWalk : BandWork<Config, Image, Filter, Body> {
  using Work = BandWork<Config, Image, Filter, Body>;
  using B = typename Work::B;
  using S = typename Work::S;
  using L = BoxedBands<Config, Result, Beside>;
  using Coord = typename S::Coord;
  static constexpr int each = B::each, lanes = B::lanes, sharing = 8 / each;  // warps of a unit
  static constexpr bool beside = has_beside<Beside>;
  // Slots that are multiplied before the complete row is put away; the others' products run while
  // other warps do so (64 x 384 x 28 x 28, 7 x 7 on an H200, all before 27.3 us, half of them 26.7;
  // with the next row's pixels read before the second half 28.4).
  static constexpr int first_half = (B::slots + 1) / 2;
  using Work::bands, Work::filter, Work::first_channel;
  SharedMemory memory;
  typename L::Stages stages{memory.address + L::barriers};
  typename L::Rows rows{stages.barriers + L::Stages::bytes};
  // Of rows of results: what the epilogue reads has come to their place.
  typename L::Rows besides{rows.barriers + L::Rows::bytes};

  // Rows below the image are not loaded (64 x 96 x 56 x 56, 7 x 7 on an H200 30.3 and 29.1 us).
  static SINTER_DEVICE bool below_image(const BandSteps<Config>& step) {
    return step.image_row() >= B::Rows::extent;
  }
  template <class Args>
  SINTER_DEVICE void fill(const Args& args, typename L::Stages::State& state,
                          BandSteps<Config>& ahead) const {
    if (below_image(ahead)) {
      ahead.next();
      return;
    }
    Coord c;
    S::set_plane(c, Work::first_plane(ahead.group));
    stages.acquire(state);
    stages.expect(state, L::box_bytes);
    Image::load(args, c, memory.address + static_cast<unsigned>(state.stage * L::stage),
                stages.full(state), first_channel,
                Work::first_tile(ahead.group) * B::pitch + B::first, ahead.image_row());
    state.advance();
    ahead.next();
  }
  template <class Args>
  SINTER_DEVICE void multiply_rows(const Args& args, int warp, BandSteps<Config> now) {
    const int lane = static_cast<int>(threadIdx.x) % 32, tile = lane / 4;
    const LanePlaces<L::units> pixels_at(
        memory.address + warp % sharing * B::bytes,
        B::plane_of(tile) * L::line + B::position_of(tile) * B::pitch + lane % 4, warp / sharing);
    const typename L::Packs packs(warp, lane);
    const typename L::Besides read(warp, lane);
    // Results of channels behind the last one are not stored.
    const int channel = first_channel + warp * each, last = S::all_channels - each;
    Coord of_lane{};
    of_lane.at[Config::channel] = channel < last ? channel : last;
    const unsigned zero = filter[S::taps * lanes * B::words];
    float sums[B::slots][each][4] = {};
    typename L::Stages::State stage;
    typename L::Rows::State row;
#pragma unroll 1
    while (now.more()) {
      BoxedPixels<Config> pixels[1];
      if (below_image(now)) {
        pixels[0].clear();
      } else {
        stages.wait(stage);
        pixels[0].load(pixels_at, stage.stage * L::stage, zero);
        __syncwarp();
        stages.release(stage);
        stage.advance();
      }
      Work::template multiply<0, first_half>(sums, pixels);
      if (now.block >= now.first) {
        if (any_not_finite(sums[0])) sum_again(args, warp, now, sums[0]);
        acquire(row);
        leave(args, memory.pointer + L::results + row.stage * L::result_row, place_of(row), packs,
              read, tile % 2 != 0, of_lane, sums[0]);
        __syncwarp();
        if (lane == 0) hopper::arrive(rows.full(row));
        row.advance();
      }
      Work::template multiply<first_half, B::slots>(sums, pixels);
      if (now.next()) {
        keep(stage.stage);  // makes this a branch, not a choice for each sum in every step
#pragma unroll
        for (int slot = 0; slot < B::slots; ++slot)
#pragma unroll
          for (int i = 0; i < each * 4; ++i) sums[slot][i / 4][i % 4] = 0;
      }
    }
  }
  // A row's place is free, or has what the epilogue reads there.
  SINTER_DEVICE void acquire(const typename L::Rows::State& row) const {
    if constexpr (beside)
      besides.wait(row);
    else
      rows.acquire(row);
  }
  // Brings that, by one thread.
  template <class Args>
  SINTER_DEVICE void load_besides(const Args& args, BandSteps<Config> now) const {
    typename L::Rows::State row;
#pragma unroll 1
    for (; now.more(); now.next()) {
      if (now.block < now.first) continue;
      Coord c;
      S::set_plane(c, Work::first_plane(now.group));
      rows.acquire(row);
      besides.expect(row, L::Besides::loaded);
      L::Besides::load(args, c, place_of(row), besides.full(row), first_channel,
                       Work::first_tile(now.group) * B::pitch, now.block);
      row.advance();
    }
  }
  SINTER_DEVICE unsigned place_of(const typename L::Rows::State& row) const {
    return memory.address + static_cast<unsigned>(L::results + row.stage * L::result_row);
  }

  // By TMA, by one thread, whose fence stands between what warps have left and TMA: one in each of
  // these would have them wait for their own stores. A row's place is free when the next one is on
  // its way.
  template <class Args>
  SINTER_DEVICE void send_rows(const Args& args, BandSteps<Config> now) const {
    typename L::Rows::State row;
    int before = -1;
#pragma unroll 1
    for (; now.more(); now.next()) {
      if (now.block < now.first) continue;
      rows.wait(row);
      hopper::fence_async_proxy();
      Coord c;
      S::set_plane(c, Work::first_plane(now.group));
      Result::store(args, c, place_of(row), first_channel, Work::first_tile(now.group) * B::pitch,
                    now.block);
      hopper::commit_stores();
      hopper::wait_for_stores<1>();
      if (before >= 0) rows.release_stage(before);
      before = row.stage;
      row.advance();
    }
    hopper::wait_for_stores<0>();
  }

  template <class Args>
  SINTER_DEVICE void run(const Args& args, int line, int last) {
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    constexpr int loading = Config::threads / 32 - 1;
    const bool loads = static_cast<int>(threadIdx.x) == 32 * loading;
    typename L::Stages::State state;
    BandSteps<Config> steps(line, last);
    if constexpr (L::behind > 0)
      clear_behind<Config::threads>(
          Config::stages, [&](int i) { return memory.pointer + i * L::stage; }, L::box_bytes,
          L::stage);
    if (loads)
#pragma unroll 1
      for (int i = 0; i < Config::stages && steps.more(); ++i) fill(args, state, steps);
    this->load_filter(args);
    __syncthreads();
    if (warp >= lanes) {
      hopper::keep_registers<Config::producer_registers>();
      if (loads) {
#pragma unroll 1
        while (steps.more()) fill(args, state, steps);
      } else {
        if (static_cast<int>(threadIdx.x) == 32 * lanes) send_rows(args, steps);
        if constexpr (beside)
          if (static_cast<int>(threadIdx.x) == 32 * lanes + 32) load_besides(args, steps);
      }
    } else {
      hopper::take_registers<Config::consumer_registers>();
      bands.load(filter, warp);
      multiply_rows(args, warp, steps);
    }
  }

 private:
  // A row's results to where TMA takes them from, `row` or `address`; `odd`: the lane takes odd
  // columns first. What epilogues load is that of the channels of `of_lane`, or lies in the row's
  // place.
  template <class Args>
  static SINTER_DEVICE void leave(const Args& args, unsigned char* row, unsigned address,
                                  const typename L::Packs& packs, const typename L::Besides& read,
                                  bool odd, const Coord& of_lane, const float (&sums)[each][4]) {
    using Move = typename L::Packs::Move;
    typename Body::template Fragment<each> of_channels{};
    Body::fetch(args, of_lane, of_channels);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float now[each];
#pragma unroll
      for (int e = 0; e < each; ++e) now[e] = odd ? sums[e][i ^ 1] : sums[e][i];
      auto fragment = of_channels;
      if (packs.has(i)) read.read(row, i, fragment);  // tiles may reach over the rows' ends
      const auto pack =
          results_of<Config, Body, Result, Config::channel>(args, now, of_lane, fragment);
      if (packs.has(i))
        warp_matrix::put(address + packs.place(i), *reinterpret_cast<const Move*>(pack.at));
    }
  }
  // Sums that are NaN, on CUDA cores.
  template <class Args>
  SINTER_DEVICE void sum_again(const Args& args, int warp, const BandSteps<Config>& now,
                               float (&sums)[each][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int tile = lane / 4 + i / 2 * 8,
                plane = Work::first_plane(now.group) + B::plane_of(tile),
                x = (Work::first_tile(now.group) + B::position_of(tile)) * B::pitch + lane % 4 * 2 +
                    i % 2;
      if (plane >= S::planes() || x >= S::extent_of(B::Columns::pixel_index)) continue;
      Coord c;
      S::set_plane(c, plane);
      S::set_pixel(c, now.block, x);
#pragma unroll
      for (int e = 0; e < each; ++e) {
        c.at[Config::channel] = first_channel + warp * each + e;
        if (sums[e][i] != sums[e][i] && c.at[Config::channel] < S::all_channels)
          sums[e][i] = sum_alone<Config, Image, Filter>(args, c);
      }
    }
  }
};

// A thread block has `run` rows of results of all groups, as in contraction_depthwise_mma.cuh.
template <class Config, class Image, class Filter, class Body, class Result, class Beside = void,
          class Args>
SINTER_DEVICE void run_mma_boxes(const Args& args) {
  using Walk = BoxedWalk<Config, Image, Filter, Body, Result, Beside>;
  using L = typename Walk::L;
  Walk walk;
  walk.filter = reinterpret_cast<unsigned*>(walk.memory.pointer + L::filter);
  if (threadIdx.x == 0) {
    walk.stages.init(1, Walk::lanes);
    walk.rows.init(Walk::lanes, 1);
    if (Walk::beside) walk.besides.init(1, 1);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  walk_rows<Config>(walk, args, walk.first_channel);
}

}  // namespace sinter::depthwise
