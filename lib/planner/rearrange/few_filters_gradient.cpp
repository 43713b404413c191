#include "planner/rearrange/few_filters_gradient.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/rearrange/read_convolution.hpp"
#include "planner/rearrange/unbounded_windows.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/index_order.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

// More taps and filters than these are a larger copy than what it saves.
constexpr std::int64_t kMostColumns = 256;

// One filter has no index: it gets one.
KernelSpec with_filter_index(const KernelSpec& given) {
  KernelSpec spec = with_windows(given);
  if (!spec.as_contraction() || spec.contraction().m > 0) return spec;
  ContractionSpec& c = spec.contraction();
  add_unit_index(spec, c.first_m());
  c.m = 1;
  return spec;
}

bool fits(const KernelSpec& given, const ReadConvolution& r) {
  return r.gradient && r.image->type == r.other->type &&
         loaded_alone(given, given.contraction().b()) &&
         loaded_alone(given, given.contraction().a()) && r.roles.batch.empty() &&
         r.roles.channels.size() == 1 && r.roles.side.size() == 1 && !r.roles.taps.empty() &&
         std::all_of(r.dims.begin(), r.dims.end(),
                     [](const ImageDim& d) { return d.divisor == 1 && d.parts.empty(); });
}

// A domain while it is listed, and the steps of a port on it.
struct Listed {
  Dims extent = {};
  Access access = {};
  int add(std::int64_t n, std::int64_t stride) {
    extent.push_back(n);
    access.stride.push_back(stride);
    return extent.size() - 1;
  }
};

}  // namespace

std::vector<KernelSpec> few_filters_gradient(const KernelSpec& contraction,
                                             Temporaries& temporaries) {
  const KernelSpec given = with_filter_index(contraction);
  if (!given.as_contraction() || !is_plain_product(given.contraction()) ||
      !given.cross_row_reductions.empty() || names_numbers(given))
    return {};
  const auto read = read_convolution(given);
  if (!read || !fits(given, *read)) return {};
  const auto& [x, dy, gradient, roles, dims, image_index, offset] = *read;
  const int filter = roles.side.front(), channel = roles.channels.front();
  const std::int64_t channels = given.extent[channel], unit = kUnitBytes / info(x->type).bytes;
  std::int64_t taps = 1, filters = given.extent[filter];
  for (int t : roles.taps) taps *= given.extent[t];
  while (taps * filters % unit != 0) ++filters;
  const std::int64_t columns = taps * filters;
  if (columns > kMostColumns) return {};

  // D: pixels, taps, filters.
  Listed of_dy, of_x;
  of_dy.access.offset = dy->access.offset;
  of_x.access.offset = x->access.offset + offset;
  of_x.add(channels, x->access.stride[channel]);
  of_x.add(columns, 0);
  if (image_index >= 0) {
    of_dy.add(given.extent[image_index], dy->access.stride[image_index]);
    of_x.add(given.extent[image_index], x->access.stride[image_index]);
  }
  const int first_pixel = of_dy.extent.size();
  for (const ImageDim& d : dims) {
    of_dy.add(d.extent, 0);
    of_x.add(d.extent, d.stride);
  }
  const int first_tap = of_dy.extent.size();
  for (int t : roles.taps) of_dy.add(given.extent[t], 0);
  const bool padded = filters > given.extent[filter];
  const int last = of_dy.add(filters, padded ? 0 : dy->access.stride[filter]),
            rank = of_dy.extent.size();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const ImageDim& d = dims[i];
    Window w{.coefficient = Dims::filled(rank, 0),
             .base = -d.base,
             .divisor = d.pixel,
             .extent = given.extent[d.pixel_index],
             .stride = dy->access.stride[d.pixel_index]};
    w.coefficient[first_pixel + static_cast<int>(i)] = 1;
    for (std::size_t t = 0; t < roles.taps.size(); ++t)
      if (roles.taps[t] == d.tap_index) w.coefficient[first_tap + static_cast<int>(t)] = -d.tap;
    of_dy.access.windows.push_back(std::move(w));
  }
  if (padded) {
    Window w{.coefficient = Dims::filled(rank, 0),
             .base = 0,
             .divisor = 1,
             .extent = given.extent[filter],
             .stride = dy->access.stride[filter]};
    w.coefficient[last] = 1;
    of_dy.access.windows.push_back(std::move(w));
  }
  KernelPort load = *dy, written;
  load.access = of_dy.access;
  std::vector<KernelSpec> kernels{
      copy_kernel(given, load, of_dy.extent, load.name + "_of_taps", temporaries, written)};

  // The product, whose rows are channels.
  KernelSpec product = given;
  ContractionSpec& c = product.contraction();
  std::swap(c.a(), c.b());
  const int image_port = c.a().body.statements.front().port, pixels = of_x.extent.size() - 2;
  product.extent = of_x.extent;
  c.batch = 0;
  c.m = c.n = 1;
  c.k_indices.assign(static_cast<std::size_t>(pixels), KIndex::pixels);
  for (auto& port : product.ports) port.access = {.stride = Dims::filled(product.extent.size(), 0)};
  product.ports[static_cast<std::size_t>(image_port)].access = of_x.access;
  Access of_product;
  of_product.stride = {0, 1};
  const Dims packed = packed_strides(of_dy.extent);
  for (int i = 0; i < pixels; ++i) of_product.stride.push_back(packed[i]);
  read_instead(product, c.b(), written, std::move(of_product));
  mark_zeros(kernels.back(), product);
  const Statement acc = given.body.statements.front();
  Access sums;
  sums.stride = {1, channels};
  for (int i = 0; i < pixels; ++i) sums.stride.push_back(0);
  KernelPort all =
      temporaries.add(acc.label + "_of_taps", DataType::f32, {columns, channels}, sums);
  Statement store = statement(StatementKind::store, DataType::f32, "");
  store.args = {0};
  store.port = static_cast<int>(product.ports.size());
  product.ports.push_back(all);
  product.body.statements = {acc, store};
  drop_unused(product);
  simplify_domain(product);
  kernels.push_back(std::move(product));

  // What comes behind.
  const int results = given.contraction().first_k();
  KernelSpec behind = given;
  behind.family = PointwiseSpec{};
  behind.extent = part_of(given.extent, 0, results);
  for (KernelPort& p : behind.ports) {
    p.access.stride = part_of(p.access.stride, 0, results);
    for (Window& w : p.access.windows) w.coefficient = part_of(w.coefficient, 0, results);
  }
  Access of_sums;
  of_sums.stride = Dims::filled(results, 0);
  of_sums.stride[channel] = 1;
  of_sums.stride[filter] = channels;
  std::int64_t step = filters * channels;
  for (auto t = roles.taps.rbegin(); t != roles.taps.rend(); step *= given.extent[*t++])
    of_sums.stride[*t] = step;
  load_sum(behind, read_back(all, of_sums));
  kernels.push_back(std::move(behind));
  return kernels;
}

}  // namespace sinter
