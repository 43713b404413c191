// A lowered graph that can be changed: nodes are replaced and added in any order, and finish()
// writes the live ones into a new graph in an order that can be executed.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lower/lower.hpp"
#include "planner/storage.hpp"

namespace sinter {

class Rewriter {
 public:
  explicit Rewriter(const Lowered& lowered);

  const Node& node(NodeId n) const { return nodes_[static_cast<std::size_t>(n)]; }
  NodeId nodes() const { return static_cast<NodeId>(nodes_.size()); }
  const TensorDesc& operator[](TensorId t) const { return tensors_[static_cast<std::size_t>(t)]; }
  DataType type(TensorId t) const { return (*this)[t].data_type; }
  NodeId producer(TensorId t) const { return (*this)[t].producer; }
  // The type in which partial results of a node that makes `y` lose nothing: f64 where it computes
  // so, else f32.
  DataType partial_type(const Node& n, TensorId y) const;
  bool is_virtual(TensorId t) const { return producer(t) >= 0 && !(*this)[t].output; }
  // The node that makes a tensor, where it is of this kind; otherwise null.
  const Node* made_by(TensorId t, OpKind op) const;
  // Nodes that read a tensor, each once. Nodes that no output depends on do not count.
  const std::vector<NodeId>& readers(TensorId t) const;
  bool live(NodeId n) const;
  // See location_of().
  std::optional<Location> location(TensorId t) const { return location_of(*this, t); }

  // A new virtual tensor like `t`, called after it.
  TensorId tensor_like(TensorId t, const Dims& dim, DataType type, std::string_view suffix);
  TensorId scalar(double value, DataType type);
  // Makes `y` by a node in place of the one that made it, if one did. `like`: whose place in the
  // user's graph, name and compute type the node takes.
  void make(TensorId y, OpKind op, Attributes attributes, std::vector<TensorId> inputs,
            NodeId like);
  // All that read `from` read `to`.
  void redirect(TensorId from, TensorId to);
  void set_stride(TensorId t, const Dims& stride) {
    tensors_[static_cast<std::size_t>(t)].stride = stride;
  }

  Lowered finish() const;

 private:
  void find_readers() const;
  std::string unused_name(const std::string& base) const;

  GraphOptions options_;
  std::vector<TensorDesc> tensors_;  // their data types are resolved
  std::vector<Node> nodes_;
  std::vector<NodeId> origin_;
  mutable bool known_ = false;  // what follows is that of the nodes as they are
  mutable std::vector<std::vector<NodeId>> readers_;
  mutable std::vector<char> live_;
};

inline const Node& node_of(const Rewriter& g, NodeId n) { return g.node(n); }

}  // namespace sinter
