#include "runtime/map_patch.hpp"

#include <algorithm>
#include <cstring>

#include "plan/map_problem.hpp"

namespace sinter {
namespace {

constexpr int kLastDefectiveDriver = 13010;
constexpr std::int64_t kDefectiveBelow = 131072;

// The hardware moves bits: only rounding f32 to tf32 on the way, and adding to f32 in memory,
// depend on the type.
CUtensorMapDataType data_type(DataType type) {
  if (type == DataType::tf32) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  if (type == DataType::f32) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  switch (info(type).bytes) {
    case 1:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case 2:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case 4:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
  }
}

CUtensorMapSwizzle swizzle(int bytes) {
  return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
         : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                       : CU_TENSOR_MAP_SWIZZLE_NONE;
}

}  // namespace

MapPatch map_patch(const PlanMap& m, std::uint32_t offset, std::int64_t position) {
  MapPatch p;
  p.offset = offset;
  p.map = position;
  p.workspace = m.workspace;
  p.value = m.value;
  p.pointer_offset = m.map.offset;
  p.type = data_type(m.map.type);
  p.swizzle = swizzle(m.map.swizzle);
  p.rank = static_cast<std::uint32_t>(m.map.dim.size());
  std::copy(m.map.dim.begin(), m.map.dim.end(), p.dim.begin());
  std::copy(m.map.stride.begin(), m.map.stride.end(), p.stride.begin());
  std::copy(m.map.box.begin(), m.map.box.end(), p.box.begin());
  p.walks_pixels = m.map.walks_pixels();
  std::copy(m.map.lower.begin(), m.map.lower.end(), p.lower.begin());
  std::copy(m.map.upper.begin(), m.map.upper.end(), p.upper.begin());
  std::copy(m.map.step.begin(), m.map.step.end(), p.step.begin() + 1);
  p.clear_bit_21 = map_span(m.map) < kDefectiveBelow;
  return p;
}

CUresult encode_map(const Driver& driver, const MapPatch& p, std::byte* memory,
                    std::byte* destination) {
  CUtensorMap map;
  static_assert(sizeof map == kTensorMapBytes);
  // What lies outside the extents is read as zeros.
  // Larger pieces for the second-level cache (256 bytes) would cost 4 % where memory is the limit
  // (33.4 instead of 32.2 us for 8 x 8192 x 8192 of bf16 on an H200), and gain nothing elsewhere.
  const CUresult r =
      p.walks_pixels
          ? driver.tensor_map_encode_im2col(
                &map, p.type, p.rank, memory + p.pointer_offset, p.dim.data(), p.stride.data(),
                p.lower.data(), p.upper.data(), p.box[0], p.box[1], p.step.data(),
                CU_TENSOR_MAP_INTERLEAVE_NONE, p.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
          : driver.tensor_map_encode_tiled(
                &map, p.type, p.rank, memory + p.pointer_offset, p.dim.data(), p.stride.data(),
                p.box.data(), p.step.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, p.swizzle,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) return r;
  // A known defect of drivers up to 13.1: they set this bit for small tensors too, where it must
  // not be set.
  if (p.clear_bit_21 && driver.version <= kLastDefectiveDriver)
    map.opaque[1] &= ~(cuuint64_t{1} << 21);
  std::memcpy(destination, &map, sizeof map);
  return r;
}

}  // namespace sinter
