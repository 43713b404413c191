// Constants and indices for expansions, and the binding of their results to the user's tensors.
#include "lower/expansion.hpp"

namespace sinter::lowering {

namespace {

bool moves_data(OpKind op) {
  return op == OpKind::reshape || op == OpKind::transpose || op == OpKind::slice ||
         op == OpKind::page_gather;
}

}  // namespace

DataType resolved_type(const Graph& scratch, TensorId t, DataType arithmetic) {
  for (;;) {
    const auto& desc = scratch[t];
    if (desc.data_type != DataType::none) return desc.data_type;
    if (desc.producer < 0) return arithmetic;
    const auto& producer = scratch.nodes()[static_cast<std::size_t>(desc.producer)];
    if (!moves_data(producer.op)) return arithmetic;
    t = producer.inputs[0];
  }
}

// A pointwise node on a constant that broadcasts to the dims of the result.
Tensor Expansion::constant_pointwise(PointwiseAttributes a, double value, const Dims& dim,
                                     DataType type) {
  TensorDesc constant;
  constant.name = "constant";
  constant.dim = Dims::filled(dim.size(), 1);
  constant.dim_known = true;
  constant.has_value = true;
  constant.value = value;
  constant.data_type = type;
  const TensorId from = detail::GraphEditor(graph()).declare(constant);
  TensorDesc result;
  result.dim = dim;
  result.dim_known = true;
  result.data_type = type;
  const TensorId to = detail::GraphEditor(graph()).declare(result);
  const auto made =
      detail::GraphEditor(graph()).add(OpKind::pointwise, a, {from}, {to}, {}, node_.where);
  return {&graph(), made[0]};
}

Tensor Expansion::filled(double value, const Dims& dim) {
  return constant_pointwise({}, value, dim, arithmetic_);
}

Tensor Expansion::index(const Dims& dim, int axis, DataType type) {
  return constant_pointwise({.mode = PointwiseMode::gen_index, .axis = axis}, 0, dim, type);
}

// The tensor that holds a result takes over the user's description. It cannot where it is an input
// of the expansion, is bound already, or is read inside and would be rounded there: what the
// expansion itself reads stays unrounded. An identity node makes the user's tensor then.
void Expansion::finish() {
  Graph& g = graph();
  scratch_.tensors.resize(g.tensors().size(), {id_, kNoTensor});
  for (auto [port, t] : results_) {
    const TensorId u = node_.outputs[static_cast<std::size_t>(port)];
    const auto& wanted = user_[u];
    const DataType type = user_.type(u);
    const bool own = g[t].producer >= first_node_ &&
                     scratch_.tensors[static_cast<std::size_t>(t)].user == kNoTensor;
    const bool same = resolved_type(g, t, arithmetic_) == type;
    const bool unread = g[t].data_type == DataType::none && !g[t].read;
    if (!own || !(same || unread)) {
      t = identity(Tensor(&g, t)).id();
      scratch_.tensors.resize(g.tensors().size(), {id_, kNoTensor});
    }
    auto& desc = detail::GraphEditor(g).edit(t);
    const auto producer = desc.producer;
    const bool read = desc.read;
    desc = wanted;
    desc.alias = kNoTensor;  // a number of the user's graph
    desc.producer = producer;
    desc.read = read;
    desc.data_type = type;
    scratch_.tensors[static_cast<std::size_t>(t)].user = u;
    scratch_.of_user[static_cast<std::size_t>(u)] = t;
  }
  scratch_.nodes.resize(g.nodes().size(), id_);
}

}  // namespace sinter::lowering
