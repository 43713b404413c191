#include "planner/split/joined_pixels.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/few_channels.hpp"
#include "planner/split/index_map.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/wgmma_tiles.hpp"

namespace sinter {
namespace {

// The dim whose pixels are joined.
struct Joined {
  std::size_t window = 0;
  int tap = -1, channel = -1;
  std::int64_t stride = 1, shift = 0, first = 0, taps = 1;  // of joined pixels
};

std::optional<Joined> joined_dim(const KernelSpec& spec, const KernelPort& image) {
  const ContractionSpec& c = spec.contraction();
  Joined d;
  std::vector<int> taps;
  for (int i = 0; i < c.k(); ++i) {
    const int index = c.first_k() + i;
    switch (c.k_indices[static_cast<std::size_t>(i)]) {
      case KIndex::filter_tap:
        taps.push_back(index);
        break;
      case KIndex::channels:
        if (d.channel >= 0) return {};
        d.channel = index;
        break;
      default:
        return {};
    }
  }
  if (d.channel < 0 || image.access.stride[d.channel] != 1) return {};
  const std::int64_t channels = spec.extent[d.channel], bytes = info(image.type).bytes;
  if (channels <= kMostSpaceToDepthChannels) return {};  // are joined along all dims
  const auto innermost = [&](const Window& w) { return w.stride == channels && w.divisor == 1; };
  const auto& windows = image.access.windows;
  const auto w = std::find_if(windows.begin(), windows.end(), innermost);
  if (w == windows.end()) return {};
  d.window = static_cast<std::size_t>(w - windows.begin());
  int pixel = -1;
  for (int i = 0; i < w->coefficient.size(); ++i) {
    if (w->coefficient[i] == 0) continue;
    const bool tap = std::find(taps.begin(), taps.end(), i) != taps.end();
    int& of = tap ? d.tap : pixel;
    if (of >= 0 || image.access.stride[i] != 0 || (tap && w->coefficient[i] != 1)) return {};
    of = i;
    if (!tap) d.stride = w->coefficient[i];
  }
  if (pixel < c.first_m() || pixel >= c.first_n() || d.tap < 0 || d.stride < 2) return {};
  const std::int64_t u = d.stride, joined = u * channels * bytes, pre = -w->base;
  if (w->extent % u != 0 || joined > kStageLine || joined % tma::kUnit != 0) return {};
  d.shift = ((-pre) % u + u) % u;
  d.first = (pre + d.shift) / u;
  d.taps = (spec.extent[d.tap] + d.shift + u - 1) / u;
  if (d.taps >= spec.extent[d.tap]) return {};
  return d;
}

}  // namespace

std::vector<KernelSpec> joined_pixels(const KernelSpec& given, Temporaries& temporaries) {
  const ContractionSpec* const old = given.as_contraction();
  if (!old || !is_plain_product(*old) || old->batch != 0 || reads_joined_indices(given)) return {};
  const KernelPort *x = loaded_alone(given, old->a()), *w = loaded_alone(given, old->b());
  if (!x || !w || x->type != w->type || !w->access.windows.empty()) return {};
  const auto d = joined_dim(given, *x);
  if (!d) return {};
  const std::int64_t u = d->stride, channels = given.extent[d->channel];
  const int rank = given.extent.size();

  // W': its columns, taps, the pixels that are joined and their channels.
  std::vector<int> order;  // of the product's indices
  Dims extent;
  std::vector<Affine> of(static_cast<std::size_t>(rank), affine({}));
  const auto add = [&](std::int64_t n) {
    extent.push_back(n);
    return extent.size() - 1;
  };
  int j = -1;
  for (int i = old->first_n(); i < rank; ++i) {
    if (i == d->channel) continue;
    order.push_back(i);
    const int at = add(i == d->tap ? d->taps : given.extent[i]);
    of[static_cast<std::size_t>(i)] = affine({{at, 1}});
    if (i == d->tap) j = at;
  }
  const int a = add(u), c = add(channels);
  of[static_cast<std::size_t>(d->tap)] = affine({{j, u}, {a, 1}}, -d->shift, true);
  of[static_cast<std::size_t>(d->channel)] = affine({{c, 1}});
  KernelPort load = *w, written;
  load.access = mapped(load.access, given.extent, of, extent.size());
  std::vector<KernelSpec> kernels{
      copy_kernel(given, load, extent, load.name + "_joined", temporaries, written)};

  KernelSpec spec = given;
  spec.extent[d->tap] = d->taps;
  spec.extent[d->channel] = u * channels;
  KernelPort& image =
      spec.ports[static_cast<std::size_t>(spec.contraction().a().body.statements.front().port)];
  Window& window = image.access.windows[d->window];
  for (int i = 0; i < window.coefficient.size(); ++i)
    if (window.coefficient[i] != 0) window.coefficient[i] = 1;
  window.base = -d->first;
  window.extent /= u;
  window.stride *= u;
  order.push_back(d->channel);
  Dims size;
  for (int i : order) size.push_back(spec.extent[i]);
  read_instead(spec, spec.contraction().b(), written, packed_in_order(rank, order, size));
  mark_zeros(kernels.back(), spec);
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace sinter
