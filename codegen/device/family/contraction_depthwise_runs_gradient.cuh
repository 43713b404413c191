// The filter gradient of a convolution of few channels, a first layer as a rule, on the tensor
// cores of sm_90a, whose pixels are loaded as they lie.
//
// k are the pixels of a row of dy, the result's gradient, as the right operand of products: filters
// are their columns. What a row of the filter sees of a row of the image is one run of elements,
// taps and channels together, which moves by `step` of these from pixel to pixel; the rows of the
// left operand are the elements of all runs. Since a run begins at no multiple of 16 bytes, the
// left operand comes in registers: a lane loads words, two neighbours of a run at one pixel, and
// makes a pair for each of them with those at the next pixel. They are rows g and g + 8 of its
// fragment.
//
//   left: rows (7 taps of 3 channels, stride 2)          right: columns
//     run of tap row 0: x(2 y - 3, 2 p - 3 ...), 22        filters, of dy(y, p)
//     run of tap row 1: x(2 y - 2, 2 p - 3 ...), 22
//     ...                     154 of 192 rows are those of elements
//
// (Where all runs begin at odd elements, the one in front of them is a row of its own; where those
// of every other pixel do, a lane takes its pair out of two words.)
//
// A block is one warpgroup and a warp that has TMA bring rows: those of dy, a stage each, and of
// the image in groups of as many as the stride, which stay as long as rows of the filter see them.
// It walks down the images of its batch entry, in columns of `Config::columns` pixels. A batch
// entry may be a part of an image. Of many filters each block has some.
//
// Sums that are NaN are recomputed, since zeros outside make NaN of numbers that are not finite.
//
// Config is that of contraction_depthwise.cuh, its channel counting one group, with `group`
// channels of the image (of windows that never leave it, taps and channels of a row of the filter)
// and `gradient_group` filters of a block, `inner` and `outer`, their indices, `stages` of dy, and
// `filters_together`, where the sums of neighbouring filters lie together.
#pragma once
#include "sinter/device/core/wgmma_held.cuh"
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/contraction_depthwise_gradient.cuh"

namespace sinter::depthwise {

template <class Config, class Number>
struct RunsGradientTiles {
  using S = Shape<Config>;
  using P = typename S::P;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int depth = Config::columns, filters = Config::gradient_group;
  static_assert(Config::threads == 160 && depth % 16 == 0 && filters % 8 == 0 &&
                S::looped_taps == 1 && S::all_channels == 1);
  static_assert(Rows::divisor == 1 && Columns::divisor == 1 && Columns::stride < (1 << 20));

  // Elements of a row of the image: of a run, that runs begin `step` apart, and the first one.
  static constexpr int pixel = static_cast<int>(Columns::stride),
                       run = (Columns::taps - 1) * pixel + Config::group,
                       step = Columns::step * pixel, start = Columns::base * pixel;
  // Runs begin `skip` behind an even element, that `lead` behind the piece of 16 bytes at `from`.
  static constexpr bool uneven = step % 2 != 0;
  static constexpr int from = start - (start % 8 + 8) % 8, skip = (start - from) % 2,
                       lead = start - from - skip;
  // Of a run; as many as fill eights or fours where that takes no more products: lanes that have
  // words of two runs share banks.
  static constexpr SINTER_DEVICE int products_of(int pairs) {
    return (pairs * Rows::taps + 31) / 32;
  }
  static constexpr int fewest = (skip + run + 1) / 2, fours = (fewest + 3) / 4 * 4,
                       eights = (fewest + 7) / 8 * 8,
                       pairs = products_of(eights) == products_of(fewest)  ? eights
                               : products_of(fours) == products_of(fewest) ? fours
                                                                           : fewest,
                       all_pairs = pairs * Rows::taps, products = products_of(pairs);

  // What TMA moves of the image: units of 8 bytes.
  static constexpr int unit = 4,
                       row_bytes = ((depth - 1) * step + lead + 2 * pairs + uneven + 7) / 8 * 16,
                       down = Rows::step, groups = (Rows::taps + down - 1) / down,
                       rows_of_group = groups == 1 ? Rows::taps : down,
                       group_bytes = rows_of_group * row_bytes,
                       group_slot = (group_bytes + 127) / 128 * 128,
                       group_slots = groups + Config::stages;

  static constexpr int swizzle = filters > 32   ? 128
                                 : filters > 16 ? 64
                                                : 32,
                       panel = swizzle / 2, panels = (filters + panel - 1) / panel;
  using Gradient = SharedTile<Number, Major::mn, panels * panel, depth, swizzle>;
  using Product =
      Mma<sinter::Shape<64, filters>, Types<Number, Number, float>, Registers, Gradient>;
  using Sums = wgmma::HeldInstruction<filters>;

  using Stages = Pipeline<Config::stages>;
  using Groups = Pipeline<group_slots>;
  // In the end the sums lie where the stages were.
  static constexpr int image = Config::stages * Gradient::bytes,
                       loaded = image + group_slots * group_slot, pitch = filters + 2,
                       sums = products * 64 * pitch * 4,
                       barriers = ((loaded > sums ? loaded : sums) + 15) / 16 * 16,
                       bytes = barriers + Stages::bytes + Groups::bytes;

  static constexpr int rows = S::extent_of(Rows::pixel_index),  // of dy, of a walk
      steps = rows + groups - 1, tiles = (S::extent_of(Columns::pixel_index) + depth - 1) / depth,
                       walks =
                           static_cast<int>(P::product(P::first_k, Config::k - S::spatial)) * tiles;
  static constexpr int all_filters = S::extent_of(Config::outer),
                       filter_blocks = all_filters / filters;
  static_assert(filter_blocks * filters == all_filters);
};

// Has rows brought, group by group, by one thread.
template <class Config, class Gradient, class Image, class Args>
SINTER_DEVICE void bring_rows(const Args& args, typename Shape<Config>::Coord c, int first_filter,
                              const SharedMemory& memory) {
  using T = RunsGradientTiles<Config, typename Image::Element>;
  const typename T::Stages stages{memory.address + T::barriers};
  const typename T::Groups groups{memory.address + T::barriers + T::Stages::bytes};
  PipelineState<Config::stages> stage;
  PipelineState<T::group_slots> group;
  const int moved = T::Rows::moved(c);
#pragma unroll 1
  for (int walk = 0; walk < T::walks; ++walk) {
    unravel<T::P::first_k, Config::k - T::S::spatial>(
        static_cast<typename Config::Index>(walk / T::tiles), c);
    const int column = walk % T::tiles * T::depth;
#pragma unroll 1
    for (int step = 0; step < T::steps; ++step) {
      groups.acquire(group);
      groups.expect(group, T::group_bytes);
      Image::load(args, c, memory.address + T::image + group.stage * T::group_slot,
                  groups.full(group), (column * T::step + T::from) / T::unit, 0,
                  T::Rows::base + moved + step * T::down);
      group.advance();
      if (step < T::groups - 1) continue;
      stages.acquire(stage);
      stages.expect(stage, T::Gradient::bytes);
#pragma unroll
      for (int i = 0; i < T::panels; ++i)
        Gradient::load(
            args, c,
            memory.address + stage.stage * T::Gradient::bytes + i * T::Gradient::panel_bytes,
            stages.full(stage), first_filter + i * T::panel, column,
            moved / T::down + step - (T::groups - 1));
      stage.advance();
    }
  }
}

// A lane's fragment of 16 pixels: words at `at`, two elements of the lane's run at its first pixel.
template <class T>
SINTER_DEVICE void take_runs(unsigned (&a)[4], unsigned at) {
  constexpr int next = 2 * T::step;  // bytes
#pragma unroll
  for (int half = 0; half < 2; ++half, at += 8 * next) {
    const unsigned x = warp_matrix::get_word(at);
    if constexpr (T::uneven) {
      const unsigned y0 = next == 2 ? x : warp_matrix::get_word(at + next - 2),
                     y1 = warp_matrix::get_word(at + next + 2);
      a[2 * half] = warp_matrix::bytes_of(x, y0, 0x7610);
      a[2 * half + 1] = warp_matrix::bytes_of(x, y1, 0x5432);
    } else {
      const unsigned y = warp_matrix::get_word(at + next);
      a[2 * half] = warp_matrix::low_halves(x, y);
      a[2 * half + 1] = warp_matrix::high_halves(x, y);
    }
  }
}

// Multiplies all rows of the block's walks.
template <class Config, class Number>
SINTER_DEVICE void multiply_runs(const SharedMemory& memory) {
  using T = RunsGradientTiles<Config, Number>;
  using Sums = typename T::Sums;
  using Text = typename T::Product::Text;
  constexpr int steps = T::depth / 16, at_once = 4;
  const typename T::Stages stages{memory.address + T::barriers};
  const typename T::Groups groups{memory.address + T::barriers + T::Stages::bytes};
  PipelineState<Config::stages> stage;
  PipelineState<T::group_slots> newest, oldest;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned image = memory.address + T::image;
  // Of each product, the lane's word in the group of its tap row, and that group's slot.
  unsigned word[T::products];
  int slot[T::products];
#pragma unroll
  for (int i = 0; i < T::products; ++i) {
    const int given = (i * 4 + warp) * 8 + lane / 4,
              pair = given < T::all_pairs ? given : T::all_pairs - 1, row = pair / T::pairs;
    slot[i] = row / T::down;
    word[i] = image +
              static_cast<unsigned>(row % T::down * T::row_bytes +
                                    (T::lead + pair % T::pairs * 2) * 2 + lane % 4 * (4 * T::step));
  }
  OperandFragment<Number, 16 * at_once> a[2];
  const unsigned long long gradient = T::Gradient::descriptor(memory.address);
#pragma unroll 1
  for (int walk = 0; walk < T::walks; ++walk) {
#pragma unroll
    for (int i = 0; i < T::groups - 1; ++i) {
      groups.wait(newest);
      newest.advance();
    }
#pragma unroll 1
    for (int row = 0; row < T::rows; ++row) {
      groups.wait(newest);
      newest.advance();
      stages.wait(stage);
      const unsigned long long b = gradient + stage.stage * (T::Gradient::bytes / 16);
      for_each_number<(steps + at_once - 1) / at_once>([&]<int chunk>() {
        constexpr int first = chunk * at_once,
                      now = steps - first < at_once ? steps - first : at_once;
        for_each_number<T::products>([&]<int i>() {
          auto& fragment = a[(chunk * T::products + i) % 2];
          wgmma::wait<1>(fragment);
          const unsigned at = word[i] + static_cast<unsigned>(slot[i] * T::group_slot);
#pragma unroll
          for (int s = 0; s < now; ++s)
            take_runs<T>(fragment.at[s], at + (first + s) * (32 * T::step));
          wgmma::fence(fragment);
          for_each_number<now>([&]<int s>() {
            Sums::template run<Text, i>(fragment.at[s], b + T::Gradient::step(first + s));
          });
          wgmma::commit();
        });
      });
#pragma unroll
      for (int i = 0; i < T::products; ++i)
        slot[i] = slot[i] + 1 == T::group_slots ? 0 : slot[i] + 1;
      wgmma::wait<0>(a[0], a[1]);
      stages.release(stage);
      stage.advance();
      groups.release(oldest);
      oldest.advance();
    }
    // The next walk begins with rows of its own.
#pragma unroll
    for (int i = 0; i < T::products; ++i) {
      slot[i] += T::groups - 1;
      if (slot[i] >= T::group_slots) slot[i] -= T::group_slots;
    }
#pragma unroll
    for (int i = 0; i < T::groups - 1; ++i) {
      groups.release(oldest);
      oldest.advance();
    }
  }
}

// Stores the sums, which lie in shared memory.
template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void finish_runs(const Args& args, typename Shape<Config>::Coord c, int first_filter,
                               const float* sums) {
  using T = RunsGradientTiles<Config, typename Image::Element>;
  using S = typename T::S;
  constexpr int elements = S::taps * Config::group, count = elements * T::filters;
  c.at[Config::channel] = 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Config::threads) {
    const int element = Config::filters_together ? i / T::filters : i % elements,
              filter = Config::filters_together ? i % T::filters : i / elements,
              channel = element % Config::group, tap = element / Config::group,
              at = T::skip + tap % T::Columns::taps * T::pixel + channel,
              pair = tap / T::Columns::taps * T::pairs + at / 2,
              row = pair / 8 * 16 + pair % 8 + at % 2 * 8;
    c.at[Config::inner] = channel;
    c.at[Config::outer] = first_filter + filter;
    S::set_taps(List<>{}, c, 0, tap);
    float sum[1] = {sums[row * T::pitch + filter]};
    if (sum[0] != sum[0]) [[unlikely]]
      sum[0] = gradient_alone<Config, Gradient, Image>(args, c);
    finish<Config, Body, Config::inner>(args, c, sum);
  }
}

template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void run_runs_gradient(const Args& args) {
  using T = RunsGradientTiles<Config, typename Image::Element>;
  using Sums = typename T::Sums;
  static_assert(Config::shared_bytes == T::bytes + SharedMemory::lost);
  for_each_number<T::products>([]<int i>() {
    Sums::template declare<i>();
    Sums::template clear<i>();
  });
  const SharedMemory memory;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    const unsigned barriers = memory.address + T::barriers;
    typename T::Stages{barriers}.init(1, 4);
    typename T::Groups{barriers + T::Stages::bytes}.init(1, 4);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  const int block = static_cast<int>(blockIdx.x),
            first_filter = block % T::filter_blocks * T::filters;
  typename T::S::Coord c{};
  unravel<0, Config::batch - 1>(static_cast<typename Config::Index>(block / T::filter_blocks), c);
  if (thread < 128)
    multiply_runs<Config, typename Image::Element>(memory);
  else if (thread == 128)
    bring_rows<Config, Gradient, Image>(args, c, first_filter, memory);
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(memory.pointer);
  if (thread < 128) {
    const int row = thread / 32 * 16 + thread % 32 / 4;
    for_each_number<T::products>([&]<int i>() {
      int at[T::filters / 8];
#pragma unroll
      for (int j = 0; j < T::filters / 8; ++j)
        at[j] = (i * 64 + row) * T::pitch + 8 * j + thread % 4 * 2;
      Sums::template store<i, 0, T::filters / 8, 8 * T::pitch * 4>(hopper::address(sums), at);
    });
  }
  __syncthreads();
  finish_runs<Config, Gradient, Image, Body>(args, c, first_filter, sums);
}

}  // namespace sinter::depthwise
