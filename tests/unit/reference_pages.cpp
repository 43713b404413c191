// The reference pages have sections that are made from the tables in the code, between the lines
// "<!-- generated: NAME -->" and "<!-- end -->". SINTER_APPROVE=1 rewrites them.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "sinter/base/rules.hpp"
#include "sinter/ops/default_attributes.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace sinter;

namespace {

std::string code(std::string_view word) { return fmt::format("`{}`", word); }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string number(double v) {
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  return fmt::format("{:g}", v);
}

// The type of an attribute and its default, as a reader of graph JSON needs them.
struct Described {
  std::string type, value;
  auto operator<=>(const Described&) const = default;
};
Described describe(bool v) { return {"true or false", v ? "true" : "false"}; }
Described describe(std::int64_t v) { return {"integer", std::to_string(v)}; }
Described describe(double v) { return {"number", number(v)}; }
Described describe(const Dims&) { return {"list of integers", "none"}; }
template <class E>
requires(std::is_enum_v<E>) Described describe(E v) {
  std::vector<std::string> names;
  for (const auto n : EnumNames<E>::names) names.push_back(code(n));
  const bool many = std::is_same_v<E, PointwiseMode>;  // they have a table of their own
  return {many ? "a pointwise mode" : joined(names), many ? "none" : std::string(name(v))};
}
template <class T>
Described describe(const std::optional<T>&) {
  return {describe(T{}).type, "none"};
}

template <class Visit>
void each_attribute(OpKind op, Visit&& visit) {
  std::visit(
      [&]<class A>(const A& attributes) {
        A::fields(attributes, [&](const char* field, const auto& member) {
          visit(std::string(field), describe(member));
        });
      },
      default_attributes(op));
}

template <class Visit>
void each_operation(Visit&& visit) {
  for (int i = 0; i < static_cast<int>(OpKind::last_); ++i)
    if (const auto op = static_cast<OpKind>(i); !info(op).internal) visit(op);
}

std::string ports(const Ports& all, bool variadic) {
  std::vector<std::string> words;
  for (const auto& p : all)
    words.push_back(p.required ? std::string(p.name) : fmt::format("({})", p.name));
  return joined(words) + (variadic ? ", IN_1, .." : "");
}

std::string operations() {
  std::string text = "| operation | inputs | outputs | attributes |\n|---|---|---|---|\n";
  each_operation([&](OpKind op) {
    std::vector<std::string> attributes;
    each_attribute(
        op, [&](const std::string& field, const Described&) { attributes.push_back(code(field)); });
    text += fmt::format("| `{}` | {} | {} | {} |\n", name(op),
                        ports(info(op).inputs, info(op).variadic), ports(info(op).outputs, false),
                        joined(attributes));
  });
  return text;
}

// One row for the operations whose attribute of this name is the same.
std::string attributes() {
  std::vector<std::pair<std::string, Described>> rows;
  std::map<std::pair<std::string, Described>, std::vector<std::string>> of;
  each_operation([&](OpKind op) {
    each_attribute(op, [&](const std::string& field, const Described& d) {
      auto& operations = of[{field, d}];
      if (operations.empty()) rows.emplace_back(field, d);
      operations.push_back(code(name(op)));
    });
  });
  std::string text = "| attribute | of | value | default |\n|---|---|---|---|\n";
  for (const auto& row : rows)
    text += fmt::format("| `{}` | {} | {} | {} |\n", row.first, joined(of[row]), row.second.type,
                        row.second.value);
  return text;
}

std::string pointwise_modes() {
  constexpr std::string_view says[] = {
#define SINTER_MODE(mode, formula, builder, says) says,
#define SINTER_OTHER(mode, formula, operands, parameters, says) says,
#define SINTER_INDEX(mode, says) says,
      SINTER_POINTWISE_MODES(SINTER_MODE, SINTER_MODE, SINTER_OTHER, SINTER_INDEX)
#undef SINTER_MODE
#undef SINTER_OTHER
#undef SINTER_INDEX
  };
  std::string text = "| mode | operands | attributes | OUT_0 |\n|---|---|---|---|\n";
  for (std::size_t i = 0; i < std::size(says); ++i) {
    const auto mode = static_cast<PointwiseMode>(i);
    std::vector<std::string> parameters;
    const PointwiseAttributes defaults;
    PointwiseAttributes::fields(defaults, [&](const char* field, const auto& member) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, double>)
        for (int p = 0; p < info(mode).params; ++p)
          if (&(defaults.*info(mode).param[p]) == &member) parameters.push_back(code(field));
    });
    if (mode == PointwiseMode::gen_index) parameters.push_back(code("axis"));
    text += fmt::format("| `{}` | {} | {} | {} |\n", name(mode), info(mode).arity,
                        joined(parameters), says[i]);
  }
  return text;
}

std::string range(const DataTypeInfo& t) {
  if (t.floating || t.precision <= 8)
    return fmt::format("{} to {}", number(t.lowest), number(t.largest));
  return fmt::format("-2^{0} to 2^{0} - 1", t.precision);
}

std::string data_types() {
  std::string text = "| type | bytes | kind | significant bits | range |\n|---|---|---|---|---|\n";
  for (const auto& t : kDataTypes) {
    if (t.name == "none") continue;
    const bool compute = t.name == "tf32";
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", t.name,
                        compute ? "" : std::to_string(t.bytes),
                        compute      ? "compute type only"
                        : t.floating ? "floating point"
                                     : "integer",
                        t.precision, range(t));
  }
  return text;
}

std::string rules() {
  std::string text = "| rule | says |\n|---|---|\n";
  for (const auto& r : kRules) text += fmt::format("| `{}` | {} |\n", r.id, r.says);
  return text;
}

std::string environment() {
  std::string text = "| variable | meaning |\n|---|---|\n";
  for (const auto& v : env_variables()) text += fmt::format("| `{}` | {} |\n", v.name, v.says);
  return text;
}

struct Section {
  const char *page, *title;
  std::string (*text)();
};
constexpr Section kSections[] = {
    {"include/sinter/GRAPH_JSON.md", "data types", data_types},
    {"include/sinter/GRAPH_JSON.md", "operations", operations},
    {"include/sinter/GRAPH_JSON.md", "attributes", attributes},
    {"include/sinter/GRAPH_JSON.md", "pointwise modes", pointwise_modes},
    {"include/sinter/GRAPH_JSON.md", "rules", rules},
    {"tools/README.md", "environment", environment},
};

std::string page_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("the reference pages say what the code says") {
  const char* approve = std::getenv("SINTER_APPROVE");
  for (const auto& section : kSections) {
    const std::string path = test::source_tree() + "/" + section.page;
    std::string page = page_text(path);
    INFO(section.page << ", section " << section.title << "; SINTER_APPROVE=1 rewrites it");
    const std::string begin = fmt::format("<!-- generated: {} -->\n", section.title);
    const std::size_t from = page.find(begin), end = page.find("<!-- end -->", from);
    REQUIRE(from != std::string::npos);
    REQUIRE(end != std::string::npos);
    const std::size_t first = from + begin.size();
    const std::string text = section.text();
    if (approve && std::string(approve) == "1") {
      page.replace(first, end - first, text);
      std::ofstream(path, std::ios::binary) << page;
    } else {
      CHECK(page.substr(first, end - first) == text);
    }
  }
}

TEST_CASE("the graph JSON page explains every operation") {
  const std::string page = page_text(test::source_tree() + "/include/sinter/GRAPH_JSON.md");
  const std::size_t explained = page.find("## What each operation computes");
  REQUIRE(explained != std::string::npos);
  each_operation([&](OpKind op) {
    std::string word(name(op));
    if (word.find("norm_backward") != std::string::npos) word = "..norm_backward";
    if (op == OpKind::pointwise) return;  // by mode
    INFO(word);
    CHECK(page.find(code(word), explained) != std::string::npos);
  });
}
