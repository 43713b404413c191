// What resampling and its gradient share. A generated struct G describes the node: `mode`,
// `padding`, the dims Window, Step and Pre of the spatial axes, its operands and the dims Output.
// An operand names its Dim, Stride, offset and `aligned`: so many elements lie at multiples of
// their joint size wherever a pack starts. `Indices` says which index of the domain each dim of the
// node is. A thread computes neighbours along dim `along`. Along batch or channel these share
// everything but where they lie. Along the last spatial axis, each reads its own part of a line of
// memory, which is fetched once: there, the number of an element behind the first is known when
// compiling.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"

namespace sinter {

enum class ResampleMode {
  maxpool,
  avgpool_include_padding,
  avgpool_exclude_padding,
  bilinear,
  nearest,
};
enum class PaddingMode { neg_inf_pad, zero_pad, edge_val_pad };

// The results of neighbours; `position`, of maxpool's largest elements within their windows, where
// G::positions asks for it.
template <class G, class T, int width>
struct Resampled {
  T value[width], position[width];
};

// The spatial axis along which neighbours are, or -1.
template <class G, int width>
inline constexpr int kLineAxis = width > 1 && G::along >= 2 ? G::along - 2 : -1;

// Loops of at most so many turns in all are written out.
inline constexpr long long kWrittenOut = 16;

// Padding with edge values makes the outermost elements stand for the padding next to them. The
// average that excludes the padding never reads it.
template <class G>
inline constexpr bool kReadsEdge =
    G::padding == PaddingMode::edge_val_pad&& G::mode != ResampleMode::avgpool_exclude_padding;

// An integer that holds numbers up to `most`.
template <bool narrow>
struct IntegerOf {
  using Type = int;
};
template <>
struct IntegerOf<false> {
  using Type = long long;
};
template <long long most>
using IntegerUpTo = typename IntegerOf<(most < 1LL << 31)>::Type;

constexpr SINTER_DEVICE long long floor_divide(long long a, long long b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

template <class G, class Coord>
SINTER_DEVICE typename Coord::Index node_index(const Coord& c, int dim) {
  return c.at[G::Indices::at(dim)];
}

// The offset of batch and channel, which resampling keeps.
template <class G, class Operand, class Coord>
SINTER_DEVICE typename Coord::Index image_offset(const Coord& c) {
  using Index = typename Coord::Index;
  return static_cast<Index>(Operand::offset) +
         node_index<G>(c, 0) * static_cast<Index>(Operand::Stride::at(0)) +
         node_index<G>(c, 1) * static_cast<Index>(Operand::Stride::at(1));
}

// Whether the type holds infinities and zeros, so that a pack can be filled with them before it is
// read: that takes less than to choose between values.
template <class Element>
inline constexpr bool kHoldsPadding = is_same<Element, f64> || is_same<Element, f32> ||
                                      is_same<Element, f16> || is_same<Element, bf16>;

// What a pack holds, or `otherwise`, an infinity or zero, where it does not exist.
template <class Element, int width, int aligned, class T>
struct PaddedPack {
  Pack<Element, width, aligned> pack;
  T otherwise;
  bool exists;
  SINTER_DEVICE PaddedPack(T otherwise, bool exists) : otherwise(otherwise), exists(exists) {
    if constexpr (kHoldsPadding<Element>) {
#pragma unroll
      for (int e = 0; e < width; ++e) pack.at[e] = Format<Element>::encode(otherwise);
    }
  }
  SINTER_DEVICE T value(int e) const {
    return kHoldsPadding<Element> || exists ? get<T>(pack, e) : otherwise;
  }
};

// Neighbours along `dim` from `from` on, if they exist.
template <class Operand, int dim, int width, class Element>
SINTER_DEVICE void fetch_neighbours(const Element* from, bool exist,
                                    Pack<Element, width, Operand::aligned>& pack) {
  if constexpr (Operand::Stride::at(dim) == 1) {
    if (exist) read_pack(from, pack);
  } else {
#pragma unroll
    for (int e = 0; e < width; ++e)
      if (exist) pack.at[e] = Format<Element>::fetch(from + e * Operand::Stride::at(dim));
  }
}
// As values; `otherwise` if they do not exist.
template <class Operand, int dim, class T, int width, class Element>
SINTER_DEVICE void read_neighbours(const Element* from, bool exist, T otherwise,
                                   T (&value)[width]) {
  PaddedPack<Element, width, Operand::aligned, T> padded(otherwise, exist);
  fetch_neighbours<Operand, dim>(from, exist, padded.pack);
#pragma unroll
  for (int e = 0; e < width; ++e) value[e] = padded.value(e);
}

// Elements [lead, lead + count) behind element `base` of a line along `dim` that starts at `line`;
// `otherwise` where there are none. `base` is a multiple of Operand::aligned and no more than
// `most`, so that whole packs exist or do not, and some surely do. `edge`: the outermost element
// stands for what lies behind it.
template <class Operand, int dim, long long lead, long long most, bool edge, class T, int count,
          class Element, class Index>
SINTER_DEVICE void read_line(const Element* line, Index base, bool exists, T otherwise,
                             T (&value)[count]) {
  constexpr int aligned = Operand::aligned;
  constexpr long long extent = Operand::Dim::at(dim), stride = Operand::Stride::at(dim);
  constexpr int first = static_cast<int>(floor_divide(lead, aligned)) * aligned;
  constexpr int end = static_cast<int>(lead) + count;
  const auto lies_inside = [&](int i, int size) {
    return (i >= 0 || base + i >= 0) && (most + i + size <= extent || base + i < extent);
  };
#pragma unroll
  for (int p = first; p < end; p += aligned) {
    const int from = p > lead ? p : static_cast<int>(lead),
              to = p + aligned < end ? p + aligned : end;
    if (!edge && to - from > 1) {
      PaddedPack<Element, aligned, aligned, T> padded(otherwise, exists && lies_inside(p, aligned));
      if (padded.exists) read_pack(line + (base + p), padded.pack);
#pragma unroll
      for (int k = 0; k < aligned; ++k)
        if (p + k >= from && p + k < to) value[p + k - lead] = padded.value(k);
      continue;
    }
#pragma unroll
    for (int k = 0; k < aligned; ++k) {
      if (p + k < from || p + k >= to) continue;
      Index at = base + (p + k);
      const bool inside = exists && (edge || lies_inside(p + k, 1));
      if constexpr (edge) at = at < 0 ? 0 : at >= extent ? static_cast<Index>(extent - 1) : at;
      value[p + k - lead] = inside ? read<T>(line + at * static_cast<Index>(stride)) : otherwise;
    }
  }
}

// The two neighbours of output o along one axis, centres at half, clamped. The weight is a quotient
// of integers, so that it is exact to one rounding for every extent.
template <class T, long long in, long long out>
struct LinearSource {
  using Integer = IntegerUpTo<(2 * out + 1) * in>;
  Integer low, high;
  T weight_high;
  explicit SINTER_DEVICE LinearSource(Integer o) {
    constexpr auto n = static_cast<Integer>(in), whole = static_cast<Integer>(2 * out);
    const Integer scaled =
        (2 * o + 1) * n - static_cast<Integer>(out);  // the coordinate times `whole`
    const Integer clamped = scaled < 0 ? 0 : scaled;
    low = clamped / whole;
    weight_high = static_cast<T>(clamped - low * whole) / static_cast<T>(whole);
    if (low >= n - 1) {
      low = n - 1;
      weight_high = T(0);
    }
    high = low < n - 1 ? low + 1 : low;
  }
};

// The same for outputs whose place behind a line's base is known when compiling: output `base` is a
// multiple of so many outputs that they span a whole number of elements, and element `first` is
// where they begin.
template <class T, long long in, long long out>
struct LineSource {
  // Behind the first, the element below the coordinate; its distance is `rest` / (2 out).
  static constexpr SINTER_DEVICE int low(long long o) {
    return static_cast<int>(floor_divide((2 * o + 1) * in - out, 2 * out));
  }
  T weight_low, weight_high;
  // `last`: the largest that `first` may be.
  template <class Index>
  SINTER_DEVICE LineSource(long long o, Index first, long long last) {
    const auto rest = (2 * o + 1) * in - out - low(o) * 2 * out;
    weight_high = static_cast<T>(rest) / static_cast<T>(2 * out);
    weight_low = T(1) - weight_high;
    // Clamped; constants decide where no line reaches an edge.
    const Index at = first + static_cast<Index>(low(o));
    if (low(o) < 0 && at < 0) weight_low = T(0), weight_high = T(1);
    if (last + low(o) >= in - 1 && at >= in - 1) weight_low = T(1), weight_high = T(0);
  }
};

// 1 / n of a small whole number, where no constant says it.
SINTER_DEVICE float inverse(float n) {
  const float r = math::fast_reciprocal(n);
  return math::fma(math::fma(-n, r, 1.0f), r, r);
}
SINTER_DEVICE double inverse(double n) { return 1.0 / n; }

}  // namespace sinter
