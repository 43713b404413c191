// Cuts a graph where what is computed from constants alone meets the rest. A result of constants is
// kept from call to call where it is no larger than the constants it is made from: weights that are
// folded, transposed or quantised. What is larger (dequantised or broadcast weights) is cheaper to
// compute again, inside the kernel that reads it, than to read.
#include <algorithm>
#include <set>

#include "sinter/compile.hpp"

namespace sinter {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

// Whether kernels may round this operand to the graph's 16-bit type anyway (GRAPH_JSON.md, "Data
// types"): of a product.
bool is_product_operand(const Node& n, std::size_t port) {
  switch (n.op) {
    case OpKind::matmul:
    case OpKind::conv_fprop:
    case OpKind::conv_dgrad:
    case OpKind::conv_wgrad:
    case OpKind::moe_grouped_matmul:
      return port < 2;
    case OpKind::sdpa:
      return port < 3;
    default:
      return false;
  }
}

class Cut {
 public:
  explicit Cut(const Graph& g) : g_(g), constant_(g.nodes().size()), from_(g.tensors().size()) {}

  PreparedGraph make() {
    // Until no result that is kept is too large; each round leaves a node more to the rest.
    do mark();
    while (leave_large() || leave_last());
    GraphOptions options = g_.options();
    options.name += "/constants";
    PreparedGraph result{Shared<Graph>::make(std::move(options)),
                         Shared<Graph>::make(g_.options())};
    copy(*result.constants, true);
    copy(*result.rest, false);
    return result;
  }

 private:
  enum class From : std::uint8_t { calls, values, constants };  // what a tensor follows from

  void mark() {
    for (std::size_t t = 0; t < from_.size(); ++t)
      from_[t] = g_.is_known(static_cast<TensorId>(t)) ? From::values
                 : g_.tensors()[t].constant            ? From::constants
                                                       : From::calls;
    for (std::size_t n = 0; n < g_.nodes().size(); ++n) {
      const Node& node = g_.nodes()[n];
      From from = From::values;
      for (TensorId t : node.inputs) {
        if (t < 0) continue;
        if (from_[at(t)] == From::calls) from = From::calls;
        if (from != From::calls) from = std::max(from, from_[at(t)]);
      }
      if (left_.contains(static_cast<NodeId>(n))) from = From::calls;
      constant_[n] = from == From::constants;
      for (TensorId t : node.outputs)
        if (t >= 0) from_[at(t)] = from;
    }
  }

  // Results of constants that the rest reads, or the caller.
  std::vector<TensorId> kept() const {
    std::set<TensorId> kept;
    for (std::size_t n = 0; n < g_.nodes().size(); ++n)
      for (TensorId t : g_.nodes()[n].inputs)
        if (t >= 0 && !constant_[n] && computed(t)) kept.insert(t);
    for (std::size_t t = 0; t < from_.size(); ++t)
      if (g_.tensors()[t].output && computed(static_cast<TensorId>(t)))
        kept.insert(static_cast<TensorId>(t));
    return {kept.begin(), kept.end()};
  }
  bool computed(TensorId t) const { return g_[t].producer >= 0 && from_[at(t)] == From::constants; }

  bool leave_large() {
    const std::size_t before = left_.size();
    for (TensorId t : kept()) {
      std::set<TensorId> sources;
      collect(t, sources);
      std::int64_t bytes = 0;
      for (TensorId s : sources) bytes += bytes_of(s, g_.type(s));
      if (!g_[t].output && bytes_of(t, kept_type(t)) > bytes) left_.insert(g_[t].producer);
    }
    return left_.size() > before;
  }
  // The rest has a result: where all follow from constants, the nodes that make them are left.
  bool leave_last() {
    const auto outputs = [&](const auto& visit) {
      for (std::size_t t = 0; t < from_.size(); ++t)
        if (g_.tensors()[t].output) visit(static_cast<TensorId>(t));
    };
    bool any = false;
    outputs([&](TensorId t) { any |= !constant_[at(g_[t].producer)]; });
    if (!any) outputs([&](TensorId t) { left_.insert(g_[t].producer); });
    return !any;
  }
  std::int64_t bytes_of(TensorId t, DataType type) const {
    return count(g_[t].dim) * info(type).bytes;
  }
  void collect(TensorId t, std::set<TensorId>& sources) const {
    if (g_[t].producer < 0) {
      if (from_[at(t)] == From::constants) sources.insert(t);
      return;
    }
    for (TensorId in : g_.nodes()[at(g_[t].producer)].inputs)
      if (in >= 0) collect(in, sources);
  }

  // What products of the calls alone read may be rounded as their kernels would.
  DataType kept_type(TensorId t) const {
    const DataType io = g_.options().io;
    if (g_[t].output || g_.type(t) != DataType::f32 || info(io).bytes != 2 || !is_floating(io))
      return g_.type(t);
    for (std::size_t n = 0; n < g_.nodes().size(); ++n) {
      const Node& node = g_.nodes()[n];
      for (std::size_t port = 0; port < node.inputs.size(); ++port)
        if (node.inputs[port] == t && !constant_[n] && !is_product_operand(node, port))
          return DataType::f32;
    }
    return io;
  }

  // Of what is rounded for the calls, the graph of the constants computes others unrounded.
  bool kept_beside(TensorId t) const {
    if (kept_type(t) == g_.type(t)) return false;
    for (std::size_t n = 0; n < g_.nodes().size(); ++n)
      if (constant_[n] && std::ranges::count(g_.nodes()[n].inputs, t) > 0) return true;
    return false;
  }

  // The tensor as another graph begins with it.
  TensorDesc bare(TensorId t) const {
    TensorDesc d = g_[t];
    d.producer = -1;
    d.read = false;
    d.alias = kNoTensor;
    return d;
  }

  void copy(Graph& to, bool constants) const {
    const detail::GraphEditor editor(to);
    std::vector<TensorId> ids(from_.size(), kNoTensor);
    const std::vector<TensorId> kept_tensors = kept();
    const std::set<TensorId> kept(kept_tensors.begin(), kept_tensors.end());
    const auto tensor = [&](TensorId t) {
      if (t < 0 || ids[at(t)] != kNoTensor) return t < 0 ? kNoTensor : ids[at(t)];
      TensorDesc d = bare(t);
      if (constants && kept.contains(t) && kept_beside(t)) {
        d.name = {};
        d.named = false;
        d.uid = {};
        d.data_type = g_.type(t);
      } else if (kept.contains(t)) {
        d.data_type = kept_type(t);
        d.output = constants;
        d.constant = !constants;
      }
      return ids[at(t)] = editor.declare(std::move(d));
    };
    for (std::size_t n = 0; n < g_.nodes().size(); ++n) {
      const Node& node = g_.nodes()[n];
      const bool values = !node.outputs.empty() && follows_from_values(node);
      if (constant_[n] != constants && !(values && constants)) continue;
      std::vector<TensorId> inputs, outputs;
      for (TensorId t : node.inputs) inputs.push_back(tensor(t));
      for (TensorId t : node.outputs) outputs.push_back(tensor(t));
      editor.add(node.op, node.attributes, std::move(inputs), std::move(outputs),
                 {node.name, node.compute}, node.where);
      for (TensorId t : node.outputs) {
        if (!constants || t < 0 || !kept.contains(t) || !kept_beside(t)) continue;
        TensorDesc d = bare(t);
        d.stride = {};
        d.data_type = kept_type(t);
        d.output = true;
        editor.add(OpKind::pointwise, PointwiseAttributes{}, {ids[at(t)]},
                   {editor.declare(std::move(d))}, {}, node.where);
      }
    }
    if (constants) return;
    for (std::size_t t = 0; t < from_.size(); ++t) {
      const TensorDesc& d = g_.tensors()[t];
      if (ids[t] == kNoTensor && d.producer < 0 && !d.has_value && !d.constant)
        tensor(static_cast<TensorId>(t));  // nothing reads it, which is reported as such
      if (d.alias >= 0 && ids[t] != kNoTensor) editor.edit(ids[t]).alias = tensor(d.alias);
    }
  }
  bool follows_from_values(const Node& n) const {
    return std::any_of(n.outputs.begin(), n.outputs.end(),
                       [&](TensorId t) { return t >= 0 && from_[at(t)] == From::values; });
  }

  const Graph& g_;
  std::vector<bool> constant_;  // by node: in the constants' graph
  std::vector<From> from_;      // by tensor
  std::set<NodeId> left_;       // to the rest, because their results are large
};

}  // namespace

Result<PreparedGraph> prepare(Graph& graph) {
  if (Diagnostics d = graph.check(); !d.empty()) return d;
  return Cut(graph).make();
}

}  // namespace sinter
