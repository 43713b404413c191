#include "golden/planned_kernels.hpp"

#include <functional>

#include "compile/make_plan.hpp"
#include "planner/images.hpp"
#include "support/catch.hpp"

namespace sinter::golden {
namespace {

using test::Images;
using test::padded;

enum class Of { fprop, dgrad, wgrad };
// A convolution of bf16, of images of `size` squared and filters of `filter`; `last`: channels lie
// together.
struct Convolution {
  std::int64_t images, channels, size, filters, filter;
  std::int64_t stride = 1, groups = 1;
  bool last = true;
};
std::function<Shared<Graph>()> convolution(Of of, const Convolution& c) {
  return [of, c] {
    Images i{.last = c.last};
    const std::int64_t out = (c.size + c.stride - 1) / c.stride;
    const Dims x{c.images, c.channels, c.size, c.size}, y{c.images, c.filters, out, out},
        w{c.filters, c.channels / c.groups, c.filter, c.filter};
    const ConvAttributes a = padded(c.filter / 2, c.stride, c.groups);
    if (of == Of::fprop)
      i.output(conv_fprop(i.input("image", x), i.input("filter", w), a), "result", y);
    else if (of == Of::dgrad)
      i.output(conv_dgrad(i.input("gradient", y), i.input("filter", w), x, a), "d_image", x);
    else
      i.output(conv_wgrad(i.input("gradient", y), i.input("image", x), w, a), "d_filter", w);
    return i.g;
  };
}

// Heads of d_qk, whose values are of d_v. `backward`: the gradients.
struct Heads {
  std::int64_t batch, heads, rows, d_qk, d_v;
  bool backward = false;
};
std::function<Shared<Graph>()> attention(const Heads& h) {
  return [h] {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto input = [&](const char* name, std::int64_t d, DataType type = DataType::none) {
      return g->tensor({.name = name, .dim = {h.batch, h.heads, h.rows, d}, .data_type = type});
    };
    const Tensor q = input("q", h.d_qk), k = input("k", h.d_qk), v = input("v", h.d_v);
    const SdpaAttributes causal{.attn_scale = 0.125, .causal_mask = true};
    if (!h.backward) {
      g->output(sdpa(q, k, v, causal).o, "o");
    } else {
      const auto d = sdpa_backward(q, k, v, input("o", h.d_v), input("do", h.d_v),
                                   input("stats", 1, f32), causal);
      g->output(d.dq, "dq");
      g->output(d.dk, "dk");
      g->output(d.dv, "dv");
    }
    return g;
  };
}

Shared<Graph> chained_products() {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto a = g->tensor({.name = "a", .dim = {64, 96}}),
             b = g->tensor({.name = "b", .dim = {96, 128}}),
             c = g->tensor({.name = "c", .dim = {128, 128}});
  g->output(matmul(relu(matmul(a, b)), c), "y");
  return g;
}

// Few rows and weights that lie along k.
Shared<Graph> weights_of_8_bits() {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {16, 4096}}),
             w = g->tensor(
                 {.name = "w", .dim = {4096, 14336}, .stride = {1, 4096}, .data_type = i8}),
             scale = g->tensor({.name = "scale", .dim = {1, 14336}, .data_type = f32});
  g->output(matmul(x, w) * scale, "y");
  return g;
}

struct Case {
  const char* form;
  const char* target;  // "": every GPU
  std::function<Shared<Graph>()> graph;
};
std::vector<Case> cases() {
  const char* const hopper = "sm_90a";
  return {
      {"attention_forward", hopper, attention({2, 8, 1024, 128, 128})},
      {"attention_forward_wide", hopper, attention({2, 8, 512, 320, 320})},
      {"attention_forward_mma", "", attention({2, 8, 512, 64, 64})},
      {"attention_backward", hopper, attention({2, 8, 1024, 128, 128, true})},
      {"attention_backward_wide", hopper, attention({2, 8, 512, 256, 256, true})},
      {"attention_backward_mma", "", attention({2, 8, 512, 64, 64, true})},
      {"contraction_chained", hopper, chained_products},
      {"contraction_streamed_parts", hopper, weights_of_8_bits},
      {"contraction_image_rows", hopper, convolution(Of::fprop, {64, 3, 224, 64, 7, 2})},
      {"contraction_window", hopper, convolution(Of::fprop, {32, 256, 56, 512, 1, 2})},
      {"contraction_window_resident", hopper, convolution(Of::fprop, {32, 64, 56, 64, 3})},
      {"contraction_window_gradient", hopper, convolution(Of::wgrad, {32, 64, 56, 64, 3})},
      {"contraction_depthwise", "", convolution(Of::fprop, {8, 24, 28, 24, 3, 2, 24})},
      {"contraction_depthwise_gradient", "", convolution(Of::wgrad, {8, 24, 28, 24, 3, 2, 24})},
      {"contraction_depthwise_mma", "", convolution(Of::fprop, {64, 384, 28, 384, 7, 1, 384})},
      {"contraction_depthwise_mma_boxes", hopper,
       convolution(Of::fprop, {64, 384, 28, 384, 7, 1, 384})},
      {"contraction_depthwise_gradient_mma", hopper,
       convolution(Of::wgrad, {64, 384, 28, 384, 7, 1, 384})},
      {"contraction_depthwise_rows", hopper, convolution(Of::fprop, {32, 144, 56, 144, 3, 1, 144})},
      {"contraction_depthwise_lines", hopper,
       convolution(Of::fprop, {64, 384, 56, 384, 7, 1, 384, false})},
      {"contraction_depthwise_planes", hopper,
       convolution(Of::fprop, {64, 384, 7, 384, 7, 1, 384, false})},
      {"contraction_depthwise_planes_gradient", hopper,
       convolution(Of::wgrad, {64, 384, 7, 384, 7, 1, 384, false})},
      {"contraction_depthwise_groups", hopper,
       convolution(Of::fprop, {32, 128, 56, 128, 3, 1, 32})},
      {"contraction_depthwise_groups_gradient", hopper,
       convolution(Of::wgrad, {32, 128, 56, 128, 3, 1, 32})},
      {"contraction_depthwise_channels_gradient", hopper,
       convolution(Of::wgrad, {64, 32, 112, 32, 3})},
      {"contraction_depthwise_runs_gradient", hopper,
       convolution(Of::wgrad, {64, 3, 224, 64, 7, 2})},
  };
}

}  // namespace

std::vector<PlannedKernel> planned_kernels() {
  std::vector<PlannedKernel> result;
  for (const Case& c : cases()) {
    INFO(c.form);
    const Shared<Graph> graph = c.graph();
    const auto plan = make_plan(*graph, {.architecture = c.target}, {}, nullptr);
    if (!plan) FAIL(plan.error().message());
    const auto& kernels = plan->data().kernels;
    const std::string include = std::string("device/family/") + c.form + ".cuh\"";
    const auto of_form = std::ranges::find_if(
        kernels, [&](const PlanKernel& k) { return k.source.find(include) != std::string::npos; });
    if (of_form == kernels.end()) {
      FAIL_CHECK(c.form << " is not what runs:\n" << kernels.front().source.substr(0, 400));
      continue;
    }
    result.push_back({c.form, *of_form});
  }
  return result;
}

}  // namespace sinter::golden
