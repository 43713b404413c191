#include "planner/spec/contraction_space.hpp"

#include "sinter/ops/shapes_contraction.hpp"

namespace sinter {
namespace {

using Space = ContractionSpace;
using Cuts = ContractionCuts;

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

}  // namespace

int ContractionSpace::add(int& group, std::int64_t n_) {
  ++group;
  extent.push_back(n_);
  return extent.size() - 1;
}

int ContractionSpace::add_k(std::int64_t n_, KIndex what) {
  k_indices.push_back(what);
  extent.push_back(n_);
  return extent.size() - 1;
}

Coordinate ContractionSpace::add_cut(int& group, std::int64_t n_, std::int64_t block) {
  if (block == 0) return at_index(add(group, n_));
  const int outer = add(group, n_ / block), inner = add(group, block);
  return plus(at_index(outer, block), at_index(inner));
}

Coordinate ContractionSpace::add_cut_k(std::int64_t n_, std::int64_t block) {
  if (block == 0) return at_index(add_k(n_, KIndex::channels));
  const int outer = add_k(n_ / block, KIndex::scale_block), inner = add_k(block, KIndex::channels);
  return plus(at_index(outer, block), at_index(inner));
}

void ContractionSpace::finish() {
  for (auto* list : {&a_at, &b_at, &c_at})
    for (auto& c_ : *list)
      while (c_.coefficient.size() < extent.size()) c_.coefficient.push_back(0);
}

namespace {

Space matmul_space(const Graph& g, const Node& n, const Cuts& cuts) {
  Space s;
  s.a = n.inputs[0];
  s.b = n.inputs[1];
  s.c = n.outputs[0];
  const Dims &a = g[s.a].dim, &b = g[s.b].dim, &c = g[s.c].dim;
  const int rank = c.size();
  std::vector<Coordinate> batch_a, batch_b;
  for (int i = 0; i < rank - 2; ++i) {
    const auto x = detail::aligned(a, rank, i), y = detail::aligned(b, rank, i);
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

Space conv_space(const Graph& g, const Node& n, const Cuts& cuts) {
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
    image = s.add(cuts.images_apart ? s.batch : s.m, yd[0]);
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

}  // namespace

ContractionSpace contraction_space(const Graph& g, const Node& n, const ContractionCuts& cuts) {
  if (n.op == OpKind::matmul) return matmul_space(g, n, cuts);
  return n.op == OpKind::moe_grouped_matmul ? moe_space(g, n, cuts) : conv_space(g, n, cuts);
}

}  // namespace sinter
