// Builders of activations' gradients: modes, operands and numbers.
#include <variant>

#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

TEST_CASE("gradients of activations take dy, x and the number that forward has") {
  Graph g;
  const Tensor dy = g.tensor("dy", {4, 8}), x = g.tensor("x", {4, 8});
  const NodeOptions n{.name = "it", .compute = f64};
  relu_backward(dy, x, {.lower_clip = 0.25, .upper_clip = 6, .slope = 0.5}, n);
  elu_backward(dy, x, 0.75, n), swish_backward(dy, x, 1.25, n), softplus_backward(dy, x, 1.5, n);
  CHECK(g.diagnostics().empty());
  REQUIRE(g.nodes().size() == 4);
  const auto made = [&](std::size_t i) {
    return std::get<PointwiseAttributes>(g.nodes()[i].attributes);
  };
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(g.nodes()[i].inputs[0] == dy.id());
    CHECK(g.nodes()[i].inputs[1] == x.id());
    CHECK(g.nodes()[i].name == "it");
    CHECK(g.nodes()[i].compute == f64);
  }
  CHECK(made(0).mode == PointwiseMode::relu_bwd);
  CHECK(made(0).relu_lower_clip == 0.25);
  CHECK(made(0).relu_upper_clip == 6);
  CHECK(made(0).relu_lower_clip_slope == 0.5);
  CHECK(made(1).mode == PointwiseMode::elu_bwd);
  CHECK(made(1).elu_alpha == 0.75);
  CHECK(made(2).mode == PointwiseMode::swish_bwd);
  CHECK(made(2).swish_beta == 1.25);
  CHECK(made(3).mode == PointwiseMode::softplus_bwd);
  CHECK(made(3).softplus_beta == 1.5);
}
