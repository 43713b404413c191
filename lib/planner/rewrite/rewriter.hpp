// A lowered graph that can be changed: nodes are replaced and added in any order, and finish()
// writes the live ones into a new graph in an order that can be executed. Nodes made in place of
// those of an attention region belong to it; a region whose outputs are made anew, or that reads or
// is read across its border afterwards, is none any more, and its nodes are like all others.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lower/lower.hpp"
#include "planner/memory/storage.hpp"

namespace sinter {

// What tensors are called that hold the elements of another one: its name and one of these, which
// explanations take off again.
namespace suffix {
inline constexpr std::string_view shaped = "_shaped", transposed = "_transposed", again = "_again";
inline constexpr std::string_view of_same_elements[] = {shaped, transposed, again};
}  // namespace suffix

class Rewriter {
 public:
  explicit Rewriter(const Lowered& lowered);

  const GraphOptions& options() const { return options_; }
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
  // Whether the node is part of an attention region.
  bool in_region(NodeId n) const { return region_[static_cast<std::size_t>(n)] >= 0; }
  const Region* region_of(NodeId n) const;  // null: of none
  // Nodes of none become one, whose node of the user's graph is that of the first.
  void add_region(Region region);
  // The node's region reads `to` at a port of its operation, as its nodes do already.
  void read_by_region(NodeId n, int port, TensorId to);
  // Where a tensor's elements lie, if what only moves data is done by strides; else nullopt.
  std::optional<Location> location(TensorId t) const;

  // A new virtual tensor like `t`, called after it.
  TensorId tensor_like(TensorId t, const Dims& dim, DataType type, std::string_view suffix);
  TensorId scalar(double value, DataType type, int rank = 1);
  // Makes `y` by a node in place of the one that made it, if one did. `like`: whose place in the
  // user's graph, name and compute type the node takes.
  void make(TensorId y, OpKind op, Attributes attributes, std::vector<TensorId> inputs,
            NodeId like);
  // A node reads another tensor at one of its ports; its result is the same.
  void set_input(NodeId n, int port, TensorId to);
  // All that read `from` read `to`.
  void redirect(TensorId from, TensorId to);
  void set_stride(TensorId t, const Dims& stride);

  Lowered finish() const;

 private:
  bool needed(TensorId t) const;
  void find_readers();
  void add_use(NodeId producer);
  void drop_use(NodeId producer);
  void forget_location(TensorId t);
  TensorId add_tensor(TensorDesc d, const std::string& name);
  bool whole(int region, const std::vector<NodeId>& members) const;

  GraphOptions options_;
  std::vector<TensorDesc> tensors_;  // their data types are resolved
  std::vector<Node> nodes_;
  std::vector<NodeId> origin_;
  std::vector<Region> regions_;
  std::vector<int> region_;                                 // by node: of regions_, or -1
  std::unordered_map<TensorId, std::vector<int>> read_by_;  // by tensor: regions with this input
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, int> last_suffix_;  // of a name that was asked for again

  // Kept up to date by make() and redirect(), so that a rewrite costs no walk over the graph.
  std::vector<std::vector<NodeId>> reads_;    // by tensor: nodes that name it, live or not
  std::vector<std::vector<NodeId>> readers_;  // by tensor: the live ones, sorted
  std::vector<int> uses_;  // by node: of its results, those that are outputs or have live readers

  // By tensor, found when it is asked for. A view's is known only while its source's is.
  struct Placed {
    bool known = false;
    std::optional<Location> at;
  };
  mutable std::vector<Placed> placed_;
};

inline const Node& node_of(const Rewriter& g, NodeId n) { return g.node(n); }
inline std::optional<Location> location_of(const Rewriter& g, TensorId t) { return g.location(t); }

}  // namespace sinter
