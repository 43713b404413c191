#include "schedule/contraction/implicit_gemm.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "plan/access.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

using Source = BoxedOperand::Source;

constexpr int kMostMapDims = 5;
constexpr std::int64_t kMostStep = 8, kMostExtent = std::int64_t{1} << 31;
constexpr std::int64_t kOffsetEnd[] = {65535, 255, 31};  // of images of 1, 2 and 3 dims
using Roles = ConvolutionRoles;

// The elements of indices that step as one, and how far apart these lie; 0 where they do not.
std::int64_t count_of(const KernelSpec& spec, const std::vector<int>& indices) {
  std::int64_t n = 1;
  for (int i : indices) n *= spec.extent[i];
  return n;
}
std::int64_t joint_stride(const KernelSpec& spec, const Access& a,
                          const std::vector<int>& indices) {
  const std::int64_t least = a.stride[indices.back()];
  std::int64_t n = 1;
  for (auto i = indices.rbegin(); i != indices.rend(); n *= spec.extent[*i++])
    if (a.stride[*i] != least * n) return 0;
  return least;
}

std::optional<Roles> roles_of(const KernelSpec& spec, bool image_is_a) {
  const ContractionSpec& c = spec.contraction();
  Roles r;
  if (!add_batch_and_k(c, r)) return {};
  const int image_from = image_is_a ? c.first_m() : c.first_n(),
            image_size = image_is_a ? c.m : c.n, side_from = image_is_a ? c.first_n() : c.first_m(),
            side_size = image_is_a ? c.n : c.m;
  for (int i = side_from; i < side_from + side_size; ++i) r.side.push_back(i);
  if (r.side.empty()) return {};
  for (int i = image_from; i < image_from + image_size; ++i)
    (r.pixels_in_k ? r.taps : r.pixels).push_back(i);
  if (r.pixels_in_k) {
    if (!r.channels.empty()) return {};
    // Of taps and channels, which are the columns, the channels lie together.
    const Body& image = (image_is_a ? c.a() : c.b()).body;
    if (image.statements.size() != 1 || !is_load(image.statements.front())) return {};
    const Access& a = spec.ports[static_cast<std::size_t>(image.statements.front().port)].access;
    std::int64_t next = 1;
    const auto follows = [&](int i) { return a.stride[i] == next; };
    for (auto i = std::find_if(r.taps.rbegin(), r.taps.rend(), follows); i != r.taps.rend();
         i = std::find_if(r.taps.rbegin(), r.taps.rend(), follows)) {
      next *= spec.extent[*i];
      r.channels.insert(r.channels.begin(), *i);
      r.taps.erase(std::next(i).base());
    }
  }
  if (r.channels.empty() || r.pixels.empty()) return {};
  r.parts_alone = r.pixels_in_k;
  return r;
}

// The port that the operand loads as it is, windows and all.
const KernelPort* loaded_port(const KernelSpec& spec, const ProductOperand& operand, int& number) {
  const KernelPort* const p = loaded_as_it_is(spec, operand.body);
  if (!p || !multiplied_type(p->type, operand.type) || p->alignment < 16) return nullptr;
  if (p->access.offset * info(p->type).bytes % 16 != 0) return nullptr;
  number = operand.body.statements.front().port;
  return p;
}

bool loadable_step(std::int64_t stride, int bytes) {
  return stride > 0 && stride * bytes % 16 == 0 && stride * bytes < (std::int64_t{1} << 40);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return (a - (a % b + b) % b) / b; }

// How TMA walks over the dim. `rank`: of the image.
std::optional<WindowAxis> axis_of(const ImageDim& d, const Dims& extent, int rank) {
  WindowAxis axis;
  const std::int64_t taps = d.tap_index < 0 ? 1 : extent[d.tap_index], u = d.divisor;
  axis.result = d.pixel_index < 0 ? 1 : (extent[d.pixel_index] + u - 1) / u;
  axis.taps = axis.first_tap = axis.first_offset = Dims::filled(static_cast<int>(u), 0);
  axis.step = u == 1 ? d.pixel : 1;
  // A tap of a phase reads the pixel at y + floor, of the phase's result y.
  const auto at = [&](std::int64_t phase, std::int64_t tap) {
    return d.base + phase + d.tap * tap;
  };
  const auto seen = [&](std::int64_t phase, std::int64_t tap) { return at(phase, tap) % u == 0; };
  std::int64_t least = 0, most = 0;
  bool any = false;
  for (std::int64_t phase = 0; phase < u; ++phase)
    for (std::int64_t t = 0; t < taps; ++t) {
      if (!seen(phase, t)) continue;
      const std::int64_t pixel = floor_divide(at(phase, t), u);
      least = any ? std::min(least, pixel) : pixel;
      most = any ? std::max(most, pixel) : pixel;
      any = true;
    }
  axis.first = least;
  if (u > 1 && d.tap != 0) axis.tap_step = u / std::gcd(std::abs(d.tap), u);
  axis.offset_step = d.tap * axis.tap_step / u;
  for (std::int64_t phase = 0; phase < u; ++phase) {
    const int i = static_cast<int>(phase);
    for (std::int64_t t = taps - 1; t >= 0; --t)
      if (seen(phase, t)) {
        ++axis.taps[i];
        axis.first_tap[i] = t;
        axis.first_offset[i] = floor_divide(at(phase, t), u) - least;
      }
  }
  std::int64_t last = axis.result - 1;  // of all parts
  for (const auto& [index, step] : d.parts) last += step * (extent[index] - 1);
  const std::int64_t upper = axis.first + last * axis.step + 1 - d.extent,
                     end = kCornerEnd[rank - 1];
  if (axis.step > kMostStep || most - least >= kOffsetEnd[rank - 1]) return {};
  if (axis.first < -end || axis.first >= end || upper < -end || upper >= end) return {};
  return axis;
}

// The image as an im2col map. Its box is set later.
std::optional<BoxedOperand> image_operand(const KernelSpec& spec, const Roles& r,
                                          const KernelPort& p, int number,
                                          const std::vector<ImageDim>& dims,
                                          const std::vector<WindowAxis>& axes, int image_index,
                                          std::int64_t offset) {
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  BoxedOperand o;
  o.source = Source::pixels;
  o.port = number;
  o.k_fastest = !r.pixels_in_k;
  o.map.type = p.type;
  o.map.swizzle = kStageLine;
  std::int64_t channels = count_of(spec, r.channels),
               images = image_index < 0 ? 1 : spec.extent[image_index],
               image_step = image_index < 0 ? 0 : a.stride[image_index];
  std::int64_t span = 0;  // of one image
  for (const ImageDim& d : dims) span = std::max(span, d.stride * d.extent);
  if (joint_stride(spec, a, r.channels) != 1) return {};
  for (int b : r.batch) {
    const std::int64_t s = a.stride[b];
    if (std::any_of(axes.begin(), axes.end(),
                    [&](const WindowAxis& axis) { return axis.part.index == b; }))
      continue;
    for (const Window& w : a.windows)
      if (w.coefficient[b] != 0) return {};
    if (s == 0 || spec.extent[b] == 1) continue;
    if (image_step == 0 && s >= span) image_step = s;
    if (image_step > 0 && s % image_step == 0) {
      o.image_steps.push_back({b, s / image_step});
      images += s / image_step * (spec.extent[b] - 1);
    } else if (s > 0 && s * bytes % 16 == 0) {
      // Lines of channels end where the group's do, or all that is past them is masked.
      const int line = kStageLine / bytes;
      if (!r.pixels_in_k && count_of(spec, r.channels) % line != 0) return {};
      o.channel_steps.push_back({b, s});
      channels += s * (spec.extent[b] - 1);
    } else {
      return {};
    }
  }
  o.map.offset = (a.offset + offset) * bytes;
  if (o.map.offset % 16 != 0) return {};
  o.map.dim = {channels};
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (!loadable_step(dims[i].stride, bytes)) return {};
    o.map.dim.push_back(dims[i].extent);
    o.map.stride.push_back(dims[i].stride * bytes);
  }
  o.map.dim.push_back(images);
  if (image_step == 0) image_step = (span + 15) / 16 * 16;
  if (!loadable_step(image_step, bytes)) return {};
  o.map.stride.push_back(image_step * bytes);
  for (std::int64_t n : o.map.dim)
    if (n < 1 || n >= kMostExtent) return {};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const WindowAxis& axis = axes[i];
    const std::int64_t extent = o.map.dim[static_cast<int>(i) + 1];
    o.map.lower.push_back(axis.first);
    o.map.upper.push_back(axis.first + (axis.result - 1) * axis.step + 1 - extent);
    o.map.step.push_back(axis.step);
    if (extent - 1 + o.map.upper.back() < axis.first) return {};
  }
  return o;
}

// The filter: channels, the taps of each axis that has some, and its other side; of these channels
// or the other side lie together.
std::optional<BoxedOperand> filter_operand(const KernelSpec& spec, const Roles& r,
                                           const KernelPort& p, int number,
                                           const std::vector<ImageDim>& dims) {
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  if (!a.windows.empty()) return {};
  BoxedOperand o;
  o.source = Source::filter;
  o.port = number;
  o.map.type = p.type;
  o.map.swizzle = kStageLine;
  o.map.offset = a.offset * bytes;
  o.k_fastest = joint_stride(spec, a, r.channels) == 1;
  const std::vector<int>&first = o.k_fastest ? r.channels : r.side,
        &last = o.k_fastest ? r.side : r.channels;
  if (joint_stride(spec, a, first) != 1) return {};
  o.map.dim = {count_of(spec, first)};
  const auto add = [&](std::int64_t extent, std::int64_t stride) {
    if (!loadable_step(stride, bytes)) return false;
    o.map.dim.push_back(extent);
    o.map.stride.push_back(stride * bytes);
    return true;
  };
  for (std::size_t i = dims.size(); i-- > 0;)
    if (const int t = dims[i].tap_index; t >= 0) {
      o.filter_axes.push_back(static_cast<int>(dims.size() - 1 - i));
      if (!add(spec.extent[t], a.stride[t])) return {};
    }
  if (!add(count_of(spec, last), joint_stride(spec, a, last))) return {};
  for (auto b = r.batch.rbegin(); b != r.batch.rend(); ++b) {
    if (a.stride[*b] == 0 || spec.extent[*b] == 1) continue;
    o.batch.push_back(*b);
    if (!add(spec.extent[*b], a.stride[*b])) return {};
  }
  if (o.map.dim.size() > kMostMapDims) return {};
  return o;
}

// The gradient of the result, whose pixels are k: boxes of its channels and of joined pixels.
std::optional<BoxedOperand> gradient_operand(const KernelSpec& spec, const Roles& r,
                                             const KernelPort& p, int number) {
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  if (!a.windows.empty() || joint_stride(spec, a, r.side) != 1) return {};
  const std::int64_t pixel = joint_stride(spec, a, r.pixels), pixels = count_of(spec, r.pixels);
  BoxedOperand o;
  o.port = number;
  o.k_fastest = false;
  o.map.type = p.type;
  o.map.swizzle = kStageLine;
  o.map.offset = a.offset * bytes;
  o.map.dim = {count_of(spec, r.side), pixels};
  if (!loadable_step(pixel, bytes)) return {};
  o.map.stride = {pixel * bytes};
  for (auto b = r.batch.rbegin(); b != r.batch.rend(); ++b) {
    if (a.stride[*b] == 0 || spec.extent[*b] == 1) continue;
    if (!loadable_step(a.stride[*b], bytes) || o.map.dim.size() == kMostMapDims) return {};
    o.batch.push_back(*b);
    o.map.dim.push_back(spec.extent[*b]);
    o.map.stride.push_back(a.stride[*b] * bytes);
  }
  return o;
}

}  // namespace

std::optional<DataType> multiplied_type(DataType stored, DataType operand) {
  if (stored == DataType::f32 && operand == DataType::tf32) return DataType::tf32;
  return takes_either_major(stored) || multiplied_as_bytes(stored, stored) ? std::optional(stored)
                                                                           : std::nullopt;
}

bool may_be_convolution(const ContractionSpec& c) {
  return is_single_product(c) && !c.has_scale_blocks() && (c.k() > 1 || c.m > 1 || c.n > 1);
}

std::optional<ImplicitGemm> implicit_gemm(const KernelSpec& given, bool image_is_a) {
  if (!may_be_convolution(given.contraction())) return {};
  auto roles = roles_of(given, image_is_a);
  if (!roles) return {};
  ImplicitGemm g{given, {}, {}, {}};
  KernelSpec& spec = g.spec;
  const auto operand = [&](bool a) -> const ProductOperand& {
    return a ? spec.contraction().a() : spec.contraction().b();
  };
  int image_port = -1, other_port = -1, image_index = -1;
  std::int64_t offset = 0;
  const KernelPort *image = loaded_port(spec, operand(image_is_a), image_port),
                   *other = loaded_port(spec, operand(!image_is_a), other_port);
  if (!image || !other ||
      (image->type != other->type && !multiplied_as_bytes(image->type, other->type)))
    return {};
  auto dims = image_dims(spec, *roles, image->access, image_index, offset);
  if (!dims) return {};
  const int rank = static_cast<int>(dims->size());
  for (std::size_t i = dims->size(); i-- > 0;) {
    const ImageDim& d = (*dims)[i];
    auto axis = axis_of(d, spec.extent, rank);
    // Phases number rows, which nothing else may number.
    if (!axis || (d.divisor > 1 && (roles->pixels_in_k || names_index(spec, d.pixel_index))))
      return {};
    if (!d.parts.empty()) {
      const auto& [index, step] = d.parts.front();
      if (!roles->pixels_in_k || d.parts.size() > 1 || d.pixel != 1) return {};
      axis->part = {index, step};
    }
    g.window.axes.push_back(std::move(*axis));
  }
  auto from_image =
      image_operand(spec, *roles, *image, image_port, *dims, g.window.axes, image_index, offset);
  auto from_other = roles->pixels_in_k ? gradient_operand(spec, *roles, *other, other_port)
                                       : filter_operand(spec, *roles, *other, other_port, *dims);
  if (!from_image || !from_other) return {};
  from_image->map.type = *multiplied_type(image->type, operand(image_is_a).type);
  from_other->map.type = *multiplied_type(other->type, operand(!image_is_a).type);
  for (const BoxedOperand& o : {*from_image, *from_other})
    if (!o.k_fastest && !takes_either_major(o.map.type)) return {};
  if (from_image->map.type != from_other->map.type &&
      !multiplied_as_bytes(from_image->map.type, from_other->map.type))
    return {};
  g.window.channels = count_of(spec, roles->channels);
  const int line = kStageLine / info(image->type).bytes;

  // The indices in their new order: batch entries, with phases and taps that batch entries number
  // behind them; pixels, outermost first; taps, the axes' outermost first, and channels.
  const bool taps_in_batch = roles->pixels_in_k && g.window.channels % line != 0;
  std::vector<int> batch = roles->batch, pixels, taps;
  if (image_index >= 0) pixels.push_back(image_index);
  for (const ImageDim& d : *dims)
    if (d.tap_index >= 0) taps.push_back(d.tap_index);
  std::vector<int> phases;
  int added = 0;  // by splits before this index
  const auto moved = [](std::vector<int>& list, int from) {
    for (int& i : list)
      if (i > from) ++i;
  };
  std::vector<int> channels = roles->channels, side = roles->side;
  for (const ImageDim& d : *dims) {
    if (d.pixel_index < 0) continue;
    const int at = d.pixel_index + added;
    if (d.divisor > 1) {
      ConvolutionWindow::Bound bound{Dims::filled(spec.extent.size() + 1, 0), spec.extent[at]};
      split_index(spec, at, d.divisor);
      for (auto* list : {&batch, &pixels, &taps, &channels, &side}) moved(*list, at);
      phases.push_back(at + 1);
      ++added;
      if (bound.end % d.divisor != 0) {
        bound.coefficient[at] = d.divisor;
        bound.coefficient[at + 1] = 1;
        for (auto& b : g.window.bounds) {
          Dims widened;
          for (int j = 0; j < b.coefficient.size(); ++j) {
            if (j == at + 1) widened.push_back(0);
            widened.push_back(b.coefficient[j]);
          }
          b.coefficient = widened;
        }
        g.window.bounds.push_back(std::move(bound));
      } else {
        for (auto& b : g.window.bounds) b.coefficient.push_back(0);
      }
    }
    pixels.push_back(at);
  }
  ContractionSpec& c = spec.contraction();
  if (taps_in_batch) {
    g.window.taps_of = ConvolutionWindow::Taps::batch;
  } else if (roles->pixels_in_k) {
    g.window.taps_of = ConvolutionWindow::Taps::columns;
  }
  std::vector<int> order = batch;
  const int first_phase = static_cast<int>(order.size());
  order.insert(order.end(), phases.begin(), phases.end());
  if (taps_in_batch)
    for (int t : taps) {
      g.window.tap_batch.push_back(static_cast<int>(order.size()));
      order.push_back(t);
    }
  const int new_batch = static_cast<int>(order.size());
  std::vector<int> image_side, k;
  if (roles->pixels_in_k) {
    if (!taps_in_batch) image_side = taps;
    image_side.insert(image_side.end(), channels.begin(), channels.end());
    k = pixels;
  } else {
    image_side = pixels;
    k = taps;
    k.insert(k.end(), channels.begin(), channels.end());
  }
  const auto append = [&](const std::vector<int>& list) {
    order.insert(order.end(), list.begin(), list.end());
  };
  if (image_is_a) append(image_side);
  append(side);
  if (!image_is_a) append(image_side);
  append(k);
  // Results that are reduced are numbered in the order that they had.
  const auto first_k = order.end() - static_cast<std::ptrdiff_t>(k.size());
  if (!spec.columns.empty() && (!phases.empty() || !std::is_sorted(order.begin(), first_k)))
    return {};
  c.batch = new_batch;
  (image_is_a ? c.m : c.n) = static_cast<int>(image_side.size());
  (image_is_a ? c.n : c.m) = static_cast<int>(side.size());
  reorder(spec, order);
  for (auto& b : g.window.bounds) {
    Dims r;
    for (int i : order) r.push_back(b.coefficient[i]);
    b.coefficient = r;
  }
  // Phases stand in the order of their dims, the outermost first; axes the other way round.
  int phase = first_phase + static_cast<int>(phases.size());
  for (WindowAxis& axis : g.window.axes)
    if (axis.taps.size() > 1) axis.phase_index = --phase;
  g.image = std::move(*from_image);
  g.other = std::move(*from_other);
  return g;
}

}  // namespace sinter
