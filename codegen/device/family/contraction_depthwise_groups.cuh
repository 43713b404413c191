// Convolutions whose groups have 2, 4 or 8 channels, on tensor cores, whose pixels TMA brings:
// sm_90a; forward, and the data gradient, of stride 1.
//
// 8 channels that lie together, a unit, are 8 / `group` whole groups. 16 neighbouring results of
// them are the rows of an mma m16n8k16, whose k are the unit's channels at two taps of a
// row of the filter: the right operand is the filter, with zeros where an input channel and a
// result are of different groups. Half of a group of 4's products count; joined to lines of 64
// channels, as wgmma wants them, one in sixteen. The left operand comes by one ldmatrix, whose
// addresses are those of any 16 neighbouring pixels.
//
// A warp has a unit and walks down the tiles of a row, then the rows, as those of
// contraction_depthwise_mma_boxes.cuh do: each row of pixels is read once and multiplied with all
// rows of the filter, sums move up a slot, and a row of results of all channels leaves through
// shared memory while the next is multiplied. All warps multiply, load and store, with one barrier
// a step (walk_boxes in contraction_depthwise_boxes.cuh).
//
// Pixels that are infinite or NaN meet zeros of other groups and of a tap that there is none of.
// Sums that are NaN are taken again on CUDA cores.
//
// Config is that of contraction_depthwise.cuh, channel counts groups, with lanes = 8 warps,
// each = 8 / group, rows = 1, columns = 16, and `group`; `inner` and `outer`, the indices of a
// group's channels of the image and of the result; `across` tiles side by side of `planes` images,
// `stages`, and `image_line`, the pixels of a box's row. Image::load as in
// contraction_depthwise_mma_boxes.cuh.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/contraction_depthwise_bands.cuh"
#include "sinter/device/family/contraction_depthwise_boxes.cuh"

namespace sinter::depthwise {

// A thread block's parts and where they lie in shared memory.
template <class Config>
struct GroupTiles {
  using S = Shape<Config>;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int across = Config::across, planes = Config::planes, tiles = across * planes;
  static constexpr int width = 16, unit = 8, lanes = Config::lanes, channels = lanes * unit,
                       group = Config::group, line = Config::image_line;
  static_assert(Config::threads == 32 * lanes && lanes == 8 && Config::each * group == unit &&
                Config::columns == width && Config::rows == 1 && S::looped_taps == 1);
  static_assert(Rows::divisor == 1 && Rows::step == 1 && Columns::divisor == 1 &&
                Columns::step == 1);
  static constexpr int advance = S::advance, slots = S::slots,
                       new_row = S::first_row + (slots - 1) * advance, first = Columns::first(0);
  static constexpr int pairs = (Columns::taps + 1) / 2;
  // Pixels behind a result's first one at which it sees a tap; of one that there is none of, any.
  static constexpr SINTER_DEVICE int shift(int tap) {
    return tap < Columns::taps ? Columns::base + Columns::apart * tap - first : 0;
  }
  static_assert(line % 8 == 0 && line >= across * width + Columns::last(1) - first);

  static constexpr int result = channels + 8,  // floats of a pixel's results, apart in banks
      results = tiles * width * result;
  static constexpr int plane = line * Lines<lanes>::bytes, stage = planes * plane;
  static constexpr int rows_of_results = Config::stages * stage;
  using Leaving = LeavingRows<lanes, tiles * width>;
  template <class Result>
  static constexpr int barriers_behind = rows_of_results +
                                         (leaves_by_boxes<Result>
                                              ? Leaving::count * Leaving::row_bytes
                                              : 2 * kStepsBehind * results * 4);
};

// One result on CUDA cores.
template <class Config, class Image, class Filter, class Args>
SINTER_DEVICE float group_sum_alone(const Args& args, typename Shape<Config>::Coord c) {
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < Shape<Config>::taps * Config::group; ++i) {
    Shape<Config>::set_taps(List<>{}, c, 0, i / Config::group);
    c.at[Config::inner] = i % Config::group;
    sum = math::fma(sinter::load<typename Image::Access, float>(Image::base(args), c),
                    sinter::load<typename Filter::Access, float>(Filter::base(args), c), sum);
  }
  return sum;
}

// The packs of a row of results that a thread stores.
template <class Config, class Image, class Filter, class Body>
struct RowOfGroups {
  using G = GroupTiles<Config>;
  using S = typename G::S;
  using Coord = typename S::Coord;
  static constexpr int packs = G::channels / Config::width,
                       count = G::tiles * G::width * packs / Config::threads;
  static_assert(G::group % Config::width == 0);
  int first_group, first_tile, first_plane;

  template <class Args>
  SINTER_DEVICE void store(const Args& args, float* results, int row) const {
#pragma unroll
    for (int n = 0; n < count; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * Config::threads,
                channel = i % packs * Config::width, pixel = i / packs, tile = pixel / G::width,
                x = (first_tile + tile % G::across) * G::width + pixel % G::width,
                plane = first_plane + tile / G::across, group = first_group + channel / G::group;
      if (x >= S::extent_of(G::Columns::pixel_index) || plane >= S::planes() ||
          group >= S::all_channels)
        continue;
      Coord c;
      S::set_plane(c, plane);
      S::set_pixel(c, row, x);
      c.at[Config::channel] = group;
      c.at[Config::outer] = channel % G::group;
      float* const sums = results + pixel * G::result + channel;
      Pack<float, Config::width> pack;
      read_pack(sums, pack);
      float nothing = 0;
#pragma unroll
      for (int e = 0; e < Config::width; ++e) nothing = math::fma(pack.at[e], 0.0f, nothing);
      if (nothing != 0) {  // but NaN: one of them is not finite
#pragma unroll 1
        for (int e = 0; e < Config::width; ++e)
          if (sums[e] != sums[e])
            sums[e] = group_sum_alone<Config, Image, Filter>(args, neighbour<Config::outer>(c, e));
        read_pack(sums, pack);
      }
      finish<Config, Body, Config::outer>(args, c, pack.at);
    }
  }
};

template <class Config, class Image, class Filter, class Body, class Result>
struct GroupWalk {
  using G = GroupTiles<Config>;
  using S = typename G::S;
  using Steps = BandSteps<Config, G>;
  using Element = typename Image::Element;
  static constexpr int tile_groups =
                           (S::extent_of(G::Columns::pixel_index) + G::across * G::width - 1) /
                           (G::across * G::width),
                       groups = (S::planes() + G::planes - 1) / G::planes * tile_groups;
  static constexpr bool by_boxes = leaves_by_boxes<Result>;
  static_assert(Config::shared_bytes == G::template barriers_behind<Result> +
                                            8 * (Config::stages + kStepsBehind) +
                                            SharedMemory::lost);
  SharedMemory memory;
  BandSteps<Config, G> ahead{0, 0};
  int first_group, warp, group = 0;
  unsigned filter[G::Rows::taps][G::pairs][2];
  unsigned pixels_at[G::pairs];  // the line that a lane names to ldmatrix
  float sums[G::slots][G::tiles][4];
  // Places of rows of results: as many as are in shared memory, that of the next row and of the
  // next one that is stored.
  static constexpr int places = by_boxes ? G::Leaving::count : 2 * kStepsBehind;
  PipelineState<places> put_to, stored_from;
  RowOfGroups<Config, Image, Filter, Body> finished;

  SINTER_DEVICE unsigned full(int stage) const {
    return memory.address + static_cast<unsigned>(G::template barriers_behind<Result> + 8 * stage);
  }
  SINTER_DEVICE unsigned passed(int step) const { return full(Config::stages + step); }
  static SINTER_DEVICE int leaving_at(int place) {
    return G::rows_of_results + place * G::Leaving::row_bytes;
  }
  static SINTER_DEVICE int first_tile(int at) { return at % tile_groups * G::across; }
  static SINTER_DEVICE int first_plane(int at) { return at / tile_groups * G::planes; }

  // A lane's part of right operands: of result lane / 4 of the unit two channels at each tap.
  template <class Args>
  SINTER_DEVICE void load_filter(const Args& args, int lane) {
    const int to = lane / 4, from = lane % 4 * 2;
    typename S::Coord c;
    c.at[Config::channel] = first_group + warp * Config::each + to / G::group;
    c.at[Config::outer] = to % G::group;
    const bool exists = c.at[Config::channel] < S::all_channels && from / G::group == to / G::group;
#pragma unroll
    for (int r = 0; r < G::Rows::taps; ++r)
#pragma unroll
      for (int s = 0; s < 2 * G::pairs; ++s) {
        Pack<Element, 2> both{};
        if (exists && s < G::Columns::taps) {
          S::set_taps(List<>{}, c, 0, r * G::Columns::taps + s);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            c.at[Config::inner] = (from + i) % G::group;
            both.at[i] =
                hardware::load(Filter::base(args) + locate<typename Filter::Access>(c).offset);
          }
        }
        filter[r][s / 2][s % 2] = *reinterpret_cast<const unsigned*>(both.at);
      }
  }

  // Of one tile of 16 pixels: adds the products to the sums that see them, which move up a slot.
  SINTER_DEVICE void multiply_tile(int tile, const unsigned (&pixels)[G::pairs][4]) {
    constexpr float zero[4] = {};
#pragma unroll
    for (int slot = 0; slot < G::slots; ++slot) {
      const int r = G::Rows::tap_of(0, G::new_row - slot);
      const float* before =
          slot + 1 < G::slots ? sums[slot + 1 < G::slots ? slot + 1 : 0][tile] : zero;
      if (r >= 0)
#pragma unroll
        for (int p = 0; p < G::pairs; ++p) {
          warp_matrix::multiply(Element{}, sums[slot][tile], before, pixels[p], filter[r][p][0],
                                filter[r][p][1]);
          before = sums[slot][tile];
        }
      else
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[slot][tile][i] = before[i];
    }
  }

  SINTER_DEVICE void multiply(int stage) {
#pragma unroll
    for (int tile = 0; tile < G::tiles; ++tile) {
      const int lines = tile / G::across * G::line + tile % G::across * G::width;
      unsigned pixels[G::pairs][4];
#pragma unroll
      for (int p = 0; p < G::pairs; ++p)
        warp_matrix::get(pixels[p],
                         pixels_at[p] + static_cast<unsigned>(stage * G::stage +
                                                              lines * Lines<G::lanes>::bytes));
      multiply_tile(tile, pixels);
    }
  }
  SINTER_DEVICE void clear() {
#pragma unroll
    for (int slot = 0; slot < G::slots; ++slot)
#pragma unroll
      for (int i = 0; i < G::tiles * 4; ++i) sums[slot][i / 4][i % 4] = 0;
  }
  template <class Args>
  SINTER_DEVICE void fill(const Args& args, int stage) {
    if (!ahead.more()) return;
    const int lane = static_cast<int>(threadIdx.x);
    if (lane == 0)
      hopper::arrive_and_expect(full(stage),
                                G::planes * Config::image_box * Lines<G::lanes>::bytes);
    if (lane < G::planes) {
      typename S::Coord c;
      S::set_plane(c, first_plane(ahead.group) + lane);
      Image::load(args, c,
                  memory.address + static_cast<unsigned>(stage * G::stage + lane * G::plane),
                  full(stage), first_group * G::group,
                  first_tile(ahead.group) * G::width + G::first, ahead.block + G::new_row);
    }
    ahead.next();
  }
  SINTER_DEVICE void begin(int begun) { group = begun; }
  template <class Args>
  SINTER_DEVICE void put_row(const Args& args, int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (by_boxes) {
      if (any_not_finite(sums[0])) sum_again(args, row);
      unsigned words[G::tiles][2];
#pragma unroll
      for (int tile = 0; tile < G::tiles; ++tile)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float pair[2] = {sums[0][tile][2 * h], sums[0][tile][2 * h + 1]};
          words[tile][h] = results_of<Config, Body, Result, Config::outer>(args, pair).word(0);
        }
#pragma unroll
      for (int tile = 0; tile < G::tiles; tile += 2) {
        const int next = tile + 1 < G::tiles ? tile + 1 : tile;
        const unsigned blocks[4] = {words[tile][0], words[tile][1], words[next][0], words[next][1]};
        const int line = (lane < 16 ? tile : next) * G::width + lane % 16;
        hopper::put_blocks(memory.address + static_cast<unsigned>(leaving_at(put_to.stage)) +
                               Lines<G::lanes>::place(line, warp),
                           blocks);
      }
      hopper::fence_async_proxy();
    } else {
      float* const to = results() + put_to.stage * G::results + warp * G::unit + lane % 4 * 2;
#pragma unroll
      for (int tile = 0; tile < G::tiles; ++tile)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<float2*>(to + (tile * G::width + lane / 4 + 8 * h) * G::result) =
              float2{sums[0][tile][2 * h], sums[0][tile][2 * h + 1]};
    }
    put_to.advance();
  }
  template <class Args>
  SINTER_DEVICE void store_row(const Args& args, int row, int of) {
    if constexpr (by_boxes) {
      if (threadIdx.x == 0) {
        typename S::Coord c;
        S::set_plane(c, first_plane(of));
        Result::store(args, c,
                      memory.address + static_cast<unsigned>(leaving_at(stored_from.stage)),
                      first_group * G::group, first_tile(of) * G::width, row);
        hopper::commit_stores();
      }
    } else {
      finished.first_tile = first_tile(of), finished.first_plane = first_plane(of);
      finished.store(args, results() + stored_from.stage * G::results, row);
    }
    stored_from.advance();
  }
  // TMA has read the row whose place the next one takes.
  SINTER_DEVICE void before_arriving() const {
    if constexpr (by_boxes)
      if (threadIdx.x == 0) hopper::wait_for_stores<1>();
  }

  template <class Args>
  SINTER_DEVICE void run(const Args& args, int line, int last) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    ahead = BandSteps<Config, G>(line, last);
    const BandSteps<Config, G> from = ahead;
    if (warp == 0)
#pragma unroll 1
      for (int i = 0; i < Config::stages; ++i) fill(args, i);
    load_filter(args, lane);
#pragma unroll
    for (int p = 0; p < G::pairs; ++p)  // of the first tap the first 16 lanes
      pixels_at[p] = memory.address +
                     Lines<G::lanes>::place(
                         lane % 16 + (lane < 16 ? G::shift(2 * p) : G::shift(2 * p + 1)), warp);
    finished.first_group = first_group;
    clear();
    walk_boxes<Config>(*this, args, from);
    if constexpr (by_boxes)
      if (threadIdx.x == 0) hopper::wait_for_stores<0>();
  }

 private:
  SINTER_DEVICE float* results() const {
    return reinterpret_cast<float*>(memory.pointer + G::rows_of_results);
  }
  // Sums that are NaN, on CUDA cores.
  template <class Args>
  SINTER_DEVICE void sum_again(const Args& args, int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32, channel = warp * G::unit + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * G::tiles; ++i) {
      const int tile = i / 2, plane = first_plane(group) + tile / G::across,
                x = (first_tile(group) + tile % G::across) * G::width + lane / 4 + i % 2 * 8;
      if (plane >= S::planes() || x >= S::extent_of(G::Columns::pixel_index)) continue;
      typename S::Coord c;
      S::set_plane(c, plane);
      S::set_pixel(c, row, x);
      c.at[Config::channel] = first_group + channel / G::group;
      if (c.at[Config::channel] >= S::all_channels) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        c.at[Config::outer] = (channel + e) % G::group;
        float& sum = sums[0][tile][i % 2 * 2 + e];
        if (sum != sum) sum = group_sum_alone<Config, Image, Filter>(args, c);
      }
    }
  }
};

// A thread block has `run` rows of results of all groups of tiles and images.
template <class Config, class Image, class Filter, class Body, class Result = void, class Args>
SINTER_DEVICE void run_groups(const Args& args) {
  using Walk = GroupWalk<Config, Image, Filter, Body, Result>;
  Walk walk;
  init_barriers<Config>(walk);
  clear_stages<Config::threads>(walk.memory.pointer, Walk::G::rows_of_results);
  __syncthreads();
  hardware::grid_dependency_wait();
  walk_rows<Config>(walk, args, walk.first_group);
}

}  // namespace sinter::depthwise
