#include "planner/rearrange/images_last.hpp"

#include <algorithm>
#include <numeric>

#include "plan/access.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/rearrange/read_convolution.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/implicit_gemm.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

// Both factors are multiplied only with k as the fastest index.
bool wants_k_fastest(const ProductOperand& a, const KernelPort& x, const ProductOperand& b,
                     const KernelPort& y) {
  const auto first = multiplied_type(x.type, a.type), second = multiplied_type(y.type, b.type);
  return first && second && !takes_either_major(*first) && !takes_either_major(*second);
}

// An index of an operand as its copy has it; `dim`: of pixels, those beside the image not included.
struct Place {
  const ImageDim* dim;
  int index;
};

// Elements that TMA loads at least.
std::int64_t unit_of(const KernelPort& port) { return kUnitBytes / info(port.type).bytes; }

// The two innermost indices of k become one, which windows over the outer one of them bound.
void join_last(KernelSpec& spec) {
  const int outer = spec.extent.size() - 2;
  const std::int64_t inner = spec.extent.back();
  spec.extent = part_of(spec.extent, 0, outer + 1);
  spec.extent[outer] *= inner;
  spec.contraction().k_indices.pop_back();
  for (KernelPort& port : spec.ports) {
    Access& a = port.access;
    for (Window& w : a.windows) {
      w.coefficient = part_of(w.coefficient, 0, outer + 1);
      if (w.coefficient[outer] == 0) continue;
      w.base *= inner;
      w.extent *= inner;
      w.stride = a.stride.back();
      for (auto& c : w.coefficient) c *= inner;
      w.coefficient[outer] /= inner;
    }
    const std::int64_t step = a.stride.back();
    a.stride = part_of(a.stride, 0, outer + 1);
    if (a.stride[outer] != 0) a.stride[outer] = step;
  }
}

}  // namespace

std::vector<KernelSpec> images_last(const KernelSpec& given, int way, Temporaries& temporaries) {
  const auto read = read_convolution(given);
  if (!read || !read->gradient || read->roles.side.empty() || read->offset != 0 ||
      read->image_index < 0)
    return {};
  const auto& [x, y, gradient, roles, dims, image_index, offset] = *read;
  const ContractionSpec& old = given.contraction();
  if (!wants_k_fastest(old.b(), *x, old.a(), *y)) return {};
  for (const ImageDim& d : dims)
    if (!d.parts.empty() || d.pixel_index < 0) return {};

  // Neighbouring pixels of a row step as their images do, by whole units.
  const ImageDim& row = dims.back();
  const bool joined = way == 1;
  const std::int64_t images = given.extent[image_index];
  if (joined && (row.pixel != 1 || row.divisor != 1 || images % unit_of(*x) != 0 ||
                 images % unit_of(*y) != 0))
    return {};

  const int rank = given.extent.size();
  KernelSpec spec = given;
  std::vector<KernelSpec> kernels;
  // Its pixels, groups and channels, and behind these the images; of joined ones rows of pixels
  // come before the images. `image`: with windows over pixels.
  const auto rearrange = [&](ProductOperand& operand, const KernelPort& port,
                             const std::vector<int>& channels, bool image) {
    std::vector<Place> places;
    for (const ImageDim& d : dims)
      if (!joined || &d != &row) places.push_back({&d, d.pixel_index});
    for (int i : roles.batch)
      if (moves_along(port.access, i)) places.push_back({nullptr, i});
    for (int i : channels) places.push_back({nullptr, i});
    if (joined) places.push_back({&row, row.pixel_index});
    places.push_back({nullptr, image_index});
    Dims extent;
    KernelPort load = port, written;
    load.access = {{}, port.access.offset, {}, {}};
    for (const Place& p : places) {
      const bool windowed = image && p.dim;
      extent.push_back(windowed ? p.dim->extent : given.extent[p.index]);
      load.access.stride.push_back(windowed ? p.dim->stride : port.access.stride[p.index]);
    }
    Dims padded = extent;
    padded.back() = (padded.back() + unit_of(port) - 1) / unit_of(port) * unit_of(port);
    kernels.push_back(
        copy_kernel(given, load, extent, port.name + "_images_last", temporaries, written, padded));
    Access access;
    access.stride = Dims::filled(rank, 0);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int64_t step = written.access.stride[static_cast<int>(i)];
      const ImageDim* const d = places[i].dim;
      if (!image || !d) {
        access.stride[places[i].index] = step;
        continue;
      }
      Window w{.coefficient = Dims::filled(rank, 0),
               .base = d->base,
               .divisor = d->divisor,
               .extent = d->extent,
               .stride = step};
      w.coefficient[d->pixel_index] = d->pixel;
      if (d->tap_index >= 0) w.coefficient[d->tap_index] = d->tap;
      access.windows.push_back(std::move(w));
    }
    read_instead(spec, operand, written, std::move(access));
  };
  rearrange(spec.contraction().b(), *x, roles.channels, true);
  rearrange(spec.contraction().a(), *y, roles.side, false);
  // Images become the innermost index of k, behind the pixels of a row.
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + image_index, order.begin() + image_index + 1, order.end());
  reorder(spec, order);
  drop_unused(spec);
  if (joined) join_last(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace sinter
