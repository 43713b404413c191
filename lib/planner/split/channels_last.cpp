#include "planner/split/channels_last.hpp"

#include <algorithm>
#include <utility>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/index_map.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/implicit_gemm.hpp"
#include "schedule/contraction/index_order.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

bool contains(const std::vector<int>& list, int x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

// What the indices are; of a filter gradient, columns that the image's windows name are taps.
std::optional<ConvolutionRoles> roles_of(const KernelSpec& spec, const Access& image) {
  const ContractionSpec& c = spec.contraction();
  ConvolutionRoles r;
  if (!add_batch_and_k(c, r)) return {};
  for (int i = c.first_m(); i < c.first_n(); ++i) (r.pixels_in_k ? r.side : r.pixels).push_back(i);
  for (int i = c.first_n(); i < c.first_k(); ++i) {
    const bool tap = std::any_of(image.windows.begin(), image.windows.end(),
                                 [&](const Window& w) { return w.coefficient[i] != 0; });
    (!r.pixels_in_k ? r.side : tap ? r.taps : r.channels).push_back(i);
  }
  if (r.channels.empty() || r.pixels.empty() || r.side.empty()) return {};
  return r;
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
std::pair<Copy, Access> image_in_lines(const KernelSpec& given, const KernelPort& x,
                                       const ConvolutionRoles& roles,
                                       const std::vector<ImageDim>& dims, int image_index,
                                       const std::vector<int>& groups, std::int64_t unit) {
  const int rank = given.extent.size(), channel = roles.channels.back();
  Copy copy{unit};
  const int images =
      image_index < 0 ? -1 : copy.add(given.extent[image_index], x.access.stride[image_index]);
  for (const ImageDim& d : dims) copy.add(d.extent, d.stride);
  for (int i : groups) copy.add(given.extent[i], x.access.stride[i]);
  for (int i : roles.channels)
    if (i != channel) copy.add(given.extent[i], x.access.stride[i]);
  copy.add_padded(given.extent[channel], x.access.stride[channel]);
  const Dims packed = packed_strides(copy.extent);
  Access access;
  access.stride = Dims::filled(rank, 0);
  int at = 0;
  if (images >= 0) access.stride[image_index] = packed[at++];
  for (const ImageDim& d : dims) {
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

bool lies_in_lines(const Access& a, int fastest, const std::vector<int>& others,
                   std::int64_t unit) {
  return a.stride[fastest] == 1 &&
         std::all_of(others.begin(), others.end(), [&](int i) { return a.stride[i] % unit == 0; });
}

}  // namespace

std::vector<KernelSpec> channels_last(const KernelSpec& given, Temporaries& temporaries) {
  const ContractionSpec* const old = given.as_contraction();
  if (!old || !is_single_product(*old) || reads_joined_indices(given)) return {};
  const bool gradient = std::find(old->k_indices.begin(), old->k_indices.end(), KIndex::pixels) !=
                        old->k_indices.end();
  KernelSpec spec = given;
  ContractionSpec& c = spec.contraction();
  ProductOperand &image = gradient ? c.b() : c.a(), &other = gradient ? c.a() : c.b();
  const KernelPort* const x = loaded_as_it_is(given, image.body);
  const KernelPort* const y = loaded_as_it_is(given, other.body);
  if (!x || !y || x->type != y->type || !y->access.windows.empty()) return {};
  if (!multiplied_type(x->type, image.type) || !multiplied_type(y->type, other.type)) return {};
  if (gradient && !takes_either_major(x->type)) return {};
  const auto roles = roles_of(given, x->access);
  if (!roles) return {};
  int image_index = -1;
  std::int64_t offset = 0;
  const auto dims = image_dims(given, *roles, x->access, image_index, offset);
  if (!dims) return {};
  // Without taps a strided data gradient is left: zeros between its pixels, channels first. (32 x
  // 1024 x 14 x 14 to 2048 on an H100: 114 us on mma, 151 so.)
  for (const ImageDim& d : *dims)
    if (!d.parts.empty() || (roles->taps.empty() && d.divisor > 1)) return {};
  const auto moving = [&](const Access& a, const std::vector<int>& list) {
    std::vector<int> those;
    for (int i : list)
      if (moves_along(a, i)) those.push_back(i);
    return those;
  };
  const auto write = [&](ProductOperand& operand, const KernelPort& port, Copy copy,
                         Access access) {
    KernelPort load = port, written;
    copy.read.offset = load.access.offset;
    load.access = std::move(copy.read);
    KernelSpec kernel =
        copy_kernel(given, load, copy.extent, load.name + "_channels_last", temporaries, written);
    read_instead(spec, operand, written, std::move(access));
    return kernel;
  };
  const std::int64_t unit = kUnitBytes / info(x->type).bytes;
  const int rank = given.extent.size(), channel = roles->channels.back();
  std::vector<KernelSpec> kernels;

  const auto groups = moving(x->access, roles->batch);
  bool in_lines = x->access.stride[channel] == 1 && (x->access.offset + offset) % unit == 0;
  for (const ImageDim& d : *dims) in_lines &= d.stride % unit == 0;
  for (int i : groups) in_lines &= x->access.stride[i] % unit == 0;
  if (image_index >= 0) in_lines &= x->access.stride[image_index] % unit == 0;
  if (!in_lines) {
    auto [copy, access] = image_in_lines(given, *x, *roles, *dims, image_index, groups, unit);
    KernelPort shifted = *x;
    shifted.access.offset += offset;
    kernels.push_back(write(image, shifted, std::move(copy), std::move(access)));
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
  const bool side_together = (gradient || takes_either_major(y->type)) && lines(roles->side.back());
  if (!side_together && (gradient || !lines(channel))) {
    const std::vector<int>& last = gradient ? roles->side : roles->channels;
    std::vector<int> order;
    for (int i : all)
      if (!contains(last, i)) order.push_back(i);
    for (int i : last) order.push_back(i);
    Copy copy{unit};
    for (std::size_t i = 0; i + 1 < order.size(); ++i)
      copy.add(given.extent[order[i]], y->access.stride[order[i]]);
    copy.add_padded(given.extent[order.back()], y->access.stride[order.back()]);
    Access access = packed_in_order(rank, order, copy.extent);
    kernels.push_back(write(other, *y, std::move(copy), std::move(access)));
  }
  if (kernels.empty()) return {};
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  return kernels;
}

std::vector<KernelSpec> groups_last(const KernelSpec& given, bool results_too,
                                    Temporaries& temporaries) {
  const ContractionSpec* const old = given.as_contraction();
  if (!old || !is_plain_product(*old) || old->batch != 1 || old->k() == 0 ||
      !given.columns.empty() || reads_joined_indices(given) || names_numbers(given))
    return {};
  const bool gradient = old->k_indices.front() == KIndex::pixels;
  if (gradient && !results_too) return {};
  const KernelPort *const x = loaded_alone(given, gradient ? old->b() : old->a()),
                          *const y = loaded_alone(given, gradient ? old->a() : old->b());
  if (!x || !y || x->type != y->type || !y->access.windows.empty() || !x->access.via.empty() ||
      !y->access.via.empty())
    return {};
  const auto roles = roles_of(given, x->access);
  constexpr int kGroup = 0;
  if (!roles || roles->channels.size() != 1 || roles->side.size() != 1 ||
      !moves_along(x->access, kGroup) || !moves_along(y->access, kGroup))
    return {};
  int image_index = -1;
  std::int64_t offset = 0;
  const auto dims = image_dims(given, *roles, x->access, image_index, offset);
  const int rank = given.extent.size(), channel = roles->channels.front(),
            side = roles->side.front();
  const std::int64_t unit = kUnitBytes / info(x->type).bytes, groups = given.extent[kGroup];
  // Channels that are the fastest already are for others.
  if (!dims || x->access.stride[channel] == 1 || groups * given.extent[channel] % unit != 0 ||
      groups * given.extent[side] % unit != 0)
    return {};
  for (const ImageDim& d : *dims)
    if (!d.parts.empty()) return {};
  KernelSpec spec = given;
  ContractionSpec& c = spec.contraction();
  std::vector<KernelSpec> kernels;
  const auto write = [&](ProductOperand& operand, KernelPort load, const Dims& extent, Access read,
                         Access access) {
    KernelPort written;
    read.offset = load.access.offset;
    load.access = std::move(read);
    kernels.push_back(
        copy_kernel(given, load, extent, load.name + "_channels_last", temporaries, written));
    read_instead(spec, operand, written, std::move(access));
  };
  KernelPort shifted = *x;
  shifted.access.offset += offset;
  auto [copy, access] = image_in_lines(given, *x, *roles, *dims, image_index, {kGroup}, 1);
  write(gradient ? c.b() : c.a(), shifted, copy.extent, std::move(copy.read), std::move(access));

  // Pixels, groups, filters.
  std::vector<int> order = roles->pixels;
  order.push_back(kGroup);
  order.push_back(side);
  Dims size;
  for (int i : order) size.push_back(given.extent[i]);
  if (gradient) {
    Access read;
    for (int i : order) read.stride.push_back(y->access.stride[i]);
    write(c.a(), *y, size, std::move(read), packed_in_order(rank, order, size));
  }
  if (gradient || !results_too) {
    drop_unused(spec);
    simplify_domain(spec);
    kernels.push_back(std::move(spec));
    return kernels;
  }

  // Sums, which a last kernel brings to where results lie; rounded where that is all it does.
  const Statement acc = given.body.statements.front();
  DataType type = DataType::f32;
  if (given.body.statements.size() == 2 && given.body.statements.back().args.front() == 0)
    type = given.ports[static_cast<std::size_t>(given.body.statements.back().port)].type;
  if (type != DataType::bf16 && type != DataType::f16) type = DataType::f32;
  const Access packed = packed_in_order(rank, order, size);
  KernelPort sums = temporaries.add(acc.label + "_channels_last", type, size, packed);
  KernelSpec last = given;
  last.family = PointwiseSpec{};
  const int results = old->first_k();
  last.extent = part_of(given.extent, 0, results);
  for (KernelPort& p : last.ports) {
    p.access.stride = part_of(p.access.stride, 0, results);
    for (Window& w : p.access.windows) w.coefficient = part_of(w.coefficient, 0, results);
  }
  Access read;
  read.stride = part_of(packed.stride, 0, results);
  load_sum(last, read_back(sums, read));
  Statement store = statement(StatementKind::store, DataType::f32, "");
  store.args = {0};
  store.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(std::move(sums));
  spec.body.statements = {acc, store};
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  kernels.push_back(std::move(last));
  return kernels;
}

std::vector<KernelSpec> depthwise_last(const KernelSpec& given, Temporaries& temporaries) {
  const ContractionSpec* const c = given.as_contraction();
  if (!c || !is_plain_product(*c) || c->batch != 1 || c->m != 0 || c->k() == 0 ||
      !given.columns.empty() || reads_joined_indices(given) ||
      std::any_of(c->k_indices.begin(), c->k_indices.end(),
                  [](KIndex what) { return what != KIndex::pixels; }))
    return {};
  const KernelPort *const x = loaded_alone(given, c->b()), *const dy = loaded_alone(given, c->a());
  constexpr int kChannel = 0;
  if (!x || !dy || x->type != dy->type || !dy->access.windows.empty() || !x->access.via.empty() ||
      !dy->access.via.empty() || x->access.stride[kChannel] == 1 ||
      !moves_along(x->access, kChannel) || !moves_along(dy->access, kChannel))
    return {};
  ConvolutionRoles roles;
  roles.pixels_in_k = true;
  roles.channels = {kChannel};
  for (int i = c->first_n(); i < c->first_k(); ++i) roles.taps.push_back(i);
  for (int i = c->first_k(); i < given.extent.size(); ++i) roles.pixels.push_back(i);
  int image_index = -1;
  std::int64_t offset = 0;
  const auto dims = image_dims(given, roles, x->access, image_index, offset);
  if (!dims || given.extent[kChannel] % (kUnitBytes / info(x->type).bytes) != 0) return {};
  for (const ImageDim& d : *dims)
    if (!d.parts.empty()) return {};
  KernelSpec spec = given;
  std::vector<KernelSpec> kernels;
  KernelPort load = *x, written;
  auto [copy, access] = image_in_lines(given, *x, roles, *dims, image_index, {}, 1);
  copy.read.offset = x->access.offset + offset;
  load.access = std::move(copy.read);
  kernels.push_back(
      copy_kernel(given, load, copy.extent, load.name + "_channels_last", temporaries, written));
  read_instead(spec, spec.contraction().b(), written, std::move(access));
  std::vector<int> order = roles.pixels;
  order.push_back(kChannel);
  Dims size;
  load = *dy;
  load.access.stride = {};
  for (int i : order) {
    size.push_back(given.extent[i]);
    load.access.stride.push_back(dy->access.stride[i]);
  }
  kernels.push_back(
      copy_kernel(given, load, size, load.name + "_channels_last", temporaries, written));
  read_instead(spec, spec.contraction().a(), written,
               packed_in_order(given.extent.size(), order, size));
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace sinter
