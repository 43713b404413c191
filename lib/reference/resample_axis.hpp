// One spatial axis of a resampling: how positions of the large side (x) and of the small side (y)
// depend on each other. Forward and backward share it, so that one is the transpose of the other.
#pragma once
#include <algorithm>
#include <utility>

#include "sinter/ops/shapes_layout.hpp"

namespace sinter::reference {

struct ResampleAxis {
  ResampleMode mode;
  std::int64_t x, y;  // extents
  std::int64_t window = 1, stride = 1, pre = 0;
  PaddingMode padding;

  ResampleAxis(const ResampleAttributes& a, int rank, int axis, std::int64_t x_extent,
               std::int64_t y_extent)
      : mode(*a.mode), x(x_extent), y(y_extent) {
    const auto g = shapes::resample_geometry(a, rank);
    window = g.window[axis - 2];
    stride = g.stride[axis - 2];
    pre = g.pre[axis - 2];
    padding = g.padding;
  }

  bool pooling() const { return shapes::is_pooling(mode); }

  // Pooling: where tap t of window o lies in x; outside [0, x) it is padding.
  std::int64_t tap(std::int64_t o, std::int64_t t) const { return o * stride - pre + t; }
  bool inside(std::int64_t position) const { return position >= 0 && position < x; }
  std::int64_t clamp(std::int64_t position) const {
    return std::clamp<std::int64_t>(position, 0, x - 1);
  }

  std::int64_t nearest(std::int64_t o) const { return o * x / y; }

  // bilinear: the source coordinate is (o + 1/2) x / y - 1/2, clamped to [0, x - 1]; its whole part
  // and its fraction, from integers so that neither is rounded.
  struct Linear {
    std::int64_t low;
    double fraction;
  };
  Linear linear(std::int64_t o) const {
    const std::int64_t numerator = std::max<std::int64_t>((2 * o + 1) * x - y, 0);
    const std::int64_t low = numerator / (2 * y);
    if (low >= x - 1) return {x - 1, 0};
    return {low, static_cast<double>(numerator % (2 * y)) / static_cast<double>(2 * y)};
  }

  // The range of x that outputs [begin, end) read.
  std::pair<std::int64_t, std::int64_t> sources(std::int64_t begin, std::int64_t end) const {
    if (mode == ResampleMode::nearest) return {nearest(begin), nearest(end - 1) + 1};
    if (mode == ResampleMode::bilinear) return {linear(begin).low, linear(end - 1).low + 2};
    const std::int64_t low = tap(begin, 0), high = tap(end - 1, window - 1);
    if (padding == PaddingMode::edge_val_pad) return {clamp(low), clamp(high) + 1};
    return {low, high + 1};
  }

  // The range of y that reads any of positions [begin, end).
  std::pair<std::int64_t, std::int64_t> windows(std::int64_t begin, std::int64_t end) const {
    if (!pooling()) {  // where the source coordinate passes the neighbours; one more on each side
      const double scale = static_cast<double>(y) / static_cast<double>(x);
      const auto low = static_cast<std::int64_t>((static_cast<double>(begin) - 1.0) * scale) - 2,
                 high = static_cast<std::int64_t>((static_cast<double>(end) + 1.0) * scale) + 2;
      return {begin == 0 ? 0 : std::max<std::int64_t>(low, 0), end == x ? y : std::min(high, y)};
    }
    if (padding == PaddingMode::edge_val_pad && (begin == 0 || end == x)) return {0, y};
    const std::int64_t low = begin + pre - (window - 1);
    return {low <= 0 ? 0 : (low + stride - 1) / stride, std::min(y, (end - 1 + pre) / stride + 1)};
  }
};

}  // namespace sinter::reference
