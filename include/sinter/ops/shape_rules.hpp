// What a shape rule sees of one node, and how it answers. Each rule reads the dims of the inputs,
// reports what does not fit, and sets the dims of the outputs.
#pragma once
#include <string>

#include "sinter/graph.hpp"

namespace sinter::detail {

class ShapeRules {
 public:
  ShapeRules(Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  template <class A>
  const A& attributes() const {
    return *std::get_if<A>(&node_.attributes);
  }

  int inputs() const { return static_cast<int>(node_.inputs.size()); }
  bool has(int port) const {
    return port < inputs() && node_.inputs[static_cast<std::size_t>(port)] != kNoTensor;
  }
  bool wants(int port) const { return node_.outputs[static_cast<std::size_t>(port)] != kNoTensor; }
  TensorId input(int port) const { return node_.inputs[static_cast<std::size_t>(port)]; }
  const Dims& dim(int port) const { return graph_[input(port)].dim; }
  DataType type(int port) const { return graph_.type(input(port)); }
  // Dims that the user declared for an output; empty when none.
  Dims declared(int port) const {
    const TensorId t = node_.outputs[static_cast<std::size_t>(port)];
    return t >= 0 && graph_[t].dim_known ? graph_[t].dim : Dims{};
  }

  void set(int port, const Dims& dim) { inferred_[port] = dim; }
  const Dims& inferred(int port) const { return inferred_[port]; }

  // Reports a broken rule; returns false so that a rule can `return fail(...)`.
  bool fail(Rule rule, std::string_view attribute, std::string_view seen, std::string_view allowed,
            std::string_view fix = {}) {
    Diagnostic d;
    d.rule = rule;
    d.node = graph_.label(node_);
    d.attribute = attribute;
    d.seen = seen;
    d.allowed = allowed;
    d.fix = fix;
    d.file = node_.where.file;
    d.line = node_.where.line;
    GraphEditor(graph_).report(std::move(d));
    return false;
  }
  std::string input_name(int port) const {
    const auto& op = info(node_.op);
    if (op.variadic) return text({"port IN_", port});
    return text({"port ", op.inputs[static_cast<std::size_t>(port)].name});
  }
  std::string output_name(int port) const {
    return text({"port ", info(node_.op).outputs[static_cast<std::size_t>(port)].name});
  }

  // ---- checks that several rules share; each reports and returns whether it holds
  bool one_element(int port) {
    if (!has(port) || count(dim(port)) == 1) return true;
    return fail(Rule::port_scalar, input_name(port), to_string(dim(port)), "dims that are all 1");
  }
  bool integer(int port) {
    if (!has(port) || type(port) == DataType::i32 || type(port) == DataType::i64) return true;
    return fail(Rule::port_type, input_name(port), name(type(port)), "i32 or i64",
                "declare the tensor with data_type i32");
  }
  bool same_dims(int port, const Dims& expected, Rule rule) {
    if (!has(port) || dim(port) == expected) return true;
    return fail(rule, input_name(port), to_string(dim(port)), to_string(expected));
  }
  // A dim list attribute that is absent or has `length` entries, none below `least`.
  bool dim_attribute(const char* attribute, const Dims& value, int length, std::int64_t least) {
    if (value.empty()) return true;
    if (value.size() != length)
      return fail(Rule::attribute_length, attribute, to_string(value), text({length, " entries"}));
    for (auto v : value)
      if (v < least || v > kMaxExtent)
        return fail(Rule::attribute_value, attribute, to_string(value),
                    text({least, " to 2^40 each"}));
    return true;
  }
  // A negative axis counts from the end.
  bool axis(const char* attribute, std::int64_t value, int rank, int& out) {
    const std::int64_t a = value < 0 ? value + rank : value;
    if (a < 0 || a >= rank)
      return fail(Rule::axis_range, attribute, std::to_string(value),
                  text({-rank, " to ", rank - 1}));
    out = static_cast<int>(a);
    return true;
  }

  // Where window_positions() is negative.
  bool window_too_large(Rule rule, int spatial, std::int64_t x, std::int64_t padding,
                        std::int64_t window, std::int64_t stride) {
    return fail(rule, text({"spatial dim ", spatial}),
                text({"a window of ", window, " (with its dilation) over an extent of ", x, " and ",
                      padding, " of padding"}),
                text({"a window of at most ", x + padding + stride,
                      ", with which the output has an extent of 0; at most ", x + padding,
                      " for one of 1"}));
  }

  static constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

 private:
  Graph& graph_;
  const Node& node_;
  Dims inferred_[kMostOutputs];
};

// Places where a window fits into a padded extent, by the usual formula
//   floor((x + padding - window) / stride) + 1.
// 0 is an output without elements, which is legal: the window is larger than the padded extent by
// at most the stride. Below 0 the formula gives no extent at all (-1): such a window is a mistake
// in the graph, and an empty result in its place would hide it. An empty image (x = 0) has no
// places for any window that its padding does not hold, and no mistake is seen in that.
constexpr std::int64_t window_positions(std::int64_t x, std::int64_t padding, std::int64_t window,
                                        std::int64_t stride) {
  const std::int64_t room = x + padding - window;
  if (room >= 0) return room / stride + 1;
  return x == 0 || -room <= stride ? 0 : -1;
}

// dim i of `d` as if its rank were `rank`, ones in front (NumPy's rule).
constexpr std::int64_t aligned(const Dims& d, int rank, int i) {
  const int j = i - (rank - d.size());
  return j < 0 ? 1 : d[j];
}

// The broadcast of two dim lists; false when they do not broadcast.
constexpr bool broadcast(const Dims& a, const Dims& b, Dims& out) {
  const int rank = a.size() > b.size() ? a.size() : b.size();
  out = Dims::filled(rank, 1);
  for (int i = 0; i < rank; ++i) {
    const auto x = aligned(a, rank, i), y = aligned(b, rank, i);
    if (x != y && x != 1 && y != 1) return false;
    out[i] = x == 1 ? y : x;
  }
  return true;
}
constexpr bool broadcasts_to(const Dims& from, const Dims& to) {
  Dims out;
  return from.size() <= to.size() && broadcast(from, to, out) && out == to;
}

}  // namespace sinter::detail

namespace sinter::shapes {

// What the rules are written in.
using detail::ShapeRules, detail::text, detail::aligned, detail::broadcast, detail::broadcasts_to,
    detail::window_positions;

}  // namespace sinter::shapes
