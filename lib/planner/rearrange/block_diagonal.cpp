#include "planner/rearrange/block_diagonal.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
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
  if (!c || !is_plain_product(*c) || c->m == 0 || !spec.cross_row_reductions.empty() ||
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

int image_port(const ContractionSpec& c, const Groups& groups) {
  return (groups.gradient ? c.b() : c.a()).body.statements.front().port;
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
    if (groups % j != 0 || j * channels % kUnitChannels != 0) continue;
    // Each result takes whole lines; columns below a line cost as much as one.
    const double joined = static_cast<double>(j * channels) / kLine,
                 cost = std::ceil(joined) * std::max(1.0, 1 / joined);
    if (least == 0 || cost < least) best = j, least = cost;
  }
  return best;
}

// The new domain: the old one with rows or columns of their own for `joined` groups, on both sides
// of the product.
struct JoinedDomain {
  Dims extent;
  int outer = -1;  // of the joined groups
  int a = -1;      // the group of the result's rows or columns
  int b = -1;      // that of the image's channels

  JoinedDomain(const KernelSpec& given, const Groups& groups, std::int64_t joined)
      : given_(given),
        group_(groups.index),
        joined_(joined),
        of_(static_cast<std::size_t>(given.extent.size())) {
    const ContractionSpec& c = given.contraction();
    outer = add(given.extent[group_] / joined);
    keep(0, c.batch);
    if (groups.gradient) a = add(joined);
    keep(c.first_m(), c.first_n());
    (groups.gradient ? b : a) = add(joined);
    keep(c.first_n(), c.first_k());
    if (!groups.gradient) b = add(joined);
    keep(c.first_k(), given.extent.size());
  }
  // An access whose group is `group` of the joined ones.
  Access mapped_to(int group, const Access& access) const {
    std::vector<Affine> of = of_;
    of[static_cast<std::size_t>(group_)] = affine({{outer, joined_}, {group, 1}});
    return mapped(access, given_.extent, of, extent.size());
  }

 private:
  const KernelSpec& given_;
  const int group_;
  const std::int64_t joined_;
  std::vector<Affine> of_;  // what the old indices are

  int add(std::int64_t n) {
    extent.push_back(n);
    return extent.size() - 1;
  }
  void keep(int from, int to) {
    for (int i = from; i < to; ++i)
      if (i != group_) of_[static_cast<std::size_t>(i)] = affine({{add(given_.extent[i]), 1}});
  }
};

// The product on the new domain.
KernelSpec joined_product(const KernelSpec& given, const Groups& groups,
                          const JoinedDomain& domain) {
  KernelSpec spec = given;
  ContractionSpec& c = spec.contraction();
  spec.extent = domain.extent;
  if (groups.gradient) {
    ++c.m;
    ++c.n;
  } else {
    ++c.n;
    c.k_indices.insert(c.k_indices.begin(), KIndex::channels);
  }
  const int image = image_port(c, groups);
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    spec.ports[i].access =
        domain.mapped_to(static_cast<int>(i) == image ? domain.b : domain.a, given.ports[i].access);
  return spec;
}

// W': its columns, taps, channels, with zeros where the groups are not the same. `spec` reads it in
// place of the filter.
KernelSpec copy_filter(const KernelSpec& given, const JoinedDomain& domain, KernelSpec& spec,
                       Temporaries& temporaries) {
  ContractionSpec& c = spec.contraction();
  const KernelPort& filter =
      spec.ports[static_cast<std::size_t>(c.b().body.statements.front().port)];
  std::vector<int> order{domain.outer};
  for (int i = 1; i < given.contraction().batch; ++i)
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
    size.push_back(domain.extent[i]);
    load.access.stride.push_back(filter.access.stride[i]);
    same.coefficient.push_back(i == domain.a ? 1 : i == domain.b ? -1 : 0);
  }
  load.access.windows = {same};
  KernelPort written;
  KernelSpec copy = copy_kernel(given, load, size, load.name + "_diagonal", temporaries, written);
  read_instead(spec, c.b(), written, packed_in_order(domain.extent.size(), order, size));
  mark_zeros(copy, spec);
  return copy;
}

// R, the sums of all pairs of groups, packed with the channels that lie together in the filter
// innermost: `write` is where on the domain.
KernelPort sums_of_pairs(const KernelSpec& spec, const Groups& groups, const JoinedDomain& domain,
                         Temporaries& temporaries, Access& write) {
  const ContractionSpec& c = spec.contraction();
  const Dims& image = spec.ports[static_cast<std::size_t>(image_port(c, groups))].access.stride;
  std::vector<int> order, channels{domain.b};
  for (int i = 0; i < c.first_k(); ++i) {
    if (i == domain.b) continue;
    const bool of_image = i >= c.first_n() && image[i] > 0 && image[i] < groups.channels;
    (of_image ? channels : order).push_back(i);
  }
  order.insert(order.end(), channels.begin(), channels.end());
  Dims size;
  for (int i : order) size.push_back(domain.extent[i]);
  write = packed_in_order(domain.extent.size(), order, size);
  return temporaries.add(spec.body.statements.front().label + "_of_all_groups", DataType::f32, size,
                         write);
}

// The kernel that takes their diagonal and computes what comes behind.
KernelSpec take_diagonal(const KernelSpec& given, const JoinedDomain& domain, int results,
                         const KernelPort& all, const Access& write) {
  KernelSpec diagonal = given;
  diagonal.family = PointwiseSpec{};
  std::vector<int> left;  // of the new domain: all results but b
  for (int i = 0; i < results; ++i)
    if (i != domain.b) left.push_back(i);
  const auto these = [&](const Dims& dims) {
    Dims r;
    for (int i : left) r.push_back(dims[i]);
    return r;
  };
  diagonal.extent = these(domain.extent);
  for (std::size_t i = 0; i < diagonal.ports.size(); ++i) {
    Access& access = diagonal.ports[i].access;
    access = domain.mapped_to(domain.a, given.ports[i].access);
    access.stride = these(access.stride);
    for (Window& w : access.windows) w.coefficient = these(w.coefficient);
  }
  Access read;
  for (int i : left)
    read.stride.push_back(write.stride[i] + (i == domain.a ? write.stride[domain.b] : 0));
  load_sum(diagonal, read_back(all, read));
  return diagonal;
}

// What is computed of the sums is left to another kernel: they are stored.
void store_sums(KernelSpec& spec, KernelPort to) {
  Statement store = statement(StatementKind::store, DataType::f32, "");
  store.args = {0};
  store.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(to));
  spec.body.statements = {spec.body.statements.front(), store};
}

}  // namespace

std::vector<KernelSpec> block_diagonal(const KernelSpec& given, int way, Temporaries& temporaries) {
  const auto found = groups_of(given);
  if (!found) return {};
  const std::int64_t groups = given.extent[found->index],
                     of_lines = groups_of_lines(groups, found->channels),
                     joined = way == 0 ? of_lines : groups_in_lines(groups, found->channels);
  if (joined == 1 || (way > 0 && (found->gradient || joined == of_lines))) return {};
  const JoinedDomain domain(given, *found, joined);
  KernelSpec spec = joined_product(given, *found, domain);
  std::vector<KernelSpec> kernels;
  if (!found->gradient) kernels.push_back(copy_filter(given, domain, spec, temporaries));
  std::optional<KernelSpec> diagonal;
  if (found->gradient) {
    Access write;
    KernelPort all = sums_of_pairs(spec, *found, domain, temporaries, write);
    diagonal = take_diagonal(given, domain, spec.contraction().first_k(), all, write);
    store_sums(spec, std::move(all));
  }
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  if (diagonal) kernels.push_back(std::move(*diagonal));
  return kernels;
}

}  // namespace sinter
