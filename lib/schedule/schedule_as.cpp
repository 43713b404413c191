// Kernels that are scheduled as others of the same structure.
#include <algorithm>

#include "plan/access.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

ScheduledKernel with(const ScheduledKernel& decided, KernelSpec spec, KernelConfig config) {
  const double microseconds =
      std::visit([](const Launch& launch) { return launch.microseconds; }, config);
  return {std::move(spec), std::move(config), microseconds, {}, decided.tuned};
}
template <class Config>
std::optional<ScheduledKernel> with(const ScheduledKernel& decided, const KernelSpec& spec,
                                    std::optional<Config> config) {
  if (!config) return {};
  return with(decided, spec, std::move(*config));
}
template <class Plan>
std::optional<ScheduledKernel> with_plan(const ScheduledKernel& decided, Plan plan) {
  if (!plan) return {};
  return with(decided, std::move(plan->spec), std::move(plan->engine));
}

bool same_extents(const KernelSpec& a, const KernelSpec& b, int from) {
  return a.extent.size() == b.extent.size() &&
         std::equal(a.extent.begin() + from, a.extent.end(), b.extent.begin() + from);
}

// As long, or of any length in both, and with as many partial results of columns.
bool same_rows(const KernelSpec& a, const KernelSpec& b) {
  const RowwiseSpec &one = a.rowwise(), &other = b.rowwise();
  if (one.outer_rank != other.outer_rank || one.any_length != other.any_length) return false;
  if (one.num_partials != other.num_partials || one.rows_per_cta != other.rows_per_cta)
    return false;
  return one.any_length ? a.extent.size() == b.extent.size() : same_extents(a, b, one.outer_rank);
}

// Whether tiles reach over the same extents in both, as far apart in memory: these are constants.
bool same_tiles(const Tiling& t, const KernelSpec& a, const KernelSpec& b) {
  if (a.extent.size() != b.extent.size()) return false;
  for (const int i : {t.along, t.across})
    if (a.extent[i] != b.extent[i]) return false;
  for (std::size_t p = 0; p < a.ports.size(); ++p)
    for (const int i : {t.along, t.across, t.tile_through > 1 ? t.through : t.along})
      if (step(a.ports[p].access, i) != step(b.ports[p].access, i)) return false;
  return true;
}

// How many belong together (Packing::drawn) depends on extents.
bool draws_numbers(const KernelSpec& spec) {
  return std::any_of(spec.body.statements.begin(), spec.body.statements.end(),
                     [](const Statement& s) { return s.kind == StatementKind::random; });
}

}  // namespace

std::optional<ScheduledKernel> schedule_as(const ScheduledKernel& decided, const KernelSpec& spec,
                                           const PlanContext& context) {
  const DeviceModel& device = context.device;
  const auto plan = [&](const auto& config) {
    return with_plan(decided, schedule_as(config, spec, device));
  };
  const auto config_alone = [&](const auto& config) {
    return with(decided, spec, schedule_as(config, spec, device));
  };
  const bool same = !draws_numbers(spec) && spec.family.index() == decided.spec.family.index() &&
                    spec.ports.size() == decided.spec.ports.size() &&
                    spec.body.statements.size() == decided.spec.body.statements.size();
  using Result = std::optional<ScheduledKernel>;
  return std::visit(
      Overloaded{[&](const AttentionConfig& e) {  // whose spec is that of its second product
                   return spec.as_attention() ? plan(e) : Result();
                 },
                 [&](const AttentionBackwardConfig& e) {
                   return spec.as_attention_backward() ? config_alone(e) : Result();
                 },
                 [&](const PointwiseConfig& e) {
                   const bool tiles = e.tiling.on && !same_tiles(e.tiling, spec, decided.spec);
                   return same && !tiles ? config_alone(e) : Result();
                 },
                 [&](const RowwiseConfig& e) {
                   return same && same_rows(spec, decided.spec) ? config_alone(e) : Result();
                 },
                 [&](const WgmmaConfig& e) { return same ? plan(e) : Result(); },
                 [&](const ImageRowsConfig& e) { return same ? plan(e) : Result(); },
                 [&](const MmaConfig& e) { return same ? plan(e) : Result(); },
                 [&](const SimtConfig& e) { return same ? config_alone(e) : Result(); },
                 [](const auto&) { return Result(); }},  // engines that decide anew
      decided.config);
}

ScheduledKernel boxed_by_launch(ScheduledKernel decided, const KernelSpec& spec,
                                const KernelSpec& other, const PlanContext& context) {
  if (const auto* const e = decided.wgmma())
    if (auto boxed = with_plan(decided, boxed_by_launch(*e, spec, other, context.device)))
      return std::move(*boxed);
  return decided;
}

// Of two convolutions. Images are the outermost of the pixels, along the rows, the columns or, of
// a filter's gradient, k, whose parts are the outermost batch entries.
static bool only_images_differ(const KernelSpec& a, const KernelSpec& b) {
  const ContractionSpec& c = a.contraction();
  const bool gradient = c.k() > 0 && c.k_indices.front() == KIndex::pixels;
  const auto of_images = [&](int i) {
    return i == c.first_m() || i == c.first_n() || i == c.first_k() || (gradient && i == 0);
  };
  for (int i = 0; i < a.extent.size(); ++i)
    if (a.extent[i] != b.extent[i] && !of_images(i)) return false;
  return true;
}

bool differs_at_launch(const ScheduledKernel& one, const ScheduledKernel& other) {
  const KernelSpec &a = one.spec, &b = other.spec;
  if (!a.gathers.empty()) return false;
  for (std::size_t i = 0; i < a.ports.size(); ++i)  // coefficients of windows are constants
    if (a.ports[i].access.windows != b.ports[i].access.windows) return false;
  if (const auto* const s = one.pointwise())
    return s->aligned_by < 0 && (!s->tiling.on || same_tiles(s->tiling, a, b));
  if (const auto* const s = one.rowwise()) return s->aligned_by < 0 && same_rows(a, b);
  if (const auto* const e = one.attention())
    return !e->wide && a.extent[AttentionSpec::e] == b.extent[AttentionSpec::e];
  if (one.attention_backward()) {
    using A = AttentionBackwardSpec;
    return a.extent[A::d] == b.extent[A::d] && a.extent[A::e] == b.extent[A::e];
  }
  if (const auto* const e = one.wgmma())
    return e->window ? only_images_differ(a, b) : !a.contraction().rows.on;
  if (one.image_rows()) return only_images_differ(a, b);
  return (one.mma() || one.simt()) && !a.contraction().rows.on;
}

}  // namespace sinter
