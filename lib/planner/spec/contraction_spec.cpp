#include "planner/spec/contraction_spec.hpp"

#include <algorithm>

#include "fusion_patterns/pattern.hpp"
#include "planner/rewrite/views.hpp"
#include "planner/spec/body_builder.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/spec/scales.hpp"
#include "sinter/ops/shapes_contraction.hpp"

namespace sinter {
namespace {

Coordinate at_index(int i, std::int64_t coefficient = 1, std::int64_t base = 0) {
  Coordinate c;
  c.coefficient = Dims::filled(i + 1, 0);
  c.coefficient[i] = coefficient;
  c.base = base;
  return c;
}
Coordinate at_zero() {
  Coordinate c;
  c.coefficient = {0};
  return c;
}
Coordinate plus(Coordinate a, const Coordinate& b) {
  while (a.coefficient.size() < b.coefficient.size()) a.coefficient.push_back(0);
  for (int i = 0; i < b.coefficient.size(); ++i) a.coefficient[i] += b.coefficient[i];
  a.base += b.base;
  return a;
}

// What indices are cut into; 0: nothing.
struct Cuts {
  std::int64_t m = 0, n = 0, k = 0;
};

// The iteration space of a contraction: extents of batch, m, n, k indices in this order, and for
// the operands a, b and the result, where each of their axes stands.
struct Space {
  Dims extent;
  int batch = 0, m = 0, n = 0;
  std::vector<KIndex> k_indices;
  TensorId a = kNoTensor, b = kNoTensor, c = kNoTensor;
  std::vector<Coordinate> a_at, b_at, c_at;

  int add(int& group, std::int64_t n_) {
    ++group;
    extent.push_back(n_);
    return extent.size() - 1;
  }
  int add_k(std::int64_t n_, KIndex what) {
    k_indices.push_back(what);
    extent.push_back(n_);
    return extent.size() - 1;
  }
  // One index, or two where it is cut.
  Coordinate add_cut(int& group, std::int64_t n_, std::int64_t block) {
    if (block == 0) return at_index(add(group, n_));
    const int outer = add(group, n_ / block), inner = add(group, block);
    return plus(at_index(outer, block), at_index(inner));
  }
  Coordinate add_cut_k(std::int64_t n_, std::int64_t block) {
    if (block == 0) return at_index(add_k(n_, KIndex::channels));
    const int outer = add_k(n_ / block, KIndex::scale_block),
              inner = add_k(block, KIndex::channels);
    return plus(at_index(outer, block), at_index(inner));
  }
  // Index lists grow while the space is built; coordinates are widened at the end.
  void finish() {
    for (auto* list : {&a_at, &b_at, &c_at})
      for (auto& c_ : *list)
        while (c_.coefficient.size() < extent.size()) c_.coefficient.push_back(0);
  }
};

Space matmul_space(const Graph& g, const Node& n, const Cuts& cuts) {
  Space s;
  s.a = n.inputs[0];
  s.b = n.inputs[1];
  s.c = n.outputs[0];
  const Dims &a = g[s.a].dim, &b = g[s.b].dim, &c = g[s.c].dim;
  const int rank = c.size();
  std::vector<Coordinate> batch_a, batch_b;
  for (int i = 0; i < rank - 2; ++i) {
    const auto x = aligned(a, rank, i), y = aligned(b, rank, i);
    if (y > 1 && x > y) {  // grouped: index = group * (x / y) + member
      const int group = s.add(s.batch, y), member = s.add(s.batch, x / y);
      s.c_at.push_back(plus(at_index(group, x / y), at_index(member)));
      batch_a.push_back(s.c_at.back());
      batch_b.push_back(at_index(group));
    } else {
      const int index = s.add(s.batch, c[i]);
      s.c_at.push_back(at_index(index));
      batch_a.push_back(x == 1 ? at_zero() : at_index(index));
      batch_b.push_back(y == 1 ? at_zero() : at_index(index));
    }
  }
  const Coordinate m = s.add_cut(s.m, c[rank - 2], cuts.m),
                   n_ = s.add_cut(s.n, c[rank - 1], cuts.n), k = s.add_cut_k(a.back(), cuts.k);
  s.a_at.assign(batch_a.begin() + (rank - a.size()), batch_a.end());
  s.b_at.assign(batch_b.begin() + (rank - b.size()), batch_b.end());
  s.a_at.push_back(m);
  s.a_at.push_back(k);
  s.b_at.push_back(k);
  s.b_at.push_back(n_);
  s.c_at.push_back(m);
  s.c_at.push_back(n_);
  s.finish();
  return s;
}

// A coordinate that cannot leave [0, extent) is no window.
Coordinate window(Coordinate c, std::int64_t divisor, std::int64_t extent, const Dims& extents) {
  std::int64_t low = c.base, high = c.base;
  for (int i = 0; i < c.coefficient.size(); ++i)
    (c.coefficient[i] < 0 ? low : high) += c.coefficient[i] * (extents[i] - 1);
  if (divisor == 1 && low >= 0 && high < extent) return c;
  c.divisor = divisor;
  c.extent = extent;
  c.window = true;
  return c;
}

Space conv_space(const Graph& g, const Node& n) {
  Space s;
  s.c = n.outputs[0];
  const bool fprop = n.op == OpKind::conv_fprop, dgrad = n.op == OpKind::conv_dgrad;
  const TensorId x = fprop ? n.inputs[0] : dgrad ? n.outputs[0] : n.inputs[1];
  const TensorId w = n.op == OpKind::conv_wgrad ? n.outputs[0] : n.inputs[1];
  const TensorId y = fprop ? n.outputs[0] : n.inputs[0];
  const Dims &xd = g[x].dim, &wd = g[w].dim, &yd = g[y].dim;
  const shapes::ConvGeometry geo =
      shapes::conv_geometry(*std::get_if<ConvAttributes>(&n.attributes), xd.size());
  const std::int64_t groups = geo.groups, kg = wd[0] / groups, cg = wd[1];

  // One index each for group, image, output channel and input channel within the group, output
  // position and filter position or, for dgrad, input position.
  int group = -1;
  if (groups > 1) group = s.add(s.batch, groups);
  const auto in_group = [&](int index, std::int64_t size) {
    return group < 0 ? at_index(index) : plus(at_index(group, size), at_index(index));
  };
  int image, out_channel, in_channel;
  std::vector<int> moving, filter;  // y's positions (dgrad: x's), filter positions
  const auto add_spatial = [&](int& size, const Dims& dim, std::vector<int>& list) {
    for (int i = 0; i < geo.spatial; ++i) list.push_back(s.add(size, dim[i + 2]));
  };
  const auto add_spatial_k = [&](KIndex what, const Dims& dim, std::vector<int>& list) {
    for (int i = 0; i < geo.spatial; ++i) list.push_back(s.add_k(dim[i + 2], what));
  };
  if (fprop) {
    image = s.add(s.m, yd[0]);
    add_spatial(s.m, yd, moving);
    out_channel = s.add(s.n, kg);
    in_channel = s.add_k(cg, KIndex::channels);
    add_spatial_k(KIndex::filter_tap, wd, filter);
  } else if (dgrad) {
    image = s.add(s.m, xd[0]);
    add_spatial(s.m, xd, moving);
    in_channel = s.add(s.n, cg);
    out_channel = s.add_k(kg, KIndex::channels);
    add_spatial_k(KIndex::filter_tap, wd, filter);
  } else {
    out_channel = s.add(s.m, kg);
    in_channel = s.add(s.n, cg);
    add_spatial(s.n, wd, filter);
    image = s.add_k(yd[0], KIndex::pixels);
    add_spatial_k(KIndex::pixels, yd, moving);
  }
  std::vector<Coordinate> x_at{at_index(image), in_group(in_channel, cg)},
      y_at{at_index(image), in_group(out_channel, kg)},
      w_at{in_group(out_channel, kg), at_index(in_channel)};
  for (int i = 0; i < geo.spatial; ++i) {
    const auto j = static_cast<std::size_t>(i);
    const std::int64_t d = geo.dilation[i], stride = geo.stride[i], last = wd[i + 2] - 1;
    // x = y * stride - pre + tap * dilation, where tap counts backwards in a flipped filter.
    const Coordinate tap = geo.flip ? at_index(filter[j], -d, last * d) : at_index(filter[j], d);
    if (dgrad) {
      Coordinate back = at_index(filter[j], -tap.coefficient.back(), geo.pre[i] - tap.base);
      back = plus(back, at_index(moving[j]));
      x_at.push_back(at_index(moving[j]));
      y_at.push_back(window(back, stride, yd[i + 2], s.extent));
    } else {
      Coordinate forth = plus(at_index(moving[j], stride, -geo.pre[i]), tap);
      x_at.push_back(window(forth, 1, xd[i + 2], s.extent));
      y_at.push_back(at_index(moving[j]));
    }
    w_at.push_back(at_index(filter[j]));
  }
  s.a = fprop ? x : y;
  s.b = n.op == OpKind::conv_wgrad ? x : w;
  s.a_at = fprop ? x_at : y_at;
  s.b_at = n.op == OpKind::conv_wgrad ? x_at : w_at;
  s.c_at = fprop ? y_at : dgrad ? x_at : w_at;
  s.finish();
  return s;
}

Space moe_space(const Graph& g, const Node& n, const Cuts& cuts) {
  Space s;
  s.a = n.inputs[0];
  s.b = n.inputs[1];
  s.c = n.outputs[0];
  const Dims &w = g[s.b].dim, &y = g[s.c].dim;
  const Coordinate e = at_index(s.add(s.batch, w[0])), m = at_index(s.add(s.m, y[1])),
                   n_ = s.add_cut(s.n, w[2], cuts.n), k = s.add_cut_k(w[1], cuts.k);
  s.a_at = {at_zero(), m, k};
  s.b_at = {e, k, n_};
  s.c_at = {at_zero(), m, n_};
  s.finish();
  return s;
}

Space space_of(const Graph& g, const Node& n, const Cuts& cuts = {}) {
  if (n.op == OpKind::matmul) return matmul_space(g, n, cuts);
  return n.op == OpKind::moe_grouped_matmul ? moe_space(g, n, cuts) : conv_space(g, n);
}

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

// What the values of an operand may be rounded to (GRAPH_JSON.md): virtual f32 operands to the
// 16-bit type that the graph's tensors have, f32 ones to tf32 where they are computed in it.
DataType operand_type(const Graph& g, const Node& n, TensorId operand) {
  const DataType type = g.type(operand), io = g.options().io;
  if (type != DataType::f32) return type;
  if (g.is_virtual(operand) && (io == DataType::f16 || io == DataType::bf16)) return io;
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

TensorId prologue_tensor(const FusionState& state, const std::vector<NodeId>& nodes,
                         NodeId contraction, int port) {
  const Graph& g = state.graph();
  const Node& n = state.node(contraction);
  const bool blocks = prologue_blocks(state, contraction, port).k > 0, windowed = !is_matmul(n.op),
             grouped = n.op == OpKind::moe_grouped_matmul;
  TensorId t = n.inputs[static_cast<std::size_t>(port)];
  if (n.inputs[0] == n.inputs[1]) return kNoTensor;
  bool shared = false;  // with the kernel's other product
  while (true) {
    const auto& readers = state.consumers(t);
    const auto inside = [&](NodeId reader) {
      return reader == contraction || contains(nodes, reader);
    };
    if (!g.is_virtual(t) ||
        (readers.size() != 1 && !std::all_of(readers.begin(), readers.end(), inside)))
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
    if (from.op == OpKind::reshape && !blocks) return kNoTensor;
    if (g.type(t) != g.type(from.inputs[0])) return kNoTensor;
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
    const auto* turned = std::get_if<TransposeAttributes>(&view.attributes);
    if (!turned) return {};
    k = static_cast<int>(turned->permutation[k]);
    row = static_cast<int>(turned->permutation[row]);
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

std::string product_refuses(const FusionState& state, const std::vector<NodeId>& nodes,
                            NodeId contraction, NodeId other) {
  const Graph& g = state.graph();
  const Node &first = state.node(contraction), &second = state.node(other);
  const auto dim = [&](TensorId t) { return g[t].dim; };
  const bool grouped = first.op == OpKind::moe_grouped_matmul;
  if ((first.op != OpKind::matmul && !grouped) || second.op != first.op ||
      first.inputs[0] != second.inputs[0])
    return "it reads its operands from memory";
  if (grouped && (first.inputs[2] != second.inputs[2] || first.inputs[3] != second.inputs[3]))
    return "its groups of rows are others";
  for (NodeId n : nodes)
    if (n != contraction && is_contraction(state.node(n).op))
      return "a kernel holds the sums of two products at most";
  if (first.attributes != second.attributes || g.compute(first) != g.compute(second) ||
      dim(first.inputs[1]) != dim(second.inputs[1]))
    return "its right operand differs in dims, or its attributes do";
  return {};
}

std::string reduction_refuses(const FusionState& state, const std::vector<NodeId>& nodes,
                              NodeId contraction, NodeId reduction) {
  const Graph& g = state.graph();
  const Node& n = state.node(contraction);
  const Dims& from = g[state.node(reduction).inputs[0]].dim;
  const Dims& to = g[state.node(reduction).outputs[0]].dim;
  if (n.op == OpKind::moe_grouped_matmul) return "rows of a grouped matmul are renumbered";
  if (count(from) == 0) return "there are no results";
  if (from != g[n.outputs[0]].dim) return "it runs over other dims than the result's";
  const Space s = space_of(g, n);
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
    if (yes > 0 && no > 0) return "it reduces some of the axes of the result's rows or columns";
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
  Cuts cuts;
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
  const Space space = space_of(g, n, cuts);
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
    if (a->annihilating_zero) c.zero_dominates = ZeroOf::a;
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
      const Space second = space_of(g, state.node(other), cuts);
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
