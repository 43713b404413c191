// What an expansion sees of the composite node that it rewrites. Expansions are written with the
// builders of operations.hpp on a scratch graph; names, compute types and data types that they
// leave open are filled in afterwards (lower.cpp), so that they read like the formulas that they
// are.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lower/region.hpp"
#include "sinter/operations.hpp"

namespace sinter::lowering {

// What the driver remembers of a tensor of the scratch graph.
struct TensorOrigin {
  NodeId node = -1;           // node of the user's graph whose expansion made it
  TensorId user = kNoTensor;  // tensor of the user's graph that it stands for
};

// The scratch graph. A tensor made by an expansion carries its step ("max") as its name, or none.
struct Scratch {
  explicit Scratch(GraphOptions options) : graph(std::move(options)) {
    detail::GraphEditor(graph).allow_any_rank();
  }
  Graph graph;
  std::vector<TensorOrigin> tensors;  // by tensor of `graph`; shorter while an expansion runs
  std::vector<NodeId> nodes;          // by node of `graph`: node of the user's graph
  std::vector<TensorId> of_user;  // by tensor of the user's graph; kNoTensor where there is none
  std::vector<bool> needed;       // by tensor of the user's graph: an output depends on it
  std::map<TensorId, TensorId> in_memory;  // of the user's graph: passed by value; copies
  std::vector<Region> regions;  // what attention was expanded to; tensors and nodes of `graph`
  NodeId failed = -1;           // node of the user's graph that `graph` has a diagnostic of
};

class Expansion {
 public:
  Expansion(const Graph& user, NodeId id, Scratch& scratch)
      : user_(user),
        id_(id),
        node_(user.nodes()[static_cast<std::size_t>(id)]),
        scratch_(scratch),
        first_node_(static_cast<NodeId>(scratch.graph.nodes().size())),
        arithmetic_(user.arithmetic(node_)) {}

  const Node& node() const { return node_; }
  template <class A>
  const A& attributes() const {
    return *std::get_if<A>(&node_.attributes);
  }
  // The type of intermediate results: f32, or f64 where the node needs it.
  DataType arithmetic() const { return arithmetic_; }
  // The type of an operand of a tensor-core product, which may be the 16-bit io type.
  DataType operand_type() const {
    const DataType io = user_.options().io;
    return arithmetic_ == f32 && (io == f16 || io == bf16) ? io : arithmetic_;
  }

  bool has(int port) const { return node_.inputs[static_cast<std::size_t>(port)] != kNoTensor; }
  bool wants(int port) const {
    const TensorId t = node_.outputs[static_cast<std::size_t>(port)];
    return t != kNoTensor && scratch_.needed[static_cast<std::size_t>(t)];
  }
  // Poisoned where the port is not connected.
  Tensor input(int port) {
    const TensorId t = node_.inputs[static_cast<std::size_t>(port)];
    if (t == kNoTensor) return {};
    return {&scratch_.graph, scratch_.of_user[static_cast<std::size_t>(t)]};
  }
  // For an operation that reads its operand from memory, where a pass-by-value scalar has none.
  Tensor input_in_memory(int port) {
    const Tensor t = input(port);
    if (!t || !scratch_.graph[t.id()].has_value) return t;
    return typed(scratch_.graph.type(t.id()), named("in_memory", identity(t)));
  }
  DataType output_type(int port) const {
    return user_.type(node_.outputs[static_cast<std::size_t>(port)]);
  }
  Dims output_dim(int port) const {
    return user_[node_.outputs[static_cast<std::size_t>(port)]].dim;
  }

  // Calls an intermediate tensor "<label of the node>/<step>".
  Tensor named(std::string step, Tensor t) {
    if (t) detail::GraphEditor(scratch_.graph).edit(t.id()).name = std::move(step);
    return t;
  }
  // Gives an intermediate tensor a type of its own: it is rounded there.
  Tensor typed(DataType type, Tensor t) {
    if (t) detail::GraphEditor(scratch_.graph).edit(t.id()).data_type = type;
    return t;
  }
  Tensor mask(std::string step, Tensor t) { return typed(boolean, named(std::move(step), t)); }
  // A constant of this type. A plain number among the operands has the type of the arithmetic.
  Tensor scalar(double value, DataType type) {
    return scratch_.graph.scalar(value, type, "constant");
  }
  // `value` in every element of a tensor of these dims.
  Tensor filled(double value, const Dims& dim);
  // The index along `axis` in a tensor of these dims and this type, made of nothing.
  Tensor index(const Dims& dim, int axis, DataType type);
  Graph& graph() { return scratch_.graph; }

  // `t` becomes what the user's node gave at this output port.
  void result(int port, Tensor t) {
    if (wants(port) && t) results_.emplace_back(port, t.id());
  }
  // Binds the results. Called once, when all nodes are made.
  void finish();

 private:
  Tensor constant_pointwise(PointwiseAttributes a, double value, const Dims& dim, DataType type);

  const Graph& user_;
  NodeId id_;
  const Node& node_;
  Scratch& scratch_;
  NodeId first_node_;
  DataType arithmetic_;
  std::vector<std::pair<int, TensorId>> results_;
};

// The type of a tensor of the scratch graph. What an expansion leaves open is the type of the
// arithmetic, and for data movement the type of what is moved.
DataType resolved_type(const Graph& scratch, TensorId t, DataType arithmetic);

// ---- helpers that several families share

// x with the reduced axes of `mode` given by the kept extents.
inline Tensor sum(Tensor x, const Dims& kept) { return reduction(x, ReductionMode::add, kept); }
inline Tensor average(Tensor x, const Dims& kept) { return reduction(x, ReductionMode::avg, kept); }

// axis counted from the front.
inline int positive_axis(std::int64_t axis, const Dims& dim) {
  return static_cast<int>(axis < 0 ? axis + dim.size() : axis);
}

// ---- the expansions that op_table.hpp names; some serve several operations

#define SINTER_COMPOSITE(name, inputs, outputs, attributes, rule, expansion) \
  void expansion(Expansion& e);
#define SINTER_OTHER(...)
SINTER_OPERATIONS(SINTER_OTHER, SINTER_COMPOSITE, SINTER_OTHER, SINTER_OTHER)
#undef SINTER_COMPOSITE
#undef SINTER_OTHER

}  // namespace sinter::lowering
