// The sentence that says how a kernel works.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/explain/explain.hpp"

namespace sinter {
namespace {

// What the generator chose for a kernel, by name. A plan file may lack what an explanation needs:
// the first such name is kept, and stands in the explanation's place.
class Config {
 public:
  explicit Config(const PlanKernel& kernel) : kernel_(kernel) {}
  // What every kernel of its kind has.
  std::int64_t operator()(std::string_view key) {
    const auto value = find(key);
    if (!value && missing_.empty()) missing_ = key;
    return value.value_or(0);
  }
  // What only some have, 0 in others.
  std::int64_t some(std::string_view key) const { return find(key).value_or(0); }
  bool has(std::string_view key) const { return find(key).has_value(); }
  const std::string& missing() const { return missing_; }

 private:
  std::optional<std::int64_t> find(std::string_view key) const {
    for (const auto& [name, value] : kernel_.config)
      if (name == key) return value;
    return {};
  }
  const PlanKernel& kernel_;
  std::string missing_;
};

// How an operand of a contraction comes to shared memory, on any GPU.
std::string moved(std::string_view name, std::int64_t copied, std::int64_t width) {
  const std::string vectors =
      width > 1 ? fmt::format("vectors of {} elements", width) : std::string("element by element");
  return copied ? fmt::format("; {} by cp.async, {}", name, vectors)
                : fmt::format("; {} through registers (computed, converted or unaligned), {}", name,
                              vectors);
}

// The time that planning compared.
std::string estimated(Config& get, std::string_view gpu) {
  return fmt::format("estimated at {:.1f} us on {}",
                     static_cast<double>(get("estimated_ns")) / 1000, gpu);
}

// A tile of sums, whatever multiplies.
std::string tiles_of(Config& get) {
  return fmt::format("{}tiles of {} x {} results on ",
                     get.some("totals") > 0 ? "results are also reduced, in parts of 16 rows or "
                                              "columns that the next kernel adds up; "
                                            : "",
                     get("tile_m"), get("tile_n") / std::max<std::int64_t>(1, get("products")));
}

std::string how_wgmma(Config& get, const PlanKernel& k, std::string_view gpu) {
  std::string s =
      tiles_of(get) +
      fmt::format("the tensor cores of sm_90a, {} stages of 128 bytes of k in shared memory",
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

std::string how_image_rows(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "few channels: each warp of a warpgroup walks down an image with 16 neighbouring results; "
      "pixels come as they lie in memory, {} groups of rows ahead, and their fragments stay in "
      "registers for all rows of {} filters on the tensor cores of sm_90a; {}",
      get("stages") - 1, get("tile_n"), estimated(get, gpu));
}

std::string how_chained(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "two products in tiles of {} rows on tensor cores: the sums of the first stay in registers, "
      "where they become the left operand of the second; {}",
      get("tile_m"), estimated(get, gpu));
}

// mma.sync, or the same tiles on CUDA cores.
std::string how_mma(Config& get, const PlanKernel&, std::string_view gpu) {
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

std::string how_simt(Config& get, const PlanKernel&, std::string_view) {
  if (get("tensor_cores"))
    return fmt::format("tiles of {0} x {0} results on tensor cores, in f64", get("tile"));
  return fmt::format("tiles of {0} x {0} results on CUDA cores, as ", get("tile")) +
         (get("zero_dominates")
              ? "products with a zero of A are zero also where B is infinite, and operands are "
                "gathered or of types that tensor cores do not multiply"
              : "tensor cores multiply no type that holds both operands, or their code is long");
}

std::string counted(std::int64_t n, std::string_view of) {
  return fmt::format("{} {}{}", n, of, n == 1 ? "" : "s");
}

// Depthwise: threads that walk down the image.
std::string what_threads_make(Config& get) {
  return get("m") > 0 ? "results" : "gradients, summing for each tap";
}
std::string how_depthwise(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: CUDA cores, {} of {} side by side; each thread walks down {} "
      "rows of {} {}; {}",
      counted(get("lanes"), "lane"), counted(get("each"), "channel"), get("run") * get("rows"),
      get("columns"), what_threads_make(get), estimated(get, gpu));
}
std::string how_depthwise_planes(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: CUDA cores; whole planes of {} channels or groups, of {} "
      "images, are copied to shared memory as they lie; each thread walks down {} rows of {} {}; "
      "{}",
      get("units"), get("images"), get("run") * get("rows"), get("columns"), what_threads_make(get),
      estimated(get, gpu));
}
// Band matrices, tiles side by side.
std::string how_depthwise_mma(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: tensor cores, {}; each warp walks down {} rows of 16 tiles of "
      "{} results, {} side by side; {}",
      get.has("stages")
          ? fmt::format("{} of {}, rows of pixels in shared memory", counted(get("lanes"), "warp"),
                        counted(get("each"), "channel"))
          : fmt::format("{} warps of one channel, pixels in registers", get("threads") / 32),
      get("run"), get("columns"), get("across"), estimated(get, gpu));
}
std::string how_depthwise_gradient_mma(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "channels are not summed over: tensor cores, {} warps of {} channels multiply rows of pixels "
      "with rows of gradients in shared memory, {} stages; each walks down {} rows; {}",
      get("lanes"), get("each"), get("stages"), get("run") * get("rows"), estimated(get, gpu));
}
std::string how_groups(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "groups of {} channels, of which 8 that lie together are a unit: tensor cores, {} warps of "
      "one unit and tiles of {} results, with zeros in the filter between groups; each walks down "
      "{} rows, {} tiles side by side; rows of pixels in shared memory, {} stages; {}",
      get("group"), get("lanes"), get("columns"), get("run"), get("across"), get("stages"),
      estimated(get, gpu));
}
std::string how_groups_gradient(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "groups of {} channels, of which 8 that lie together are a unit: tensor cores, {} warps of "
      "one unit of gradients and 16 pixels, those of other groups multiplied with them and left "
      "out; rows of pixels in shared memory, {} stages; {}",
      get("group"), get("lanes"), get("stages"), estimated(get, gpu));
}

std::string how_attention(Config& get, const PlanKernel&, std::string_view gpu) {
  const bool by_warps = !get.has("producer_registers");
  const auto key_warps = get.some("key_warps") ? get("key_warps") : 1;
  return fmt::format(
      "tiles of {} rows and {} keys on tensor cores{}, {} stages of keys and values in shared "
      "memory{}: "
      "scores and weights stay in registers, fully masked tiles are skipped, {} heads run side "
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
      get("heads_together"), estimated(get, gpu));
}

std::string how_attention_backward(Config& get, const PlanKernel&, std::string_view gpu) {
  return fmt::format(
      "tiles of {} keys, whose gradients stay in registers, loop over tiles of {} queries on "
      "tensor cores; weights and their gradients are never in memory, fully masked tiles are "
      "skipped, dQ is added to sums in memory;{} {} heads run side by side; {}",
      get("tile_k"), get("tile_q"),
      get.some("parts")
          ? fmt::format(" {} thread blocks share the queries of a tile, whose parts of dK "
                        "and dV another kernel adds up;",
                        get("parts"))
          : "",
      get("heads_together"), estimated(get, gpu));
}

std::string how_pointwise_or_rowwise(Config& get, const PlanKernel& k, std::string_view) {
  const auto width = get("width");
  const std::string moves = width > 1 ? fmt::format("vectors of {} elements", width)
                                      : "element by element, as extents, strides or alignments "
                                        "allow no more or the rows are short";
  if (k.family == Family::pointwise && get.has("tile_along") && get("staged_loads") == 0 &&
      get("staged_stores") == 0)
    return fmt::format(
        "runs of {} elements lie in another order where they are written: blocks of {} x {} runs; "
        "{}",
        get("tile_along"), get("tile_through"), get("tile_across"), moves);
  if (k.family == Family::pointwise && get.has("tile_along"))
    return fmt::format(
        "tensors are contiguous along different dims: tiles of {} x {} elements{} are transposed "
        "in shared memory{}; {}",
        get("tile_along"), get("tile_across"),
        get("tile_through") > 1 ? fmt::format(" of {} matrices", get("tile_through")) : "",
        get("misaligned") ? ", in vectors that start where memory is aligned, as rows are not" : "",
        moves);
  constexpr std::string_view misaligned =
      "; rows are misaligned: vectors start at aligned addresses";
  if (k.family == Family::pointwise)
    return fmt::format("{}, {} in flight a thread{}", moves, get("unroll"),
                       get.some("misaligned") > 0 ? misaligned : "");
  if (get("rows_fastest"))
    return fmt::format(
        "neighbouring rows are contiguous: {} across rows and {} along a row{}; {}{}",
        counted(get("rows_per_block"), "thread"), get("threads_per_row"),
        get.some("held_in_shared") > 0
            ? fmt::format(" in each of {} blocks, whose shared memory holds it",
                          get("blocks_per_row"))
            : "",
        moves, get("misaligned") ? ", cut out of aligned pieces, as they are misaligned" : "");
  std::string s = counted(get("threads_per_row"), "thread") + " a row";
  if (get("blocks_per_row") > 1)
    s += fmt::format(
        " in each of {} blocks, as one would not hold it, leave others idle, or wait alone on "
        "an SM",
        get("blocks_per_row"));
  if (get("rows_per_block") > 1) s += fmt::format(", {} rows a block", get("rows_per_block"));
  s += get("register_resident") ? "; a row is read once and stays in registers"
                                : "; a row does not fit in registers, each phase reads it again";
  if (get.some("staged_rows") > 0) s += "; a block's rows come to shared memory at once";
  if (get("num_partials") > 0)
    s += fmt::format("; {} persistent {} loop over the rows and {}", get("num_partials"),
                     get("blocks_per_row") > 1 ? "clusters" : "blocks",
                     get.some("kinds") > 0 ? "sum up columns, finished by the next kernel"
                                           : "keep what all of these share in registers");
  if (get("misaligned")) s += misaligned;
  return s + "; " + moves;
}

// By the device library's file that the kernel calls.
struct EngineSentence {
  std::string_view engine;
  std::string (*how)(Config& get, const PlanKernel& k, std::string_view gpu);
};
constexpr EngineSentence kSentences[] = {
    {"pointwise", how_pointwise_or_rowwise},
    {"pointwise_misaligned", how_pointwise_or_rowwise},
    {"tiled", how_pointwise_or_rowwise},
    {"tiled_flat", how_pointwise_or_rowwise},
    {"rowwise", how_pointwise_or_rowwise},
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
    {"attention_forward", how_attention},
    {"attention_forward_mma", how_attention},
    {"attention_forward_wide", how_attention},
    {"attention_backward", how_attention_backward},
    {"attention_backward_mma", how_attention_backward},
    {"attention_backward_wide", how_attention_backward},
};

}  // namespace

std::string how_it_works(const PlanKernel& k, std::string_view gpu) {
  const auto known = std::ranges::find(kSentences, engine_of(k), &EngineSentence::engine);
  if (known == std::end(kSentences)) return "unknown, as the kernel calls no known engine";
  Config get(k);
  const std::string text = known->how(get, k, gpu);
  return get.missing().empty()
             ? text
             : fmt::format("unknown, as the plan's config has no '{}'", get.missing());
}

}  // namespace sinter
