// The two plans of prepare(), one after the other: weights that planning copies are copied once.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "gpu/gpu_support.hpp"
#include "gpu/prepared.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

void check_prepared(Graph& graph) {
  INFO(graph.options().name);
  GraphCase cases[] = {{graph, Fill::normal, 7}, {graph, Fill::normal, 8}};
  const auto parts = prepare(graph, {.architecture = test_target().value()});
  REQUIRE(parts);
  // Small filters are copied where a test asks for that.
  REQUIRE((parts->constants || !std::getenv("SINTER_REARRANGE")));
  std::vector<Plan> plans;
  if (parts->constants) plans.push_back(*parts->constants);
  plans.push_back(parts->rest);
  for (const Plan& plan : plans) {
    const auto reread = Plan::from_json(plan.to_json());
    REQUIRE(reread);
    CHECK(reread->to_json() == plan.to_json());
  }
  CHECK(run_prepared(*parts, cases, 0).empty());
}

}  // namespace

TEST_CASE("plans of constants and of the rest give what the graph gives", "[prepare][rearranged]") {
  const char* const device = std::getenv("SINTER_TEST_DEVICE");
  if (device && std::string_view(device).starts_with("interpreter"))
    return;  // of whole graphs alone
  Graph first_layer({.name = "first_layer", .io = bf16});
  {
    auto x = first_layer.tensor("x", nhwc({1, 3, 22, 24}));
    const Shape filter = nhwc({16, 3, 7, 7});
    auto w = first_layer.tensor(
        {.name = "w", .dim = filter.dim, .stride = filter.stride, .constant = true});
    auto b = first_layer.tensor({.name = "b", .dim = {1, 16, 1, 1}, .constant = true});
    auto y = conv_fprop(x, w, {.pre_padding = {3, 3}, .post_padding = {3, 3}, .stride = {2, 2}});
    first_layer.output(relu(y + b), "y", {.stride = nhwc({1, 16, 11, 12}).stride});
  }
  Graph folded({.name = "folded_scale", .io = bf16});
  {
    auto x = folded.tensor("x", {1, 64, 9, 10});
    auto w = folded.tensor({.name = "w", .dim = {24, 64, 3, 3}, .constant = true});
    auto s = folded.tensor({.name = "s", .dim = {24, 1, 1, 1}, .data_type = f32, .constant = true});
    folded.output(
        conv_fprop(x, (w * s).named("folded"), {.pre_padding = {1, 1}, .post_padding = {1, 1}}),
        "y");
  }
  Graph widened({.name = "widened", .io = bf16});
  {
    auto x = widened.tensor("x", {64, 72});
    auto q = widened.tensor({.name = "q", .dim = {72, 64}, .data_type = i8, .constant = true});
    auto s = widened.tensor({.name = "s", .dim = {1, 64}, .data_type = f32, .constant = true});
    widened.output(matmul(x, q * s), "y");
  }
  for (Graph* graph : {&first_layer, &folded, &widened}) {
    if (test_target().value().empty() && graph != &folded) continue;
    check_prepared(*graph);
  }
}
