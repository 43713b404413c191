// Equal shares of the keys of all tiles of rows (SharesKeys): heads lie in so many lanes; tiles of
// keys are numbered through all tiles of rows of a lane, and each of its CTAs takes the same number
// of them, wherever tiles of rows begin. So every SM streams as many keys and values, whatever
// lengths the batch entries have and however few heads there are. Lanes are alike, since lengths
// are a batch entry's: CTAs of all lanes read the same tokens at the same time, of which pages hold
// all heads. (Stream-K: Osama et al., 2023; Ye et al., "FlashInfer", 2025, section 3.3.1.)
//
// Where a tile of rows has several shares, each warpgroup writes its sums, unscaled, and what its
// softmax knows of the rows to memory and raises a counter. The one that finds that it is the last
// joins all parts, in their order whoever comes last, and goes on as if it had summed all keys.
//
// Config also has share_lanes, which divides the heads and the number of CTAs; parts_by_rows and
// part_floats, how a warpgroup's part lies and its numbers (PartsOfKeys). A generated file's
// Bounds also have shares_keys; part_rows: how many rows of a part there are, up to 64; and float*
// parts(args): 2 parts (PartsOfKeys::floats_of_one) a CTA and consumer, whose counters are zero
// before the kernel runs.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/family/attention_forward_parts.cuh"
#include "sinter/device/family/attention_forward_tiles.cuh"

namespace sinter::attention {

template <class Bounds>
concept SharesKeys = requires {
  Bounds::shares_keys;
};

// Where the CTA's share begins, as all its threads find out together.
struct ShareStart {
  static constexpr int most_warps = 20, bytes = 4 * (4 + most_warps);
  int each, tile, first;  // tiles of keys a share; the first one's tile of rows, and that one's
                          // first tile of keys
};

// The lane of this CTA, its number there, and how many there are of it.
template <class Config>
struct ShareLane {
  static constexpr int lanes = Config::share_lanes;
  static SINTER_DEVICE int lane() { return static_cast<int>(blockIdx.x) % lanes; }
  static SINTER_DEVICE int cta() { return static_cast<int>(blockIdx.x) / lanes; }
  static SINTER_DEVICE int ctas() { return static_cast<int>(gridDim.x) / lanes; }
  // The share of each, of `all` tiles of keys.
  static SINTER_DEVICE int share(int all) { return (all + ctas() - 1) / ctas(); }
  // Tile of rows number `tile` of the lane's.
  template <class S>
  static SINTER_DEVICE TileOfRows tile(int tile) {
    const int heads = S::heads, own = heads / lanes, entry = tile / S::tiles_q;
    return {entry / own * heads + lane() * own + entry % own, tile % S::tiles_q * S::tile_q, 0};
  }
};
// A tile of rows without keys counts as if it had one tile of them: it must be written, too.
SINTER_DEVICE int units_of(const KeyTiles& keys) {
  return keys.end > keys.begin ? keys.end - keys.begin : 1;
}

// Whether all tiles of rows have the same number of tiles of keys.
template <class S, class Bounds>
constexpr bool shares_are_known() {
  if constexpr (is_known(S::tiles_q))
    return !Bounds::has_lengths && S::tiles_q == 1;
  else
    return false;
}
// By all threads, which meet behind it before they read `words`.
template <class Config, class S, class Bounds, class Args>
SINTER_DEVICE void find_share(const Args& args, int* words) {
  constexpr int threads = Config::threads, warps = threads / 32;
  static_assert(warps <= ShareStart::most_warps);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  using Lane = ShareLane<Config>;
  const int tiles = S::tiles / Lane::lanes, per_thread = (tiles + threads - 1) / threads;
  const auto units = [&](int i) {
    const TileOfRows tile = Lane::template tile<S>(i);
    typename S::F::Coord c;
    S::F::set_batch(c, tile.entry);
    const BandOf<S, Bounds> band(args, c);
    return units_of(band.template tiles<S::tile_k>(tile.row, tile.row + S::tile_q));
  };
  const int first = thread * per_thread,
            end = first + per_thread < tiles ? first + per_thread : tiles;
  ShareStart& share = *reinterpret_cast<ShareStart*>(words);
  if constexpr (shares_are_known<S, Bounds>()) {
    if (thread > 0) return;
    const int of_tile = units(0), each = Lane::share(tiles * of_tile), start = Lane::cta() * each;
    share = {each, start / of_tile, start / of_tile * of_tile};
    return;
  }
  int own = 0;
#pragma unroll 1
  for (int i = first; i < end; ++i) own += units(i);
  // Of all threads up to this one.
  int before = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_sync(0xffffffffu, before, lane >= distance ? lane - distance : lane);
    if (lane >= distance) before += other;
  }
  int* const of_warps = words + 4;
  if (lane == 31) of_warps[warp] = before;
  __syncthreads();
  int all = 0;
#pragma unroll 1
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += of_warps[w];
    all += of_warps[w];
  }
  before -= own;
  const int each = Lane::share(all), start = Lane::cta() * each;
  if (start >= all) {
    if (thread == 0) share = {each, tiles, 0};
    return;
  }
  if (start < before || start >= before + own) return;
  int i = first;
#pragma unroll 1
  for (int n; start >= before + (n = units(i)); before += n) ++i;
  share = {each, i, before};
}

// The parts of a tile of rows: those of the lane's CTAs `first_cta` on, of which this CTA's is
// number `own`.
struct KeyParts {
  int first_cta, count, own, lane, lanes;
  bool begins_share;  // the first part is also the first one of its CTA

  // Where part number i lies: a CTA has two at most, at the beginning and at the end of its share.
  SINTER_DEVICE int slot(int i) const {
    return 2 * ((first_cta + i) * lanes + lane) + (i == 0 && !begins_share ? 1 : 0);
  }
};

// The tiles of rows of the CTA's share.
template <class Config, class S, class Bounds>
class TilesOfShare {
  using Lane = ShareLane<Config>;
  const ShareStart start_;
  int tile_, first_, units_ = 0;
  KeyTiles whole_{};

 public:
  SINTER_DEVICE explicit TilesOfShare(ShareStart start)
      : start_(start), tile_(start.tile), first_(start.first) {}

  // As EveryTile's.
  template <class Args>
  SINTER_DEVICE int next(const Args&, int round) {
    if (round > 0) first_ += units_, ++tile_;
    return first_ < begin() + start_.each && tile_ < S::tiles / Lane::lanes ? tile_ : S::items;
  }
  SINTER_DEVICE TileOfRows tile(int number) const { return Lane::template tile<S>(number); }
  template <class Args>
  SINTER_DEVICE BandOf<S, Bounds> band(const Args& args, const typename S::F::Coord& c,
                                       TileOfRows&) {
    return BandOf<S, Bounds>(args, c);
  }
  // The tiles of keys that the share has of the tile of rows.
  template <class Band>
  SINTER_DEVICE KeyTiles keys(const Band& band, const TileOfRows& tile) {
    whole_ = band.template tiles<S::tile_k>(tile.row, tile.row + S::tile_q);
    units_ = units_of(whole_);
    KeyTiles own = whole_;
    const int from = begin() - first_, to = from + start_.each;
    if (from > 0) own.begin += from;
    if (to < whole_.end - whole_.begin) own.end = whole_.begin + to;
    return own;
  }
  SINTER_DEVICE const KeyTiles& whole() const { return whole_; }
  SINTER_DEVICE KeyParts parts() const {
    const int each = start_.each, cta = first_ / each;
    return {cta,
            (first_ + units_ - 1) / each - cta + 1,
            Lane::cta() - cta,
            Lane::lane(),
            Lane::lanes,
            first_ == cta * each};
  }

 private:
  SINTER_DEVICE int begin() const { return Lane::cta() * start_.each; }
};

// A warpgroup's parts in memory, each with a counter behind it: that of the first part of a tile of
// rows counts how many there are. Of few rows: sums, a row
// behind the other, then the largest score and the sum of weights of each row. Else as threads hold
// them, four numbers of each thread side by side: the last four are what is one a row.
template <class Config, class S, class Bounds, class Sums>
struct PartsOfKeys {
  static constexpr bool by_rows = Config::parts_by_rows;
  static constexpr int rows = Bounds::part_rows, columns = Sums::columns, of_thread = columns / 2;
  static constexpr int counter = Config::part_floats, floats_of_one = counter + 4;
  static_assert(counter % 4 == 0 &&
                    counter >= (by_rows ? rows * (columns + 2) : 128 * (of_thread + 4)),
                "a part has room in front of its counter");

  float* const parts;
  const int consumer;

  SINTER_DEVICE float* part(int slot) const {
    return parts + static_cast<long long>(slot * S::consumers + consumer) * floats_of_one;
  }
  SINTER_DEVICE int* joined(const KeyParts& of) const {
    return reinterpret_cast<int*>(part(of.slot(0)) + counter);
  }
  // ---- by rows

  SINTER_DEVICE void write_rows(int slot, Sums& out, const RowSoftmax& softmax) const {
    float* const to = part(slot);
    write_part<rows>(to, out, softmax, [&](int row, float largest, float total) {
      *reinterpret_cast<float2*>(to + rows * columns + 2 * row) = float2{largest, total};
    });
  }
  SINTER_DEVICE QuadOfPart read(int slot, int row, int column) const {
    const float* const from = part(slot);
    const float2 of_row = *reinterpret_cast<const float2*>(from + rows * columns + 2 * row);
    return {*reinterpret_cast<const float4*>(from + row * columns + column), of_row.x, of_row.y};
  }

  // ---- by threads

  SINTER_DEVICE float4* four(int slot, int i) const {
    return reinterpret_cast<float4*>(part(slot)) + i * 128 + static_cast<int>(threadIdx.x % 128);
  }
  SINTER_DEVICE void write(int slot, const Sums& out, const RowSoftmax& softmax) const {
#pragma unroll
    for (int i = 0; i < of_thread; i += 4)
      *four(slot, i / 4) = float4{out.at[i], out.at[i + 1], out.at[i + 2], out.at[i + 3]};
    *four(slot, of_thread / 4) =
        float4{softmax.largest[0], softmax.total[0], softmax.largest[1], softmax.total[1]};
  }
  // All of a tile of rows, in their order.
  template <class Scale>
  SINTER_DEVICE void add_up(const KeyParts& of, Scale scale, Sums& out, RowSoftmax& softmax) const {
    softmax.start();
    out.clear();
#pragma unroll 1
    for (int p = 0; p < of.count; ++p) {
      const float4 x = *four(of.slot(p), of_thread / 4);
      softmax.largest[0] = math::maximum(softmax.largest[0], x.x);
      softmax.largest[1] = math::maximum(softmax.largest[1], x.z);
    }
    float shift[2], factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor[r] = scale.of(softmax.largest[r]);
      shift[r] = softmax.largest[r] == minus_infinity() ? 0.0f : softmax.largest[r] * factor[r];
    }
#pragma unroll 1
    for (int p = 0; p < of.count; ++p) {
      const int slot = of.slot(p);
      const float4 x = *four(slot, of_thread / 4);
      const float weight[2] = {math::fast_exp2(math::fma(x.x, factor[0], -shift[0])),
                               math::fast_exp2(math::fma(x.z, factor[1], -shift[1]))};
      softmax.total[0] = math::fma(x.y, weight[0], softmax.total[0]);
      softmax.total[1] = math::fma(x.w, weight[1], softmax.total[1]);
#pragma unroll
      for (int i = 0; i < of_thread; i += 4) {
        const float4 sum = *four(slot, i / 4);
        out.at[i] = math::fma(sum.x, weight[0], out.at[i]);
        out.at[i + 1] = math::fma(sum.y, weight[0], out.at[i + 1]);
        out.at[i + 2] = math::fma(sum.z, weight[1], out.at[i + 2]);
        out.at[i + 3] = math::fma(sum.w, weight[1], out.at[i + 3]);
      }
    }
  }
};

// Writes a warpgroup's part of a tile of rows; whether it was the last one and has joined them all.
// `scale`: ScoreScale.
template <class Config, class S, class Bounds, class Args, class Sums, class Meet, class Scale>
SINTER_DEVICE bool join_parts(const Args& args, const KeyParts& of, int consumer, Scale scale,
                              float* epilogue_tile, Sums& out, RowSoftmax& softmax,
                              const Meet& meet) {
  using Parts = PartsOfKeys<Config, S, Bounds, Sums>;
  const Parts parts{Bounds::parts(args), consumer};
  if constexpr (Config::store_boxes) {
    if (threadIdx.x % 32 == 0) hopper::wait_for_stores<0>();  // which read the epilogue tile
    __syncwarp();
  }
  if constexpr (Parts::by_rows)
    parts.write_rows(of.slot(of.own), out, softmax);
  else
    parts.write(of.slot(of.own), out, softmax);
  meet();
  int* const before = reinterpret_cast<int*>(epilogue_tile);
  if (threadIdx.x % 128 == 0) *before = hardware::raise_and_count(parts.joined(of));
  meet();
  const bool last = *before == of.count - 1;
  meet();
  if (!last) return false;
  if constexpr (Parts::by_rows)
    add_up_parts<Bounds::part_rows>(
        {}, of.count, scale, epilogue_tile, out, softmax,
        [&](int i, int row, int column) { return parts.read(of.slot(i), row, column); }, meet);
  else
    parts.add_up(of, scale, out, softmax);
  return true;
}

}  // namespace sinter::attention
