// The driver of lowering: copies inputs, scalars and primitive nodes, calls the expansions of the
// composite ones, and writes what the outputs depend on into the lowered graph, with the names,
// compute types and data types that the expansions left open.
#include "lower/lower.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "lower/expansion.hpp"
#include "reference/element.hpp"

namespace sinter {

namespace lowering {
namespace {

using Expand = void (*)(Expansion&);

Expand expansion_of(OpKind op) {
  switch (op) {
#define SINTER_COMPOSITE(name, inputs, outputs, attributes, rule, expansion) \
  case OpKind::name:                                                         \
    return expansion;
#define SINTER_OTHER(...)
    SINTER_OPERATIONS(SINTER_OTHER, SINTER_COMPOSITE, SINTER_OTHER, SINTER_OTHER)
#undef SINTER_COMPOSITE
#undef SINTER_OTHER
    default:
      return nullptr;
  }
}

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

// By tensor: an output of the graph depends on it. Nodes stand behind those that they read.
std::vector<bool> needed_tensors(const Graph& g) {
  std::vector<bool> needed(g.tensors().size());
  for (std::size_t t = 0; t < needed.size(); ++t) needed[t] = g.tensors()[t].output;
  for (std::size_t n = g.nodes().size(); n-- > 0;) {
    const auto& node = g.nodes()[n];
    bool live = false;
    for (TensorId t : node.outputs) live = live || (t >= 0 && needed[at(t)]);
    if (!live) continue;
    for (TensorId t : node.inputs)
      if (t >= 0) needed[at(t)] = true;
  }
  return needed;
}

bool is_live(const Node& node, const std::vector<bool>& needed) {
  for (TensorId t : node.outputs)
    if (t >= 0 && needed[at(t)]) return true;
  return false;
}

// The number that a known scalar has in its type. Builders keep what they were given, and what
// looks at a number by itself (a sink, a scale that is folded into another) does not ask its type.
void round_number(TensorDesc& d) {
  if (d.data_type == DataType::i64) return;  // kept as an integer
  d.value = round_to(d.data_type, d.value);
  if (!is_floating(d.data_type)) d.integer_value = static_cast<std::int64_t>(d.value);
}

// A tensor of `from` as it is described, for another graph.
TensorDesc description(const Graph& from, TensorId t) {
  TensorDesc d = from[t];
  d.data_type = from.type(t);
  if (from.is_known(t)) round_number(d);
  d.producer = -1;
  d.read = false;
  d.alias = kNoTensor;
  return d;
}

// The attributes of a copied node whose optional outputs may be gone.
Attributes copied_attributes(const Node& node) {
  Attributes a = node.attributes;
  if (auto* r = std::get_if<ResampleAttributes>(&a)) r->generate_index.reset();
  return a;
}

// Whether a tensor lies in memory packed, whatever the planner does with the nodes around it.
bool is_packed(const Graph& user, TensorId t) {
  const TensorDesc& d = user[t];
  if (d.has_value) return false;
  if (d.producer >= 0) {
    const OpKind op = user.nodes()[at(d.producer)].op;
    if (op == OpKind::reshape || op == OpKind::transpose || op == OpKind::slice) return false;
  }
  const Dims stride = user.stride(t), packed = packed_strides(d.dim);
  for (int i = 0; i < d.dim.size(); ++i)
    if (d.dim[i] > 1 && stride[i] != packed[i]) return false;
  return true;
}

// Whether a kernel reads this operand from memory itself, where a pass-by-value scalar has none. An
// operand of a convolution is among them: what lies outside its padding is known by its address.
bool needs_memory(OpKind op, int port) {
  switch (op) {
    case OpKind::resample:
    case OpKind::conv_fprop:
    case OpKind::conv_dgrad:
    case OpKind::conv_wgrad:
      return true;
    default:
      return op == OpKind::moe_grouped_matmul && is_index_port(op, port);
  }
}

// A tensor in memory that holds what the port's holds.
TensorId copied_to_memory(const Graph& user, NodeId id, int port, Scratch& s) {
  const auto& node = user.nodes()[at(id)];
  const TensorId t = node.inputs[at(port)];
  TensorDesc d;
  d.name = info(node.op).inputs[at(port)].name;
  d.dim = user[t].dim;
  d.dim_known = true;
  d.data_type = user.type(t);
  const TensorId y = detail::GraphEditor(s.graph).declare(std::move(d));
  s.tensors.push_back({id, kNoTensor});
  detail::GraphEditor(s.graph).add(OpKind::pointwise, PointwiseAttributes{}, {s.of_user[at(t)]},
                                   {y}, {}, node.where);
  return y;
}

// Offsets and indices of a grouped matmul are read as packed arrays; what is none is copied, and so
// is a scalar that is read from memory.
TensorId packed_operand(const Graph& user, NodeId id, int port, Scratch& s) {
  const auto& node = user.nodes()[at(id)];
  const TensorId t = node.inputs[at(port)];
  if (t < 0) return kNoTensor;
  const bool index = node.op == OpKind::moe_grouped_matmul && is_index_port(node.op, port);
  const bool fits = user[t].has_value ? !needs_memory(node.op, port) : !index || is_packed(user, t);
  return fits ? s.of_user[at(t)] : copied_to_memory(user, id, port, s);
}

void copy_node(const Graph& user, NodeId id, Scratch& s) {
  const auto& node = user.nodes()[at(id)];
  std::vector<TensorId> inputs, outputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(packed_operand(user, id, static_cast<int>(i), s));
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const TensorId t = node.outputs[i];
    const bool required = info(node.op).outputs[i].required;
    if (t < 0 || (!s.needed[at(t)] && !required)) {
      outputs.push_back(kNoTensor);
      continue;
    }
    s.of_user[at(t)] = detail::GraphEditor(s.graph).declare(description(user, t));
    s.tensors.push_back({id, t});
    outputs.push_back(s.of_user[at(t)]);
  }
  detail::GraphEditor(s.graph).add(node.op, copied_attributes(node), std::move(inputs),
                                   std::move(outputs), {}, node.where);
  s.nodes.resize(s.graph.nodes().size(), id);
}

// Ports of attention that kernels read from memory themselves, or that the kernel's own code uses
// as the numbers it knows: operands, lengths, page tables, masks, a sink that comes with the call.
bool needs_memory(const Graph& user, const Node& node, int port) {
  const bool forward = node.op == OpKind::sdpa;
  const shapes::SdpaPorts& p = forward ? shapes::kSdpaPorts : shapes::kSdpaBackwardPorts;
  if (port == p.sink) return user[node.inputs[at(port)]].bound_value;
  return port < p.bias || port == p.seq_q || port == p.seq_kv || port == p.page_k ||
         port == p.page_v || port == p.block_mask;
}

// While attention is expanded, what it reads from memory is a copy of what is passed by value.
std::vector<std::pair<TensorId, TensorId>> put_in_memory(const Graph& user, NodeId id, Scratch& s) {
  const auto& node = user.nodes()[at(id)];
  std::vector<std::pair<TensorId, TensorId>> by_value;  // tensors of the user's graph and of `s`
  for (int port = 0; port < static_cast<int>(node.inputs.size()); ++port) {
    const TensorId t = node.inputs[at(port)];
    if (t < 0 || !user[t].has_value || !needs_memory(user, node, port)) continue;
    const auto [copy, fresh] = s.in_memory.try_emplace(t, kNoTensor);
    if (fresh) copy->second = copied_to_memory(user, id, port, s);
    if (s.of_user[at(t)] == copy->second) continue;
    by_value.emplace_back(t, s.of_user[at(t)]);
    s.of_user[at(t)] = copy->second;
  }
  return by_value;
}

void expand_attention(const Graph& user, NodeId id, const SdpaAttributes& a, Expand expand,
                      Scratch& s) {
  const auto& node = user.nodes()[at(id)];
  const auto by_value = put_in_memory(user, id, s);
  const auto first = static_cast<NodeId>(s.graph.nodes().size());
  Expansion e(user, id, s);
  expand(e);
  e.finish();
  Region r{id, node.op, a, sdpa_band(a), false, node.inputs, node.outputs, {}};
  for (auto* tensors : {&r.inputs, &r.outputs})
    for (TensorId& t : *tensors)
      if (t >= 0) t = s.of_user[at(t)];
  for (NodeId made = first; made < static_cast<NodeId>(s.graph.nodes().size()); ++made)
    r.nodes.push_back(made);
  s.regions.push_back(std::move(r));
  for (const auto& [t, scalar] : by_value) s.of_user[at(t)] = scalar;
}

void expand_all(const Graph& user, Scratch& s) {
  s.needed = needed_tensors(user);
  s.of_user.assign(user.tensors().size(), kNoTensor);
  for (TensorId t = 0; at(t) < user.tensors().size(); ++t)
    if (user[t].producer < 0) {
      s.of_user[at(t)] = detail::GraphEditor(s.graph).declare(description(user, t));
      s.tensors.push_back({-1, t});
    }
  for (NodeId n = 0; at(n) < user.nodes().size(); ++n) {
    const auto& node = user.nodes()[at(n)];
    if (!is_live(node, s.needed) || !s.graph.diagnostics().empty()) continue;
    if (const Expand expand = expansion_of(node.op)) {
      if (const auto* a = std::get_if<SdpaAttributes>(&node.attributes)) {
        expand_attention(user, n, *a, expand, s);
      } else {
        Expansion e(user, n, s);
        expand(e);
        e.finish();
      }
    } else {
      copy_node(user, n, s);
    }
    if (!s.graph.diagnostics().empty()) s.failed = n;
  }
}

// Steps of 1 are said by none: equal movements have equal attributes, by which passes find them.
Attributes without_unit_steps(Attributes attributes) {
  if (auto* s = std::get_if<SliceAttributes>(&attributes))
    if (std::all_of(s->step.begin(), s->step.end(), [](auto step) { return step == 1; }))
      s->step = {};
  return attributes;
}

// Writes the live part of the scratch graph into the lowered graph.
class Writer {
 public:
  Writer(const Graph& user, const Scratch& scratch)
      : user_(user),
        scratch_(scratch),
        written_(scratch.graph.tensors().size(), kNoTensor),
        written_nodes_(scratch.graph.nodes().size(), -1) {
    for (const auto& t : user.tensors())
      if (!t.name.empty()) names_.insert(t.name);
  }

  Lowered write() {
    const Graph& g = scratch_.graph;
    lowered_.graph = std::make_unique<Graph>(g.options());
    detail::GraphEditor(*lowered_.graph).allow_any_rank();
    for (Diagnostic d : g.diagnostics()) {
      if (scratch_.failed >= 0) {  // what it was expanded to is no place that the user knows
        const Node& node = user_.nodes()[at(scratch_.failed)];
        d.node = user_.label(node);
        d.file = node.where.file;
        d.line = node.where.line;
      }
      detail::GraphEditor(*lowered_.graph).report(std::move(d));
    }
    if (!g.diagnostics().empty()) return std::move(lowered_);
    const auto needed = needed_tensors(g);
    for (TensorId t = 0; at(t) < g.tensors().size(); ++t)
      if (g[t].producer < 0 && scratch_.tensors[at(t)].user != kNoTensor) tensor(t);
    for (NodeId n = 0; at(n) < g.nodes().size(); ++n)
      if (is_live(g.nodes()[at(n)], needed)) node(n);
    for (const Region& r : scratch_.regions) region(r);
    lowered_.graph->check();  // names what neither the user nor an expansion named
    return std::move(lowered_);
  }

 private:
  void node(NodeId id) {
    const auto& n = scratch_.graph.nodes()[at(id)];
    const NodeId origin = scratch_.nodes[at(id)];
    const auto& composite = user_.nodes()[at(origin)];
    std::vector<TensorId> inputs, outputs;
    for (TensorId t : n.inputs) inputs.push_back(t < 0 ? kNoTensor : tensor(t));
    for (TensorId t : n.outputs) outputs.push_back(t < 0 ? kNoTensor : tensor(t));
    NodeOptions options;
    options.name = user_.label(composite);
    if (expansion_of(composite.op) || scratch_.tensors[at(n.outputs[0])].user == kNoTensor)
      options.name += "/" + step(n.outputs[0]);
    options.compute = composite.compute;
    detail::GraphEditor(*lowered_.graph)
        .add(n.op, without_unit_steps(n.attributes), std::move(inputs), std::move(outputs),
             std::move(options), composite.where);
    written_nodes_[at(id)] = static_cast<NodeId>(lowered_.origin.size());
    lowered_.origin.push_back(origin);
  }

  void region(Region r) {
    for (auto* tensors : {&r.inputs, &r.outputs})
      for (TensorId& t : *tensors) t = t < 0 ? kNoTensor : written_[at(t)];
    std::vector<NodeId> nodes;
    for (NodeId n : r.nodes)
      if (written_nodes_[at(n)] >= 0) nodes.push_back(written_nodes_[at(n)]);
    r.nodes = std::move(nodes);
    if (!r.nodes.empty()) lowered_.regions.push_back(std::move(r));
  }

  // What an expansion's tensor is called after the label of its node.
  std::string step(TensorId t) const {
    const Graph& g = scratch_.graph;
    const auto& from = scratch_.tensors[at(t)];
    if (from.user != kNoTensor) {
      const auto& composite = user_.nodes()[at(user_[from.user].producer)];
      for (std::size_t i = 0; i < composite.outputs.size(); ++i)
        if (composite.outputs[i] == from.user)
          return std::string(info(composite.op).outputs[i].name);
    }
    if (!g[t].name.empty()) return g[t].name;
    if (g[t].producer < 0) return "constant";
    const auto& producer = g.nodes()[at(g[t].producer)];
    const auto* p = std::get_if<PointwiseAttributes>(&producer.attributes);
    return std::string(p ? name(p->mode) : name(producer.op));
  }

  TensorId tensor(TensorId t) {
    TensorId& to = written_[at(t)];
    if (to != kNoTensor) return to;
    const auto& from = scratch_.tensors[at(t)];
    TensorDesc d = scratch_.graph[t];
    d.producer = -1;
    d.read = false;
    if (from.user == kNoTensor) {
      const auto& composite = user_.nodes()[at(from.node)];
      const DataType arithmetic = user_.arithmetic(composite);
      const bool number = d.has_value && d.name.empty();  // among the operands, made as f32
      d.data_type = number ? arithmetic : resolved_type(scratch_.graph, t, arithmetic);
      d.name = unique(user_.label(composite) + "/" + step(t));
      d.where = composite.where;
    }
    return to = detail::GraphEditor(*lowered_.graph).declare(std::move(d));
  }

  std::string unique(const std::string& name) {
    if (names_.insert(name).second) return name;
    for (int& i = last_suffix_.try_emplace(name, 1).first->second;;)
      if (std::string next = name + "_" + std::to_string(++i); names_.insert(next).second)
        return next;
  }

  const Graph& user_;
  const Scratch& scratch_;
  std::vector<TensorId> written_;
  std::vector<NodeId> written_nodes_;
  std::set<std::string> names_;
  std::map<std::string, int> last_suffix_;  // of a name that was asked for again
  Lowered lowered_;
};

}  // namespace
}  // namespace lowering

Lowered lower(const Graph& graph) {
  lowering::Scratch scratch(graph.options());
  lowering::expand_all(graph, scratch);
  return lowering::Writer(graph, scratch).write();
}

}  // namespace sinter
