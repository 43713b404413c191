// Inputs of the attention tests, and attention run in f32 on the CPU backend.
#pragma once
#include "unit/gradient_check.hpp"

namespace sinter::test {

inline SdpaInputs optional_inputs(const Tensors& t) {
  const auto get = [&](const char* name) { return t.contains(name) ? t.at(name) : Tensor{}; };
  SdpaInputs in{get("bias"),    get("nq"),      get("nkv"),  get("seed"), get("offset"),
                get("table_k"), get("table_v"), get("sink"), get("tiles")};
  in.descale_q = get("descale_q"), in.descale_k = get("descale_k");
  in.descale_v = get("descale_v"), in.descale_s = get("descale_s");
  in.scale_s = get("scale_s"), in.scale_o = get("scale_o");
  return in;
}

// Six heads of Q share two of K and three of V.
inline Arrays grouped() {
  return {{"q", random_array({2, 6, 5, 4}, 11)},
          {"k", random_array({2, 2, 7, 4}, 12)},
          {"v", random_array({2, 3, 7, 3}, 13)}};
}

inline Arrays run_attention(const Arrays& in, SdpaAttributes a) {
  Graph g;
  Arrays f32_in = in;
  for (auto& [name, x] : f32_in)
    if (x.type == f64) x.type = f32;
  const Tensors t = declare_inputs(g, f32_in);
  a.generate_stats = true;
  auto r = sdpa_fp8(t.at("q"), t.at("k"), t.at("v"), a, optional_inputs(t));
  g.output(r.o, "o");
  g.output(r.stats, "stats");
  if (in.contains("scale_o")) g.output(r.amax_o, "amax_o");
  return run_graph(g, f32_in);
}

}  // namespace sinter::test
