// What the builders of operations.hpp are made of: an operand, which is a tensor or a number, and
// the functions that append a node to the operands' graph.
#pragma once
#include <initializer_list>
#include <type_traits>

#include "sinter/graph.hpp"

namespace sinter {

// A tensor or a number, with the place of the user's call: implicit conversion happens there.
struct Operand {
  Operand(Where w = Where::current()) : where(w) {}
  Operand(Tensor t, Where w = Where::current()) : tensor(t), where(w) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Operand(Number v, Where w = Where::current())
      : value(static_cast<double>(v)), is_value(true), where(w) {
    if constexpr (std::is_integral_v<Number>) integer = static_cast<std::int64_t>(v);
  }
  // What an operation with several results gives: its first one.
  template <class Results>
  requires(std::is_class_v<Results> && !std::is_same_v<Results, Tensor> &&
           !std::is_same_v<Results, Operand> && std::is_convertible_v<Results, Tensor>)
      Operand(const Results& r, Where w = Where::current())
      : Operand(static_cast<Tensor>(r), w) {}
  explicit operator bool() const { return is_value || tensor; }
  Tensor tensor;
  double value = 0;
  std::int64_t integer = 0;  // the same, where the number was an integer
  bool is_value = false;
  Where where;
};

namespace detail {

inline Graph* graph_of(std::initializer_list<Operand> operands) {
  for (const auto& o : operands)
    if (o.tensor.graph()) return o.tensor.graph();
  return nullptr;
}

// An operand that its operation was not asked for.
inline void report_absent(Graph& g, OpKind op, int port, const Operand& o) {
  Diagnostic d{};
  d.rule = Rule::port_missing;
  d.node = text({name(op), " #", g.nodes().size()});
  d.attribute = info(op).variadic
                    ? text({"port IN_", port})
                    : text({"port ", info(op).inputs[static_cast<std::size_t>(port)].name});
  d.seen = "a result that its operation was not asked for";
  d.fix = text({o.tensor.missing_option(), " there"});
  d.file = o.where.file;
  d.line = o.where.line;
  GraphEditor(g).report(std::move(d));
}

// Adds a node whose operands are all present; an operand that is poisoned poisons the results.
// Outputs marked true are new virtual tensors.
inline std::vector<Tensor> add_any_node(OpKind op, Attributes attributes,
                                        std::initializer_list<Operand> operands,
                                        std::vector<TensorId> outputs, NodeOptions options = {},
                                        unsigned optional_from = 64) {
  std::vector<Tensor> results(outputs.size());
  Graph* g = graph_of(operands);
  if (!g) return results;
  std::vector<TensorId> inputs;
  unsigned i = 0;
  Where where;
  for (const auto& o : operands) {
    if (i == 0) where = o.where;
    if (o.is_value && (op == OpKind::rng || is_index_port(op, static_cast<int>(i)))) {
      inputs.push_back(g->scalar_integer(o.integer, DataType::i64, {}, o.where).id());
    } else if (o.is_value) {
      inputs.push_back(g->scalar(o.value, DataType::f32, {}, o.where).id());
    } else if (o.tensor.missing_option()) {
      report_absent(*g, op, static_cast<int>(i), o);
      return results;
    } else if (!o.tensor) {
      // What a reported mistake poisoned stays silent; add() reports a port that was forgotten.
      if (i < optional_from && !g->diagnostics().empty()) return results;
      inputs.push_back(kNoTensor);
    } else if (o.tensor.graph() != g) {
      inputs.push_back(kForeignTensor);
    } else {
      inputs.push_back(o.tensor.id());
    }
    ++i;
  }
  const auto ids = GraphEditor(*g).add(op, std::move(attributes), std::move(inputs),
                                       std::move(outputs), std::move(options), where);
  for (std::size_t j = 0; j < ids.size() && j < results.size(); ++j)
    if (ids[j] >= 0) results[j] = Tensor(g, ids[j]);
  return results;
}

// The same from an attribute struct. An overload of the above would have the compiler look for
// conversions from every struct to every other, which takes it longer than all the rest here.
template <class A>
std::vector<Tensor> add_node(OpKind op, const A& attributes,
                             std::initializer_list<Operand> operands, std::vector<TensorId> outputs,
                             NodeOptions options = {}, unsigned optional_from = 64) {
  Attributes any;
  any.emplace<A>(attributes);
  return add_any_node(op, any, operands, std::move(outputs), std::move(options), optional_from);
}

// Declares a result whose dims the user gives; poisoned operands give kNoTensor.
inline TensorId declare(std::initializer_list<Operand> operands, const Dims& dim, Where where) {
  Graph* g = graph_of(operands);
  if (!g) return kNoTensor;
  TensorDesc t;
  t.dim = dim;
  t.dim_known = !dim.empty();
  t.where = where;
  return GraphEditor(*g).declare(t);
}
inline TensorId wanted(bool want) { return want ? kNewTensor : kNoTensor; }
// A result that was asked for, poisoned or not; else one that says what would have asked for it.
inline Tensor or_absent(const std::vector<Tensor>& results, std::size_t i, bool asked,
                        const char* option) {
  return asked ? results[i] : Tensor::absent(results[0].graph(), option);
}

}  // namespace detail

}  // namespace sinter
