// Every operation and pointwise mode against results that independent definitions gave
// (gen_oracle.py): graph document, lowering and reference together.
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "lower/lower.hpp"
#include "reference/chunks.hpp"
#include "reference/element.hpp"
#include "reference/reference.hpp"
#include "reference/samples.hpp"
#include "sinter/json.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace sinter;
using Json = nlohmann::json;

namespace {

const Json& cases() {
  static const Json all = [] {
    std::ifstream file(sinter::test::source_tree() + "/tests/reference/oracle.json");
    return Json::parse(file).at("cases");
  }();
  return all;
}

double number(const Json& j) {
  if (j.is_number()) return j.get<double>();
  const double inf = std::numeric_limits<double>::infinity();
  return j == "inf" ? inf : j == "-inf" ? -inf : std::numeric_limits<double>::quiet_NaN();
}

struct Memory {
  std::map<TensorId, std::vector<std::byte>> bytes;
  HostPointers pointers;

  void add(const Graph& graph, TensorId t) {
    const auto size = static_cast<std::size_t>(count(graph[t].dim)) *
                      static_cast<std::size_t>(info(graph.type(t)).bytes);
    bytes[t].assign(size + 1, std::byte{0xff});
    pointers[t] = bytes[t].data();
  }
};

// Row-major numbers into packed memory; 64-bit integers keep all their bits.
void store(const Graph& graph, TensorId t, const Json& values, void* memory) {
  const DataType type = graph.type(t);
  REQUIRE(static_cast<std::int64_t>(values.size()) == count(graph[t].dim));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == i64)
      static_cast<std::int64_t*>(memory)[i] = values[i].get<std::int64_t>();
    else
      store_element(type, memory, static_cast<std::int64_t>(i), number(values[i]));
  }
}

// At the limits: no allowance for large numbers beside small ones, and zeros have signs, but for
// gradients, which may vanish from either side.
bool agrees_closely(double seen, double expected, bool signs) {
  if (std::isinf(expected) && seen != expected) return false;
  if (seen == expected) return !signs || std::signbit(seen) == std::signbit(expected);
  if (expected != expected) return seen != seen;
  return std::fabs(seen - expected) <= 1e-11 * std::fabs(expected) + 0x1p-1070;
}

bool agrees(double seen, double expected, double scale, bool exact) {
  if (expected != expected) return seen != seen;
  if (seen == expected) return true;
  if (exact || !std::isfinite(expected)) return false;
  return std::fabs(seen - expected) <= 1e-9 * std::max(std::fabs(expected), 1e-4 * scale);
}

struct Loaded {
  Shared<Graph> graph;
  Lowered lowered;
  Memory memory;
};

Loaded load(const Json& c) {
  Loaded l;
  auto graph = graph_from_json(c.at("graph").dump());
  INFO((graph ? "" : graph.error().message()));
  REQUIRE(graph);
  l.graph = std::move(*graph);
  l.lowered = lower(*l.graph);
  const Graph& g = *l.lowered.graph;
  for (const auto& [name, values] : c.at("inputs").items()) {
    const auto t = g.find(name);
    REQUIRE(t);
    l.memory.add(g, *t);
    store(g, *t, values, l.memory.pointers[*t]);
  }
  for (const auto& [name, values] : c.at("outputs").items()) {
    const auto t = g.find(name);
    REQUIRE(t);
    l.memory.add(g, *t);
  }
  return l;
}

void check_outputs(const Json& c, const Loaded& l) {
  const Graph& g = *l.lowered.graph;
  const std::string name = c.at("name");
  for (const auto& [output, values] : c.at("outputs").items()) {
    const TensorId t = *g.find(output);
    REQUIRE(static_cast<std::int64_t>(values.size()) == count(g[t].dim));
    double scale = 0;
    for (const Json& v : values)
      if (std::isfinite(number(v))) scale = std::max(scale, std::fabs(number(v)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = number(values[i]),
                   seen = load_element(g.type(t), l.memory.pointers.at(t),
                                       static_cast<std::int64_t>(i));
      CAPTURE(output, i, seen, expected);
      if (c.contains("limits"))
        CHECK(agrees_closely(seen, expected, !name.ends_with("_bwd")));
      else
        REQUIRE(agrees(seen, expected, scale, c.at("exact") || !is_floating(g.type(t))));
    }
  }
}

}  // namespace

TEST_CASE("the CPU backend gives the oracle's results, whole and chunk by chunk",
          "[reference][oracle]") {
  for (const Json& c : cases()) {
    const std::string name = c.at("name");
    DYNAMIC_SECTION(name) {
      for (const std::int64_t chunks : {1, 5}) {
        Loaded l = load(c);
        const Status done =
            reference::evaluate_in_chunks(*l.lowered.graph, l.memory.pointers, chunks);
        INFO((done ? "" : done.error().message()));
        REQUIRE(done);
        check_outputs(c, l);
      }
    }
  }
}

// In double the CPU backend is one of the kernels that the bounds speak of.
TEST_CASE("the judge accepts the CPU backend, and single elements as all", "[reference][oracle]") {
  std::int64_t compared = 0, untrusted = 0;
  for (const Json& c : cases()) {
    const std::string name = c.at("name");
    Loaded l = load(c);
    const Graph& g = *l.lowered.graph;
    REQUIRE(evaluate(g, l.memory.pointers));
    for (const auto& [output, values] : c.at("outputs").items()) {
      const TensorId t = *g.find(output);
      CAPTURE(name, output);
      const auto judged = compare(g, l.memory.pointers, t, l.memory.pointers[t]);
      REQUIRE(judged);
      INFO(judged->first_wrong);
      CHECK(judged->ok());
      compared += judged->compared;
      untrusted += judged->untrusted;

      const auto every = reference::sample_elements(g[t].dim, 0, 0),
                 some = reference::sample_elements(g[t].dim, 5, 77);
      const auto all = judge(g, l.memory.pointers, t, every),
                 few = judge(g, l.memory.pointers, t, some);
      REQUIRE((all && few));
      for (std::size_t i = 0; i < some.size(); ++i) {
        const Judged &a = (*all)[static_cast<std::size_t>(some[i])], &b = (*few)[i];
        CAPTURE(some[i], a.value, b.value, a.error, b.error);
        CHECK((a.value == b.value || (a.value != a.value && b.value != b.value)));
        // Whether a sum is exact is decided for a whole box, so that bounds differ by roundings.
        CHECK((a.error < 1e300) == (b.error < 1e300));
        if (a.error < 1e300 && a.value == a.value)
          CHECK(std::fabs(a.error - b.error) <= 1e-12 * (1 + std::fabs(a.value)));
      }
    }
  }
  CHECK(untrusted * 20 < compared);
}

TEST_CASE("every operation and pointwise mode has an oracle", "[reference][oracle]") {
  std::set<std::string> seen;
  for (const Json& c : cases())
    for (const Json& node : c.at("graph").at("nodes")) {
      const std::string op = node.at("op");
      seen.insert(op);
      for (const char* enumeration : {"mode", "distribution"})
        if (node.contains(enumeration))
          seen.insert(op + " " + node.at(enumeration).get<std::string>());
    }
  const auto require = [&](const std::string& what) {
    INFO(what);
    CHECK(seen.contains(what));
  };
  for (const OpInfo& op : kOps)
    if (!op.internal) require(std::string(op.name));
  for (const auto mode : EnumNames<PointwiseMode>::names) require("pointwise " + std::string(mode));
  for (const auto mode : EnumNames<ReductionMode>::names) require("reduction " + std::string(mode));
  for (const auto mode : EnumNames<ResampleMode>::names) {
    require("resample " + std::string(mode));
    require("resample_backward " + std::string(mode));
  }
  for (const auto d : EnumNames<Distribution>::names) require("rng " + std::string(d));
  for (const auto mode : EnumNames<MoeMode>::names)
    require("moe_grouped_matmul " + std::string(mode));
}
