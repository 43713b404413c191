// The filter gradient of convolutions whose groups have 1, 2, 4, 8, 16 or 32 channels, on tensor
// cores, with operands that TMA brings: sm_90a. So is that of a convolution which has no more
// channels than these: they are one group.
//
// 8 channels that lie together are a unit. Of one unit of dy, the result's gradient, and one of x,
// the image, the gradient of all pairs of their channels at the tap (r, s) is
//
//   dw(r, s)(a, b) = sum over rows y and columns p of dy(y, p)(a) x(y + r, p + s)(b),
//
// a product of matrices whose k are 16 columns p. One mma m16n8k16 takes two rows of dy,
// those that meet a row of x at the taps r and r + 1, as the halves of its left operand. Both
// operands come by transposing ldmatrix, whose addresses are those of any 8 neighbouring pixels:
// x once for each tap of a row, dy once, since its fragments stay in registers for all rows of
// taps. Of groups of 4 half of the sums are wanted, of single channels one in eight, which is still
// faster than memory: 128 x 128 x 56 x 56 in groups of 4, 3 x 3, take 17 us of MMAs and
// 48 of an H200's memory. (Joined to lines of 64 channels for wgmma it is one in sixteen.)
//
// A warp has a unit of dy, and of x the units of its group. A thread block walks down the rows of
// the images of its batch entry, one after another; another warp has TMA fill a ring of stages, a
// row of x and one of dy each. Walks begin with the rows of dy that meet the first row of x, where
// the rows of x are zeros outside of the image. A batch entry may be a part of an image: then the
// rows of dy are zeros outside of the part. Sums that are NaN are taken again on ordinary
// cores, since zeros outside make NaN of numbers that are not finite.
//
// Config is that of contraction_depthwise.cuh, channel counts groups, with lanes = warps that
// multiply, columns = 16 * across, `across` tiles, `group` channels, `inner` and `outer`, the
// indices of a group's channels of the image and of the result (-1: none), `stages`, `line_units`
// of a line, at least `lanes`, and what a row of a stage has of lines, `image_line` and
// `gradient_line`, of which boxes bring `image_box` and `gradient_box`; as many pixels as `joined`
// are a line of a box, where all channels are one block's: boxes of 32 bytes a line take TMA as
// long as those of 128 (64 x 16 x 112 x 112, 16 filters of 3 x 3: 1.6 million pixels). Image::load
// and Gradient::load as in contraction_depthwise_gradient_mma.cuh.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/contraction_depthwise_boxes.cuh"
#include "sinter/device/family/contraction_depthwise_gradient.cuh"

namespace sinter::depthwise {

template <class Config>
struct GroupGradientTiles {
  using S = Shape<Config>;
  using P = typename S::P;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int lanes = Config::lanes, across = Config::across, width = 16, unit = 8,
                       group = Config::group, units_of_group = group > unit ? group / unit : 1,
                       channels = lanes * unit, groups = channels / group,
                       blocks = (S::all_channels + groups - 1) / groups;
  static_assert(Config::threads == 32 * lanes + 32 && Config::columns == width * across &&
                Config::rows == 1 && S::looped_taps == 1 && lanes % units_of_group == 0);
  static_assert(Rows::step == 1 && Rows::apart == 1 && Rows::divisor == 1 && Columns::step == 1 &&
                Columns::apart == 1 && Columns::divisor == 1);
  static_assert(Config::image_line % 8 == 0 && Config::gradient_line % 8 == 0 &&
                Config::gradient_line >= (across > 1 ? (across + 1) / 2 * 2 : 1) * width);

  static constexpr int row_pairs = (Rows::taps + 1) / 2, column_pairs = (Columns::taps + 1) / 2;
  static_assert(Config::image_line >=
                width * across + 2 * column_pairs - 1 +
                    (Columns::base % Config::joined + Config::joined) % Config::joined);
  static constexpr int joined = Config::joined,
                       shift = (Columns::base % joined + joined) % joined;  // of a walk's pixels
  using Line = Lines<Config::line_units, joined>;
  static_assert(Config::line_units >= lanes && (joined == 1 || blocks == 1));
  static constexpr int line = Line::bytes,
                       gradient = (Config::image_line * line + 1023) / 1024 * 1024,
                       stage = gradient + (Config::gradient_line * line + 1023) / 1024 * 1024,
                       box_bytes = (Config::image_box + Config::gradient_box) * line,
                       barriers = Config::stages * stage;
  using Pipe = Pipeline<Config::stages>;

  // Rows of x that meet rows of dy, those before the image first, and the end of them; of a part of
  // an image all, counted from where the part moves them to.
  static constexpr bool part = Rows::has_parts;
  static constexpr int first_row =
                           part || Rows::base > 1 - Rows::taps ? Rows::base : 1 - Rows::taps,
                       last_met = Rows::base + S::extent_of(Rows::pixel_index) + Rows::taps - 1,
                       end_row = part || last_met < Rows::extent ? last_met : Rows::extent;
  static constexpr int tiles = (S::extent_of(Columns::pixel_index) + Config::columns - 1) /
                               Config::columns,
                       walks =
                           static_cast<int>(P::product(P::first_k, Config::k - S::spatial)) * tiles;

  // The walk's image, at `c`, and its first column.
  template <class Coord>
  static SINTER_DEVICE int aim(int walk, Coord& c) {
    unravel<P::first_k, Config::k - S::spatial>(static_cast<typename Config::Index>(walk / tiles),
                                                c);
    return walk % tiles * Config::columns;
  }
};

// Where a lane's pixel of each tile lies in a row of a stage. Tiles are whole periods of the
// swizzle apart, or of joined pixels have an address each.
template <class Config>
struct TileLines {
  using T = GroupGradientTiles<Config>;
  static constexpr int apart = T::width * T::line;
  static constexpr bool periods = !T::Line::swizzled || apart % (128 * T::Line::swizzle) == 0;
  unsigned first[periods ? 1 : T::across];

  // `row`: a multiple of 1024.
  SINTER_DEVICE void set(unsigned row, int pixel, int unit) {
#pragma unroll
    for (int i = 0; i < (periods ? 1 : T::across); ++i)
      first[i] = row + T::Line::place(pixel + i * T::width, unit);
  }
  SINTER_DEVICE unsigned at(int tile) const {
    return periods ? first[0] + static_cast<unsigned>(tile * apart)
                   : first[tile < (periods ? 1 : T::across) ? tile : 0];
  }
};

// A warp's fragments of the rows of dy that meet a row of x, and its sums.
template <class Config>
struct GroupGradientSums {
  using T = GroupGradientTiles<Config>;
  unsigned rows[2 * T::row_pairs][T::across][2] = {};  // by the row's tap
  float at[T::units_of_group][T::row_pairs][2 * T::column_pairs][4] = {};

  // Before a walk.
  SINTER_DEVICE void clear_rows() {
#pragma unroll
    for (int i = 0; i < 4 * T::row_pairs * T::across; ++i)
      rows[i / (2 * T::across)][i / 2 % T::across][i % 2] = 0;
  }
  // Rows of dy move on to the next row of taps.
  SINTER_DEVICE void move_rows() {
#pragma unroll
    for (int r = T::Rows::taps - 1; r > 0; --r)
#pragma unroll
      for (int i = 0; i < 2 * T::across; ++i) rows[r][i / 2][i % 2] = rows[r - 1][i / 2][i % 2];
  }
  // The new row; `lines`: where the lane's pixel lies, of the first half of a warp in an even tile,
  // of the others in the next one.
  SINTER_DEVICE void load_row(const TileLines<Config>& lines, unsigned stage) {
#pragma unroll
    for (int tile = 0; tile < T::across; tile += 2) {
      unsigned both[4];
      warp_matrix::get_transposed(both, lines.at(tile) + stage);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (tile + i / 2 < T::across)
          rows[0][tile + i / 2 < T::across ? tile + i / 2 : 0][i % 2] = both[i];
    }
  }
  // `pixels`: two taps' of a unit of x.
  template <class Element>
  SINTER_DEVICE void multiply(Element, int tile, int unit, int pair, const unsigned (&pixels)[4]) {
#pragma unroll
    for (int r = 0; r < T::row_pairs; ++r) {
      const auto &upper = rows[2 * r][tile], &lower = rows[2 * r + 1][tile];
      const unsigned a[4] = {upper[0], lower[0], upper[1], lower[1]};
#pragma unroll
      for (int s = 0; s < 2; ++s)
        if (2 * pair + s < T::Columns::taps)
          warp_matrix::multiply(Element{}, at[unit][r][2 * pair + s], a, pixels[2 * s],
                                pixels[2 * s + 1]);
    }
  }
};

// Stores a lane's wanted sums; `from`: the warp's first channel, of the domain's groups.
template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void finish_groups(const Args& args, typename Shape<Config>::Coord c, int from,
                                 GroupGradientSums<Config>& sums) {
  using T = GroupGradientTiles<Config>;
  using S = typename T::S;
  constexpr int group = Config::group, count = group > 1 ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % 32, to = from + lane / 4;
  c.at[Config::channel] = to / group;
  if (to / group >= S::all_channels) return;
  if constexpr (Config::outer >= 0) c.at[Config::outer] = to % group;
  constexpr int dim = Config::inner >= 0 ? Config::inner : Config::channel;
  const auto each = [&](const auto& visit) {
#pragma unroll
    for (int unit = 0; unit < T::units_of_group; ++unit)
#pragma unroll
      for (int i = 0; i < 2; i += count) {
        // Channels of a unit of x as the group counts them.
        const int channel = unit * T::unit + lane % 4 * 2 + i,
                  other = group > T::unit ? channel : from + channel;
        if (group <= T::unit && other / group != to / group) continue;
        if constexpr (Config::inner >= 0) c.at[Config::inner] = other % group;
#pragma unroll
        for (int r = 0; r < T::Rows::taps; ++r)
#pragma unroll
          for (int s = 0; s < T::Columns::taps; ++s) {
            S::set_taps(List<>{}, c, 0, r * T::Columns::taps + s);
            visit(&sums.at[unit][r / 2][s][r % 2 * 2 + i]);
          }
      }
  };
  // One branch for all: code that is jumped over sum by sum takes longer to come than to run.
  float nothing = 0;
#pragma unroll
  for (int i = 0; i < T::units_of_group * T::row_pairs * T::column_pairs * 8; ++i)
    nothing = math::fma((&sums.at[0][0][0][0])[i], 0.0f, nothing);
  if (nothing != 0) [[unlikely]]
    each([&](float* sum) {
#pragma unroll
      for (int e = 0; e < count; ++e)
        if (sum[e] != sum[e])
          sum[e] = gradient_alone<Config, Gradient, Image>(args, neighbour<dim>(c, e));
    });
  each([&](const float* of_tap) {
    float sum[count];
#pragma unroll
    for (int e = 0; e < count; ++e) sum[e] = of_tap[e];
    finish<Config, Body, dim>(args, c, sum);
  });
}

template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void run_groups_gradient(const Args& args) {
  using T = GroupGradientTiles<Config>;
  using S = typename T::S;
  using Element = typename Image::Element;
  constexpr int lanes = T::lanes;
  static_assert(Config::shared_bytes == T::barriers + T::Pipe::bytes + SharedMemory::lost);
  const SharedMemory memory;
  const typename T::Pipe pipe{memory.address + T::barriers};
  const int thread = static_cast<int>(threadIdx.x), warp = __shfl_sync(~0u, thread / 32, 0),
            lane = thread % 32, block = static_cast<int>(blockIdx.x);
  const int first_channel = block % T::blocks * T::channels;
  typename S::Coord batch;
  unravel<0, Config::batch - 1>(static_cast<typename Config::Index>(block / T::blocks), batch);
  if (thread == 0) {
    pipe.init(1, lanes);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  typename T::Pipe::State state;
  if (warp == lanes) {
    if (lane > 0) return;
    const int moved = T::Rows::moved(batch);
#pragma unroll 1
    for (int walk = 0; walk < T::walks; ++walk) {
      typename S::Coord c = batch;
      const int column = T::aim(walk, c);
#pragma unroll 1
      for (int row = T::first_row; row < T::end_row; ++row) {
        pipe.acquire(state);
        pipe.expect(state, T::box_bytes);
        const unsigned to = memory.address + static_cast<unsigned>(state.stage * T::stage);
        Image::load(args, c, to, pipe.full(state), first_channel,
                    (column + T::Columns::base - T::shift) / T::joined, row + moved);
        Gradient::load(args, c, to + T::gradient, pipe.full(state), first_channel,
                       column / T::joined, row - T::Rows::base);
        state.advance();
      }
    }
    return;
  }
  // What boxes leave out of the rows, while the first are on their way.
  clear_behind<32 * lanes>(
      Config::stages, [&](int i) { return memory.pointer + i * T::stage; },
      Config::image_box * T::line, Config::image_line * T::line);
  clear_behind<32 * lanes>(
      Config::stages, [&](int i) { return memory.pointer + i * T::stage + T::gradient; },
      Config::gradient_box * T::line, Config::gradient_line * T::line);
  hopper::wait_at<1, 32 * lanes>();
  const bool exists = first_channel + warp * T::unit < S::all_channels * Config::group;
  GroupGradientSums<Config> sums;
  const int pixel = lane % 16;
  TileLines<Config> gradient_lines, image_lines[T::column_pairs];  // of the group's first unit
  gradient_lines.set(memory.address + T::gradient, T::across > 1 ? lane : pixel, warp);
#pragma unroll
  for (int p = 0; p < T::column_pairs; ++p)
    image_lines[p].set(memory.address, T::shift + pixel + 2 * p + lane / 16,
                       warp / T::units_of_group * T::units_of_group);
#pragma unroll 1
  for (int walk = 0; walk < T::walks; ++walk) {
    sums.clear_rows();
#pragma unroll 1
    for (int row = T::first_row; row < T::end_row; ++row) {
      pipe.wait(state);
      const auto stage = static_cast<unsigned>(state.stage * T::stage);
      sums.move_rows();
      sums.load_row(gradient_lines, stage);
#pragma unroll
      for (int tile = 0; tile < T::across; ++tile)
#pragma unroll
        for (int pair = 0; pair < T::column_pairs; ++pair)
#pragma unroll
          for (int unit = 0; unit < T::units_of_group; ++unit) {
            unsigned pixels[4];
            // Units of a group begin at a multiple of their number.
            warp_matrix::get_transposed(pixels,
                                        T::Line::further(image_lines[pair].at(tile), unit) + stage);
            sums.multiply(Element{}, tile, unit, pair, pixels);
          }
      __syncwarp();
      pipe.release(state);
      state.advance();
    }
  }
  if (exists)
    finish_groups<Config, Gradient, Image, Body>(args, batch, first_channel + warp * T::unit, sums);
}

}  // namespace sinter::depthwise
