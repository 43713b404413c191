// A decoder block as language models have it, for extents (batch, tokens): norm, projections of
// queries, keys and values, rotary embedding, causal grouped attention, projection, residual, norm,
// gated feed-forward, residual.
#pragma once
#include <cmath>

#include "sinter/operations.hpp"

namespace sinter::test {

struct LlamaWidths {
  std::int64_t model = 4096, heads = 32, kv_heads = 8, head = 128, hidden = 14336;
  // Products are scaled by their k, so that the numbers of test inputs stay about as large; else
  // softmax sees scores that are known to no digit.
  bool scaled = false;
};

inline void build_llama_block(Graph& g, std::int64_t batch, std::int64_t tokens,
                              const LlamaWidths& w) {
  const auto input = [&](const char* name, Dims dim, DataType type = DataType::bf16) {
    return g.tensor({.name = name, .dim = dim, .data_type = type});
  };
  const auto weight = [&](const char* name, std::int64_t in, std::int64_t out) {
    return input(name, {1, in, out});
  };
  const auto product = [&](Tensor x, const char* name, std::int64_t out) {
    const Tensor y = matmul(x, weight(name, x.dim()[2], out));
    return w.scaled ? y * g.scalar(1 / std::sqrt(static_cast<double>(x.dim()[2]))) : y;
  };
  const auto project = [&](Tensor x, const char* name, std::int64_t out) {
    return product(x, name, out).type(DataType::bf16);
  };
  const auto heads = [&](Tensor x, std::int64_t count) {
    return transpose(reshape(x, {batch, tokens, count, w.head}), {0, 2, 1, 3});
  };
  const auto norm = [&](Tensor x, const char* scale) {
    Tensor y = rmsnorm(x, input(scale, {1, 1, w.model}), {}, g.scalar(1e-6f));
    return y.type(DataType::bf16);
  };
  const Tensor x = input("x", {batch, tokens, w.model}),
               cosine = input("cosine", {1, 1, tokens, w.head}, DataType::f32),
               sine = input("sine", {1, 1, tokens, w.head}, DataType::f32);
  const auto rotate = [&](Tensor t) {
    const Dims dim = t.dim();
    Dims half = dim, start = Dims::filled(4, 0);
    half[3] = start[3] = w.head / 2;
    const Tensor first = slice(t, {.start = Dims::filled(4, 0), .limit = half}),
                 second = slice(t, {.start = start, .limit = dim});
    return (t * cosine + concatenate({-second, first}, -1) * sine).type(DataType::bf16);
  };
  const Tensor normed = norm(x, "norm1");
  const Tensor q = rotate(heads(project(normed, "w_q", w.heads * w.head), w.heads)),
               k = rotate(heads(project(normed, "w_k", w.kv_heads * w.head), w.kv_heads)),
               v = heads(project(normed, "w_v", w.kv_heads * w.head), w.kv_heads);
  const Tensor o =
      sdpa(q, k, v, {.attn_scale = 1 / std::sqrt(static_cast<double>(w.head)), .causal_mask = true})
          .o.type(DataType::bf16);
  const Tensor attended = reshape(transpose(o, {0, 2, 1, 3}), {batch, tokens, w.heads * w.head});
  const Tensor middle = (x + product(attended, "w_o", w.model)).type(DataType::bf16);
  const Tensor normed2 = norm(middle, "norm2");
  const Tensor gate = product(normed2, "w_gate", w.hidden), up = product(normed2, "w_up", w.hidden),
               hidden = (swish(gate) * up).type(DataType::bf16);
  g.output(middle + product(hidden, "w_down", w.model), "y", {.data_type = DataType::bf16});
}

}  // namespace sinter::test
