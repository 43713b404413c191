// One function a primitive, from a box of the result to a box of an operand. Where an operand is
// reached through data (tables, token indices), the box holds all that the data may name.
#include "reference/regions.hpp"

#include <algorithm>

#include "reference/resample_axis.hpp"
#include "sinter/ops/shapes_contraction.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter::reference {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// NumPy broadcasting; a batch extent that divides the result's is grouped.
void broadcast_axis(Box& in, int i, std::int64_t extent, const Box& out, int o, std::int64_t full) {
  if (extent == full) return in.set(i, out.first[o], out.end(o));
  if (extent == 1) return in.set(i, 0, 1);
  const std::int64_t group = full / extent;
  in.set(i, out.first[o] / group, (out.end(o) - 1) / group + 1);
}

Box broadcast_region(const Dims& dim, const Dims& full, const Box& out) {
  Box in = Box::whole(dim);
  for (int i = 0; i < dim.size(); ++i) {
    const int o = full.size() - dim.size() + i;
    broadcast_axis(in, i, dim[i], out, o, full[o]);
  }
  return in;
}

Box matmul_region(const Dims& dim, int port, const Dims& full, const Box& out) {
  Box in = Box::whole(dim);
  for (int i = 0; i < dim.size() - 2; ++i) {
    const int o = full.size() - dim.size() + i;
    broadcast_axis(in, i, dim[i], out, o, full[o]);
  }
  const int rows = dim.size() - 2, columns = dim.size() - 1;
  const int contracted = port == 0 ? columns : rows, kept = port == 0 ? rows : columns;
  const int o = full.size() - (port == 0 ? 2 : 1);
  in.set(contracted, 0, dim[contracted]);
  in.set(kept, out.first[o], out.end(o));
  return in;
}

// Channels [begin, end) to the channels of the other tensor that belong to the same groups.
void same_groups(Box& in, int axis, std::int64_t begin, std::int64_t end, std::int64_t per_group,
                 std::int64_t per_group_in) {
  in.set(axis, begin / per_group * per_group_in, ((end - 1) / per_group + 1) * per_group_in);
}
// Channels to positions within their group.
void within_group(Box& in, int axis, std::int64_t begin, std::int64_t end, std::int64_t per_group) {
  if (begin / per_group == (end - 1) / per_group)
    in.set(axis, begin % per_group, (end - 1) % per_group + 1);
}

Box conv_region(const Graph& graph, const Node& node, int port, const Box& out) {
  const Dims &dim = graph[node.inputs[static_cast<std::size_t>(port)]].dim,
             &first = graph[node.inputs[0]].dim, &second = graph[node.inputs[1]].dim,
             &result = graph[node.outputs[0]].dim;
  const auto g = shapes::conv_geometry(std::get<ConvAttributes>(node.attributes), dim.size());
  Box in = Box::whole(dim);
  const Dims& w = node.op == OpKind::conv_wgrad ? result : second;
  const std::int64_t filters = std::max<std::int64_t>(w[0] / g.groups, 1), channels = w[1];
  if (channels == 0) return in;
  if (node.op == OpKind::conv_wgrad) {
    if (port == 0) in.set(1, out.first[0], out.end(0));
    return in;
  }
  if (port == 1) {  // the filter
    if (node.op == OpKind::conv_fprop) {
      in.set(0, out.first[1], out.end(1));
    } else {
      same_groups(in, 0, out.first[1], out.end(1), channels, filters);
      within_group(in, 1, out.first[1], out.end(1), channels);
    }
    return in;
  }
  in.set(0, out.first[0], out.end(0));
  const bool forward = node.op == OpKind::conv_fprop;
  same_groups(in, 1, out.first[1], out.end(1), forward ? filters : channels,
              forward ? channels : filters);
  for (int i = 0; i < g.spatial; ++i) {
    const std::int64_t reach = g.dilation[i] * (w[i + 2] - 1), low = out.first[i + 2],
                       high = out.end(i + 2) - 1;
    if (forward)
      in.clip(i + 2, low * g.stride[i] - g.pre[i], high * g.stride[i] - g.pre[i] + reach + 1,
              first[i + 2]);
    else
      in.clip(i + 2, floor_div(low + g.pre[i] - reach, g.stride[i]),
              floor_div(high + g.pre[i], g.stride[i]) + 1, first[i + 2]);
  }
  return in;
}

// Both dim lists are cut into the shortest groups of axes with equal products; each group is mapped
// on its own through the range of its row-major indices.
Box reshape_region(const Dims& x, const Dims& y, const Box& out) {
  Box in = Box::whole(x);
  int i = 0, o = 0;
  while (i < x.size() || o < y.size()) {
    const int i0 = i, o0 = o;
    std::int64_t a = i < x.size() ? x[i++] : 1, b = o < y.size() ? y[o++] : 1;
    while (a != b) {
      if (a < b && i < x.size())
        a *= x[i++];
      else if (o < y.size())
        b *= y[o++];
      else
        return in;
    }
    std::int64_t low = 0, high = 0;
    for (int j = o0; j < o; ++j) {
      low = low * y[j] + out.first[j];
      high = high * y[j] + out.end(j) - 1;
    }
    Dims part, from, to;
    for (int j = i0; j < i; ++j) part.push_back(x[j]);
    from = coordinates(low, part);
    to = coordinates(high, part);
    for (int j = i0; j < i; ++j) {
      in.set(j, from[j - i0], to[j - i0] + 1);
      if (from[j - i0] != to[j - i0]) break;  // the axes after the first that varies are whole
    }
  }
  return in;
}

Box slice_region(const SliceAttributes& a, const Dims& x, const Box& out) {
  Box in = Box::whole(x);
  for (int i = 0; i < x.size(); ++i) {
    const std::int64_t step = a.step.empty() ? 1 : a.step[i];
    in.set(i, a.start[i] + out.first[i] * step, a.start[i] + (out.end(i) - 1) * step + 1);
  }
  return in;
}

Box concatenate_region(const Graph& graph, const Node& node, int port, const Dims& x,
                       const Box& out) {
  int axis = static_cast<int>(*std::get<ConcatenateAttributes>(node.attributes).axis);
  if (axis < 0) axis += x.size();
  std::int64_t before = 0;
  for (int i = 0; i < port; ++i)
    before += graph[node.inputs[static_cast<std::size_t>(i)]].dim[axis];
  Box in = out;
  in.clip(axis, out.first[axis] - before, out.end(axis) - before, x[axis]);
  return in;
}

Box resample_region(const Node& node, int port, const Dims& dim, const Dims& full, const Box& out) {
  const bool forward = node.op == OpKind::resample;
  if (!forward && (port == 1 || port == 2)) return {out.first, Dims::filled(out.rank(), 0)};
  Box in = out;
  for (int i = 2; i < dim.size(); ++i) {
    const ResampleAxis axis(std::get<ResampleAttributes>(node.attributes), dim.size(), i,
                            forward ? dim[i] : full[i], forward ? full[i] : dim[i]);
    const auto [begin, end] =
        forward ? axis.sources(out.first[i], out.end(i)) : axis.windows(out.first[i], out.end(i));
    in.clip(i, begin, end, dim[i]);
  }
  return in;
}

Box paged_region(const Dims& dim, int port, const Dims& x, const Box& out) {
  Box in = Box::whole(dim);
  if (port == 0) {
    in.set(1, out.first[1], out.end(1));
    in.set(3, out.first[3], out.end(3));
  } else {
    in.set(0, out.first[0], out.end(0));
    in.set(2, out.first[2] / x[2], (out.end(2) - 1) / x[2] + 1);
  }
  return in;
}

Box moe_region(const Dims& dim, int port, const MoeAttributes& a, const Box& out) {
  Box in = Box::whole(dim);
  if (port == 0 && a.mode == MoeMode::none) in.set(1, out.first[1], out.end(1));
  if (port == 1) in.set(2, out.first[2], out.end(2));
  return in;
}

}  // namespace

Box needed_region(const Graph& graph, const Node& node, int input, int output, const Box& out) {
  const Dims& dim = graph[node.inputs[static_cast<std::size_t>(input)]].dim;
  const Dims& full = graph[node.outputs[static_cast<std::size_t>(output)]].dim;
  if (count(dim) == 0 || out.volume() == 0)
    return {Dims::filled(dim.size(), 0), Dims::filled(dim.size(), 0)};
  switch (node.op) {
    case OpKind::pointwise:
      return broadcast_region(dim, full, out);
    case OpKind::matmul:
      return matmul_region(dim, input, full, out);
    case OpKind::conv_fprop:
    case OpKind::conv_dgrad:
    case OpKind::conv_wgrad:
      return conv_region(graph, node, input, out);
    case OpKind::moe_grouped_matmul:
      return moe_region(dim, input, std::get<MoeAttributes>(node.attributes), out);
    case OpKind::reduction: {
      Box in = out;
      for (int i = 0; i < dim.size(); ++i)
        if (full[i] != dim[i]) in.set(i, 0, dim[i]);
      return in;
    }
    case OpKind::reshape:
      return reshape_region(dim, full, out);
    case OpKind::transpose: {
      Box in = out;
      const Dims& p = std::get<TransposeAttributes>(node.attributes).permutation;
      for (int i = 0; i < p.size(); ++i) in.set(static_cast<int>(p[i]), out.first[i], out.end(i));
      return in;
    }
    case OpKind::slice:
      return slice_region(std::get<SliceAttributes>(node.attributes), dim, out);
    case OpKind::concatenate:
      return concatenate_region(graph, node, input, dim, out);
    case OpKind::resample:
    case OpKind::resample_backward:
      return resample_region(node, input, dim, full, out);
    case OpKind::page_gather:
      return paged_region(dim, input, graph[node.inputs[0]].dim, out);
    default:
      return Box::whole(dim);  // scalars, and masks of one bit a tile
  }
}

}  // namespace sinter::reference
