#include "planner/rearrange/channels_last.hpp"

#include <algorithm>
#include <utility>

#include "plan/access.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/rearrange/read_convolution.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/implicit_gemm.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

bool contains(const std::vector<int>& list, int x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

// A copy while its indices are listed, the outermost first.
struct Copy {
  std::int64_t unit;  // elements
  Dims extent = {};
  Access read = {};
  int add(std::int64_t n, std::int64_t stride) {
    extent.push_back(n);
    read.stride.push_back(stride);
    for (Window& w : read.windows) w.coefficient.push_back(0);
    return extent.size() - 1;
  }
  // The last index, whose extent is rounded up; what is past the end is zero.
  int add_padded(std::int64_t n, std::int64_t stride) {
    if (n % unit == 0) return add(n, stride);
    const int at = add((n + unit - 1) / unit * unit, 0);
    Window w{.coefficient = Dims::filled(at + 1, 0),
             .base = 0,
             .divisor = 1,
             .extent = n,
             .stride = stride};
    w.coefficient[at] = 1;
    read.windows.push_back(std::move(w));
    return at;
  }
};

// The image's channels behind its pixels, those of a group side by side, and how the product reads
// it there.
std::pair<Copy, Access> image_in_lines(const KernelSpec& given, const ReadConvolution& read,
                                       const std::vector<int>& groups, std::int64_t unit) {
  const KernelPort& x = *read.image;
  const ConvolutionRoles& roles = read.roles;
  const int rank = given.extent.size(), channel = roles.channels.back(),
            image_index = read.image_index;
  Copy copy{unit};
  copy.read.offset = x.access.offset + read.offset;
  const int images =
      image_index < 0 ? -1 : copy.add(given.extent[image_index], x.access.stride[image_index]);
  for (const ImageDim& d : read.dims) copy.add(d.extent, d.stride);
  for (int i : groups) copy.add(given.extent[i], x.access.stride[i]);
  for (int i : roles.channels)
    if (i != channel) copy.add(given.extent[i], x.access.stride[i]);
  copy.add_padded(given.extent[channel], x.access.stride[channel]);
  const Dims packed = packed_strides(copy.extent);
  Access access;
  access.stride = Dims::filled(rank, 0);
  int at = 0;
  if (images >= 0) access.stride[image_index] = packed[at++];
  for (const ImageDim& d : read.dims) {
    const std::int64_t step = packed[at++];
    if (x.access.stride[d.pixel_index] != 0) {  // no window bounds it
      access.stride[d.pixel_index] = d.pixel * step;
      if (d.tap_index >= 0) access.stride[d.tap_index] = d.tap * step;
      access.offset += d.base * step;
      continue;
    }
    Window w{.coefficient = Dims::filled(rank, 0),
             .base = d.base,
             .divisor = d.divisor,
             .extent = d.extent,
             .stride = step};
    w.coefficient[d.pixel_index] = d.pixel;
    if (d.tap_index >= 0) w.coefficient[d.tap_index] = d.tap;
    access.windows.push_back(std::move(w));
  }
  for (int i : groups) access.stride[i] = packed[at++];
  for (int i : roles.channels) access.stride[i] = i == channel ? 1 : packed[at++];
  return {std::move(copy), std::move(access)};
}

// The product while operands are copied, and the kernels that copy them.
struct Rearranged {
  const KernelSpec& given;
  const bool gradient;
  Temporaries& temporaries;
  KernelSpec spec = given;
  std::vector<KernelSpec> kernels = {};

  ProductOperand& image() { return image_of(spec.contraction(), gradient); }
  ProductOperand& other() { return other_of(spec.contraction(), gradient); }
  // `access`: how the product reads what is written.
  void copy(ProductOperand& operand, KernelPort load, const Copy& copy, Access access) {
    KernelPort written;
    load.access = copy.read;
    kernels.push_back(
        copy_kernel(given, load, copy.extent, load.name + "_channels_last", temporaries, written));
    read_instead(spec, operand, written, std::move(access));
  }
  // Of the operand beside the image, over these indices, the last of which is fastest.
  void copy_in_order(const KernelPort& load, const std::vector<int>& order, std::int64_t unit) {
    Copy in_order{unit};
    in_order.read.offset = load.access.offset;
    for (int i : order) {
      const std::int64_t extent = given.extent[i], stride = load.access.stride[i];
      i == order.back() ? in_order.add_padded(extent, stride) : in_order.add(extent, stride);
    }
    copy(other(), load, in_order, packed_in_order(given.extent.size(), order, in_order.extent));
  }
  std::vector<KernelSpec> finish() {
    drop_unused(spec);
    simplify_domain(spec);
    kernels.push_back(std::move(spec));
    return std::move(kernels);
  }
  // With sums over these indices, the last of which is fastest, which a last kernel brings to where
  // results lie; rounded where that is all it does.
  std::vector<KernelSpec> finish_with_results(const std::vector<int>& order) {
    Dims size;
    for (int i : order) size.push_back(given.extent[i]);
    const Statement acc = given.body.statements.front();
    DataType type = DataType::f32;
    if (given.body.statements.size() == 2 && given.body.statements.back().args.front() == 0)
      type = given.ports[static_cast<std::size_t>(given.body.statements.back().port)].type;
    if (type != DataType::bf16 && type != DataType::f16) type = DataType::f32;
    const Access packed = packed_in_order(given.extent.size(), order, size);
    KernelPort sums = temporaries.add(acc.label + "_channels_last", type, size, packed);
    KernelSpec last = given;
    last.family = PointwiseSpec{};
    const int results = given.contraction().first_k();
    last.extent = part_of(given.extent, 0, results);
    for (KernelPort& p : last.ports) {
      p.access.stride = part_of(p.access.stride, 0, results);
      for (Window& w : p.access.windows) w.coefficient = part_of(w.coefficient, 0, results);
    }
    Access of_results;
    of_results.stride = part_of(packed.stride, 0, results);
    load_sum(last, read_back(sums, of_results));
    Statement store = statement(StatementKind::store, DataType::f32, "");
    store.args = {0};
    store.port = static_cast<int>(spec.ports.size());
    spec.ports.push_back(std::move(sums));
    spec.body.statements = {acc, store};
    std::vector<KernelSpec> made = finish();
    made.push_back(std::move(last));
    return made;
  }
};

// A convolution of 16 bits with as many batch indices, whose sums are f32 and no image has parts.
std::optional<ReadConvolution> read_plain_convolution(const KernelSpec& given, int batch) {
  auto read = read_convolution(given);
  if (!read || !is_plain_product(given.contraction()) || given.contraction().batch != batch ||
      !given.cross_row_reductions.empty())
    return {};
  const DataType type = read->image->type;
  if ((type != DataType::bf16 && type != DataType::f16) || read->other->type != type ||
      !read->image->access.via.empty() || !read->other->access.via.empty())
    return {};
  for (const ImageDim& d : read->dims)
    if (!d.parts.empty()) return {};
  return read;
}

// Whether no index of the columns is the fastest of a result.
bool stores_channels_first(const KernelSpec& spec) {
  const ContractionSpec& c = spec.contraction();
  return std::ranges::any_of(spec.ports, [&](const KernelPort& p) {
    for (int i = c.first_n(); i < c.first_k(); ++i)
      if (p.access.stride[i] == 1) return false;
    return p.written;
  });
}

bool lies_in_lines(const Access& a, int fastest, const std::vector<int>& others,
                   std::int64_t unit) {
  return a.stride[fastest] == 1 &&
         std::all_of(others.begin(), others.end(), [&](int i) { return a.stride[i] % unit == 0; });
}

}  // namespace

bool stores_phases_channels_first(const KernelSpec& spec) {
  return spec.as_contraction() && stores_channels_first(spec) &&
         std::ranges::any_of(spec.ports, [](const KernelPort& p) {
           return std::ranges::any_of(p.access.windows,
                                      [](const Window& w) { return w.divisor > 1; });
         });
}

std::vector<KernelSpec> channels_last(const KernelSpec& given, bool results_too,
                                      Temporaries& temporaries) {
  auto read = read_convolution(given);
  if (!read || read->roles.side.empty() || read->image->type != read->other->type) return {};
  auto& [x, y, gradient, roles, dims, image_index, offset] = *read;
  Rearranged r{given, gradient, temporaries};
  if (!multiplied_type(x->type, r.image().type) || !multiplied_type(y->type, r.other().type))
    return {};
  if (gradient && !takes_either_major(x->type)) return {};
  // Without taps a strided data gradient is left: zeros between its pixels, channels first. (32 x
  // 1024 x 14 x 14 to 2048 on an H100: 114 us on mma, 151 so.)
  for (const ImageDim& d : dims)
    if (!d.parts.empty() || (roles.taps.empty() && d.divisor > 1)) return {};
  if (results_too &&
      (gradient || !stores_channels_first(given) || !is_plain_product(given.contraction()) ||
       !given.cross_row_reductions.empty() || !roles.batch.empty() || names_numbers(given)))
    return {};
  const std::int64_t unit = kUnitBytes / info(x->type).bytes;
  const int rank = given.extent.size();

  std::vector<int> groups;
  for (int i : roles.batch)
    if (moves_along(x->access, i)) groups.push_back(i);
  bool in_lines =
      x->access.stride[roles.channels.back()] == 1 && (x->access.offset + offset) % unit == 0;
  for (const ImageDim& d : dims) in_lines &= d.stride % unit == 0;
  for (int i : groups) in_lines &= x->access.stride[i] % unit == 0;
  if (image_index >= 0) in_lines &= x->access.stride[image_index] % unit == 0;
  // Columns of a gradient have no order: what ends in whole pieces, or is the most, lies together,
  // as channels do, and not the taps of a stride that are columns like them.
  if (gradient && !in_lines)
    std::stable_sort(roles.channels.begin(), roles.channels.end(), [&](int i, int j) {
      const auto rank_of = [&](int c) {
        return std::pair(given.extent[c] % unit == 0, given.extent[c]);
      };
      return rank_of(i) < rank_of(j);
    });
  const int channel = roles.channels.back();
  if (!in_lines) {
    auto [copy, access] = image_in_lines(given, *read, groups, unit);
    r.copy(r.image(), *x, copy, std::move(access));
  }

  // Of a filter its channels or, of 16 bits, its other side lie together, of a result's gradient
  // the latter.
  std::vector<int> all;
  for (int i = 0; i < rank; ++i)
    if (moves_along(y->access, i)) all.push_back(i);
  const auto lines = [&](int fastest) {
    std::vector<int> others = all;
    std::erase(others, fastest);
    return lies_in_lines(y->access, fastest, others, unit) && y->access.offset % unit == 0;
  };
  const bool side_together = (gradient || takes_either_major(y->type)) && lines(roles.side.back());
  if (!side_together && (gradient || !lines(channel))) {
    const std::vector<int>& last = gradient ? roles.side : roles.channels;
    std::vector<int> order;
    for (int i : all)
      if (!contains(last, i)) order.push_back(i);
    for (int i : last) order.push_back(i);
    r.copy_in_order(*y, order, unit);
  }
  if (results_too) {
    std::vector<int> order = roles.pixels;
    order.insert(order.end(), roles.side.begin(), roles.side.end());
    return r.finish_with_results(order);
  }
  return r.kernels.empty() ? std::vector<KernelSpec>{} : r.finish();
}

std::vector<KernelSpec> few_channels_last(const KernelSpec& given, Temporaries& temporaries) {
  const auto read = read_plain_convolution(given, 0);
  if (!read || read->gradient || read->roles.channels.size() != 1) return {};
  const int channel = read->roles.channels.front();
  if (read->image->access.stride[channel] == 1 ||
      given.extent[channel] * info(read->image->type).bytes >= kStageLine)
    return {};
  Rearranged r{given, false, temporaries};
  auto [copy, access] = image_in_lines(given, *read, {}, 1);
  r.copy(r.image(), *read->image, copy, std::move(access));
  return r.finish();
}

std::vector<KernelSpec> filter_along_k(const KernelSpec& given, Temporaries& temporaries) {
  const auto read = read_convolution(given);
  if (!read || read->gradient || !is_plain_product(given.contraction()) ||
      !given.cross_row_reductions.empty() || !read->roles.batch.empty() ||
      read->roles.side.size() != 1 || read->roles.channels.size() != 1 ||
      read->other->type != read->image->type || info(read->other->type).bytes != 2)
    return {};
  const KernelPort& filter = *read->other;
  const int side = read->roles.side.front(), channel = read->roles.channels.front();
  const std::int64_t line = kStageLine / info(filter.type).bytes,
                     unit = kUnitBytes / info(filter.type).bytes;
  if (filter.access.stride[side] != 1 || given.extent[side] % line == 0) return {};
  Rearranged r{given, false, temporaries};
  std::vector<int> order{side};
  for (int i : read->roles.taps) order.push_back(i);
  order.push_back(channel);
  r.copy_in_order(filter, order, unit);
  return r.finish();
}

std::vector<KernelSpec> groups_last(const KernelSpec& given, bool results_too,
                                    Temporaries& temporaries) {
  const auto read = read_plain_convolution(given, 1);
  if (!read || (read->gradient && !results_too) || names_numbers(given)) return {};
  const auto& [x, y, gradient, roles, dims, image_index, offset] = *read;
  constexpr int kGroup = 0;
  if (roles.channels.size() != 1 || roles.side.size() != 1 || !moves_along(x->access, kGroup) ||
      !moves_along(y->access, kGroup))
    return {};
  const int channel = roles.channels.front(), side = roles.side.front();
  const std::int64_t unit = kUnitBytes / info(x->type).bytes, groups = given.extent[kGroup];
  // Channels that are the fastest already are for others.
  if (x->access.stride[channel] == 1 || groups * given.extent[channel] % unit != 0 ||
      groups * given.extent[side] % unit != 0)
    return {};
  Rearranged r{given, gradient, temporaries};
  auto [copy, access] = image_in_lines(given, *read, {kGroup}, 1);
  r.copy(r.image(), *x, copy, std::move(access));

  // Pixels, groups, filters.
  std::vector<int> order = roles.pixels;
  order.push_back(kGroup);
  order.push_back(side);
  if (gradient) r.copy_in_order(*y, order, 1);
  if (gradient || !results_too) return r.finish();

  return r.finish_with_results(order);
}

std::vector<KernelSpec> depthwise_last(const KernelSpec& given, Temporaries& temporaries) {
  const auto read = read_plain_convolution(given, 1);
  if (!read || !read->gradient || !read->roles.side.empty()) return {};
  const KernelPort &x = *read->image, &dy = *read->other;
  const int channel = read->roles.channels.front();
  if (x.access.stride[channel] == 1 || !moves_along(x.access, channel) ||
      !moves_along(dy.access, channel) ||
      given.extent[channel] % (kUnitBytes / info(x.type).bytes) != 0)
    return {};
  Rearranged r{given, true, temporaries};
  auto [copy, access] = image_in_lines(given, *read, {}, 1);
  r.copy(r.image(), x, copy, std::move(access));
  std::vector<int> order = read->roles.pixels;
  order.push_back(channel);
  r.copy_in_order(dy, order, 1);
  return r.finish();
}

}  // namespace sinter
