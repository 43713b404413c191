// Makers of data movement and resampling.
#include <algorithm>

#include "support/random_graph_grower.hpp"

namespace sinter::test {
namespace {

bool is_image(const Dims& d) { return d.size() >= 3 && d.size() <= 6; }
bool any(const Dims&) { return true; }

// Windows over an image of dims x, and the pooled dims.
struct Pooling {
  ResampleAttributes a;
  Dims y;
};

Pooling draw_pooling(Grower& g, ResampleMode mode, const Dims& x) {
  auto& r = g.random;
  Pooling p;
  p.a.mode = mode;
  p.y = {x[0], x[1]};
  std::int64_t used = at_least_one(x[0]) * at_least_one(x[1]), taps = 1;
  const int spatial = x.size() - 2;
  for (int i = 0; i < spatial; ++i) {
    const auto extent = x[i + 2];
    auto window = taps > 64 ? 1 : r.pick({1, 2, 2, 3, 3, 4, 5, 7});
    if (r.chance(0.9))
      window = static_cast<int>(std::min<std::int64_t>(window, at_least_one(extent)));
    const auto pre = r.chance(0.4) ? r.between(0, r.chance(0.9) ? window - 1 : window + 1) : 0;
    const auto post = r.chance(0.4) ? r.between(0, r.chance(0.9) ? window - 1 : window + 1) : 0;
    auto stride = r.pick({1, 2, 2, 3, window});
    const auto slack = extent + pre + post - window;
    const auto room = Grower::room(g.most(), used);
    if (slack >= 0) stride = static_cast<int>(std::max<std::int64_t>(stride, slack / room + 1));
    if (extent > 0)
      stride = static_cast<int>(std::max<std::int64_t>(stride, -slack));  // else refused
    taps *= window;
    p.a.window.push_back(window);
    p.a.stride.push_back(stride);
    p.a.pre_padding.push_back(pre);
    p.a.post_padding.push_back(post);
    p.y.push_back(slack < 0 ? 0 : slack / stride + 1);
    used *= at_least_one(p.y.back());
  }
  const auto drop = [&](Dims& d, std::int64_t usual) {
    if (d == Dims::filled(spatial, usual) && r.chance(0.7)) d = {};
  };
  drop(p.a.stride, 1);
  drop(p.a.pre_padding, 0);
  drop(p.a.post_padding, 0);
  if (r.chance(0.4))
    p.a.padding_mode =
        r.pick({PaddingMode::neg_inf_pad, PaddingMode::zero_pad, PaddingMode::edge_val_pad});
  // The mean over padding of -inf is -inf; one graph in many is enough.
  if (p.a.padding_mode == PaddingMode::neg_inf_pad && mode != ResampleMode::maxpool &&
      r.chance(0.9))
    p.a.padding_mode = PaddingMode::zero_pad;
  return p;
}

std::int64_t window_elements(const ResampleAttributes& a) { return count(a.window); }

// A position within a window: the windows of i8 are short enough.
DataType index_type(Grower& g, const ResampleAttributes& a) {
  return window_elements(a) <= 128 && g.random.chance(0.4) ? i8 : i32;
}

// Dims of an interpolated image.
Dims scaled(Grower& g, const Dims& x) {
  Dims y{x[0], x[1]};
  std::int64_t used = at_least_one(x[0]) * at_least_one(x[1]);
  for (int i = 2; i < x.size(); ++i) {
    const auto room = Grower::room(g.most(), used);
    auto d = g.random.chance(0.5) ? x[i] * g.random.between(1, 3) : g.extent(room);
    d = x[i] == 0 ? 0 : std::min(d, room);
    y.push_back(d);
    used *= at_least_one(d);
  }
  return y;
}

Dims resampled_dims(Grower& g) { return g.dims(g.rank(3, 5), g.most()); }

}  // namespace

void grow_resample(Grower& g) {
  using R = ResampleMode;
  const R mode = g.exact() ? g.random.pick({R::maxpool, R::nearest})
                           : g.random.pick({R::maxpool, R::maxpool, R::avgpool_include_padding,
                                            R::avgpool_exclude_padding, R::bilinear, R::nearest});
  const TensorId x = g.primary(is_image, g.term_limit(), [&] { return resampled_dims(g); });
  if (!shapes::is_pooling(mode)) {
    g.add(OpKind::resample, ResampleAttributes{.mode = mode}, {x},
          {{true, scaled(g, g.dim(x)), DataType::none}, {false}}, g.magnitude(x));
    return;
  }
  Pooling p = draw_pooling(g, mode, g.dim(x));
  const bool index = mode == R::maxpool && !g.exact() && g.random.chance(0.5);
  if (g.random.chance(0.4)) p.a.generate_index = index;
  const auto ids =
      g.add(OpKind::resample, p.a, {x}, {{}, {index, {}, index_type(g, p.a)}}, g.magnitude(x));
  // The gradient that goes with it, through Index.
  if (!index || g.nodes_left() < 1 || !g.random.chance(0.5)) return;
  p.a.generate_index.reset();
  const bool with_x = g.random.chance(0.3);
  const TensorId dy = g.operand(g.dim(ids[0]));
  g.add(OpKind::resample_backward, p.a,
        {dy, with_x ? x : kNoTensor, g.random.chance(0.3) ? ids[0] : kNoTensor, ids[1]},
        {{true, with_x ? Dims{} : g.dim(x), DataType::none}});
}

void grow_resample_backward(Grower& g) {
  using R = ResampleMode;
  const R mode = g.random.pick({R::maxpool, R::maxpool, R::avgpool_include_padding,
                                R::avgpool_exclude_padding, R::bilinear, R::nearest});
  const bool known_x = g.random.chance(0.5);
  TensorId x = kNoTensor;
  Dims dx;
  if (known_x) {
    x = g.primary(is_image, g.term_limit(), [&] { return resampled_dims(g); });
    dx = g.dim(x);
  } else {
    dx = resampled_dims(g);
  }
  Pooling p;
  if (shapes::is_pooling(mode)) {
    p = draw_pooling(g, mode, dx);
  } else {
    p.a.mode = mode;
    p.y = scaled(g, dx);
  }
  TensorId index = kNoTensor;
  if (mode == R::maxpool && (!known_x || g.random.chance(0.3)))
    index = g.index_input(p.y, index_type(g, p.a));
  const TensorId dy = g.operand(p.y), y = g.random.chance(0.2) ? g.operand(p.y) : kNoTensor;
  g.add(OpKind::resample_backward, p.a, {dy, x, y, index},
        {{true, known_x && g.random.chance(0.7) ? Dims{} : dx, DataType::none}});
}

Dims channels_last(const Dims& d) {
  Dims stride = Dims::filled(d.size(), 1);
  std::int64_t step = d[1];
  for (int i = d.size(); i-- > 2; step *= d[i]) stride[i] = step;
  stride[0] = step;
  return stride;
}

Dims reshaped(Grower& g, const Dims& dim) {
  const auto n = count(dim);
  const int rank = g.rank(1, kMaxRank);
  Dims y = g.ones(rank);
  if (n == 0) {
    for (int i = 0; i < rank; ++i) y[i] = g.extent_from_one(Grower::room(g.most(), volume(y)));
    y[static_cast<int>(g.random.below(rank))] = 0;
    return y;
  }
  auto left = n;
  for (int i = 0; i + 1 < rank; ++i) {
    y[i] = g.divisor(left);
    left /= y[i];
  }
  y[rank - 1] = left;
  std::swap(y[static_cast<int>(g.random.below(rank))], y[rank - 1]);
  return y;
}

void grow_reshape(Grower& g) {
  const TensorId x = g.primary(any, g.term_limit(), [&] { return g.dims(); });
  const Dims y = reshaped(g, g.dim(x));
  const bool declared = g.random.chance(0.3);
  const bool both = g.random.chance(0.1);
  g.add(OpKind::reshape, ReshapeAttributes{.dim = declared && !both ? Dims{} : y}, {x},
        {{true, declared || both ? y : Dims{}, DataType::none}}, g.magnitude(x));
}

void grow_transpose(Grower& g) {
  const TensorId x = g.primary(any, g.term_limit(), [&] { return g.dims(); });
  TransposeAttributes a;
  for (int i = 0; i < g.dim(x).size(); ++i)
    a.permutation.insert(static_cast<int>(g.random.below(i + 1)), i);
  g.add(OpKind::transpose, a, {x}, {{}}, g.magnitude(x));
}

void grow_slice(Grower& g) {
  const TensorId x = g.primary(any, g.term_limit(), [&] { return g.dims(); });
  const Dims d = g.dim(x);
  SliceAttributes a;
  const bool steps = g.random.chance(0.4), empty = g.random.chance(0.04);
  for (int i = 0; i < d.size(); ++i) {
    const bool whole = g.random.chance(0.4);
    const auto start = whole ? 0 : g.random.between(0, std::max<std::int64_t>(d[i] - 1, 0));
    const auto least = empty ? start : std::min(start + 1, d[i]);
    a.start.push_back(start);
    a.limit.push_back(whole ? d[i] : g.random.between(least, d[i]));
    if (steps) a.step.push_back(g.random.chance(0.5) ? 1 : g.random.between(1, 5));
  }
  g.add(OpKind::slice, a, {x}, {{}}, g.magnitude(x));
}

void grow_concatenate(Grower& g) {
  // Parts that begin where 16 bytes do are read as one tensor.
  const std::int64_t unit = g.random.chance(0.5) && g.most() >= 256 ? 16 : 1;
  const auto fresh = [&] {
    if (unit == 1) return g.dims(g.rank(1, 8), g.most() / 2);
    Dims dims = g.dims(g.rank(1, 5), g.most() / 128);
    dims.push_back(unit * g.random.between(1, 2));
    return dims;
  };
  const TensorId first = unit > 1 ? g.input(fresh()) : g.primary(any, g.term_limit(), fresh);
  Dims d = g.dim(first);
  const auto axis = static_cast<int>(g.random.below(d.size()));
  Dims layer = d;  // one index along the axis
  layer[axis] = 1;
  const auto other = volume(layer);
  auto left = Grower::room(g.most(), other) - d[axis];
  const auto parts = g.random.chance(0.06) ? g.random.between(8, 40) : g.random.between(1, 4);
  std::vector<TensorId> in{first};
  double magnitude = g.magnitude(first);
  while (static_cast<std::int64_t>(in.size()) < parts && left > 0) {
    const bool again = g.random.chance(0.12) && d[axis] > 0 && g.dim(first)[axis] <= left;
    if (unit == 1)
      d[axis] = g.extent(std::min(left, at_least_one(g.most() / other / parts)));
    else if (axis + 1 < d.size())
      d[axis] = g.extent(std::min<std::int64_t>(left, 4));
    else
      d[axis] = std::min(left / unit, g.random.between(0, 2)) * unit;
    in.push_back(again ? first : g.operand(d, g.term_limit()));
    left -= std::max<std::int64_t>(g.dim(in.back())[axis], 1);
    magnitude = std::max(magnitude, g.magnitude(in.back()));
  }
  ConcatenateAttributes a;
  a.axis = g.random.chance(0.3) ? axis - d.size() : axis;
  if (g.random.chance(0.3)) std::rotate(in.begin(), in.begin() + 1, in.end());
  g.add(OpKind::concatenate, a, in, {{}}, magnitude);
}

}  // namespace sinter::test
