// How many parts there are is decided from what is alive at a time when each tensor is whole;
// cutting along leading axes keeps a batch entry or an attention head together.
#include "reference/chunks.hpp"

#include <algorithm>

#include "reference/element.hpp"
#include "reference/engine.hpp"
#include "reference/parallel.hpp"

namespace sinter::reference {
namespace {

void store_block(const Graph& graph, TensorId tensor, const Block& block, void* memory) {
  const Dims stride = graph.stride(tensor);
  const DataType type = graph.type(tensor);
  constexpr std::int64_t piece = 1 << 16;
  const std::int64_t n = block.box.volume();
  parallel_for((n + piece - 1) / piece, [&](std::int64_t i) {
    const std::int64_t begin = i * piece, end = std::min(n, begin + piece);
    const auto store_run = [&](const Dims& at, std::int64_t length, std::int64_t position) {
      std::int64_t to = 0;
      for (int d = 0; d < at.size(); ++d) to += at[d] * stride[d];
      for (std::int64_t j = 0; j < length; ++j)
        store_element(type, memory, to + j * stride.back(),
                      block.v[static_cast<std::size_t>(begin + position + j)]);
    };
    for_runs(block.box, begin, end, store_run);
  });
}

// Cuts a tensor in up to n parts along its leading axes.
std::vector<Box> chunks_of(const Dims& dim, std::int64_t n) {
  std::vector<Box> chunks{Box::whole(dim)};
  for (int axis = 0; axis < dim.size(); ++axis) {
    const auto have = static_cast<std::int64_t>(chunks.size());
    const std::int64_t parts = std::min(dim[axis], n / have);
    if (parts < 2) continue;
    std::vector<Box> finer;
    for (const Box& chunk : chunks)
      for (std::int64_t i = 0; i < parts; ++i) {
        finer.push_back(chunk);
        finer.back().set(axis, dim[axis] * i / parts, dim[axis] * (i + 1) / parts);
      }
    chunks = std::move(finer);
  }
  return chunks;
}

}  // namespace

std::int64_t chunks_needed(const Graph& graph) {
  constexpr double budget = 0x1p31;  // bytes
  constexpr std::int64_t most = 4096;
  std::vector<int> readers(graph.tensors().size());
  for (const Node& node : graph.nodes())
    for (const TensorId t : node.inputs)
      if (t >= 0) ++readers[static_cast<std::size_t>(t)];
  const auto bytes = [&](TensorId t) { return 8.0 * static_cast<double>(count(graph[t].dim)); };
  double alive = 0, peak = 0;
  for (const Node& node : graph.nodes()) {
    for (const TensorId t : node.outputs)
      if (t >= 0) alive += bytes(t);
    peak = std::max(peak, alive);
    for (const TensorId t : node.inputs)
      if (t >= 0 && --readers[static_cast<std::size_t>(t)] == 0 && graph[t].producer >= 0)
        alive -= bytes(t);
    for (const TensorId t : node.outputs)
      if (t >= 0 && readers[static_cast<std::size_t>(t)] == 0) alive -= bytes(t);
  }
  return std::min(most, static_cast<std::int64_t>(std::min(peak / budget, 1e6)) + 1);
}

Status evaluate_in_chunks(const Graph& graph, const HostPointers& memory, std::int64_t chunks) {
  std::vector<std::pair<TensorId, std::vector<Box>>> outputs;
  std::size_t rounds = 0;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    const auto t = static_cast<TensorId>(i);
    const auto& desc = graph[t];
    if (!desc.output || count(desc.dim) == 0) continue;
    const auto bound = memory.find(t);
    if (bound == memory.end() || !bound->second) {
      Diagnostic d;
      d.rule = bound == memory.end() ? Rule::binding_missing : Rule::binding_null;
      d.tensor = graph.label(t);
      return d;
    }
    outputs.emplace_back(t, chunks_of(desc.dim, chunks));
    rounds = std::max(rounds, outputs.back().second.size());
  }
  for (std::size_t i = 0; i < rounds; ++i) {
    Engine engine(graph, memory, false);
    for (const auto& [tensor, boxes] : outputs)
      if (i < boxes.size()) engine.want(tensor, boxes[i]);
    Status done = engine.run(
        [&](TensorId t, const Block& block) { store_block(graph, t, block, memory.at(t)); });
    SINTER_TRY(done);
  }
  return Done{};
}

}  // namespace sinter::reference
