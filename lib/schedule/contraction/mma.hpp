// How a contraction runs on the tensor cores that every GPU from sm_80 on has, and, in f32 that
// must not be rounded, on CUDA cores: the type of the products, how the operands come to shared
// memory, and the tiles; see codegen/device/family/contraction_mma.cuh and contraction_fma.cuh. A
// pure function of the spec and the device model.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plan/tuning.hpp"
#include "schedule/contraction/counted_products.hpp"
#include "schedule/launch.hpp"
#include "schedule/packing.hpp"
#include "target/device_model.hpp"

namespace sinter {

struct MmaOperand {
  bool k_fastest = true;  // its elements lie together along k; else along its rows
  bool copied = false;    // they go to shared memory as they are, without passing registers
  bool ragged = false;    // the last neighbours along that index may lie outside
  bool joined = false;    // the indices of k lie one behind another, as if they were one
  // It lies along k in memory and along its rows in shared memory; copied element by element.
  bool transposed = false;
  // Copied as it is: bytes along k, which threads convert behind shared memory.
  bool streamed = false;
  bool plain = false;  // not copied as a factor: but loaded, and its pairs need no float between
  bool byte_packs = false;  // packs of integers of 8 bits stay words until they are converted
  Packing packing;          // neighbours that move together
};

struct MmaTile {
  int m = 128, n = 128;
  int warps_m = 2, warps_n = 2;
  int line = 64;  // bytes of k in a stage
  int stages = 4;
  int split = 1;       // blocks of a cluster that share k, of what is streamed
  int held_steps = 1;  // of what passes through registers, fetched so many steps before it is put
};

struct MmaConfig : Launch {
  DataType number{};  // of the factors: f16, bf16 or tf32; f32 on CUDA cores
  MmaOperand a, b;
  MmaTile tile;
  bool n_fastest = true;  // along which index the result lies in memory
  int group = 8;          // rows of tiles that run side by side
  int unroll = 1;         // of the epilogue
  int promote_every = 0;  // of integers: steps whose sums f32 holds exactly; 0: all of them
  double tiles = 1;
  Packing packing;          // of the epilogue
  CountedProducts counted;  // where a sum that is not finite is computed again
  bool cuda_cores() const { return number == DataType::f32; }
  bool sums_integers() const { return promote_every > 0; }
};

struct EstimatedMmaTile {
  MmaTile tile;
  double microseconds;
};

// What a plan was chosen from, where that can be measured.
struct MmaChoice {
  std::string problem;
  std::vector<EstimatedMmaTile> tiles;
  KernelChoice ranked() const;
};

struct MmaPlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  MmaConfig engine;
  MmaChoice choice;
  bool tuned = false;       // the tile is the measured one, not the one estimated to be the fastest
  double microseconds = 0;  // of the tile estimated to be the fastest
};

// The type in which tensor cores multiply the operands; none where no such type holds their values.
DataType factor_type(const KernelSpec& spec);

// With what was decided for another spec of the same structure; nothing where that does not hold.
std::optional<MmaPlan> schedule_as(const MmaConfig& decided, const KernelSpec& spec,
                                   const DeviceModel& device);
// Nothing where there is no such type, or every tile would make too much code.
std::optional<MmaPlan> plan_mma(const KernelSpec& spec, const DeviceModel& device);

// On CUDA cores: nothing where tensor cores have a type for the factors, or f32 has not, and
// where every tile would make too much code.
std::optional<MmaPlan> plan_fma(const KernelSpec& spec, const DeviceModel& device,
                                const Tuning& tuning);

}  // namespace sinter
