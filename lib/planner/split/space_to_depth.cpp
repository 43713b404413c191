#include "planner/split/space_to_depth.hpp"

#include <algorithm>
#include <cstdlib>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/index_map.hpp"
#include "planner/split/unbounded_windows.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/implicit_gemm.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

// Of blocks of more strides than one: of a multiplication.
constexpr std::int64_t kMostColumns = 64;
// Where more filters, or channels of a data gradient, are: columns of a block, and those of which
// more fill a multiplication as they are.
constexpr std::int64_t kMostBlockColumns = 128, kMostBlockFilters = 64;

// The new domain while it is listed: extents in the order of the groups.
struct NewDomain {
  Dims extent;
  int add(std::int64_t n) {
    extent.push_back(n);
    return extent.size() - 1;
  }
};

// A spatial dim: x = stride p + t - pre of a pixel index and a tap index.
struct SpatialDim {
  int pixel = -1, tap = -1;
  std::int64_t stride = 1, pre = 0, taps = 1, extent = 0;
  std::int64_t block = 1;                           // positions that become one
  std::int64_t shift = 0, cut_taps = 0, first = 0;  // of t = stride j + a - shift; see above
};

// What the operands of the convolution are.
struct FewChannels {
  enum class Direction { forward, few_filters, data_gradient, filter_gradient } direction{};
  std::vector<SpatialDim> dims;  // outermost first
  int channel = -1;              // the index with few values: of few_filters the filters
  const KernelPort *image = nullptr, *other = nullptr;
};

bool has_k(const ContractionSpec& c, KIndex what) {
  return std::find(c.k_indices.begin(), c.k_indices.end(), what) != c.k_indices.end();
}

// One channel has no index: it gets one. Where channels are padded, what has them steps along it,
// so that those behind it lie outside.
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

// Blocks of results, which are columns: strides of a data gradient, or results of filters, that one
// has along all dims or along the innermost alone.
struct ResultBlocks {
  std::int64_t strides = 1;
  bool innermost_alone = false;
  enum class Of { few_channels, few_filters, more } of = Of::few_channels;
};

// A residual of a block's results lies in pieces. (16 x 24 x 150 x 150, 24 filters of 3 x 3 with
// swish and a residual on an H200: 58.4 us as it is, 90 to 110 in blocks, where 36 to 45 were
// reckoned.)
bool reads_results_beside(const KernelSpec& spec) {
  return std::any_of(
      spec.body.statements.begin(), spec.body.statements.end(), [&](const Statement& s) {
        return is_load(s) && of_whole_tile(spec, spec.ports[static_cast<std::size_t>(s.port)]);
      });
}

std::optional<FewChannels> few_channels(const KernelSpec& spec, const ResultBlocks& blocks) {
  using D = FewChannels::Direction;
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || !is_plain_product(*c) || c->batch != 0 || !spec.columns.empty() ||
      reads_joined_indices(spec) || names_numbers(spec))
    return {};
  FewChannels f;
  const KernelPort *a = loaded_as_it_is(spec, c->a().body), *b = loaded_as_it_is(spec, c->b().body);
  if (!a || !b || a->type != b->type) return {};
  const auto type = multiplied_type(a->type, c->a().type);
  if (!type || multiplied_type(b->type, c->b().type) != type || info(*type).bytes == 1 ||
      (has_k(*c, KIndex::pixels) && !takes_either_major(*type)))
    return {};
  f.image = !a->access.windows.empty() ? a : b;
  f.other = f.image == a ? b : a;
  if (f.image->access.windows.empty() || !f.other->access.windows.empty()) return {};
  bool gradient = false;
  std::vector<int> taps;
  for (int i = 0; i < c->k(); ++i) {
    const KIndex what = c->k_indices[static_cast<std::size_t>(i)];
    gradient |= what == KIndex::pixels;
    if (what == KIndex::filter_tap) taps.push_back(c->first_k() + i);
    if (what == KIndex::channels) f.channel = c->first_k() + i;
  }
  if (gradient) {
    if (f.image != b) return {};
    f.direction = D::filter_gradient;
    for (int i = c->first_n(); i < c->first_k(); ++i) taps.push_back(i);
  } else if (f.image != a) {
    return {};
  }
  std::vector<int> seen;
  for (const Window& w : f.image->access.windows) {
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
    const bool backwards = w.coefficient[d.tap] < 0;
    if (backwards ? d.stride != 1 || gradient : w.divisor != 1) return {};
    d.taps = spec.extent[d.tap];
    if (backwards) {
      f.direction = D::data_gradient;
      d.stride = w.divisor;
      d.pre = w.base;
    }
    std::erase(taps, d.tap);
    seen.push_back(backwards);
    f.dims.push_back(d);
  }
  // All dims are a data gradient's, or none is.
  if (std::count(seen.begin(), seen.end(), seen.front()) != static_cast<long>(seen.size()))
    return {};
  if (gradient) {
    if (taps.size() != 1) return {};
    f.channel = taps.front();
  } else if (!taps.empty()) {
    return {};
  }
  using Of = ResultBlocks::Of;
  if (blocks.of != Of::few_channels && f.direction == D::forward) f.direction = D::few_filters;
  const bool filters = f.direction == D::few_filters,
             of_results = filters || f.direction == D::data_gradient;
  if (of_results) {
    if (c->n != 1) return {};
    f.channel = c->first_n();
  }
  std::sort(f.dims.begin(), f.dims.end(),
            [](const SpatialDim& x, const SpatialDim& y) { return x.pixel < y.pixel; });
  if (f.channel < 0 || f.dims.size() > 3) return {};
  const std::int64_t few = spec.extent[f.channel];
  if (few > (blocks.of == Of::more ? kMostBlockFilters : kMostSpaceToDepthChannels)) return {};
  if (blocks.of == Of::more && (!of_results || few <= kMostSpaceToDepthChannels)) return {};
  if (blocks.of == Of::few_filters && !filters) return {};
  if (blocks.of != Of::few_channels && reads_results_beside(spec)) return {};
  for (SpatialDim& d : f.dims) {
    const bool along = !blocks.innermost_alone || &d == &f.dims.back();
    const std::int64_t u = d.stride, strides = along ? blocks.strides : 1;
    if (filters) {
      while (d.taps > 1 && d.block < strides && 2 * d.block * u <= tma::kMostPixelStep &&
             d.block < spec.extent[d.pixel])
        d.block *= 2;
      d.cut_taps = u * (d.block - 1) + d.taps;
      continue;
    }
    d.block = u;
    if (f.direction == D::data_gradient) {
      d.block *= strides;
      d.first = (d.block - 1 + d.pre) / u;
      d.shift = u * d.first - d.pre;
    } else {
      d.shift = ((-d.pre) % u + u) % u;
      d.first = (d.pre + d.shift) / u;
    }
    d.cut_taps = (d.taps + d.shift + u - 1) / u;
  }
  return f;
}

std::vector<KernelSpec> with_blocks(const KernelSpec& contraction, const ResultBlocks& blocks,
                                    Temporaries& temporaries) {
  const KernelSpec given = with_channel_index(with_windows(contraction));
  using D = FewChannels::Direction;
  const auto found = few_channels(given, blocks);
  if (!found) return {};
  const FewChannels& f = *found;
  const ContractionSpec& old = given.contraction();
  const bool filters = f.direction == D::few_filters,
             of_results = filters || f.direction == D::data_gradient;
  if (!of_results && blocks.strides > 1) return {};
  if (blocks.innermost_alone && f.dims.size() == 1) return {};  // as of all
  const std::int64_t bytes = info(f.image->type).bytes;
  std::int64_t joined = 1;
  for (const SpatialDim& d : f.dims) joined *= d.block;
  std::int64_t channels = given.extent[f.channel];
  if (of_results) {
    const bool few = blocks.of == ResultBlocks::Of::few_channels;
    if (joined == 1 || (!(few && blocks.strides == 1) &&
                        joined * channels > (few ? kMostColumns : kMostBlockColumns)))
      return {};
  } else {
    while (joined * channels * bytes % tma::kUnit != 0) ++channels;
  }

  // The new domain, group by group.
  NewDomain domain;
  std::vector<Affine> of(static_cast<std::size_t>(given.extent.size()));
  const auto keep = [&](int i) {
    of[static_cast<std::size_t>(i)] = affine({{domain.add(given.extent[i]), 1}});
  };
  const auto dim_of = [&](int i, bool tap) {
    for (std::size_t d = 0; d < f.dims.size(); ++d)
      if ((tap ? f.dims[d].tap : f.dims[d].pixel) == i) return static_cast<int>(d);
    return -1;
  };
  std::vector<int> position, tap, rest;  // v, j and a of each dim
  std::vector<int> others;               // old indices of pixels that are no spatial dims
  int few = -1;
  const auto add_rests = [&] {
    for (const SpatialDim& d : f.dims) rest.push_back(domain.add(d.block));
    few = domain.add(channels);
  };
  const auto add_taps = [&] {
    for (const SpatialDim& d : f.dims) tap.push_back(domain.add(d.cut_taps));
  };
  const auto add_pixels = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const int d = dim_of(i, false);
      if (d < 0) {
        others.push_back(i);
        keep(i);
      } else {
        const std::int64_t u = f.dims[static_cast<std::size_t>(d)].block;
        position.push_back(
            domain.add(of_results ? (given.extent[i] + u - 1) / u : given.extent[i]));
        if (!of_results) of[static_cast<std::size_t>(i)] = affine({{position.back(), 1}});
      }
    }
  };
  std::vector<KIndex> k_indices;
  int m = 0, n = 0;
  const int first_m = old.first_m(), first_n = old.first_n(), first_k = old.first_k(),
            end = given.extent.size();
  switch (f.direction) {
    case D::forward:
      add_pixels(first_m, first_n);
      m = domain.extent.size();
      for (int i = first_n; i < first_k; ++i) keep(i);
      n = domain.extent.size() - m;
      add_taps();
      k_indices.assign(f.dims.size(), KIndex::filter_tap);
      add_rests();
      k_indices.insert(k_indices.end(), f.dims.size() + 1, KIndex::channels);
      break;
    case D::few_filters:
    case D::data_gradient:
      add_pixels(first_m, first_n);
      m = domain.extent.size();
      add_rests();
      n = domain.extent.size() - m;
      add_taps();
      k_indices.assign(f.dims.size(), KIndex::filter_tap);
      for (int i = first_k; i < end; ++i)
        if (dim_of(i, true) < 0) {
          keep(i);
          k_indices.push_back(KIndex::channels);
        }
      break;
    case D::filter_gradient:
      for (int i = first_m; i < first_n; ++i) keep(i);
      m = domain.extent.size();
      add_taps();
      add_rests();
      n = domain.extent.size() - m;
      add_pixels(first_k, end);
      k_indices.assign(static_cast<std::size_t>(old.k()), KIndex::pixels);
      break;
  }
  const int rank = domain.extent.size();
  for (std::size_t d = 0; d < f.dims.size(); ++d) {
    const SpatialDim& dim = f.dims[d];
    const std::int64_t last = dim.stride * (dim.cut_taps - 1) + dim.block - 1 - dim.shift;
    of[static_cast<std::size_t>(dim.tap)] =
        filters ? affine({{tap[d], 1}, {rest[d], -dim.stride}}, 0, dim.block > 1)
                : affine({{tap[d], dim.stride}, {rest[d], 1}}, -dim.shift,
                         dim.shift > 0 || last >= dim.taps);
    if (of_results) {
      const bool over = given.extent[dim.pixel] % dim.block != 0;
      of[static_cast<std::size_t>(dim.pixel)] =
          affine({{position[d], dim.block}, {rest[d], 1}}, 0, over);
    }
  }
  of[static_cast<std::size_t>(f.channel)] =
      affine({{few, 1}}, 0, channels > given.extent[f.channel]);

  KernelSpec spec = given;
  spec.extent = domain.extent;
  for (auto& p : spec.ports) p.access = mapped(p.access, given.extent, of, rank);
  ContractionSpec& c = spec.contraction();
  c.m = m;
  c.n = n;
  c.k_indices = k_indices;
  const bool image_is_a = f.direction != D::filter_gradient;
  ProductOperand &image = image_is_a ? c.a() : c.b(), &other = image_is_a ? c.b() : c.a();
  std::vector<KernelSpec> kernels;
  if (!of_results) {
    // Z: what the pixels' other indices tell apart, positions with the padding, (a, c).
    Dims extent;
    std::vector<Affine> on(static_cast<std::size_t>(given.extent.size()));
    Access read;
    read.stride = Dims::filled(rank, 0);
    for (int i : others) {
      on[static_cast<std::size_t>(i)] = affine({{extent.size(), 1}});
      extent.push_back(given.extent[i]);
    }
    const int first_v = extent.size(), dims = static_cast<int>(f.dims.size());
    for (std::size_t d = 0; d < f.dims.size(); ++d)
      extent.push_back(given.extent[f.dims[d].pixel] + f.dims[d].cut_taps - 1);
    for (const SpatialDim& d : f.dims) extent.push_back(d.stride);
    extent.push_back(channels);
    for (int d = 0; d < dims; ++d) {
      const SpatialDim& dim = f.dims[static_cast<std::size_t>(d)];
      // x = u v + a - shift - pre, as if at tap 0 and position v + a / u.
      on[static_cast<std::size_t>(dim.tap)] =
          affine({{first_v + d, dim.stride}, {first_v + dims + d, 1}}, -dim.shift);
      on[static_cast<std::size_t>(dim.pixel)] = affine({});
    }
    on[static_cast<std::size_t>(f.channel)] =
        affine({{extent.size() - 1, 1}}, 0, channels > given.extent[f.channel]);
    for (auto& a : on)
      if (a.coefficient.empty()) a = affine({});
    KernelPort load = *f.image, written;
    load.access = mapped(load.access, given.extent, on, extent.size());
    kernels.push_back(
        copy_kernel(given, load, extent, load.name + "_blocks", temporaries, written));
    const Dims packed = packed_strides(extent);
    for (std::size_t i = 0; i < others.size(); ++i)
      for (int j = 0; j < rank; ++j)
        if (j < of[static_cast<std::size_t>(others[i])].coefficient.size())
          read.stride[j] +=
              of[static_cast<std::size_t>(others[i])].coefficient[j] * packed[static_cast<int>(i)];
    for (int d = 0; d < dims; ++d) {
      const auto at = static_cast<std::size_t>(d);
      read.stride[position[at]] = read.stride[tap[at]] = packed[first_v + d];
      read.stride[rest[at]] = packed[first_v + dims + d];
    }
    read.stride[few] = 1;
    read_instead(spec, image, written, std::move(read));
  }
  if (f.direction != D::filter_gradient) {
    // W': its other indices, taps, (a, c); of blocks of results (a, c), taps, the other ones.
    Dims extent;
    std::vector<int> order;
    const auto add = [&](int i) {
      order.push_back(i);
      extent.push_back(domain.extent[i]);
    };
    if (of_results) {
      for (int i = m; i < m + n; ++i) add(i);
      for (int i = m + n; i < rank; ++i) add(i);
    } else {
      for (int i = m; i < rank; ++i) add(i);
    }
    KernelPort load = spec.ports[static_cast<std::size_t>(other.body.statements.front().port)];
    Access on;
    on.offset = load.access.offset;
    for (int i : order) on.stride.push_back(load.access.stride[i]);
    for (Window w : load.access.windows) {
      Dims these;
      for (int i : order) these.push_back(w.coefficient[i]);
      w.coefficient = these;
      on.windows.push_back(std::move(w));
    }
    load.access = on;
    KernelPort written;
    kernels.push_back(
        copy_kernel(given, load, extent, load.name + "_blocks", temporaries, written));
    read_instead(spec, other, written, packed_in_order(rank, order, extent));
    if (!kernels.back().ports.front().access.windows.empty()) mark_zeros(kernels.back(), spec);
  }
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace

std::vector<KernelSpec> space_to_depth(const KernelSpec& contraction, int way,
                                       Temporaries& temporaries) {
  return with_blocks(contraction, {std::int64_t{1} << way}, temporaries);
}

namespace {

std::vector<KernelSpec> with_blocks_of(ResultBlocks::Of of, const KernelSpec& contraction, int way,
                                       Temporaries& temporaries) {
  constexpr ResultBlocks kWays[kBlocksOfResultsWays] = {{1}, {2, true}, {4, true}, {2}, {4}, {8}};
  ResultBlocks blocks = kWays[way];
  blocks.of = of;
  return with_blocks(contraction, blocks, temporaries);
}

}  // namespace

std::vector<KernelSpec> blocks_of_results(const KernelSpec& contraction, int way,
                                          Temporaries& temporaries) {
  return with_blocks_of(ResultBlocks::Of::more, contraction, way, temporaries);
}

std::vector<KernelSpec> blocks_of_few_results(const KernelSpec& contraction, int way,
                                              Temporaries& temporaries) {
  return with_blocks_of(ResultBlocks::Of::few_filters, contraction, way, temporaries);
}

}  // namespace sinter
