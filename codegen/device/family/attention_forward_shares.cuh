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
// Config also has share_lanes, which divides the heads and the number of CTAs. A generated file's
// Bounds also have shares_keys; part_rows: how many rows of a part there are, up
// to 64; float* parts(args): PartsOfKeys::floats(CTAs, consumers) numbers; and int*
// parts_joined(args): one integer a consumer of each tile of rows, zero before the kernel runs.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/family/attention_forward_tiles.cuh"
#include "sinter/device/family/attention_softmax.cuh"

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
  const int ctas = Lane::ctas(), each = (all + ctas - 1) / ctas, start = Lane::cta() * each;
  ShareStart& share = *reinterpret_cast<ShareStart*>(words);
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

// A warpgroup's parts in memory: sums, a row behind the other, then the largest scores and the sums
// of weights of all rows.
template <class Config, class S, class Bounds, class Sums>
struct PartsOfKeys {
  static constexpr int rows = Bounds::part_rows, columns = Sums::columns,
                       floats_of_one = rows * (columns + 2);
  static constexpr long long floats(int ctas, int consumers) {
    return 2ll * ctas * consumers * floats_of_one;
  }
  static constexpr int block = 16;  // rows joined at a time, those of one warp's sums
  static constexpr int chunk = columns < 128 ? columns : 128, pitch = chunk + 8;
  static constexpr int at_once = columns <= 128 ? 16 : 8;  // parts whose loads are under way

  float* const parts;
  const int consumer;

  SINTER_DEVICE float* part(int slot) const {
    return parts + static_cast<long long>(slot * S::consumers + consumer) * floats_of_one;
  }

  SINTER_DEVICE void write(int slot, Sums& out, const RowSoftmax& softmax) const {
    float* const to = part(slot);
    out.each([&](int i, float& x) {
      if (i % 2 != 0 || out.row(i) >= rows) return;
      *reinterpret_cast<float2*>(to + out.row(i) * columns + out.column(i)) =
          float2{x, out.at[i + 1]};
    });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float total = join_quad(softmax.total[r], [](float a, float b) { return a + b; });
      const int row = out.row(2 * r);
      if (threadIdx.x % 4 != 0 || row >= rows) continue;
      to[rows * columns + row] = softmax.largest[r];
      to[rows * columns + rows + row] = total;
    }
  }

  // Reads all parts; `scale`: of scores, in powers of two; `slab`: shared memory of the warpgroup,
  // whose threads meet().
  template <class Meet>
  SINTER_DEVICE void read(const KeyParts& of, float scale, float* slab, Sums& out,
                          RowSoftmax& softmax, const Meet& meet) const {
    constexpr int quads = chunk / 4;
    static_assert(chunk % 8 == 0 && block * quads % 32 == 0);
    const int thread = static_cast<int>(threadIdx.x) % 128;
    float* const numbers = slab + block * pitch;  // of rows: the largest scores, sums of weights
    out.clear();
    softmax.start();
#pragma unroll 1
    for (int b = 0; b < (rows + block - 1) / block; ++b)
      for_each_number<(columns + chunk - 1) / chunk>([&]<int h>() {
#pragma unroll 1
        for (int i = thread; i < block * quads; i += 128) {
          const int row = i / quads, column = h * chunk + i % quads * 4, m = b * block + row;
          if (m >= rows || column >= columns) continue;
          float largest = minus_infinity(), total = 0;
          float4 sum{0, 0, 0, 0};
#pragma unroll 1
          for (int first = 0; first < of.count; first += at_once)
            add_parts(of, first, m, column, scale, largest, total, sum);
          *reinterpret_cast<float4*>(slab + row * pitch + i % quads * 4) = sum;
          if (i % quads == 0) numbers[row] = largest, numbers[block + row] = total;
        }
        meet();
        if (thread / 32 == b) {
          out.each([&](int i, float& x) {
            const int column = out.column(i) - h * chunk;
            if (i / 4 * 8 / chunk == h) x = slab[(out.row(i) - b * block) * pitch + column];
          });
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int row = out.row(2 * r) - b * block;
            if (b * block + row >= rows) continue;
            softmax.largest[r] = numbers[row];
            softmax.total[r] = thread % 4 == 0 ? numbers[block + row] : 0.0f;
          }
        }
        meet();
      });
  }

 private:
  // Parts `first` on, at_once of them, onto what the ones before made.
  SINTER_DEVICE void add_parts(const KeyParts& of, int first, int m, int column, float scale,
                               float& largest, float& total, float4& sum) const {
    float4 sums[at_once];
    float most[at_once], totals[at_once];
#pragma unroll
    for (int p = 0; p < at_once; ++p) {
      const bool is = first + p < of.count;
      const float* const from = part(of.slot(is ? first + p : first));
      sums[p] = *reinterpret_cast<const float4*>(from + m * columns + column);
      most[p] = is ? from[rows * columns + m] : minus_infinity();
      totals[p] = from[rows * columns + rows + m];
    }
    float now = largest;
#pragma unroll
    for (int p = 0; p < at_once; ++p) now = math::maximum(now, most[p]);
    const float shift = now == minus_infinity() ? 0.0f : now * scale;
    const auto add = [&](float before, const float4& s, float t) {
      const float weight = math::fast_exp2(math::fma(before, scale, -shift));
      total = math::fma(t, weight, total);
      sum.x = math::fma(s.x, weight, sum.x), sum.y = math::fma(s.y, weight, sum.y);
      sum.z = math::fma(s.z, weight, sum.z), sum.w = math::fma(s.w, weight, sum.w);
    };
    const float4 earlier = sum;
    const float earlier_total = total;
    sum = {0, 0, 0, 0}, total = 0;
    if (first > 0) add(largest, earlier, earlier_total);
#pragma unroll
    for (int p = 0; p < at_once; ++p)
      if (first + p < of.count) add(most[p], sums[p], totals[p]);
    largest = now;
  }
};

// Writes a warpgroup's part of a tile of rows; whether it was the last one and has joined them all.
template <class Config, class S, class Bounds, class Score, class Args, class Sums, class Meet>
SINTER_DEVICE bool join_parts(const Args& args, const KeyParts& of, const TileOfRows& tile,
                              int consumer, float* slab, Sums& out, RowSoftmax& softmax,
                              const Meet& meet) {
  using Parts = PartsOfKeys<Config, S, Bounds, Sums>;
  const Parts parts{Bounds::parts(args), consumer};
  if constexpr (Config::store_boxes) {
    if (threadIdx.x % 32 == 0) hopper::wait_for_stores<0>();  // which read the slab
    __syncwarp();
  }
  parts.write(of.slot(of.own), out, softmax);
  meet();
  int* const before = reinterpret_cast<int*>(slab);
  if (threadIdx.x % 128 == 0)
    *before = hardware::raise_and_count(
        Bounds::parts_joined(args) +
        (tile.entry * S::tiles_q + tile.row / S::tile_q) * S::consumers + consumer);
  meet();
  const bool last = *before == of.count - 1;
  meet();
  if (last) parts.read(of, Score::scale * kLog2E, slab, out, softmax, meet);
  return last;
}

}  // namespace sinter::attention
