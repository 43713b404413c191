// A tensor map on its way from the plan to the argument struct: everything but the pointer is known
// at load, so execute() makes one call of the driver for it.
#pragma once
#include <array>

#include "plan/plan_data.hpp"
#include "runtime/driver.hpp"

namespace sinter {

struct MapPatch {
  std::uint32_t offset = 0;  // in the argument struct
  std::int64_t map = 0;      // position in PlanKernel::maps, for error texts
  bool workspace = false;
  std::int64_t value = 0;           // position of the tensor, or byte offset in the workspace
  std::int64_t pointer_offset = 0;  // bytes
  CUtensorMapDataType type{};
  CUtensorMapSwizzle swizzle{};
  std::uint32_t rank = 0;
  std::array<cuuint64_t, 5> dim{}, stride{};
  std::array<cuuint32_t, 5> box{};  // im2col: channels, pixels
  // im2col, of each spatial dim; steps also of the dims around them
  bool walks_pixels = false;
  std::array<int, 3> lower{}, upper{};
  std::array<cuuint32_t, 5> step{1, 1, 1, 1, 1};
  bool clear_bit_21 = false;  // see encode_map
};

// `map` has no map_problem.
MapPatch map_patch(const PlanMap& map, std::uint32_t offset, std::int64_t position);

// Writes kTensorMapBytes.
CUresult encode_map(const Driver& driver, const MapPatch& patch, std::byte* memory,
                    std::byte* destination);

}  // namespace sinter
