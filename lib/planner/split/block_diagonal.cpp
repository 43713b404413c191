#include "planner/split/block_diagonal.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/index_map.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/index_order.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kLine = 64, kUnitChannels = 8, kMostJoined = 512;  // channels

// A convolution in groups, by the groups' index and how many channels a group has of the image.
struct Groups {
  int index = -1;
  std::int64_t channels = 1;
  bool gradient = false;  // of the filter
};

std::optional<Groups> groups_of(const KernelSpec& spec) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || !is_plain_product(*c) || c->m == 0 || !spec.columns.empty() ||
      reads_joined_indices(spec) || names_numbers(spec))
    return {};
  const KernelPort *a = loaded_alone(spec, c->a()), *b = loaded_alone(spec, c->b());
  if (!a || !b || a->type != b->type) return {};
  Groups g;
  bool taps = false;
  for (int i = 0; i < c->k(); ++i) {
    const KIndex what = c->k_indices[static_cast<std::size_t>(i)];
    if (what == KIndex::scale_block) return {};
    g.gradient |= what == KIndex::pixels;
    taps |= what == KIndex::filter_tap;
    if (what == KIndex::channels) g.channels *= spec.extent[c->first_k() + i];
  }
  if (!taps && !g.gradient) return {};
  if (g.gradient)  // the columns that lie together are channels
    for (int i = c->first_n(); i < c->first_k(); ++i)
      if (b->access.stride[i] != 0 && b->access.stride[i] == g.channels)
        g.channels *= spec.extent[i];
  const Access& image = g.gradient ? b->access : a->access;
  for (int i = 0; i < c->batch; ++i)
    if (image.stride[i] == g.channels && moves_along(g.gradient ? a->access : b->access, i))
      g.index = i;
  if (g.index < 0) return {};
  return g;
}

// How many groups are joined, so that their channels are whole lines; 1: none.
std::int64_t groups_of_lines(std::int64_t groups, std::int64_t channels) {
  if (channels % kLine == 0) return 1;
  for (std::int64_t j = 2; j < groups; ++j)
    if (groups % j == 0 && j * channels % kLine == 0) return j;
  return groups * channels % kUnitChannels == 0 && groups * channels <= kMostJoined ? groups : 1;
}

// Or so that the least is multiplied where the next groups' channels fill up lines, as everything
// but filters' gradients may have them (sees_other_groups()).
std::int64_t groups_in_lines(std::int64_t groups, std::int64_t channels) {
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t j = 1; j <= groups && j * channels <= kMostJoined; ++j) {
    if (groups % j != 0 || j * channels % kUnit != 0) continue;
    // Each result takes whole lines; columns below a line cost as much as one.
    const double joined = static_cast<double>(j * channels) / kLine,
                 cost = std::ceil(joined) * std::max(1.0, 1 / joined);
    if (least == 0 || cost < least) best = j, least = cost;
  }
  return best;
}

}  // namespace

std::vector<KernelSpec> block_diagonal(const KernelSpec& given, int way, Temporaries& temporaries) {
  const auto found = groups_of(given);
  if (!found) return {};
  const std::int64_t groups = given.extent[found->index],
                     of_lines = groups_of_lines(groups, found->channels),
                     j = way == 0 ? of_lines : groups_in_lines(groups, found->channels);
  if (j == 1 || (way > 0 && (found->gradient || j == of_lines))) return {};
  const ContractionSpec& old = given.contraction();
  const bool gradient = found->gradient;

  // The new domain: the old one with rows or columns of their own for the groups that are joined,
  // on both sides of the product.
  Dims extent;
  std::vector<Affine> of(static_cast<std::size_t>(given.extent.size()));
  const auto add = [&](std::int64_t n) {
    extent.push_back(n);
    return extent.size() - 1;
  };
  const auto keep = [&](int from, int to) {
    for (int i = from; i < to; ++i)
      if (i != found->index) of[static_cast<std::size_t>(i)] = affine({{add(given.extent[i]), 1}});
  };
  const int outer = add(given.extent[found->index] / j);
  keep(0, old.batch);
  int a = -1, b = -1;  // of the result's rows or columns, and of the image's channels
  if (gradient) a = add(j);
  keep(old.first_m(), old.first_n());
  if (gradient)
    b = add(j);
  else
    a = add(j);
  keep(old.first_n(), old.first_k());
  if (!gradient) b = add(j);
  keep(old.first_k(), given.extent.size());
  const int rank = extent.size();
  const auto on = [&](const Access& access, int group) {
    std::vector<Affine> indices = of;
    indices[static_cast<std::size_t>(found->index)] = affine({{outer, j}, {group, 1}});
    return mapped(access, given.extent, indices, rank);
  };

  KernelSpec spec = given;
  ContractionSpec& c = spec.contraction();
  spec.extent = extent;
  (gradient ? c.m : c.n) += 1;
  if (gradient)
    ++c.n;
  else
    c.k_indices.insert(c.k_indices.begin(), KIndex::channels);
  ProductOperand &image = gradient ? c.b() : c.a(), &other = gradient ? c.a() : c.b();
  const int image_port = image.body.statements.front().port;
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    spec.ports[i].access = on(given.ports[i].access, static_cast<int>(i) == image_port ? b : a);

  std::vector<KernelSpec> kernels;
  if (!gradient) {
    // W': its columns, taps, channels, with zeros where the groups are not the same.
    const KernelPort& filter =
        spec.ports[static_cast<std::size_t>(other.body.statements.front().port)];
    std::vector<int> order{outer};
    for (int i = 1; i < old.batch; ++i)
      if (moves_along(filter.access, i)) order.push_back(i);
    for (int i = c.first_n(); i < c.first_k(); ++i) order.push_back(i);
    std::vector<int> channels;
    for (int i = 0; i < c.k(); ++i)
      (c.k_indices[static_cast<std::size_t>(i)] == KIndex::channels ? channels : order)
          .push_back(c.first_k() + i);
    order.insert(order.end(), channels.begin(), channels.end());
    KernelPort load = filter;
    Dims size;
    load.access.stride = {};
    Window same{.coefficient = {}, .base = 0, .divisor = 1, .extent = 1, .stride = 0};
    for (int i : order) {
      size.push_back(extent[i]);
      load.access.stride.push_back(filter.access.stride[i]);
      same.coefficient.push_back(i == a ? 1 : i == b ? -1 : 0);
    }
    load.access.windows = {same};
    KernelPort written;
    kernels.push_back(
        copy_kernel(given, load, size, load.name + "_diagonal", temporaries, written));
    read_instead(spec, other, written, packed_in_order(rank, order, size));
    mark_zeros(kernels.back(), spec);
    drop_unused(spec);
    simplify_domain(spec);
    kernels.push_back(std::move(spec));
    return kernels;
  }

  // R, and the kernel that takes its diagonal and computes what comes behind.
  const int results = c.first_k();
  Dims size;
  std::vector<int> order;
  std::vector<int> channels{b};
  for (int i = 0; i < results; ++i) {
    const bool of_image =
        i >= c.first_n() && i != b &&
        spec.ports[static_cast<std::size_t>(image_port)].access.stride[i] > 0 &&
        spec.ports[static_cast<std::size_t>(image_port)].access.stride[i] < found->channels;
    if (of_image)
      channels.push_back(i);
    else if (i != b)
      order.push_back(i);
  }
  order.insert(order.end(), channels.begin(), channels.end());
  for (int i : order) size.push_back(extent[i]);
  const Access write = packed_in_order(rank, order, size);
  const Statement acc = given.body.statements.front();
  KernelPort all = temporaries.add(acc.label + "_of_all_groups", DataType::f32, size, write);

  KernelSpec diagonal = given;
  diagonal.family = PointwiseSpec{};
  std::vector<int> left;  // of the new domain: all results but b
  for (int i = 0; i < results; ++i)
    if (i != b) left.push_back(i);
  const auto these = [&](const Dims& dims) {
    Dims r;
    for (int i : left) r.push_back(dims[i]);
    return r;
  };
  diagonal.extent = these(extent);
  for (std::size_t i = 0; i < diagonal.ports.size(); ++i) {
    Access& access = diagonal.ports[i].access;
    access = on(given.ports[i].access, a);
    access.stride = these(access.stride);
    for (Window& w : access.windows) w.coefficient = these(w.coefficient);
  }
  Access read;
  for (int i : left) read.stride.push_back(write.stride[i] + (i == a ? write.stride[b] : 0));
  load_sum(diagonal, read_back(all, read));

  Statement store = statement(StatementKind::store, DataType::f32, "");
  store.args = {0};
  store.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(all));
  spec.body.statements = {acc, store};
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  kernels.push_back(std::move(diagonal));
  return kernels;
}

}  // namespace sinter
