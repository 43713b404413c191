// Thousands of random graphs through everything that needs no values and no compiler: the checks,
// graph JSON, the planner with and without fusion, and plan JSON.
#include "support/random_graph.hpp"

#include <cstdio>
#include <map>
#include <string>

#include "plan/plan_data.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

constexpr int kGraphs = 2400;

test::RandomGraphOptions options_of(int seed) {
  test::RandomGraphOptions o;
  o.seed = static_cast<std::uint64_t>(seed);
  o.max_nodes = seed % 100 == 99 ? 150 : seed % 5 == 0 ? 40 : 12;
  o.max_elements = seed % 3 == 0 ? 65536 : 4096;
  o.max_work = std::int64_t{1} << 26;
  o.exact_only = seed % 8 == 7;
  return o;
}

// The text of the graph, after it was checked to come back as the same text.
std::string round_trip(Graph& graph) {
  std::string text = graph_to_json(graph);
  const auto again = graph_from_json(text);
  for (const auto& d : again.errors()) FAIL(d.message() << "\n" << text);
  CHECK(graph_to_json(**again) == text);
  return text;
}

void plan_round_trip(Graph& graph, bool fuse) {
  auto plan = Plan::make(graph, {.fuse = fuse});
  for (const auto& d : plan.errors()) FAIL(d.message());
  const std::string text = plan->to_json();
  const auto again = Plan::from_json(text);
  for (const auto& d : again.errors()) FAIL(d.message());
  CHECK(again->to_json() == text);
}

}  // namespace

TEST_CASE("random graphs are valid and survive graph JSON, planning and plan JSON", "[fuzz]") {
  std::map<OpKind, int> ops;
  std::map<PointwiseMode, int> modes;
  std::size_t nodes = 0;
  for (int seed = 0; seed < kGraphs; ++seed) {
    INFO("seed " << seed);
    const auto graph = test::random_graph(options_of(seed));
    for (const auto& d : graph->check()) FAIL(d.message());
    nodes += graph->nodes().size();
    for (const auto& n : graph->nodes()) {
      ++ops[n.op];
      if (const auto* p = std::get_if<PointwiseAttributes>(&n.attributes)) ++modes[p->mode];
    }
    round_trip(*graph);
    for (bool fuse : {true, false}) plan_round_trip(*graph, fuse);
  }

  std::string table;
  for (const auto& [op, count] : ops)
    table += " " + std::string(name(op)) + ":" + std::to_string(count);
  std::printf("%d random graphs, %zu nodes:%s\n", kGraphs, nodes, table.c_str());
  for (int i = 0; i < static_cast<int>(OpKind::last_); ++i) {
    const auto op = static_cast<OpKind>(i);
    INFO(name(op));
    CHECK((info(op).internal || ops[op] > 0));
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
