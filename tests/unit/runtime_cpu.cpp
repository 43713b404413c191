// A plan loaded on the CPU device: the same calls and checks as on a GPU, host pointers.
#include "plan/plan_data.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

// y = x + x over [2, 3], with a plan that has no kernels: the CPU device reads the graph.
Plan doubling() {
  Graph g;
  const Tensor x = g.tensor({.name = "x", .dim = {2, 3}});
  g.output(x + x, "y");
  PlanData data;
  data.graph_json = graph_to_json(g);
  data.workspace_bytes = 4096;
  for (const char* name : {"x", "y"}) {
    PlanTensor t;
    t.name = name;
    t.written = t.name == "y";
    t.type = f32;
    t.dim = {2, 3};
    t.stride = {3, 1};
    t.bytes = 24;
    data.tensors.push_back(t);
  }
  return Plan(Shared<const PlanData>::make(std::move(data)));
}

}  // namespace

TEST_CASE("a plan runs on the CPU, at each call or bound once") {
  const auto e = load(doubling(), Device::cpu());
  REQUIRE(e);
  CHECK(e->workspace_bytes() == 4096);
  CHECK(e->device().is_cpu());
  const float x[6] = {1, 2, 3, 4, 5, 6};
  float y[6] = {};
  const auto workspace = Memory::allocate(Device::cpu(), 4096);
  REQUIRE(workspace);
  REQUIRE(e->execute(nullptr, {{"x", x}, {"y", y}}, *workspace));
  for (int i = 0; i < 6; ++i) CHECK(y[i] == 2 * x[i]);
  float z[6] = {};
  const auto bound = e->bind({{"x", x}, {"y", z}}, *workspace);
  REQUIRE(bound);
  REQUIRE(bound->execute(nullptr));
  for (int i = 0; i < 6; ++i) CHECK(z[i] == 2 * x[i]);
}

TEST_CASE("handles that were moved from are whole") {
  Plan plan = doubling();
  const Plan taken = std::move(plan);
  CHECK(plan.tensors().size() == 2);
  CHECK(plan.to_json() == taken.to_json());
  auto e = load(plan, Device::cpu());
  REQUIRE(e);
  const Executable other = std::move(*e);
  const float x[6] = {1, 2, 3, 4, 5, 6};
  float y[6] = {};
  const auto workspace = Memory::allocate(Device::cpu(), 4096);
  REQUIRE(workspace);
  auto bound = e->bind({{"x", x}, {"y", y}}, *workspace);
  REQUIRE(bound);
  const BoundExecutable second = std::move(*bound);
  REQUIRE(bound->execute(nullptr));
  for (int i = 0; i < 6; ++i) CHECK(y[i] == 2 * x[i]);
}

TEST_CASE("the CPU checks bindings as a GPU does") {
  const auto e = load(doubling(), Device::cpu());
  REQUIRE(e);
  const float x[6] = {};
  CHECK(e->execute(nullptr, {{"x", x}}).error().rule == Rule::binding_missing);
  CHECK(e->execute(nullptr, {{"x", x}, {"y", static_cast<void*>(nullptr)}}).error().rule ==
        Rule::binding_null);
  float y[6] = {};
  CHECK(e->execute(nullptr, {{"x", x}, {"y", y}}).error().rule == Rule::workspace_size);
}

TEST_CASE("a plan whose graph is damaged does not load on the CPU") {
  PlanData data = doubling().data();
  data.graph_json.resize(data.graph_json.size() / 2);
  const auto e = load(Plan(Shared<const PlanData>::make(std::move(data))), Device::cpu());
  REQUIRE_FALSE(e);
  CHECK(e.error().rule == Rule::json_syntax);
}
