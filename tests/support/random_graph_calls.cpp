// What a random graph leaves to its calls: inputs that stay the same, numbers that come with each
// call, outputs in the place of inputs, and addresses that are multiples of few bytes.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "support/random_graph_grower.hpp"

namespace sinter::test {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

// Its elements fill the memory that they reach.
bool without_gaps(const Graph& g, TensorId t) {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // and extents
  for (int i = 0; i < g[t].dim.size(); ++i)
    if (g[t].dim[i] != 1) steps.emplace_back(g.stride(t)[i], g[t].dim[i]);
  std::ranges::sort(steps);
  std::int64_t next = 1;
  for (const auto& [step, extent] : steps) {
    if (step != next) return false;
    next *= extent;
  }
  return next > 0;
}

// The nodes that need the tensor, directly or not.
std::set<NodeId> needing(const Graph& g, TensorId of) {
  std::set<TensorId> tensors{of};
  std::set<NodeId> nodes;
  for (std::size_t n = 0; n < g.nodes().size(); ++n) {  // each behind those whose results it reads
    const Node& node = g.nodes()[n];
    if (std::ranges::none_of(node.inputs, [&](TensorId t) { return tensors.contains(t); }))
      continue;
    nodes.insert(static_cast<NodeId>(n));
    tensors.insert(node.outputs.begin(), node.outputs.end());
    tensors.erase(kNoTensor);
  }
  return nodes;
}

bool moves(const Node& n) {
  return n.op == OpKind::slice || n.op == OpKind::transpose || n.op == OpKind::reshape ||
         n.op == OpKind::concatenate;
}

// The nodes that read the tensor, views of it included: these lie where it does.
std::set<NodeId> readers(const Graph& g, TensorId of) {
  std::set<TensorId> views{of};
  std::set<NodeId> nodes;
  for (std::size_t n = 0; n < g.nodes().size(); ++n) {
    const Node& node = g.nodes()[n];
    if (std::ranges::none_of(node.inputs, [&](TensorId t) { return views.contains(t); })) continue;
    nodes.insert(static_cast<NodeId>(n));
    if (moves(node)) views.insert(node.outputs[0]);
  }
  return nodes;
}

// An input whose place the result of a pointwise node may take: the node reads it at the element
// that it writes and not through a view, and no other reader needs the result.
TensorId place_for(const Graph& g, TensorId y, const std::set<TensorId>& taken) {
  const NodeId producer = g[y].producer;
  const Node& node = g.nodes()[at(producer)];
  if (node.op != OpKind::pointwise) return kNoTensor;
  const std::set<NodeId> later = needing(g, y);
  for (TensorId x : node.inputs) {
    if (x < 0 || !g.is_input(x) || g[x].has_value || taken.contains(x)) continue;
    if (g[x].dim != g[y].dim || g.type(x) != g.type(y) || !without_gaps(g, x)) continue;
    const std::set<NodeId> all = readers(g, x);
    const bool viewed = std::ranges::any_of(all, [&](NodeId n) {
      const Node& reader = g.nodes()[at(n)];
      return moves(reader) && needing(g, reader.outputs[0]).contains(producer);
    });
    if (!viewed && std::ranges::none_of(all, [&](NodeId n) { return later.contains(n); })) return x;
  }
  return kNoTensor;
}

void place_outputs(Graph& g, Random& random) {
  std::set<TensorId> taken;
  for (TensorId y = 0; y < static_cast<TensorId>(g.tensors().size()); ++y) {
    if (!g[y].output || !random.chance(0.5)) continue;
    const TensorId x = place_for(g, y, taken);
    if (x == kNoTensor) continue;
    taken.insert(x);
    TensorDesc& result = detail::GraphEditor(g).edit(y);
    result.stride = g[x].stride;
    result.alias = x;
    result.alignment = g[x].alignment;
  }
}

// A number that the graph may hold in place of the input's memory: a length of attention, a bit
// mask, the first of a list that positions go into, or any positive one.
std::int64_t known_integer(const Graph& g, TensorId t, Random& random) {
  for (const Node& node : g.nodes())
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != t || info(node.op).variadic) continue;
      const std::string_view port = info(node.op).inputs[i].name;
      if (port == "SEQ_LEN_Q") return random.between(0, g[node.inputs[0]].dim[2]);
      if (port == "SEQ_LEN_KV") return random.between(0, g[node.inputs[1]].dim[2]);
      if (port == "Block_mask") return random.below(256);
      if (port == "TokenIndex" || port == "Index" || port.starts_with("Page_table")) return 0;
    }
  return random.between(1, 3);
}

void hold_number(Graph& g, TensorId t, Random& random) {
  const DataType type = g.type(t);
  const std::int64_t number = known_integer(g, t, random);
  TensorDesc& desc = detail::GraphEditor(g).edit(t);
  desc.has_value = true;
  desc.integer_value = type == boolean ? 1 : number;
  desc.value = static_cast<double>(desc.integer_value);
  if (is_floating(type) && type != f8e8m0) desc.value *= random.pick({0.25, 0.5, 1.0});
}

}  // namespace

void vary_calls(Graph& g, Random random) {
  const bool constants = random.chance(0.35), numbers = random.chance(0.35),
             unaligned = random.chance(0.2);
  if (random.chance(0.6)) place_outputs(g, random);
  for (TensorId t = 0; t < static_cast<TensorId>(g.tensors().size()); ++t) {
    TensorDesc& desc = detail::GraphEditor(g).edit(t);
    const bool input = g.is_input(t), aliased = std::ranges::any_of(
                                          g.tensors(), [&](const auto&o) { return o.alias == t; });
    if (unaligned && random.chance(0.6) && !aliased && desc.alias == kNoTensor)
      desc.alignment =
          std::max<std::int64_t>(info(g.type(t)).bytes, std::int64_t{1} << random.below(4));
    if (!input || aliased) continue;
    if (numbers && count(desc.dim) == 1 && random.chance(0.7)) {
      random.chance(0.6) ? desc.bind_value() : hold_number(g, t, random);
      desc.stride = {};
      desc.alignment = 16;
    } else if (constants && random.chance(0.6)) {
      desc.constant = true;
    }
  }
}

}  // namespace sinter::test
