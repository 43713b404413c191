#include "schedule/scheduled_kernel.hpp"

namespace sinter {

bool ScheduledKernel::multiplies_groups() const {
  return as<NarrowGroupsConfig>() || as<NarrowGroupsGradientConfig>() || is_groups_gradient();
}
bool ScheduledKernel::is_groups_gradient() const {
  const auto* const groups = as<NarrowGroupsGradientConfig>();
  return (groups && groups->groups.channels > 1) || as<ChannelsGradientConfig>() ||
         as<RunsGradientConfig>();
}

KernelChoice ScheduledKernel::ranked_choice() const {
  return std::visit([](const auto& c) { return c.ranked(); }, choice);
}

const WarpgroupConfig* ScheduledKernel::warpgroups() const {
  if (const WgmmaConfig* const e = wgmma()) return e;
  return image_rows();
}

const DepthwiseConfig* ScheduledKernel::depthwise() const {
  return std::visit(
      [](const auto& c) -> const DepthwiseConfig* {
        if constexpr (std::is_convertible_v<decltype(&c), const DepthwiseConfig*>)
          return &c;
        else
          return nullptr;
      },
      config);
}

const Launch& ScheduledKernel::launch() const {
  return std::visit([](const Launch& l) -> const Launch& { return l; }, config);
}

const Packing* ScheduledKernel::packing() const {
  return std::visit(
      [](const auto& c) -> const Packing* {
        if constexpr (requires { c.packing; })
          return &c.packing;
        else
          return nullptr;
      },
      config);
}

int ScheduledKernel::unroll() const {
  return std::visit(
      [](const auto& c) {
        if constexpr (requires { c.unroll; })
          return c.unroll;
        else
          return 1;
      },
      config);
}

int ScheduledKernel::aligned_by() const {
  return std::visit(
      [](const auto& c) {
        if constexpr (requires { c.aligned_by; })
          return c.aligned_by;
        else
          return -1;
      },
      config);
}

ScheduledKernel schedule_kernel(const KernelSpec& spec, const PlanContext& context) {
  ScheduledKernel kernel =
      std::visit([&](const auto& family) { return schedule(family, spec, context); }, spec.family);
  std::visit(
      [&](auto& c) {
        if constexpr (requires { c.packing; })
          for (const auto& s : kernel.spec.body.statements)
            c.packing.drawn.push_back(
                s.kind == StatementKind::random
                    ? drawn_together(kernel.spec, c.packing, kernel.aligned_by(), s)
                    : 0);
      },
      kernel.config);
  return kernel;
}

}  // namespace sinter
