// The builders as a program's author uses them: names, node options, numbers as operands, shapes,
// and what is said of a mistake.
#include <algorithm>

#include "plan/plan_data.hpp"
#include "sinter/buffers.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

const Node& node(const Graph& g, std::size_t i) { return g.nodes()[i]; }

// The rules of a graph's diagnostics, and of what is noted.
std::vector<Rule> rules(const Diagnostics& all) {
  std::vector<Rule> result;
  for (const auto& d : all) result.push_back(d.rule);
  return result;
}

}  // namespace

TEST_CASE("a tensor is named and typed where it is made, and so is its operation") {
  Graph g({.io = bf16});
  auto x = g.tensor("x", {4, 64}), w = g.tensor("w", {64, 32}, f16);
  CHECK(x.desc().name == "x");
  CHECK(g.type(w.id()) == f16);
  auto q = matmul(x, w).named("q_proj").type(f32);
  auto k = matmul(x, w, {.name = "k_proj", .compute = tf32}).named("k");
  CHECK(g.type(q.id()) == f32);
  CHECK(q.desc().name == "q_proj");
  CHECK(node(g, 0).name == "q_proj");
  CHECK(node(g, 1).name == "k_proj");  // a name that was given stays
  CHECK(k.desc().name == "k");
  CHECK(g.compute(node(g, 1)) == tf32);
  g.output(q + k, "y");
  CHECK(g.check().empty());
  const auto plan = Plan::make(g, {.names_in_kernels = true});
  REQUIRE(plan);
  const auto& kernels = plan->data().kernels;
  CHECK(std::any_of(kernels.begin(), kernels.end(), [](const PlanKernel& kernel) {
    return kernel.entry.find("q_proj") != std::string::npos &&
           kernel.source.find(kernel.entry) != std::string::npos;
  }));
}

TEST_CASE("every builder takes a name and a compute type") {
  Graph g;
  auto x = g.tensor("x", {2, 4, 8, 8}), s = g.tensor("s", {1, 4, 1, 1});
  auto f = g.tensor("f", {4, 4, 3, 3}), h = g.tensor("h", {1, 1, 8, 8});
  const NodeOptions n{.name = "it", .compute = f64};
  const ConvAttributes same{.pre_padding = {1, 1}, .post_padding = {1, 1}};
  const ResampleAttributes pool{.mode = ResampleMode::avgpool_include_padding, .window = {2, 2}};
  const NormAttributes training{.forward_phase = ForwardPhase::training};
  exp(x, n), max(x, 0, n), relu(x, {.slope = 0.1}, n), elu(x, 1, n), swish(x, 1, n);
  softplus(x, 1, n), select(x, 1, 0, n), gen_index(x, 1, n), matmul(x, h, n);
  conv_fprop(x, f, same, n), reduction(x, ReductionMode::add, {2, 4, 1, 1}, n);
  softmax(x, {}, n), rmsnorm(x, h, {}, 1e-5, {}, n), layernorm(x, h, h, 1e-5, training, n);
  instancenorm(x, s, {}, 1e-5, {}, n), batchnorm(x, s, s, 1e-5, {}, n);
  groupnorm(x, s, s, 1e-5, {.groups = 2}, n), sdpa(x, x, x, {}, {}, n);
  resample(x, pool, {}, n), reshape(x, {8, 64}, n), transpose(x, {1, 0, 2, 3}, n);
  slice(x, {.start = {0, 0, 0, 0}, .limit = {1, 1, 1, 1}}, n), concatenate({x, x}, 1, n);
  rng(g.scalar_integer(1), 0, {4}, {}, n);
  block_scale_quantize(x, {.block_size = 8}, f8e4m3, f32, n);
  CHECK(g.diagnostics().empty());
  CHECK(g.nodes().size() == 25);
  for (const Node& made : g.nodes()) {
    CHECK(made.name == "it");
    CHECK(made.compute == f64);
  }
}

TEST_CASE("numbers and nothing stand where a tensor of one element may") {
  Graph g;
  auto x = g.tensor("x", {2, 8}), s = g.tensor("s", {1, 8});
  CHECK(rmsnorm(x, s, {}, 1e-5).y);
  CHECK(matmul(rmsnorm(x, s, {}, 1e-5f), g.tensor("w", {8, 8})));  // its first result
  auto running = batchnorm(g.tensor("c", {2, 8, 3}), g.tensor("d", {1, 8, 1}), {}, 1e-5,
                           {g.tensor("m", {1, 8, 1}), g.tensor("v", {1, 8, 1}), 0.1});
  CHECK(running.next_running_var);
  auto qkv = g.tensor("qkv", {1, 2, 8, 8});
  const std::int64_t seed = (std::int64_t{1} << 53) + 1;  // no double
  CHECK(sdpa(qkv, qkv, qkv, {.dropout_probability = 0.5}, {.seed = seed, .offset = 0}).o);
  const Node& attention = g.nodes().back();
  CHECK(g.type(attention.inputs[6]) == i64);
  CHECK(g[attention.inputs[6]].integer_value == seed);
  CHECK(g.diagnostics().empty());
}

TEST_CASE("shapes: packed, channels last, transposed") {
  CHECK(nhwc({2, 3, 5, 7}).dim == Dims{2, 3, 5, 7});
  CHECK(nhwc({2, 3, 5, 7}).stride == Dims{105, 1, 21, 3});
  CHECK(nhwc({2, 3, 5, 7, 11}).stride == Dims{1155, 1, 231, 33, 3});
  CHECK(transposed({4, 8}).stride == Dims{1, 4});
  CHECK(transposed({3, 4, 8}).stride == Dims{32, 1, 4});
  Graph g;
  CHECK(g.stride(g.tensor("x", nhwc({2, 3, 5, 7})).id()) == Dims{105, 1, 21, 3});
  CHECK(g.stride(g.tensor("y", {2, 3}).id()) == Dims{3, 1});
}

TEST_CASE("a result that was not asked for says what would ask for it") {
  Graph g;
  auto x = g.tensor("x", {4, 8}), s = g.tensor("s", {1, 8});
  const auto norm = layernorm(x, s, s, 1e-5);
  g.output(norm.y, "y");
  CHECK(g.check().empty());
  g.output(norm.mean, "mean");
  REQUIRE(rules(g.check()) == std::vector{Rule::tensor_absent});
  CHECK(g.check()[0].tensor == "mean");
  CHECK(g.check()[0].fix.find("ForwardPhase::training") != std::string::npos);
  CHECK(g.check()[0].line > 0);
  CHECK_FALSE(softmax(x).stats + 1.0);  // as an operand, too
  REQUIRE(g.diagnostics().size() == 2);
  CHECK(g.diagnostics()[1].rule == Rule::port_missing);
  CHECK(g.diagnostics()[1].fix.find("stats = true") != std::string::npos);

  Graph silent;
  auto y = silent.tensor("y", {4, 8});
  matmul(y, Tensor{});
  CHECK(rules(silent.diagnostics()) == std::vector{Rule::port_missing});
  Graph nothing;
  nothing.output(Tensor{}, "z");
  CHECK(rules(nothing.diagnostics()) == std::vector{Rule::tensor_foreign});
}

TEST_CASE("handles that are made up name no tensor") {
  Graph g;
  g.tensor("x", {4});
  const Tensor made_up(&g, 99);
  CHECK_FALSE(made_up.known());
  CHECK(made_up.dim().empty());
  g.output(made_up.named("w").type(f16), "y");
  relu(made_up);
  CHECK(rules(g.diagnostics()) == std::vector{Rule::tensor_foreign, Rule::tensor_foreign});
}

TEST_CASE("an operation that is made up is refused") {
  Graph g;
  const TensorId x = g.tensor("x", {4}).id();
  for (const int made_up : {static_cast<int>(OpKind::last_), 255}) {
    const auto made = detail::GraphEditor(g).add(static_cast<OpKind>(made_up), NoAttributes{}, {x},
                                                 {kNewTensor, kNewTensor}, {}, {});
    CHECK(made == std::vector<TensorId>{kNoTensor, kNoTensor});
  }
  CHECK(rules(g.diagnostics()) == std::vector{Rule::attribute_value, Rule::attribute_value});
}

TEST_CASE("a graph's types are storage types, and an output's dims those of its node") {
  for (const DataType bad : {DataType::none, tf32}) {
    Graph g({.io = bad, .intermediate = bad});
    g.output(relu(g.tensor("x", {4}, f32)).type(f32), "y");
    const Diagnostics all = g.check();
    CHECK(rules(all) == std::vector{Rule::tensor_data_type, Rule::tensor_data_type});
    CHECK(all[0].attribute == "io_data_type");
  }
  Graph g;
  g.output(relu(g.tensor("x", {4})), "y", {.dim = {7}});
  REQUIRE(rules(g.diagnostics()) == std::vector{Rule::node_output_dim});
  CHECK(g.diagnostics()[0].seen == "[7]");
}

TEST_CASE("scales of attention are f32 numbers of heads") {
  Graph g;
  const auto q = g.tensor("q", {1, 2, 8, 8});
  CHECK_FALSE(sdpa(q, q, q, {}, {.descale_q = g.tensor("row", {1, 1, 8, 1}, f32)}).o);
  CHECK_FALSE(sdpa(q, q, q, {}, {.scale_o = g.tensor("half", {1, 1, 1, 1}, f16)}).o);
  REQUIRE(rules(g.diagnostics()) == std::vector{Rule::sdpa_shape, Rule::port_type});
  CHECK(g.diagnostics()[0].attribute == "port Descale_Q");
  CHECK(g.diagnostics()[1].attribute == "port Scale_O");
}

TEST_CASE("Stats of attention are f32 also where they become a result later") {
  Graph g(GraphOptions{.io = bf16, .intermediate = bf16});
  const auto q = g.tensor("q", {1, 2, 8, 8});
  const auto r = sdpa(q, q, q, {.generate_stats = true});
  CHECK(g.type(r.stats.id()) == f32);
  g.output(r.o, "o");
  g.output(r.stats, "stats");
  CHECK(g.type(r.stats.id()) == f32);
  CHECK(g.type(r.o.id()) == bf16);
  CHECK(g.check().empty());
  Graph wide(GraphOptions{.io = f64, .intermediate = f32});  // of which nothing is narrowed
  const auto x = wide.tensor("x", {1, 2, 8, 8});
  const auto stats = sdpa(x, x, x, {.generate_stats = true}).stats;
  CHECK(wide.type(stats.id()) == f32);
  wide.output(stats, "stats");
  CHECK(wide.type(stats.id()) == f64);
}

TEST_CASE("attention on integers is refused, and a type that comes too late") {
  Graph g;
  auto q = g.tensor("q", {1, 2, 8, 8}, i32), x = g.tensor("x", {4});
  CHECK_FALSE(sdpa(q, q, q).o);
  REQUIRE(rules(g.diagnostics()) == std::vector{Rule::port_type});
  CHECK(g.diagnostics()[0].attribute == "port Q");
  auto y = exp(x);
  y.type(bf16);
  exp(y);
  y.type(f16);  // still floating
  CHECK(g.diagnostics().size() == 1);
  y.type(i32);
  CHECK(g.diagnostics().back().rule == Rule::tensor_data_type);
  // Nor may an untyped one take an integer io type as it becomes a result.
  Graph integers(GraphOptions{.io = i8, .intermediate = f32});
  auto z = identity(integers.tensor("x", {4}));
  exp(z);
  CHECK(integers.output(z, "typed", {.data_type = f16}));
  auto u = identity(integers.tensor("u", {4}));
  exp(u);
  CHECK_FALSE(integers.output(u, "untyped"));
  CHECK(integers.diagnostics().back().rule == Rule::tensor_data_type);
}

TEST_CASE("lengths beside attention that reads none are noted") {
  for (const bool reads : {false, true}) {
    Graph g;
    auto q = g.tensor("q", {2, 1, 8, 16}, bf16), lengths = g.tensor("lengths", {2, 1, 1, 1}, i32);
    const SdpaInputs inputs{.seq_len_q = lengths, .seq_len_kv = lengths};
    g.output(sdpa(q, q, q, {.padding_mask = reads}, inputs, {.name = "core"}).o, "o");
    CHECK(g.check().empty());
    const Diagnostics notes = g.notes();
    REQUIRE(notes.size() == (reads ? 0 : 2));
    if (reads) continue;
    CHECK(notes[0].rule == Rule::sdpa_unread);
    CHECK(notes[0].node == "core");
    CHECK(notes[0].tensor == "lengths");
  }
}

TEST_CASE("inputs that no node reads are noted") {
  Graph g;
  auto x = g.tensor("x", {4});
  g.tensor("bias", {4});
  g.scalar(1, f32, "one");  // a value costs nothing
  g.output(exp(x), "y");
  CHECK(g.check().empty());
  REQUIRE(rules(g.notes()) == std::vector{Rule::tensor_unused});
  CHECK(g.notes()[0].tensor == "bias");
  const auto plan = Plan::make(g);
  REQUIRE(plan);
  for (const auto& t : plan->tensors()) CHECK(t.read == (t.name != "bias"));
  matmul(x, x);  // refused: what a refused node would have read is not unread
  CHECK(g.diagnostics().size() == 1);
  CHECK(g.notes().empty());
}

TEST_CASE("calls, constants and aliases go through documents") {
  Graph g;
  auto w = g.tensor({.name = "w", .dim = {4}, .constant = true});
  auto p = g.tensor("p", {4});
  g.output(p - g.scalar_input("lr", bf16) * w, "next", {.alias = p});
  REQUIRE(g.check().empty());
  const std::string text = graph_to_json(g);
  const auto back = graph_from_json(text);
  REQUIRE(back);
  CHECK(graph_to_json(**back) == text);
  const Graph& read = **back;
  const auto lr = read.find("lr"), next = read.find("next");
  REQUIRE((lr && next));
  CHECK(read[*lr].bound_value);
  CHECK(read.is_input(*lr));
  CHECK(read[*read.find("w")].constant);
  CHECK(read[read[*next].alias].name == "p");
  const auto plan = Plan::make(g);
  REQUIRE(plan);
  const auto again = Plan::from_json(plan->to_json());
  REQUIRE(again);
  CHECK(again->to_json() == plan->to_json());
  for (const auto& t : again->tensors()) {
    CHECK(t.by_value == (t.name == "lr"));
    CHECK(t.alias == (t.name == "next" ? "p" : ""));
  }
}

TEST_CASE("an alias that cannot be is refused with the reason") {
  const auto refused = [](const auto& describe) {
    Graph g;
    describe(g);
    const auto plan = Plan::make(g);
    REQUIRE_FALSE(plan);
    CHECK(plan.error().rule == Rule::tensor_alias);
    return plan.error().message();
  };
  refused([](Graph& g) {  // other dims
    auto x = g.tensor("x", {4, 4});
    g.output(reduction(x, ReductionMode::add, {4, 1}), "y", {.alias = x});
  });
  refused([](Graph& g) {  // another type
    auto x = g.tensor("x", {4});
    g.output(exp(x), "y", {.data_type = f16, .alias = x});
  });
  const std::string strides = refused([](Graph& g) {
    auto x = g.tensor("x", {4, 4});
    g.output(exp(x), "y", {.stride = {1, 4}, .alias = x});
  });
  CHECK(strides.find("seen 'x', f32 [4, 4] with strides [4, 1]") != std::string::npos);
  CHECK(strides.find("allowed f32 [4, 4] with strides [1, 4]") != std::string::npos);
  refused([](Graph& g) {  // two outputs in one place
    auto x = g.tensor("x", {4});
    g.output(exp(x), "y", {.alias = x});
    g.output(log(x), "z", {.alias = x});
  });
  CHECK(refused([](Graph& g) {
          auto x = g.tensor("x", {64, 64});
          g.output(matmul(x, x), "y", {.alias = x});
        }).find("operand of a product") != std::string::npos);
  CHECK(refused([](Graph& g) {
          auto x = g.tensor("x", {64, 64});
          g.output(exp(transpose(x, {1, 0})), "y", {.alias = x});
        }).find("where another one is written") != std::string::npos);
  CHECK(refused([](Graph& g) {  // read again by a later kernel
          auto x = g.tensor("x", {64, 64}), w = g.tensor("w", {64, 64});
          auto y = relu(matmul(w, w) + x);
          g.output(y, "y", {.alias = x});
          g.output(matmul(matmul(y, w), x), "z");
        })
            .find("is read by kernel") != std::string::npos);
}

TEST_CASE(
    "an output in place has a kernel of its own where another would read what it overwrites") {
  const auto kernels = [](const auto& describe) {
    Graph g;
    describe(g);
    const auto plan = Plan::make(g);
    REQUIRE(plan);
    return plan->kernels();
  };
  CHECK(kernels([](Graph& g) {  // rows that are read again
          auto x = g.tensor("x", {8, 1 << 20}), r = g.tensor("r", {8, 1 << 20});
          auto sum = x + r;
          g.output(sum, "h", {.alias = x});
          g.output(softmax(sum), "y");
        }) > 1);
  CHECK(kernels([](Graph& g) {  // of the row as a whole, by all its threads
          auto x = g.tensor("x", {64, 256}), m = g.tensor("m", {64, 1});
          g.output(m + reduction(x * m, ReductionMode::add, {64, 1}), "next", {.alias = m});
        }) == 2);
  CHECK(kernels([](Graph& g) {  // a norm's scale, of which one row has the gradient
          auto x = g.tensor("x", {1, 64}), s = g.tensor("s", {1, 64}), dy = g.tensor("dy", {1, 64});
          auto y = rmsnorm(x, s, {}, 1e-5, {.forward_phase = ForwardPhase::training});
          auto d = rmsnorm_backward(dy, x, s, y.inv_variance);
          g.output(y, "y"), g.output(d.dx, "dx");
          g.output(s - g.scalar_input("lr") * d.dscale, "next", {.alias = s});
        }) > 1);
}

TEST_CASE("rows that clusters would hold are in place only where there are clusters") {
  for (const char* architecture : {"", "sm_90a"}) {
    Graph g({.io = bf16});
    auto sum = g.tensor("x", {8, 1 << 15}) + g.tensor("r", {8, 1 << 15});
    g.output(sum, "h", {.alias = Tensor(&g, *g.find("x"))});
    g.output(softmax(sum), "y");
    const auto plan = Plan::make(g, {.architecture = architecture});
    REQUIRE(plan);
    INFO(architecture);
    CHECK(plan->kernels() == (*architecture ? 1 : 2));
  }
}

TEST_CASE("an output of several operations may be in place, whatever the numbers of its tensors") {
  Graph g;
  auto dy = g.tensor("a", {8, 64}), s = g.tensor("b", {1, 64}), x = g.tensor("x", {8, 64});
  auto n = rmsnorm(x, s, {}, 1e-5, {.forward_phase = ForwardPhase::training});
  g.output(rmsnorm_backward(dy, x, s, n.inv_variance).dx, "dx", {.alias = x});
  CHECK(Plan::make(g));
  const auto back = graph_from_json(graph_to_json(g));
  REQUIRE(back);
  CHECK(Plan::make(**back));
}

TEST_CASE("what is updated in place is read first, whatever the order of the nodes") {
  const auto order = [](const auto& describe) {
    Graph g({.io = bf16});
    describe(g, g.tensor("x", {64, 96}), g.tensor("w", {96, 32}), g.tensor("dy", {64, 32}));
    const auto plan = Plan::make(g, {.architecture = "sm_90a"});
    REQUIRE(plan);
    std::string names;
    for (const auto& k : plan->data().kernels) names += k.nodes.front() + " ";
    return names;
  };
  const auto step = [](Graph& g, Tensor x, Tensor w, Tensor dy) {
    auto dw = matmul(transpose(x, {1, 0}), dy, {.name = "dw"});
    g.output(w - g.scalar_input("lr") * dw, "next", {.alias = w});
  };
  CHECK(order([&](Graph& g, Tensor x, Tensor w, Tensor dy) {
          step(g, x, w, dy);
          g.output(matmul(dy, transpose(w, {1, 0}), {.name = "dx"}), "dx");
        }) == "dx dw ");
  CHECK(order([&](Graph& g, Tensor x, Tensor w, Tensor dy) {  // made again by each that reads it
          auto scaled = w * 0.5;
          step(g, x, w, dy);
          g.output(matmul(x, scaled, {.name = "y"}), "y");
          g.output(exp(scaled), "e");
        })
            .find("dw") > 2);
}

TEST_CASE("rows are updated in place where each element is read before it is written") {
  const auto accepted = [](const auto& describe) {
    Graph g({.io = bf16});
    describe(g);
    const auto plan = Plan::make(g, {.architecture = "sm_90a"});
    return plan && plan->kernels() == 1;
  };
  for (const std::int64_t width : {64, 256, 8192}) {
    CHECK(accepted([&](Graph& g) {
      auto x = g.tensor("x", {64, width});
      g.output(softmax(x), "y", {.alias = x});
    }));
    CHECK(accepted([&](Graph& g) {  // the residual stream beside its norm
      auto x = g.tensor("x", {64, width}), r = g.tensor("r", {64, width});
      auto sum = (x + r).type(bf16);
      g.output(sum, "h", {.alias = x});
      g.output(rmsnorm(sum, g.tensor("w", {1, width}), {}, 1e-5).y, "y", {.alias = r});
    }));
  }
  CHECK(accepted([](Graph& g) {  // rows that no block holds are stored by the last phase
    auto x = g.tensor("x", {1024, 1 << 17});
    g.output(softmax(x), "y", {.alias = x});
  }));
}

TEST_CASE("numbers have as many dims as they are asked to have") {
  Graph g({.io = bf16});
  auto q = g.tensor("q", {1, 2, 8, 64}), k = g.tensor("k", {1, 2, 32, 64}),
       v = g.tensor("v", {1, 2, 32, 64});
  const Tensor length = g.scalar_input("length", i32).of_rank(4);
  g.output(sdpa(q, k, v, {.padding_mask = true},
                {.seq_len_q = g.scalar_integer(5, i32).of_rank(4), .seq_len_kv = length})
               .o,
           "o");
  CHECK(g.check().empty());
  CHECK(length.desc().dim == Dims{1, 1, 1, 1});
  q.of_rank(4);
  g.scalar_input("none").of_rank(0);
  const Diagnostics wrong = g.check();
  REQUIRE(wrong.size() == 2);
  CHECK(wrong[0].rule == Rule::tensor_rank);
  CHECK(wrong[0].seen == "a tensor in memory");
  CHECK(wrong[1].seen == "0 dims");
}

TEST_CASE("indices of a grid need no tensor") {
  Graph g;
  const Dims grid{1, 1, 3, 4};
  g.output(gen_index(g, grid, 3) - gen_index(g, grid, -2), "distance");
  CHECK(g.check().empty());
  const auto plan = Plan::make(g, {.architecture = "sm_90a"});
  REQUIRE(plan);
  CHECK(plan->kernels() == 1);
  CHECK(plan->tensors().size() == 1);
  const auto executable = load(*plan, Device::cpu());
  REQUIRE(executable);
  const Array<float> distance(Device::cpu(), 12);
  REQUIRE(executable->execute(nullptr, {{"distance", distance}}, Scratch(*executable)));
  CHECK(distance.get() == std::vector<float>{0, 1, 2, 3, -1, 0, 1, 2, -2, -1, 0, 1});

  Graph wrong;
  CHECK(!gen_index(wrong, {3, 4}, 2));
  CHECK(rules(wrong.check()) == std::vector{Rule::axis_range});
}

TEST_CASE("a node that is refused for its results' dims produces nothing") {
  Graph g;
  const Tensor seed = g.scalar_integer(1);
  CHECK(!rng(seed, 0, {-1, 4}));
  CHECK(!gen_index(g, {2, -1}, 0));
  CHECK(rules(g.check()) == std::vector{Rule::tensor_extent, Rule::tensor_extent});
  CHECK(g.nodes().empty());
  for (const TensorDesc& t : g.tensors()) CHECK(t.producer == -1);
  g.output(rng(seed, 0, {4}), "y");
  CHECK(g.nodes().size() == 1);
}

TEST_CASE("a scalar of a type that only computes is refused where it is made") {
  Graph g;
  const auto x = g.tensor("x", {4});
  CHECK(!g.scalar(1, tf32));
  CHECK(!g.scalar_integer(1, tf32));
  CHECK(!g.scalar_input("rate", tf32));
  CHECK(rules(g.check()) == std::vector(3, Rule::tensor_data_type));
  g.output(x * g.scalar(1, tf32), "y");
  CHECK(rules(g.check()) == std::vector(4, Rule::tensor_data_type));
}

TEST_CASE("dims that a result lacks are reported once") {
  Graph g;
  const auto x = g.tensor("x", {4, 4});
  g.output(reduction(x, ReductionMode::add, {}), "y");
  g.output(conv_wgrad(x, x, {}), "dw");
  const Diagnostics wrong = g.check();
  REQUIRE(rules(wrong) == std::vector(2, Rule::tensor_dim_missing));
  CHECK(wrong[0].node == "reduction #0");
  CHECK(wrong[1].node == "conv_wgrad #0");
}
