#include "planner/rearrange/read_convolution.hpp"

#include <algorithm>
#include <iterator>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

// Whether a column of a filter gradient is a tap: a window of the image names it or, of dims that
// need none, it steps neither within a pixel nor beyond the last one. Taps that are one index with
// the channels are copied as these.
bool is_tap(const KernelSpec& spec, const Access& image, const std::vector<int>& pixels, int i) {
  for (const Window& w : image.windows)
    if (w.coefficient[i] != 0) return true;
  const std::int64_t stride = image.stride[i];
  bool beside = false, beyond = true;
  for (auto p = pixels.begin() + 1; p != pixels.end(); ++p) {
    if (image.stride[*p] == 0) continue;
    beside |= stride >= image.stride[*p];
    beyond &= stride > image.stride[*p] * (spec.extent[*p] - 1);
  }
  return beside && !beyond;
}

// Channels first, a column that steps within a pixel's stride is a tap, too. So lie images of which
// a column steps beyond all pixels, as channels do, and pixels are no more than a window's stride
// apart.
void move_inner_taps(const KernelSpec& spec, const Access& image, ConvolutionRoles& r) {
  std::int64_t pixel = 0;  // the least step
  for (auto p = r.pixels.begin() + 1; p != r.pixels.end(); ++p)
    if (const std::int64_t s = image.stride[*p]; s > 0 && (pixel == 0 || s < pixel)) pixel = s;
  const auto beyond = [&](int i) {
    return std::all_of(r.pixels.begin() + 1, r.pixels.end(), [&](int p) {
      return image.stride[i] > image.stride[p] * (spec.extent[p] - 1);
    });
  };
  const auto inner = [&](int i) {
    const std::int64_t stride = image.stride[i];
    return stride > 0 && stride < pixel && pixel <= tma::kMostPixelStep * stride && !beyond(i);
  };
  if (r.pixels.size() < 2 || std::none_of(r.channels.begin(), r.channels.end(), beyond)) return;
  std::copy_if(r.channels.begin(), r.channels.end(), std::back_inserter(r.taps), inner);
  std::erase_if(r.channels, inner);
  std::sort(r.taps.begin(), r.taps.end());
}

std::optional<ConvolutionRoles> roles_of_operands(const KernelSpec& spec, const Access& image) {
  const ContractionSpec& c = spec.contraction();
  ConvolutionRoles r;
  if (!add_batch_and_k(c, r) || r.pixels_in_k != r.channels.empty()) return {};
  if (r.pixels_in_k && !r.taps.empty()) return {};
  const bool depthwise = r.pixels_in_k && c.m == 0 && c.batch == 1;
  if (depthwise) std::swap(r.batch, r.channels);
  for (int i = c.first_m(); i < c.first_n(); ++i) (r.pixels_in_k ? r.side : r.pixels).push_back(i);
  for (int i = c.first_n(); i < c.first_k(); ++i)
    (!r.pixels_in_k                                  ? r.side
     : depthwise || is_tap(spec, image, r.pixels, i) ? r.taps
                                                     : r.channels)
        .push_back(i);
  if (r.pixels_in_k && !depthwise) move_inner_taps(spec, image, r);
  if (r.channels.empty() || r.pixels.empty() || r.side.empty() == !depthwise) return {};
  return r;
}

}  // namespace

std::optional<ReadConvolution> read_convolution(const KernelSpec& spec) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || !is_single_product(*c) || c->k() == 0 || reads_joined_indices(spec)) return {};
  ReadConvolution r;
  r.gradient =
      std::find(c->k_indices.begin(), c->k_indices.end(), KIndex::pixels) != c->k_indices.end();
  r.image = loaded_as_it_is(spec, (r.gradient ? c->b() : c->a()).body);
  r.other = loaded_as_it_is(spec, (r.gradient ? c->a() : c->b()).body);
  if (!r.image || !r.other || !r.other->access.windows.empty()) return {};
  auto roles = roles_of_operands(spec, r.image->access);
  if (!roles) return {};
  r.roles = std::move(*roles);
  auto dims = image_dims(spec, r.roles, r.image->access, r.image_index, r.offset);
  if (!dims) return {};
  r.dims = std::move(*dims);
  return r;
}

}  // namespace sinter
