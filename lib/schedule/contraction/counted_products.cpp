#include "schedule/contraction/counted_products.hpp"

#include "plan/access.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {
namespace {

// Of a convolution in groups, lines of a group's channels whose rest holds those of the next one.
bool sees_other_groups(const WgmmaConfig& e) {
  return e.window->taps_of == ConvolutionWindow::Taps::k &&
         (!e.a.channel_steps.empty() || !e.b.channel_steps.empty()) &&
         e.window->channels % (kStageLine / e.operand_bytes) != 0;
}

// Of a filter's gradient whose sums are those of some images each, where these fill no whole stages
// of `depth` pixels: the last one holds pixels of the next image, which meet zeros past the part's
// end of the result's gradient.
bool sees_other_images(const WgmmaConfig& e, std::int64_t depth) {
  if (e.window->taps_of == ConvolutionWindow::Taps::k || e.resident) return false;
  const bool parts = !e.a.image_steps.empty() || !e.b.image_steps.empty();
  return parts && depth % (kStageLine / e.operand_bytes) != 0;
}

// Pixels of the result's gradient that exist: dims of its map behind the channels, innermost first.
std::vector<ResultBound> ends_of_results(const KernelSpec& spec, const ConvolutionWindow& window,
                                         const BoxedOperand& results) {
  std::vector<ResultBound> bounds;
  for (int i = 0; i < static_cast<int>(window.axes.size()); ++i) {
    const BatchStep& part = window.axes[static_cast<std::size_t>(i)].part;
    const int index = spec.extent.size() - 1 - i;
    if (index < spec.contraction().first_k()) break;
    ResultBound bound{Dims::filled(spec.extent.size(), 0), results.map.dim[i + 1]};
    bound.coefficient[index] = 1;
    std::int64_t last = spec.extent[index] - 1;
    if (part.index >= 0) {
      bound.coefficient[part.index] = part.step;
      last += part.step * (spec.extent[part.index] - 1);
    }
    if (bound.end <= last) bounds.push_back(std::move(bound));
  }
  return bounds;
}

}  // namespace

CountedProducts counted_products(const KernelSpec& spec) {
  using Which = CountedProducts::Which;
  const ContractionSpec& c = spec.contraction();
  if (c.zero_dominates == ZeroOf::neither) return {};
  return {c.marked_zeros ? Which::unless_marked : Which::unless_zero, {}};
}

CountedProducts counted_products(const KernelSpec& spec, const WgmmaConfig& e) {
  using Which = CountedProducts::Which;
  CountedProducts of_zeros = counted_products(spec);
  if (of_zeros.which != Which::none || !e.window || e.integers) return of_zeros;
  const std::int64_t depth = count(spec.extent, spec.contraction().first_k(), spec.extent.size());
  if (sees_other_groups(e) || sees_other_images(e, depth)) return {Which::every, {}};
  const BoxedOperand& results = e.a.of_result ? e.a : e.b;
  if (!results.of_result) return {};
  std::vector<ResultBound> bounds = ends_of_results(spec, *e.window, results);
  return {bounds.empty() ? Which::none : Which::where_results_are, std::move(bounds)};
}

}  // namespace sinter
