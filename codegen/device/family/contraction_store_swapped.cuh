// The end of a convolution whose products have the filter as their left operand: sums lie with the
// filter's channels as rows and pixels as columns. stmatrix turns blocks of them, so that shared
// memory has whole pixels, 64 channels each, as the result lies in memory; a warp has 16 channels
// of all pixels of its warpgroup and stores 16 pixels of every 64 (contraction_store.cuh).
//
// Columns of several indices, such as those of blocks of pixels, lie together in runs of the
// innermost one. Where Body has `piece` they leave in pieces of so many, which runs are multiples
// of: the same run of neighbouring pixels first, as those may lie beside each other in memory.
#pragma once
#include "sinter/device/family/contraction_store.cuh"

namespace sinter::contraction {

// The warpgroup of a consumer, of up to two.
SINTER_DEVICE void wait_for_warpgroup(int consumer) {
  if (consumer == 0)
    hopper::wait_at<4, 128>();
  else
    hopper::wait_at<5, 128>();
}

// The result of two neighbouring pixels of one channel, of which `read` has what the epilogue
// reads.
template <class Config, class Body, class Args, class Coord>
SINTER_DEVICE unsigned results_of_pixels(const Args& args, const Coord& c,
                                         const typename Body::template Fragment<1>& read,
                                         float first, float second) {
  typename Body::Reductions none;
  Pack<typename Body::Stored, 2> pair;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    auto fragment = read;
    const typename Config::Accumulator sum[1] = {i == 0 ? first : second};
    Body::element(args, c, 0, sum, fragment, none);
    pair.at[i] = Body::result(fragment).at[0];
  }
  return pair.word(0);
}

template <class Body>
concept StoresPieces = requires {
  Body::piece;
};

// Where the pixels of a warp begin in the result, from the tile's column on: each lane finds two of
// them, and those that store them ask it. A lane stores 16, and finding one takes divisions.
// `pooled`: where the result of the window is that begins there.
template <class Config, class Body, bool pooled = false>
struct PixelPlaces {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static constexpr int in_part = 16, parts = S::rows / 64, sets = (parts * in_part + 31) / 32;
  typename Body::Stored* at[sets];  // null where there is none

  // `row`: the first of the warp's first part; those of the next one lie 64 further.
  template <class Args, class Coord>
  SINTER_DEVICE PixelPlaces(const Args& args, const Coord& batch, int row, int row_end,
                            int column) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < sets; ++i) {
      const int own = row + (i * 2 + lane / in_part) * 64 + lane % in_part;
      Coord c = batch;
      P::set_m(c, own);
      const bool exists = own < row_end && P::exists(c);
      P::set_n(c, column);
      if constexpr (pooled)
        at[i] = exists ? Body::pooled_row(args, c) : nullptr;
      else
        at[i] = exists ? Body::row(args, c) : nullptr;
    }
  }
  SINTER_DEVICE typename Body::Stored* of(int part, int pixel) const {
    return reinterpret_cast<typename Body::Stored*>(
        __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(at[part / 2]),
                    part % 2 * in_part + pixel));
  }
};

// Where a lane's pieces of a part's pixels go.
template <class Config, class Body, class Result>
SINTER_DEVICE void find_places(const PixelPlaces<Config, Body>& places, int part, bool has_columns,
                               Result& result, bool (&exists)[Result::own]) {
#pragma unroll
  for (int i = 0; i < Result::own; ++i) {
    typename Body::Stored* const place = places.of(part, Result::row(i));
    exists[i] = has_columns && place != nullptr;
    result.at[i] = place + Result::column();
  }
}

// The 16 pixels of a part, which lie in `tile`.
template <class Config, class Body>
SINTER_DEVICE void store_pixels(const PixelPlaces<Config, Body>& places, int part, bool has_columns,
                                const unsigned char* tile) {
  using Result = RowPieces<typename Body::Stored>;
  Result result;
  bool exists[Result::own];
  find_places(places, part, has_columns, result, exists);
  result.get(tile);
  result.store(exists, 0);
}

// The same of windows, of which they are four.
template <class Config, class Body>
SINTER_DEVICE void store_windows(const PixelPlaces<Config, Body>& places,
                                 const PixelPlaces<Config, Body, true>& pooled, int part,
                                 bool has_columns, const unsigned char* tile) {
  using Result = RowPieces<typename Body::Stored, true>;
  Result result;
  result.get(tile);
  if constexpr (Body::stores_pixels) {
    bool exists[Result::own];
    find_places(places, part, has_columns, result, exists);
    result.store(exists, 0);
  }
  typename Body::Stored* const place = pooled.of(part, Result::row(0));
  if (has_columns && place != nullptr)
    result.template store_pooled<Body::averages_pixels>(place, Result::column());
}

// The same in pieces of 8 bytes, of all columns.
template <class Config, class Body, class Args>
SINTER_DEVICE void store_pixel_pieces(const Args& args, const PixelPlaces<Config, Body>& places,
                                      int part, const unsigned char* tile) {
  using P = Problem<Config>;
  static_assert(Body::piece * sizeof(typename Body::Stored) == sizeof(uint2));
  static_assert(P::columns <= 64, "a pixel has one line");
  constexpr int run = static_cast<int>(Config::Extent::at(P::first_k - 1)),
                in_run = run / Body::piece, of_pixels = 16 * in_run,
                all = of_pixels * (static_cast<int>(P::columns) / run);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 2
  for (int from = 0; from < all; from += 32) {
    const int i = from + lane, pixel = i % of_pixels / in_run,
              column = i / of_pixels * run + i % in_run * Body::piece;
    typename P::Coord c;  // results lie at sums of what each index adds
    P::set_n(c, column);
    const auto further = Body::row(args, c) - Body::row(args, typename P::Coord{});
    typename Body::Stored* const place = places.of(part, pixel);
    if (i < all && place != nullptr)
      *reinterpret_cast<uint2*>(place + further) =
          *reinterpret_cast<const uint2*>(tile + StoreTile::place(pixel, column));
  }
}

// `epilogue_tiles`: of the warpgroup's four warps.
template <class Config, class Body, class Args>
SINTER_DEVICE void store_rows_swapped(const Args& args, const TileCoord<Config>& tile,
                                      int first_row, EpilogueTile* epilogue_tiles, int consumer) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(stores_as_summed<Config, Body>() && Body::sources == 0 && S::columns == 64);
  static_assert(S::rows % 128 == 0, "neighbouring tiles' parts take turns, too");
  constexpr int in_part = 64 / 16;  // StoreTiles of a part: one of each warp
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  typename P::Coord batch;
  P::set_batch(batch, tile.batch);
  recompute_tile<Config, Body, true>(args, tile, batch, first_row);
  typename P::Coord of_channel[2];
  typename Body::template Fragment<1> read[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int channel = tile.column + warp * 16 + lane / 4 + i * 8;
    of_channel[i] = batch;
    P::set_n(of_channel[i], channel);
    if (channel < P::columns) Body::fetch_columns(args, of_channel[i], read[i]);
  }
  using Result = RowPieces<typename Body::Stored>;
  const int end = P::columns < tile.column + 64 ? P::columns : tile.column + 64;
  const bool has_columns = tile.column + Result::column() < end;
  const int row = tile.row + first_row + warp * 16;
  const PixelPlaces<Config, Body> places(args, batch, row, tile.row_end, tile.column);
  const PixelPlaces<Config, Body, PoolsPixels<Body>> windows(args, batch, row, tile.row_end,
                                                             tile.column);
  // Lane 8 i + j names line j of block i: eight channels of a pixel. Blocks: of eight pixels the
  // warp's first and last eight channels, of the next eight likewise.
  const int line = StoreTile::place(lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8);
  // A loop takes the compiler a tenth less, and longer to run: 64 channels of 56 x 56 pixels, 3 x
  // 3, on an H200 94.4 us (93.4 unrolled), data gradient of a first layer 262.7 (254.9). Where the
  // epilogue reads it saves a sixth: 128 channels of 28 x 28 with scale, bias and relu 91.4 (89.9).
  constexpr int parts = S::rows / 64, together = Body::reads_columns ? 1 : parts;
#pragma unroll(together)
  for (int part = 0; part < parts; ++part) {
    const auto tile_of = [&](int i) {
      return reinterpret_cast<unsigned char*>(epilogue_tiles + i) + part % 2 * StoreTile::bytes;
    };
    if constexpr (StoresSums<Body>) {
      unsigned lines[in_part];
#pragma unroll
      for (int i = 0; i < in_part; ++i) lines[i] = hopper::address(tile_of(i)) + line;
      for_each_number<parts>([&]<int i>() {
        if (i == part)
          Sums<Config, 0>{}
              .template put_blocks<wgmma::BlocksText<typename Body::StoredSum, true>,
                                   i * in_part * 8, in_part>(lines);
      });
    } else {
      float sums[in_part * 8];
      for_each_number<parts>([&]<int i>() {
        if (i == part) Sums<Config, 0>{}.template get<i * in_part * 8, in_part * 2>(sums);
      });
#pragma unroll
      for (int i = 0; i < in_part; ++i) {
        unsigned blocks[4];
#pragma unroll
        for (int block = 0; block < 4; ++block) {
          const int sum = (i * 2 + block / 2) * 4 + block % 2 * 2;
          blocks[block] = results_of_pixels<Config, Body>(
              args, of_channel[block % 2], read[block % 2], sums[sum], sums[sum + 1]);
        }
        hopper::put_blocks_transposed(hopper::address(tile_of(i)) + line, blocks);
      }
    }
    // All channels of the part's pixels are there; and the part before has been read by all warps,
    // so that the next one may take its place.
    wait_for_warpgroup(consumer);
    if constexpr (PoolsPixels<Body>)
      store_windows(places, windows, part, has_columns, tile_of(warp));
    else if constexpr (StoresPieces<Body>)
      store_pixel_pieces(args, places, part, tile_of(warp));
    else
      store_pixels(places, part, has_columns, tile_of(warp));
  }
}

}  // namespace sinter::contraction
