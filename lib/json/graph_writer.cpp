// Canonical graph JSON: a fixed order of keys, sorted tensors, nothing that is a default. The same
// graph gives the same bytes however it was built, so the text serves as a key and can be compared.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "json/graph_json.hpp"
#include "reference/element.hpp"
#include "sinter/json.hpp"

namespace sinter::json {
namespace {

std::string text_of(bool v) { return v ? "true" : "false"; }
std::string text_of(std::int64_t v) { return std::to_string(v); }
std::string text_of(double v) { return number(v); }
std::string text_of(const Dims& v) { return to_string(v); }
template <class E>
requires(std::size(EnumNames<E>::names) > 0) std::string text_of(E v) {
  return json_string(name(v));
}
template <class T>
std::string text_of(const std::optional<T>& v) {
  return text_of(*v);
}

// The members of one object on one line.
class ObjectLine {
 public:
  void add(std::string_view key, std::string_view text) {
    line_ += fmt::format("{}{}: {}", line_.empty() ? "" : ", ", json_string(key), text);
  }
  std::string text() const { return "{" + line_ + "}"; }

 private:
  std::string line_;
};

std::string scalar_text(DataType type, const TensorDesc& t) {
  if (type == DataType::i64) return std::to_string(t.integer_value);
  const double value = round_to(type, t.value);
  // The shortest decimal that rounds to the same f32 reads better than the double's.
  const auto single = static_cast<float>(value);
  if (type == DataType::f32 && single == value && value != 0 && value - value == 0)
    return fmt::format("{}", single);
  return number(value);
}

std::string tensor_text(const Graph& g, TensorId id) {
  const TensorDesc& t = g[id];
  const DataType type = g.type(id);
  ObjectLine line;
  if (!t.has_value || t.dim != Dims{1}) line.add("dim", text_of(t.dim));
  if (!t.stride.empty() && t.stride != packed_strides(t.dim)) line.add("stride", text_of(t.stride));
  if (detail::GraphEditor::states_type(g, id)) line.add("data_type", json_string(name(type)));
  if (t.output) line.add("output", "true");
  if (g.is_known(id)) line.add("value", scalar_text(type, t));
  if (t.bound_value) line.add("pass_by_value", "true");
  if (t.constant) line.add("constant", "true");
  if (t.alias >= 0) line.add("alias", json_string(g[t.alias].name));
  if (t.uid) line.add("uid", text_of(*t.uid));
  if (t.alignment != 16) line.add("alignment", text_of(t.alignment));
  return line.text();
}

template <class A>
void add_attributes(ObjectLine& line, const A& attributes) {
  const A defaults{};
  document_fields(attributes, [&](const char* field, const auto& member) {
    bool usual = false;
    A::fields(defaults, [&](const char* other, const auto& value) {
      if constexpr (std::is_same_v<decltype(value), decltype(member)>)
        if (std::string_view(other) == field) usual = value == member;
    });
    if constexpr (std::is_same_v<A, PointwiseAttributes>)
      usual &= std::string_view(field) != "mode";
    if (!usual) line.add(field, text_of(member));
  });
}

std::string ports_text(const Graph& g, const Node& n, bool in) {
  const auto& row = info(n.op);
  const auto& ids = in ? n.inputs : n.outputs;
  ObjectLine line;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= 0)
      line.add(in && row.variadic ? "IN_" + std::to_string(i)
                                  : std::string((in ? row.inputs : row.outputs)[i].name),
               json_string(g[ids[i]].name));
  return line.text();
}

std::string node_text(const Graph& g, const Node& n) {
  ObjectLine line;
  line.add("op", json_string(name(n.op)));
  if (!n.name.empty()) line.add("name", json_string(n.name));
  if (g.compute(n) != g.options().compute)
    line.add("compute_data_type", json_string(name(n.compute)));
  std::visit([&](const auto& attributes) { add_attributes(line, attributes); }, n.attributes);
  line.add("inputs", ports_text(g, n, true));
  line.add("outputs", ports_text(g, n, false));
  return line.text();
}

std::string graph_text(const Graph& g) {
  const auto& options = g.options();
  std::string s = "{\n";
  s += fmt::format("  \"format\": {}, \"version\": {}, \"name\": {},\n", json_string(kGraphFormat),
                   kGraphVersion, json_string(options.name));
  s += fmt::format(
      "  \"io_data_type\": {}, \"intermediate_data_type\": {}, \"compute_data_type\": {},\n",
      json_string(name(options.io)), json_string(name(options.intermediate)),
      json_string(name(options.compute)));

  std::vector<TensorId> order(g.tensors().size());
  std::iota(order.begin(), order.end(), TensorId{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](TensorId a, TensorId b) { return g[a].name < g[b].name; });
  s += "  \"tensors\": {";
  for (std::size_t i = 0; i < order.size(); ++i)
    s += fmt::format("{}\n    {}: {}", i ? "," : "", json_string(g[order[i]].name),
                     tensor_text(g, order[i]));
  s += "\n  },\n  \"nodes\": [";
  for (std::size_t i = 0; i < g.nodes().size(); ++i)
    s += fmt::format("{}\n    {}", i ? "," : "", node_text(g, g.nodes()[i]));
  return s + "\n  ]\n}\n";
}

}  // namespace
}  // namespace sinter::json

namespace sinter {

std::string graph_to_json(Graph& graph) {
  (void)graph.check();  // names the unnamed
  return json::graph_text(graph);
}

}  // namespace sinter
