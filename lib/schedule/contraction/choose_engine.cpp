// Which engine runs a contraction: of those that can, the one with the least estimated time.
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

ScheduledKernel scheduled(DepthwisePlan plan) {
  return std::visit([&](auto& e) { return scheduled(std::move(plan.spec), std::move(e)); },
                    plan.engine);
}

// The engines' estimates were fitted one by one, and differ by so much where measurements are
// alike.
constexpr double kSurelyFaster = 1.5;

// Convolutions in groups run on CUDA cores where all others would take longer.
template <class Other>
ScheduledKernel or_groups(const KernelSpec& spec, const DeviceModel& device, const Other& other) {
  auto groups = plan_channel_groups(spec, device);
  if (groups && (device.overrides.depthwise == "ordinary" ||
                 (device.overrides.depthwise == "planes" &&
                  std::holds_alternative<DepthwisePlanesConfig>(groups->engine))))
    return scheduled(*std::move(groups));
  ScheduledKernel kernel = other();
  const bool asked = device.overrides.depthwise == "mma" && kernel.depthwise();
  if (!groups || asked || config_of(groups->engine).microseconds >= kernel.microseconds)
    return kernel;
  return scheduled(*std::move(groups));
}

// Of the engines on tensor cores the one with the least estimated time: that of warpgroups (wgmma),
// unless the other is surely faster. (Where it is, the operands lie in steps: of a strided 1 x 1
// convolution only the pixels of one line make up the rows of a tile, so that most of it is empty.)
// CUDA cores are for what no tensor core multiplies.
ScheduledKernel schedule_product(const KernelSpec& spec, const PlanContext& context) {
  const DeviceModel& device = context.device;
  auto wgmma = plan_wgmma(spec, device, context.tuning, context.tiles);
  std::optional<MmaPlan> mma;
  if (!spec.contraction().paired()) mma = plan_mma(spec, device);
  auto groups = plan_groups_on_tensor_cores(spec, device);
  // Which plans of a class could not take over (schedule_as): they would have the whole sum uncut.
  if (groups && context.of_class &&
      (std::holds_alternative<ChannelsGradientConfig>(groups->engine) ||
       std::holds_alternative<RunsGradientConfig>(groups->engine)))
    groups.reset();
  if (groups && device.overrides.depthwise != "ordinary" &&
      (device.overrides.depthwise == "mma" ||
       (!(wgmma && wgmma->microseconds < config_of(groups->engine).microseconds) &&
        !(mma && mma->engine.microseconds < config_of(groups->engine).microseconds))))
    return scheduled(*std::move(groups));
  if (auto rows = plan_image_rows(spec, device);
      rows && !(wgmma && wgmma->microseconds < rows->engine.microseconds) &&
      !(mma && mma->engine.microseconds < rows->engine.microseconds))
    return scheduled(std::move(rows->spec), std::move(rows->engine));
  const double surely = wgmma && shifts_lines(wgmma->engine) ? 1 : kSurelyFaster;
  if (wgmma && !(mma && surely * mma->engine.microseconds < wgmma->microseconds))
    return {std::move(wgmma->spec), std::move(wgmma->engine), wgmma->microseconds,
            std::move(wgmma->choice), wgmma->tuned};
  if (mma) return scheduled(std::move(mma->spec), std::move(mma->engine));
  SimtConfig simt = schedule_simt(spec, device);
  if (!spec.contraction().paired())
    if (auto fma = plan_fma(spec, device, context.tuning);
        fma && fma->microseconds < simt.microseconds)
      return {std::move(fma->spec), std::move(fma->engine), fma->microseconds,
              std::move(fma->choice), fma->tuned};
  return scheduled(spec, std::move(simt));
}

}  // namespace

ScheduledKernel schedule(const ContractionSpec& product, const KernelSpec& spec,
                         const PlanContext& context) {
  const DeviceModel& device = context.device;
  if (product.chained()) {  // which no other engine runs: its pattern has asked this one
    auto chained = plan_chained(spec, device);
    return scheduled(std::move(chained->spec), std::move(chained->engine));
  }
  if (product.pooled.on()) {  // the same of pool_pixels
    auto pooled = plan_wgmma(spec, device, context.tuning, context.tiles);
    return {std::move(pooled->spec), std::move(pooled->engine), pooled->microseconds,
            std::move(pooled->choice), pooled->tuned};
  }
  // Tensor cores would multiply a tile for the one column or row that a channel has.
  if (auto depthwise = plan_depthwise(spec, device)) return scheduled(*std::move(depthwise));
  return or_groups(spec, device, [&] { return schedule_product(spec, context); });
}

}  // namespace sinter
