// Classes of extents of gradients whose kernels follow from the batch where it is constant.
#include "classes.hpp"
#include "runtime/compiler.hpp"

namespace sinter::test {

TEST_CASE("gradients of windows that share a bias have one text for a class") {
  Classes c(
      [](Graph& g, GraphBuilder::Extents e) {
        const Dims dim{e[0], 6, 49, 32};
        const Tensor q = g.tensor("q", dim), k = g.tensor("k", dim), v = g.tensor("v", dim),
                     o = g.tensor("o", dim), d_o = g.tensor("do", dim),
                     stats = g.tensor(
                         {.name = "stats", .dim = {e[0], 6, 49, 1}, .data_type = DataType::f32});
        SdpaInputs in;
        in.bias = g.tensor({.name = "bias", .dim = {1, 6, 49, 49}});
        const auto d = sdpa_backward(q, k, v, o, d_o, stats, {.attn_scale = 0.2}, in);
        g.output(d.dq, "dq"), g.output(d.dk, "dk"), g.output(d.dv, "dv"), g.output(d.dbias, "db");
      },
      {dyn("batch", 257, 1024, {257, 1024})});
  int compiled = 0;
  for (std::int64_t batch = 300; batch <= 1000; batch += 100) compiled += c.compiles({batch});
  CHECK(compiled == 1);
}

// Whose tiles run side by side for all entries, and whose dBias leaves as dS.
TEST_CASE("gradients of attention with biases of pairs have one text for any batch") {
  for (const bool dbias : {false, true}) {
    Classes c(
        [&](Graph& g, GraphBuilder::Extents e) {
          const Dims dim{e[0], 4, 192, 64};
          const Tensor q = g.tensor("q", dim), k = g.tensor("k", dim), v = g.tensor("v", dim),
                       o = g.tensor("o", dim), d_o = g.tensor("do", dim),
                       stats = g.tensor(
                           {.name = "stats", .dim = {e[0], 4, 192, 1}, .data_type = DataType::f32});
          SdpaInputs in;
          in.bias = g.tensor({.name = "bias", .dim = {dbias ? e[0] : 1, 4, 192, 192}});
          const auto d = sdpa_backward(q, k, v, o, d_o, stats, {.attn_scale = 0.125}, in);
          g.output(d.dq, "dq"), g.output(d.dk, "dk"), g.output(d.dv, "dv");
          if (dbias) g.output(d.dbias, "db");
        },
        {dyn("batch", 33, 128, {33, 128})});
    int compiled = 0;
    for (std::int64_t batch = 40; batch <= 120; batch += 20) compiled += c.compiles({batch});
    CHECK(compiled == 1);
    const auto plan = c.plan({100});
    REQUIRE(plan);
    for (const auto& kernel : plan->data().kernels) {
      const auto code = compile_uncached({kernel.source, kernel.entry, "sm_90a"});
      if (!code) FAIL(code.error().message());
    }
  }
}

TEST_CASE("gradients of attention whose keys are one tile have one text for a class") {
  Classes c(
      [](Graph& g, GraphBuilder::Extents e) {
        const Dims dim{32, 12, e[0], 64};
        const Tensor q = g.tensor("q", dim), k = g.tensor("k", dim), v = g.tensor("v", dim),
                     o = g.tensor("o", dim), d_o = g.tensor("do", dim),
                     stats = g.tensor(
                         {.name = "stats", .dim = {32, 12, e[0], 1}, .data_type = DataType::f32});
        const auto d = sdpa_backward(q, k, v, o, d_o, stats, {.attn_scale = 0.125});
        g.output(d.dq, "dq"), g.output(d.dk, "dk"), g.output(d.dv, "dv");
      },
      {dyn("tokens", 65, 256, {65, 256})});
  int compiled = 0;
  for (const std::int64_t tokens : {70, 127, 128, 150, 193, 197, 256}) {
    compiled += c.compiles({tokens});
    const auto plan = c.plan({tokens});
    REQUIRE(plan);
    CHECK(plan->data().kernels.size() == 2);
  }
  CHECK(compiled == 1);
}

TEST_CASE("filter gradients of few channels are cut in images where plans of a class are") {
  Classes c(
      [](Graph& g, GraphBuilder::Extents e) {
        const auto channels_last = [](const char* name, const Dims& d) {
          return TensorOptions{
              .name = name, .dim = d, .stride = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}};
        };
        const Dims dim{e[0], 32, 56, 56}, of_w{32, 32, 3, 3};
        g.output(conv_wgrad(g.tensor(channels_last("dy", dim)), g.tensor(channels_last("x", dim)),
                            of_w, {.pre_padding = {1, 1}, .post_padding = {1, 1}}),
                 "dw", {.stride = channels_last("", of_w).stride});
      },
      {dyn("images", 65, 256, {65, 256})});
  int compiled = 0;
  for (std::int64_t images = 70; images <= 256; images += 31) {
    compiled += c.compiles({images});
    const auto plan = c.plan({images});
    REQUIRE(plan);
    CHECK(plan->data().kernels.size() == 2);
  }
  CHECK(compiled == 1);
}

}  // namespace sinter::test
