#include "planner/spec/contraction_spec.hpp"

#include <algorithm>

#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"
#include "planner/rewrite/views.hpp"
#include "planner/spec/body_builder.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/contraction_space.hpp"
#include "planner/spec/domain.hpp"
#include "planner/spec/scales.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/held_type.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "sinter/ops/shapes_contraction.hpp"

namespace sinter {
namespace {

// The coordinates of the source that a chain of views shows as `operand`.
std::vector<Coordinate> through_views(const FusionState& state, TensorId operand, TensorId source,
                                      std::vector<Coordinate> at) {
  while (operand != source) {
    const Node& n = state.node(state.producer(operand));
    if (const auto* t = std::get_if<TransposeAttributes>(&n.attributes)) {
      auto from = at;
      for (std::size_t i = 0; i < at.size(); ++i)
        from[static_cast<std::size_t>(t->permutation[static_cast<int>(i)])] = at[i];
      at = from;
    } else if (n.op == OpKind::reshape) {
      const Graph& g = state.graph();
      const auto joined = joined_axes(g[n.inputs[0]].dim, g[n.outputs[0]].dim);
      std::vector<Coordinate> from;
      for (std::size_t i = 0; i < joined.size(); ++i) {
        if (joined[i] < 0) {
          from.push_back({.coefficient = Dims::filled(at[0].coefficient.size(), 0)});
          continue;
        }
        const Coordinate& whole = at[static_cast<std::size_t>(joined[i])];
        const bool first = i + 1 < joined.size() && joined[i + 1] == joined[i],
                   second = i > 0 && joined[i - 1] == joined[i];
        if (!first && !second) {
          from.push_back(whole);
          continue;
        }
        // Its index is in two parts, the outer one first.
        const Dims& c = whole.coefficient;
        const auto part_from = [&c](int i) {
          while (c[i] == 0) ++i;
          return i;
        };
        const int outer = part_from(0), part = second ? part_from(outer + 1) : outer;
        from.push_back(index_coordinate(c.size(), part));
      }
      at = from;
    } else {
      const auto& a = *std::get_if<SliceAttributes>(&n.attributes);
      for (std::size_t i = 0; i < at.size(); ++i) {
        const std::int64_t step = a.step.empty() ? 1 : a.step[static_cast<int>(i)];
        for (auto& c : at[i].coefficient) c *= step;
        at[i].base = at[i].base * step + a.start[static_cast<int>(i)];
      }
    }
    operand = n.inputs[0];
  }
  return at;
}

// Fills the body that gives one operand's element.
void operand_body(const FusionState& state, KernelSpec& spec, Body& body,
                  const std::vector<NodeId>& nodes, NodeId contraction, int port, TensorId operand,
                  const std::vector<Coordinate>& at) {
  const TensorId source = prologue_tensor(state, nodes, contraction, port);
  std::vector<NodeId> prologue;
  if (source >= 0) collect_ancestors(state, nodes, source, prologue);
  if (prologue.empty()) {
    BodyBuilder(state, spec, body, {}, state.graph()[operand].dim, at).value(operand);
    return;
  }
  BodyBuilder builder(state, spec, body, prologue, state.graph()[source].dim,
                      through_views(state, operand, source, at));
  builder.value_inside_windows(source);
}

// What the values of an operand may be rounded to (GRAPH_JSON.md): computed f32 operands to the
// 16-bit type that the graph's tensors have, f32 ones to tf32 where they are computed in it.
DataType operand_type(const Graph& g, const Node& n, TensorId operand) {
  const DataType type = g.type(operand), io = g.options().io;
  if (type != DataType::f32) return type;
  if (is_computed(g, operand) && (io == DataType::f16 || io == DataType::bf16)) return io;
  return g.compute(n) == DataType::tf32 ? DataType::tf32 : type;
}

}  // namespace

void collect_ancestors(const FusionState& state, const std::vector<NodeId>& nodes, TensorId t,
                       std::vector<NodeId>& found) {
  const NodeId p = state.producer(t);
  if (p < 0 || !contains(nodes, p) || contains(found, p)) return;
  found.push_back(p);
  for (TensorId x : state.node(p).inputs)
    if (x >= 0) collect_ancestors(state, nodes, x, found);
}

// Whether the node multiplies what it reads in the kernel of these nodes, or is a view for those
// that do: what else reads a factor needs it in memory.
static bool is_multiplied(const FusionState& state, const std::vector<NodeId>& nodes,
                          NodeId contraction, NodeId reader) {
  if (reader == contraction) return true;
  if (!contains(nodes, reader)) return false;
  const Node& n = state.node(reader);
  if (!is_view_op(n.op)) return is_contraction(n.op);
  const auto& readers = state.consumers(n.outputs[0]);
  return std::all_of(readers.begin(), readers.end(),
                     [&](NodeId r) { return is_multiplied(state, nodes, contraction, r); });
}

TensorId prologue_tensor(const FusionState& state, const std::vector<NodeId>& nodes,
                         NodeId contraction, int port) {
  const Graph& g = state.graph();
  const Node& n = state.node(contraction);
  const bool blocks = prologue_blocks(state, contraction, port).k > 0, windowed = !is_matmul(n.op),
             grouped = n.op == OpKind::moe_grouped_matmul;
  TensorId t = n.inputs[static_cast<std::size_t>(port)];
  if (n.inputs[0] == n.inputs[1]) return kNoTensor;
  bool shared = false;  // with the kernel's other product
  bool reshaped = false;
  while (true) {
    const auto& readers = state.consumers(t);
    if (!g.is_virtual(t) ||
        (readers.size() != 1 && !std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
           return is_multiplied(state, nodes, contraction, reader);
         })))
      return kNoTensor;
    shared |= readers.size() != 1;
    const NodeId p = state.producer(t);
    const Node& from = state.node(p);
    if (!is_view_op(from.op)) {
      if (from.op != OpKind::pointwise) return kNoTensor;
      const bool scales = std::any_of(from.inputs.begin(), from.inputs.end(), [&](TensorId x) {
        return x >= 0 && info(g.type(x)).bytes == 1;
      });
      // Others are computed once, and not for every group's rows.
      return (shared || grouped) && !scales ? kNoTensor : t;
    }
    // A view of a padded operand would need windows of windows.
    if (!state.storage().folded(p) || windowed) return kNoTensor;
    if (from.op == OpKind::reshape && (!blocks || reshaped)) return kNoTensor;
    if (g.type(t) != g.type(from.inputs[0])) return kNoTensor;
    reshaped |= from.op == OpKind::reshape;
    t = from.inputs[0];
  }
}

Blocks prologue_blocks(const FusionState& state, NodeId contraction, int port) {
  const Node& n = state.node(contraction);
  if (!is_matmul(n.op)) return {};
  const Graph& g = state.graph();
  TensorId t = n.inputs[static_cast<std::size_t>(port)];
  const int last = g[t].dim.size() - 1;
  int k = port == 0 ? last : last - 1, row = port == 0 ? last - 1 : last;  // axes
  while (g.is_virtual(t) && state.producer(t) >= 0) {
    const Node& view = state.node(state.producer(t));
    if (view.op == OpKind::reshape) {
      const Dims& from = g[view.inputs[0]].dim;
      const auto joined = joined_axes(from, g[t].dim);
      // The inner extent where the axis is joined of two.
      const auto inner = [&](int axis) -> std::int64_t {
        const auto at = std::find(joined.begin(), joined.end(), axis);
        if (at == joined.end() || at + 1 == joined.end() || at[1] != axis) return 0;
        return from[static_cast<int>(at - joined.begin()) + 1];
      };
      for (int axis = 0; axis < g[t].dim.size(); ++axis)
        if (axis != k && axis != row && inner(axis) > 0) return {};
      // A group's rows begin anywhere in a block of them.
      const bool cut_rows = port == 0 && inner(row) > 0;
      if (cut_rows && n.op == OpKind::moe_grouped_matmul) return {};
      return inner(k) > 0 ? Blocks{inner(k), inner(row)} : Blocks{};
    }
    const auto* transposed = std::get_if<TransposeAttributes>(&view.attributes);
    if (!transposed) return {};
    k = static_cast<int>(transposed->permutation[k]);
    row = static_cast<int>(transposed->permutation[row]);
    t = view.inputs[0];
  }
  return {};
}

bool only_accelerated(const FusionState& state, NodeId contraction, int port) {
  return state.node(contraction).op == OpKind::moe_grouped_matmul ||
         prologue_blocks(state, contraction, port).k > 0;
}

std::string epilogue_refuses(const FusionState& state, NodeId contraction, NodeId other) {
  const Node& n = state.node(other);
  if (state.node(contraction).op == OpKind::moe_grouped_matmul && n.op == OpKind::rng)
    return "rows of a grouped matmul are renumbered";
  return {};
}

namespace {

// Whether a value that is computed from the reduction's result is computed from another of the
// kernel's values as well.
bool meets_kernel_again(const FusionState& state, const std::vector<NodeId>& nodes,
                        NodeId reduction) {
  std::vector<NodeId> reached{reduction};
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (TensorId t : state.node(reached[i]).outputs)
      for (NodeId c : t < 0 ? std::vector<NodeId>{} : state.consumers(t)) {
        if (contains(reached, c)) continue;
        for (TensorId x : state.node(c).inputs)
          if (x >= 0 && state.producer(x) >= 0 && contains(nodes, state.producer(x)) &&
              state.producer(x) != reduction)
            return true;
        if (is_elementwise(state, c)) reached.push_back(c);
      }
  return false;
}

}  // namespace

Refusal product_refuses(const FusionState& state, const std::vector<NodeId>& nodes,
                        NodeId contraction, NodeId other) {
  const Graph& g = state.graph();
  const Node &first = state.node(contraction), &second = state.node(other);
  const auto dim = [&](TensorId t) { return g[t].dim; };
  const bool grouped = first.op == OpKind::moe_grouped_matmul;
  if ((first.op != OpKind::matmul && !grouped) || second.op != first.op ||
      first.inputs[0] != second.inputs[0])
    return std::string(name(second.op)) +
           " reads its operands from memory, and shares a kernel with a product of its kind and of "
           "the same left operand alone";
  if (grouped && (first.inputs[2] != second.inputs[2] || first.inputs[3] != second.inputs[3]))
    return "its groups of rows are others";
  for (NodeId n : nodes)
    if (n != contraction && is_contraction(state.node(n).op))
      return {"a kernel holds the sums of two products at most",
              "concatenate the right operands and make one product of them"};
  if (first.attributes != second.attributes || g.compute(first) != g.compute(second) ||
      dim(first.inputs[1]) != dim(second.inputs[1]))
    return {"its right operand differs in dims, or its attributes do",
            "concatenate the right operands and make one product of them"};
  return {};
}

namespace {

// Whether a reduction keeps the images of a convolution of 1 x 1 filters, and nothing else of their
// pixels (the largest of each image's points): images are a batch then, each with its own rows, of
// which it has enough for whole tiles.
bool keeps_images(const Graph& g, const Node& convolution, const Node& reduction) {
  if (convolution.op != OpKind::conv_fprop || reduction.op != OpKind::reduction) return false;
  constexpr std::int64_t kLeastRows = 256;
  const Dims &x = g[convolution.inputs[0]].dim, &y = g[convolution.outputs[0]].dim,
             &to = g[reduction.outputs[0]].dim;
  const shapes::ConvGeometry geo =
      shapes::conv_geometry(*std::get_if<ConvAttributes>(&convolution.attributes), x.size());
  std::int64_t rows = 1;
  bool plain =
      geo.groups == 1 && to.size() == y.size() && to[0] == y[0] && to[1] == y[1] && y[0] > 1;
  for (int i = 2; i < y.size() && plain; ++i) {
    rows *= y[i];
    plain = g[convolution.inputs[1]].dim[i] == 1 && geo.stride[i - 2] == 1 && y[i] == x[i] &&
            geo.pre[i - 2] == 0 && to[i] == 1;
  }
  return plain && rows >= kLeastRows;
}

}  // namespace

Refusal reduction_refuses(const FusionState& state, const std::vector<NodeId>& nodes,
                          NodeId contraction, NodeId reduction) {
  const Graph& g = state.graph();
  const Node& n = state.node(contraction);
  const Dims& from = g[state.node(reduction).inputs[0]].dim;
  const Dims& to = g[state.node(reduction).outputs[0]].dim;
  if (n.op == OpKind::moe_grouped_matmul) return "rows of a grouped matmul are renumbered";
  if (count(from) == 0) return "there are no results";
  if (from != g[n.outputs[0]].dim) return "it runs over other dims than the result's";
  ContractionCuts cuts;
  cuts.images_apart = keeps_images(g, n, state.node(reduction));
  // All reductions of a kernel run over the same rows.
  for (NodeId other : nodes)
    if (other != reduction && state.node(other).op == OpKind::reduction &&
        keeps_images(g, n, state.node(other)) != cuts.images_apart)
      return "the kernel's other reductions run over other rows";
  const ContractionSpace s = contraction_space(g, n, cuts);
  // An index is reduced where its axis is; axes of extent 1 are either.
  std::vector<int> reduced(static_cast<std::size_t>(s.extent.size()), -1);
  for (int axis = 0; axis < from.size(); ++axis)
    for (int i = 0; i < s.extent.size(); ++i)
      if (from[axis] > 1 && s.extent[i] > 1 &&
          s.c_at[static_cast<std::size_t>(axis)].coefficient[i] != 0)
        reduced[static_cast<std::size_t>(i)] = to[axis] == 1;
  int whole = 0;  // of m and n
  for (const bool columns : {false, true}) {
    const int begin = columns ? s.batch + s.m : s.batch, size = columns ? s.n : s.m;
    int yes = 0, no = 0;
    for (int i = begin; i < begin + size; ++i)
      if (const int r = reduced[static_cast<std::size_t>(i)]; r >= 0) ++(r ? yes : no);
    if (yes + no == 0) return "a product with one row or column is a sum along rows";
    if (yes > 0 && no > 0)
      return {"it reduces some of the axes of the result's rows or columns", "reduce all of them"};
    whole += yes > 0;
  }
  if (whole == 0) return "it reduces neither the result's rows nor its columns";
  if (meets_kernel_again(state, nodes, reduction))
    return "what it gives meets the kernel's results again: a rowwise kernel reads them once for "
           "both";
  return {};
}

NodeId contraction_of(const FusionState& state, const KernelSpec& spec) {
  return *std::find_if(spec.nodes.begin(), spec.nodes.end(),
                       [&](NodeId n) { return is_contraction(state.node(n).op); });
}

KernelSpec contraction_spec(const FusionState& state, const std::vector<NodeId>& nodes,
                            NodeId contraction) {
  const Graph& g = state.graph();
  const Node& n = state.node(contraction);
  ContractionCuts cuts;
  std::vector<NodeId> prologues;
  for (NodeId product : nodes)
    for (int port : {0, 1}) {
      if (!is_contraction(state.node(product).op)) continue;
      const TensorId t = prologue_tensor(state, nodes, product, port);
      if (t < 0 || !contains(nodes, state.producer(t))) continue;
      collect_ancestors(state, nodes, t, prologues);
      const Blocks blocks = prologue_blocks(state, product, port);
      cuts.k = std::max(cuts.k, blocks.k);
      (port == 0 ? cuts.m : cuts.n) = std::max(port == 0 ? cuts.m : cuts.n, blocks.row);
    }
  for (NodeId m : nodes) cuts.images_apart |= keeps_images(g, n, state.node(m));
  const ContractionSpace space = contraction_space(g, n, cuts);
  KernelSpec spec;
  spec.family = ContractionSpec{};
  spec.nodes = nodes;
  spec.extent = space.extent;
  ContractionSpec& c = spec.contraction();
  c.batch = space.batch;
  c.m = space.m;
  c.n = space.n;
  c.k_indices = space.k_indices;
  c.accumulate = g.arithmetic(n);
  c.a().type = operand_type(g, n, space.a);
  c.b().type = operand_type(g, n, space.b);
  if (const auto* a = std::get_if<MatmulAttributes>(&n.attributes))
    if (a->zero_dominates) c.zero_dominates = ZeroOf::a;
  operand_body(state, spec, c.a().body, nodes, contraction, 0, space.a, space.a_at);
  operand_body(state, spec, c.b().body, nodes, contraction, 1, space.b, space.b_at);

  std::vector<NodeId> epilogue;
  for (NodeId m : nodes)
    if (!contains(prologues, m)) epilogue.push_back(m);

  BodyBuilder body(state, spec, spec.body, epilogue, g[space.c].dim, space.c_at);
  const auto add_sums = [&](TensorId result) {
    Statement acc = statement(StatementKind::accumulator, c.accumulate, g[result].name);
    acc.dim = static_cast<int>(spec.body.statements.size());
    spec.body.statements.push_back(acc);
    body.define(result, acc.dim);
  };
  add_sums(space.c);
  for (NodeId other : nodes)
    if (other != contraction && is_contraction(state.node(other).op)) {
      const ContractionSpace second = contraction_space(g, state.node(other), cuts);
      Product paired;
      paired.b.type = c.b().type;
      operand_body(state, spec, paired.b.body, nodes, other, 1, second.b, second.b_at);
      c.products.push_back(std::move(paired));
      add_sums(second.c);
    }
  for (NodeId m : epilogue)
    for (TensorId t : state.node(m).outputs)
      if (t >= 0 && state.needed_outside(t, nodes))
        state.node(m).op == OpKind::reduction ? body.column(state.node(m)) : body.store(t);

  const DataType held_a = held_type(spec, c.a().body), held_b = held_type(spec, c.b().body);
  if (c.products.size() == 1 && multiplied_as_bytes(held_a, held_b) && !is_floating(held_a) &&
      sums_as_right_in_f32(spec, held_a, held_b))
    scale_in_f32(spec);

  if (const auto* a = std::get_if<MoeAttributes>(&n.attributes)) {
    const auto raw_port = [&](TensorId t) {
      Access access;
      access.stride = Dims::filled(spec.extent.size(), 0);
      return add_port(spec, g, t, state.storage()[t], access, false);
    };
    c.rows.on = true;
    c.rows.mode = a->mode;
    c.rows.offsets = raw_port(n.inputs[2]);
    if (a->mode != MoeMode::none) c.rows.index = raw_port(n.inputs[3]);
  }
  move_scales_behind_sums(spec);
  simplify_domain(spec);
  join_batches(spec, state.device());
  return spec;
}

}  // namespace sinter
