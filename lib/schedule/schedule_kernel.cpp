#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

template <class Config>
ScheduledKernel scheduled(KernelSpec spec, Config config) {
  const double microseconds = config.microseconds;
  return {std::move(spec), std::move(config), microseconds, TileChoice{}, false};
}

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
ScheduledKernel schedule_product(const KernelSpec& spec, const DeviceModel& device,
                                 const Tuning& tuning, KnownTiles& tiles) {
  auto wgmma = plan_wgmma(spec, device, tuning, tiles);
  std::optional<MmaPlan> mma;
  if (!spec.contraction().paired()) mma = plan_mma(spec, device);
  if (auto groups = plan_groups_on_tensor_cores(spec, device);
      groups && device.overrides.depthwise != "ordinary" &&
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
    if (auto fma = plan_fma(spec, device, tuning); fma && fma->microseconds < simt.microseconds)
      return {std::move(fma->spec), std::move(fma->engine), fma->microseconds,
              std::move(fma->choice), fma->tuned};
  return scheduled(spec, std::move(simt));
}

ScheduledKernel schedule_contraction(const KernelSpec& spec, const DeviceModel& device,
                                     const Tuning& tuning, KnownTiles& tiles) {
  if (spec.contraction().chained()) {  // which no other engine runs: its pattern has asked this one
    auto chained = plan_chained(spec, device);
    return scheduled(std::move(chained->spec), std::move(chained->engine));
  }
  if (spec.contraction().pooled.on()) {  // the same of pool_pixels
    auto pooled = plan_wgmma(spec, device, tuning, tiles);
    return {std::move(pooled->spec), std::move(pooled->engine), pooled->microseconds,
            std::move(pooled->choice), pooled->tuned};
  }
  // Tensor cores would multiply a tile for the one column or row that a channel has.
  if (auto depthwise = plan_depthwise(spec, device)) return scheduled(*std::move(depthwise));
  return or_groups(spec, device, [&] { return schedule_product(spec, device, tuning, tiles); });
}

ScheduledKernel schedule_family(const KernelSpec& spec, const DeviceModel& device,
                                const Tuning& tuning, KnownTiles& tiles) {
  return std::visit(
      Overloaded{
          [&](const PointwiseSpec&) { return scheduled(spec, schedule_pointwise(spec, device)); },
          [&](const RowwiseSpec&) { return scheduled(spec, schedule_rowwise(spec, device)); },
          [&](const ContractionSpec&) { return schedule_contraction(spec, device, tuning, tiles); },
          [&](const AttentionSpec&) {  // which no other engine runs: its pattern has asked this one
            auto attention = plan_attention(spec, device);
            return scheduled(std::move(attention->spec), std::move(attention->engine));
          },
          [&](const AttentionBackwardSpec&) {  // the same
            return scheduled(spec, *plan_attention_backward(spec, device));
          }},
      spec.family);
}

}  // namespace

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
  ScheduledKernel kernel = schedule_family(spec, context.device, context.tuning, context.tiles);
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
