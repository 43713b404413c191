// Bad graph documents (cases.json): each has to be refused with the rule that it breaks, and the
// message has to name what the user must change. And whatever is done to a good document, reading
// it ends in a graph or in diagnostics.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "array/npy.hpp"
#include "sinter/json.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace sinter;

namespace {

nlohmann::json cases() {
  const std::string folder = sinter::test::source_tree() + "/tests";
  std::ifstream file(folder + "/error/cases.json");
  INFO(folder);
  REQUIRE(file.good());
  return nlohmann::json::parse(file);
}

std::string text_of(const nlohmann::json& c) {
  return c.contains("text") ? c["text"].get<std::string>() : c["document"].dump();
}

// A document with every kind of value.
constexpr const char* kGood = R"({
  "format": "sinter.graph", "version": 1, "name": "good",
  "io_data_type": "bf16", "intermediate_data_type": "f32", "compute_data_type": "f32",
  "tensors": {
    "X": {"dim": [1, 4, 8], "uid": 1, "alignment": 32},
    "W": {"dim": [1, 8, 16], "stride": [128, 1, 8]},
    "half": {"value": 0.5, "data_type": "f32"},
    "H": {"output": true}
  },
  "nodes": [
    {"op": "matmul", "inputs": {"A": "X", "B": "W"}, "outputs": {"C": "XW"}},
    {"op": "pointwise", "mode": "relu_fwd", "relu_upper_clip": 6e0, "name": "r",
     "inputs": {"IN_0": "XW"}, "outputs": {"OUT_0": "R"}},
    {"op": "slice", "start": [0, 1, 2], "limit": [1, 4, 8], "inputs": {"X": "R"}, "outputs": {"Y": "S"}},
    {"op": "pointwise", "mode": "mul", "inputs": {"IN_0": "S", "IN_1": "half"}, "outputs": {"OUT_0": "H"}}
  ]
})";

// A graph that reads back from its own text, or diagnostics that say something.
void check_total(std::string_view text) {
  const auto g = graph_from_json(text, "f");
  if (!g) {
    REQUIRE_FALSE(g.errors().empty());
    for (const auto& d : g.errors()) REQUIRE_FALSE(d.message().empty());
    return;
  }
  const std::string canonical = graph_to_json(**g);
  const auto again = graph_from_json(canonical, "f");
  INFO(canonical);
  REQUIRE(again.ok());
  REQUIRE(graph_to_json(**again) == canonical);
}

}  // namespace

TEST_CASE("every bad document is refused with its rule and names what is wrong") {
  for (const auto& c : cases()) {
    const std::string text = text_of(c);
    INFO(text.substr(0, 600));
    const auto g = graph_from_json(text, "bad.json");
    REQUIRE_FALSE(g.ok());
    const auto& d = g.error();
    INFO(d.message());
    CHECK(g.errors().size() == c.value("errors", std::size_t{1}));
    CHECK(d.id() == c["rule"].get<std::string>());
    CHECK(d.file == "bad.json");
    CHECK((d.line > 0 || d.rule == Rule::graph_no_output));
    for (const auto& word : c["must_mention"])
      CHECK(d.message().find(word.get<std::string>()) != std::string::npos);
  }
}

TEST_CASE("there is a bad document for every rule that a document can break") {
  std::set<std::string> covered;
  for (const auto& c : cases()) covered.insert(c["rule"].get<std::string>());
  // A document cannot break these: its names are keys of one object, and it knows no other graph.
  // tests/unit covers them on graphs that are built in C++.
  // Nor does it have what an operation was not asked for; an input that is not read is no error,
  // nor are lengths that nothing reads, and an alias that its dims forbid is among the graphs that
  // are built there.
  const std::set<std::string> elsewhere = {"tensor-name",   "tensor-foreign", "tensor-absent",
                                           "tensor-unused", "tensor-alias",   "sdpa-unread"};
  for (int i = 0; i <= static_cast<int>(Rule::json_number); ++i) {
    const std::string id(info(static_cast<Rule>(i)).id);
    INFO(id);
    CHECK(covered.contains(id) != elsewhere.contains(id));
  }
  CHECK(npy_from_bytes("no array").error().rule == Rule::array_format);
}

TEST_CASE("every beginning of a document is refused without a crash") {
  const std::string_view text = kGood;
  check_total(text);
  for (std::size_t n = 0; n < text.size(); ++n) {
    REQUIRE_FALSE(graph_from_json(text.substr(0, n), "f").ok());
  }
}

TEST_CASE("random damage to a document gives a graph or diagnostics") {
  const std::string text = kGood;
  // Pieces that turn up where they do not belong.
  const std::vector<std::string> pieces = {"-1",    "1e999",      "null",
                                           "[]",    "{}",         "\"\"",
                                           "0",     "true",       "9223372036854775807",
                                           "\"X\"", "\"H\"",      "[[",
                                           ",",     "\"XW\"",     "1099511627776",
                                           "-0.0",  "\"f8e4m3\"", "\xff"};
  std::mt19937 random(7);
  for (int i = 0; i < 6000; ++i) {
    std::string damaged = text;
    for (unsigned j = 0; j <= random() % 3; ++j) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0:
          damaged[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          damaged.erase(at, random() % 12);
          break;
        case 2:
          damaged.insert(at, pieces[random() % pieces.size()]);
          break;
        default: {  // a whole value
          const std::size_t begin = damaged.find_first_of(":[", at);
          const std::size_t end = damaged.find_first_of(",}]", begin);
          if (end != std::string::npos)
            damaged.replace(begin + 1, end - begin - 1, pieces[random() % pieces.size()]);
        }
      }
    }
    INFO(damaged);
    check_total(damaged);
  }
}

TEST_CASE("documents made of hostile structure are refused quickly") {
  std::string many = R"({"format": "sinter.graph", "version": 1, "tensors": {}, "nodes": [)";
  for (int i = 0; i < 200'000; ++i) many += i ? ",{}" : "{}";
  const auto g = graph_from_json(many + "]}", "f");
  REQUIRE_FALSE(g.ok());
  CHECK(g.error().rule == Rule::json_format);

  std::string fields =
      R"({"format": "sinter.graph", "version": 1, "nodes": [], "tensors": {"X": {)";
  for (int i = 0; i < 100'000; ++i) fields += fmt::format("{}\"k{}\": 0", i ? "," : "", i);
  const auto f = graph_from_json(fields + "}}}", "f");
  REQUIRE_FALSE(f.ok());
  CHECK(f.errors().size() <= 1100);

  // A chain of nodes in the worst order: every one waits for the next.
  const int n = 20'000;
  std::string chain =
      R"({"format": "sinter.graph", "version": 1, "tensors": {"t0": {"dim": [2]}, "t)" +
      std::to_string(n) + R"(": {"output": true}}, "nodes": [)";
  for (int i = n; i > 0; --i)
    chain += fmt::format(
        R"({}{{"op": "pointwise", "mode": "neg", "inputs": {{"IN_0": "t{}"}}, "outputs": {{"OUT_0": "t{}"}}}})",
        i < n ? "," : "", i - 1, i);
  const auto c = graph_from_json(chain + "]}", "f");
  REQUIRE(c.ok());
  CHECK((*c)->nodes().size() == static_cast<std::size_t>(n));
}
