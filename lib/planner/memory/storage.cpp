#include "planner/memory/storage.hpp"

#include <algorithm>
#include <array>

#include "lower/expansion.hpp"
#include "planner/memory/virtual_concatenation.hpp"
#include "schedule/contraction/held_type.hpp"

namespace sinter {
namespace {

// Bytes that lie together in a concatenation's part, so that whoever reads it alone reads whole
// lines of memory; a guess.
constexpr std::int64_t kSharedLine = 128;

}  // namespace

bool is_view_op(OpKind op) {
  return op == OpKind::transpose || op == OpKind::slice || op == OpKind::reshape;
}

bool is_computed(const Graph& graph, TensorId t) {
  while (graph.is_virtual(t)) {
    const Node& from = graph.nodes()[static_cast<std::size_t>(graph[t].producer)];
    if (!is_view_op(from.op)) return true;
    t = from.inputs[0];
  }
  return false;
}

Dims without_leading_ones(const Dims& d) {
  Dims r;
  for (auto e : d)
    if (e != 1 || !r.empty()) r.push_back(e);
  return r;
}

// Walks both dim lists from the back, matching groups of equal products. Within a group of the old
// dims the strides must step evenly; the new dims of the group then divide that step.
std::optional<Dims> reshape_strides(const Dims& dim, const Dims& stride, const Dims& new_dim) {
  Dims result = Dims::filled(new_dim.size(), 0);
  if (count(dim) == 0) return packed_strides(new_dim);
  int i = dim.size() - 1, j = new_dim.size() - 1;
  while (j >= 0) {
    if (new_dim[j] == 1) {
      result[j--] = 1;
      continue;
    }
    while (i >= 0 && dim[i] == 1) --i;
    std::int64_t step = stride[i], have = dim[i--], want = 1, next = step;
    // Extend the group of old dims until it covers the new dim, then hand out the new strides.
    while (j >= 0 && want < have) {
      if (new_dim[j] == 1) {
        result[j--] = 1;
        continue;
      }
      while (have % (want * new_dim[j]) != 0 || have < want * new_dim[j]) {
        while (i >= 0 && dim[i] == 1) --i;
        if (i < 0 || stride[i] != step * have) return std::nullopt;
        have *= dim[i--];
      }
      result[j] = next;
      want *= new_dim[j];
      next *= new_dim[j--];
    }
  }
  return result;
}

bool holds(DataType wide, DataType narrow) {
  return wide == narrow || (is_floating(wide) && holds_type(wide, narrow));
}

std::optional<Location> view_of(const Dims& x, const Attributes& attributes, const Dims& y,
                                const Location& from) {
  Location to = from;
  if (const auto* a = std::get_if<TransposeAttributes>(&attributes)) {
    for (int i = 0; i < x.size(); ++i)
      to.stride[i] = from.stride[static_cast<int>(a->permutation[i])];
    return to;
  }
  if (const auto* a = std::get_if<SliceAttributes>(&attributes)) {
    for (int i = 0; i < x.size(); ++i) {
      to.offset += a->start[i] * from.stride[i];
      if (!a->step.empty()) to.stride[i] *= a->step[i];
    }
    if (count(y) == 0) to.offset = 0;
    return to;
  }
  const auto stride = reshape_strides(x, from.stride, y);
  if (!stride) return std::nullopt;
  to.stride = *stride;
  return to;
}

std::optional<Location> source_of(const Dims& x, const Node& n, const Dims& y, const Location& to) {
  Location from = to;
  if (const auto* a = std::get_if<TransposeAttributes>(&n.attributes)) {
    for (int i = 0; i < x.size(); ++i)
      from.stride[static_cast<int>(a->permutation[i])] = to.stride[i];
    return from;
  }
  if (n.op != OpKind::reshape) return std::nullopt;
  const auto stride = reshape_strides(y, to.stride, x);
  if (!stride) return std::nullopt;
  from.stride = *stride;
  return from;
}

std::optional<Location> location_of(const Graph& g, TensorId t) {
  std::vector<TensorId> views{t};  // from the result to the source
  while (g[views.back()].producer >= 0 && !g[views.back()].output &&
         is_view_op(node_of(g, g[views.back()].producer).op))
    views.push_back(node_of(g, g[views.back()].producer).inputs[0]);
  std::optional<Location> at = stored_by_itself(g, views.back());
  for (std::size_t i = views.size() - 1; i-- > 0;)
    at = seen_through(g, views[i], node_of(g, g[views[i]].producer), at);
  return at;
}

Storage::Storage(const Graph& graph) {
  const auto tensors = graph.tensors().size(), nodes = graph.nodes().size();
  locations_.resize(tensors);
  placed_.resize(tensors, false);
  folded_.resize(nodes, false);
  copies_.resize(nodes);
  parts_.resize(nodes);
  for (std::size_t t = 0; t < tensors; ++t) {
    const auto id = static_cast<TensorId>(t);
    locations_[t] = {id, graph.stride(id), 0, graph.type(id)};
  }
  find_parts(graph);
  place_in_results(graph);
  fold_views(graph);
}

void Storage::find_parts(const Graph& graph) {
  std::vector<bool> read(graph.tensors().size(), false);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& n = graph.nodes()[i];
    if (n.op == OpKind::concatenate) parts_[i] = parts_in_memory(graph, static_cast<NodeId>(i));
    if (!parts_[i].empty()) continue;
    for (TensorId t : n.inputs)
      if (t >= 0) read[static_cast<std::size_t>(t)] = true;
  }
  // Of a concatenation of concatenations nobody reads the inner ones.
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& n = graph.nodes()[i];
    folded_[i] = n.op == OpKind::concatenate && graph.is_virtual(n.outputs[0]) &&
                 !read[static_cast<std::size_t>(n.outputs[0])];
  }
}

// From the last node to the first, so that chains of movements end in the final buffer.
void Storage::place_in_results(const Graph& graph) {
  std::vector<int> uses(graph.tensors().size(), 0);
  std::vector<bool> reshaped(graph.tensors().size(), false);
  for (const auto& n : graph.nodes())
    for (TensorId t : n.inputs) {
      if (t < 0) continue;
      ++uses[static_cast<std::size_t>(t)];
      if (n.op == OpKind::reshape) reshaped[static_cast<std::size_t>(t)] = true;
    }
  // A tensor may move into where `result` lies when a kernel of ours writes it and nobody else
  // reads it. It is rounded to its own type and to the buffer's; a third type between them would be
  // lost.
  const auto can_move = [&](TensorId t, TensorId result) {
    const bool rounded =
        graph.type(result) == (*this)[result].type || graph.type(result) == graph.type(t);
    return rounded && graph.is_virtual(t) && uses[static_cast<std::size_t>(t)] == 1;
  };
  // What prepare() computes once, from constants alone, stays apart from what each call computes.
  std::vector<bool> varies(graph.tensors().size(), false);
  for (std::size_t t = 0; t < varies.size(); ++t)
    varies[t] = graph.is_input(static_cast<TensorId>(t)) && !graph.tensors()[t].constant;
  for (const auto& n : graph.nodes()) {
    const bool any = std::ranges::any_of(
        n.inputs, [&](TensorId t) { return t >= 0 && varies[static_cast<std::size_t>(t)]; });
    for (TensorId t : n.outputs)
      if (t >= 0 && any) varies[static_cast<std::size_t>(t)] = true;
  }
  // Others read a part where it lies, if nothing rounds it, and if it has whole lines of memory and
  // is not seen over other dims, which may need it packed. Results of the graph, which may have an
  // alias, are written last.
  const auto can_share = [&](TensorId t, TensorId result, int axis, std::int64_t start) {
    const Location& to = (*this)[result];
    const DataType type = graph.options().io;
    if (!graph.is_virtual(t) || !graph.is_virtual(to.root) ||
        !varies[static_cast<std::size_t>(t)] || placed_[static_cast<std::size_t>(t)] ||
        reshaped[static_cast<std::size_t>(t)] || graph.type(t) != type ||
        graph.type(result) != type || to.type != type ||
        is_view_op(node_of(graph, graph[t].producer).op))
      return false;
    const std::int64_t step = to.stride[axis] * info(type).bytes;
    return std::ranges::all_of(
        std::array{start, graph[t].dim[axis], graph[result].dim[axis]},
        [&](std::int64_t extent) { return extent * step % kSharedLine == 0; });
  };
  for (auto id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= 0; --id) {
    const Node& n = graph.nodes()[static_cast<std::size_t>(id)];
    if (folded_[static_cast<std::size_t>(id)] || !parts(id).empty()) continue;
    if (n.op == OpKind::concatenate) {
      const TensorId y = n.outputs[0];
      const Location& to = (*this)[y];
      const int axis = lowering::positive_axis(
          *std::get_if<ConcatenateAttributes>(&n.attributes)->axis, graph[y].dim);
      std::int64_t start = 0;
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        const TensorId x = n.inputs[i];
        if (can_move(x, y) || can_share(x, y, axis, start)) {
          auto& at = locations_[static_cast<std::size_t>(x)];
          at = to;
          at.offset += start * to.stride[axis];
          placed_[static_cast<std::size_t>(x)] = true;
        } else {
          copies_[static_cast<std::size_t>(id)].push_back(static_cast<int>(i));
        }
        start += graph[x].dim[axis];
      }
      folded_[static_cast<std::size_t>(id)] = copies_[static_cast<std::size_t>(id)].empty();
    } else if (is_view_op(n.op)) {
      const TensorId x = n.inputs[0], y = n.outputs[0];
      if (!graph[y].output && !placed_[static_cast<std::size_t>(y)]) continue;
      if (!can_move(x, y)) continue;
      if (auto from = source_of(graph[x].dim, n, graph[y].dim, (*this)[y])) {
        locations_[static_cast<std::size_t>(x)] = *from;
        placed_[static_cast<std::size_t>(x)] = true;
        folded_[static_cast<std::size_t>(id)] = true;
      }
    }
  }
}

void Storage::fold_views(const Graph& graph) {
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& n = graph.nodes()[i];
    if (!is_view_op(n.op) || folded_[i]) continue;
    const TensorId x = n.inputs[0], y = n.outputs[0];
    if (graph[y].output || placed_[static_cast<std::size_t>(y)]) continue;
    // Read as stored, and converted by the reader.
    if (!holds(graph.type(y), graph.type(x)) || !holds(graph.type(x), (*this)[x].type)) continue;
    if (placed_[static_cast<std::size_t>(x)] && (*this)[x].type != graph.type(x)) continue;
    if (graph[x].has_value) continue;
    if (auto to = view_of(graph[x].dim, n.attributes, graph[y].dim, (*this)[x])) {
      locations_[static_cast<std::size_t>(y)] = *to;
      folded_[i] = true;
    }
  }
}

}  // namespace sinter
