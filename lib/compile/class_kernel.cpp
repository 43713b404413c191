#include "compile/class_kernel.hpp"

#include <algorithm>

#include "emit/emit.hpp"
#include "plan/access.hpp"

namespace sinter {
namespace {

// Why the kernel has no text for all extents.
std::string_view reason(const ScheduledKernel& k, const KernelSpec& other, bool scheduled) {
  const KernelSpec& spec = k.spec;
  const auto draws = [](const Statement& s) { return s.kind == StatementKind::random; };
  if (std::any_of(spec.body.statements.begin(), spec.body.statements.end(), draws))
    return "numbers are drawn in groups that depend on extents";
  if (!spec.gathers.empty()) return "elements are gathered";
  if (spec.as_rowwise() && column_kinds(spec) > 1)
    return "what its columns are summed over depends on extents";
  if (has_rows_of_other_length(spec, other)) return "the length of its rows changes";
  if (k.aligned_by() >= 0) return "its rows begin anywhere in memory";
  if (const auto* const p = k.pointwise(); p && p->tiling.on)
    return "tiles are copied whose own extents change";
  if ((k.wgmma() && k.wgmma()->window) || k.image_rows() || k.depthwise())
    return "convolutions are scheduled by extents";
  return scheduled ? "its text holds extents outside of lists"
                   : "what is decided for some extents is not right for others";
}

}  // namespace

bool has_rows_of_other_length(const KernelSpec& spec, const KernelSpec& other) {
  return spec.as_rowwise() && other.as_rowwise() && !spec.rowwise().any_length &&
         part_of(spec.extent, outer_rank(spec), spec.extent.size()) !=
             part_of(other.extent, outer_rank(other), other.extent.size());
}

ClassKernel class_kernel(ScheduledKernel decided, const KernelSpec& other,
                         const PlanContext& context) {
  ClassKernel k{std::move(decided), {}, {}};
  const auto as = schedule_as(k.decided, other, context);
  if (as) k.text = class_text(k.decided, *as);
  if (!k.text) k.reason = reason(k.decided, other, as.has_value());
  return k;
}

}  // namespace sinter
