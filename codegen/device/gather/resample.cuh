// One element of a resampled image. A generated struct G describes the node: `mode`, `padding`, the
// dims Window, Step and Pre of the spatial axes, operand X and the dims Output. An operand names
// its Dim, Stride and offset.
#pragma once
#include "sinter/device/core/index.cuh"
#include "sinter/device/core/math.cuh"

namespace sinter {

enum class ResampleMode {
  maxpool,
  avgpool_include_padding,
  avgpool_exclude_padding,
  bilinear,
  nearest,
};
enum class PaddingMode { neg_inf_pad, zero_pad, edge_val_pad };

// The offset of batch and channel, which resampling keeps.
template <class Operand, class Coord>
SINTER_DEVICE typename Coord::Index image_offset(const Coord& c) {
  using Index = typename Coord::Index;
  return static_cast<Index>(Operand::offset) +
         c.at[0] * static_cast<Index>(Operand::Stride::at(0)) +
         c.at[1] * static_cast<Index>(Operand::Stride::at(1));
}

// Where position p of the window of output c lies. Outside, the offset is that of the nearest
// element, which padding with edge values reads.
template <class G, class Coord>
SINTER_DEVICE Place<typename Coord::Index> window_place(const Coord& c, typename Coord::Index p) {
  using Index = typename Coord::Index;
  constexpr int axes = G::Window::size;
  Index in_window[axes];
  unravel<typename G::Window, 0, axes>(p, in_window);
  Place<Index> place{image_offset<typename G::X>(c), true};
#pragma unroll
  for (int d = 0; d < axes; ++d) {
    const Index extent = static_cast<Index>(G::X::Dim::at(2 + d));
    Index x = c.at[2 + d] * static_cast<Index>(G::Step::at(d)) - static_cast<Index>(G::Pre::at(d)) +
              in_window[d];
    place.inside &= x >= 0 && x < extent;
    x = x >= extent ? extent - 1 : x;
    x = x < 0 ? 0 : x;
    place.offset += x * static_cast<Index>(G::X::Stride::at(2 + d));
  }
  return place;
}

// The value at a place of the window; `padding` outside, but for padding with edge values.
template <class G, class T, class Element, class Index>
SINTER_DEVICE T padded_read(const Element* x, const Place<Index>& place, T padding) {
  constexpr bool edge = G::padding == PaddingMode::edge_val_pad && G::X::Dim::product > 0;
  return edge || place.inside ? read<T>(x + place.offset) : padding;
}

template <class T>
struct Maximum {
  T value;
  long long position;
};

// The first of the largest elements in row-major order, padding included; the first NaN where there
// is one.
template <class G, class T, class Element, class Coord>
SINTER_DEVICE Maximum<T> window_maximum(const Element* x, const Coord& c) {
  using Index = typename Coord::Index;
  constexpr Index window = static_cast<Index>(G::Window::product);
  const T padding = G::padding == PaddingMode::neg_inf_pad ? -math::infinity(T()) : T(0);
  Maximum<T> best{-math::infinity(T()), 0};
#pragma unroll 1
  for (Index p = 0; p < window; ++p) {
    const T value = padded_read<G, T>(x, window_place<G>(c, p), padding);
    if (value > best.value || (value != value && best.value == best.value)) best = {value, p};
  }
  return best;
}

// Padding adds nothing to the sum, but for edge values.
template <class G, class T, class Element, class Coord>
SINTER_DEVICE T window_average(const Element* x, const Coord& c) {
  using Index = typename Coord::Index;
  constexpr Index window = static_cast<Index>(G::Window::product);
  T sum = T(0);
  Index inside = 0;
#pragma unroll 1
  for (Index p = 0; p < window; ++p) {
    const auto place = window_place<G>(c, p);
    inside += place.inside ? 1 : 0;
    if (G::mode == ResampleMode::avgpool_include_padding || place.inside)
      sum += padded_read<G, T>(x, place, T(0));
  }
  const Index divisor = G::mode == ResampleMode::avgpool_include_padding ? window : inside;
  return sum / static_cast<T>(divisor);
}

// The two neighbours of output o along one axis, centres at half, clamped. The weight is a quotient
// of integers, so that it is exact to one rounding for every extent.
template <class T>
struct LinearSource {
  long long low, high;
  T weight_high;
  SINTER_DEVICE LinearSource(long long o, long long in, long long out) {
    const long long scaled = (2 * o + 1) * in - out;  // the source coordinate times 2 out
    const long long clamped = scaled < 0 ? 0 : scaled;
    low = clamped / (2 * out);
    weight_high = static_cast<T>(clamped - low * (2 * out)) / static_cast<T>(2 * out);
    if (low >= in - 1) {
      low = in - 1;
      weight_high = T(0);
    }
    high = low < in - 1 ? low + 1 : low;
  }
};

template <class G, class T, class Element, class Coord>
SINTER_DEVICE T interpolate(const Element* x, const Coord& c) {
  using Index = typename Coord::Index;
  constexpr int axes = G::Output::size - 2;
  T sum = T(0);
#pragma unroll 1
  for (int corner = 0; corner < 1 << axes; ++corner) {
    Index offset = image_offset<typename G::X>(c);
    T weight = T(1);
#pragma unroll
    for (int d = 0; d < axes; ++d) {
      const LinearSource<T> s(c.at[2 + d], G::X::Dim::at(2 + d), G::Output::at(2 + d));
      const bool high = corner >> d & 1;
      weight *= high ? s.weight_high : T(1) - s.weight_high;
      offset +=
          static_cast<Index>(high ? s.high : s.low) * static_cast<Index>(G::X::Stride::at(2 + d));
    }
    // A neighbour without weight is not part of the result, whatever it holds.
    if (weight != T(0)) sum += weight * read<T>(x + offset);
  }
  return sum;
}

template <class G, class T, class Element, class Coord>
SINTER_DEVICE T nearest(const Element* x, const Coord& c) {
  using Index = typename Coord::Index;
  Index offset = image_offset<typename G::X>(c);
#pragma unroll
  for (int d = 2; d < G::Output::size; ++d) {
    const long long source = static_cast<long long>(c.at[d]) * G::X::Dim::at(d) /
                             (G::Output::at(d) > 0 ? G::Output::at(d) : 1);
    offset += static_cast<Index>(source) * static_cast<Index>(G::X::Stride::at(d));
  }
  return read<T>(x + offset);
}

template <class G, class T, class Element, class Coord>
SINTER_DEVICE T resample(const Element* x, const Coord& c) {
  if constexpr (G::mode == ResampleMode::maxpool)
    return window_maximum<G, T>(x, c).value;
  else if constexpr (G::mode == ResampleMode::bilinear)
    return interpolate<G, T>(x, c);
  else if constexpr (G::mode == ResampleMode::nearest)
    return nearest<G, T>(x, c);
  else
    return window_average<G, T>(x, c);
}

// The position of the maximum within its window.
template <class G, class T, class Element, class Coord>
SINTER_DEVICE T resample_index(const Element* x, const Coord& c) {
  return static_cast<T>(window_maximum<G, T>(x, c).position);
}

}  // namespace sinter
