#include "schedule/contraction/implicit_gemm.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "plan/access.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

using Source = BoxedOperand::Source;

constexpr int kMostAxes = 3, kMostMapDims = 5;
constexpr std::int64_t kMostStep = 8, kMostExtent = std::int64_t{1} << 31;
// Of images of 1, 2 and 3 dims.
constexpr std::int64_t kCornerEnd[] = {32768, 128, 16}, kOffsetEnd[] = {65535, 255, 31};

// The indices of the domain by what they are, the outermost first. `side`: of the other operand's
// rows or columns. Channels are one index, or several that lie as one in the image; so do the
// side's in the other operand.
struct Roles {
  std::vector<int> batch, pixels, taps, channels, side;
  bool pixels_in_k = false;
};

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
  for (int i = 0; i < c.batch; ++i) r.batch.push_back(i);
  const int image_from = image_is_a ? c.first_m() : c.first_n(),
            image_size = image_is_a ? c.m : c.n, side_from = image_is_a ? c.first_n() : c.first_m(),
            side_size = image_is_a ? c.n : c.m;
  for (int i = side_from; i < side_from + side_size; ++i) r.side.push_back(i);
  if (r.side.empty()) return {};
  std::vector<int> of_k;
  for (int i = 0; i < c.k(); ++i) {
    const int index = c.first_k() + i;
    switch (c.k_indices[static_cast<std::size_t>(i)]) {
      case KIndex::pixels:
        r.pixels_in_k = true;
        r.pixels.push_back(index);
        break;
      case KIndex::filter_tap:
        r.taps.push_back(index);
        break;
      case KIndex::channels:
        r.channels.push_back(index);
        break;
      case KIndex::scale_block:
        return {};
    }
  }
  for (int i = image_from; i < image_from + image_size; ++i)
    (r.pixels_in_k ? r.taps : r.pixels).push_back(i);
  if (r.pixels_in_k) {
    if (!r.channels.empty()) return {};
    // Of taps and channels, which are the columns, the channels lie together.
    const Body& image = (image_is_a ? c.a() : c.b()).body;
    if (image.statements.size() != 1 || !is_load(image.statements.front())) return {};
    const Access& a = spec.ports[static_cast<std::size_t>(image.statements.front().port)].access;
    std::int64_t next = 1;
    while (!r.taps.empty() && a.stride[r.taps.back()] == next) {
      next *= spec.extent[r.taps.back()];
      r.channels.insert(r.channels.begin(), r.taps.back());
      r.taps.pop_back();
    }
  }
  if (r.channels.empty() || r.pixels.empty()) return {};
  return r;
}

// The port that the operand loads as it is, windows and all.
const KernelPort* loaded_port(const KernelSpec& spec, const ProductOperand& operand, int& number) {
  const auto& all = operand.body.statements;
  if (all.size() != 1 || !is_load(all.front()) || !all.front().args.empty()) return nullptr;
  number = all.front().port;
  const KernelPort& p = spec.ports[static_cast<std::size_t>(number)];
  const bool pairs = p.type == DataType::bf16 || p.type == DataType::f16;
  if (!pairs || p.alignment < 16 || !p.access.via.empty()) return nullptr;
  if (p.access.offset * info(p.type).bytes % 16 != 0) return nullptr;
  return &p;
}

bool loadable_step(std::int64_t stride, int bytes) {
  return stride > 0 && stride * bytes % 16 == 0 && stride * bytes < (std::int64_t{1} << 40);
}

// Coordinate along a spatial dim: (base + pixel * p + tap * t) / divisor, of `extent`, each
// coordinate `stride` elements further.
struct SpatialDim {
  int pixel_index = -1, tap_index = -1;
  std::int64_t base = 0, pixel = 1, tap = 0, divisor = 1, extent = 1, stride = 0;
};

bool contains(const std::vector<int>& list, int x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

std::optional<SpatialDim> windowed_dim(const Window& w, const Roles& r) {
  SpatialDim d;
  d.base = w.base;
  d.divisor = w.divisor;
  d.extent = w.extent;
  d.stride = w.stride;
  for (int i = 0; i < w.coefficient.size(); ++i) {
    if (w.coefficient[i] == 0) continue;
    if (contains(r.pixels, i) && d.pixel_index < 0) {
      d.pixel_index = i;
      d.pixel = w.coefficient[i];
    } else if (contains(r.taps, i) && d.tap_index < 0) {
      d.tap_index = i;
      d.tap = w.coefficient[i];
    } else {
      return {};
    }
  }
  if (d.pixel_index < 0 || d.pixel < 1) return {};
  if (d.divisor > 1 && d.pixel != 1) return {};
  return d;
}

// The spatial dims of the image, in the order of their pixel indices, outermost first. Where no
// window bounds a dim, its unit is what both of its indices step in; `offset`: of coordinate 0.
std::optional<std::vector<SpatialDim>> spatial_dims(const KernelSpec& spec, const Roles& r,
                                                    const Access& a, int& image_index,
                                                    std::int64_t& offset) {
  std::vector<SpatialDim> dims;
  std::vector<int> free_pixels = r.pixels, free_taps = r.taps;
  for (const Window& w : a.windows) {
    auto d = windowed_dim(w, r);
    if (!d || !contains(free_pixels, d->pixel_index)) return {};
    if (a.stride[d->pixel_index] != 0) return {};
    std::erase(free_pixels, d->pixel_index);
    if (d->tap_index >= 0) {
      if (!contains(free_taps, d->tap_index) || a.stride[d->tap_index] != 0) return {};
      std::erase(free_taps, d->tap_index);
    }
    dims.push_back(*d);
  }
  for (int t : free_taps) {  // beside the pixel index whose step is most like its own
    const std::int64_t step = std::abs(a.stride[t]);
    const auto unlike = [&](int p) {
      return std::max(step, a.stride[p]) / std::max<std::int64_t>(1, std::min(step, a.stride[p]));
    };
    const auto p = std::min_element(free_pixels.begin(), free_pixels.end(),
                                    [&](int x, int y) { return unlike(x) < unlike(y); });
    if (p == free_pixels.end() || step == 0 || a.stride[*p] < 1) return {};
    SpatialDim d;
    d.pixel_index = *p;
    d.tap_index = t;
    d.stride = std::gcd(step, a.stride[*p]);
    d.pixel = a.stride[*p] / d.stride;
    d.tap = a.stride[t] / d.stride;
    const std::int64_t reach = d.tap * (spec.extent[t] - 1);
    d.base = reach < 0 ? -reach : 0;
    offset -= d.base * d.stride;
    d.extent = d.pixel * (spec.extent[*p] - 1) + std::abs(reach) + 1;
    free_pixels.erase(p);
    dims.push_back(d);
  }
  // What is left steps by itself; the outermost pixel index tells images apart.
  image_index = -1;
  for (int p : free_pixels) {
    if (a.stride[p] < 1) return {};
    if (p == r.pixels.front() && r.pixels.size() > 1) {
      image_index = p;
      continue;
    }
    SpatialDim d;
    d.pixel_index = p;
    d.stride = a.stride[p];
    d.extent = spec.extent[p];
    dims.push_back(d);
  }
  if (dims.empty() || dims.size() > kMostAxes) return {};
  std::sort(dims.begin(), dims.end(),
            [](const SpatialDim& x, const SpatialDim& y) { return x.pixel_index < y.pixel_index; });
  return dims;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return (a - (a % b + b) % b) / b; }

// How TMA walks over the dim. `rank`: of the image.
std::optional<WindowAxis> axis_of(const SpatialDim& d, const Dims& extent, int rank) {
  WindowAxis axis;
  const std::int64_t taps = d.tap_index < 0 ? 1 : extent[d.tap_index], u = d.divisor;
  axis.result = (extent[d.pixel_index] + u - 1) / u;
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
  const std::int64_t upper = axis.first + (axis.result - 1) * axis.step + 1 - d.extent,
                     end = kCornerEnd[rank - 1];
  if (axis.step > kMostStep || most - least >= kOffsetEnd[rank - 1]) return {};
  if (axis.first < -end || axis.first >= end || upper < -end || upper >= end) return {};
  return axis;
}

// The largest offset of a tap, of the first phase.
std::int64_t most_offset(const WindowAxis& axis) {
  return std::max(axis.first_offset[0],
                  axis.first_offset[0] + (axis.taps[0] - 1) * axis.offset_step);
}

// Index i becomes two: one that counts runs of `run`, and behind it the place in the run.
void split_index(KernelSpec& spec, int i, std::int64_t run) {
  const auto split = [&](Dims& dims, std::int64_t outer, std::int64_t inner) {
    if (dims.empty()) return;
    Dims r;
    for (int j = 0; j < dims.size(); ++j) {
      if (j == i) r.push_back(outer);
      r.push_back(j == i ? inner : dims[j]);
    }
    dims = r;
  };
  const auto access = [&](Access& a) {
    if (a.via.empty() && !a.stride.empty()) split(a.stride, a.stride[i] * run, a.stride[i]);
    for (auto& w : a.windows) split(w.coefficient, w.coefficient[i] * run, w.coefficient[i]);
  };
  split(spec.extent, (spec.extent[i] + run - 1) / run, run);
  for (auto& p : spec.ports) access(p.access);
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) {
      access(s.access);
      if (s.kind == StatementKind::index && s.dim > i) ++s.dim;
    }
  ContractionSpec& c = spec.contraction();
  ++(i < c.first_m() ? c.batch : i < c.first_n() ? c.m : c.n);
}

bool names_index(const KernelSpec& spec, int i) {
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (s.kind == StatementKind::index && s.dim == i) return true;
  return false;
}

// The image as an im2col map. Its box is set later.
std::optional<BoxedOperand> image_operand(const KernelSpec& spec, const Roles& r,
                                          const KernelPort& p, int number,
                                          const std::vector<SpatialDim>& dims,
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
  for (const SpatialDim& d : dims) span = std::max(span, d.stride * d.extent);
  if (joint_stride(spec, a, r.channels) != 1) return {};
  for (int b : r.batch) {
    const std::int64_t s = a.stride[b];
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
                                           const std::vector<SpatialDim>& dims) {
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

// Neighbouring lines of pixels share the zeros between them: positions of a line, so that what a
// tap reads past its end is zero and lies at the start of the next. `extent`: pixels of the image.
std::int64_t pitch_of(const WindowAxis& axis, std::int64_t extent) {
  const std::int64_t reach = most_offset(axis), apart = axis.result + reach;
  if (axis.first > 0) return apart;
  return std::min(apart, std::max(apart + axis.first, extent - axis.first));
}

}  // namespace

bool keep_pixels(ImplicitGemm& g, bool image_is_a) {
  const ContractionSpec& c = g.spec.contraction();
  ConvolutionWindow& w = g.window;
  if (!image_is_a || w.taps_of != ConvolutionWindow::Taps::k || !g.spec.columns.empty())
    return false;
  std::int64_t taps = 1;
  for (const WindowAxis& axis : w.axes) {
    if (axis.taps.size() > 1 || axis.step != 1) return false;
    taps *= axis.taps[0];
  }
  if (taps == 1) return false;
  const std::int64_t end = kCornerEnd[w.axes.size() - 1];
  for (std::size_t i = 0; i < w.axes.size(); ++i) {
    WindowAxis& axis = w.axes[i];
    const int index = c.first_n() - 1 - static_cast<int>(i), d = static_cast<int>(i);
    const std::int64_t extent = g.image.map.dim[d + 1], pitch = pitch_of(axis, extent);
    if (names_index(g.spec, index)) return false;
    if (pitch != axis.result) {
      ConvolutionWindow::Bound bound{Dims::filled(g.spec.extent.size(), 0), axis.result};
      bound.coefficient[index] = 1;
      w.bounds.push_back(std::move(bound));
    }
    g.spec.extent[index] = axis.result = pitch;
    g.image.map.upper[d] = axis.first + pitch - extent;
    if (g.image.map.upper[d] < -end || g.image.map.upper[d] >= end) return false;
  }
  return true;
}

bool keep_gradient_pixels(ImplicitGemm& g, bool image_is_a) {
  using Taps = ConvolutionWindow::Taps;
  ConvolutionWindow& w = g.window;
  KernelSpec& spec = g.spec;
  ContractionSpec& c = spec.contraction();
  if (image_is_a || w.taps_of == Taps::k || !w.bounds.empty() || !spec.columns.empty() ||
      c.m != 1 || g.image.image_steps.size() > 1 || !g.image.channel_steps.empty())
    return false;
  std::int64_t taps = 1;
  int tapped = 0;
  for (const WindowAxis& axis : w.axes) {
    if (axis.step != 1) return false;
    taps *= axis.taps[0];
    tapped += axis.taps[0] > 1;
  }
  if (taps == 1) return false;
  // Taps and channels: the innermost columns, or batch entries and all columns.
  const bool in_batch = w.taps_of == Taps::batch;
  if (c.n != (in_batch ? 1 : tapped + 1)) return false;
  const int rank = static_cast<int>(w.axes.size()), images = c.k() - rank;  // indices
  const bool parts = !g.image.image_steps.empty();
  if (images < 0 || images > 1 || (parts && (images == 0 || rank == kMostAxes))) return false;
  const int line = kStageLine / info(g.image.map.type).bytes;

  // The result's gradient, by pixels instead of boxes of joined ones.
  const Access of_result = spec.ports[static_cast<std::size_t>(g.other.port)].access;
  const int bytes = info(g.other.map.type).bytes;
  BoxedOperand result = g.other;
  result.source = Source::pixels;
  result.of_result = true;
  result.batch.clear();
  result.image_steps = g.image.image_steps;
  result.map.dim = {g.other.map.dim[0]};
  result.map.stride = {};
  const int first_k = c.first_k();
  const std::int64_t end = kCornerEnd[static_cast<std::size_t>(rank - 1 + parts)];
  for (int i = 0; i < rank; ++i) {
    WindowAxis& axis = w.axes[static_cast<std::size_t>(i)];
    const int index = first_k + c.k() - 1 - i;
    const std::int64_t extent = g.image.map.dim[i + 1], pixels = axis.result,
                       pitch = pitch_of(axis, extent);
    result.map.dim.push_back(pixels);
    result.map.stride.push_back(of_result.stride[index] * bytes);
    result.map.lower.push_back(0);
    result.map.upper.push_back(pitch - pixels);
    result.map.step.push_back(1);
    spec.extent[index] = axis.result = pitch;
    g.image.map.upper[i] = axis.first + pitch - extent;
    for (const BoxedOperand* o : {&g.image, &result})
      if (o->map.lower[i] < -end || o->map.upper[i] < -end || o->map.upper[i] >= end) return false;
  }
  // Images of a part are a dim of their own, so that a part's last stage reads no other part's.
  const std::int64_t each = images > 0 ? spec.extent[first_k] : 1;
  const std::int64_t result_step =
      images > 0 ? of_result.stride[first_k] * bytes
                 : (result.map.dim[rank] * result.map.stride[rank - 1] + 15) / 16 * 16;
  result.map.dim.push_back(each);
  result.map.stride.push_back(result_step);
  if (parts) {
    const auto& part = g.image.image_steps.front();
    const std::int64_t count = spec.extent[part.index];
    if (part.step != each || of_result.stride[part.index] != of_result.stride[first_k] * each)
      return false;
    for (BoxedOperand* o : {&g.image, &result}) {
      o->map.dim[rank + 1] = each;
      o->map.dim.push_back(count);
      o->map.stride.push_back(o->map.stride[rank] * each);
      o->map.lower.push_back(0);
      o->map.upper.push_back(1);
      o->map.step.push_back(1);
      o->image_steps = {{part.index, 1}};
    }
    WindowAxis of_images;
    of_images.result = each + 1;
    w.axes.push_back(of_images);
  }
  g.other = std::move(result);

  // Columns: lines of channels, taps, channels.
  const int channel = c.first_k() - 1;
  if (w.channels % line != 0) {
    ConvolutionWindow::Bound bound{Dims::filled(spec.extent.size() + 1, 0), w.channels};
    bound.coefficient[channel] = line;
    bound.coefficient[channel + 1] = 1;
    w.bounds.push_back(std::move(bound));
  }
  split_index(spec, channel, line);  // its line is at `channel` then
  std::vector<int> order, of_taps;
  for (int i = 0; i < c.batch; ++i)
    (std::find(w.tap_batch.begin(), w.tap_batch.end(), i) != w.tap_batch.end() ? of_taps : order)
        .push_back(i);
  const int batch = static_cast<int>(order.size());
  for (int i = c.first_m(); i < c.first_n(); ++i) order.push_back(i);
  for (int i = c.first_n(); i < channel; ++i) of_taps.push_back(i);
  order.push_back(channel);
  order.insert(order.end(), of_taps.begin(), of_taps.end());
  order.push_back(channel + 1);
  for (int i = channel + 2; i < spec.extent.size(); ++i) order.push_back(i);
  c.n = static_cast<int>(of_taps.size()) + 2;
  c.batch = batch;
  reorder(spec, order);
  for (auto& b : w.bounds) {
    Dims r;
    for (int i : order) r.push_back(b.coefficient[i]);
    b.coefficient = r;
  }
  const auto renumber = [&](std::vector<BoxedOperand::BatchStep>& steps) {
    for (auto& s : steps)
      s.index = static_cast<int>(std::find(order.begin(), order.end(), s.index) - order.begin());
  };
  renumber(g.image.image_steps);
  renumber(g.other.image_steps);
  w.taps_of = Taps::batch;
  w.tap_batch.clear();
  return true;
}

std::int64_t reach_of(const ConvolutionWindow& w) {
  std::int64_t lines = 0, pitch = 1;
  for (const WindowAxis& axis : w.axes) {
    lines += most_offset(axis) * pitch;
    pitch *= axis.result;
  }
  return lines;
}

bool may_be_convolution(const ContractionSpec& c) {
  return c.products.size() == 1 && !c.rows.on && c.zero_dominates == ZeroOf::neither &&
         c.accumulate == DataType::f32 && !c.has_scale_blocks() &&
         (c.k() > 1 || c.m > 1 || c.n > 1);
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
  if (!image || !other || image->type != other->type) return {};
  auto dims = spatial_dims(spec, *roles, image->access, image_index, offset);
  if (!dims) return {};
  const int rank = static_cast<int>(dims->size());
  for (std::size_t i = dims->size(); i-- > 0;) {
    const SpatialDim& d = (*dims)[i];
    auto axis = axis_of(d, spec.extent, rank);
    // Phases number rows, which nothing else may number.
    if (!axis || (d.divisor > 1 && (roles->pixels_in_k || names_index(spec, d.pixel_index))))
      return {};
    g.window.axes.push_back(std::move(*axis));
  }
  auto from_image =
      image_operand(spec, *roles, *image, image_port, *dims, g.window.axes, image_index, offset);
  auto from_other = roles->pixels_in_k ? gradient_operand(spec, *roles, *other, other_port)
                                       : filter_operand(spec, *roles, *other, other_port, *dims);
  if (!from_image || !from_other) return {};
  g.window.channels = count_of(spec, roles->channels);
  const int line = kStageLine / info(image->type).bytes;

  // The indices in their new order: batch entries, with phases and taps that batch entries number
  // behind them; pixels, outermost first; taps, the axes' outermost first, and channels.
  const bool taps_in_batch = roles->pixels_in_k && g.window.channels % line != 0;
  std::vector<int> batch = roles->batch, pixels, taps;
  if (image_index >= 0) pixels.push_back(image_index);
  for (const SpatialDim& d : *dims)
    if (d.tap_index >= 0) taps.push_back(d.tap_index);
  std::vector<int> phases;
  int added = 0;  // by splits before this index
  const auto moved = [](std::vector<int>& list, int from) {
    for (int& i : list)
      if (i > from) ++i;
  };
  std::vector<int> channels = roles->channels, side = roles->side;
  for (const SpatialDim& d : *dims) {
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
  if (!spec.columns.empty() && (!phases.empty() || !std::is_sorted(order.begin(), order.end())))
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
