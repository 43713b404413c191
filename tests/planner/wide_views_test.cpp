// Views that say a wider type than what they show.
#include <functional>

#include "planner/rewrite/pass.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

using namespace sinter;

TEST_CASE("what reads a view of f64 computes in f64, wherever the view is moved") {
  const std::function<Tensor(Tensor)> views[] = {[](Tensor x) {
                                                   return reshape(x, {2, 2, 8});
                                                 },
                                                 [](Tensor x) {
                                                   return transpose(x, {1, 0});
                                                 },
                                                 [](Tensor x) {
                                                   return slice(x, {{1, 0}, {3, 8}, {}});
                                                 },
                                                 [](Tensor x) {
                                                   return concatenate({x, relu(x)}, 1);
                                                 }};
  for (const auto& view : views)
    for (const bool computed : {false, true}) {
      Graph g;
      auto x = g.tensor({.name = "x", .dim = {4, 8}, .stride = {0, 4}, .data_type = f16});
      Tensor t = computed ? relu(x) : x;
      if (computed) t.type(f32);
      Tensor y = view(t);
      y.type(f64);
      g.output(exp(y), "y", {.data_type = f32});
      REQUIRE(g.check().empty());
      const Lowered l = rewritten(lower(g), device_model("sm_90a"));
      int found = 0;
      for (const Node& n : l.graph->nodes()) {
        const auto* const p = std::get_if<PointwiseAttributes>(&n.attributes);
        if (!p || p->mode != PointwiseMode::exp) continue;
        ++found;
        CHECK(l.graph->arithmetic(n) == f64);
      }
      CHECK(found > 0);
    }
}
