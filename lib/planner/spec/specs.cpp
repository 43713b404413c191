// The kernels of the pointwise, rowwise and data-movement patterns.
#include <algorithm>

#include "lower/expansion.hpp"
#include "lower/op_kinds.hpp"
#include "plan/access.hpp"
#include "planner/match/pattern.hpp"
#include "planner/spec/body_builder.hpp"
#include "planner/spec/domain.hpp"
#include "reference/element.hpp"

namespace sinter {
namespace {

std::vector<Coordinate> identity_coordinates(int rank) {
  std::vector<Coordinate> c;
  for (int i = 0; i < rank; ++i) c.push_back(index_coordinate(rank, i));
  return c;
}

// Stores every result that somebody outside the kernel reads.
void store_results(const FusionState& state, const std::vector<NodeId>& nodes, BodyBuilder& body,
                   const std::vector<NodeId>& columns = {}) {
  for (NodeId n : nodes)
    for (TensorId t : state.node(n).outputs)
      if (t >= 0 && state.needed_outside(t, nodes))
        contains(columns, n) ? body.column(state.node(n)) : body.store(t);
}

// Segments stay neighbours along the last index, whichever others are joined with it.
bool segments_lie_along(const KernelSpec& spec) {
  const int last = spec.extent.size() - 1;
  return std::ranges::all_of(spec.ports, [&](const KernelPort& p) {
    const Dims& stride = p.access.stride;
    if (!p.access.via.empty() || !p.access.windows.empty() || stride[last] > 1) return false;
    for (int i = outer_rank(spec); i < last; ++i)
      if (stride[last] == 1 && stride[i] != 0 && stride[i] < spec.extent[last]) return false;
    return true;
  });
}

}  // namespace

Dims dims_of_segments(const Dims& full) {
  Dims d = full;
  if (d.size() > 0) d[d.size() - 1] = 1;
  return d;
}

bool reduces_segments(const Graph& g, const Node& n, const Dims& full, const Dims& kept) {
  const Dims segments = dims_of_segments(full);
  return n.op == OpKind::reduction && g[n.inputs[0]].dim == full &&
         g[n.outputs[0]].dim == segments && count(full) > count(segments) &&
         count(segments) > count(kept) && kept.back() == 1;
}

KernelSpec pointwise_spec(const FusionState& state, const std::vector<NodeId>& nodes) {
  const Graph& g = state.graph();
  KernelSpec spec;
  spec.nodes = nodes;
  // The domain has the rank of a gather where there is one, since its indices are the node's.
  NodeId shape = nodes.front();
  for (NodeId n : nodes)
    if (reads_from_memory(state.node(n).op)) shape = n;
  spec.extent = g[state.node(shape).outputs[0]].dim;
  BodyBuilder body(state, spec, spec.body, nodes, spec.extent,
                   identity_coordinates(spec.extent.size()));
  store_results(state, nodes, body);
  simplify_domain(spec);
  join_pairs(spec);
  return spec;
}

KernelSpec rowwise_spec(const FusionState& state, const std::vector<NodeId>& nodes, NodeId anchor) {
  const Graph& g = state.graph();
  const Dims full = g[state.node(anchor).inputs[0]].dim,
             kept = g[state.node(anchor).outputs[0]].dim;
  KernelSpec spec;
  spec.family = RowwiseSpec{};
  spec.nodes = nodes;
  std::vector<NodeId> columns;
  const Dims segments = dims_of_segments(full);
  bool segmented = false;
  for (NodeId n : nodes) {
    if (state.node(n).op != OpKind::reduction) continue;
    if (g[state.node(n).outputs[0]].dim == kept) continue;
    if (reduces_segments(g, state.node(n), full, kept))
      segmented = true;
    else
      columns.push_back(n);
  }
  // The axes of X: first those that the rows keep, of these last what the columns keep, too.
  const auto place = [&](int i) {
    if (full[i] != kept[i]) return 2;
    return !columns.empty() && g[state.node(columns[0]).outputs[0]].dim[i] != 1 ? 1 : 0;
  };
  std::vector<int> order;
  for (const int at : {0, 1, 2})
    for (int i = 0; i < full.size(); ++i)
      if (place(i) == at) {
        order.push_back(i);
        if (at < 2) ++spec.rowwise().outer_rank;
        spec.extent.push_back(full[i]);
      }
  std::vector<Coordinate> coordinates(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    coordinates[static_cast<std::size_t>(order[i])] =
        index_coordinate(full.size(), static_cast<int>(i));
  BodyBuilder body(state, spec, spec.body, nodes, full, coordinates);
  if (segmented) {
    int phase = 0;  // behind all reductions of whole rows
    for (NodeId n : nodes)
      if (const Node& r = state.node(n);
          r.op == OpKind::reduction && g[r.outputs[0]].dim == kept && kept != segments) {
        const auto v = static_cast<std::size_t>(body.value(r.outputs[0]));
        phase = std::max(phase, spec.body.statements[v].phase);
      }
    body.reduce_segments(segments, phase);
    spec.rowwise().segment = full[full.size() - 1];
  }
  store_results(state, nodes, body, columns);
  for (std::size_t i = 0; i < order.size(); ++i)
    if (place(order[i]) == 0)
      for (auto& c : spec.cross_row_reductions) c.result.access.stride[static_cast<int>(i)] = 0;
  RowwiseSpec& r = spec.rowwise();
  for (const auto& s : spec.body.statements) r.phases = std::max(r.phases, s.phase + 1);
  if (segmented && !segments_lie_along(spec)) r.segment = -1;
  simplify_domain(spec);
  return spec;
}

namespace {

// y[index] = x[index], where the two may have different accesses over one domain.
KernelSpec copy_spec(const FusionState& state, NodeId n, TensorId x, const Access& from, TensorId y,
                     const Location& to, const Dims& domain) {
  const Graph& g = state.graph();
  KernelSpec spec;
  spec.nodes = {n};
  spec.extent = domain;
  const Location& at = state.storage()[x];
  Statement load;
  load.kind = StatementKind::load;
  load.arithmetic = fits_f32(at.type) ? DataType::f32 : DataType::f64;
  load.label = g[x].name;
  if (g[x].has_value) {
    load.kind = StatementKind::scalar;
    load.port = 0;
    spec.scalars.push_back(
        {x, g[x].name, at.type, round_to(at.type, g[x].value), g[x].integer_value});
  } else {
    load.port = add_port(spec, g, x, at, from, false);
  }
  Statement store = load;
  store.kind = StatementKind::store;
  store.label = g[y].name;
  store.args = {0};
  Access written;
  written.offset = to.offset;
  written.stride = to.stride;
  store.port = add_port(spec, g, y, to, written, true);
  spec.body.statements.push_back(load);
  // Stored narrower than its own type, the value is first rounded to its own.
  if (to.type != g.type(y) && g.type(y) != g.type(x)) {
    Statement convert = load;
    convert.kind = StatementKind::convert;
    convert.port = -1;
    convert.args.assign(1, 0);  // of {0}, g++ 14 warns that it is out of bounds
    convert.type = g.type(y);
    convert.arithmetic = fits_f32(g.type(y)) ? DataType::f32 : DataType::f64;
    spec.body.statements.push_back(convert);
    store.args = {1};
  }
  spec.body.statements.push_back(store);
  simplify_domain(spec);
  join_pairs(spec);
  return spec;
}

}  // namespace

std::vector<KernelSpec> data_movement_specs(const FusionState& state, NodeId id) {
  const Graph& g = state.graph();
  const Node& n = state.node(id);
  const TensorId y = n.outputs[0];
  const Dims& dim = g[y].dim;
  const Location& to = state.storage()[y];
  const Location& from = state.storage()[n.inputs[0]];
  std::vector<KernelSpec> specs;
  if (is_view_op(n.op)) {
    const auto view = view_of(g[n.inputs[0]].dim, n.attributes, dim, from);
    Access a;
    a.offset = view ? view->offset : from.offset;
    a.stride = view ? view->stride : from.stride;
    if (!view) a.via = g[n.inputs[0]].dim;
    specs.push_back(copy_spec(state, id, n.inputs[0], a, y, to, dim));
  } else {
    const int axis =
        lowering::positive_axis(*std::get_if<ConcatenateAttributes>(&n.attributes)->axis, dim);
    std::int64_t start = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const TensorId x = n.inputs[i];
      const auto& copies = state.storage().copies(id);
      if (next < copies.size() && copies[next] == static_cast<int>(i)) {
        ++next;
        Location part = to;
        part.offset += start * to.stride[axis];
        Access whole;
        whole.offset = state.storage()[x].offset;
        whole.stride = state.storage()[x].stride;
        if (count(g[x].dim) > 0) specs.push_back(copy_spec(state, id, x, whole, y, part, g[x].dim));
      }
      start += g[x].dim[axis];
    }
  }
  return specs;
}

}  // namespace sinter
