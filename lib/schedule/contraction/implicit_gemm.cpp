#include "schedule/contraction/implicit_gemm.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/convolution_operands.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

using Roles = ConvolutionRoles;

// Whether a column of a filter gradient is a tap, which windows of the image name.
bool moves_pixels(const Access& a, int column) {
  return std::any_of(a.windows.begin(), a.windows.end(),
                     [&](const Window& w) { return w.coefficient[column] != 0; });
}

// `a`: the image's; `k_together`: of a filter gradient k lies together in it, not channels.
std::optional<Roles> roles_of(const KernelSpec& spec, bool image_is_a, const Access& a,
                              bool k_together) {
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
    if (k_together) {
      r.channels = r.taps;
      std::erase_if(r.channels, [&](int i) { return moves_pixels(a, i); });
      std::erase_if(r.taps, [&](int i) { return !moves_pixels(a, i); });
    } else {
      std::int64_t next = 1;
      const auto follows = [&](int i) { return a.stride[i] == next; };
      for (auto i = std::find_if(r.taps.rbegin(), r.taps.rend(), follows); i != r.taps.rend();
           i = std::find_if(r.taps.rbegin(), r.taps.rend(), follows)) {
        next *= spec.extent[*i];
        r.channels.insert(r.channels.begin(), *i);
        r.taps.erase(std::next(i).base());
      }
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
                     end = tma::kCornerEnd[rank - 1];
  if (axis.step > tma::kMostPixelStep || most - least >= tma::kOffsetEnd[rank - 1]) return {};
  if (axis.first < -end || axis.first >= end || upper < -end || upper >= end) return {};
  return axis;
}

}  // namespace

std::optional<DataType> multiplied_type(DataType stored, DataType operand) {
  if (stored == DataType::f32 && operand == DataType::tf32) return DataType::tf32;
  return takes_either_major(stored) || multiplied_as_bytes(stored, stored) ? std::optional(stored)
                                                                           : std::nullopt;
}

std::vector<std::int64_t> taps_of_phases(const ConvolutionWindow& window) {
  std::vector<std::int64_t> all{1};  // the innermost axis numbers the fastest
  for (auto axis = window.axes.rbegin(); axis != window.axes.rend(); ++axis) {
    std::vector<std::int64_t> next;
    for (const std::int64_t taps : all)
      for (const std::int64_t more : axis->taps) next.push_back(taps * more);
    all = std::move(next);
  }
  return all;
}

std::vector<std::int64_t> deepest_first(const ConvolutionWindow& window) {
  const std::vector<std::int64_t> taps = taps_of_phases(window);
  const auto deepest = std::minmax_element(taps.begin(), taps.end());
  if (*deepest.first == *deepest.second) return {};
  std::vector<std::int64_t> order(taps.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t x, std::int64_t y) {
    return taps[static_cast<std::size_t>(x)] > taps[static_cast<std::size_t>(y)];
  });
  return order;
}

bool may_be_convolution(const ContractionSpec& c) {
  return is_single_product(c) && !c.has_scale_blocks() && (c.k() > 1 || c.m > 1 || c.n > 1);
}

std::optional<ImplicitGemm> implicit_gemm(const KernelSpec& given, bool image_is_a) {
  if (!may_be_convolution(given.contraction())) return {};
  ImplicitGemm g{given, {}, {}, {}};
  KernelSpec& spec = g.spec;
  ContractionSpec& c = spec.contraction();
  if (int& side = image_is_a ? c.n : c.m; side == 0) {  // one filter, or one channel of the result
    add_unit_index(spec, image_is_a ? c.first_k() : c.first_m());
    side = 1;
  }
  const auto operand = [&](bool a) -> const ProductOperand& {
    return a ? spec.contraction().a() : spec.contraction().b();
  };
  int image_port = -1, other_port = -1;
  const KernelPort *image = loaded_port(spec, operand(image_is_a), image_port),
                   *other = loaded_port(spec, operand(!image_is_a), other_port);
  if (!image || !other ||
      (image->type != other->type && !multiplied_as_bytes(image->type, other->type)))
    return {};
  const DataType image_type = *multiplied_type(image->type, operand(image_is_a).type),
                 other_type = *multiplied_type(other->type, operand(!image_is_a).type);
  // Of these types k must be the fastest: in a filter gradient an index that no tap moves, which is
  // that of images.
  const bool k_together = !takes_either_major(image_type);
  auto roles = roles_of(spec, image_is_a, image->access, k_together);
  if (!roles) return {};
  const bool by_images = roles->pixels_in_k && k_together;
  int image_index = -1;
  std::int64_t offset = 0;
  auto dims = image_dims(spec, *roles, image->access, image_index, offset);
  if (!dims) return {};
  if (by_images && image_index >= 0) {
    // Its maps count no images beside the innermost dim: what tells these apart is one more dim.
    if (dims->size() == kMostAxes) return {};
    ImageDim images;
    images.pixel_index = std::exchange(image_index, -1);
    images.extent = spec.extent[images.pixel_index];
    images.stride = image->access.stride[images.pixel_index];
    dims->insert(dims->begin(), images);
  }
  const int rank = static_cast<int>(dims->size());
  for (std::size_t i = dims->size(); i-- > 0;) {
    const ImageDim& d = (*dims)[i];
    auto axis = axis_of(d, spec.extent, rank);
    // Phases number rows, which nothing else may number.
    if (!axis || (d.divisor > 1 && (roles->pixels_in_k || names_index(spec, d.pixel_index))))
      return {};
    if (!d.parts.empty()) {
      const auto& [index, step] = d.parts.front();
      if (!roles->pixels_in_k || d.parts.size() > 1 || (d.pixel != 1 && !by_images)) return {};
      axis->part = {index, step};
    }
    g.window.axes.push_back(std::move(*axis));
  }
  const ConvolutionOperand of_image{spec, *roles, *image, image_port},
      of_other{spec, *roles, *other, other_port};
  const ConvolutionImage whole{*dims, g.window.axes, image_index, offset};
  auto from_image = by_images ? images_of_image(of_image, whole) : image_operand(of_image, whole);
  auto from_other = by_images            ? images_of_result(of_other, whole)
                    : roles->pixels_in_k ? gradient_operand(of_other)
                                         : filter_operand(of_other, *dims);
  if (!from_image || !from_other) return {};
  from_image->map.type = image_type;
  from_other->map.type = other_type;
  for (const BoxedOperand& o : {*from_image, *from_other})
    if (!o.k_fastest && !takes_either_major(o.map.type)) return {};
  if (from_image->map.type != from_other->map.type &&
      !multiplied_as_bytes(from_image->map.type, from_other->map.type))
    return {};
  g.window.channels = count_of(spec, roles->channels);
  const int line = kStageLine / info(image->type).bytes;
  if (by_images) {  // of a pixel, in whole stages
    WindowAxis& images = g.window.axes.front();
    if (images.part.index >= 0 && images.result % line != 0) return {};
    images.result = (images.result + line - 1) / line * line;
    spec.extent[dims->back().pixel_index] = images.result;
  }

  // The indices in their new order: batch entries, with phases and taps that batch entries number
  // behind them; pixels, outermost first; taps, the axes' outermost first, and channels.
  const bool taps_in_batch =
      roles->pixels_in_k && g.window.channels % (by_images ? kFewestTogether : line) != 0;
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
