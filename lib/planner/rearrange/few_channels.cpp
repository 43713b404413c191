#include "planner/rearrange/few_channels.hpp"

#include <algorithm>
#include <cstdlib>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/implicit_gemm.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {
namespace {

using Direction = FewChannels::Direction;
using Of = ResultBlocks::Of;

// Where more filters, or channels of a data gradient, are: those of which more fill a
// MMA as they are.
constexpr std::int64_t kMostBlockFilters = 64;

bool has_k(const ContractionSpec& c, KIndex what) {
  return std::find(c.k_indices.begin(), c.k_indices.end(), what) != c.k_indices.end();
}

// A residual of a block's results lies in pieces. (16 x 24 x 150 x 150, 24 filters of 3 x 3 with
// swish and a residual on an H200: 58.4 us as it is, 90 to 110 in blocks, where 36 to 45 were
// estimated.)
bool reads_results_beside(const KernelSpec& spec) {
  return std::any_of(
      spec.body.statements.begin(), spec.body.statements.end(), [&](const Statement& s) {
        return is_load(s) && of_whole_tile(spec, spec.ports[static_cast<std::size_t>(s.port)]);
      });
}

// The operands as they are loaded: the one with windows is the image.
bool find_operands(const KernelSpec& spec, FewChannels& f) {
  const ContractionSpec& c = spec.contraction();
  const KernelPort *a = loaded_as_it_is(spec, c.a().body), *b = loaded_as_it_is(spec, c.b().body);
  if (!a || !b || a->type != b->type) return false;
  const auto type = multiplied_type(a->type, c.a().type);
  const bool gradient = has_k(c, KIndex::pixels);
  if (!type || multiplied_type(b->type, c.b().type) != type || info(*type).bytes == 1 ||
      (gradient && !takes_either_major(*type)))
    return false;
  f.image = !a->access.windows.empty() ? a : b;
  f.other = f.image == a ? b : a;
  f.direction = gradient ? Direction::filter_gradient : Direction::forward;
  return !f.image->access.windows.empty() && f.other->access.windows.empty() &&
         f.image == (gradient ? b : a);
}

// What may be taps: of k, or columns of a filter's gradient. The channel of k, if there is one.
std::vector<int> possible_taps(const KernelSpec& spec, FewChannels& f) {
  const ContractionSpec& c = spec.contraction();
  std::vector<int> taps;
  for (int i = 0; i < c.k(); ++i) {
    const KIndex what = c.k_indices[static_cast<std::size_t>(i)];
    if (what == KIndex::filter_tap) taps.push_back(c.first_k() + i);
    if (what == KIndex::channels) f.channel = c.first_k() + i;
  }
  if (f.direction == Direction::filter_gradient)
    for (int i = c.first_n(); i < c.first_k(); ++i) taps.push_back(i);
  return taps;
}

// A window's dim, whose tap is no longer one of `taps`. `backwards`: a data gradient's.
std::optional<SpatialDim> spatial_dim(const KernelSpec& spec, const FewChannels& f, const Window& w,
                                      std::vector<int>& taps, bool& backwards) {
  SpatialDim d;
  d.pre = -w.base;
  d.extent = w.extent;
  for (int i = 0; i < w.coefficient.size(); ++i) {
    if (w.coefficient[i] == 0) continue;
    const bool tap = std::find(taps.begin(), taps.end(), i) != taps.end();
    int& of = tap ? d.tap : d.pixel;
    if (of >= 0 || f.image->access.stride[i] != 0) return {};
    of = i;
    if (!tap) d.stride = w.coefficient[i];
    if (tap && std::abs(w.coefficient[i]) != 1) return {};
  }
  if (d.pixel < 0 || d.tap < 0 || d.stride < 1) return {};
  backwards = w.coefficient[d.tap] < 0;
  if (backwards ? d.stride != 1 || f.direction == Direction::filter_gradient : w.divisor != 1)
    return {};
  d.taps = spec.extent[d.tap];
  if (backwards) {
    d.stride = w.divisor;
    d.pre = w.base;
  }
  std::erase(taps, d.tap);
  return d;
}

// All dims are a data gradient's, or none is.
bool find_dims(const KernelSpec& spec, FewChannels& f) {
  std::vector<int> taps = possible_taps(spec, f);
  std::size_t gradients = 0;
  for (const Window& w : f.image->access.windows) {
    bool backwards = false;
    auto d = spatial_dim(spec, f, w, taps, backwards);
    if (!d) return false;
    gradients += backwards;
    f.dims.push_back(*d);
  }
  if (gradients > 0) {
    if (gradients != f.dims.size()) return false;
    f.direction = Direction::data_gradient;
  }
  if (f.direction == Direction::filter_gradient) {
    if (taps.size() != 1) return false;
    f.channel = taps.front();
  } else if (!taps.empty()) {
    return false;
  }
  std::sort(f.dims.begin(), f.dims.end(),
            [](const SpatialDim& x, const SpatialDim& y) { return x.pixel < y.pixel; });
  return f.dims.size() <= 3;
}

// Whether the channels, or filters, are as few as blocks of this kind are made of.
bool are_few(const KernelSpec& spec, const FewChannels& f, Of of) {
  const std::int64_t few = spec.extent[f.channel];
  switch (of) {
    case Of::few_channels:
      return few <= kMostSpaceToDepthChannels;
    case Of::few_filters:
      return few <= kMostSpaceToDepthChannels && f.direction == Direction::few_filters &&
             !reads_results_beside(spec);
    case Of::more:
      return (few > kMostSpaceToDepthChannels ||
              (f.direction == Direction::data_gradient && f.dims.size() == 3)) &&
             few <= kMostBlockFilters && f.blocks_are_of_results() && !reads_results_beside(spec);
  }
  return false;
}

// How many positions become one, and what is left of the taps: `most` strides of results; 0: the
// dim keeps its phases.
void choose_block(const KernelSpec& spec, Direction direction, std::int64_t most, SpatialDim& d) {
  const std::int64_t u = d.stride;
  if (most == 0) {
    d.cut_taps = d.taps;
    return;
  }
  if (direction == Direction::few_filters) {
    while (d.taps > 1 && d.block < most && 2 * d.block * u <= tma::kMostPixelStep &&
           d.block < spec.extent[d.pixel])
      d.block *= 2;
    d.cut_taps = u * (d.block - 1) + d.taps;
    return;
  }
  d.block = u;
  if (direction == Direction::data_gradient) {
    d.block *= most;
    d.first = (d.block - 1 + d.pre) / u;
    d.shift = u * d.first - d.pre;
  } else {
    d.shift = ((-d.pre) % u + u) % u;
    d.first = (d.pre + d.shift) / u;
  }
  d.cut_taps = (d.taps + d.shift + u - 1) / u;
}

}  // namespace

KernelSpec with_channel_index(const KernelSpec& given) {
  KernelSpec spec = given;
  if (!spec.as_contraction() || !is_plain_product(spec.contraction())) return spec;
  ContractionSpec& c = spec.contraction();
  const auto step_along = [&](int index, const auto& has_channels) {
    for (std::size_t i = 0; i < spec.ports.size(); ++i)
      if (Access& a = spec.ports[i].access; a.via.empty() && has_channels(static_cast<int>(i)))
        a.stride[index] = 1;
  };
  const int a = c.a().body.statements.front().port, b = c.b().body.statements.front().port;
  if (has_k(c, KIndex::pixels)) {
    if (b < 0) return spec;
    const auto& windows = spec.ports[static_cast<std::size_t>(b)].access.windows;
    for (int i = c.first_n(); i < c.first_k(); ++i)
      if (std::none_of(windows.begin(), windows.end(),
                       [&](const Window& w) { return w.coefficient[i] != 0; }))
        return spec;
    const int channel = c.first_k();
    add_unit_index(spec, channel);
    ++c.n;
    step_along(channel, [&](int port) { return port != a; });
    return spec;
  }
  if (c.n == 0) {
    add_unit_index(spec, c.first_k());
    c.n = 1;
  }
  if (!has_k(c, KIndex::channels)) {
    const int channel = spec.extent.size();
    add_unit_index(spec, channel);
    c.k_indices.push_back(KIndex::channels);
    step_along(channel, [&](int port) { return port == a || port == b; });
  }
  return spec;
}

std::optional<FewChannels> few_channels(const KernelSpec& spec, const ResultBlocks& blocks) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || !is_plain_product(*c) || c->batch != 0 || !spec.cross_row_reductions.empty() ||
      reads_joined_indices(spec) || names_numbers(spec))
    return {};
  FewChannels f;
  if (!find_operands(spec, f) || !find_dims(spec, f)) return {};
  if (blocks.of != Of::few_channels && f.direction == Direction::forward)
    f.direction = Direction::few_filters;
  if (f.blocks_are_of_results()) {
    if (c->n != 1) return {};
    f.channel = c->first_n();
  }
  if (f.channel < 0 || !are_few(spec, f, blocks.of)) return {};
  const bool keeps_phases = f.direction == Direction::data_gradient && blocks.strides == 1;
  for (std::size_t i = 0; i < f.dims.size(); ++i) {
    const bool along = blocks.innermost == 0 || i + blocks.innermost >= f.dims.size();
    choose_block(spec, f.direction, along ? blocks.strides : keeps_phases ? 0 : 1, f.dims[i]);
  }
  // A copied filter has zeros beside its taps and channels: an access that does not move along
  // these says not where.
  const bool copied = f.direction != Direction::filter_gradient;
  const auto repeats = [&](int i) { return spec.extent[i] > 1 && f.other->access.stride[i] == 0; };
  if (copied && (repeats(f.channel) || std::any_of(f.dims.begin(), f.dims.end(),
                                                   [&](auto& d) { return repeats(d.tap); })))
    return {};
  return f;
}

}  // namespace sinter
