#include "planner/rearrange/unbounded_windows.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

// The tap is one index with `channels`, which become one behind it.
void part_from_channels(KernelSpec& spec, int tap, std::int64_t channels) {
  ContractionSpec& c = spec.contraction();
  const int of_k = tap - c.first_k();
  split_index(spec, tap, channels);
  if (of_k < 0) return;
  --c.n;  // which counts indices behind those of m
  c.k_indices.insert(c.k_indices.begin() + of_k + 1, KIndex::channels);
}

}  // namespace

KernelSpec with_windows(const KernelSpec& given) {
  if (!given.as_contraction() || !is_plain_product(given.contraction())) return given;
  KernelSpec spec = given;
  ContractionSpec& c = spec.contraction();
  const bool gradient =
      std::find(c.k_indices.begin(), c.k_indices.end(), KIndex::pixels) != c.k_indices.end();
  // A line's windows are rows of a matrix, which is written to memory as it is
  // (materialised_operands.cpp).
  if (!gradient && c.k() == 1) return given;
  const Body& body = (gradient ? c.b() : c.a()).body;
  const KernelPort* const image = loaded_as_it_is(spec, body);
  if (!image || !image->access.windows.empty() || !image->access.via.empty()) return given;
  const auto port = static_cast<std::size_t>(body.statements.front().port);
  const Dims stride = image->access.stride;
  std::vector<int> pixels, taps;
  for (int i = gradient ? c.first_k() : c.first_m(), end = gradient ? stride.size() : c.first_n();
       i < end; ++i)
    pixels.push_back(i);
  for (int i = gradient ? c.first_n() : c.first_k(), end = gradient ? c.first_k() : stride.size();
       i < end; ++i)
    if (stride[i] > 0) taps.push_back(i);
  if (pixels.size() < 2) return given;
  pixels.erase(pixels.begin());
  std::sort(taps.begin(), taps.end(), [&](int x, int y) { return stride[x] > stride[y]; });
  struct Dim {
    int pixel, tap;
    std::int64_t channels;  // that are one index with the tap
  };
  std::vector<Dim> dims;
  std::int64_t step = 0;  // of all dims
  for (const int t : taps) {
    Dim d{-1, t, 1};
    for (const int p : pixels)
      if (stride[p] % stride[t] == 0 && (d.pixel < 0 || stride[p] < stride[d.pixel])) d.pixel = p;
    if (d.pixel < 0) continue;
    const std::int64_t ratio = stride[d.pixel] / stride[t];
    if (step == 0) step = ratio;
    if (ratio % step != 0) continue;
    d.channels = ratio / step;
    if (step > tma::kMostPixelStep || spec.extent[t] % d.channels != 0) return given;
    std::erase(pixels, d.pixel);
    dims.push_back(d);
  }
  if (dims.empty()) return given;
  std::sort(dims.begin(), dims.end(), [](const Dim& x, const Dim& y) { return x.tap < y.tap; });
  int added = 0;
  for (Dim& d : dims) {
    const auto moved = [&](int i) { return i + (i > d.tap ? 1 : 0); };
    d.tap += added;
    if (d.channels > 1) {
      part_from_channels(spec, d.tap, d.channels);
      ++added;
      for (Dim& other : dims) other.pixel = moved(other.pixel);
    }
    if (d.tap >= c.first_k())
      c.k_indices[static_cast<std::size_t>(d.tap - c.first_k())] = KIndex::filter_tap;
  }
  Access& a = spec.ports[port].access;
  for (const Dim& d : dims) {
    Window w{.coefficient = Dims::filled(spec.extent.size(), 0),
             .base = 0,
             .divisor = 1,
             .extent = step * (spec.extent[d.pixel] - 1) + spec.extent[d.tap],
             .stride = a.stride[d.tap]};
    w.coefficient[d.pixel] = step;
    w.coefficient[d.tap] = 1;
    a.stride[d.pixel] = a.stride[d.tap] = 0;
    a.windows.push_back(std::move(w));
  }
  return spec;
}

}  // namespace sinter
