// Attention with its gradients in one graph, and gradients whose biases have lines of an odd number
// of keys.
#include <algorithm>

#include "planned.hpp"
#include "schedule/attention/backward.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

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

// The kernel of gradients of windows with a bias of heads.
KernelSpec gradients(std::int64_t entries, std::int64_t keys, double softcap = 0) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "windows", .io = bf16, .intermediate = f32});
  const Dims dim{entries, 6, keys, 32};
  const Tensor stats = g->tensor({.name = "stats", .dim = {entries, 6, keys, 1}, .data_type = f32});
  const auto r = sdpa_backward(input(*g, "q", dim), input(*g, "k", dim), input(*g, "v", dim),
                               input(*g, "o", dim), input(*g, "do", dim), stats,
                               {.attn_scale = 0.18, .softcap = softcap},
                               {.bias = input(*g, "bias", {1, 6, keys, keys})});
  g->output(r.dq, "dq"), g->output(r.dk, "dk"), g->output(r.dv, "dv");
  g->output(r.dbias, "dbias");
  REQUIRE(g->check().empty());
  for (const KernelSpec& kernel : for_sm_90a(*g).kernels)
    if (kernel.as_attention_backward()) return kernel;
  FAIL("no gradients");
  return {};
}
// What it reads of the bias.
bool reads_boxes(std::int64_t entries, std::int64_t keys, double softcap = 0) {
  const auto plan =
      plan_attention_backward(gradients(entries, keys, softcap), device_model("sm_90a"));
  REQUIRE(plan);
  return plan->beside.has_value();
}

// Forward of windows, whose parts of the keys another kernel could add up.
Partition windows(std::int64_t keys) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "windows", .io = bf16, .intermediate = f32});
  const Dims dim{1024, 6, keys, 32};
  g->output(sdpa(input(*g, "q", dim), input(*g, "k", dim), input(*g, "v", dim), {}).o, "o");
  REQUIRE(g->check().empty());
  return for_sm_90a(*g);
}

}  // namespace

TEST_CASE("one tile of keys is not shared") {
  const Partition p = windows(49);
  REQUIRE(families(p) == std::vector{Family::attention});
  CHECK(p.kernels[0].attention().parts == -1);
  CHECK(p.kernels[0].attention().splits == 1);
}

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

TEST_CASE("biases whose lines TMA does not take are copied where many scores read them") {
  CHECK(reads_boxes(1024, 49));
  CHECK(reads_boxes(1024, 49, 20.0));  // the score's gradient reads it, too
  CHECK(reads_boxes(1024, 64));
  CHECK_FALSE(reads_boxes(9, 49));  // not worth a kernel
}

TEST_CASE("sums of a bias's gradient lie in lines of 32 bytes") {
  const auto step_of_rows = [](std::int64_t keys) {
    const KernelSpec k = gradients(1024, keys);
    const auto port = static_cast<std::size_t>(k.attention_backward().dbias);
    return k.ports[port].access.stride[AttentionBackwardSpec::m];
  };
  CHECK(step_of_rows(49) == 56);
  CHECK(step_of_rows(64) == 64);
}

}  // namespace sinter::test::training
