// Counted as the peers' benchmarks count, so that rates can be compared.
#include "work.hpp"

namespace sinter::cli {
namespace {

double product(const Dims& dim, int begin, int end) {
  double n = 1;
  for (int i = begin; i < end; ++i) n *= static_cast<double>(dim[i]);
  return n;
}
double product(const Dims& dim) { return product(dim, 0, dim.size()); }

double attention(const Dims& q, const Dims& k, const Dims& v, const SdpaAttributes& a) {
  const double keys = static_cast<double>(k[k.size() - 2]);
  const double dense =
      2 * product(q, 0, q.size() - 1) * keys * static_cast<double>(q.back() + v.back());
  return a.causal_mask ? dense / 2 : dense;
}

double operations(const Graph& g, const Node& n) {
  const auto in = [&](std::size_t i) { return g[n.inputs[i]].dim; };
  const auto out = [&] { return g[n.outputs[0]].dim; };
  switch (n.op) {
    case OpKind::matmul:
      return 2 * product(out()) * static_cast<double>(in(0).back());
    case OpKind::conv_fprop:
      return 2 * product(out()) * product(in(1), 1, in(1).size());
    case OpKind::conv_dgrad:
      return 2 * product(in(0)) * product(in(1), 1, in(1).size());
    case OpKind::conv_wgrad:
      return 2 * product(in(0)) * product(out(), 1, out().size());
    case OpKind::moe_grouped_matmul:
      return 2 * product(out()) * static_cast<double>(in(0).back());
    case OpKind::sdpa:
      return attention(in(0), in(1), in(2), std::get<SdpaAttributes>(n.attributes));
    case OpKind::sdpa_backward:
      return 2.5 * attention(in(0), in(1), in(2), std::get<SdpaAttributes>(n.attributes));
    default:
      return 0;
  }
}

std::int64_t distinct_bytes(const Graph& g, TensorId id) {
  const Dims stride = g.stride(id);
  std::int64_t n = info(g.type(id)).bytes;
  for (int i = 0; i < stride.size(); ++i)
    if (stride[i] != 0) n *= g[id].dim[i];
  return n;
}

}  // namespace

double operations(const Graph& graph) {
  double total = 0;
  for (const auto& n : graph.nodes()) total += operations(graph, n);
  return total;
}

std::int64_t input_bytes(const Graph& graph) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    const auto id = static_cast<TensorId>(i);
    if (graph.is_input(id) && graph[id].read) total += distinct_bytes(graph, id);
  }
  return total;
}

std::int64_t bound_bytes(const Graph& graph) {
  std::int64_t total = input_bytes(graph);
  for (std::size_t i = 0; i < graph.tensors().size(); ++i)
    if (graph.tensors()[i].output) total += distinct_bytes(graph, static_cast<TensorId>(i));
  return total;
}

}  // namespace sinter::cli
