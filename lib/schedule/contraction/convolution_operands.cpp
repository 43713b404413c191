#include "schedule/contraction/convolution_operands.hpp"

#include <algorithm>

#include "plan/tma_limits.hpp"

namespace sinter {
namespace {

using Source = BoxedOperand::Source;

BoxedOperand operand_of(const ConvolutionOperand& of, Source source, bool k_fastest) {
  BoxedOperand o;
  o.source = source;
  o.port = of.number;
  o.k_fastest = k_fastest;
  o.map.type = of.port.type;
  o.map.swizzle = kStageLine;
  return o;
}

bool is_part(const std::vector<WindowAxis>& axes, int batch_index) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const WindowAxis& axis) { return axis.part.index == batch_index; });
}

bool countable(const Dims& dims) {
  return std::all_of(dims.begin(), dims.end(),
                     [](std::int64_t n) { return n >= 1 && n < tma::kCoordinateEnd; });
}

// A dim of the pixels as it lies in memory; the innermost one tells images apart.
struct Side {
  std::int64_t extent, stride;
};

// `sides` innermost first; `rows`: the channels.
std::optional<BoxedOperand> of_images(const ConvolutionOperand& of, const ConvolutionImage& image,
                                      const std::vector<Side>& sides, const std::vector<int>& rows,
                                      std::int64_t offset) {
  const auto& [spec, r, p, number] = of;
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  BoxedOperand o = operand_of(of, Source::images, true);
  o.map.offset = (a.offset + offset) * bytes;
  const std::int64_t channel = joint_stride(spec, a, rows);
  if (sides.front().stride != 1 || o.map.offset % tma::kUnit != 0) return {};
  std::int64_t channels = count_of(spec, rows);
  for (int b : r.batch) {
    if (a.stride[b] == 0 || spec.extent[b] == 1 || is_part(image.axes, b)) continue;
    if (channel <= 0 || a.stride[b] % channel != 0) return {};
    o.channel_steps.push_back({b, a.stride[b] / channel});
    channels += a.stride[b] / channel * (spec.extent[b] - 1);
  }
  std::vector<Side> others(sides.begin() + 1, sides.end());
  others.insert(others.begin(), {channels, channel});
  o.map.dim = {sides.front().extent};
  for (const Side& side : others) {
    if (!tma::takes_step(side.stride * bytes)) return {};
    o.map.dim.push_back(side.extent);
    o.map.stride.push_back(side.stride * bytes);
  }
  return countable(o.map.dim) ? std::optional(o) : std::nullopt;
}

}  // namespace

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

std::optional<BoxedOperand> image_operand(const ConvolutionOperand& of,
                                          const ConvolutionImage& image) {
  const auto& [spec, r, p, number] = of;
  const auto& [dims, axes, image_index, offset] = image;
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  BoxedOperand o = operand_of(of, Source::pixels, !r.pixels_in_k);
  std::int64_t channels = count_of(spec, r.channels),
               images = image_index < 0 ? 1 : spec.extent[image_index],
               image_step = image_index < 0 ? 0 : a.stride[image_index];
  std::int64_t span = 0;  // of one image
  for (const ImageDim& d : dims) span = std::max(span, d.stride * d.extent);
  if (joint_stride(spec, a, r.channels) != 1) return {};
  for (int b : r.batch) {
    const std::int64_t s = a.stride[b];
    if (is_part(axes, b)) continue;
    for (const Window& w : a.windows)
      if (w.coefficient[b] != 0) return {};
    if (s == 0) continue;
    if (image_step == 0 && s >= span) image_step = s;
    if (image_step > 0 && s % image_step == 0) {
      o.image_steps.push_back({b, s / image_step});
      images += s / image_step * (spec.extent[b] - 1);
    } else if (s > 0 && s * bytes % 16 == 0) {
      // Past a group's channels a line holds those of the next one, which meet zeros of the filter
      // (sees_other_groups()) or, of a filter's gradient, give columns that do not exist.
      o.channel_steps.push_back({b, s});
      channels += s * (spec.extent[b] - 1);
    } else {
      return {};
    }
  }
  o.map.offset = (a.offset + offset) * bytes;
  if (o.map.offset % tma::kUnit != 0) return {};
  o.map.dim = {channels};
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (!tma::takes_step(dims[i].stride * bytes)) return {};
    o.map.dim.push_back(dims[i].extent);
    o.map.stride.push_back(dims[i].stride * bytes);
  }
  o.map.dim.push_back(images);
  if (image_step == 0) image_step = tma::any_step(span);
  if (!tma::takes_step(image_step * bytes)) return {};
  o.map.stride.push_back(image_step * bytes);
  if (!countable(o.map.dim)) return {};
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

std::optional<BoxedOperand> filter_operand(const ConvolutionOperand& of,
                                           const std::vector<ImageDim>& dims) {
  const auto& [spec, r, p, number] = of;
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  if (!a.windows.empty()) return {};
  BoxedOperand o = operand_of(of, Source::filter, true);
  o.map.offset = a.offset * bytes;
  o.k_fastest = joint_stride(spec, a, r.channels) == 1;
  const std::vector<int>&first = o.k_fastest ? r.channels : r.side,
        &last = o.k_fastest ? r.side : r.channels;
  if (joint_stride(spec, a, first) != 1) return {};
  o.map.dim = {count_of(spec, first)};
  const auto add = [&](std::int64_t extent, std::int64_t stride) {
    if (!tma::takes_step(stride * bytes)) return false;
    o.map.dim.push_back(extent);
    o.map.stride.push_back(stride * bytes);
    return true;
  };
  for (std::size_t i = dims.size(); i-- > 0;)
    if (const int t = dims[i].tap_index; t >= 0) {
      o.filter_axes.push_back(static_cast<int>(dims.size() - 1 - i));
      if (!add(spec.extent[t], a.stride[t])) return {};
    }
  const std::int64_t lines = count_of(spec, last),  // one line may lie at any distance of itself
      apart = lines == 1 ? tma::kUnit / bytes : joint_stride(spec, a, last);
  const int of_lines = o.map.dim.size();
  if (!add(lines, apart)) return {};
  for (auto b = r.batch.rbegin(); b != r.batch.rend(); ++b) {
    if (a.stride[*b] == 0 || spec.extent[*b] == 1) continue;
    if (o.map.dim.size() < tma::kMostDims) {
      o.batch.push_back(*b);
      if (!add(spec.extent[*b], a.stride[*b])) return {};
      continue;
    }
    // Volumes in groups: lines of all groups are one dim. Rows past a group's end are none of the
    // result; lines of k there would meet the next group's, so that they must end with a stage.
    if (a.stride[*b] % apart != 0 || (!o.k_fastest && lines % (kStageLine / bytes) != 0)) return {};
    const std::int64_t step = a.stride[*b] / apart;
    (o.k_fastest ? o.row_steps : o.channel_steps).push_back({*b, step});
    o.map.dim[of_lines] += step * (spec.extent[*b] - 1);
  }
  return o;
}

std::optional<BoxedOperand> gradient_operand(const ConvolutionOperand& of) {
  const auto& [spec, r, p, number] = of;
  const Access& a = p.access;
  const int bytes = info(p.type).bytes;
  if (!a.windows.empty() || joint_stride(spec, a, r.side) != 1) return {};
  const std::int64_t pixel = joint_stride(spec, a, r.pixels), pixels = count_of(spec, r.pixels);
  BoxedOperand o = operand_of(of, Source::boxes, false);
  o.map.offset = a.offset * bytes;
  o.map.dim = {count_of(spec, r.side), pixels};
  if (!tma::takes_step(pixel * bytes)) return {};
  o.map.stride = {pixel * bytes};
  for (auto b = r.batch.rbegin(); b != r.batch.rend(); ++b) {
    if (a.stride[*b] == 0) continue;
    if (!tma::takes_step(a.stride[*b] * bytes) || o.map.dim.size() == tma::kMostDims) return {};
    o.batch.push_back(*b);
    o.map.dim.push_back(spec.extent[*b]);
    o.map.stride.push_back(a.stride[*b] * bytes);
  }
  return o;
}

std::optional<BoxedOperand> images_of_image(const ConvolutionOperand& of,
                                            const ConvolutionImage& image) {
  std::vector<Side> sides;
  for (auto d = image.dims.rbegin(); d != image.dims.rend(); ++d)
    sides.push_back({d->extent, d->stride});
  // TMA loads neighbours, from multiples of 16 bytes on.
  const WindowAxis& k = image.axes.front();
  const std::int64_t unit = tma::kUnit / info(of.port.type).bytes;
  if (k.step != 1 || k.taps.size() != 1 || k.first % unit != 0 ||
      (k.taps[0] > 1 && k.offset_step % unit != 0))
    return {};
  return of_images(of, image, sides, of.roles.channels, image.offset);
}

std::optional<BoxedOperand> images_of_result(const ConvolutionOperand& of,
                                             const ConvolutionImage& image) {
  const Access& a = of.port.access;
  if (!a.windows.empty()) return {};
  // Counted in steps of the image's coordinates, of which each stride has a result.
  std::vector<Side> sides;
  for (std::size_t i = 0; i < image.axes.size(); ++i) {
    const WindowAxis& axis = image.axes[i];
    const int pixel = image.dims[image.dims.size() - 1 - i].pixel_index;
    const bool parts = axis.part.index >= 0;
    const std::int64_t stride = a.stride[parts ? axis.part.index : pixel],
                       step = parts ? axis.part.step : axis.step;
    if (stride % step != 0) return {};
    Side side{(axis.result - 1) * axis.step + 1, stride / step};
    if (parts && axis.result > 1 && a.stride[pixel] != side.stride * axis.step) return {};
    if (parts) side.extent += step * (of.spec.extent[axis.part.index] - 1);
    sides.push_back(side);
  }
  auto o = of_images(of, image, sides, of.roles.side, 0);
  if (o) o->of_result = true;
  return o;
}

}  // namespace sinter
