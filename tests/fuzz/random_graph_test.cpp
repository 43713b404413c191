// Thousands of random graphs through everything that needs no values and no compiler: the checks,
// graph JSON, the planner with and without fusion, and plan JSON.
#include "support/random_graph.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/shrink_graph.hpp"

using namespace sinter;

namespace {

int graphs_to_plan() { return test::from_environment("SINTER_FUZZ_GRAPHS", 5000); }

test::RandomGraphOptions options_of(int seed) {
  test::RandomGraphOptions o;
  o.seed = static_cast<std::uint64_t>(seed) + (seed % 4 == 1   ? test::kCallsVary
                                               : seed % 4 == 2 ? test::kTrainingVary
                                                               : 0);
  o.max_nodes = seed % 100 == 99 ? 150 : seed % 5 == 0 ? 40 : 12;
  o.max_elements = seed % 3 == 0 ? 65536 : 4096;
  o.max_work = std::int64_t{1} << 26;
  o.exact_only = seed % 8 == 7;
  return o;
}

std::string messages(const Diagnostics& errors) {
  std::string s;
  for (const auto& d : errors) s += d.message() + "\n";
  return s;
}

// What is wrong with the round trips of a graph and of its plans. The fused one is for
// `architecture`.
std::string failure(Graph& graph, const std::string& architecture) {
  if (const auto errors = graph.check(); !errors.empty()) return messages(errors);
  const std::string text = graph_to_json(graph);
  const auto again = graph_from_json(text);
  if (!again) return "graph JSON is refused: " + messages(again.errors());
  if (graph_to_json(**again) != text) return "graph JSON comes back as another text";
  for (bool fuse : {true, false}) {
    const auto plan = Plan::make(graph, {.fuse = fuse, .architecture = fuse ? architecture : ""});
    // Where a kernel reads the input late (GRAPH_JSON.md, "In place").
    if (!plan && plan.error().rule == Rule::tensor_alias) return {};
    if (!plan) return "no plan: " + messages(plan.errors());
    const std::string plan_text = plan->to_json();
    const auto same = Plan::from_json(plan_text);
    if (!same) return "plan JSON is refused: " + messages(same.errors());
    if (same->to_json() != plan_text) return "plan JSON comes back as another text";
  }
  return {};
}

void note_ports(const Node& n, std::set<std::pair<OpKind, std::string_view>>& ports) {
  const auto note = [&](const Ports& names, const std::vector<TensorId>& tensors) {
    for (std::size_t i = 0; i < tensors.size() && i < names.size(); ++i)
      if (tensors[i] != kNoTensor) ports.insert({n.op, names[i].name});
  };
  note(info(n.op).inputs, n.inputs);
  note(info(n.op).outputs, n.outputs);
}

}  // namespace

TEST_CASE("random graphs are valid and survive graph JSON, planning and plan JSON", "[fuzz]") {
  std::map<OpKind, int> ops;
  std::set<std::pair<OpKind, std::string_view>> ports;  // that some node connects
  std::map<PointwiseMode, int> modes;
  std::size_t nodes = 0;
  const int graphs = graphs_to_plan();
  for (int seed = 0; seed < graphs; ++seed) {
    INFO("seed " << seed);
    const auto graph = test::random_graph(options_of(seed));
    nodes += graph->nodes().size();
    for (const auto& n : graph->nodes()) {
      ++ops[n.op];
      note_ports(n, ports);
      if (const auto* p = std::get_if<PointwiseAttributes>(&n.attributes)) ++modes[p->mode];
    }
    const auto fails = [&](Graph& g) { return failure(g, seed % 2 == 0 ? "" : "sm_90a"); };
    if (const auto wrong = test::smallest_failure(*graph, fails); !wrong.empty()) FAIL_CHECK(wrong);
  }

  std::string table;
  for (const auto& [op, count] : ops)
    table += " " + std::string(name(op)) + ":" + std::to_string(count);
  std::printf("%d random graphs, %zu nodes:%s\n", graphs, nodes, table.c_str());
  if (graphs < 1000) return;  // too few to hold every operation and mode
  for (int i = 0; i < static_cast<int>(OpKind::last_); ++i) {
    const auto op = static_cast<OpKind>(i);
    INFO(name(op));
    if (info(op).internal) continue;
    CHECK(ops[op] > 0);
    for (const auto* side : {&info(op).inputs, &info(op).outputs})
      for (const Port& port : *side) {
        INFO(port.name);
        const bool refused = op == OpKind::sdpa_backward && port.name.starts_with("Page_table");
        CHECK(ports.count({op, port.name}) == (refused ? 0 : 1));
      }
  }
  for (int i = 0; i < static_cast<int>(std::size(EnumNames<PointwiseMode>::names)); ++i) {
    INFO(name(static_cast<PointwiseMode>(i)));
    CHECK(modes[static_cast<PointwiseMode>(i)] > 0);
  }
}

TEST_CASE("the same seed gives the same graph, and plain names change nothing else", "[fuzz]") {
  for (int seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    auto options = options_of(seed);
    const auto first = test::random_graph(options), second = test::random_graph(options);
    CHECK(graph_to_json(*first) == graph_to_json(*second));
    options.hostile_names = false;
    const auto plain = test::random_graph(options);
    REQUIRE(plain->tensors().size() == first->tensors().size());
    REQUIRE(plain->nodes().size() == first->nodes().size());
    for (std::size_t i = 0; i < first->nodes().size(); ++i) {
      CHECK(plain->nodes()[i].op == first->nodes()[i].op);
      CHECK(plain->nodes()[i].attributes == first->nodes()[i].attributes);
      CHECK(plain->nodes()[i].inputs == first->nodes()[i].inputs);
    }
    for (std::size_t i = 0; i < first->tensors().size(); ++i)
      CHECK(plain->tensors()[i].dim == first->tensors()[i].dim);
  }
}
