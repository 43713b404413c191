// Training steps, forward and backward in one graph, for extents that change: a block of a language
// model as GPT-2 has it (layer norms, biases, gelu), and a block of a residual network.
#pragma once
#include <cmath>
#include <map>
#include <string>

#include "sinter/operations.hpp"

namespace sinter::test {

struct GptWidths {
  std::int64_t model = 1024, heads = 16, hidden = 4096;
  bool scaled = false;  // products by their k, as in llama_block.hpp
  DataType type = DataType::bf16;
};

class GptStep {
 public:
  GptStep(Graph& g, std::int64_t batch, std::int64_t tokens, const GptWidths& w)
      : g_(g), batch_(batch), tokens_(tokens), w_(w) {}

  void build() {
    const std::int64_t head = w_.model / w_.heads;
    const SdpaAttributes causal{.attn_scale = 1 / std::sqrt(static_cast<double>(head)),
                                .causal_mask = true};
    SdpaAttributes forward = causal;
    forward.generate_stats = true;
    const Tensor x = input("x", {batch_, tokens_, w_.model}),
                 dy = input("dy", {batch_, tokens_, w_.model});
    const NormOutputs n1 = norm(x, "norm1");
    const Tensor n = n1.y.type(w_.type);
    const Tensor q = heads(linear(n, "q", w_.model)), k = heads(linear(n, "k", w_.model)),
                 v = heads(linear(n, "v", w_.model));
    const SdpaOutputs attended = sdpa(q, k, v, forward);
    const Tensor o = attended.o.type(w_.type), joined = rows_of(o);
    const Tensor middle = (x + product(joined, "o", w_.model)).type(w_.type);
    const NormOutputs n2 = norm(middle, "norm2");
    const Tensor m = n2.y.type(w_.type), h = linear(m, "up", w_.hidden),
                 active = gelu_tanh(h).type(w_.type);
    g_.output(middle + product(active, "down", w_.model), "y", {.data_type = w_.type});

    const Tensor dh = gelu_tanh_backward(backward(dy, active, "down", w_.model), h).type(w_.type);
    const Tensor dm = backward(dh, m, "up", w_.hidden).type(w_.type);
    const Tensor dmiddle = (dy + norm_gradient(dm, middle, n2, "norm2")).type(w_.type);
    const Tensor d_o = heads(backward(dmiddle, joined, "o", w_.model).type(w_.type));
    const SdpaGradients d = sdpa_backward(q, k, v, o, d_o, attended.stats, causal);
    const Tensor dn = backward(rows_of(d.dq.type(w_.type)), n, "q", w_.model) +
                      backward(rows_of(d.dk.type(w_.type)), n, "k", w_.model) +
                      backward(rows_of(d.dv.type(w_.type)), n, "v", w_.model);
    g_.output(dmiddle + norm_gradient(dn.type(w_.type), x, n1, "norm1"), "dx",
              {.data_type = w_.type});
  }

 private:
  Tensor input(const std::string& name, Dims dim) {
    return g_.tensor({.name = name, .dim = std::move(dim), .data_type = w_.type});
  }
  Tensor scaled(Tensor x, std::int64_t terms) {
    return w_.scaled ? x * g_.scalar(1 / std::sqrt(static_cast<double>(terms))) : x;
  }
  NormOutputs norm(Tensor x, const std::string& name) {
    scales_[name] = input(name, {1, 1, w_.model});
    return layernorm(x, scales_[name], input(name + "_bias", {1, 1, w_.model}), g_.scalar(1e-5f),
                     {.forward_phase = ForwardPhase::training});
  }
  Tensor norm_gradient(Tensor dy, Tensor x, const NormOutputs& n, const std::string& name) {
    const NormGradients d = layernorm_backward(dy, x, scales_[name], n.mean, n.inv_variance);
    g_.output(d.dscale, "d_" + name, {.data_type = DataType::f32});
    g_.output(d.dbias, "d_" + name + "_bias", {.data_type = DataType::f32});
    return d.dx;
  }
  Tensor product(Tensor x, const std::string& name, std::int64_t out) {
    weights_[name] = input("w_" + name, {1, x.dim()[2], out});
    return scaled(matmul(x, weights_[name]), x.dim()[2]) + input("b_" + name, {1, 1, out});
  }
  Tensor linear(Tensor x, const std::string& name, std::int64_t out) {
    return product(x, name, out).type(w_.type);
  }
  // The gradient of x; that of the weight and of the bias are outputs.
  Tensor backward(Tensor dy, Tensor x, const std::string& name, std::int64_t out) {
    const auto all = [&](Tensor t) { return reshape(t, {1, batch_ * tokens_, t.dim()[2]}); };
    g_.output(scaled(matmul(transpose(all(x), {0, 2, 1}), all(dy)), 64), "dw_" + name,
              {.data_type = w_.type});
    g_.output(reduction(dy, ReductionMode::add, {1, 1, out}), "db_" + name,
              {.data_type = DataType::f32});
    return scaled(matmul(dy, transpose(weights_[name], {0, 2, 1})), out);
  }
  Tensor heads(Tensor x) {
    return transpose(reshape(x, {batch_, tokens_, w_.heads, w_.model / w_.heads}), {0, 2, 1, 3});
  }
  Tensor rows_of(Tensor x) {
    return reshape(transpose(x, {0, 2, 1, 3}), {batch_, tokens_, w_.model});
  }

  Graph& g_;
  const std::int64_t batch_, tokens_;
  const GptWidths w_;
  std::map<std::string, Tensor> scales_, weights_;
};

inline void build_gpt_step(Graph& g, std::int64_t batch, std::int64_t tokens, const GptWidths& w) {
  GptStep(g, batch, tokens, w).build();
}

struct ResnetWidths {
  std::int64_t channels = 256, inner = 64, pixels = 56;  // along both sides
};

// 1 x 1, 3 x 3 and 1 x 1 convolutions, each with a batch norm, channels last.
class ResnetStep {
 public:
  ResnetStep(Graph& g, std::int64_t images, const ResnetWidths& w)
      : g_(g), images_(images), w_(w) {}

  void build() {
    const Tensor x = pixels("x", w_.channels), dy = pixels("dy", w_.channels);
    const Layer a = layer(x, "a", w_.inner, 1);
    const Tensor ra = relu(a.norm).type(kBf16);
    const Layer b = layer(ra, "b", w_.inner, 3);
    const Tensor rb = relu(b.norm).type(kBf16);
    const Layer c = layer(rb, "c", w_.channels, 1);
    const Tensor sum = (c.norm.y + x).type(kBf16);
    output(relu(sum), "y");
    const Tensor dsum = relu_backward(dy, sum).type(kBf16);
    const Tensor drb = backward(dsum, c), drbn = relu_backward(drb, b.norm).type(kBf16);
    const Tensor dra = backward(drbn, b), dran = relu_backward(dra, a.norm).type(kBf16);
    output(dsum + backward(dran, a), "dx");
  }

 private:
  static constexpr DataType kBf16 = DataType::bf16;
  struct Layer {
    Tensor x, w, y, scale;
    BatchNormOutputs norm;
    ConvAttributes attributes;
    std::string name;
  };

  static Dims channels_last(const Dims& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }
  Tensor input(const std::string& name, const Dims& dim, DataType type = kBf16) {
    return g_.tensor({.name = name, .dim = dim, .stride = channels_last(dim), .data_type = type});
  }
  Tensor pixels(const std::string& name, std::int64_t channels) {
    return input(name, {images_, channels, w_.pixels, w_.pixels});
  }
  void output(Tensor t, const std::string& name) {
    g_.output(t, name, {.stride = channels_last(t.dim()), .data_type = kBf16});
  }
  Layer layer(Tensor x, const std::string& name, std::int64_t out, std::int64_t window) {
    const std::int64_t pad = window / 2;
    Layer l;
    l.x = x;
    l.name = name;
    l.attributes = {.pre_padding = {pad, pad}, .post_padding = {pad, pad}};
    l.w = input("w_" + name, {out, x.dim()[1], window, window});
    l.y = conv_fprop(x, l.w, l.attributes).type(kBf16);
    const Dims of_channels{1, out, 1, 1};
    l.scale = input("scale_" + name, of_channels, DataType::f32);
    l.norm = batchnorm(l.y, l.scale, input("bias_" + name, of_channels, DataType::f32),
                       g_.scalar(1e-5f));
    l.norm.y = l.norm.y.type(kBf16);
    return l;
  }
  Tensor backward(Tensor dy, const Layer& l) {
    const NormGradients d = batchnorm_backward(dy, l.y, l.scale, l.norm.mean, l.norm.inv_variance);
    g_.output(d.dscale, "d_scale_" + l.name, {.data_type = DataType::f32});
    g_.output(d.dbias, "d_bias_" + l.name, {.data_type = DataType::f32});
    const Tensor dx = d.dx.type(kBf16);
    output(conv_wgrad(dx, l.x, l.w.dim(), l.attributes), "dw_" + l.name);
    return conv_dgrad(dx, l.w, l.x.dim(), l.attributes).type(kBf16);
  }

  Graph& g_;
  const std::int64_t images_;
  const ResnetWidths w_;
};

inline void build_resnet_step(Graph& g, std::int64_t images, const ResnetWidths& w) {
  ResnetStep(g, images, w).build();
}

}  // namespace sinter::test
