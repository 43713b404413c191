// A kernel with everything decided: which engine runs it, in what tiles, with how many threads.
// Made by schedule_kernel() alone; planning makes some to compare their times, emission prints it,
// `sinter tune` measures its other choices.
#pragma once
#include <concepts>
#include <variant>

#include "plan/tuning.hpp"
#include "schedule/decisions.hpp"
#include "schedule/engines.hpp"

namespace sinter {

struct ScheduledKernel {
  KernelSpec spec;  // the given one with its indices in the order that the engine wants
  KernelConfig config;
  // Estimated, from launch to end. What was measured does not change it: a measured tile takes no
  // longer than the one that this is the estimate of.
  double microseconds = 0;
  // What could be measured; no tiles where there is nothing to choose.
  std::variant<TileChoice, MmaChoice> choice;
  bool tuned = false;  // the tile is the measured one, not the one estimated to be the fastest

  const PointwiseConfig* pointwise() const { return std::get_if<PointwiseConfig>(&config); }
  const RowwiseConfig* rowwise() const { return std::get_if<RowwiseConfig>(&config); }
  const SimtConfig* simt() const { return std::get_if<SimtConfig>(&config); }
  const MmaConfig* mma() const { return std::get_if<MmaConfig>(&config); }
  const WgmmaConfig* wgmma() const { return std::get_if<WgmmaConfig>(&config); }
  const ImageRowsConfig* image_rows() const { return std::get_if<ImageRowsConfig>(&config); }
  const WarpgroupConfig* warpgroups() const;  // of wgmma() or image_rows()
  const DepthwiseConfig* depthwise() const;   // of any alternative of DepthwiseEngine
  // On an engine of DepthwiseEngine for groups of channels, or for few that are all, on tensor
  // cores; a filter gradient of several channels among these.
  bool multiplies_groups() const;
  bool is_groups_gradient() const;
  template <class Config>
  const Config* as() const {
    return std::get_if<Config>(&config);
  }
  const ChainedConfig* chained() const { return std::get_if<ChainedConfig>(&config); }
  const AttentionConfig* attention() const { return std::get_if<AttentionConfig>(&config); }
  const AttentionBackwardConfig* attention_backward() const {
    return std::get_if<AttentionBackwardConfig>(&config);
  }
  KernelChoice ranked_choice() const;
  const Launch& launch() const;
  // Of the body, or of a contraction's epilogue; null on CUDA cores, where elements move alone.
  const Packing* packing() const;
  int unroll() const;
  int aligned_by() const;  // of pointwise and rowwise kernels; -1: none
};

// On an engine that has nothing to measure.
template <std::derived_from<Launch> Config>
ScheduledKernel scheduled(KernelSpec spec, Config config) {
  const double microseconds = config.microseconds;
  return {std::move(spec), std::move(config), microseconds, TileChoice{}, false};
}

// What every decision of planning is made from.
struct PlanContext {
  DeviceModel device;
  Tuning tuning;  // configurations that were measured to be the fastest of their problem
  mutable KnownTiles tiles{};  // of the device, kept; so a context is not shared between threads
  mutable Decisions decisions{};
  bool prepares = false;  // kernels of constants alone run once, so that they cost no call anything
  bool of_class = false;  // what is decided holds for plans of other extents, too
};
ScheduledKernel schedule_kernel(const KernelSpec& spec, const PlanContext& context);

// The family's part of it, in the family's folder: for schedule_kernel() alone, which fills in
// Packing::drawn.
#define SINTER_FAMILY(name, Spec) \
  ScheduledKernel schedule(const Spec&, const KernelSpec& spec, const PlanContext& context);
SINTER_FAMILIES(SINTER_FAMILY)
#undef SINTER_FAMILY

// The kernel with what was decided for another one of the same structure and other extents: its
// engine, tiles and threads. Nothing where these would not be right, or its family decides anew.
std::optional<ScheduledKernel> schedule_as(const ScheduledKernel& decided, const KernelSpec& spec,
                                           const PlanContext& context);
// The kernel in tiles that have as many of its rows as the launch says, so that one text has the
// tiles of many numbers of rows; `other`: with another number of them. The kernel where it cannot.
ScheduledKernel boxed_by_launch(ScheduledKernel decided, const KernelSpec& spec,
                                const KernelSpec& other, const PlanContext& context);
// Whether the device library can take from the launch what tells the two apart, of which one is
// scheduled as the other: their extents and strides.
bool differs_at_launch(const ScheduledKernel& one, const ScheduledKernel& other);
inline ScheduledKernel schedule_kernel(const KernelSpec& spec, const DeviceModel& device,
                                       const Tuning& tuning) {
  return schedule_kernel(spec, PlanContext{device, tuning});
}

}  // namespace sinter
