// How contractions work.
#include <fmt/format.h>

#include <algorithm>

#include "planner/explain/how.hpp"

namespace sinter {
namespace {

// How an operand of a contraction comes to shared memory, on any GPU.
std::string moved(std::string_view name, std::int64_t copied, std::int64_t width) {
  const std::string vectors =
      width > 1 ? fmt::format("vectors of {} elements", width) : std::string("element by element");
  return copied ? fmt::format("; {} by cp.async, {}", name, vectors)
                : fmt::format("; {} through registers (computed, converted or unaligned), {}", name,
                              vectors);
}

// A tile of sums, whatever multiplies.
std::string tiles_of(KernelConstants& get) {
  return fmt::format("{}tiles of {} x {} results on ",
                     get.some("totals") > 0 ? "results are also reduced, in parts of 16 rows or "
                                              "columns that the next kernel adds up; "
                                            : "",
                     get("tile_m"), get("tile_n") / std::max<std::int64_t>(1, get("products")));
}

std::string how_wgmma(KernelConstants& get, const PlanKernel& k, std::string_view gpu) {
  std::string s = tiles_of(get) +
                  fmt::format("tensor cores (wgmma), {} stages of 128 bytes of k in shared memory",
                              get("stages"));
  s += get("alternate") ? "; pingpong: of two warpgroups one multiplies while one has its epilogue"
       : k.block > 384  ? "; cooperative: three warpgroups share a tile"
       : k.block > 256  ? "; cooperative: two warpgroups share a tile"
                        : "; one warpgroup multiplies";
  if (get("loaded_rows") < get("tile_m"))
    s += fmt::format("; as A has few rows, no more than {} are loaded for a tile",
                     get("loaded_rows"));
  if (get("cluster_m") * get("cluster_n") > 1)
    s += fmt::format("; clusters of {} x {} tiles share an operand", get("cluster_m"),
                     get("cluster_n"));
  if (get("products") > 1) s += "; two products share A, a tile holds as many columns of each";
  if (get("split") > 1) s += fmt::format("; split k: {} thread blocks a tile", get("split"));
  if (get("promote_accumulators"))
    s += fmt::format("; sums are {}promoted to f32 every 128 terms",
                     get("scaled") ? "scaled and " : "");
  if (get.some("groups") > 0)
    s += fmt::format("; rows of {} groups, estimated as if all were as long", get("groups"));
  for (const char* const name : {"a", "b"})
    if (get.some(fmt::format("{}_shifted", name)))
      s += fmt::format("; lines of {} begin at no multiples of 16 bytes: threads shift them",
                       *name == 'a' ? "A" : "B");
  if (get.some("gathered")) s += "; threads copy the rows of A that the table names";
  return s + fmt::format("; {} of {} tiles, {}",
                         get("tuned") ? "measured to be the fastest" : "the fastest by estimate",
                         get("legal_tiles"), estimated(get, gpu));
}

std::string how_image_rows(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "few channels: each warp of a warpgroup walks down an image with 16 neighbouring results; "
      "pixels come as they lie in memory, {} groups of rows ahead, and their fragments stay in "
      "registers for all rows of {} filters on tensor cores (wgmma); {}",
      get("stages") - 1, get("tile_n"), estimated(get, gpu));
}

std::string how_chained(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "two products in tiles of {} rows on tensor cores: the sums of the first stay in registers, "
      "where they become the left operand of the second; {}",
      get("tile_m"), estimated(get, gpu));
}

// mma.sync, or the same tiles on CUDA cores.
std::string how_mma(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return tiles_of(get) +
         fmt::format(
             "{}, {} x {} warps, {} stages of {} along k in shared memory",
             get.some("cuda_cores") ? "CUDA cores, as nothing may be rounded" : "tensor cores",
             get("warps_m"), get("warps_n"), get("stages"), get("tile_k")) +
         moved("A", get("a_copied"), get("a_width")) + moved("B", get("b_copied"), get("b_width")) +
         (get.some("held_steps") ? fmt::format("; registers hold {} steps", get("held_steps"))
                                 : "") +
         (get.some("split") ? fmt::format("; split k: {} thread blocks a tile", get("split"))
                            : "") +
         (get("promote_every") > 0 ? fmt::format("; sums move to 32-bit integers every {} terms",
                                                 get("promote_every") * get("tile_k"))
                                   : "") +
         "; " + estimated(get, gpu);
}

std::string how_simt(KernelConstants& get, const PlanKernel&, std::string_view) {
  if (get.some("tensor_cores"))
    return fmt::format("tiles of {0} x {0} results on tensor cores, in f64", get("tile"));
  return fmt::format("tiles of {0} x {0} results on CUDA cores, as ", get("tile")) +
         (get("zero_dominates")
              ? "products with a zero of A are zero also where B is infinite, and operands are "
                "gathered or of types that tensor cores do not multiply"
              : "tensor cores multiply no type that holds both operands, or their code is long");
}

// Depthwise: threads that walk down the image.
std::string what_threads_make(KernelConstants& get) {
  return get("m") > 0 ? "results" : "gradients, summing for each tap";
}
std::string how_depthwise(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: CUDA cores, {} of {} side by side; each thread walks down {} "
      "rows of {} {}; {}",
      counted(get("lanes"), "lane"), counted(get("each"), "channel"), get("run") * get("rows"),
      get("columns"), what_threads_make(get), estimated(get, gpu));
}
std::string how_depthwise_planes(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: CUDA cores; whole planes of {} channels or groups, of {} "
      "images, are copied to shared memory as they lie; each thread walks down {} rows of {} {}; "
      "{}",
      get("units"), get("images"), get("run") * get("rows"), get("columns"), what_threads_make(get),
      estimated(get, gpu));
}
// Band matrices, tiles side by side.
std::string how_depthwise_mma(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: tensor cores, {}; each warp walks down {} rows of 16 tiles of "
      "{} results, {} side by side; {}",
      get.has("stages")
          ? fmt::format("{} of {}, rows of pixels in shared memory", counted(get("lanes"), "warp"),
                        counted(get("each"), "channel"))
          : fmt::format("{} warps of one channel, pixels in registers", get("threads") / 32),
      get("run"), get("columns"), get("across"), estimated(get, gpu));
}
std::string how_depthwise_gradient_mma(KernelConstants& get, const PlanKernel&,
                                       std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: tensor cores, {} warps of {} channels multiply rows of pixels "
      "with rows of gradients in shared memory, {} stages; each walks down {} rows; {}",
      get("lanes"), get("each"), get("stages"), get("run") * get("rows"), estimated(get, gpu));
}
std::string how_groups(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "groups of {} channels, of which 8 that lie together are a unit: tensor cores, {} warps of "
      "one unit and tiles of {} results, with zeros in the filter between groups; each walks down "
      "{} rows, {} tiles side by side; rows of pixels in shared memory, {} stages; {}",
      get("group"), get("lanes"), get("columns"), get("run"), get("across"), get("stages"),
      estimated(get, gpu));
}
std::string how_channels_gradient(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "{} channels and {} filters: tensor cores (wgmma) multiply rows of {} pixels in shared "
      "memory, at all taps of a row, with rows of gradients; loaded {} steps of rows ahead; {}",
      get("group"), get("gradient_group"), get("columns"), get("stages"), estimated(get, gpu));
}
std::string how_runs_gradient(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "runs of {} channels and a row of taps, and {} filters a block: tensor cores (wgmma) "
      "multiply rows of {} pixels in registers with rows of gradients in shared memory, {} stages; "
      "{}",
      get("group"), get("gradient_group"), get("columns"), get("stages"), estimated(get, gpu));
}
std::string how_groups_gradient(KernelConstants& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "groups of {} channels, of which 8 that lie together are a unit: tensor cores, {} warps of "
      "one unit of gradients and 16 pixels, those of other groups multiplied with them and left "
      "out; rows of pixels in shared memory, {} stages; {}",
      get("group"), get("lanes"), get("stages"), estimated(get, gpu));
}

}  // namespace

std::span<const EngineSentence> contraction_sentences() {
  static constexpr EngineSentence all[] = {
      {"contraction_simt", how_simt},
      {"contraction_fma", how_mma},
      {"contraction_mma", how_mma},
      {"contraction_streamed_parts", how_mma},
      {"contraction_wgmma", how_wgmma},
      {"contraction_image_rows", how_image_rows},
      {"contraction_chained", how_chained},
      {"contraction_depthwise", how_depthwise},
      {"contraction_depthwise_gradient", how_depthwise},
      {"contraction_depthwise_rows", how_depthwise},
      {"contraction_depthwise_planes", how_depthwise_planes},
      {"contraction_depthwise_planes_gradient", how_depthwise_planes},
      {"contraction_depthwise_mma", how_depthwise_mma},
      {"contraction_depthwise_mma_boxes", how_depthwise_mma},
      {"contraction_depthwise_lines", how_depthwise_mma},
      {"contraction_depthwise_gradient_mma", how_depthwise_gradient_mma},
      {"contraction_depthwise_groups", how_groups},
      {"contraction_depthwise_groups_gradient", how_groups_gradient},
      {"contraction_depthwise_channels_gradient", how_channels_gradient},
      {"contraction_depthwise_runs_gradient", how_runs_gradient},
  };
  return all;
}

}  // namespace sinter
