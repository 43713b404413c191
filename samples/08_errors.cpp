// What mistakes look like. Errors are data: the rule that is broken, the node, the tensor or port,
// what was seen, what is allowed, what would pass, and the line of the user's own call. Nothing
// here throws or ends the program.
#include "common.hpp"

using namespace samples;

namespace {

Check check;

// Prints the first diagnostic and checks that it is of this rule and names this place.
void expect(const char* mistake, const sinter::Diagnostics& seen, std::string_view rule,
            std::string_view place) {
  std::printf("\n%s\n", mistake);
  check.that(mistake, !seen.empty());
  if (seen.empty()) return;
  const auto& d = seen.front();
  std::printf("  rule    %s: it %s\n", std::string(d.id()).c_str(),
              std::string(info(d.rule).says).c_str());
  const auto line = [](const char* title, const std::string& text) {
    if (!text.empty()) std::printf("  %-7s %s\n", title, text.c_str());
  };
  line("node", d.node);
  line("tensor", d.tensor);
  line("field", d.attribute);
  line("seen", d.seen);
  line("allowed", d.allowed);
  line("fix", d.fix);
  if (!d.file.empty())
    std::printf("  at      %s:%u\n", d.file.substr(d.file.rfind('/') + 1).c_str(), d.line);
  check.that("the rule is the expected one", d.id() == rule);
  check.that("the message names the place", d.message().find(place) != std::string::npos);
}

void mistakes_in_graphs() {
  sinter::Graph graph;
  auto a = graph.tensor({.name = "a", .dim = {16, 32}});
  auto b = graph.tensor({.name = "b", .dim = {33, 8}});
  auto product = matmul(a, b);  // poisoned: what follows reports nothing more
  graph.output(relu(product + 1.0), "y");
  expect("a matrix product whose extents differ", graph.check(), "matmul-contraction", "matmul");

  sinter::Graph second;
  auto x = second.tensor({.name = "x", .dim = {4, 6}});
  auto y = second.tensor({.name = "y", .dim = {4, 5}});
  second.output(x * y, "z");
  expect("operands that do not broadcast", second.check(), "broadcast", "IN_1");

  sinter::Graph third;
  third.output(sqrt(third.tensor({.name = "x", .dim = {4}, .stride = {-1}})), "y");
  expect("a negative stride", third.check(), "tensor-stride", "'x'");

  sinter::Graph fourth;
  auto input = fourth.tensor("x", {4, 64}), scale = fourth.tensor("scale", {1, 64});
  auto norm = layernorm(input, scale, scale, 1e-5);  // in its inference phase
  fourth.output(norm.y, "y");
  fourth.output(norm.mean, "mean");
  expect("an output that its operation was not asked for", fourth.check(), "tensor-absent", "mean");

  expect("a graph document with a misspelt port",
         sinter::graph_from_json(R"({
    "format": "sinter.graph", "version": 1,
    "tensors": {"X": {"dim": [4, 4]}, "Y": {"output": true}},
    "nodes": [{"op": "matmul", "name": "product", "inputs": {"A": "X", "Bee": "X"},
               "outputs": {"C": "Y"}}]})",
                                 "product.json")
             .errors(),
         "port-unknown", "product");
}

void mistakes_in_calls(sinter::Device device) {
  sinter::Graph graph;
  graph.output(exp(graph.tensor({.name = "x", .dim = {64}})), "y");
  const auto executable = need(sinter::compile(graph, device));
  const Array<float> x(device, uniform(64, 1, 1)), y(device, 64);
  const auto execute = [&](std::vector<sinter::Binding> bindings) {
    return executable.execute(nullptr, bindings).errors();
  };
  expect("an output without memory", execute({{"x", x}}), "binding-missing", "'y'");
  expect("a name that the graph does not have", execute({{"x", x}, {"y", y}, {"z", y}}),
         "binding-unknown", "'z'");
  expect("a null pointer", execute({{"x", x}, {"y", static_cast<void*>(nullptr)}}), "binding-null",
         "'y'");
  expect("memory that is too small", execute({{"x", x}, {"y", y.data(), 64}}), "binding-size",
         "'y'");
  void* odd = reinterpret_cast<char*>(y.data()) + 2;
  expect("a pointer that is not aligned", execute({{"x", x}, {"y", odd}}), "binding-alignment",
         "'y'");
  expect("an output on top of an input", execute({{"x", x}, {"y", x}}), "binding-overlap", "'y'");
  expect("a number in place of memory", execute({{"x", 1.0}, {"y", y}}), "binding-memory", "'x'");
  check.that("and then a correct call works", execute({{"x", x}, {"y", y}}).empty());
  need(sinter::synchronize(device));
  check.close("y", y.get()[5], std::exp(double{x.get()[5]}), 1e-5);
}

void mistakes_in_the_environment() {
  sinter::Graph graph;
  graph.output(exp(graph.tensor({.name = "x", .dim = {64}})), "y");
  expect("a GPU that is not there", sinter::compile(graph, sinter::Device::gpu(1000)).errors(),
         "device-missing", "GPU");
  expect("a plan that is none", sinter::Plan::from_json(R"({"format": "sinter.plan"})").errors(),
         "plan-format", "");
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  mistakes_in_graphs();
  mistakes_in_calls(device);
  mistakes_in_the_environment();
  std::printf("\n");
  return check.verdict("08_errors");
}
