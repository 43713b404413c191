// Graph JSON: what a document means, what it may not say, and the canonical text.
#include <cmath>
#include <limits>

#include "sinter/json.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

std::string document(const std::string& tensors, const std::string& nodes,
                     const std::string& more = "") {
  return "{\"format\": \"sinter.graph\", \"version\": 1, " + more + "\"tensors\": {" + tensors +
         "},\n\"nodes\": [" + nodes + "]}";
}
const std::string kX = "\"X\": {\"dim\": [4, 8]}", kY = "\"Y\": {\"output\": true}";

Shared<Graph> graph_of(const std::string& text) {
  auto g = graph_from_json(text, "doc.json");
  if (!g) FAIL(g.error().message());
  return std::move(*g);
}
Diagnostics errors_of(const std::string& text) {
  const auto g = graph_from_json(text, "doc.json");
  REQUIRE_FALSE(g.ok());
  return g.errors();
}
std::string unary(const std::string& attributes) {
  return "{\"op\": \"pointwise\", " + attributes +
         ", \"inputs\": {\"IN_0\": \"X\"}, \"outputs\": {\"OUT_0\": \"Y\"}}";
}

}  // namespace

TEST_CASE("a graph document gives the graph that it describes") {
  const auto g = graph_of(document(
      "\"X\": {\"dim\": [1, 4, 8], \"uid\": 7, \"alignment\": 64}, "
      "\"W\": {\"dim\": [1, 8, 2], \"stride\": [16, 1, 8], \"data_type\": \"f16\"}, "
      "\"half\": {\"value\": 0.5, \"data_type\": \"f32\"}, \"H\": {\"output\": true}",
      "{\"op\": \"matmul\", \"name\": \"proj\", \"compute_data_type\": \"tf32\", "
      "\"inputs\": {\"A\": \"X\", \"B\": \"W\"}, \"outputs\": {\"C\": \"XW\"}}, "
      "{\"op\": \"pointwise\", \"mode\": \"mul\", \"inputs\": {\"IN_0\": \"XW\", \"IN_1\": "
      "\"half\"}, \"outputs\": {\"OUT_0\": \"H\"}}",
      "\"name\": \"ffn\", \"io_data_type\": \"bf16\", "));
  CHECK(g->options().name == "ffn");
  REQUIRE(g->nodes().size() == 2);
  const auto& x = (*g)[*g->find("X")];
  CHECK(x.uid == 7);
  CHECK(x.alignment == 64);
  CHECK(g->type(*g->find("X")) == bf16);
  CHECK(g->type(*g->find("W")) == f16);
  CHECK(g->type(*g->find("XW")) == f32);
  CHECK(g->is_virtual(*g->find("XW")));
  CHECK(g->stride(*g->find("W")) == Dims{16, 1, 8});
  CHECK((*g)[*g->find("half")].value == 0.5);
  CHECK((*g)[*g->find("H")].dim == Dims{1, 4, 2});
  CHECK((*g)[*g->find("H")].output);
  CHECK(g->nodes()[0].name == "proj");
  CHECK(g->compute(g->nodes()[0]) == tf32);
  CHECK(g->compute(g->nodes()[1]) == f32);
}

TEST_CASE("Stats and Amax_O of attention are f32 where they declare no type") {
  const auto types = [](const std::string& stats, const std::string& amax) {
    const std::string operand = "{\"dim\": [1, 2, 8, 16]}";
    const auto g = graph_of(
        document("\"Q\": " + operand + ", \"K\": " + operand + ", \"V\": " + operand +
                     ", \"O\": {\"output\": true}, \"L\": {" + stats + "}, \"A\": {" + amax + "}",
                 "{\"op\": \"sdpa\", \"inputs\": {\"Q\": \"Q\", \"K\": \"K\", \"V\": \"V\"}, "
                 "\"outputs\": {\"O\": \"O\", \"Stats\": \"L\", \"Amax_O\": \"A\"}}",
                 "\"io_data_type\": \"bf16\", \"intermediate_data_type\": \"f16\", "));
    const auto again = graph_of(graph_to_json(*g));
    std::string found;
    for (const char* name : {"O", "L", "A"}) {
      const DataType type = g->type(*g->find(name));
      CHECK(again->type(*again->find(name)) == type);
      found += std::string(sinter::name(type)) + " ";
    }
    return found;
  };
  const std::string output = "\"output\": true";
  CHECK(types(output, output) == "bf16 f32 f32 ");
  CHECK(types("", "") == "bf16 f32 f32 ");
  // What is declared stays, the graph's own types included.
  CHECK(types(output + ", \"data_type\": \"bf16\"", "\"data_type\": \"f16\"") == "bf16 bf16 f16 ");
  CHECK(types("\"data_type\": \"f64\"", output + ", \"data_type\": \"f32\"") == "bf16 f64 f32 ");
}

TEST_CASE("nodes of a document may stand in any order") {
  const std::string a =
      "{\"op\": \"pointwise\", \"mode\": \"neg\", \"inputs\": {\"IN_0\": \"X\"}, \"outputs\": "
      "{\"OUT_0\": \"A\"}}";
  const std::string b =
      "{\"op\": \"pointwise\", \"mode\": \"abs\", \"inputs\": {\"IN_0\": \"A\"}, \"outputs\": "
      "{\"OUT_0\": \"Y\"}}";
  auto forward = graph_of(document(kX + ", " + kY, a + ", " + b));
  auto backward = graph_of(document(kY + ", " + kX, b + ", " + a));
  CHECK(graph_to_json(*forward) == graph_to_json(*backward));
}

TEST_CASE("a cycle is reported with every node and tensor on it and nothing else") {
  const auto node = [](const char* name, const char* from, const char* to) {
    return std::string("{\"op\": \"pointwise\", \"mode\": \"add\", \"name\": \"") + name +
           "\", \"inputs\": {\"IN_0\": \"X\", \"IN_1\": \"" + from +
           "\"}, \"outputs\": {\"OUT_0\": \"" + to + "\"}}";
  };
  const auto errors =
      errors_of(document(kX + ", " + kY, node("after", "b", "Y") + ", " + node("first", "b", "a") +
                                             ", " + node("second", "a", "b")));
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].rule == Rule::graph_cycle);
  for (auto name : {"first", "second", "'a'", "'b'"})
    CHECK(errors[0].seen.find(name) != std::string::npos);
  CHECK(errors[0].seen.find("after") == std::string::npos);
}

TEST_CASE("a pass-by-value number is rounded to its data type") {
  const auto value = [](const std::string& fields) {
    const auto g = graph_of(
        document(kX + ", " + kY + ", \"s\": {" + fields + "}",
                 "{\"op\": \"pointwise\", \"mode\": \"add\", \"inputs\": {\"IN_0\": \"X\", "
                 "\"IN_1\": \"s\"}, \"outputs\": {\"OUT_0\": \"Y\"}}"));
    return (*g)[*g->find("s")];
  };
  CHECK(value("\"value\": 0.1").value == static_cast<double>(0.1f));  // io_data_type
  CHECK(value("\"value\": 0.1, \"data_type\": \"f64\"").value == 0.1);
  CHECK(value("\"value\": 0.1, \"data_type\": \"bf16\"").value == 0.10009765625);
  CHECK(std::isinf(value("\"value\": 70000, \"data_type\": \"f16\"").value));
  CHECK(value("\"value\": 1000, \"data_type\": \"f8e4m3\"").value == 448);
  CHECK(value("\"value\": 2.5, \"data_type\": \"i32\"").integer_value == 2);
  CHECK(value("\"value\": 3e9, \"data_type\": \"i32\"").integer_value == 2147483647);
  CHECK(value("\"value\": 9007199254740993, \"data_type\": \"i64\"").integer_value ==
        9007199254740993);
  CHECK(value("\"value\": 1e30, \"data_type\": \"i64\"").integer_value ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(value("\"value\": 7, \"data_type\": \"bool\"").value == 1);
  CHECK(value("\"value\": \"-inf\"").value == -std::numeric_limits<double>::infinity());
  CHECK(value("\"value\": 1, \"dim\": [1, 1]").dim == Dims{1, 1});
  CHECK(value("\"value\": 1").dim == Dims{1});
}

TEST_CASE("a window larger than the padded extent by at most the stride gives an extent of 0") {
  const auto extent = [](const std::string& x, const std::string& node) {
    const auto g =
        graph_of(document("\"X\": {\"dim\": [1, 1, " + x + "]}, \"W\": {\"dim\": [1, 1, 3]}, " + kY,
                          "{" + node + ", \"outputs\": {\"Y\": \"Y\"}}"));
    return (*g)[*g->find("Y")].dim[2];
  };
  const std::string conv = "\"op\": \"conv_fprop\", \"inputs\": {\"X\": \"X\", \"W\": \"W\"}",
                    pool =
                        "\"op\": \"resample\", \"mode\": \"maxpool\", \"window\": [3], "
                        "\"inputs\": {\"X\": \"X\"}";
  for (const auto& op : {conv, pool}) {
    CHECK(extent("3", op) == 1);
    CHECK(extent("2", op) == 0);
    CHECK(extent("1", op + ", \"stride\": [2]") == 0);
    CHECK(extent("1", op + ", \"post_padding\": [1]") == 0);
    CHECK(extent("0", op) == 0);  // an empty image is no mistake
    CHECK(extent("0", op + ", \"pre_padding\": [3]") == 1);
  }
}

TEST_CASE("any JSON string names a tensor, the empty one included") {
  const auto g = graph_of(
      "{\"format\": \"sinter.graph\", \"version\": 1, \"tensors\": {\"\": {\"dim\": [2]}, "
      "\"a=b\\n\\u0000\": {\"output\": true}}, \"nodes\": [{\"op\": \"pointwise\", \"mode\": "
      "\"neg\", \"inputs\": {\"IN_0\": \"\"}, \"outputs\": {\"OUT_0\": \"a=b\\n\\u0000\"}}]}");
  CHECK(g->find("").has_value());
  CHECK(g->find(std::string("a=b\n\0", 5)).has_value());
  auto again = graph_of(graph_to_json(*g));
  CHECK(graph_to_json(*again) == graph_to_json(*g));
}

TEST_CASE("a pointwise node takes the attributes of its own mode only") {
  CHECK_NOTHROW(graph_of(
      document(kX + ", " + kY, unary("\"mode\": \"relu_fwd\", \"relu_lower_clip_slope\": 0.1"))));
  const auto e = errors_of(
      document(kX + ", " + kY, unary("\"mode\": \"neg\", \"relu_lower_clip_slope\": 0.1")));
  CHECK(e[0].rule == Rule::attribute_unknown);
  CHECK(e[0].attribute == "relu_lower_clip_slope");
  CHECK(e[0].node == "pointwise #0");
  const auto axis = errors_of(document(kX + ", " + kY, unary("\"mode\": \"exp\", \"axis\": 0")));
  CHECK(axis[0].rule == Rule::attribute_unknown);
  CHECK_NOTHROW(graph_of(document(kX + ", " + kY, unary("\"mode\": \"gen_index\", \"axis\": 0"))));
}

TEST_CASE("one error does not make others, and several are reported together") {
  const auto e = errors_of(
      document("\"X\": {\"dim\": [4.5]}, \"Z\": {\"dim\": [3], \"dims\": 1}, " + kY,
               unary("\"mode\": \"neg\"") +
                   ", {\"op\": \"pointwise\", \"mode\": \"neg\", \"inputs\": {\"IN_0\": \"Y\"}, "
                   "\"outputs\": {\"OUT_0\": \"V\"}}"));
  REQUIRE(e.size() == 2);
  CHECK(e[0].rule == Rule::json_type);
  CHECK(e[0].tensor == "X");
  CHECK(e[0].attribute == "dim[0]");
  CHECK(e[1].rule == Rule::json_field);
  CHECK(e[1].attribute == "dims");
  CHECK(e[1].fix == "did you mean 'dim'");
}

TEST_CASE("a word of another library is told ours, and one that is only short is not guessed") {
  const auto told = [](const std::string& node, std::string_view word) {
    const auto e = errors_of(document(kX + ", " + kY, node));
    INFO(word);
    REQUIRE(e.size() == 1);
    return e[0].fix;
  };
  const auto op = [&](const std::string& word) {
    return told("{\"op\": \"" + word + "\", \"inputs\": {}, \"outputs\": {\"Y\": \"Y\"}}", word);
  };
  const auto mode = [&](const std::string& word) {
    return told(unary("\"mode\": \"" + word + "\""), word);
  };
  const auto attribute = [&](const std::string& of, const std::string& word) {
    return told("{\"op\": \"" + of + "\", \"" + word + "\": 1, \"outputs\": {\"Y\": \"Y\"}}", word);
  };
  const auto mean = [](const std::string& ours) { return "did you mean '" + ours + "'"; };

  CHECK(op("gemm") == mean("matmul"));
  CHECK(op("norm2") == "did you mean 'reduction' with the mode 'norm2'");
  CHECK(op("attention") == mean("sdpa"));
  CHECK(op("convolution") == mean("conv_fprop"));
  CHECK(op("conv2d") == mean("conv_fprop"));
  CHECK(op("reduce") == mean("reduction"));
  CHECK(op("mean") == mean("reduction") + " with the mode 'avg'");
  CHECK(op("add") == mean("pointwise") + " with the mode 'add'");
  CHECK(op("ReLU") == mean("pointwise") + " with the mode 'relu_fwd'");
  CHECK(op("silu") == mean("pointwise") + " with the mode 'swish_fwd'");
  CHECK(op("layer_norm") == mean("layernorm"));
  CHECK(op("zebra").empty());

  CHECK(mode("tanh") == mean("tanh_fwd"));
  CHECK(mode("silu") == mean("swish_fwd"));
  CHECK(mode("where") == mean("binary_select"));
  CHECK(mode("eq") == mean("cmp_eq"));
  CHECK(mode("lt") == mean("cmp_lt"));
  CHECK(mode("not") == mean("logical_not"));
  CHECK(mode("inv") == mean("reciprocal"));
  CHECK(mode("square") == mean("mul") + " of the tensor with itself");
  CHECK(mode("cast") == mean("identity") + ", whose result has the data type that it declares");
  CHECK(mode("subb") == mean("sub"));
  CHECK(mode("mean").empty());  // not min

  const auto reduction = [&](const std::string& word) {
    return told("{\"op\": \"reduction\", \"mode\": \"" + word +
                    "\", \"inputs\": {\"X\": \"X\"}, \"outputs\": {\"Y\": \"Y\"}}",
                word);
  };
  CHECK(reduction("sum") == mean("add"));
  CHECK(reduction("mean") == mean("avg"));

  CHECK(attribute("softmax", "dim") == mean("axis"));
  CHECK(attribute("conv_fprop", "padding") == mean("pre_padding") + " and 'post_padding'");
  CHECK(attribute("reduction", "axis") == "Y's dim says the axes: 1 where reduced");
  CHECK(errors_of(document(kX, "{\"op\": \"sdpa\", \"is_causal\": true, \"scale\": 1}"))[1].fix ==
        mean("attn_scale"));
  CHECK(errors_of(document("\"X\": {\"shape\": [2]}", unary("\"mode\": \"neg\"")))[0].fix ==
        mean("dim"));
}

TEST_CASE("errors of a document name its file and line") {
  const auto e = errors_of(document(kX + ", " + kY, "\n\n" + unary("\"mode\": \"sinh\"")));
  CHECK(e[0].file == "doc.json");
  CHECK(e[0].line == 4);
}

TEST_CASE("canonical text leaves defaults out, sorts tensors and reads back as itself") {
  Graph g({.name = "c", .io = bf16});
  auto x = g.tensor({.name = "x", .dim = {2, 3}, .stride = {3, 1}, .data_type = bf16});
  auto b = g.tensor({.name = "b", .dim = {2, 3}, .stride = {1, 2}});
  g.output(relu(x + b, {.slope = 0.1}) * 0.1, "y");
  const std::string text = graph_to_json(g);
  CHECK(text ==
        "{\n"
        "  \"format\": \"sinter.graph\", \"version\": 1, \"name\": \"c\",\n"
        "  \"io_data_type\": \"bf16\", \"intermediate_data_type\": \"f32\", "
        "\"compute_data_type\": \"f32\",\n"
        "  \"tensors\": {\n"
        "    \"add_2\": {\"dim\": [2, 3]},\n"
        "    \"b\": {\"dim\": [2, 3], \"stride\": [1, 2]},\n"
        "    \"relu_fwd_3\": {\"dim\": [2, 3]},\n"
        "    \"value_4\": {\"data_type\": \"f32\", \"value\": 0.1},\n"
        "    \"x\": {\"dim\": [2, 3]},\n"
        "    \"y\": {\"dim\": [2, 3], \"output\": true}\n"
        "  },\n"
        "  \"nodes\": [\n"
        "    {\"op\": \"pointwise\", \"mode\": \"add\", \"inputs\": {\"IN_0\": \"x\", \"IN_1\": "
        "\"b\"}, \"outputs\": {\"OUT_0\": \"add_2\"}},\n"
        "    {\"op\": \"pointwise\", \"mode\": \"relu_fwd\", \"relu_lower_clip_slope\": 0.1, "
        "\"inputs\": {\"IN_0\": \"add_2\"}, \"outputs\": {\"OUT_0\": \"relu_fwd_3\"}},\n"
        "    {\"op\": \"pointwise\", \"mode\": \"mul\", \"inputs\": {\"IN_0\": \"relu_fwd_3\", "
        "\"IN_1\": \"value_4\"}, \"outputs\": {\"OUT_0\": \"y\"}}\n"
        "  ]\n"
        "}\n");
  auto again = graph_of(text);
  CHECK(graph_to_json(*again) == text);
}

TEST_CASE("attributes and numbers of every kind survive canonical text") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  Graph g;
  auto q = g.tensor({.name = "q", .dim = {1, 2, 4, 8}});
  auto k = g.tensor({.name = "k", .dim = {1, 2, 6, 8}});
  auto v = g.tensor({.name = "v", .dim = {1, 2, 6, 8}});
  const auto ids = detail::GraphEditor(g).add(OpKind::sdpa,
                                              SdpaAttributes{.attn_scale = 0.3535533905932738,
                                                             .causal_mask = true,
                                                             .left_bound = 3,
                                                             .generate_stats = true},
                                              {q.id(), k.id(), v.id()}, {kNewTensor, kNewTensor},
                                              {.name = "att", .compute = f64}, {});
  g.output({&g, ids[0]}, "O");
  g.output({&g, ids[1]}, "Stats");
  auto n = g.scalar_integer(-9007199254740993, i64, "n");
  g.output(max(q, -inf), "m");
  g.output(q * n, "qn");
  g.output(relu(q, {.lower_clip = -inf, .upper_clip = 6}), "r");
  g.output(conv_fprop(g.tensor({.name = "img", .dim = {1, 2, 5, 5}}),
                      g.tensor({.name = "w", .dim = {2, 2, 3, 3}}),
                      {.pre_padding = {1, 0}, .mode = ConvMode::convolution}),
           "c");
  const std::string text = graph_to_json(g);
  auto again = graph_of(text);
  CHECK(graph_to_json(*again) == text);
  REQUIRE(again->nodes().size() == g.nodes().size());
  for (std::size_t i = 0; i < g.nodes().size(); ++i)
    CHECK(again->nodes()[i].attributes == g.nodes()[i].attributes);
  CHECK((*again)[*again->find("n")].integer_value == -9007199254740993);
}
