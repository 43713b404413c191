// The forward graph is the gradient's node with other ports: same inputs, same attributes, lowered
// and evaluated like any graph.
#include "reference/forward_attention.hpp"

#include <cmath>

#include "reference/box.hpp"
#include "reference/element.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter::reference {
namespace {

constexpr std::int64_t kMostScores = 1 << 24;  // of a forward pass that is run for its results
constexpr int kO = 3, kStats = 5;              // ports of sdpa_backward

TensorId input(const Node& node, int port) { return node.inputs[static_cast<std::size_t>(port)]; }

bool bound(const HostPointers& memory, TensorId t) {
  const auto found = memory.find(t);
  return found != memory.end() && found->second;
}

// log Skv is Stats of scores that are all 0; a little more keeps probabilities below 1 / Skv.
void store_estimate(const Graph& graph, TensorId stats, std::int64_t keys, void* memory) {
  const Dims& dim = graph[stats].dim;
  const Dims stride = graph.stride(stats);
  const double value = std::log(static_cast<double>(std::max<std::int64_t>(keys, 1))) + 1;
  for_each(Box::whole(dim), [&](const Dims& c) {
    std::int64_t at = 0;
    for (int i = 0; i < c.size(); ++i) at += c[i] * stride[i];
    store_element(graph.type(stats), memory, at, value);
  });
}

}  // namespace

Status store_forward_results(const Graph& graph, const Node& node, const HostPointers& memory) {
  const TensorId o = input(node, kO), stats = input(node, kStats);
  const bool wants_o = graph.is_input(o) && bound(memory, o),
             wants_stats = graph.is_input(stats) && bound(memory, stats);
  if (!wants_o && !wants_stats) return Done{};
  const Dims &q = graph[input(node, 0)].dim, &k = graph[input(node, 1)].dim;

  Graph forward({.name = "forward",
                 .io = graph.options().io,
                 .intermediate = graph.options().intermediate,
                 .compute = graph.options().compute});
  HostPointers forward_memory;
  bool known = count(q) / std::max<std::int64_t>(q[3], 1) * k[2] <= kMostScores;
  // The forward's ports are the backward's without O, dO and Stats.
  std::vector<TensorId> inputs;
  std::map<TensorId, TensorId> declared;  // a tensor may stand at several ports
  for (std::size_t port = 0; port < node.inputs.size(); ++port) {
    if (port >= kO && port <= kStats) continue;
    const TensorId t = node.inputs[port];
    if (t < 0) {
      inputs.push_back(kNoTensor);
      continue;
    }
    if (const auto again = declared.find(t); again != declared.end()) {
      inputs.push_back(again->second);
      continue;
    }
    TensorDesc desc = graph[t];
    known = known && desc.producer < 0 && (graph.is_known(t) || bound(memory, t));
    desc.data_type = graph.type(t);
    desc.producer = -1;
    desc.output = desc.read = false;
    inputs.push_back(declared[t] = detail::GraphEditor(forward).declare(desc));
    if (!graph.is_known(t) && bound(memory, t)) forward_memory[inputs.back()] = memory.at(t);
  }
  const auto estimate = [&]() -> Status {
    if (wants_stats) store_estimate(graph, stats, k[2], memory.at(stats));
    return Done{};
  };
  if (!known) return estimate();
  const auto result = [&](TensorId t) {
    TensorDesc desc = graph[t];
    desc.data_type = graph.type(t);
    desc.output = true;
    desc.read = false;
    return detail::GraphEditor(forward).declare(desc);
  };
  const std::vector<TensorId> outputs{result(o), wants_stats ? result(stats) : kNoTensor};
  auto attributes = std::get<SdpaAttributes>(node.attributes);
  attributes.generate_stats.reset();
  detail::GraphEditor(forward).add(OpKind::sdpa, attributes, inputs, outputs,
                                   {.compute = node.compute}, node.where);
  if (!forward.check().empty()) return estimate();  // such as an O that is a broadcast view

  const Lowered lowered = lower(forward);
  HostPointers lowered_memory;
  std::vector<std::byte> unread;  // O where the caller makes it itself
  for (std::size_t i = 0; i < lowered.graph->tensors().size(); ++i) {
    const auto t = static_cast<TensorId>(i);
    const auto& desc = (*lowered.graph)[t];
    const auto original = forward.find(desc.name);
    if (!original) continue;
    if (const auto m = forward_memory.find(*original); m != forward_memory.end())
      lowered_memory[t] = m->second;
    if (*original == outputs[0]) {
      unread.resize(static_cast<std::size_t>(span_elements(desc.dim, lowered.graph->stride(t)) *
                                             info(lowered.graph->type(t)).bytes));
      lowered_memory[t] = wants_o ? memory.at(o) : unread.data();
    }
    if (*original == outputs[1]) lowered_memory[t] = memory.at(stats);
  }
  return evaluate(*lowered.graph, lowered_memory);
}

}  // namespace sinter::reference
