// Convolutions as products of matrices (implicit GEMM) on the tensor cores of sm_90a. The image's
// pixels are the rows, and k is the filter's taps with the channels, in whole stages, fastest
// (forward, data gradient); or the pixels are k, and taps and channels are the columns (filter
// gradient). TMA walks over base pixels and moves each by a tap's offset (im2col): what lies
// outside of the image is zero, and tiles may begin and end anywhere in it.
//
// A data gradient of stride s falls into phases: of every s neighbouring pixels each sees taps of
// its own, and may see none. Phases are batch entries, so that no product with an inserted zero is
// computed (transposed convolution without zero insertion, as in CUTLASS's strided dgrad).
//
// A generated Config has `using Window = sinter::contraction::Window<...>`.
#pragma once
#include "sinter/device/core/index.cuh"
#include "sinter/device/core/tma.cuh"

namespace sinter::contraction {

// a / d = a select<Inverses>(i) / 2^16, where d is the i-th: for a d of at most 2^16.
template <class Values>
struct InversesOf;
template <long long... d>
struct InversesOf<Dims<d...>> {
  using Type = Dims<(d > 0 ? ((1 << 16) + d - 1) / d : 0)...>;
};

// One spatial dim. Of each phase: how many taps, the first one, and its offset from the base pixel.
// `result`: pixels; `first`: base pixel of result 0; `step`: from result to result; `phase_index`:
// the batch index that numbers the phases.
template <int result_, int first_, int step_, int tap_step_, int offset_step_, int phase_index_,
          class Taps_, class FirstTaps_, class FirstOffsets_>
struct Axis {
  static constexpr int result = result_, first = first_, step = step_, tap_step = tap_step_,
                       offset_step = offset_step_, phases = Taps_::size;
  static constexpr bool blocked = false, apart = false;
  static constexpr int pitch = result;  // lines of base pixels, where they are kept
  using Taps = Taps_;
  using FirstTaps = FirstTaps_;
  using FirstOffsets = FirstOffsets_;

  static constexpr int most_taps = [] {
    int most = 0;
    for (int i = 0; i < phases; ++i)
      most = Taps::at(i) > most ? static_cast<int>(Taps::at(i)) : most;
    return most;
  }();
  static constexpr bool may_be_empty = [] {  // a phase without taps
    for (int i = 0; i < phases; ++i)
      if (Taps::at(i) == 0) return true;
    return false;
  }();

  // Of the first phase: its taps' offsets lie from 0 to `most_offset`.
  static constexpr int first_offset = static_cast<int>(FirstOffsets::at(0)),
                       taps = static_cast<int>(Taps::at(0)),
                       last_offset = first_offset + (taps - 1) * offset_step,
                       most_offset = first_offset > last_offset ? first_offset : last_offset;
  static SINTER_DEVICE constexpr int offset(int tap) { return first_offset + tap * offset_step; }
  // Planes of a stride, whose offsets leave one rest each, that have a tap.
  static constexpr int planes = [] {
    int count = 0;
    for (int rest = 0; rest < step; ++rest)
      for (int tap = 0; tap < taps; ++tap)
        if ((first_offset + tap * offset_step) % step == rest) {
          ++count;
          break;
        }
    return count;
  }();

  template <class Coord>
  static SINTER_DEVICE int phase(const Coord& c) {
    if constexpr (phases > 1) return static_cast<int>(c.at[phase_index_]);
    return 0;
  }
};

// The same of an image in blocks of `result` pixels, which come with those that taps reach beside.
template <class Base>
struct Blocked : Base {
  static constexpr bool blocked = true;
  static constexpr int pitch = Base::result + Base::most_offset;
};
// Or one whose taps see pixels of their own, as those of a stride's planes do: TMA moves them by
// the tap's offset. So a third dim, between whose taps lie the lines of whole images.
template <class Base>
struct Apart : Base {
  static constexpr bool blocked = true, apart = true;
  static constexpr int planes = Base::taps;
};

// Images of a part of a filter gradient's sums, with one of zeros behind them. How many there are
// may come with the launch. There is nothing behind this axis, so that no pitch follows from it.
template <class Count>
struct Images;
template <long long count>
struct Images<Dims<count>> : Axis<1, 0, 1, 1, 1, -1, Dims<1>, Dims<0>, Dims<0>> {
  static constexpr auto result = number_of<count>;
};

enum class TapsOf { k, columns, batch };

// Axes innermost first. `taps_of`: what numbers the taps, with the channels behind them, in lines
// of `line`; where batch entries do, columns are channels alone.
template <TapsOf taps_of_, int channels, int line, class... Axes>
struct Window {
  static constexpr bool taps_in_k = taps_of_ == TapsOf::k;
  static constexpr int rank = sizeof...(Axes), lines = (channels + line - 1) / line;
  static_assert(rank >= 1 && rank <= 3, "TMA knows images of one to three dims");
  // Of the last line of a tap's channels, those that are not zeros.
  static constexpr int last_channels = channels - (lines - 1) * line;
  static constexpr bool phased = ((Axes::phases > 1) || ...),
                        may_be_empty = (Axes::may_be_empty || ...);

  // Of one phase, whose base pixels are kept in shared memory, one line each: how many taps, by
  // how many lines a tap moves them, and the most of these. With strides the lines are those of the
  // tap's plane: every `step`-th pixel.
  static constexpr int most_taps = (Axes::most_taps * ...);  // of a phase
  static constexpr int all_taps = (Axes::taps * ...), planes = (Axes::planes * ...);
  static constexpr int reach = [] {
    int lines = 0, pitch = 1;
    ((lines += Axes::apart ? 0 : Axes::most_offset / Axes::step * pitch, pitch *= Axes::pitch),
     ...);
    return lines;
  }();
  static SINTER_DEVICE constexpr int shift(int tap) {
    int lines = 0, pitch = 1;
    (
        [&] {
          const int rest = quotient(tap, Axes::taps);
          if (!Axes::apart) lines += Axes::offset(tap - rest * Axes::taps) / Axes::step * pitch;
          tap = rest;
          pitch *= Axes::pitch;
        }(),
        ...);
    return lines;
  }
  // Lines that a tile of so many base pixels keeps, and from eight of these to the next eight.
  static constexpr bool blocked = (Axes::blocked && ...);
  static constexpr int kept(int base) {
    return blocked ? (Axes::pitch * ...) : (base + reach + 7) / 8 * 8;
  }
  static constexpr int eight_pitch = [] {
    const int pitches[] = {Axes::pitch...}, over[] = {Axes::most_offset...};
    return blocked && pitches[0] - over[0] == 8 ? pitches[0] : 8;
  }();
  // Tells the planes of taps apart, in the order of the taps that come first.
  static SINTER_DEVICE int plane(int tap) {
    int number = 0, pitch = 1;
    (
        [&] {
          const int rest = quotient(tap, Axes::taps);
          const int nth = tap - rest * Axes::taps;
          number += (Axes::apart ? nth : Axes::offset(nth) % Axes::step) * pitch;
          tap = rest;
          pitch *= Axes::apart ? Axes::taps : Axes::step;
        }(),
        ...);
    return number;
  }

  template <class Coord>
  static SINTER_DEVICE int taps(const Coord& c) {
    return (select<typename Axes::Taps>(Axes::phase(c)) * ...);
  }
  // Of k, where it has the taps.
  template <class Coord>
  static SINTER_DEVICE int steps(const Coord& c) {
    return taps(c) * lines;
  }
};

template <int rank>
struct PixelOffsetsOf;
template <>
struct PixelOffsetsOf<1> {
  using Type = hopper::PixelOffsets1;
};
template <>
struct PixelOffsetsOf<2> {
  using Type = hopper::PixelOffsets2;
};
template <>
struct PixelOffsetsOf<3> {
  using Type = hopper::PixelOffsets3;
};

// What one step of k brings of an operand: channels from `channel` on, at a tap of each axis
// (innermost first) with its offset from the base pixels, which start at `at` of an image.
template <class WindowType>
struct WindowPlace;
template <TapsOf taps_of, int channels, int line, class... Axes>
struct WindowPlace<Window<taps_of, channels, line, Axes...>> {
  using W = Window<taps_of, channels, line, Axes...>;
  static constexpr int rank = W::rank;
  int channel, image, at[rank], tap[rank];
  unsigned short offset[rank];

  // `row`: of the pixels or of the filter, or the column of a filter gradient; `k`: the step's
  // first; `number`: of the tap, where batch entries number it.
  template <class Coord>
  SINTER_DEVICE WindowPlace(const Coord& c, int row, int k, int number = 0) {
    const int along = taps_of == TapsOf::k ? k : row, lines_before = along / line;
    channel = row;
    if constexpr (taps_of != TapsOf::batch) {
      number = quotient(lines_before, W::lines);
      channel = (lines_before - number * W::lines) * line;
    }
    image = taps_of == TapsOf::k ? row : k;
    int i = 0;
    (set_axis<Axes>(c, i++, number), ...);
  }
  static SINTER_DEVICE typename PixelOffsetsOf<rank>::Type no_offsets() { return {}; }
  // Those along the outer axes alone.
  template <class... Along>
  static SINTER_DEVICE typename PixelOffsetsOf<rank>::Type moved(Along... along) {
    const unsigned short all[rank] = {0, static_cast<unsigned short>(along)...};
    return offsets_of(all);
  }
  SINTER_DEVICE typename PixelOffsetsOf<rank>::Type offsets() const { return offsets_of(offset); }
  // Those of the tap's plane.
  SINTER_DEVICE typename PixelOffsetsOf<rank>::Type plane() const {
    unsigned short rest[rank];
    int i = 0;
    ((rest[i] = Axes::apart ? offset[i] : offset[i] % Axes::step, ++i), ...);
    return offsets_of(rest);
  }

 private:
  // number / taps of the axis. A phase has few enough: one division by a number at run time takes
  // as long as all else that a step of k asks of the producer.
  template <class A>
  static SINTER_DEVICE int before(int phase, int number) {
    static_assert(A::phases == 1 || W::most_taps * W::most_taps <= 1 << 16);
    if constexpr (A::phases > 1)
      return number * select<typename InversesOf<typename A::Taps>::Type>(phase) >> 16;
    return quotient(number, A::taps);
  }
  static SINTER_DEVICE typename PixelOffsetsOf<rank>::Type offsets_of(
      const unsigned short (&of)[rank]) {
    typename PixelOffsetsOf<rank>::Type all;
    all.w = of[0];
    if constexpr (rank > 1) all.h = of[1];
    if constexpr (rank > 2) all.d = of[2];
    return all;
  }
  // Takes the axis off the tap's number and off the pixel's.
  template <class A, class Coord>
  SINTER_DEVICE void set_axis(const Coord& c, int i, int& number) {
    const int phase = A::phase(c);
    int nth = 0;
    if constexpr (A::phases > 1 || A::Taps::product > 1) {
      const int count = select<typename A::Taps>(phase), rest = before<A>(phase, number);
      nth = number - rest * count;
      number = rest;
    }
    tap[i] = select<typename A::FirstTaps>(phase) + nth * A::tap_step;
    offset[i] =
        static_cast<unsigned short>(select<typename A::FirstOffsets>(phase) + nth * A::offset_step);
    const int rest = quotient(image, A::result);
    at[i] = A::first + (image - rest * A::result) * A::step;
    image = rest;
  }
};

}  // namespace sinter::contraction
