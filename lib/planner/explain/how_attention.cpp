// How attention and its gradients work.
#include <fmt/format.h>

#include "planner/explain/how.hpp"

namespace sinter {
namespace {

std::string how_attention(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  const bool by_warps = !get.has("producer_registers");
  const auto key_warps = get.some("key_warps") ? get("key_warps") : 1;
  return fmt::format(
      "tiles of {} rows and {} keys on tensor cores{}, {} stages of keys and values in shared "
      "memory{}: "
      "scores and weights stay in registers, fully masked tiles are skipped{}, {} heads run side "
      "by side; {}",
      get("tile_q"), get("tile_k"),
      by_warps ? fmt::format(", {} rows a warp", 32 * get("tile_q") * key_warps / get("threads"))
               : "",
      get("stages"),
      key_warps > 1
          ? fmt::format(", each of {} warps, which take tiles of keys in turns", key_warps)
      : get.some("key_blocks")
          ? fmt::format(", clusters of {} thread blocks divide the keys of a tile",
                        get("key_blocks"))
      : get.some("key_walks")
          ? ", one pass over the keys for the sums by which weights are divided before they are "
            "rounded, and one that multiplies them"
          : "",
      get.some("visited_percent")
          ? fmt::format(" (some {} % of all are visited, by samples)", get("visited_percent"))
          : "",
      get("heads_together"), estimated(get, gpu));
}

std::string how_attention_backward(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "tiles of {} keys, whose gradients stay in registers, loop over tiles of {} queries on "
      "tensor cores; weights and their gradients are never in memory, fully masked tiles are "
      "skipped, dQ is added to sums in memory or, where one tile has all keys, stored;{}{} {} "
      "heads "
      "run side by side; {}",
      get("tile_k"), get("tile_q"),
      get.some("parts")
          ? fmt::format(" {} thread blocks share the queries of a tile, whose parts of dK "
                        "and dV another kernel adds up;",
                        get("parts"))
          : "",
      get.some("windows")
          ? fmt::format(" each thread block takes {} batch entries in turn, and adds what they "
                        "share once;",
                        get("windows"))
          : "",
      get("heads_together"), estimated(get, gpu));
}

}  // namespace

std::span<const EngineSentence> attention_sentences() {
  static constexpr EngineSentence all[] = {
      {"attention_forward", how_attention},
      {"attention_forward_mma", how_attention},
      {"attention_forward_wide", how_attention},
  };
  return all;
}

std::span<const EngineSentence> attention_backward_sentences() {
  static constexpr EngineSentence all[] = {
      {"attention_backward", how_attention_backward},
      {"attention_backward_mma", how_attention_backward},
      {"attention_backward_wide", how_attention_backward},
  };
  return all;
}

}  // namespace sinter
