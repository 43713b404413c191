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

// The port that an operand loads, where TMA brings it as it is multiplied.
const KernelPort* boxed_port(const KernelSpec& spec, const ProductOperand& operand, int& number) {
  const KernelPort* const p = loaded_port(spec, operand, number);
  const bool fits = p && multiplied_type(p->type, operand.type) && p->alignment >= 16 &&
                    p->access.offset * info(p->type).bytes % 16 == 0;
  return fits ? p : nullptr;
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

namespace {

// The steps of implicit_gemm(), in order; false where this is no such convolution.
class ImplicitGemmOf {
 public:
  ImplicitGemmOf(const KernelSpec& given, bool image_is_a)
      : g_{given, {}, {}, {}}, image_is_a_(image_is_a) {}

  std::optional<ImplicitGemm> make() {
    add_side();
    if (!find_ports() || !find_dims() || !find_axes() || !find_boxes() || !fill_stages()) return {};
    split_phases();
    if (!order_indices()) return {};
    return std::move(g_);
  }

 private:
  ImplicitGemm g_;
  const bool image_is_a_;
  const KernelPort *image_ = nullptr, *other_ = nullptr;
  int image_port_ = -1, other_port_ = -1;
  DataType image_type_{}, other_type_{};
  Roles roles_;
  // A filter gradient of a type whose operands have k fastest: an index that no tap moves, which is
  // that of images.
  bool by_images_ = false;
  std::vector<ImageDim> dims_;
  int image_index_ = -1;  // tells images apart beside the dims
  std::int64_t offset_ = 0;
  std::optional<BoxedOperand> image_box_, other_box_;
  std::vector<int> pixels_, phases_, taps_;

  KernelSpec& spec() { return g_.spec; }
  ContractionSpec& contraction() { return g_.spec.contraction(); }
  const ProductOperand& operand(bool a) { return a ? contraction().a() : contraction().b(); }
  // Pixels that a stage holds, of 16-bit channels.
  int line() const { return kStageLine / info(image_->type).bytes; }

  // One filter, or one channel of the result, has no index.
  void add_side() {
    ContractionSpec& c = contraction();
    int& side = image_is_a_ ? c.n : c.m;
    if (side != 0) return;
    add_unit_index(spec(), image_is_a_ ? c.first_k() : c.first_m());
    side = 1;
  }

  bool find_ports() {
    image_ = boxed_port(spec(), operand(image_is_a_), image_port_);
    other_ = boxed_port(spec(), operand(!image_is_a_), other_port_);
    if (!image_ || !other_ ||
        (image_->type != other_->type && !multiplied_as_bytes(image_->type, other_->type)))
      return false;
    image_type_ = *multiplied_type(image_->type, operand(image_is_a_).type);
    other_type_ = *multiplied_type(other_->type, operand(!image_is_a_).type);
    return true;
  }

  bool find_dims() {
    const bool k_together = !takes_either_major(image_type_);
    const auto roles = roles_of(spec(), image_is_a_, image_->access, k_together);
    if (!roles) return false;
    roles_ = *roles;
    by_images_ = roles_.pixels_in_k && k_together;
    auto dims = image_dims(spec(), roles_, image_->access, image_index_, offset_);
    if (!dims) return false;
    dims_ = std::move(*dims);
    if (!by_images_ || image_index_ < 0) return true;
    // Its maps count no images beside the innermost dim: what tells these apart is one more dim.
    if (dims_.size() == kMostAxes) return false;
    ImageDim images;
    images.pixel_index = std::exchange(image_index_, -1);
    images.extent = spec().extent[images.pixel_index];
    images.stride = image_->access.stride[images.pixel_index];
    dims_.insert(dims_.begin(), images);
    return true;
  }

  bool find_axes() {
    const int rank = static_cast<int>(dims_.size());
    for (auto d = dims_.rbegin(); d != dims_.rend(); ++d) {
      auto axis = axis_of(*d, spec().extent, rank);
      // Phases number rows, which nothing else may number.
      if (!axis || (d->divisor > 1 && (roles_.pixels_in_k || names_index(spec(), d->pixel_index))))
        return false;
      if (!d->parts.empty()) {
        const auto& [index, step] = d->parts.front();
        if (!roles_.pixels_in_k || d->parts.size() > 1 || (d->pixel != 1 && !by_images_))
          return false;
        axis->part = {index, step};
      }
      g_.window.axes.push_back(std::move(*axis));
    }
    return true;
  }

  bool find_boxes() {
    const ConvolutionOperand image{spec(), roles_, *image_, image_port_},
        other{spec(), roles_, *other_, other_port_};
    const ConvolutionImage whole{dims_, g_.window.axes, image_index_, offset_};
    image_box_ = by_images_ ? images_of_image(image, whole) : image_operand(image, whole);
    other_box_ = by_images_           ? images_of_result(other, whole)
                 : roles_.pixels_in_k ? gradient_operand(other)
                                      : filter_operand(other, dims_);
    if (!image_box_ || !other_box_) return false;
    image_box_->map.type = image_type_;
    other_box_->map.type = other_type_;
    for (const BoxedOperand& o : {*image_box_, *other_box_})
      if (!o.k_fastest && !takes_either_major(o.map.type)) return false;
    return image_type_ == other_type_ || multiplied_as_bytes(image_type_, other_type_);
  }

  // Channels fill lines; images of a pixel whole stages.
  bool fill_stages() {
    g_.window.channels = count_of(spec(), roles_.channels);
    if (!by_images_) return true;
    WindowAxis& images = g_.window.axes.front();
    if (images.part.index >= 0 && images.result % line() != 0) return false;
    images.result = (images.result + line() - 1) / line() * line();
    spec().extent[dims_.back().pixel_index] = images.result;
    return true;
  }

  // The pixels of a data gradient's dim with a stride are split into their phases.
  void split_phases() {
    if (image_index_ >= 0) pixels_.push_back(image_index_);
    for (const ImageDim& d : dims_)
      if (d.tap_index >= 0) taps_.push_back(d.tap_index);
    int added = 0;  // by splits before this index
    for (const ImageDim& d : dims_) {
      if (d.pixel_index < 0) continue;
      const int at = d.pixel_index + added;
      if (d.divisor > 1) {
        split_phase(at, d.divisor);
        phases_.push_back(at + 1);
        ++added;
      }
      pixels_.push_back(at);
    }
  }
  void split_phase(int at, std::int64_t divisor) {
    ResultBound bound{Dims::filled(spec().extent.size() + 1, 0), spec().extent[at]};
    split_index(spec(), at, divisor);
    for (auto* list : {&roles_.batch, &pixels_, &taps_, &roles_.channels, &roles_.side})
      for (int& i : *list)
        if (i > at) ++i;
    for (auto& b : g_.window.bounds) {
      Dims widened;
      for (int j = 0; j < b.coefficient.size(); ++j) {
        if (j == at + 1) widened.push_back(0);
        widened.push_back(b.coefficient[j]);
      }
      b.coefficient = widened;
    }
    if (bound.end % divisor == 0) return;
    bound.coefficient[at] = divisor;
    bound.coefficient[at + 1] = 1;
    g_.window.bounds.push_back(std::move(bound));
  }

  // The indices in their new order: batch entries, with phases and taps that batch entries number
  // behind them; pixels, outermost first; taps, the axes' outermost first, and channels.
  bool order_indices() {
    ContractionSpec& c = contraction();
    std::vector<int> order = roles_.batch;
    const auto append = [&](const std::vector<int>& list) {
      order.insert(order.end(), list.begin(), list.end());
    };
    const int first_phase = static_cast<int>(order.size());
    append(phases_);
    const bool taps_in_batch =
        roles_.pixels_in_k && g_.window.channels % (by_images_ ? kFewestTogether : line()) != 0;
    if (taps_in_batch) {
      g_.window.taps_of = ConvolutionWindow::Taps::batch;
      for (std::size_t i = 0; i < taps_.size(); ++i)
        g_.window.tap_batch.push_back(static_cast<int>(order.size() + i));
      append(taps_);
    } else if (roles_.pixels_in_k) {
      g_.window.taps_of = ConvolutionWindow::Taps::columns;
    }
    const int batch = static_cast<int>(order.size());
    std::vector<int> of_image, k;
    if (roles_.pixels_in_k) {
      if (!taps_in_batch) of_image = taps_;
      of_image.insert(of_image.end(), roles_.channels.begin(), roles_.channels.end());
      k = pixels_;
    } else {
      of_image = pixels_;
      k = taps_;
      k.insert(k.end(), roles_.channels.begin(), roles_.channels.end());
    }
    append(image_is_a_ ? of_image : roles_.side);
    append(image_is_a_ ? roles_.side : of_image);
    append(k);
    // Results that are reduced are numbered in the order that they had.
    const auto first_k = order.end() - static_cast<std::ptrdiff_t>(k.size());
    if (!spec().cross_row_reductions.empty() &&
        (!phases_.empty() || !std::is_sorted(order.begin(), first_k)))
      return false;
    c.batch = batch;
    (image_is_a_ ? c.m : c.n) = static_cast<int>(of_image.size());
    (image_is_a_ ? c.n : c.m) = static_cast<int>(roles_.side.size());
    reorder(spec(), order);
    for (auto& b : g_.window.bounds) {
      Dims r;
      for (int i : order) r.push_back(b.coefficient[i]);
      b.coefficient = r;
    }
    // Phases stand in the order of their dims, the outermost first; axes the other way round.
    int phase = first_phase + static_cast<int>(phases_.size());
    for (WindowAxis& axis : g_.window.axes)
      if (axis.taps.size() > 1) axis.phase_index = --phase;
    g_.image = std::move(*image_box_);
    g_.other = std::move(*other_box_);
    return true;
  }
};

}  // namespace

std::optional<ImplicitGemm> implicit_gemm(const KernelSpec& given, bool image_is_a) {
  if (!may_be_convolution(given.contraction())) return {};
  return ImplicitGemmOf(given, image_is_a).make();
}

}  // namespace sinter
