// Gradients of attention that are written out: which of them are the kernels of sdpa_backward.
#include <limits>

#include "compile/make_plan.hpp"
#include "planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/sinter.hpp"

namespace sinter::test {
namespace {

enum class Form { centred, torch, jax };
struct Written {
  Form form = Form::centred;
  DataType p = f32;                      // to which the softmax is rounded before it is read
  DataType dp = f32;                     // and the product of dO and V
  double scale = 0.125, behind = 0.125;  // of the scores; of dS
  bool forward = true, other_keys = false, reads_ds = false, other_product = false;
};

Tensor swapped(const Tensor& t) { return transpose(t, {0, 1, 3, 2}); }
Tensor as(Graph& g, const Tensor& t, DataType type) {
  if (type == f32) return t;
  const Tensor y = pointwise({.mode = PointwiseMode::identity}, t);
  detail::GraphEditor(g).edit(y.id()).data_type = type;
  return y;
}

std::unique_ptr<Graph> graph_of(const Written& w) {
  auto made = std::make_unique<Graph>(GraphOptions{.io = bf16});
  Graph& g = *made;
  const Dims dim{2, 2, 256, 64}, rows{2, 2, 256, 1};
  const auto input = [&](const char* name) { return g.tensor({.name = name, .dim = dim}); };
  const Tensor q = input("q"), k = input("k"), v = input("v"), d_o = input("do");
  const Tensor p = as(g, softmax(matmul(q, swapped(k)) * w.scale), w.p);
  if (w.forward) g.output(matmul(p, v), "o");
  const Tensor dp = as(g, matmul(d_o, swapped(w.other_product ? k : v)), w.dp);
  const Tensor product = p * dp, dot = reduction(product, ReductionMode::add, rows);
  Tensor ds = w.form == Form::centred ? p * (dp - dot)
              : w.form == Form::torch ? product - p * dot
                                      : product + p * (0.0 - dot);
  if (w.form == Form::jax) ds = product + p * pointwise({.mode = PointwiseMode::neg}, dot);
  if (w.reads_ds) g.output(relu(ds), "more");
  ds = ds * w.behind;
  g.output(matmul(ds, w.other_keys ? v : k), "dq");
  g.output(swapped(matmul(swapped(q), ds)), "dk");
  g.output(matmul(swapped(p), d_o), "dv");
  for (const auto& d : g.check()) FAIL(d.message());
  return made;
}

int fused(const Written& w, std::string_view target = "sm_90a") {
  auto g = graph_of(w);
  PlanOptions options;
  options.architecture = target;
  const auto parts =
      partition_lowered(*g, lower(*g), options, PlanContext{device_model(target), {}}).parts;
  return static_cast<int>(
      std::count_if(parts.kernels.begin(), parts.kernels.end(),
                    [](const KernelSpec& k) { return k.as_attention_backward() != nullptr; }));
}

// Of Delta, and of the gradients.
constexpr int kBoth = 2;

}  // namespace

TEST_CASE("gradients of attention in the forms of autograd engines are fused") {
  for (const char* target : {"sm_90a", "sm_80"})
    for (const Form form : {Form::centred, Form::torch, Form::jax})
      for (const bool forward : {true, false})
        CHECK(fused({.form = form, .forward = forward}, target) == kBoth);
  CHECK(fused({.dp = bf16}) == kBoth);
}

TEST_CASE("what is written like gradients of attention, and is none, is not") {
  CHECK(fused({.other_keys = true}) == 0);
  CHECK(fused({.behind = 0.25}) == kBoth);  // computed as it is written
  CHECK(fused({.reads_ds = true}) == 0);
  // The kernel's weights are exp(score - Stats), which are others once they are rounded.
  CHECK(fused({.p = bf16}) == 0);
}

TEST_CASE("scores and gradients of forward attention pass through memory nowhere") {
  auto g = graph_of({});
  PlanOptions options;
  options.architecture = "sm_90a";
  const auto planned =
      partition_lowered(*g, lower(*g), options, PlanContext{device_model("sm_90a"), {}});
  CHECK(planned.parts.workspace_bytes < 2 * 2 * 256 * 256 * 2);
  CHECK(planned.lowered.regions.size() == 2);
  for (const Region& r : planned.lowered.regions) CHECK(r.written_out);
}

TEST_CASE("written out gradients have one order where the plan is to be deterministic") {
  for (const bool deterministic : {false, true}) {
    auto g = graph_of({});
    PlanOptions options{.deterministic = deterministic, .architecture = "sm_90a"};
    const auto parts =
        partition_lowered(*g, lower(*g), options, PlanContext{device_model("sm_90a"), {}}).parts;
    int kernels = 0, of_blocks = 0;
    for (const KernelSpec& k : parts.kernels)
      if (const auto* const a = k.as_attention_backward()) {
        ++kernels, of_blocks += a->dbias_of_blocks;
        CHECK(a->deterministic == deterministic);
      }
    CHECK(kernels == 2);  // Delta's and that of gradients
    CHECK(of_blocks == deterministic);
  }
}

TEST_CASE("masks by index are bounds of the kernel where each row sees some keys") {
  GraphOptions options{.io = bf16};
  for (const std::int64_t keys : {256, 128}) {
    Graph g(options);
    const Dims rows{1, 2, 256, 1};
    const auto input = [&](const char* name, std::int64_t n) {
      return g.tensor({.name = name, .dim = {1, 2, n, 64}});
    };
    const Tensor q = input("q", 256), k = input("k", keys), v = input("v", keys),
                 d_o = input("do", 256);
    const Tensor x = matmul(q, swapped(k)) * 0.125;
    const Tensor column = gen_index(x, 3), row = gen_index(x, 2);
    // Top left: each row sees the first key. Bottom right: the first rows see none of few keys.
    const Tensor seen = keys == 256 ? column <= row : column <= row + (keys - 256.0);
    const Tensor s = select(seen, x, g.scalar(-std::numeric_limits<double>::infinity(), f32));
    const Tensor p = softmax(s), dp = matmul(d_o, swapped(v));
    const Tensor ds =
        select(seen, p * (dp - reduction(p * dp, ReductionMode::add, rows)), 0.0) * 0.125;
    g.output(matmul(p, v), "o");
    g.output(matmul(ds, k), "dq");
    REQUIRE(g.check().empty());
    PlanOptions of;
    of.architecture = "sm_90a";
    const auto parts =
        partition_lowered(g, lower(g), of, PlanContext{device_model("sm_90a"), {}}).parts;
    int kernels = 0;
    for (const KernelSpec& spec : parts.kernels)
      if (const auto* a = spec.as_attention_backward()) {
        ++kernels;
        CHECK(a->band.right.has_value() == (keys == 256));
        CHECK(a->score.statements.empty() == (keys == 256 && a->dbias < 0));
      }
    CHECK(kernels == kBoth);
  }
}

}  // namespace sinter::test
