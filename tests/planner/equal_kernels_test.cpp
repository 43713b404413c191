// Kernels that differ in the user's names alone: one text, one compilation, one name of its own.
#include <set>

#include "plan/canonical_text.hpp"
#include "plan/plan_data.hpp"
#include "sinter/sinter.hpp"
#include "support/can_compile.hpp"
#include "support/catch.hpp"

namespace sinter::test {
namespace {

// Layers of a residual block whose weights, and results where `named`, have names of their own.
Plan plan_of(int count, bool named, PlanOptions options = {}) {
  Graph g({.name = "layers", .io = DataType::bf16});
  Tensor x = g.tensor("tokens", {256, 64});
  for (int i = 0; i < count; ++i) {
    const std::string at = "layers." + std::to_string(i);
    const Tensor up = g.tensor(at + ".up", {64, 256}), down = g.tensor(at + ".down", {256, 64});
    const Tensor scale = g.tensor(at + ".scale", {1, 64});
    Tensor h = rmsnorm(x, scale, {}, g.scalar(1e-5f)).y;
    h = gelu_tanh(matmul(h, up));
    if (named) h.named(at + ".act");
    x = matmul(h, down) + x;
  }
  g.output(x, "y");
  options.architecture = "sm_90a";
  auto plan = Plan::make(g, options);
  REQUIRE(plan);
  return *plan;
}

std::set<std::string> texts_of(const Plan& plan) {
  std::set<std::string> texts;
  for (const PlanKernel& k : plan.data().kernels) texts.insert(canonical_text(k));
  return texts;
}

std::set<std::string> entries_of(const Plan& plan) {
  std::set<std::string> entries;
  for (const PlanKernel& k : plan.data().kernels) entries.insert(k.entry);
  return entries;
}

}  // namespace

TEST_CASE("equal layers with other names have the same kernels") {
  for (const bool named : {false, true}) {
    // The first layer's norm reads the input, the others' make it of the layer before.
    const Plan three = plan_of(3, named), six = plan_of(6, named);
    CHECK(six.kernels() == 2 * three.kernels());
    CHECK(texts_of(six) == texts_of(three));
    CHECK(entries_of(six) == entries_of(three));
    CHECK(texts_of(six).size() == entries_of(six).size());
    CHECK(texts_of(six).size() < static_cast<std::size_t>(three.kernels()));
    bool own = false;
    for (const PlanKernel& k : six.data().kernels) {
      CHECK_FALSE(k.names.empty());
      CHECK(k.source.find("void " + k.entry + "(") != std::string::npos);
      own = own || k.source.find("layers_5_up") != std::string::npos;
    }
    CHECK(own);  // the text that is read has the layer's own names
  }
}

TEST_CASE("kernels that differ in more than names have texts and entries of their own") {
  Graph g({.name = "two", .io = DataType::bf16});
  const Tensor x = g.tensor("x", {256, 64});
  g.output(relu(matmul(x, g.tensor("a", {64, 64}))), "y");
  g.output(sigmoid(matmul(x, g.tensor("b", {64, 64}))), "z");
  const auto plan = Plan::make(g, {.architecture = "sm_90a"});
  REQUIRE(plan);
  REQUIRE(plan->kernels() == 2);
  CHECK(texts_of(*plan).size() == 2);
  CHECK(entries_of(*plan).size() == 2);
}

// A word of the call or of the launch that a user's tensor has, too, is no name there.
TEST_CASE("a tensor may be named as what a kernel calls") {
  const std::set<std::string> words = {
      "run",     "contraction", "attention", "start",     "pointwise",
      "rowwise", "run_forward", "depthwise", "chained",   "row",
      "first",   "threads",     "dynamic",   "number_of", "run_on_tensor_cores",
      "sinter",  "extern"};
  for (const std::string& word : words) {
    INFO(word);
    Graph g({.name = "named", .io = DataType::bf16});
    const Tensor x = g.tensor(word, {64, 64}), w = g.tensor("w", {64, 64});
    g.output(relu(x + w), "sum");
    g.output(matmul(x, w), "product");
    g.output(softmax(x, {.axis = 1}).y, "weights");
    const Tensor q = g.tensor(word + "_q", {1, 2, 64, 64}), k = g.tensor("k", {1, 2, 64, 64});
    g.output(sdpa(q, k, k, {}, {}).o.named(word + "_o"), "o");
    const auto plan = Plan::make(g, {.architecture = "sm_90a"});
    REQUIRE(plan);
    for (const PlanKernel& kernel : plan->data().kernels) {
      const std::string text = canonical_text(kernel);
      const auto end = [](const std::string& of) { return of.substr(of.rfind("extern \"C\"")); };
      CHECK(end(text) == end(kernel.source));
    }
  }
}

TEST_CASE("names_in_kernels gives each kernel its own name") {
  const Plan plan = plan_of(6, true, {.names_in_kernels = true});
  const auto entries = entries_of(plan);
  CHECK(std::any_of(entries.begin(), entries.end(), [](const std::string& entry) {
    return entry.find("layers_5_act") != std::string::npos;
  }));
  CHECK(entries.size() > entries_of(plan_of(6, true)).size());
}

TEST_CASE("equal kernels are compiled once, and a plan holds their machine code once", "[nvrtc]") {
  if (!can_compile()) return;
  std::set<int> totals;
  PlanOptions options{.targets = {"sm_90a"}};
  options.progress_context = &totals;
  options.progress = [](void* context, const PlanProgress& at) {
    if (at.stage == PlanProgress::Stage::compiling)
      static_cast<std::set<int>*>(context)->insert(at.total);
  };
  const Plan six = plan_of(6, true, options);
  CHECK(totals == std::set<int>{static_cast<int>(texts_of(six).size())});
  const std::string text = six.to_json();
  const auto again = Plan::from_json(text);
  REQUIRE(again);
  CHECK(again->to_json() == text);
  const auto &a = six.data().kernels, &b = again->data().kernels;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK_FALSE(a[i].machine_code.at("sm_90a").empty());
    CHECK(a[i].machine_code == b[i].machine_code);
    CHECK(a[i].names == b[i].names);
  }
  std::size_t bytes = 0;  // as base64
  for (const PlanKernel& k : a) bytes += k.machine_code.at("sm_90a").size() / 3 * 4;
  CHECK(text.size() < bytes);
}

TEST_CASE("what a compiler says of a canonical text names what the kernel's source names") {
  PlanKernel kernel;
  kernel.source = "f(up, x, up) + undeclared";
  kernel.names = {"x", "up"};
  const std::string seen = "k.cu(1): no n1_ in \"f(n0_, n1_)\", n10_";
  const Diagnostics errors = with_names({{.rule = Rule::compiler_error, .seen = seen}}, kernel);
  CHECK(errors.front().seen == "k.cu(1): no x in \"f(up, x)\", n10_");
  kernel.names.clear();
  CHECK(with_names({{.seen = seen}}, kernel).front().seen == seen);
}

TEST_CASE("a kernel that does not compile is reported with the user's names") {
  if (!can_compile()) return;
  PlanData data = plan_of(1, true).data();
  for (PlanKernel& kernel : data.kernels) {
    kernel.names.push_back("of_mine");
    kernel.source += "\nint broken = of_mine;\n";
  }
  const auto made = Plan(Shared<const PlanData>::make(std::move(data))).with_targets({"sm_90a"});
  REQUIRE_FALSE(made);
  CHECK(made.error().rule == Rule::compiler_error);
  CHECK(made.error().seen.find("of_mine") != std::string::npos);
}

TEST_CASE("names in a text are the identifiers that differ, but not those with another meaning") {
  using Names = std::vector<std::string>;
  CHECK(names_in_text("int a = b + 1;", "int t0 = t1 + 1;") == Names{"a", "b"});
  CHECK(names_in_text("pack.data = data;", "pack.data = t0;").empty());
  CHECK(names_in_text("a b", "t0").empty());
  CHECK(names_in_text("a + b", "t0 - t1").empty());
  CHECK(names_in_text("a 10", "t0 11").empty());
  CHECK(canonical_text("x1 + x + x1.x_2", Names{"x1", "x"}) == "n0_ + n1_ + n0_.x_2");
  CHECK(canonical_text("b + a", Names{"a", "b"}) == canonical_text("a + b", Names{"a", "b"}));
  CHECK(canonical_text("a", {}) == "a");
}

}  // namespace sinter::test
