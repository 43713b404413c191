// Neighbouring elements of a resampled image, see resampled.cuh. The operand is X.
#pragma once
#include "sinter/device/gather/resampled.cuh"

namespace sinter {

// Where the edge stands for the padding.
template <class G>
inline constexpr bool kClampsX = kReadsEdge<G>&& G::X::Dim::product > 0;

// Where the last window along axis d starts.
template <class G>
constexpr SINTER_DEVICE long long last_start(int d) {
  return (G::Output::at(2 + d) - 1) * G::Step::at(d) - G::Pre::at(d);
}

// The places of a window along the axes from d on, but for `skip`.
template <class G, int skip>
constexpr SINTER_DEVICE long long places_from(int d) {
  long long n = 1;
  for (; d < G::Window::size; ++d) n *= d == skip ? 1 : G::Window::at(d);
  return n;
}

// Calls visit(place, position) for every place of c's window, row-major, but for axis `skip`: there
// it stands at the beginning of the line, and the position at the beginning of the window. Outside,
// the offset means nothing, but for edges that are padding.
template <class G, int skip, int d = 0, class Coord, class Index, class Visit>
SINTER_DEVICE void for_window(const Coord& c, const Location<Index>& place, Index position,
                              const Visit& visit) {
  if constexpr (d == G::Window::size) {
    visit(place, position);
  } else {
    constexpr auto window = static_cast<Index>(G::Window::at(d));
    if constexpr (d == skip) {
      for_window<G, skip, d + 1>(c, place, position * window, visit);
    } else {
      constexpr auto extent = static_cast<Index>(G::X::Dim::at(2 + d)),
                     last = static_cast<Index>(last_start<G>(d)),
                     pre = static_cast<Index>(G::Pre::at(d));
      const Index start = node_index<G>(c, 2 + d) * static_cast<Index>(G::Step::at(d)) - pre;
      const auto visit_from = [&](Index w) {
        Index x = start + w;
        Location<Index> next = place;
        // Constants decide where no window leaves the image.
        next.inside &= (w >= pre || x >= 0) && (last + w < extent || x < extent);
        if constexpr (kClampsX<G>) x = x < 0 ? 0 : x >= extent ? extent - 1 : x;
        next.offset += x * static_cast<Index>(G::X::Stride::at(2 + d));
        for_window<G, skip, d + 1>(c, next, position * window + w, visit);
      };
      if constexpr (places_from<G, skip>(d) <= kWrittenOut) {
#pragma unroll
        for (Index w = 0; w < window; ++w) visit_from(w);
      } else if constexpr (places_from<G, skip>(d + 1) == 1) {
#pragma unroll 8
        for (Index w = 0; w < window; ++w) visit_from(w);
      } else {
#pragma unroll 1
        for (Index w = 0; w < window; ++w) visit_from(w);
      }
    }
  }
}

// What the windows of neighbours read at one place, or of one line: neighbour e reads `window`
// elements from e * step on.
template <class G, int width>
struct WindowLine {
  static constexpr int axis = kLineAxis<G, width>;
  static constexpr int step = axis < 0 ? 1 : static_cast<int>(G::Step::at(axis));
  static constexpr int window = axis < 0 ? 1 : static_cast<int>(G::Window::at(axis));
  static constexpr int count = (width - 1) * step + window;
};

// Calls take(line, position) for all that the windows read, row-major; `line` holds values.
template <class G, class T, int width, class Element, class Coord, class Take>
SINTER_DEVICE void for_windows(const Element* x, const Coord& c, T padding, const Take& take) {
  using X = typename G::X;
  using Index = typename Coord::Index;
  using Line = WindowLine<G, width>;
  const Location<Index> image{image_offset<G, X>(c), true};
  for_window<G, Line::axis>(c, image, Index(0), [&](const Location<Index>& place, Index position) {
    const bool exists = kClampsX<G> || place.inside;
    T line[Line::count];
    if constexpr (Line::axis < 0)
      read_neighbours<X, G::along>(x + place.offset, exists, padding, line);
    else
      read_line<X, G::along, -G::Pre::at(Line::axis),
                (G::Output::at(G::along) - width) * Line::step, kClampsX<G>>(
          x + place.offset, node_index<G>(c, G::along) * Line::step, exists, padding, line);
    take(line, position);
  });
}

// Combines everything that the windows read: lines are combined first, as windows overlap there.
template <class G, class T, int width, class Element, class Coord, class Combine>
SINTER_DEVICE void combine_windows(const Element* x, const Coord& c, T padding,
                                   const Combine& combine, T (&result)[width]) {
  using Index = typename Coord::Index;
  using Line = WindowLine<G, width>;
  T all[Line::count];
#pragma unroll
  for (int i = 0; i < Line::count; ++i) all[i] = padding;
  for_windows<G, T, width>(x, c, padding, [&](const T(&line)[Line::count], Index position) {
#pragma unroll
    for (int i = 0; i < Line::count; ++i)
      all[i] = position == 0 ? line[i] : combine(all[i], line[i]);
  });
#pragma unroll
  for (int e = 0; e < width; ++e) {
    result[e] = all[e * Line::step];
#pragma unroll
    for (int w = 1; w < Line::window; ++w) result[e] = combine(result[e], all[e * Line::step + w]);
  }
}

// The first of the largest elements in row-major order, padding included; the first NaN where there
// is one.
template <class G, class T, int width, class Element, class Coord>
SINTER_DEVICE void pool_maximum(const Element* x, const Coord& c, Resampled<G, T, width>& best) {
  using Index = typename Coord::Index;
  using Line = WindowLine<G, width>;
  const T padding = G::padding == PaddingMode::neg_inf_pad ? -math::infinity(T()) : T(0);
  if constexpr (!G::positions) {
    const auto larger = [](T a, T b) { return math::maximum(a, b); };
    return combine_windows<G>(x, c, padding, larger, best.value);
  }
#pragma unroll
  for (int e = 0; e < width; ++e) best.value[e] = -math::infinity(T()), best.position[e] = T(0);
  for_windows<G, T, width>(x, c, padding, [&](const T(&line)[Line::count], Index position) {
#pragma unroll
    for (int e = 0; e < width; ++e) {
#pragma unroll
      for (int w = 0; w < Line::window; ++w) {
        const T value = line[e * Line::step + w], so_far = best.value[e];
        if (position + w == 0 || (!(value <= so_far) && so_far == so_far)) {
          best.value[e] = value;
          best.position[e] = static_cast<T>(position + w);
        }
      }
    }
  });
}

// How many places of the window that starts at `start` along axis d lie inside.
template <class G, class Index>
SINTER_DEVICE Index places_inside(int d, Index start) {
  const auto window = static_cast<Index>(G::Window::at(d));
  const auto behind = static_cast<Index>(start + window - G::X::Dim::at(2 + d));
  Index n = window;
  if (G::Pre::at(d) > 0 && start < 0) n += start;
  if (last_start<G>(d) + G::Window::at(d) > G::X::Dim::at(2 + d) && behind > 0) n -= behind;
  return n < 0 ? 0 : n;
}

// Padding of zeros adds nothing to the sum, nor does any where only what is inside counts.
template <class G, class T, int width, class Element, class Coord>
SINTER_DEVICE void pool_average(const Element* x, const Coord& c, Resampled<G, T, width>& result) {
  using Index = typename Coord::Index;
  constexpr bool excludes = G::mode == ResampleMode::avgpool_exclude_padding;
  const auto sum = [](T a, T b) { return a + b; };
  constexpr bool sinks = !excludes && G::padding == PaddingMode::neg_inf_pad;
  const T padding = sinks ? -math::infinity(T()) : T(0);
  combine_windows<G>(x, c, padding, sum, result.value);
#pragma unroll
  for (int e = 0; e < width; ++e) {
    Index divisor = static_cast<Index>(G::Window::product);
    if constexpr (excludes) {
      divisor = 1;
#pragma unroll
      for (int d = 0; d < G::Window::size; ++d) {
        const Index o = node_index<G>(c, 2 + d) + (d == kLineAxis<G, width> ? e : 0);
        divisor *= places_inside<G>(
            d, o * static_cast<Index>(G::Step::at(d)) - static_cast<Index>(G::Pre::at(d)));
      }
    }
    // Neighbours share the inverse. Integers are averaged as doubles, which divide exactly.
    if constexpr (is_same<T, double>)
      result.value[e] /= static_cast<T>(divisor);
    else
      result.value[e] *=
          excludes ? inverse(static_cast<T>(divisor)) : T(1) / static_cast<T>(G::Window::product);
  }
}

// Calls visit(offset, weight) for the corners around output c, but for axis `skip`.
template <class G, int skip, int d = 0, class Coord, class Index, class T, class Visit>
SINTER_DEVICE void for_corners(const Coord& c, Index offset, T weight, const Visit& visit) {
  if constexpr (d + 2 == G::Output::size) {
    visit(offset, weight);
  } else if constexpr (d == skip) {
    for_corners<G, skip, d + 1>(c, offset, weight, visit);
  } else {
    using Source = LinearSource<T, G::X::Dim::at(2 + d), G::Output::at(2 + d)>;
    const Source s(static_cast<typename Source::Integer>(node_index<G>(c, 2 + d)));
    constexpr auto stride = static_cast<Index>(G::X::Stride::at(2 + d));
    for_corners<G, skip, d + 1>(c, offset + static_cast<Index>(s.low) * stride,
                                weight * (T(1) - s.weight_high), visit);
    for_corners<G, skip, d + 1>(c, offset + static_cast<Index>(s.high) * stride,
                                weight * s.weight_high, visit);
  }
}

// Where neighbours along a line of a scaled image start to read: at a multiple of what they span,
// which is a whole number.
template <class G, int width, class Coord>
SINTER_DEVICE typename Coord::Index line_base(const Coord& c) {
  constexpr long long span = width * G::X::Dim::at(G::along) / G::Output::at(G::along);
  return node_index<G>(c, G::along) / width * static_cast<typename Coord::Index>(span);
}
template <class G, int width>
inline constexpr long long kLastBase =
    (G::Output::at(G::along) - width) * G::X::Dim::at(G::along) / G::Output::at(G::along);

// A neighbour without weight is not part of the result, whatever it holds: a zero stands for it.
template <class G, class T, int width, class Element, class Coord>
SINTER_DEVICE void interpolate(const Element* x, const Coord& c, Resampled<G, T, width>& sum) {
  using X = typename G::X;
  using Index = typename Coord::Index;
  constexpr int axis = kLineAxis<G, width>;
  const auto add = [&](int e, T weight, T value) {
    sum.value[e] = math::fma(weight, value, sum.value[e]);
  };
#pragma unroll
  for (int e = 0; e < width; ++e) sum.value[e] = T(0);
  if constexpr (axis < 0) {
    for_corners<G, axis>(c, image_offset<G, X>(c), T(1), [&](Index offset, T weight) {
      T value[width];
      read_neighbours<X, G::along>(x + offset, weight != T(0), T(0), value);
#pragma unroll
      for (int e = 0; e < width; ++e) add(e, weight, value[e]);
    });
  } else {
    using Source = LineSource<T, X::Dim::at(G::along), G::Output::at(G::along)>;
    constexpr long long lead = Source::low(0);
    constexpr int count = static_cast<int>(Source::low(width - 1) + 2 - lead);
    const Index base = line_base<G, width>(c);
    for_corners<G, axis>(c, image_offset<G, X>(c), T(1), [&](Index offset, T weight) {
      T value[count];
      read_line<X, G::along, lead, kLastBase<G, width>, false>(x + offset, base, weight != T(0),
                                                               T(0), value);
#pragma unroll
      for (int e = 0; e < width; ++e) {
        const Source s(e, base, kLastBase<G, width>);
        const T low = value[Source::low(e) - lead], high = value[Source::low(e) - lead + 1];
        add(e, weight * s.weight_low, s.weight_low != T(0) ? low : T(0));
        add(e, weight * s.weight_high, s.weight_high != T(0) ? high : T(0));
      }
    });
  }
}

template <class G, class T, int width, class Element, class Coord>
SINTER_DEVICE void take_nearest(const Element* x, const Coord& c, Resampled<G, T, width>& result) {
  using X = typename G::X;
  using Index = typename Coord::Index;
  constexpr int axis = kLineAxis<G, width>;
  Index offset = image_offset<G, X>(c);
#pragma unroll
  for (int d = 2; d < G::Output::size; ++d) {
    constexpr auto source = [](Index o, auto in, auto out) { return o * in / out; };
    if (d - 2 == axis) continue;
    const long long in = X::Dim::at(d), out = G::Output::at(d) > 0 ? G::Output::at(d) : 1;
    const Index o = node_index<G>(c, d);
    const auto at =
        in * out < 1LL << 31
            ? static_cast<Index>(source(o, static_cast<Index>(in), static_cast<Index>(out)))
            : static_cast<Index>(source(o, in, out));
    offset += at * static_cast<Index>(X::Stride::at(d));
  }
  if constexpr (axis < 0) {
    read_neighbours<X, G::along>(x + offset, true, T(0), result.value);
  } else {
    constexpr long long in = X::Dim::at(G::along), out = G::Output::at(G::along);
    T value[(width - 1) * in / out + 1];
    read_line<X, G::along, 0, kLastBase<G, width>, false>(x + offset, line_base<G, width>(c), true,
                                                          T(0), value);
#pragma unroll
    for (int e = 0; e < width; ++e) result.value[e] = value[e * in / out];
  }
}

template <class G, class T, int width, class Element, class Coord>
SINTER_DEVICE void resample(const Element* x, const Coord& c, Resampled<G, T, width>& result) {
  if constexpr (G::mode == ResampleMode::maxpool)
    pool_maximum(x, c, result);
  else if constexpr (G::mode == ResampleMode::bilinear)
    interpolate(x, c, result);
  else if constexpr (G::mode == ResampleMode::nearest)
    take_nearest(x, c, result);
  else
    pool_average(x, c, result);
}

// The same of one element.
template <class G, class T, class Element, class Coord>
SINTER_DEVICE Resampled<G, T, 1> resample(const Element* x, const Coord& c) {
  Resampled<G, T, 1> result;
  resample(x, c, result);
  return result;
}

}  // namespace sinter
