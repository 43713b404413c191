// What prepare() makes of copies that planning has kernels make of constants.
#include "plan/plan_data.hpp"
#include "sinter/buffers.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

const PlanOptions kHopper{.architecture = "sm_90a"};

Tensor constant(Graph& g, const char* name, const Shape& shape, DataType type = DataType::none) {
  return g.tensor({.name = name,
                   .dim = shape.dim,
                   .stride = shape.stride,
                   .data_type = type,
                   .constant = true});
}

struct Convolution {
  Dims image, filter;
  std::int64_t pad, stride;
  bool channels_last;
};

Shared<Graph> graph_of(const Convolution& c) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "convolution", .io = bf16});
  const auto shape = [&](const Dims& dim) { return c.channels_last ? nhwc(dim) : Shape(dim); };
  auto w = constant(*g, "w", shape(c.filter));
  auto y = conv_fprop(g->tensor("x", shape(c.image)), w,
                      {.pre_padding = {c.pad, c.pad},
                       .post_padding = {c.pad, c.pad},
                       .stride = {c.stride, c.stride}});
  y = relu(y + constant(*g, "bias", {1, c.filter[0], 1, 1}));
  g->output(y, "y", {.stride = shape(y.dim()).stride});
  return g;
}

// The names of the tensors that the plan's kernels write (or read) but for those of the caller.
std::vector<std::string> between(const Plan& plan) {
  std::vector<std::string> names;
  for (const PlanBuffer& b : plan.data().buffers) names.push_back(b.name);
  return names;
}

const PlanTensor* find(const Plan& plan, std::string_view name) {
  for (const PlanTensor& t : plan.data().tensors)
    if (t.name == name) return &t;
  return nullptr;
}
std::vector<const PlanTensor*> kept(const Plan& plan) {
  std::vector<const PlanTensor*> all;
  for (const PlanTensor& t : plan.data().tensors)
    if (t.kept) all.push_back(&t);
  return all;
}

}  // namespace

TEST_CASE("filters that planning rearranges are rearranged once") {
  const Convolution first_layer{{32, 3, 224, 224}, {72, 3, 7, 7}, 3, 2, true},
      channels_first{{32, 64, 56, 56}, {64, 64, 3, 3}, 1, 1, false};
  for (const auto& c : {first_layer, channels_first}) {
    const auto whole = Plan::make(*graph_of(c), kHopper);
    REQUIRE(whole);
    const auto parts = prepare(*graph_of(c), kHopper);
    REQUIRE(parts);
    REQUIRE(parts->constants);
    const Plan &once = *parts->constants, &rest = parts->rest;
    CHECK(once.kernels() == 1);
    CHECK(once.workspace_bytes() == 0);
    CHECK(once.kernels() + rest.kernels() == whole->kernels());
    // Each call copies the image alone.
    CHECK(between(whole.value()).size() == 2);
    CHECK(between(rest).size() == 1);
    CHECK(rest.workspace_bytes() < whole->workspace_bytes());

    REQUIRE(kept(once).size() == 1);
    REQUIRE(kept(rest).size() == 1);
    const PlanTensor &made = *kept(once)[0], &read = *kept(rest)[0];
    CHECK(made.name == read.name);
    CHECK(made.bytes == read.bytes);
    CHECK(made.bytes >= find(once, "w")->bytes);
    CHECK(made.written);
    CHECK_FALSE(read.written);
    CHECK(find(once, "w")->read);
    CHECK_FALSE(find(rest, "w")->read);  // may be left unbound, and be freed
    CHECK(find(rest, "bias")->read);
  }
}

TEST_CASE("plans that hand tensors to each other are read back as they are") {
  const auto parts = prepare(*graph_of({{32, 64, 56, 56}, {64, 64, 3, 3}, 1, 1, false}), kHopper);
  REQUIRE(parts);
  REQUIRE(parts->constants);
  for (const Plan& plan : {*parts->constants, parts->rest}) {
    const std::string text = plan.to_json();
    const auto again = Plan::from_json(text);
    REQUIRE(again);
    CHECK(again->to_json() == text);
    for (const PlanTensor& t : plan.data().tensors) {
      const PlanTensor* const same = find(*again, t.name);
      REQUIRE(same);
      CHECK(same->kept == t.kept);
      CHECK(same->read == t.read);
    }
    // One that is of the graph is not handed over, whatever the file says.
    std::string damaged = text;
    const std::string kept_name = "\"name\": \"" + kept(plan)[0]->name + "\"";
    damaged.replace(damaged.find(kept_name), kept_name.size(), "\"name\": \"w\"");
    const auto refused = Plan::from_json(damaged);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().rule == Rule::plan_format);
  }
}

TEST_CASE("what planning widens and folds of constants is made once") {
  Graph g({.name = "dequantised", .io = bf16});
  auto q = constant(g, "q", {4096, 4096}, i8), s = constant(g, "s", {4096, 1}, f32);
  g.output(matmul(g.tensor("x", {4096, 4096}), q * s), "y");
  const auto whole = Plan::make(g, kHopper);
  REQUIRE(whole);
  REQUIRE(whole->kernels() == 2);
  const auto parts = prepare(g, kHopper);
  REQUIRE(parts);
  REQUIRE(parts->constants);
  CHECK(parts->constants->kernels() == 1);
  CHECK(parts->rest.kernels() == 1);
  CHECK(parts->rest.workspace_bytes() == 0);
  CHECK_FALSE(find(parts->rest, "q")->read);
  CHECK_FALSE(find(parts->rest, "s")->read);
}

TEST_CASE("copies of what follows from a call stay with the call") {
  Graph g({.name = "dequantised", .io = bf16});
  auto q = constant(g, "q", {4096, 4096}, i8);
  auto s = g.tensor("s", {4096, 1}, f32);
  g.output(matmul(g.tensor("x", {4096, 4096}), q * s), "y");
  const auto parts = prepare(g, kHopper);
  REQUIRE(parts);
  CHECK_FALSE(parts->constants);
  CHECK(parts->rest.kernels() == 2);
  CHECK(find(parts->rest, "q")->read);
}

TEST_CASE("an output in place has a kernel of its own in a prepared plan, too") {
  Graph g;  // the rows are read again behind the sum
  const auto x = g.tensor("x", {8, 1 << 20});
  const auto sum = x + g.tensor("r", {8, 1 << 20});
  g.output(sum, "h", {.alias = x});
  const auto s = constant(g, "s", {1, 1 << 20});
  g.output(softmax(sum) * (s * s), "y");
  const auto parts = prepare(g, {});
  REQUIRE(parts);
  CHECK(parts->constants);
  CHECK(parts->rest.kernels() > 1);
}

TEST_CASE(
    "where all results follow from constants, the nodes that make them are left to the calls") {
  Graph g;
  const auto w = constant(g, "w", {24, 16}), s = constant(g, "s", {1, 16});
  g.output(relu((w * s).named("folded")), "y");
  g.output(w + s, "z");
  const auto graphs = prepare(g);
  REQUIRE(graphs);
  CHECK(graphs->rest->nodes().size() == 2);
  const auto parts = prepare(g, kHopper);
  REQUIRE(parts);
  REQUIRE(parts->constants);
  CHECK(find(*parts->constants, "folded")->written);
  REQUIRE(find(parts->rest, "y"));
  CHECK(find(parts->rest, "y")->written);
  CHECK(find(parts->rest, "z")->written);
}

TEST_CASE("what is rounded for the products of calls is not for other results of constants") {
  Graph g({.io = bf16});
  const auto w = constant(g, "w", {24, 16}, f32), s = constant(g, "s", {1, 16}, f32);
  const auto folded = (w * s).named("folded");
  g.output(matmul(g.tensor("x", {8, 24}), folded), "y");
  g.output(relu(folded), "z", {.data_type = f32});  // of the constants' graph
  const auto parts = prepare(g, kHopper);
  REQUIRE(parts);
  REQUIRE(parts->constants);
  CHECK(find(*parts->constants, "folded")->type == bf16);
  const Device cpu = Device::cpu();
  const auto once = load(*parts->constants, cpu);
  REQUIRE(once);
  const Array<float> dw(cpu, 24 * 16, 1.001f), ds(cpu, 16, 1.0f), z(cpu, 24 * 16);
  const Array<std::uint16_t> made(cpu, 24 * 16);
  const Scratch scratch(*once);
  REQUIRE(once->execute(nullptr, {{"w", dw}, {"s", ds}, {"folded", made}, {"z", z}}, scratch));
  CHECK(z.get()[5] == 1.001f);
  CHECK(from_bf16(made.get()[5]) == 1.0f);
}

TEST_CASE("prepared plans run on the CPU, which reads the constants themselves") {
  const auto parts = prepare(*graph_of({{32, 64, 56, 56}, {64, 64, 3, 3}, 1, 1, false}), kHopper);
  REQUIRE(parts);
  REQUIRE(parts->constants);
  const Device cpu = Device::cpu();
  const auto once = load(*parts->constants, cpu), rest = load(parts->rest, cpu);
  REQUIRE(once);
  REQUIRE(rest);
  CHECK(find(rest->plan(), "w")->read);
  const std::string& name = kept(parts->rest)[0]->name;
  const Array<std::uint16_t> w(cpu, 64 * 64 * 9, 0), other(cpu, 64 * 64 * 10, 0);
  CHECK(once->execute(nullptr, {{"w", w}, {name, other}}));
  const auto missing = rest->execute(nullptr, {{name, other}});
  REQUIRE_FALSE(missing);
  CHECK(missing.error().rule == Rule::binding_missing);
}
