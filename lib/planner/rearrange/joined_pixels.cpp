#include "planner/rearrange/joined_pixels.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "planner/rearrange/few_channels.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/spec/domain.hpp"
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

// What indices of the product are: `pixels` from the first up to the second.
struct Roles {
  std::vector<int> taps;
  int channel = -1;
  std::pair<int, int> pixels;
};

std::optional<Roles> forward_roles(const ContractionSpec& c) {
  Roles r;
  r.pixels = {c.first_m(), c.first_n()};
  for (int i = 0; i < c.k(); ++i) {
    const int index = c.first_k() + i;
    switch (c.k_indices[static_cast<std::size_t>(i)]) {
      case KIndex::filter_tap:
        r.taps.push_back(index);
        break;
      case KIndex::channels:
        if (r.channel >= 0) return {};
        r.channel = index;
        break;
      default:
        return {};
    }
  }
  return r;
}

// Its columns are taps, by which windows of the image move, and channels.
std::optional<Roles> gradient_roles(const ContractionSpec& c, const KernelPort& image, int rank) {
  Roles r;
  r.pixels = {c.first_k(), rank};
  for (int i = c.first_n(); i < c.first_k(); ++i) {
    const bool tap = std::any_of(image.access.windows.begin(), image.access.windows.end(),
                                 [&](const Window& w) { return w.coefficient[i] != 0; });
    if (tap)
      r.taps.push_back(i);
    else if (r.channel >= 0)
      return {};
    else
      r.channel = i;
  }
  return r;
}

std::optional<Joined> joined_dim(const KernelSpec& spec, const KernelPort& image,
                                 const Roles& roles) {
  Joined d;
  d.channel = roles.channel;
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
    const bool tap = std::find(roles.taps.begin(), roles.taps.end(), i) != roles.taps.end();
    int& of = tap ? d.tap : pixel;
    if (of >= 0 || image.access.stride[i] != 0 || (tap && w->coefficient[i] != 1)) return {};
    of = i;
    if (!tap) d.stride = w->coefficient[i];
  }
  if (pixel < roles.pixels.first || pixel >= roles.pixels.second || d.tap < 0 || d.stride < 2)
    return {};
  const std::int64_t u = d.stride, joined = u * channels * bytes, pre = -w->base;
  if (w->extent % u != 0 || joined > kStageLine || joined % tma::kUnit != 0) return {};
  d.shift = ((-pre) % u + u) % u;
  d.first = (pre + d.shift) / u;
  d.taps = (spec.extent[d.tap] + d.shift + u - 1) / u;
  if (d.taps >= spec.extent[d.tap]) return {};
  return d;
}

// The window of the image over joined pixels.
void join(Window& window, const Joined& d) {
  for (int i = 0; i < window.coefficient.size(); ++i)
    if (window.coefficient[i] != 0) window.coefficient[i] = 1;
  window.base = -d.first;
  window.extent /= d.stride;
  window.stride *= d.stride;
}

// The gradient of the filter: results at taps that it does not have are not stored.
std::vector<KernelSpec> joined_gradient(const KernelSpec& given, const KernelPort& image) {
  const ContractionSpec& old = given.contraction();
  const int rank = given.extent.size();
  const auto roles = gradient_roles(old, image, rank);
  const auto d = roles ? joined_dim(given, image, *roles) : std::nullopt;
  if (!d) return {};
  KernelSpec spec = given;
  spec.extent = {};
  std::vector<Affine> of(static_cast<std::size_t>(rank));
  const auto add = [&](std::int64_t n) {
    spec.extent.push_back(n);
    return spec.extent.size() - 1;
  };
  int a = -1;  // the pixels that are joined; their channels lie behind them
  for (int i = 0; i < rank; ++i) {
    if (i == d->channel) continue;
    if (i == old.first_k()) {
      a = add(d->stride);
      of[static_cast<std::size_t>(d->channel)] = affine({{add(given.extent[d->channel]), 1}});
    }
    of[static_cast<std::size_t>(i)] = affine({{add(i == d->tap ? d->taps : given.extent[i]), 1}});
  }
  Affine& tap = of[static_cast<std::size_t>(d->tap)];
  for (auto& coefficient : tap.coefficient) coefficient *= d->stride;
  while (tap.coefficient.size() <= a) tap.coefficient.push_back(0);
  tap.coefficient[a] = 1;
  tap.base = -d->shift;
  tap.bounded = true;
  for (auto& p : spec.ports) p.access = mapped(p.access, given.extent, of, spec.extent.size());
  ++spec.contraction().n;
  Access& read = spec.ports[static_cast<std::size_t>(old.b().body.statements.front().port)].access;
  Window& window = read.windows[d->window];
  window.coefficient[a] = 0;
  join(window, *d);
  read.stride[a] = given.extent[d->channel];
  simplify_domain(spec);
  return {std::move(spec)};
}

}  // namespace

std::vector<KernelSpec> joined_pixels(const KernelSpec& given, Temporaries& temporaries) {
  const ContractionSpec* const old = given.as_contraction();
  if (!old || !is_plain_product(*old) || old->batch != 0 || reads_joined_indices(given)) return {};
  const KernelPort *x = loaded_alone(given, old->a()), *w = loaded_alone(given, old->b());
  if (!x || !w || x->type != w->type) return {};
  if (!old->k_indices.empty() && old->k_indices.front() == KIndex::pixels)
    return x->access.windows.empty() ? joined_gradient(given, *w) : std::vector<KernelSpec>{};
  if (!w->access.windows.empty()) return {};
  const auto roles = forward_roles(*old);
  const auto d = roles ? joined_dim(given, *x, *roles) : std::nullopt;
  if (!d || w->access.stride[d->tap] == 0) return {};  // which bounds the taps of the copy
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
  join(image.access.windows[d->window], *d);
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
