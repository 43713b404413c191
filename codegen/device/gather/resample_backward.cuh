// Neighbouring elements of the gradient of resampling, each gathered from all outputs that read it,
// in row-major order: deterministic and without atomics. G is as in resampled.cuh, with the
// operands DY and, for maxpool, Index; Output is the dims of DX, and DY's dims are those of the
// forward's result.
#pragma once
#include "sinter/device/gather/resampled.cuh"

namespace sinter {

template <class Integer>
struct Range {
  Integer first, last;
  SINTER_DEVICE Integer count() const { return last < first ? 0 : last - first + 1; }
  SINTER_DEVICE bool holds(Integer i) const { return i >= first && i <= last; }
  SINTER_DEVICE Range clipped(long long extent) const {
    const auto end = static_cast<Integer>(extent - 1);
    return {first < 0 ? 0 : first, last > end ? end : last};
  }
};

// Spatial axis d of the node, along which `in` elements of DX belong to `out` of DY.
template <class G, int d>
struct BackwardAxis {
  static constexpr long long in = G::Output::at(2 + d), out = G::DY::Dim::at(2 + d);
  static constexpr long long window = G::Window::at(d), step = G::Step::at(d), pre = G::Pre::at(d);
  static constexpr bool scales =
      G::mode == ResampleMode::nearest || G::mode == ResampleMode::bilinear;
  // What the products below may reach.
  static constexpr long long reach =
      scales ? (2 * in + 3) * (2 * out + 3) : (in + out) * step + pre + window;
  using Integer = IntegerUpTo<reach>;
  // The outputs that an element has at the most.
  static constexpr long long most = in == 0                             ? 0
                                    : G::mode == ResampleMode::nearest  ? ceil_divide(out, in)
                                    : G::mode == ResampleMode::bilinear ? ceil_divide(2 * out, in)
                                    : kReadsEdge<G>                     ? out
                                                                        : ceil_divide(window, step);

  // The outputs that may read element x.
  static SINTER_DEVICE Range<Integer> outputs(Integer x) {
    constexpr auto n = static_cast<Integer>(in), m = static_cast<Integer>(out);
    if constexpr (G::mode == ResampleMode::nearest) {
      return Range<Integer>{(x * m + n - 1) / n, ((x + 1) * m + n - 1) / n - 1}.clipped(out);
    } else if constexpr (G::mode == ResampleMode::bilinear) {
      // Those whose coordinate (2 o + 1) in - out, times 2 out, lies between its neighbours.
      const Integer before = (2 * x - 1) * m - n, behind = (2 * x + 3) * m - n;
      return Range<Integer>{before < 0 ? 0 : before / (2 * n) + 1,
                            x == n - 1 ? m - 1 : (behind + 2 * n - 1) / (2 * n) - 1}
          .clipped(out);
    } else {
      constexpr auto s = static_cast<Integer>(step),
                     reached = static_cast<Integer>(pre - window + 1);
      const Integer from = x + reached;
      Range<Integer> r{from <= 0 ? 0 : (from + s - 1) / s, (x + static_cast<Integer>(pre)) / s};
      if (kReadsEdge<G> && x == 0) r.first = 0;
      if (kReadsEdge<G> && x == n - 1) r.last = m - 1;
      return r.clipped(out);
    }
  }

  // The positions of output o's window that read element x.
  static SINTER_DEVICE Range<Integer> positions(Integer x, Integer o) {
    const Integer at = x - (o * static_cast<Integer>(step) - static_cast<Integer>(pre));
    Range<Integer> r{at, at};
    if (kReadsEdge<G> && x == 0) r.first = 0;
    if (kReadsEdge<G> && x == in - 1) r.last = static_cast<Integer>(window - 1);
    return kReadsEdge<G> ? r.clipped(window) : r;
  }

  // How much of output o is element x; the product over the axes is dY / dX.
  template <class T>
  static SINTER_DEVICE T weight(Integer x, Integer o) {
    if constexpr (G::mode == ResampleMode::nearest || G::mode == ResampleMode::maxpool) {
      return T(1);
    } else if constexpr (G::mode == ResampleMode::bilinear) {
      // From the element to the coordinate, times 2 out, where the coordinate is clamped. The
      // quotient is that of LinearSource.
      constexpr auto n = static_cast<Integer>(in), whole = static_cast<Integer>(2 * out);
      const Integer scaled = (2 * o + 1) * n - static_cast<Integer>(out);
      Integer distance = (scaled < 0 ? 0 : scaled) - x * whole;
      if (x == n - 1 && distance > 0) distance = 0;
      const T rest =
          static_cast<T>(distance < 0 ? distance + whole : distance) / static_cast<T>(whole);
      return distance < 0 ? rest : T(1) - rest;
    } else {
      return static_cast<T>(positions(x, o).count()) * share<T>(o);
    }
  }
  // Of a place in the window of an average; of outputs that do not exist, some number.
  template <class T>
  static SINTER_DEVICE T share(Integer o) {
    constexpr bool leaves = pre > 0 || (out - 1) * step - pre + window > in;
    if constexpr (G::mode != ResampleMode::avgpool_exclude_padding || !leaves) {
      return T(1) / static_cast<T>(window);
    } else {
      const Integer start = o * static_cast<Integer>(step) - static_cast<Integer>(pre);
      const auto inside =
          Range<Integer>{start, start + static_cast<Integer>(window - 1)}.clipped(in).count();
      return inverse(static_cast<T>(inside > 1 ? inside : 1));
    }
  }
};

// An output that may read an element, as far as its axes are known.
template <class Index, class T, int axes>
struct Reader {
  Index dy, index;  // offsets
  T weight;
  Range<Index> position[axes];  // of its window, that reads the element
  bool exists;
};

// The outputs that an element has at the most along the axes from d on, but for `skip`.
template <class G, int skip, int d = 0>
constexpr SINTER_DEVICE double most_readers() {
  if constexpr (d + 2 == G::Output::size)
    return 1;
  else
    return (d == skip ? 1.0 : static_cast<double>(BackwardAxis<G, d>::most)) *
           most_readers<G, skip, d + 1>();
}

// Where DY and Index, if there is one, step along dim i.
template <class G>
concept has_index = requires { typename G::Index; };
template <class G>
constexpr SINTER_DEVICE long long index_stride(int i) {
  if constexpr (has_index<G>)
    return G::Index::Stride::at(i);
  else
    return 0;
}

// Calls visit(reader) for every output that may read element c, row-major, but for axis `skip`:
// there it stands at the beginning of the line.
template <class G, int skip, int d = 0, class Coord, class Index, class T, int axes, class Visit>
SINTER_DEVICE void for_readers(const Coord& c, const Reader<Index, T, axes>& reader,
                               const Visit& visit) {
  if constexpr (d == axes) {
    visit(reader);
  } else if constexpr (d == skip) {
    for_readers<G, skip, d + 1>(c, reader, visit);
  } else {
    using Axis = BackwardAxis<G, d>;
    using Integer = typename Axis::Integer;
    const auto x = static_cast<Integer>(node_index<G>(c, 2 + d));
    const auto outputs = Axis::outputs(x);
    const auto visit_from = [&](Integer o, bool exists) {
      Reader<Index, T, axes> next = reader;
      const auto position = Axis::positions(x, o);
      next.dy += static_cast<Index>(o) * static_cast<Index>(G::DY::Stride::at(2 + d));
      next.index += static_cast<Index>(o) * static_cast<Index>(index_stride<G>(2 + d));
      next.weight *= Axis::template weight<T>(x, o);
      next.position[d] = {static_cast<Index>(position.first), static_cast<Index>(position.last)};
      next.exists &= exists;
      for_readers<G, skip, d + 1>(c, next, visit);
    };
    if constexpr (most_readers<G, skip>() <= kWrittenOut) {
#pragma unroll
      for (int j = 0; j < Axis::most; ++j)
        visit_from(outputs.first + j, outputs.first + j <= outputs.last);
    } else {
#pragma unroll 1
      for (Integer o = outputs.first; o <= outputs.last; ++o) visit_from(o, true);
    }
  }
}

template <class G, class T, class Coord>
SINTER_DEVICE auto all_readers(const Coord& c) {
  using Index = typename Coord::Index;
  Reader<Index, T, G::Output::size - 2> all{};
  all.dy = image_offset<G, typename G::DY>(c);
  if constexpr (has_index<G>) all.index = image_offset<G, typename G::Index>(c);
  all.weight = T(1);
  all.exists = true;
  return all;
}

// The outputs that read neighbours along a line: neighbour e is behind a multiple of the step, so
// that of its outputs, too, the number behind the first is known when compiling.
template <class G, int width>
struct ReaderLine {
  static constexpr int axis = kLineAxis<G, width>;
  using Axis = BackwardAxis<G, axis>;
  static constexpr int window = static_cast<int>(Axis::window), step = static_cast<int>(Axis::step);
  static constexpr int lead =
      static_cast<int>(floor_divide(Axis::pre - Axis::window, Axis::step) + 1);
  static constexpr int count = static_cast<int>((width - 1 + Axis::pre) / Axis::step) + 1 - lead;
  static constexpr long long last = (Axis::in - width) / Axis::step;  // base
  // The position at which the output `o` behind the first reads neighbour e, if it is in the
  // window.
  static constexpr SINTER_DEVICE int position(int e, int o) {
    return e + static_cast<int>(Axis::pre) - (lead + o) * step;
  }
};

// The same for scaling by a ratio: neighbours belong to `span` outputs, a whole number.
template <class G, int width>
struct ScaledLine {
  using Axis = BackwardAxis<G, kLineAxis<G, width>>;
  static constexpr long long in = Axis::in, out = Axis::out, span = width * out / in;
  static constexpr bool linear = G::mode == ResampleMode::bilinear;
  // Those whose coordinate lies above element -1 and below element `width`.
  static constexpr long long lead = linear ? floor_divide(in - out, 2 * in) : 0;
  static constexpr long long end =
      linear ? floor_divide((2 * width + 1) * out - in - 1, 2 * in) + 1 : span;
  static constexpr int count = static_cast<int>(end - lead);
  static constexpr long long last = (in - width) * out / in;  // base
};

template <class G, class T, int width, class Element, class Coord>
SINTER_DEVICE void resample_backward(const Element* dy, const Coord& c,
                                     Resampled<G, T, width>& sum) {
  using DY = typename G::DY;
  using Index = typename Coord::Index;
  constexpr int axis = kLineAxis<G, width>;
#pragma unroll
  for (int e = 0; e < width; ++e) sum.value[e] = T(0);
  for_readers<G, axis>(c, all_readers<G, T>(c), [&](const auto& reader) {
    if constexpr (axis < 0) {
      T value[width];
      read_neighbours<DY, G::along>(dy + reader.dy, reader.exists, T(0), value);
#pragma unroll
      for (int e = 0; e < width; ++e)
        sum.value[e] = math::fma(reader.weight, value[e], sum.value[e]);
    } else if constexpr (BackwardAxis<G, axis>::scales) {
      using Line = ScaledLine<G, width>;
      const Index x = node_index<G>(c, G::along);
      T value[Line::count];
      read_line<DY, G::along, Line::lead, Line::last, false>(
          dy + reader.dy, x / width * static_cast<Index>(Line::span), reader.exists, T(0), value);
#pragma unroll
      for (int i = 0; i < Line::count; ++i) {
        const T share = reader.weight * value[i];
        constexpr bool linear = G::mode == ResampleMode::bilinear;
        const LineSource<T, Line::in, Line::out> s(Line::lead + i, x, Line::in - width);
        const int low = linear ? s.low(Line::lead + i) : i * Line::in / Line::out;
        if (low >= 0 && (!linear || s.weight_low != T(0)))
          sum.value[low] = math::fma(linear ? s.weight_low : T(1), share, sum.value[low]);
        if (linear && low + 1 < width && s.weight_high != T(0))
          sum.value[low + 1] = math::fma(s.weight_high, share, sum.value[low + 1]);
      }
    } else {
      using Line = ReaderLine<G, width>;
      const Index base = node_index<G>(c, G::along) / static_cast<Index>(Line::step);
      T value[Line::count];
      read_line<DY, G::along, Line::lead, Line::last, false>(dy + reader.dy, base, reader.exists,
                                                             T(0), value);
#pragma unroll
      for (int i = 0; i < Line::count; ++i) {
        const T weight = reader.weight * Line::Axis::template share<T>(base + (Line::lead + i));
#pragma unroll
        for (int e = 0; e < width; ++e)
          if (Line::position(e, i) >= 0 && Line::position(e, i) < Line::window)
            sum.value[e] = math::fma(weight, value[i], sum.value[e]);
      }
    }
  });
}

// Whether element e of the pack is the number, between 0 and 127.
template <class Element, int width, int aligned>
SINTER_DEVICE bool holds_number(const Pack<Element, width, aligned>& pack, int e, int number) {
  return pack.at[e] == number;
}
// All bytes of a word are compared at once; what remains is to ask whether one of them is zero.
template <int width, int aligned>
  requires(width % 4 == 0)
SINTER_DEVICE bool holds_number(const Pack<i8, width, aligned>& pack, int e, int number) {
  const unsigned differences = pack.word(e / 4) ^ static_cast<unsigned>(number) * 0x01010101u;
  return (differences & 0xffu << 8 * (e % 4)) == 0;
}

// Whether an output whose maximum is where element e of the pack says read the element.
template <class G, class Index, class T, int axes, class Element, int width, int aligned>
SINTER_DEVICE bool reads(const Reader<Index, T, axes>& reader,
                         const Pack<Element, width, aligned>& winner, int e) {
  using Window = typename G::Window;
  if constexpr (kReadsEdge<G>) {
    const auto position = static_cast<Index>(winner.at[e]);
    Index at[axes];
    unravel<Window, 0, axes>(position, at);
    bool all = position >= 0;
#pragma unroll
    for (int d = 0; d < axes; ++d) all &= reader.position[d].holds(at[d]);
    return all;
  } else {
    Index position = 0;
#pragma unroll
    for (int d = 0; d < axes; ++d)
      position = position * static_cast<Index>(Window::at(d)) + reader.position[d].first;
    return (Window::product <= 128 || position < 128 || sizeof(Element) > 1) &&
           holds_number(winner, e, static_cast<int>(position));
  }
}

// maxpool: an output's gradient goes to the element at its Index.
template <class G, class T, int width, class Element, class IndexElement, class Coord>
SINTER_DEVICE void resample_backward(const Element* dy, const IndexElement* index, const Coord& c,
                                     Resampled<G, T, width>& sum) {
  using DY = typename G::DY;
  using Index = typename Coord::Index;
  constexpr int axis = kLineAxis<G, width>, axes = G::Window::size;
#pragma unroll
  for (int e = 0; e < width; ++e) sum.value[e] = T(0);
  for_readers<G, axis>(c, all_readers<G, T>(c), [&](const auto& reader) {
    if constexpr (axis < 0) {
      Pack<Element, width, DY::aligned> value;
      Pack<IndexElement, width, G::Index::aligned> winner;
      fetch_neighbours<DY, G::along>(dy + reader.dy, reader.exists, value);
      fetch_neighbours<typename G::Index, G::along>(index + reader.index, reader.exists, winner);
      if (!reader.exists) return;
#pragma unroll
      for (int e = 0; e < width; ++e)
        if (reads<G>(reader, winner, e)) sum.value[e] += get<T>(value, e);
    } else {
      using Line = ReaderLine<G, width>;
      const Index base = node_index<G>(c, G::along) / static_cast<Index>(Line::step);
      T value[Line::count];
      int winner[Line::count];
      read_line<DY, G::along, Line::lead, Line::last, false>(dy + reader.dy, base, reader.exists,
                                                             T(0), value);
      read_line<typename G::Index, G::along, Line::lead, Line::last, false>(
          index + reader.index, base, reader.exists, -1, winner);
      Index row = 0;
#pragma unroll
      for (int d = 0; d < axes; ++d)
        row =
            row * static_cast<Index>(G::Window::at(d)) + (d == axis ? 0 : reader.position[d].first);
#pragma unroll
      for (int o = 0; o < Line::count; ++o) {
        const auto in_row = static_cast<int>(winner[o] - row);
#pragma unroll
        for (int e = 0; e < width; ++e)
          if (const int p = Line::position(e, o); p >= 0 && p < Line::window && in_row == p)
            sum.value[e] += value[o];
      }
    }
  });
}

// The same of one element.
template <class G, class T, class Element, class Coord>
SINTER_DEVICE Resampled<G, T, 1> resample_backward(const Element* dy, const Coord& c) {
  Resampled<G, T, 1> result;
  resample_backward(dy, c, result);
  return result;
}
template <class G, class T, class Element, class IndexElement, class Coord>
SINTER_DEVICE Resampled<G, T, 1> resample_backward(const Element* dy, const IndexElement* index,
                                                   const Coord& c) {
  Resampled<G, T, 1> result;
  resample_backward(dy, index, c, result);
  return result;
}

}  // namespace sinter
