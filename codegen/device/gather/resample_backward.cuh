// One element of the gradient of resampling, gathered from all outputs that read it, in row-major
// order: deterministic and without atomics. G is as in resample.cuh, with the operands DY and, for
// maxpool, Index; Output is the dims of DX, and DY's dims are those of the forward's result.
#pragma once
#include "sinter/device/gather/resample.cuh"

namespace sinter {

struct Range {
  long long first, last;
  SINTER_DEVICE long long count() const { return last < first ? 0 : last - first + 1; }
  SINTER_DEVICE bool holds(long long i) const { return i >= first && i <= last; }
  SINTER_DEVICE Range clipped(long long extent) const {
    return {first < 0 ? 0 : first, last >= extent ? extent - 1 : last};
  }
};

// Padding with edge values makes the outermost elements stand for the padding beside them. The
// average that excludes the padding never reads it.
template <class G>
inline constexpr bool kReadsEdge =
    G::padding == PaddingMode::edge_val_pad&& G::mode != ResampleMode::avgpool_exclude_padding;

// The outputs along spatial axis d that may read element x.
template <class G>
SINTER_DEVICE Range outputs_reading(int d, long long x) {
  const long long in = G::Output::at(2 + d), out = G::DY::Dim::at(2 + d);
  if constexpr (G::mode == ResampleMode::nearest) {
    return Range{ceil_divide(x * out, in), ceil_divide((x + 1) * out, in) - 1}.clipped(out);
  } else if constexpr (G::mode == ResampleMode::bilinear) {
    const Range around{x == 0 ? 0 : out * (2 * x - 1) / (2 * in) - 1,
                       x == in - 1 ? out - 1 : out * (2 * x + 3) / (2 * in) + 1};
    return around.clipped(out);
  } else {
    const long long window = G::Window::at(d), step = G::Step::at(d), pre = G::Pre::at(d);
    const long long reach = x + pre - window + 1;
    Range r{reach <= 0 ? 0 : ceil_divide(reach, step), (x + pre) / step};
    if (kReadsEdge<G> && x == 0) r.first = 0;
    if (kReadsEdge<G> && x == in - 1) r.last = out - 1;
    return r.clipped(out);
  }
}

// The positions along axis d of output o's window that read element x.
template <class G>
SINTER_DEVICE Range window_positions(int d, long long x, long long o) {
  const long long at = x - (o * G::Step::at(d) - G::Pre::at(d));
  Range r{at, at};
  if (kReadsEdge<G> && x == 0) r.first = 0;
  if (kReadsEdge<G> && x == G::Output::at(2 + d) - 1) r.last = G::Window::at(d) - 1;
  return r.clipped(G::Window::at(d));
}

// How much of output o along axis d is element x; the product over the axes is dY / dX.
template <class G, class T>
SINTER_DEVICE T axis_weight(int d, long long x, long long o) {
  const long long in = G::Output::at(2 + d);
  if constexpr (G::mode == ResampleMode::nearest) {
    return T(1);
  } else if constexpr (G::mode == ResampleMode::bilinear) {
    const LinearSource<T> s(o, in, G::DY::Dim::at(2 + d));
    const T low = s.low == x ? T(1) - s.weight_high : T(0);
    return low + (s.high == x ? s.weight_high : T(0));
  } else {
    const long long start = o * G::Step::at(d) - G::Pre::at(d), window = G::Window::at(d);
    const long long divisor = G::mode == ResampleMode::avgpool_exclude_padding
                                  ? Range{start, start + window - 1}.clipped(in).count()
                                  : window;
    return static_cast<T>(window_positions<G>(d, x, o).count()) / static_cast<T>(divisor);
  }
}

// Calls visit(o) with the spatial indices of every output that may read element c.
template <class G, class Coord, class Visit>
SINTER_DEVICE void for_each_output(const Coord& c, const Visit& visit) {
  constexpr int axes = G::Output::size - 2;
  Range range[axes];
  long long total = 1;
#pragma unroll
  for (int d = 0; d < axes; ++d) {
    range[d] = outputs_reading<G>(d, c.at[2 + d]);
    total *= range[d].count();
  }
#pragma unroll 1
  for (long long i = 0; i < total; ++i) {
    long long o[axes], rest = i;
#pragma unroll
    for (int d = axes - 1; d >= 0; --d) {
      o[d] = range[d].first + rest % range[d].count();
      rest /= range[d].count();
    }
    visit(o);
  }
}

template <class Operand, class Coord>
SINTER_DEVICE typename Coord::Index output_offset(const Coord& c, const long long* o) {
  using Index = typename Coord::Index;
  Index offset = image_offset<Operand>(c);
#pragma unroll
  for (int d = 2; d < Operand::Dim::size; ++d)
    offset += static_cast<Index>(o[d - 2]) * static_cast<Index>(Operand::Stride::at(d));
  return offset;
}

template <class G, class T, class Element, class Coord>
SINTER_DEVICE T resample_backward(const Element* dy, const Coord& c) {
  T sum = T(0);
  for_each_output<G>(c, [&](const long long* o) {
    T weight = T(1);
#pragma unroll
    for (int d = 0; d < G::Output::size - 2; ++d) weight *= axis_weight<G, T>(d, c.at[2 + d], o[d]);
    if (weight != T(0)) sum += weight * read<T>(dy + output_offset<typename G::DY>(c, o));
  });
  return sum;
}

// maxpool: an output's gradient goes to the element at its Index.
template <class G, class T, class Element, class IndexElement, class Coord>
SINTER_DEVICE T resample_backward(const Element* dy, const IndexElement* index, const Coord& c) {
  T sum = T(0);
  for_each_output<G>(c, [&](const long long* o) {
    constexpr int axes = G::Window::size;
    long long winner[axes];
    unravel<typename G::Window, 0, axes>(static_cast<long long>(Format<IndexElement>::fetch(
                                             index + output_offset<typename G::Index>(c, o))),
                                         winner);
    bool mine = true;
#pragma unroll
    for (int d = 0; d < axes; ++d)
      mine &= window_positions<G>(d, c.at[2 + d], o[d]).holds(winner[d]);
    if (mine) sum += read<T>(dy + output_offset<typename G::DY>(c, o));
  });
  return sum;
}

}  // namespace sinter
