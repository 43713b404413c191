#include "planner/split/empty_phases.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/index_map.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

// An index of pixels, of which every `stride`-th from `first` on has products.
struct Strided {
  int index;
  std::int64_t stride, first;
};

std::vector<Strided> strided_pixels(const KernelSpec& spec) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || !is_plain_product(*c) || !spec.columns.empty() || reads_joined_indices(spec) ||
      names_numbers(spec))
    return {};
  if (std::any_of(c->k_indices.begin(), c->k_indices.end(),
                  [](KIndex k) { return k != KIndex::channels; }))
    return {};
  const KernelPort* const image = loaded_alone(spec, c->a());
  if (!image) return {};
  std::vector<Strided> found;
  for (const Window& w : image->access.windows) {
    if (w.divisor == 1) continue;
    int pixel = -1;
    for (int i = 0; i < w.coefficient.size(); ++i) {
      if (w.coefficient[i] == 0) continue;
      if (pixel >= 0 || w.coefficient[i] != 1 || i < c->first_m() || i >= c->first_n()) return {};
      pixel = i;
    }
    if (pixel < 0 || spec.extent[pixel] % w.divisor != 0) return {};
    const std::int64_t first = ((-w.base) % w.divisor + w.divisor) % w.divisor;
    found.push_back({pixel, w.divisor, first});
  }
  std::sort(found.begin(), found.end(),
            [](const Strided& a, const Strided& b) { return a.index < b.index; });
  return found;
}

std::vector<Affine> unchanged(const Dims& extent) {
  std::vector<Affine> of;
  for (int i = 0; i < extent.size(); ++i) of.push_back(affine({{i, 1}}));
  return of;
}

}  // namespace

std::vector<KernelSpec> empty_phases(const KernelSpec& given) {
  const std::vector<Strided> pixels = strided_pixels(given);
  if (pixels.empty()) return {};
  const int rank = given.extent.size(), results = given.contraction().first_k();
  const auto place = [](const Strided& p) { return affine({{p.index, p.stride}}, p.first); };

  KernelSpec product = given;
  std::vector<Affine> of = unchanged(given.extent);
  for (const Strided& p : pixels) {
    of[static_cast<std::size_t>(p.index)] = place(p);
    product.extent[p.index] /= p.stride;
  }
  for (auto& port : product.ports) port.access = mapped(port.access, given.extent, of, rank);
  std::vector<KernelSpec> kernels;
  drop_unused(product);
  simplify_domain(product);
  kernels.push_back(std::move(product));

  // Of each dim the other pixels, where those of the dims before have products. A new last index
  // counts them between two that have.
  const int image = given.contraction().a().body.statements.front().port;
  for (std::size_t d = 0; d < pixels.size(); ++d) {
    KernelSpec zeros = given;
    zeros.family = PointwiseSpec{};
    zeros.extent = part_of(given.extent, 0, results);
    for (std::size_t i = 0; i <= d; ++i) zeros.extent[pixels[i].index] /= pixels[i].stride;
    zeros.extent.push_back(pixels[d].stride - 1);
    of = unchanged(given.extent);
    for (std::size_t i = 0; i < d; ++i)
      of[static_cast<std::size_t>(pixels[i].index)] = place(pixels[i]);
    // They lie behind the one with products or in front of it, not on both sides.
    const Strided& p = pixels[d];
    if (p.first != 0 && p.first != p.stride - 1) return {};
    of[static_cast<std::size_t>(p.index)] =
        affine({{p.index, p.stride}, {results, 1}}, p.first == 0 ? 1 : 0);
    for (int i = results; i < rank; ++i) of[static_cast<std::size_t>(i)] = affine({});
    for (auto& port : zeros.ports) port.access = mapped(port.access, given.extent, of, results + 1);
    // The sum: an element of the image that is outside of it.
    KernelPort nothing = given.ports[static_cast<std::size_t>(image)];
    nothing.access = {};
    nothing.access.stride = Dims::filled(results + 1, 0);
    nothing.access.windows = {Window{.coefficient = Dims::filled(results + 1, 0),
                                     .base = 1,
                                     .divisor = 1,
                                     .extent = 1,
                                     .stride = 0}};
    load_sum(zeros, std::move(nothing));
    kernels.push_back(std::move(zeros));
  }
  return kernels;
}

}  // namespace sinter
