// Attention with its gradients in one graph.
#include <algorithm>

#include "planned.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"

namespace sinter::test::training {
namespace {

Tensor input(Graph& g, const char* name, Dims dim) {
  return g.tensor({.name = name, .dim = std::move(dim)});
}

// `again`: whether more than Delta is made of dO O.
Partition with_forward(bool again) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "training", .io = bf16, .intermediate = f32});
  const Dims dim{2, 4, 200, 64};
  const Tensor q = input(*g, "q", dim), k = input(*g, "k", dim), v = input(*g, "v", dim),
               d_o = input(*g, "do", dim);
  const SdpaOutputs o = sdpa(q, k, v, {.attn_scale = 0.125, .generate_stats = true});
  const auto r = sdpa_backward(q, k, v, o.o, d_o, o.stats, {.attn_scale = 0.125});
  g->output(o.o, "o");
  g->output(r.dq, "dq"), g->output(r.dk, "dk"), g->output(r.dv, "dv");
  if (again) g->output(o.o * d_o, "product");
  REQUIRE(g->check().empty());
  return for_sm_90a(*g);
}

}  // namespace

TEST_CASE("Delta of gradients beside forward reads O, which forward stores") {
  const auto written = [](bool again) {
    std::ptrdiff_t count = 0;
    for (const KernelSpec& k : with_forward(again).kernels)
      if (k.as_attention())
        count += std::ranges::count_if(k.ports, [](const KernelPort& p) { return p.written; });
    return count;
  };
  CHECK(written(false) == 2);  // with Stats
  CHECK(written(true) == 3);
}

}  // namespace sinter::test::training
