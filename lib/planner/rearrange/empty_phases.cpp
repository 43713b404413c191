#include "planner/rearrange/empty_phases.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
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
  if (!c || !is_plain_product(*c) || !spec.cross_row_reductions.empty() ||
      reads_joined_indices(spec) || names_numbers(spec))
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

Affine with_products(const Strided& p) { return affine({{p.index, p.stride}}, p.first); }

// An element of the operand's port that is outside of it: zero.
KernelPort outside(KernelPort port, int rank) {
  port.access = {};
  port.access.stride = Dims::filled(rank, 0);
  port.access.windows = {Window{
      .coefficient = Dims::filled(rank, 0), .base = 1, .divisor = 1, .extent = 1, .stride = 0}};
  return port;
}

// The product over the pixels that have some.
KernelSpec product_of(const KernelSpec& given, const std::vector<Strided>& pixels) {
  KernelSpec product = given;
  std::vector<Affine> of = unchanged(given.extent);
  for (const Strided& p : pixels) {
    of[static_cast<std::size_t>(p.index)] = with_products(p);
    product.extent[p.index] /= p.stride;
  }
  for (auto& port : product.ports)
    port.access = mapped(port.access, given.extent, of, given.extent.size());
  return product;
}

// Adds to a kernel over the pixels that have products what comes of zeros for the others beside
// each; `results`: how many indices of the domain are counted. False where these are many.
bool store_others(const KernelSpec& given, const std::vector<Strided>& pixels, int results,
                  KernelSpec& to) {
  constexpr std::int64_t kMostStored = 4;
  std::int64_t phases = 1;
  for (const Strided& p : pixels) phases *= p.stride;
  const auto& statements = given.body.statements;
  if (phases > kMostStored || std::count_if(statements.begin(), statements.end(), is_store) != 1)
    return false;
  const int image = given.contraction().a().body.statements.front().port;
  Statement zero =
      statement(StatementKind::load, DataType::f32, statements.front().label + "_of_others");
  zero.port = static_cast<int>(to.ports.size());
  to.ports.push_back(outside(given.ports[static_cast<std::size_t>(image)], results));
  to.body.statements.push_back(zero);
  const int of_zeros = static_cast<int>(to.body.statements.size()) - 1;
  for (std::int64_t phase = 0; phase < phases; ++phase) {
    KernelSpec others = given;
    std::vector<Affine> of = unchanged(given.extent);
    for (int i = results; i < given.extent.size(); ++i)
      of[static_cast<std::size_t>(i)] = affine({});
    std::int64_t rest = phase;
    bool empty = false;
    for (const Strided& p : pixels) {
      of[static_cast<std::size_t>(p.index)] = affine({{p.index, p.stride}}, rest % p.stride);
      empty |= rest % p.stride != p.first;
      rest /= p.stride;
    }
    if (!empty) continue;
    for (auto& port : others.ports) port.access = mapped(port.access, given.extent, of, results);
    BodyCopy copy(others, to, results);
    copy.set(0, of_zeros);
    for (std::size_t i = 0; i < statements.size(); ++i)
      if (is_store(statements[i])) copy.copy(static_cast<int>(i));
  }
  drop_unused(to);
  simplify_domain(to);
  return true;
}

}  // namespace

std::vector<KernelSpec> empty_phases(const KernelSpec& given, int way) {
  const std::vector<Strided> pixels = strided_pixels(given);
  if (pixels.empty()) return {};
  const int results = given.contraction().first_k(), rank = given.extent.size();
  KernelSpec product = product_of(given, pixels);
  if (way == 0) {
    if (!store_others(given, pixels, rank, product)) return {};
    return {std::move(product)};
  }
  std::vector<KernelSpec> kernels;
  drop_unused(product);
  simplify_domain(product);
  kernels.push_back(std::move(product));
  KernelSpec others = given;
  others.family = PointwiseSpec{.beside_before = true};
  others.extent = part_of(given.extent, 0, results);
  for (const Strided& p : pixels) others.extent[p.index] /= p.stride;
  others.ports.clear();
  others.body.statements.clear();
  if (store_others(given, pixels, results, others)) {
    kernels.push_back(std::move(others));
    return kernels;
  }

  // Of each dim the other pixels, where those of the dims before have products. A new last index
  // counts them between two that have.
  const int image = given.contraction().a().body.statements.front().port;
  for (std::size_t d = 0; d < pixels.size(); ++d) {
    KernelSpec zeros = given;
    zeros.family = PointwiseSpec{};
    zeros.extent = part_of(given.extent, 0, results);
    for (std::size_t i = 0; i <= d; ++i) zeros.extent[pixels[i].index] /= pixels[i].stride;
    zeros.extent.push_back(pixels[d].stride - 1);
    std::vector<Affine> of = unchanged(given.extent);
    for (std::size_t i = 0; i < d; ++i)
      of[static_cast<std::size_t>(pixels[i].index)] = with_products(pixels[i]);
    // They lie behind the one with products or in front of it, not on both sides.
    const Strided& p = pixels[d];
    if (p.first != 0 && p.first != p.stride - 1) return {};
    of[static_cast<std::size_t>(p.index)] =
        affine({{p.index, p.stride}, {results, 1}}, p.first == 0 ? 1 : 0);
    for (int i = results; i < rank; ++i) of[static_cast<std::size_t>(i)] = affine({});
    for (auto& port : zeros.ports) port.access = mapped(port.access, given.extent, of, results + 1);
    load_sum(zeros, outside(given.ports[static_cast<std::size_t>(image)], results + 1));
    kernels.push_back(std::move(zeros));
  }
  return kernels;
}

}  // namespace sinter
