// How pointwise kernels work.
#include <fmt/format.h>

#include "planner/explain/how.hpp"

namespace sinter {
namespace {

std::string how_pointwise(KernelConstants& get, const PlanKernel&, std::string_view) {
  const std::string moves = moved_vectors(get);
  return fmt::format("{}, {} in flight a thread{}", moves, get("unroll"),
                     get.some("misaligned") > 0 ? kMisalignedRows : "");
}

std::string how_tiled(KernelConstants& get, const PlanKernel&, std::string_view) {
  const std::string moves = moved_vectors(get);
  if (get("staged_loads") == 0 && get("staged_stores") == 0)
    return fmt::format(
        "runs of {} elements lie in another order where they are written: blocks of {} x {} runs; "
        "{}",
        get("tile_along"), get("tile_through"), get("tile_across"), moves);
  return fmt::format(
      "tensors are contiguous along different dims: tiles of {} x {} elements{} are transposed "
      "in shared memory{}; {}",
      get("tile_along"), get("tile_across"),
      get("tile_through") > 1 ? fmt::format(" of {} matrices", get("tile_through")) : "",
      get("misaligned") ? ", in vectors that start where memory is aligned, as rows are not" : "",
      moves);
}

}  // namespace

std::span<const EngineSentence> pointwise_sentences() {
  static constexpr EngineSentence all[] = {
      {"pointwise", how_pointwise},
      {"pointwise_misaligned", how_pointwise},
      {"tiled", how_tiled},
      {"tiled_flat", how_tiled},
  };
  return all;
}

}  // namespace sinter
