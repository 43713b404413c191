// Every gradient operation against central differences of its forward: pointwise, softmax, norms,
// convolutions and resampling. Attention has a file of its own.
#include "sinter/ops/default_attributes.hpp"
#include "unit/gradient_check.hpp"

namespace sinter {
namespace {

using test::Arrays;
using test::check_gradients;
using test::random_array;
using test::Tensors;

TEST_CASE("the gradient of every activation is the slope of its forward") {
  using M = PointwiseMode;
  struct Case {
    M forward, backward;
  };
  const Case cases[] = {
      {M::relu_fwd, M::relu_bwd},         {M::tanh_fwd, M::tanh_bwd},
      {M::sigmoid_fwd, M::sigmoid_bwd},   {M::elu_fwd, M::elu_bwd},
      {M::gelu_fwd, M::gelu_bwd},         {M::gelu_approx_tanh_fwd, M::gelu_approx_tanh_bwd},
      {M::softplus_fwd, M::softplus_bwd}, {M::swish_fwd, M::swish_bwd}};
  for (const auto& c : cases) {
    INFO(name(c.forward));
    PointwiseAttributes a;
    a.relu_lower_clip = -0.4;
    a.relu_upper_clip = 1.1;
    a.relu_lower_clip_slope = 0.2;
    a.elu_alpha = 0.7;
    a.swish_beta = 1.6;
    a.softplus_beta = 2.3;
    check_gradients(
        {{"x", random_array({4, 6}, 1)}},
        [&](Graph&, const Tensors& t) {
          a.mode = c.forward;
          return pointwise(a, t.at("x"));
        },
        [&](Graph&, const Tensors& t, Tensor dy) {
          a.mode = c.backward;
          return Tensors{{"x", pointwise(a, dy, t.at("x"))}};
        });
  }
}

TEST_CASE("the gradient of softmax is the slope of its forward on every axis") {
  for (const std::int64_t axis : {0, 1, -1})
    check_gradients(
        {{"x", random_array({3, 4, 5}, 2)}},
        [&](Graph&, const Tensors& t) { return softmax(t.at("x"), {.axis = axis}).y; },
        [&](Graph&, const Tensors& t, Tensor dy) {
          const Tensor y = softmax(t.at("x"), {.axis = axis});
          return Tensors{{"x", softmax_backward(y, dy, axis)}};
        });
}

struct NormCase {
  OpKind forward, backward;
  Dims x, scale;
  std::int64_t groups = 0;
};

// The outputs of a forward norm in training: Y, MEAN (poisoned for rmsnorm), INV_VARIANCE.
NormOutputs forward_norm(Graph& g, const NormCase& c, const Tensors& t) {
  Attributes a = default_attributes(c.forward);
  if (auto* gn = std::get_if<GroupNormAttributes>(&a)) gn->groups = c.groups;
  const bool rms = c.forward == OpKind::rmsnorm;
  const auto ids = detail::GraphEditor(g).add(
      c.forward, a,
      {t.at("x").id(), t.at("scale").id(), t.at("bias").id(), g.scalar(1e-3, f64).id()},
      std::vector<TensorId>(rms ? 2 : 3, kNewTensor), {}, {});
  if (rms) return {Tensor(&g, ids[0]), {}, Tensor(&g, ids[1])};
  return {Tensor(&g, ids[0]), Tensor(&g, ids[1]), Tensor(&g, ids[2])};
}

TEST_CASE("the gradients of every norm are the slopes of its forward") {
  using K = OpKind;
  const NormCase cases[] = {
      {K::layernorm, K::layernorm_backward, {4, 8}, {8}},
      {K::layernorm, K::layernorm_backward, {2, 3, 4}, {1, 3, 4}},
      {K::rmsnorm, K::rmsnorm_backward, {4, 8}, {1, 8}},
      {K::rmsnorm, K::rmsnorm_backward, {2, 4, 3}, {4, 1}},
      {K::adaptive_layernorm, K::adaptive_layernorm_backward, {3, 2, 6}, {3, 1, 6}},
      {K::instancenorm, K::instancenorm_backward, {2, 3, 4, 2}, {1, 3, 1, 1}},
      {K::groupnorm, K::groupnorm_backward, {2, 6, 3, 2}, {1, 6, 1, 1}, 3},
      {K::groupnorm, K::groupnorm_backward, {2, 4, 5}, {1, 4, 1}, 1},
      {K::batchnorm, K::batchnorm_backward, {3, 2, 4}, {1, 2, 1}}};
  for (const auto& c : cases) {
    INFO(name(c.forward) << " " << to_string(c.x));
    check_gradients(
        {{"x", random_array(c.x, 3)},
         {"scale", random_array(c.scale, 4)},
         {"bias", random_array(c.scale, 5)}},
        [&](Graph& g, const Tensors& t) { return forward_norm(g, c, t).y; },
        [&](Graph& g, const Tensors& t, Tensor dy) {
          const auto f = forward_norm(g, c, t);
          const Operand mean = f.mean;
          auto r = norm_backward(c.backward, dy, t.at("x"), t.at("scale"), mean, f.inv_variance,
                                 c.groups);
          return Tensors{{"x", r.dx}, {"scale", r.dscale}, {"bias", r.dbias}};
        });
  }
}

TEST_CASE("the gradients of convolution are the slopes of its forward") {
  struct Case {
    Dims x, w;
    ConvAttributes a;
  };
  const Case cases[] = {
      {{2, 3, 7}, {4, 3, 3}, {}},
      {{1, 4, 7, 6},
       {6, 2, 3, 2},
       {.pre_padding = {1, 0},
        .post_padding = {2, 1},
        .stride = {2, 3},
        .dilation = {1, 2},
        .groups = 2}},
      {{1, 2, 5, 5},
       {2, 2, 3, 3},
       {.pre_padding = {1, 1},
        .post_padding = {1, 1},
        .stride = {2, 1},
        .mode = ConvMode::convolution}},
      {{1, 2, 4, 3, 5},
       {3, 2, 2, 2, 3},
       {.pre_padding = {0, 1, 1}, .post_padding = {1, 0, 1}, .stride = {1, 2, 2}}}};
  for (const auto& c : cases) {
    INFO(to_string(c.x) << " " << to_string(c.w));
    check_gradients(
        {{"x", random_array(c.x, 6)}, {"w", random_array(c.w, 7)}},
        [&](Graph&, const Tensors& t) { return conv_fprop(t.at("x"), t.at("w"), c.a); },
        [&](Graph&, const Tensors& t, Tensor dy) {
          return Tensors{{"x", conv_dgrad(dy, t.at("w"), c.x, c.a)},
                         {"w", conv_wgrad(dy, t.at("x"), c.w, c.a)}};
        });
  }
}

TEST_CASE("the gradient of resampling is the slope of its forward in every mode") {
  using M = ResampleMode;
  using P = PaddingMode;
  struct Case {
    Dims x, y;
    ResampleAttributes a;
  };
  const auto pool = [](M mode, std::optional<P> padding) {
    return ResampleAttributes{.mode = mode,
                              .window = {3, 2},
                              .stride = {2, 1},
                              .pre_padding = {1, 0},
                              .post_padding = {1, 1},
                              .padding_mode = padding};
  };
  const Case cases[] = {{{2, 2, 6, 5}, {}, pool(M::maxpool, {})},
                        {{2, 2, 6, 5}, {}, pool(M::maxpool, P::edge_val_pad)},
                        {{2, 2, 6, 5}, {}, pool(M::maxpool, P::zero_pad)},
                        {{2, 2, 6, 5}, {}, pool(M::avgpool_include_padding, {})},
                        {{2, 2, 6, 5}, {}, pool(M::avgpool_include_padding, P::edge_val_pad)},
                        {{2, 2, 6, 5}, {}, pool(M::avgpool_exclude_padding, {})},
                        {{1, 2, 4, 5}, {1, 2, 7, 3}, {.mode = M::bilinear}},
                        {{1, 2, 4, 5}, {1, 2, 7, 3}, {.mode = M::nearest}},
                        {{1, 1, 3, 4, 2}, {1, 1, 5, 4, 3}, {.mode = M::bilinear}}};
  for (const auto& c : cases)
    for (const bool index : {false, true}) {
      if (index && c.a.mode != M::maxpool) continue;
      INFO(name(*c.a.mode) << " padding "
                           << (c.a.padding_mode ? name(*c.a.padding_mode) : "default") << " index "
                           << index);
      check_gradients(
          {{"x", random_array(c.x, 8)}},
          [&](Graph&, const Tensors& t) { return resample(t.at("x"), c.a, c.y).y; },
          [&](Graph&, const Tensors& t, Tensor dy) {
            if (!index) return Tensors{{"x", resample_backward(dy, c.a, c.x, {}, t.at("x"))}};
            ResampleAttributes a = c.a;
            a.generate_index = true;
            const Tensor kept = resample(t.at("x"), a).index;
            return Tensors{{"x", resample_backward(dy, c.a, c.x, kept)}};
          });
    }
}

}  // namespace
}  // namespace sinter
