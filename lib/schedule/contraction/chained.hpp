// How two chained products run in one kernel of warpgroups (wgmma); see
// codegen/device/family/contraction_chained.cuh. A pure function of the spec and the device model.
#pragma once
#include <optional>

#include "schedule/contraction/wgmma.hpp"

namespace sinter {

struct ChainedConfig : Launch {
  KernelSpec first;   // the first product: over (batch, m, p, k), its body is f
  BoxedOperand a, b;  // of the first product
  BoxedOperand c;     // the right operand of the second
  int tile_m = 64;    // rows: 64 for each consumer warpgroup
  int middle = 0;     // columns of the first product that are multiplied, a multiple of 64
  int columns = 0;    // of the second
  int stages = 2, stages_c = 2;  // of the pipelines: of A and B, of C
  int producer_registers = 24, consumer_registers = 240;
  bool n_fastest = true;  // along which index the result lies in memory
  int unroll = 2;         // of the epilogue
  Packing packing;        // of the epilogue

  template <class Self>
  static auto own_bodies(Self& e) {
    return std::vector{&e.first.body};
  }
};

struct ChainedPlan {
  KernelSpec spec;  // the second product, over (batch, m, n, p)
  ChainedConfig engine;
};

// `spec`: of a chained contraction. Nothing where the device has no such tensor cores, TMA cannot
// load the operands, or a product has more columns than registers hold.
std::optional<ChainedPlan> plan_chained(const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
