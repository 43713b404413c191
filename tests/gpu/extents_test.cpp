// Plans of a class of extents: each computes what its graph says, with texts that the first of its
// class has brought.
#include <memory>
#include <set>

#include "compile/extent_classes.hpp"
#include "gpu/gpu_support.hpp"
#include "plan/plan_data.hpp"
#include "support/catch.hpp"
#include "support/llama_block.hpp"
#include "support/training_steps.hpp"

namespace sinter::test {
namespace {

struct Family {
  const char* name;
  std::vector<DynamicExtent> extents;
  GraphOptions options;
  std::function<void(Graph&, GraphBuilder::Extents)> build;
  // A list for each class; the first of each may bring texts, the others must not.
  std::vector<std::vector<std::vector<std::int64_t>>> classes;
  int most_untrusted = 35;
  bool several = false;  // schedules in a class: fewer texts than plans
};

class Planned {
 public:
  explicit Planned(const Family& f) : family_(f), builder_(f.build) {}
  Result<Plan> plan(Graph& graph, const std::vector<std::int64_t>& extents,
                    const std::string& target) {
    const std::lock_guard lock(mutex_);
    if (!classes_)
      classes_.emplace(builder_, family_.extents, family_.options,
                       PlanOptions{.architecture = target});
    return classes_->plan(graph, extents);
  }

 private:
  const Family family_;
  GraphBuilder builder_;
  std::mutex mutex_;
  std::optional<ExtentClasses> classes_;
};

Shared<Graph> graph_of(const Family& f, const std::vector<std::int64_t>& extents) {
  auto graph = Shared<Graph>::make(f.options);
  f.build(*graph, extents);
  return graph;
}

void check_texts(const Family& f, Planned& planned) {
  const auto target = test_target();
  REQUIRE(target);
  for (const auto& of_class : f.classes) {
    std::set<std::string> texts;
    std::size_t kernels = 0;
    for (const auto& extents : of_class) {
      const auto graph = graph_of(f, extents);
      const auto plan = planned.plan(*graph, extents, *target);
      REQUIRE(plan);
      for (const PlanKernel& k : plan->data().kernels) {
        INFO(f.name << " " << extents[0] << ", " << extents.back() << ": " << k.entry);
        const bool fresh = texts.insert(k.source).second;
        if (!f.several) CHECK(fresh == (&extents == &of_class[0]));
        ++kernels;
      }
    }
    if (f.several) CHECK(texts.size() < kernels);
  }
}

void run(const Family& f) {
  const auto planned = std::make_shared<Planned>(f);
  check_texts(f, *planned);
  std::vector<GraphSource> sources;
  for (const auto& of_class : f.classes)
    for (const auto& extents : of_class) {
      std::string name = f.name;
      for (const std::int64_t x : extents) name += " " + std::to_string(x);
      sources.push_back({name,
                         sources.size(),
                         [=] { return graph_of(f, extents); },
                         {},
                         f.most_untrusted,
                         [=](Graph& graph, const std::string& target) {
                           return planned->plan(graph, extents, target);
                         }});
    }
  Failures failures;
  const Totals t =
      run_graphs(sources, {.samples = 1000, .repeatable = true, .reloaded = true}, failures);
  CHECK(t.graphs == static_cast<std::int64_t>(sources.size()));
  INFO(failures.text());
  CHECK(failures.all().empty());
}

constexpr auto kBf16 = DataType::bf16;
const GraphOptions kHalf{.name = "extents", .io = kBf16};

}  // namespace

TEST_CASE("classes of extents: rows of norms and elements", "[gpu][extents]") {
  run({"norm",
       {dyn("rows", 1, 300)},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 48}), r = g.tensor("r", {e[0], 48});
         const Tensor sum = (x + r).type(kBf16);
         const Tensor y = rmsnorm(sum, g.tensor("scale", {1, 48}), {}, g.scalar(1e-5f));
         g.output(sum, "sum");
         g.output(y.type(kBf16), "y");
         g.output(gelu_tanh(x * r), "z");
       },
       {{{1}}, {{2}, {7}, {15}, {16}}, {{17}, {64}, {127}, {128}}, {{129}, {300}}}});
}

TEST_CASE("classes of extents: sums down columns", "[gpu][extents]") {
  run({"columns",
       {dyn("batch", 1, 40, {1, 4}), dyn("tokens", 1, 50, {1, 12})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Dims of_rows{e[0], e[1], 1};
         const Tensor x = g.tensor("x", {e[0], e[1], 48}), dy = g.tensor("dy", {e[0], e[1], 48}),
                      mean = g.tensor({.name = "mean", .dim = of_rows, .data_type = DataType::f32}),
                      inv = g.tensor({.name = "inv", .dim = of_rows, .data_type = DataType::f32});
         const auto d = layernorm_backward(dy, x, g.tensor("scale", {1, 1, 48}), mean, inv);
         g.output(d.dx, "dx");
         g.output(d.dscale, "dscale");
         g.output(d.dbias, "dbias");
       },
       {{{1, 2}, {1, 3}, {1, 7}, {1, 12}},
        {{2, 2}, {3, 7}, {4, 12}, {3, 11}},
        {{5, 13}, {40, 50}, {37, 29}, {16, 16}}}});
}

TEST_CASE("classes of extents: sums of as many terms as there are tokens", "[gpu][extents]") {
  const std::vector<DynamicExtent> extents{dyn("batch", 1, 40, {1, 4}),
                                           dyn("tokens", 1, 50, {1, 12})};
  const std::vector<std::vector<std::vector<std::int64_t>>> classes{
      {{1, 2}, {1, 7}, {1, 12}},
      {{2, 2}, {3, 7}, {4, 12}},
      {{5, 13}, {40, 50}, {37, 29}, {16, 16}}};
  const auto total = [](const Tensor& x, ReductionMode mode) {
    return reduction(x, mode, {1, 1, x.dim()[2]});
  };
  run({"sums", extents, kHalf,
       [=](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], e[1], 48}), r = g.tensor("r", {e[0], e[1], 48});
         g.output(total(x * r, ReductionMode::add), "sum", {.data_type = DataType::f32});
         g.output(total(x, ReductionMode::amax), "amax");
         g.output(total(r, ReductionMode::avg), "average");
       },
       classes});
  run({"bias", extents, kHalf,
       [=](Graph& g, GraphBuilder::Extents e) {
         const Tensor dy = g.tensor("dy", {e[0], e[1], 64}), w = g.tensor("w", {1, 64, 48}),
                      x = g.tensor("x", {e[0], e[1], 48});
         const Tensor dx = (matmul(dy, w) * x).type(kBf16);
         g.output(dx, "dx");
         g.output(total(dx, ReductionMode::add), "dbias", {.data_type = DataType::f32});
       },
       classes, 35, true});
}

TEST_CASE("classes of extents: rows side by side", "[gpu][extents]") {
  run({"beside",
       {dyn("images", 1, 40, {1, 8})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 24, 40});
         g.output(softmax(x, {.axis = 1}), "y");
         g.output(reduction(x, ReductionMode::max, {e[0], 1, 40}), "largest");
       },
       {{{2}, {7}, {8}}, {{9}, {32}, {40}}}});
}

TEST_CASE("classes of extents: rows of products", "[gpu][extents]") {
  run({"product",
       {dyn("rows", 1, 300)},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 96}), w = g.tensor("w", {96, 80}),
                      b = g.tensor("b", {1, 80});
         g.output(gelu_tanh(matmul(x, w) + b), "y");
       },
       {{{2}, {7}, {8}, {9}, {16}}, {{17}, {63}, {65}, {128}}, {{129}, {256}, {257}, {300}}},
       35,
       true});
}

TEST_CASE("classes of extents: products of f32 on CUDA cores", "[gpu][extents]") {
  run({"ordinary",
       {dyn("rows", 1, 200, {64})},
       {.name = "extents"},
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 96}), w = g.tensor("w", {96, 80}),
                      dy = g.tensor("dy", {e[0], 80});
         g.output(relu(matmul(x, w)), "y");
         g.output(matmul(transpose(x, {1, 0}), dy), "dw");
       },
       {{{8}, {7}, {64}}, {{65}, {199}}},
       35,
       true});
}

TEST_CASE("classes of extents: products in several schedules", "[gpu][extents]") {
  run({"wide",
       {dyn("rows", 1, 300, {1})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 64}), w = g.tensor("w", {64, 2048});
         g.output(matmul(x, w), "y");
       },
       // Tiles of one text end at other rows: 16, 32, 48 or all 64 of them.
       {{{2}, {64}, {256}, {63}, {257}, {300}, {72}, {129}}},
       35,
       true});
}

// Rows of the graph are columns of the product, of which tiles of 40 have 24 or 40; and rows of two
// products, of which tiles of 64 have 16, 24 or 32.
TEST_CASE("classes of extents: tiles have as many rows as the launch says", "[gpu][extents]") {
  run({"across",
       {dyn("rows", 1, 300, {1})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 1024}), w = g.tensor("w", {1024, 4096});
         g.output(matmul(x, w) + g.tensor("b", {1, 4096}), "y");
       },
       {{{40}, {65}, {73}}},
       35,
       true});
  run({"gated",
       {dyn("rows", 1, 300, {1})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 256});
         const auto product = [&](const char* w) { return matmul(x, g.tensor(w, {256, 1024})); };
         g.output(swish(product("gate")) * product("up"), "y");
       },
       {{{65}, {129}, {200}}},
       35,
       true});
}

// Clusters share the sums of a tile, whose place they look up once; bytes stream past few rows.
TEST_CASE("classes of extents: products whose sums are split", "[gpu][extents]") {
  for (const DataType type : {f16, i8})
    run({"split",
         {dyn("rows", 1, 128, {64})},
         kHalf,
         [=](Graph& g, GraphBuilder::Extents e) {
           const Tensor x = g.tensor("x", {e[0], 4096}), w = g.tensor("w", {768, 4096}, type);
           g.output(matmul(x, transpose(w, {1, 0})) + g.tensor("b", {1, 768}), "y");
         },
         {{{127}, {126}, {125}, {97}, {65}}, {{64}, {33}, {32}, {5}}},
         35,
         true});
}

TEST_CASE("classes of extents: products over a k that changes", "[gpu][extents]") {
  run({"gradient",
       {dyn("tokens", 1, 300, {1, 20})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Tensor x = g.tensor("x", {e[0], 96}), dy = g.tensor("dy", {e[0], 80});
         g.output(matmul(transpose(x, {1, 0}), dy), "dw");
       },
       // A k of 7 and one of 12 are boxes of 16, one of 20 is boxes of 32.
       {{{2}, {7}, {12}, {20}}, {{63}, {64}, {65}, {129}, {300}}},
       60,
       true});
}

namespace {

Family attention_of(const char* name, const SdpaAttributes& attributes,
                    std::vector<std::vector<std::vector<std::int64_t>>> classes) {
  return {name,
          {dyn("batch", 1, 6, {1}), dyn("queries", 1, 200, {1, 64}), dyn("keys", 1, 300, {1, 100})},
          kHalf,
          [attributes](Graph& g, GraphBuilder::Extents e) {
            const Tensor q = g.tensor("q", {e[0], 4, e[1], 32}),
                         k = g.tensor("k", {e[0], 2, e[2], 32}),
                         v = g.tensor("v", {e[0], 2, e[2], 32});
            g.output(sdpa(q, k, v, attributes).o, "o");
          },
          std::move(classes)};
}

}  // namespace

TEST_CASE("classes of extents: images of convolutions", "[gpu][extents]") {
  const auto channels_last = [](const char* name, const Dims& dim) {
    return TensorOptions{
        .name = name, .dim = dim, .stride = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]}};
  };
  const auto stride = [=](const Dims& dim) {
    return TensorOptions{.stride = channels_last("", dim).stride};
  };
  const ConvAttributes padded{.pre_padding = {1, 1}, .post_padding = {1, 1}},
      apart{.pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {2, 2}};
  // Images of 9 x 11 begin anywhere in a tile, those of 8 x 32 are tiles.
  for (const auto& [height, width] : {std::pair{9, 11}, {8, 32}})
    run({"images",
         {dyn("images", 1, 40, {1, 40})},
         kHalf,
         [=](Graph& g, GraphBuilder::Extents e) {
           const Dims dim{e[0], 64, height, width};
           const Tensor x = g.tensor(channels_last("x", dim)),
                        w = g.tensor(channels_last("w", {64, 64, 3, 3})),
                        bias = g.tensor("bias", {1, 64, 1, 1});
           const Tensor y = relu(conv_fprop(x, w, padded) + bias);
           g.output(y, "y", stride(dim));
           g.output(gelu_tanh(x), "z", stride(dim));
         },
         {{{2}, {3}, {7}, {40}}},
         35,
         true});
  run({"images of a gradient",
       {dyn("images", 1, 40, {1, 40})},
       kHalf,
       [=](Graph& g, GraphBuilder::Extents e) {
         const Dims dim{e[0], 64, 9, 11}, of_dy{e[0], 64, 5, 6};
         const Tensor dy = g.tensor(channels_last("dy", of_dy)),
                      w = g.tensor(channels_last("w", {64, 64, 3, 3}));
         g.output(conv_dgrad(dy, w, dim, apart), "dx", stride(dim));
         g.output(gelu_tanh(dy), "z", stride(of_dy));
       },
       {{{2}, {3}, {8}, {40}}},
       35,
       true});
}

TEST_CASE("classes of extents: attention", "[gpu][extents]") {
  run(attention_of("attention", {.attn_scale = 0.2, .causal_mask_bottom_right = true},
                   {{{2, 2, 5}, {3, 63, 64}, {6, 64, 100}, {2, 17, 99}},
                    {{2, 65, 101}, {3, 127, 257}, {2, 128, 128}, {2, 200, 300}},
                    {{1, 65, 101}, {1, 129, 130}}}));
}

TEST_CASE("classes of extents: attention whose score is a function", "[gpu][extents]") {
  run(attention_of("softcap", {.attn_scale = 0.2, .softcap = 5.0},
                   {{{2, 65, 101}, {3, 127, 257}, {2, 128, 128}, {2, 200, 300}}}));
}

TEST_CASE("classes of extents: gradients of attention", "[gpu][extents]") {
  const auto gradients = [](const char* name, SdpaAttributes attributes,
                            std::vector<std::vector<std::vector<std::int64_t>>> classes) {
    return Family{
        name,
        {dyn("batch", 1, 4, {1}), dyn("queries", 1, 300, {1, 130}), dyn("keys", 1, 300, {1, 130})},
        kHalf,
        [attributes](Graph& g, GraphBuilder::Extents e) {
          const Dims of_q{e[0], 4, e[1], 32}, of_k{e[0], 2, e[2], 32};
          const Tensor q = g.tensor("q", of_q), k = g.tensor("k", of_k), v = g.tensor("v", of_k),
                       o = g.tensor("o", of_q), d_o = g.tensor("d_o", of_q),
                       stats = g.tensor({.name = "stats",
                                         .dim = {e[0], 4, e[1], 1},
                                         .data_type = DataType::f32});
          const auto d = sdpa_backward(q, k, v, o, d_o, stats, attributes);
          g.output(d.dq, "dq");
          g.output(d.dk, "dk");
          g.output(d.dv, "dv");
        },
        std::move(classes)};
  };
  run(gradients("causal", {.attn_scale = 0.2, .causal_mask_bottom_right = true},
                {{{2, 127, 129}, {3, 63, 64}, {2, 2, 130}, {4, 65, 17}},
                 {{2, 131, 257}, {2, 256, 255}},
                 {{1, 127, 128}, {1, 128, 127}, {1, 129, 2}}}));
  run(gradients("ordered", {.attn_scale = 0.2, .softcap = 5.0, .deterministic = true},
                {{{1, 131, 257}, {1, 140, 300}, {1, 256, 131}}}));
}

TEST_CASE("classes of extents: a decoder block", "[gpu][extents]") {
  run({"block",
       {dyn("batch", 1, 8, {1}), dyn("tokens", 1, 200, {1, 64})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         build_llama_block(g, e[0], e[1], {64, 4, 2, 16, 96, true});
       },
       {{{2, 2}, {3, 17}, {8, 64}, {2, 63}},
        {{2, 65}, {3, 129}},
        {{1, 65}, {1, 127}, {1, 129}},
        {{2, 1}, {3, 1}, {8, 1}}},
       60,
       true});
}

namespace {

void run_filter_gradients(const std::vector<std::vector<std::vector<std::int64_t>>>& classes) {
  const auto channels_last = [](const char* name, const Dims& dim) {
    return TensorOptions{
        .name = name, .dim = dim, .stride = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]}};
  };
  struct Window {
    std::int64_t stride, rows, columns;
  };
  for (const Window& w : {Window{1, 9, 11}, {1, 8, 32}, {2, 9, 11}})
    run({"filter gradient",
         {dyn("images", 1, 40, {1, 40})},
         kHalf,
         [=](Graph& g, GraphBuilder::Extents e) {
           const Dims dim{e[0], 64, w.rows, w.columns}, of_w{64, 64, 3, 3},
               of_dy{e[0], 64, (w.rows - 1) / w.stride + 1, (w.columns - 1) / w.stride + 1};
           const ConvAttributes attributes{
               .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {w.stride, w.stride}};
           const Tensor x = g.tensor(channels_last("x", dim)),
                        dy = g.tensor(channels_last("dy", of_dy));
           g.output(conv_wgrad(dy, x, of_w, attributes), "dw",
                    {.stride = channels_last("", of_w).stride, .data_type = DataType::f32});
           g.output(gelu_tanh(x), "z", {.stride = channels_last("", dim).stride});
         },
         classes,
         60,
         true});
}

}  // namespace

TEST_CASE("classes of extents: filter gradients of any number of images", "[gpu][extents]") {
  run_filter_gradients({{{2}, {3}, {7}, {40}}});
}

// As of images that are worth it: a part has one image, several, or all of them.
TEST_CASE("classes of extents: filter gradients cut in parts of images", "[gpu][extents]") {
  setenv("SINTER_SPLIT_ELEMENTS", "16", 1);
  run_filter_gradients({{{2}, {3}, {7}, {36}, {40}}});
  unsetenv("SINTER_SPLIT_ELEMENTS");
}

TEST_CASE("classes of extents: batch norms of any number of images", "[gpu][extents]") {
  run({"batch norm",
       {dyn("images", 1, 48, {20})},
       kHalf,
       [](Graph& g, GraphBuilder::Extents e) {
         const Dims dim{e[0], 64, 28, 28}, of_channels{1, 64, 1, 1},
             stride{64 * 28 * 28, 1, 64 * 28, 64};
         const auto input = [&](const char* name) {
           return g.tensor({.name = name, .dim = dim, .stride = stride});
         };
         const auto channel = [&](const char* name) {
           return g.tensor({.name = name, .dim = of_channels, .data_type = DataType::f32});
         };
         const Tensor x = input("x"), dy = input("dy"), scale = channel("scale");
         const BatchNormOutputs n = batchnorm(x, scale, channel("bias"), g.scalar(1e-5f));
         const Tensor y = n.y.type(kBf16);
         g.output(relu(y), "y", {.stride = stride});
         g.output(n.mean, "mean", {.data_type = DataType::f32});
         const NormGradients d =
             batchnorm_backward(relu_backward(dy, y), x, scale, n.mean, n.inv_variance);
         g.output(d.dx, "dx", {.stride = stride});
         g.output(d.dscale, "dscale", {.data_type = DataType::f32});
         g.output(d.dbias, "dbias", {.data_type = DataType::f32});
       },
       {{{24}, {31}, {48}}}});
}

// Tiles of one image, of some pixels of it, and of several small images.
TEST_CASE("classes of extents: tiled copies of any number of images", "[gpu][extents]") {
  const auto copied = [](const char* name, std::int64_t channels, std::int64_t pixels) {
    run({name,
         {dyn("images", 1, 40, {1, 40})},
         kHalf,
         [=](Graph& g, GraphBuilder::Extents e) {
           const Dims dim{e[0], channels, pixels};
           const Tensor x = g.tensor("x", dim);
           g.output(relu(x), "y", {.stride = {channels * pixels, 1, channels}});
           g.output(gelu_tanh(x), "z");
         },
         {{{7}, {2}, {24}, {40}}}});
  };
  copied("images in tiles", 64, 96);
  copied("large images in tiles", 40, 264);
  copied("small images in tiles", 16, 24);
}

// Bounds of gradients of gradients in bf16 judge few elements; those of f32 judge what the graph
// and its classes are about.
TEST_CASE("classes of extents: a training step of a decoder block", "[gpu][extents]") {
  const auto steps = [](const GraphOptions& options, int most_untrusted,
                        std::vector<std::vector<std::vector<std::int64_t>>> classes) {
    run({"step",
         {dyn("batch", 1, 8, {1}), dyn("tokens", 1, 200, {1, 64})},
         options,
         [type = options.io](Graph& g, GraphBuilder::Extents e) {
           build_gpt_step(g, e[0], e[1], {32, 2, 48, true, type});
         },
         std::move(classes),
         most_untrusted,
         true});
  };
  steps(kHalf, 97, {{{2, 3}, {3, 17}}, {{1, 65}, {1, 70}}});
  steps({.name = "extents"}, 1, {{{2, 3}, {3, 17}}});
}

}  // namespace sinter::test
