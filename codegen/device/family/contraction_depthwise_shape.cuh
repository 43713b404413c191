// What the kernels of depthwise convolutions count: spatial dims, blocks of results, channels of a
// thread block, and which tap a result has for a pixel. See contraction_depthwise.cuh.
#pragma once
#include "sinter/device/core/index.cuh"
#include "sinter/device/family/contraction_space.cuh"

namespace sinter::depthwise {

// A spatial dim: result `pixel` and tap number `tap` meet at image coordinate
// (base + step * pixel + apart * tap) / divisor, where that is a whole number, of `extent`, each
// `stride` elements further. The indices are those of the domain; -1: there is none. Where batch
// entries are parts of an image, `Parts` . indices moves the coordinate, too.
template <int pixel_index_, int tap_index_, int taps_, int base_, int step_, int apart_,
          int divisor_, int extent_, long long stride_, class Parts = Dims<>>
struct Axis {
  static constexpr int pixel_index = pixel_index_, tap_index = tap_index_, taps = taps_,
                       base = base_, step = step_, apart = apart_, divisor = divisor_,
                       extent = extent_;
  static constexpr long long stride = stride_;
  static constexpr bool has_parts = Parts::size > 0;

  // Of a block of results that starts at a multiple of the divisor, whose image coordinates are
  // relative to its origin.
  template <class Coord>
  static SINTER_DEVICE int origin(const Coord& c, int result) {
    return (divisor > 1 ? result / divisor : result * step) + moved(c);
  }
  template <class Coord>
  static SINTER_DEVICE int moved(const Coord& c) {
    return static_cast<int>(dot(Parts{}, c.at));
  }
  // The tap at which result `i` of the block reads coordinate `at`; -1: it does not.
  static constexpr SINTER_DEVICE int tap_of(int i, int at) {
    const int rest = at * divisor - base - step * i;
    if (apart == 0 || taps == 1) return rest == 0 ? 0 : -1;
    return rest % apart == 0 && rest / apart >= 0 && rest / apart < taps ? rest / apart : -1;
  }
  // The first and last coordinate that some result of the block may read.
  static constexpr SINTER_DEVICE int first(int) {
    const int reach = apart * (taps - 1), low = base + (reach < 0 ? reach : 0);
    return low >= 0 ? (low + divisor - 1) / divisor : -(-low / divisor);
  }
  static constexpr SINTER_DEVICE int last(int results) {
    const int reach = apart * (taps - 1),
              high = base + step * (results - 1) + (reach > 0 ? reach : 0);
    return high >= 0 ? high / divisor : -((-high + divisor - 1) / divisor);
  }
};
using NoAxis = Axis<-1, -1, 1, 0, 1, 0, 1, 1, 0>;

template <class Config>
constexpr SINTER_DEVICE int index_of_filters() {
  if constexpr (requires { Config::filters; }) return Config::filters;
  return -1;
}

template <class Config>
constexpr SINTER_DEVICE int pixels_at_once() {
  if constexpr (requires { Config::line_pack; }) return Config::line_pack;
  return 1;
}

template <class Looped>
inline constexpr int taps_of = 1;
template <class... Axes>
inline constexpr int taps_of<List<Axes...>> = (Axes::taps * ... * 1);

// What both directions count.
template <class Config>
struct Shape {
  using P = contraction::Problem<Config>;
  using Coord = typename P::Coord;
  using Index = typename Config::Index;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int each = Config::each, lanes = Config::lanes;

  static constexpr SINTER_DEVICE int extent_of(int index) {
    return index < 0 ? 1 : static_cast<int>(Config::Extent::at(index));
  }
  // A thread's channels lie along index `beside_each`.
  static constexpr int filters = index_of_filters<Config>(), of_group = extent_of(filters),
                       beside_each = filters < 0 ? Config::channel : filters,
                       pixel_each = filters < 0 ? each : 1;
  static_assert(of_group % (filters < 0 ? 1 : each) == 0);
  static constexpr int all_channels = extent_of(Config::channel) * of_group;
  static constexpr int channels = lanes * each,  // of a thread block
      channel_blocks = (all_channels + channels - 1) / channels;
  static constexpr int beside = Config::threads / lanes;  // blocks of results at once
  static constexpr int looped_taps = taps_of<typename Config::Looped>,
                       taps = Rows::taps * Columns::taps;
  // Rows of the image that a block sees, from `first_row` on; that the next block's lie further;
  // and blocks that see a row.
  static constexpr int first_row = Rows::first(Config::rows),
                       seen = Rows::last(Config::rows) - first_row + 1,
                       advance = Rows::divisor > 1 ? Config::rows / Rows::divisor
                                                   : Config::rows *Rows::step,
                       slots = (seen + advance - 1) / advance;
  // Batch entries and the first of the pixel indices are planes, each with blocks of results.
  static constexpr int spatial = (Rows::pixel_index >= 0) + (Columns::pixel_index >= 0);
  static constexpr int blocks_down =
                           (extent_of(Rows::pixel_index) + Config::rows - 1) / Config::rows,
                       blocks_across = (extent_of(Columns::pixel_index) + Config::columns - 1) /
                                       Config::columns,
                       runs_down = (blocks_down + Config::run - 1) / Config::run;

  // Batch entries times the indices of pixels that are not walked over.
  static constexpr SINTER_DEVICE int planes_m() {
    return static_cast<int>(P::product(P::first_m, Config::m - spatial));
  }
  static constexpr SINTER_DEVICE int planes() {
    return static_cast<int>(P::product(0, Config::batch - 1)) * planes_m();
  }
  static SINTER_DEVICE void set_plane(Coord& c, int plane) {
    unravel<0, Config::batch - 1>(static_cast<Index>(plane / planes_m()), c);
    unravel<P::first_m, Config::m - spatial>(static_cast<Index>(plane % planes_m()), c);
  }

  static SINTER_DEVICE void set_channel(Coord& c, int channel) {
    c.at[Config::channel] = channel / of_group;
    if constexpr (filters >= 0) c.at[filters] = channel % of_group;
  }

  // The tap's indices, the looped axes' outermost.
  template <class... Axes>
  static SINTER_DEVICE void set_taps(List<Axes...>, Coord& c, int looped, int tap) {
    int left = looped;
    (set_tap<Axes>(c, left), ...);
    if constexpr (Columns::tap_index >= 0) c.at[Columns::tap_index] = tap % Columns::taps;
    if constexpr (Rows::tap_index >= 0) c.at[Rows::tap_index] = tap / Columns::taps;
  }
  template <class A>
  static SINTER_DEVICE void set_tap(Coord& c, int& left) {
    if constexpr (A::tap_index >= 0) c.at[A::tap_index] = left % A::taps;
    left /= A::taps;
  }
  static SINTER_DEVICE void set_pixel(Coord& c, int row, int column) {
    if constexpr (Rows::pixel_index >= 0) c.at[Rows::pixel_index] = row;
    if constexpr (Columns::pixel_index >= 0) c.at[Columns::pixel_index] = column;
  }

  // How far the looped taps move the image's element, and whether they stay inside.
  template <class... Axes>
  static SINTER_DEVICE Location<Index> at_looped(List<Axes...>, const Coord& c, int looped) {
    Location<Index> place{0, true};
    (
        [&] {
          const int tap = looped % Axes::taps,
                    pixel = Axes::pixel_index < 0 ? 0 : static_cast<int>(c.at[Axes::pixel_index]),
                    at = Axes::base + Axes::moved(c) + Axes::step * pixel + Axes::apart * tap,
                    coordinate = at / Axes::divisor;
          looped /= Axes::taps;
          place.inside &= at >= 0 && coordinate * Axes::divisor == at && coordinate < Axes::extent;
          place.offset += static_cast<Index>(coordinate) * static_cast<Index>(Axes::stride);
        }(),
        ...);
    return place;
  }
};

}  // namespace sinter::depthwise
