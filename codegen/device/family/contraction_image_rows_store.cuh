// A convolution of few channels (contraction_image_rows.cuh): its shape, and how a warp's 16
// neighbouring results leave.
#pragma once
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/contraction_store_odd.cuh"

namespace sinter::contraction {

// A dim of the image: result i sees the pixels base + step i to base + step i + taps - 1.
template <int base_, int step_, int taps_>
struct SeenPixels {
  static constexpr int base = base_, step = step_, taps = taps_;
};

// `line`: elements of `bytes` bytes of a row of the image, `pitch` from one to the next of its
// `lines` rows. Of a volume each image is one of `all_frames`, `frame_pitch` apart; 0: there is no
// such index.
template <int bytes_, int channels_, int line_, int lines_, long long pitch_, class Down,
          class Across, class Frames_ = SeenPixels<0, 1, 1>, int all_frames_ = 0,
          long long frame_pitch_ = 0>
struct ImageRows {
  using Frames = Frames_;
  static constexpr int all_frames = all_frames_;
  static constexpr bool volume = all_frames > 0;
  static constexpr long long frame_pitch = frame_pitch_;
  static constexpr int bytes = bytes_, together = 16 / bytes;  // of a piece of 16 bytes
  static constexpr int channels = channels_, line = line_, lines = lines_, base = Down::base,
                       tap_rows = Down::taps;
  static constexpr long long pitch = pitch_;
  static constexpr int pixels = 16;  // of a warp: the rows of its MMAs
  static constexpr int step = Across::step * channels, start = Across::base * channels;
  // Where runs begin, of the pieces from `from` on; those of odd results at odd elements, too?
  static constexpr bool in_pairs = bytes < 4, uneven = in_pairs && step % 2 != 0;
  static constexpr int from = start - (start % together + together) % together,
                       skip = !in_pairs || uneven ? 0 : (start - from) % 2,
                       lead = start - from - skip;
  static constexpr int taken = Across::taps * channels, eights = (skip + taken + 7) / 8;
  static constexpr int down = Down::step, groups = (tap_rows + down - 1) / down,
                       rows_of_frame = groups == 1 ? tap_rows : down,
                       rows = Frames::taps * rows_of_frame;  // of a group, frame by frame
  // Steps of k, of a group: of two eights, or of one of 32 bits.
  static constexpr int eights_of_step = in_pairs ? 2 : 1,
                       steps = (rows * eights + eights_of_step - 1) / eights_of_step,
                       depth_of_group = steps * eights_of_step * 8, depth = groups * depth_of_group;
  // Of k, with taps: the last group may have fewer rows of them than others.
  static constexpr int left = rows - rows_of_frame + tap_rows - (groups - 1) * rows_of_frame,
                       used = (groups - 1) * steps +
                              (left * eights + eights_of_step - 1) / eights_of_step;
  // Pieces of 16 bytes that a warp has of a row.
  static constexpr int reached =
      ((pixels - 1) * step + lead + eights * 8 + uneven + together - 1) / together;
  // Runs begin at pieces, a number of these apart. ldmatrix reads the pieces of eight runs at once,
  // which share banks where that number is even: pieces change places within as many as that takes.
  static constexpr bool by_pieces = bytes == 2 && step % 8 == 0 && lead == 0;
  static constexpr int turned = by_pieces ? (step / 8 | 8) & -(step / 8 | 8) : 1;
  static SINTER_DEVICE int place(int piece) { return piece ^ (piece / 8 & (turned - 1)); }
  static constexpr int pieces = (reached + turned - 1) / turned * turned,
                       stage_bytes = rows * pieces * 16;
  static_assert(line % together == 0 && pitch % together == 0,
                "pieces lie within a row or outside");
};

template <class Config>
struct ImageRowsShape {
  using P = Problem<Config>;
  using R = typename Config::ImageRows;
  using Number = typename Config::Number;
  static constexpr int columns = Config::tile_n, line = sizeof(Number) * R::depth;
  using Filter = SharedTile<Number, Major::k, columns, R::depth,
                            line % 128 == 0  ? 128
                            : line % 64 == 0 ? 64
                                             : 32>;
  using Product = Mma<sinter::Shape<64, columns>, Types<Number, Number, float>, Registers, Filter>;
  using Fragments = OperandFragment<Number, R::depth>;
  static constexpr int z = P::first_n - 3, y = P::first_n - 2, x = P::first_n - 1;  // of the domain
  static constexpr int epilogue_tiles = Filter::bytes,
                       stages = epilogue_tiles + 4 * static_cast<int>(sizeof(EpilogueTile));
  static SINTER_DEVICE int height() { return static_cast<int>(Config::Extent::at(y)); }
  static SINTER_DEVICE int width() { return static_cast<int>(Config::Extent::at(x)); }
  static constexpr int filters = static_cast<int>(P::columns),
                       tiles = (filters + columns - 1) / columns;
  static_assert(tiles == 1 || tiles * columns == filters, "blocks have equally many filters");
  // The first of the block's.
  static SINTER_DEVICE int first_column() {
    return tiles > 1 ? static_cast<int>(blockIdx.x) % tiles * columns : 0;
  }
  static SINTER_DEVICE int images() {
    return static_cast<int>(P::product(P::first_m, Config::m - 2));
  }
};

// Columns of a block that a warp's rows leave by: all of them, or those that there are.
template <class Config>
constexpr int columns_stored() {
  using S = ImageRowsShape<Config>;
  return S::tiles > 1 ? S::columns : S::filters;
}
template <class Config, class Element>
using PixelPieces = RowPieces<Element, false,
                              columns_stored<Config>() <= 16   ? 16
                              : columns_stored<Config>() <= 32 ? 32
                                                               : 64>;

// What the epilogue reads that differs from pixel to pixel, of the warp's 16 results, loaded while
// these are multiplied.
template <class Config, class Body>
struct PixelSources {
  static constexpr int count = Body::sources;
  using Pieces = PixelPieces<Config, const typename Body::Stored>;
  static_assert(count <= 2, "a warp has room for two tiles");
  Pieces at[count + 1];
  bool exists[Pieces::own];

  // `c`: of the first; `pixels` of them exist.
  template <class Args, class Coord>
  SINTER_DEVICE void fetch(const Args& args, const Coord& c, int pixels) {
    if constexpr (count > 0) {
      using P = Problem<Config>;
      using S = ImageRowsShape<Config>;
#pragma unroll
      for (int i = 0; i < Pieces::own; ++i) {
        Coord of = c;
        of.at[S::x] += Pieces::row(i);
        P::set_n(of, S::first_column() + Pieces::column());
        exists[i] = Pieces::row(i) < pixels;
        for_each_number<count>([&]<int s>() { at[s].at[i] = Body::source(Int<s>{}, args, of); });
      }
      load(0);
    }
  }
  SINTER_DEVICE void load(int part) {
    for_each_number<count>([&]<int s>() {
      if (part * 64 + Pieces::column() < columns_stored<Config>()) at[s].load(exists, part * 64);
    });
  }
  SINTER_DEVICE void put(unsigned char* tiles) const {
    for_each_number<count>([&]<int s>() { at[s].put(tiles + s * StoreTile::bytes); });
  }
};

// Takes those sums of a warp's 16 results again that are NaN; `count` of them exist.
template <class Config, class Body, class Args, class Sums>
SINTER_DEVICE void recompute_pixels(const Args& args, int first_row, int count, Sums& sums) {
  if constexpr (RecomputesSums<Body>) {
    float some[4] = {};  // each instruction waits for the one four before it
#pragma unroll
    for (int i = 0; i < Sums::count; ++i) some[i % 4] += sums.at[i];
    const float all = some[0] + some[1] + (some[2] + some[3]);
    if (__any_sync(0xffffffffu, all != all)) {
      float held[Sums::count];  // in local memory: registers have no index
#pragma unroll
      for (int i = 0; i < Sums::count; ++i) held[i] = sums.at[i];
      const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
      recompute_held<Config, Body, false, Sums::count>(
          args, typename Problem<Config>::Coord{}, first_row - warp * 16, first_row + count,
          ImageRowsShape<Config>::first_column(), held, Sums::count);
#pragma unroll
      for (int i = 0; i < Sums::count; ++i) sums.at[i] = held[i];
    }
  }
}

// Results of 32 bits leave from where the sums are: four lanes have 32 bytes side by side.
template <class Config, class Body, class Args, class Coord, class Sums>
SINTER_DEVICE void store_pairs(const Args& args, const Coord& c, int count, const Sums& sums) {
  using P = Problem<Config>;
  using S = ImageRowsShape<Config>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int pair = 0; pair < S::columns / 8; ++pair)
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int row = lane / 4 + below * 8, column = pair * 8 + lane % 4 * 2;
      if (row >= count || (S::filters % S::columns != 0 && column >= S::filters)) continue;
      Coord at = c;
      at.at[S::x] += row;
      P::set_n(at, S::first_column() + column);
      typename Body::template Fragment<2> fragment;
      Body::fetch(args, at, fragment);
      compute_results<Config, Body>(args, at, fragment, sums.at[pair * 4 + below * 2],
                                    sums.at[pair * 4 + below * 2 + 1]);
      Body::flush(args, at, fragment);
    }
}

template <class Body>
concept StoresLines = requires {
  requires Body::stores_lines;
};

// Channels first: of each filter the warp's 16 results are 32 bytes of memory, as which stmatrix
// puts them, transposed, to shared memory. Halves of these change places in every other four
// filters, so that eight lie in different banks.
template <class Config, class Body, class Args, class Coord, class Sums>
SINTER_DEVICE void store_lines(const Args& args, const Coord& c, int first_row, int count,
                               PartColumns<Config, Body>& read_columns, Sums& sums,
                               EpilogueTile& epilogue_tile) {
  using P = Problem<Config>;
  using S = ImageRowsShape<Config>;
  static_assert(sizeof(typename Body::Stored) == 2 && Body::sources == 0);
  constexpr int across = (S::columns + 63) / 64, stored = columns_stored<Config>();
  const int first_column = S::first_column(), lane = static_cast<int>(threadIdx.x) % 32;
  const auto place = [](int filter, int half) {
    return filter * 32 + ((half ^ (filter / 4)) & 1) * 16;
  };
  for_each_number<across>([&]<int part>() {
    unsigned char* const tile =
        reinterpret_cast<unsigned char*>(&epilogue_tile) + part % 2 * StoreTile::bytes;
    // Lane 8 i + j names line j of block i: eight filters of the first results, of the last ones.
    const unsigned to = hopper::address(tile) + place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    if (part > 1) __syncwarp();  // the tile that was here has been read
    put_results<Config, Body>(args, Coord{}, first_row, first_column + part * 64,
                              first_column + (part + 1 < across ? (part + 1) * 64 : 0),
                              S::columns - part * 64, read_columns, sums.at + part * 32, 0,
                              [&](int first, const unsigned(&blocks)[4]) {
                                hopper::put_blocks_transposed(to + first * 32, blocks);
                              });
    __syncwarp();
    constexpr int filters = stored - part * 64 < 64 ? stored - part * 64 : 64;
#pragma unroll
    for (int i = 0; i < filters; i += 16) {
      const int filter = i + lane / 2, half = lane % 2;
      if (half * 8 >= count || filter >= filters) continue;
      Coord at = c;
      at.at[S::x] += half * 8;
      P::set_n(at, first_column + part * 64 + filter);
      *reinterpret_cast<uint4*>(Body::row(args, at)) =
          *reinterpret_cast<const uint4*>(tile + place(filter, half));
    }
  });
}

// Sums of a warp's 16 results to memory. `c`: of the first; `count` of them exist.
template <class Config, class Body, class Args, class Coord, class Sums>
SINTER_DEVICE void store_pixels(const Args& args, const Coord& c, int first_row, int count,
                                PartColumns<Config, Body>& read_columns,
                                PixelSources<Config, Body>& sources, Sums& sums,
                                EpilogueTile& epilogue_tile) {
  using P = Problem<Config>;
  using S = ImageRowsShape<Config>;
  using R = typename S::R;
  const Coord batch{};
  const int first_column = S::first_column();
  if constexpr (StoresOddRows<Body>) {  // the warp's pixels are one run of memory
    static_assert(S::tiles == 1 && S::columns <= 64 && Body::sources == 0);
    const RunOfRows<typename Body::Stored> run(Body::row(args, c), epilogue_tile, S::filters);
    put_results<Config, Body>(
        args, batch, first_row, 0, 0, S::columns, read_columns, sums.at, 0,
        [&](int first, const unsigned(&blocks)[4]) { run.template put<16>(first, blocks, 0); });
    __syncwarp();
    if (count > 0) run.store(count < R::pixels ? count : R::pixels);
    return;
  }
  constexpr int stored = columns_stored<Config>(), read = Body::sources;
  using Result = PixelPieces<Config, typename Body::Stored>;
  Result result;
  bool exists[Result::own];
#pragma unroll
  for (int i = 0; i < Result::own; ++i) {
    Coord at = c;
    at.at[S::x] += Result::row(i);
    P::set_n(at, first_column + Result::column());
    exists[i] = Result::row(i) < count;
    result.at[i] = Body::row(args, at);
  }
  constexpr int across = (S::columns + 63) / 64;
  for_each_number<across>([&]<int part>() {
    unsigned char* const tile = reinterpret_cast<unsigned char*>(&epilogue_tile) +
                                (read > 0 ? 0 : part % 2) * StoreTile::bytes;
    if (part > (read > 0 ? 0 : 1)) __syncwarp();  // the tile that was here has been read
    if constexpr (read > 0) {
      sources.put(tile);
      if (part + 1 < across) sources.load(part + 1);
      __syncwarp();
    }
    put_results<Config, Body, read, typename Result::Tile>(
        args, batch, first_row, first_column + part * 64,
        first_column + (part + 1 < across ? (part + 1) * 64 : 0), S::columns - part * 64,
        read_columns, sums.at + part * 32, hopper::address(tile));
    __syncwarp();
    if (part * 64 + Result::column() < stored) {
      result.get(tile);
      result.store(exists, part * 64);
    }
  });
}

}  // namespace sinter::contraction
