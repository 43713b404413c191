#include "support/shrink_graph.hpp"

#include <exception>
#include <stdexcept>
#include <vector>

#include "sinter/json.hpp"

namespace sinter::test {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

// What of a graph is kept.
struct Selection {
  std::vector<bool> nodes, outputs;  // by node; by tensor
  explicit Selection(const Graph& g) : nodes(g.nodes().size(), true), outputs(g.tensors().size()) {
    for (std::size_t t = 0; t < outputs.size(); ++t) outputs[t] = g.tensors()[t].output;
  }
};

// A tensor of `g` for a graph where nothing has made it yet. Its type is what it was, by name.
TensorDesc description(const Graph& g, TensorId t, bool output) {
  TensorDesc d = g[t];
  d.data_type = g.type(t);
  d.output = output;
  d.producer = -1;
  d.read = false;
  return d;
}

// The selected part as a graph of its own; null where it has no output.
std::unique_ptr<Graph> part(const Graph& g, const Selection& kept) {
  auto result = std::make_unique<Graph>(g.options());
  std::vector<TensorId> to(g.tensors().size(), kNoTensor);
  const auto made = [&](TensorId t) { return g[t].producer >= 0 && kept.nodes[at(g[t].producer)]; };
  const auto tensor = [&](TensorId t) {
    if (t >= 0 && to[at(t)] < 0) {
      TensorDesc d = description(g, t, made(t) && kept.outputs[at(t)]);
      // In the place of an input that is read by now, as it is where the two are of one node.
      d.alias = d.output && d.alias >= 0 ? to[at(d.alias)] : kNoTensor;
      to[at(t)] = detail::GraphEditor(*result).declare(d);
    }
    return t < 0 ? kNoTensor : to[at(t)];
  };
  bool any = false;
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    if (!kept.nodes[i]) continue;
    const Node& n = g.nodes()[i];
    std::vector<TensorId> inputs, outputs;
    for (TensorId t : n.inputs) inputs.push_back(tensor(t));
    for (TensorId t : n.outputs) {
      outputs.push_back(tensor(t));
      any = any || (t >= 0 && kept.outputs[at(t)]);
    }
    detail::GraphEditor(*result).add(n.op, n.attributes, std::move(inputs), std::move(outputs),
                                     {n.name, n.compute}, n.where);
  }
  return any && result->check().empty() ? std::move(result) : nullptr;
}

std::string failure_of(Graph& graph, const Failure& failure) {
  try {
    return failure(graph);
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  }
}

}  // namespace

std::unique_ptr<Graph> shrink(const Graph& graph, const Failure& failure) {
  Selection kept(graph);
  auto best = part(graph, kept);
  if (!best) throw std::logic_error("the copy of a graph is not valid");
  const auto attempt = [&](std::vector<bool>& flags, std::size_t i) {
    if (!flags[i]) return false;
    flags[i] = false;
    auto smaller = part(graph, kept);
    if (smaller && !failure_of(*smaller, failure).empty()) {
      best = std::move(smaller);
      return true;
    }
    flags[i] = true;
    return false;
  };
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = kept.outputs.size(); i-- > 0;) again |= attempt(kept.outputs, i);
    for (std::size_t i = kept.nodes.size(); i-- > 0;) again |= attempt(kept.nodes, i);
  }
  return best;
}

std::string smallest_failure(Graph& graph, const Failure& failure) {
  if (failure_of(graph, failure).empty()) return {};
  const auto small = shrink(graph, failure);
  return failure_of(*small, failure) + "\n" + graph_to_json(*small);
}

}  // namespace sinter::test
