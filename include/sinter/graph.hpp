// The operation graph: tensors and nodes as plain data, built by appending. Typing, shape inference
// and validation happen as nodes are added and need no library; a mistake becomes a Diagnostic in
// the graph and a poisoned tensor, never an exception.
#pragma once
#include <initializer_list>
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
inline constexpr TensorId kNewTensor = -2;      // for an output of a node: a tensor yet to be made
inline constexpr TensorId kForeignTensor = -3;  // of another graph: nodes and check() refuse it

struct TensorDesc {
  std::string name;  // unique once the graph is finished; empty until then where the user gave none
  Dims dim;
  bool dim_known = false;
  Dims stride;                          // elements; empty: packed row-major
  DataType data_type = DataType::none;  // none: by role, see Graph::type
  bool output = false;                  // the caller sees it
  bool has_value = false;               // a pass-by-value scalar, never in memory
  bool bound_value = false;    // its value comes with each execute(); `value` is NaN, so that
                               // nothing in a plan takes it for a known one
  bool constant = false;       // an input that stays the same from call to call, see prepare()
  TensorId alias = kNoTensor;  // an output: the input whose memory it may be given
  double value = 0;
  std::int64_t integer_value = 0;  // the same value, exact, for integer data types
  std::optional<std::int64_t> uid;
  std::int64_t alignment = 16;  // bytes
  NodeId producer = -1;
  bool read = false;   // some node reads it
  bool named = false;  // `name` was given, even if it is the empty string
  Where where;

  void bind_value() {
    has_value = bound_value = true;
    value = __builtin_nan("");
    integer_value = 0;
  }
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
  DataType io = DataType::f32;            // of inputs and outputs that state none
  DataType intermediate = DataType::f32;  // of virtual tensors that state none
  DataType compute = DataType::f32;  // of the arithmetic; tf32 is legal here and in NodeOptions
};

class Graph;
namespace detail {
class GraphEditor;
}

// A handle to a tensor of a graph that outlives it. A default-made one is poisoned: operations on
// it give poisoned tensors and no further diagnostics.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Graph* graph, TensorId id) : graph_(graph), id_(id) {}
  explicit operator bool() const { return id_ != kNoTensor; }
  bool known() const;  // its graph has a tensor of this id
  TensorId id() const { return id_; }
  Graph* graph() const { return graph_; }
  const TensorDesc& desc() const;
  Dims dim() const { return desc().dim; }  // a copy: descriptions move as the graph grows

  // Names the tensor and, where that has no name yet, the operation that makes it. Names stand in
  // messages, in `sinter explain` and in the names of kernels.
  Tensor named(std::string name) const;
  // The data type it is stored in and rounded to.
  Tensor type(DataType type, Where where = Where::current()) const;
  // A pass-by-value scalar with so many dims, all 1: lengths of attention have four.
  Tensor of_rank(int rank, Where where = Where::current()) const;

  // For builders: a result that its operation was not asked for; `option` says what would ask for
  // it.
  static Tensor absent(Graph* graph, const char* option) {
    Tensor t(graph, kNoTensor);
    t.option_ = option;
    return t;
  }
  const char* missing_option() const { return option_; }  // null but for absent()

 private:
  Graph* graph_ = nullptr;
  TensorId id_ = kNoTensor;
  const char* option_ = nullptr;
};

// Extents, packed row-major or with strides of their own.
struct Shape {
  Dims dim, stride{};
  Shape(std::initializer_list<std::int64_t> d) : dim(d) {}
  Shape(const Dims& d, const Dims& s = {}) : dim(d), stride(s) {}
};
// Channels last: dims are named in the order N, C, spatial, and C lies innermost.
inline Shape nhwc(const Dims& dim) {
  if (dim.size() < 3) return dim;
  Dims order{dim[0]};
  for (int i = 2; i < dim.size(); ++i) order.push_back(dim[i]);
  order.push_back(dim[1]);
  const Dims packed = packed_strides(order);
  Dims stride{packed[0], 1};
  for (int i = 1; i + 1 < packed.size(); ++i) stride.push_back(packed[i]);
  return {dim, stride};
}
// A matrix, or a batch of them, in column-major order: the transpose of a packed one.
inline Shape transposed(const Dims& dim) {
  if (dim.size() < 2) return dim;
  Dims stride = packed_strides(dim);
  stride[dim.size() - 2] = 1;
  stride.back() = dim[dim.size() - 2] > 0 ? dim[dim.size() - 2] : 1;
  return {dim, stride};
}

struct TensorOptions {
  std::string name{};
  Dims dim{};
  Dims stride{};  // elements; empty: packed row-major
  DataType data_type = DataType::none;
  std::optional<std::int64_t> uid{};  // to bind it by, see Uid
  std::int64_t alignment = 16;        // bytes, of the pointer that will be bound
  bool constant = false;  // an input that stays the same from call to call, see prepare()
  Tensor alias{};         // of an output: an input whose memory it may be given, see GRAPH_JSON.md
};

struct NodeOptions {
  std::string name{};
  DataType compute = DataType::none;
};

class Graph {
 public:
  Graph() : Graph(GraphOptions{}) {}
  explicit Graph(GraphOptions options) : options_(std::move(options)) {}
  // Tensors point at their graph, so it stays where it is.
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // ---- building
  // An input. Of no data type: the graph's io type.
  Tensor tensor(TensorOptions options, Where where = Where::current());
  Tensor tensor(std::string name, const Shape& shape, DataType type = DataType::none,
                Where where = Where::current());
  // An input of one element whose value is given at each execute(): {"lr", 0.01f}.
  Tensor scalar_input(std::string name, DataType type = DataType::f32,
                      Where where = Where::current());
  // A pass-by-value scalar whose value is part of the graph.
  Tensor scalar(double value, DataType type = DataType::f32, std::string name = {},
                Where where = Where::current());
  Tensor scalar_integer(std::int64_t value, DataType type = DataType::i64, std::string name = {},
                        Where where = Where::current());
  // Marks a result as seen by the caller, under this name. Data type, stride, uid and alignment of
  // `options` replace what the tensor had, where given.
  Tensor output(Tensor t, std::string name, TensorOptions options = {},
                Where where = Where::current());

  // Names the unnamed, checks the whole, and returns every diagnostic so far. Building may go on.
  Diagnostics check();
  // What is legal and yet likely a mistake: inputs that no node reads. Of a graph without errors.
  Diagnostics notes() const;

  // ---- reading
  const GraphOptions& options() const { return options_; }
  const std::vector<TensorDesc>& tensors() const { return tensors_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const TensorDesc& operator[](TensorId id) const { return tensors_[static_cast<std::size_t>(id)]; }
  const Diagnostics& diagnostics() const { return diagnostics_; }

  // The stored data type: as declared or, where absent, that of the port which produces it, or else
  // io for what the caller sees and intermediate for virtual tensors.
  DataType type(TensorId id) const {
    const auto& t = (*this)[id];
    if (t.data_type != DataType::none) return t.data_type;
    const DataType type = port_type(id);
    return type != DataType::none ? type : usual_type(id);
  }
  Dims stride(TensorId id) const {
    const auto& t = (*this)[id];
    return t.stride.empty() ? packed_strides(t.dim) : t.stride;
  }
  bool is_input(TensorId id) const { return (*this)[id].producer < 0 && !is_known(id); }
  // A pass-by-value scalar whose value the graph holds.
  bool is_known(TensorId id) const { return (*this)[id].has_value && !(*this)[id].bound_value; }
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
  std::string label(const Node& n) const;  // its name, or "op #index"
  std::string label(TensorId id) const;    // its name, or "#id"
  std::optional<TensorId> find(std::string_view tensor_name) const;

 private:
  friend class Tensor;
  friend class detail::GraphEditor;
  // See detail::GraphEditor.
  std::vector<TensorId> add(OpKind op, Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<TensorId> outputs, NodeOptions options, Where where);
  TensorId declare(TensorDesc desc);
  TensorDesc& edit(TensorId id) { return tensors_[static_cast<std::size_t>(id)]; }
  void report(Diagnostic d) { diagnostics_.push_back(std::move(d)); }
  bool valid_tensor(const TensorDesc& t, bool written);
  DataType usual_type(TensorId id) const {
    return is_virtual(id) ? options_.intermediate : options_.io;
  }
  // What the port that produces a tensor makes it where none is declared; none: the usual type,
  // which is kept where it is f64 and so holds more.
  DataType port_type(TensorId id) const {
    const NodeId producer = (*this)[id].producer;
    if (producer < 0 || producer >= static_cast<NodeId>(nodes_.size())) return DataType::none;
    if (usual_type(id) == DataType::f64) return DataType::none;
    const Node& n = nodes_[static_cast<std::size_t>(producer)];
    for (std::size_t i = 0; i < n.outputs.size(); ++i)
      if (n.outputs[i] == id) return info(n.op).outputs[i].type;
    return DataType::none;
  }

  Node& edit_node(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  // Reports a type that nodes which read the tensor were not checked with.
  bool keeps_kind(TensorId t, DataType type, const Where& where);
  static Diagnostic about(Rule rule, const TensorDesc& t);
  void check_alias(const TensorDesc& t, const std::vector<int>& aliases, Diagnostics& all) const;

  GraphOptions options_;
  int max_rank_ = kMaxRank;
  std::vector<TensorDesc> tensors_;
  std::vector<Node> nodes_;
  Diagnostics diagnostics_;
};

inline bool Tensor::known() const {
  return graph_ && id_ >= 0 && static_cast<std::size_t>(id_) < graph_->tensors().size();
}

inline const TensorDesc& Tensor::desc() const {
  static const TensorDesc poisoned;
  return known() ? (*graph_)[id_] : poisoned;
}

namespace detail {

// Nodes and tensors of a graph from data: what the builders of operations.hpp, readers of documents
// and passes over graphs use. Programs that build a graph with the builders need none of it.
class GraphEditor {
 public:
  explicit GraphEditor(Graph& graph) : graph_(graph) {}

  // The general form of a node. Inputs and outputs are by port; an output that is kNoTensor is not
  // connected, kNewTensor asks for a fresh virtual tensor. Returns the id of each output port; all
  // poisoned where a rule is broken.
  std::vector<TensorId> add(OpKind op, Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<TensorId> outputs, NodeOptions options, Where where) const {
    return graph_.add(op, std::move(attributes), std::move(inputs), std::move(outputs),
                      std::move(options), where);
  }
  // Declares a tensor that a later add() produces (or an input); dims may be absent.
  TensorId declare(TensorDesc desc) const { return graph_.declare(std::move(desc)); }
  TensorDesc& edit(TensorId id) const { return graph_.edit(id); }
  void report(Diagnostic d) const { graph_.report(std::move(d)); }
  // Checks and reports what concerns one tensor alone; `written` by a node.
  bool valid_tensor(const TensorDesc& t, bool written) const {
    return graph_.valid_tensor(t, written);
  }
  // For graphs that the library makes, where splitting axes may give more than kMaxRank dims.
  void allow_any_rank() const { graph_.max_rank_ = Dims::kCapacity - 1; }

  // Whether a tensor has another type than it would have if it stated none.
  static bool states_type(const Graph& graph, TensorId id) {
    const DataType type = graph.type(id), of_port = graph.port_type(id);
    return type != graph.usual_type(id) || (of_port != DataType::none && type != of_port);
  }

 private:
  Graph& graph_;
};

}  // namespace detail

}  // namespace sinter

#include "sinter/graph_impl.hpp"
