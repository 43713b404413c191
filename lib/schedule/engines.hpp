// The engines of all kernel families: what is decided for a kernel that runs on each.
#pragma once
#include <variant>

#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/contraction/chained.hpp"
#include "schedule/contraction/depthwise.hpp"
#include "schedule/contraction/image_rows.hpp"
#include "schedule/contraction/mma.hpp"
#include "schedule/contraction/simt.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "schedule/pointwise/pointwise.hpp"
#include "schedule/rowwise/rowwise.hpp"

namespace sinter {

// THE list of engines, one row each. Made from it, besides what stands below: engine_text() and
// add_constants(), in codegen/emit.
// clang-format off
#define SINTER_ENGINES(ENGINE) \
  ENGINE(PointwiseConfig) \
  ENGINE(RowwiseConfig) \
  ENGINE(SimtConfig) \
  ENGINE(MmaConfig) \
  ENGINE(WgmmaConfig) \
  ENGINE(ImageRowsConfig) \
  ENGINE(DepthwiseWalkConfig) \
  ENGINE(DepthwiseRowsConfig) \
  ENGINE(DepthwisePlanesConfig) \
  ENGINE(DepthwiseLinesConfig) \
  ENGINE(DepthwiseMmaConfig) \
  ENGINE(DepthwiseGradientMmaConfig) \
  ENGINE(NarrowGroupsConfig) \
  ENGINE(NarrowGroupsGradientConfig) \
  ENGINE(ChannelsGradientConfig) \
  ENGINE(RunsGradientConfig) \
  ENGINE(ChainedConfig) \
  ENGINE(AttentionConfig) \
  ENGINE(AttentionBackwardConfig)
// clang-format on

template <class, class... Configs>
using EngineVariant = std::variant<Configs...>;

#define SINTER_ENGINE(Config) , Config
using KernelConfig = EngineVariant<void SINTER_ENGINES(SINTER_ENGINE)>;
#undef SINTER_ENGINE

}  // namespace sinter
