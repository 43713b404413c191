#include "planner/rearrange/space_to_depth.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "planner/rearrange/few_channels.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/rearrange/unbounded_windows.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

using Direction = FewChannels::Direction;

// Of blocks of more strides than one: of an MMA.
constexpr std::int64_t kMostColumns = 64;
// Where more filters, or channels of a data gradient, are: columns of a block.
constexpr std::int64_t kMostBlockColumns = 128;

// The channels of the new domain: padded to whole pieces of TMA in an image, as they are in blocks
// of results. 0: these are none, or fill more than an MMA.
std::int64_t channels_of(const KernelSpec& given, const FewChannels& f,
                         const ResultBlocks& blocks) {
  if (!f.blocks_are_of_results() && blocks.strides > 1) return 0;
  if (blocks.innermost >= f.dims.size()) return 0;  // as of all
  std::int64_t joined = 1, channels = given.extent[f.channel];
  for (const SpatialDim& d : f.dims) joined *= d.block;
  if (f.blocks_are_of_results()) {
    const bool few = blocks.of == ResultBlocks::Of::few_channels,
               any_size = few && blocks.strides == 1;
    const std::int64_t most = few ? kMostColumns : kMostBlockColumns;
    return joined == 1 || (!any_size && joined * channels > most) ? 0 : channels;
  }
  const std::int64_t bytes = info(f.image->type).bytes;
  while (joined * channels * bytes % tma::kUnit != 0) ++channels;
  return channels;
}

// The new domain while it is listed, group by group, and what the old indices are on it.
struct BlockedDomain {
  Dims extent;
  std::vector<Affine> of;                // by old index
  std::vector<int> position, tap, rest;  // v, j and a of each dim
  std::vector<int> others;               // old indices of pixels that are no spatial dims
  int few = -1;                          // c
  int m = 0, n = 0;
  std::vector<KIndex> k_indices;

  BlockedDomain(const KernelSpec& given, const FewChannels& f, std::int64_t channels)
      : of(static_cast<std::size_t>(given.extent.size())), given_(given), f_(f) {
    list_groups(channels);
    for (std::size_t d = 0; d < f.dims.size(); ++d) map_dim(d);
    of[static_cast<std::size_t>(f.channel)] =
        affine({{few, 1}}, 0, channels > given.extent[f.channel]);
  }
  int rank() const { return extent.size(); }

 private:
  const KernelSpec& given_;
  const FewChannels& f_;

  int add(std::int64_t n_of_it) {
    extent.push_back(n_of_it);
    return extent.size() - 1;
  }
  void keep(int i) { of[static_cast<std::size_t>(i)] = affine({{add(given_.extent[i]), 1}}); }
  void keep(int from, int to) {
    for (int i = from; i < to; ++i) keep(i);
  }
  void add_taps() {
    for (const SpatialDim& d : f_.dims) tap.push_back(add(d.cut_taps));
  }
  void add_rests(std::int64_t channels) {
    for (const SpatialDim& d : f_.dims) rest.push_back(add(d.block));
    few = add(channels);
  }
  void add_pixels(int from, int to) {
    for (int i = from; i < to; ++i) {
      const auto dim = std::find_if(f_.dims.begin(), f_.dims.end(),
                                    [&](const SpatialDim& d) { return d.pixel == i; });
      if (dim == f_.dims.end()) {
        others.push_back(i);
        keep(i);
      } else if (f_.blocks_are_of_results()) {
        position.push_back(add((given_.extent[i] + dim->block - 1) / dim->block));
      } else {
        position.push_back(add(given_.extent[i]));
        of[static_cast<std::size_t>(i)] = affine({{position.back(), 1}});
      }
    }
  }
  bool is_tap(int i) const {
    return std::any_of(f_.dims.begin(), f_.dims.end(),
                       [&](const SpatialDim& d) { return d.tap == i; });
  }

  void list_groups(std::int64_t channels) {
    const ContractionSpec& old = given_.contraction();
    const int first_m = old.first_m(), first_n = old.first_n(), first_k = old.first_k();
    switch (f_.direction) {
      case Direction::forward:
        add_pixels(first_m, first_n);
        m = rank();
        keep(first_n, first_k);
        n = rank() - m;
        add_taps();
        k_indices.assign(f_.dims.size(), KIndex::filter_tap);
        add_rests(channels);
        k_indices.insert(k_indices.end(), f_.dims.size() + 1, KIndex::channels);
        break;
      case Direction::few_filters:
      case Direction::data_gradient:
        add_pixels(first_m, first_n);
        m = rank();
        add_rests(channels);
        n = rank() - m;
        add_taps();
        k_indices.assign(f_.dims.size(), KIndex::filter_tap);
        for (int i = first_k; i < given_.extent.size(); ++i) {
          if (is_tap(i)) continue;
          keep(i);
          k_indices.push_back(KIndex::channels);
        }
        break;
      case Direction::filter_gradient:
        keep(first_m, first_n);
        m = rank();
        add_taps();
        add_rests(channels);
        n = rank() - m;
        add_pixels(first_k, given_.extent.size());
        k_indices.assign(static_cast<std::size_t>(old.k()), KIndex::pixels);
        break;
    }
  }

  // The old tap and, of blocks of results, the old pixel.
  void map_dim(std::size_t d) {
    const SpatialDim& dim = f_.dims[d];
    const std::int64_t last = dim.stride * (dim.cut_taps - 1) + dim.block - 1 - dim.shift;
    const bool as_it_is = f_.direction == Direction::data_gradient && dim.block == 1;
    of[static_cast<std::size_t>(dim.tap)] =
        as_it_is ? affine({{tap[d], 1}})
        : f_.direction == Direction::few_filters
            ? affine({{tap[d], 1}, {rest[d], -dim.stride}}, 0, dim.block > 1)
            : affine({{tap[d], dim.stride}, {rest[d], 1}}, -dim.shift,
                     dim.shift > 0 || last >= dim.taps);
    if (f_.blocks_are_of_results())
      of[static_cast<std::size_t>(dim.pixel)] = affine({{position[d], dim.block}, {rest[d], 1}}, 0,
                                                       given_.extent[dim.pixel] % dim.block != 0);
  }
};

// Z: what the pixels' other indices tell apart, positions with the padding, (a, c). `spec` reads it
// in place of the image.
KernelSpec copy_image(const KernelSpec& given, const FewChannels& f, const BlockedDomain& domain,
                      KernelSpec& spec, ProductOperand& image, Temporaries& temporaries) {
  Dims extent;
  std::vector<Affine> on(static_cast<std::size_t>(given.extent.size()), affine({}));
  for (int i : domain.others) {
    on[static_cast<std::size_t>(i)] = affine({{extent.size(), 1}});
    extent.push_back(given.extent[i]);
  }
  const int first_v = extent.size(), dims = static_cast<int>(f.dims.size());
  for (const SpatialDim& d : f.dims) extent.push_back(given.extent[d.pixel] + d.cut_taps - 1);
  for (const SpatialDim& d : f.dims) extent.push_back(d.stride);
  const std::int64_t channels = domain.extent[domain.few];
  extent.push_back(channels);
  for (int d = 0; d < dims; ++d) {
    const SpatialDim& dim = f.dims[static_cast<std::size_t>(d)];
    // x = u v + a - shift - pre, as if at tap 0 and position v + a / u.
    on[static_cast<std::size_t>(dim.tap)] =
        affine({{first_v + d, dim.stride}, {first_v + dims + d, 1}}, -dim.shift);
  }
  on[static_cast<std::size_t>(f.channel)] =
      affine({{extent.size() - 1, 1}}, 0, channels > given.extent[f.channel]);
  KernelPort load = *f.image, written;
  load.access = mapped(load.access, given.extent, on, extent.size());
  KernelSpec copy = copy_kernel(given, load, extent, load.name + "_blocks", temporaries, written);

  const Dims packed = packed_strides(extent);
  Access read;
  read.stride = Dims::filled(domain.rank(), 0);
  for (std::size_t i = 0; i < domain.others.size(); ++i) {
    const Dims& at = domain.of[static_cast<std::size_t>(domain.others[i])].coefficient;
    for (int j = 0; j < at.size(); ++j) read.stride[j] += at[j] * packed[static_cast<int>(i)];
  }
  for (int d = 0; d < dims; ++d) {
    const auto at = static_cast<std::size_t>(d);
    read.stride[domain.position[at]] = read.stride[domain.tap[at]] = packed[first_v + d];
    read.stride[domain.rest[at]] = packed[first_v + dims + d];
  }
  read.stride[domain.few] = 1;
  read_instead(spec, image, written, std::move(read));
  return copy;
}

// W': its other indices, taps, (a, c); of blocks of results (a, c), taps, the other ones.
KernelSpec copy_filter(const KernelSpec& given, const BlockedDomain& domain, KernelSpec& spec,
                       ProductOperand& filter, Temporaries& temporaries) {
  Dims extent;
  std::vector<int> order;
  for (int i = domain.m; i < domain.rank(); ++i) {
    order.push_back(i);
    extent.push_back(domain.extent[i]);
  }
  KernelPort load = spec.ports[static_cast<std::size_t>(filter.body.statements.front().port)];
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
  KernelSpec copy = copy_kernel(given, load, extent, load.name + "_blocks", temporaries, written);
  read_instead(spec, filter, written, packed_in_order(domain.rank(), order, extent));
  if (!copy.ports.front().access.windows.empty()) mark_zeros(copy, spec);
  return copy;
}

std::vector<KernelSpec> with_blocks(const KernelSpec& contraction, const ResultBlocks& blocks,
                                    Temporaries& temporaries) {
  const KernelSpec given = with_channel_index(with_windows(contraction));
  const auto f = few_channels(given, blocks);
  const std::int64_t channels = f ? channels_of(given, *f, blocks) : 0;
  if (channels == 0) return {};
  const BlockedDomain domain(given, *f, channels);
  KernelSpec spec = given;
  spec.extent = domain.extent;
  for (auto& p : spec.ports) p.access = mapped(p.access, given.extent, domain.of, domain.rank());
  ContractionSpec& c = spec.contraction();
  c.m = domain.m;
  c.n = domain.n;
  c.k_indices = domain.k_indices;
  const bool image_is_a = f->direction != Direction::filter_gradient;
  std::vector<KernelSpec> kernels;
  if (!f->blocks_are_of_results())
    kernels.push_back(copy_image(given, *f, domain, spec, image_is_a ? c.a() : c.b(), temporaries));
  if (image_is_a) kernels.push_back(copy_filter(given, domain, spec, c.b(), temporaries));
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace

std::vector<KernelSpec> space_to_depth(const KernelSpec& contraction, int way,
                                       Temporaries& temporaries) {
  constexpr ResultBlocks kWays[kSpaceToDepthWays] = {{1}, {2}, {4}, {2, 2}, {4, 2}};
  return with_blocks(contraction, kWays[way], temporaries);
}

namespace {

std::vector<KernelSpec> with_blocks_of(ResultBlocks::Of of, const KernelSpec& contraction, int way,
                                       Temporaries& temporaries) {
  constexpr ResultBlocks kWays[kBlocksOfResultsWays] = {{1}, {1, 1}, {2, 1}, {4, 1}, {2}, {4}, {8}};
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
