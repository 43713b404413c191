// The operation graph: tensors and nodes as plain data, built by appending. Typing, shape inference
// and validation happen as nodes are added and need no library; a mistake becomes a Diagnostic in
// the graph and a poisoned tensor, never an exception.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sinter/base/diagnostic.hpp"
#include "sinter/base/result.hpp"
#include "sinter/ops/op_table.hpp"

namespace sinter {

using TensorId = std::int32_t;  // position in Graph::tensors; kNoTensor where there is none
using NodeId = std::int32_t;
inline constexpr TensorId kNoTensor = -1;

struct TensorDesc {
  std::string name;  // unique once the graph is finished; empty until then where the user gave none
  Dims dim;
  bool dim_known = false;
  Dims stride;  // elements; empty: packed row-major
  DataType data_type = DataType::none;  // none: by role, see Graph::type
  bool output = false;                  // the caller sees it
  bool has_value = false;               // a pass-by-value scalar
  double value = 0;
  std::int64_t integer_value = 0;  // the same value, exact, for integer data types
  std::optional<std::int64_t> uid;
  std::int64_t alignment = 16;  // bytes
  NodeId producer = -1;
  bool read = false;  // some node reads it
  bool named = false;  // `name` was given, even if it is the empty string
  Where where;
};

struct Node {
  OpKind op{};
  Attributes attributes;
  std::string name;
  std::vector<TensorId> inputs, outputs;  // by port, in the order of OpInfo; kNoTensor where absent
  DataType compute = DataType::none;      // none: the graph's
  Where where;
};

struct GraphOptions {
  std::string name = "graph";
  DataType io = DataType::f32;
  DataType intermediate = DataType::f32;
  DataType compute = DataType::f32;
  bool internal = false;  // made by the library: splitting axes may give more than kMaxRank dims
};

struct TensorOptions {
  std::string name{};
  Dims dim{};
  Dims stride{};
  DataType data_type = DataType::none;
  std::optional<std::int64_t> uid{};
  std::int64_t alignment = 16;
};

struct NodeOptions {
  std::string name{};
  DataType compute = DataType::none;
};

class Graph;

// A handle to a tensor of a graph that outlives it. A default-made one is poisoned: operations on
// it give poisoned tensors and no further diagnostics.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Graph* graph, TensorId id) : graph_(graph), id_(id) {}
  explicit operator bool() const { return id_ != kNoTensor; }
  TensorId id() const { return id_; }
  Graph* graph() const { return graph_; }
  const TensorDesc& desc() const;
  Dims dim() const { return desc().dim; }  // a copy: descriptions move as the graph grows

 private:
  Graph* graph_ = nullptr;
  TensorId id_ = kNoTensor;
};

class Graph {
 public:
  Graph() : Graph(GraphOptions{}) {}
  explicit Graph(GraphOptions options) : options_(std::move(options)) {}
  // Tensors point at their graph, so it stays where it is.
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // ---- building
  Tensor tensor(TensorOptions options, Where where = Where::current());
  Tensor scalar(double value, DataType type = DataType::f32, std::string name = {},
                Where where = Where::current());
  Tensor scalar_integer(std::int64_t value, DataType type = DataType::i64, std::string name = {},
                        Where where = Where::current());
  // Marks a result as seen by the caller, under this name. Data type, stride, uid and alignment of
  // `options` replace what the tensor had, where given.
  Tensor output(Tensor t, std::string name, TensorOptions options = {},
                Where where = Where::current());

  // The general form that the named builders and the JSON reader use. Inputs and outputs are by
  // port; an output that is kNoTensor is not connected, kNewTensor asks for a fresh virtual tensor.
  // Returns the id of each output port; all poisoned where a rule is broken.
  static constexpr TensorId kNewTensor = -2;
  std::vector<TensorId> add(OpKind op, Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<TensorId> outputs, NodeOptions options, Where where);
  // Declares a tensor that a later add() produces (or an input); dims may be absent.
  TensorId declare(TensorDesc desc);

  // Checks and reports what concerns one tensor alone; `written` by a node.
  bool valid_tensor(const TensorDesc& t, bool written);

  // Names the unnamed, checks the whole, and returns every diagnostic so far. Building may go on.
  Diagnostics check();

  // ---- reading
  const GraphOptions& options() const { return options_; }
  const std::vector<TensorDesc>& tensors() const { return tensors_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const TensorDesc& operator[](TensorId id) const { return tensors_[static_cast<std::size_t>(id)]; }
  TensorDesc& edit(TensorId id) { return tensors_[static_cast<std::size_t>(id)]; }
  const Diagnostics& diagnostics() const { return diagnostics_; }

  // The stored data type: as declared or, where absent, io for what the caller sees and
  // intermediate for virtual tensors.
  DataType type(TensorId id) const {
    const auto& t = (*this)[id];
    if (t.data_type != DataType::none) return t.data_type;
    return t.producer >= 0 && !t.output ? options_.intermediate : options_.io;
  }
  Dims stride(TensorId id) const {
    const auto& t = (*this)[id];
    return t.stride.empty() ? packed_strides(t.dim) : t.stride;
  }
  bool is_input(TensorId id) const { return (*this)[id].producer < 0 && !(*this)[id].has_value; }
  bool is_virtual(TensorId id) const { return (*this)[id].producer >= 0 && !(*this)[id].output; }
  DataType compute(const Node& n) const {
    return n.compute == DataType::none ? options_.compute : n.compute;
  }
  // The type in which a node computes: f64 where an operand or the compute type needs it, else f32.
  // Positions and lengths (see is_index_port) are no operands of the arithmetic.
  DataType arithmetic(const Node& n) const {
    if (!fits_f32(compute(n))) return DataType::f64;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const TensorId t = n.inputs[i];
      if (t >= 0 && !fits_f32(type(t)) && !is_index_port(n.op, static_cast<int>(i)))
        return DataType::f64;
    }
    return DataType::f32;
  }
  std::string label(const Node& n) const;    // its name, or "op #index"
  std::string label(TensorId id) const;      // its name, or "#id"
  std::optional<TensorId> find(std::string_view tensor_name) const;

  void report(Diagnostic d) { diagnostics_.push_back(std::move(d)); }

 private:
  GraphOptions options_;
  std::vector<TensorDesc> tensors_;
  std::vector<Node> nodes_;
  Diagnostics diagnostics_;
};

inline const TensorDesc& Tensor::desc() const {
  static const TensorDesc poisoned;
  return graph_ && id_ >= 0 ? (*graph_)[id_] : poisoned;
}

}  // namespace sinter

#include "sinter/graph_impl.hpp"
