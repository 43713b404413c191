// How a contraction runs on the tensor cores that every GPU from sm_80 on has: the type of the
// products, how the operands come to shared memory, and the tiles; see
// codegen/device/family/contraction_mma.cuh. A pure function of the spec and the device model.
#pragma once
#include <optional>

#include "schedule/launch.hpp"
#include "schedule/packing.hpp"
#include "target/device_model.hpp"

namespace sinter {

struct MmaOperand {
  bool k_fastest = true;  // its elements lie together along k; else along its rows
  bool copied = false;    // they go to shared memory as they are, without passing registers
  bool ragged = false;    // the last neighbours along that index may lie outside
  bool joined = false;    // the indices of k lie one behind another, as if they were one
  bool plain = false;     // not copied: but loaded, and its pairs need no float between
  Packing packing;        // neighbours that move together
};

struct MmaTile {
  int m = 128, n = 128;
  int warps_m = 2, warps_n = 2;
  int line = 64;  // bytes of k in a stage
  int stages = 4;
};

struct MmaConfig : Launch {
  DataType number{};  // of the factors: f16, bf16 or tf32
  MmaOperand a, b;
  MmaTile tile;
  bool n_fastest = true;  // along which index the result lies in memory
  int group = 8;          // rows of tiles that run side by side
  int unroll = 1;         // of the epilogue
  int promote_every = 0;  // of integers: steps whose sums f32 holds exactly; 0: all of them
  double tiles = 1;
  Packing packing;  // of the epilogue
};

struct MmaPlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  MmaConfig engine;
};

// The type in which tensor cores multiply the operands; none where no such type holds their values.
DataType factor_type(const KernelSpec& spec);

// Nothing where there is no such type, or every tile would make too much code.
std::optional<MmaPlan> plan_mma(const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
