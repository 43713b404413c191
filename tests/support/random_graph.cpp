// The driver of the random graphs: draws the graph's types and size, then lets the makers of the
// operations add nodes until the graph is full.
#include "support/random_graph.hpp"

#include <algorithm>

#include "support/random_graph_grower.hpp"

namespace sinter::test {
namespace {

struct Maker {
  std::string_view name;
  void (*grow)(Grower&);
  double weight;
  bool exact;  // has modes that are exact on integers
};

constexpr Maker kMakers[] = {
    {"pointwise", grow_pointwise, 36, true},
    {"reduction", grow_reduction, 8, true},
    {"softmax", grow_softmax, 3, false},
    {"softmax_backward", grow_softmax_backward, 2, false},
    {"rng", grow_rng, 2, false},
    {"block_scale_quantize", grow_block_scale_quantize, 2, false},
    {"block_scale_dequantize", grow_block_scale_dequantize, 2, false},
    {"matmul", grow_matmul, 10, true},
    {"convolution", grow_convolution, 8, true},
    {"moe", grow_moe, 3, true},
    {"norm", grow_norm, 6, false},
    {"norm_backward", grow_norm_backward, 6, false},
    {"batchnorm_inference", grow_batchnorm_inference, 1.5, false},
    {"sdpa", grow_sdpa, 5, false},
    {"sdpa_backward", grow_sdpa_backward, 4, false},
    {"resample", grow_resample, 4, true},
    {"resample_backward", grow_resample_backward, 3, false},
    {"reshape", grow_reshape, 3, true},
    {"transpose", grow_transpose, 3, true},
    {"slice", grow_slice, 3, true},
    {"concatenate", grow_concatenate, 3, true},
};
// What models write out in several nodes. Half of the graphs have them beside the single
// operations; which, is drawn apart, so that the others stay what they are.
constexpr Maker kWrittenOut[] = {
    {"written_attention", grow_written_attention, 14, false},
    {"written_norm", grow_written_norm, 10, false},
    {"written_quantize", grow_written_quantize, 8, false},
    {"rotation", grow_rotation, 6, false},
    {"gated", grow_gated, 8, false},
    {"convolutions", grow_convolutions, 10, false},
    {"joined_parts", grow_joined_parts, 8, false},
};
// The same of seeds from kLayersVary on.
constexpr Maker kLayers[] = {
    {"sums_of_products", grow_sums_of_products, 8, false},
    {"chained", grow_chained, 6, false},
    {"dequantized", grow_dequantized, 6, false},
    {"halves", grow_halves, 6, false},
    {"pooled", grow_pooled, 6, false},
    {"across", grow_across, 6, false},
};
// And of seeds from kTrainingVary on.
constexpr Maker kTraining[] = {
    {"convolution_step", grow_convolution_step, 8, false},
    {"linear_step", grow_linear_step, 6, false},
    {"experts", grow_experts, 5, false},
    {"attention_layer", grow_attention_layer, 8, false},
    {"scaled_product", grow_scaled_product, 6, false},
    {"class_loss", grow_class_loss, 4, false},
    {"update", grow_update, 3, false},
    {"norm_layer", grow_norm_layer, 6, false},
};

struct Types {
  DataType io, intermediate, compute;
};

Types graph_types(Random& random, bool exact) {
  if (exact)
    return random.pick({Types{f32, f32, f32}, Types{f16, f32, f32}, Types{bf16, f32, f32},
                        Types{f32, f32, tf32}, Types{f64, f64, f64}});
  static constexpr std::pair<Types, double> rows[] = {
      {{f32, f32, f32}, 20},     {{f16, f32, f32}, 18},   {{bf16, f32, f32}, 18},
      {{f16, f16, f32}, 6},      {{bf16, bf16, f32}, 6},  {{f32, f32, tf32}, 6},
      {{f64, f64, f64}, 4},      {{f64, f32, f64}, 1},    {{f32, f32, f64}, 2},
      {{f32, f16, f16}, 2},      {{bf16, bf16, bf16}, 2}, {{f16, bf16, f32}, 1},
      {{f8e4m3, f32, f32}, 3},   {{f8e5m2, f16, f32}, 2}, {{f4e2m1, f32, f32}, 1},
      {{i8, i32, i32}, 1},       {{i32, i32, i32}, 1},    {{i64, i64, i64}, 1},
      {{u8, f32, f32}, 1},       {{i8, f32, f32}, 1},     {{boolean, f32, f32}, 1},
      {{f32, f8e4m3, f32}, 0.5}, {{f32, f32, i32}, 0.5},  {{f32, f64, f32}, 1},
  };
  return random.weighted(rows);
}

}  // namespace

Shared<Graph> random_graph(const RandomGraphOptions& given) {
  RandomGraphOptions options = given;
  const bool layers = options.seed >= kLayersVary;
  if (layers && Random(options.seed + 3).chance(0.05)) options.max_elements *= 8;
  Random random(options.seed);
  const Types types = graph_types(random, options.exact_only);
  GraphOptions graph_options;
  graph_options.name = options.hostile_names ? random.pick({"graph", "", "g\"1\\\n", "int main("})
                                             : (random.bits(), "graph");
  graph_options.io = types.io;
  graph_options.intermediate = types.intermediate;
  graph_options.compute = types.compute;
  auto graph = Shared<Graph>::make(std::move(graph_options));
  Grower grower(*graph, options, random.bits());
  std::vector<std::pair<const Maker*, double>> makers;
  constexpr double often = 120;  // as much as all others together, and a little more
  const auto offer = [&](const Maker& m) {
    if (m.exact || !options.exact_only)
      makers.emplace_back(&m, m.name == options.often ? often : m.weight);
  };
  for (const auto& m : kMakers) offer(m);
  const bool written_out = Random(options.seed + 1).chance(0.5);
  for (const auto& m : kWrittenOut)
    if (written_out || m.name == options.often) offer(m);
  for (const auto& m : kLayers)
    if (layers && (written_out || m.name == options.often)) offer(m);
  for (const auto& m : kTraining)
    if (options.seed >= kTrainingVary && (written_out || m.name == options.often)) offer(m);
  while (grower.nodes_left() > 0) grower.random.weighted(makers)->grow(grower);
  grower.finish();
  if (options.seed >= kCallsVary) vary_calls(*graph, Random(options.seed + 2));
  return graph;
}

}  // namespace sinter::test
