// Makers of matmul, the three convolutions and the grouped matmul.
#include <algorithm>

#include "support/random_graph_grower.hpp"

namespace sinter::test {
namespace {

// What contracting `length` products gives at most.
double sum_magnitude(const Grower& g, TensorId a, TensorId b, std::int64_t length) {
  return static_cast<double>(at_least_one(length)) * g.magnitude(a) * g.magnitude(b);
}

// Batch dims of the other operand: equal, 1, missing, dividing A's (B only), or larger where 1.
Dims other_batch(Grower& g, const Dims& batch, bool of_b, std::int64_t& used) {
  Dims other = batch;
  const double style = g.random.real(0, 1);
  for (int i = 0; i < batch.size(); ++i) {
    if (style < 0.4) break;
    if (batch[i] == 1 && g.random.chance(0.3)) {
      other[i] = g.extent_from_one(std::min<std::int64_t>(Grower::room(g.most(), used), 8));
      used *= other[i];
    } else if (of_b && batch[i] > 1 && g.random.chance(0.35)) {
      other[i] = g.divisor(batch[i]);  // grouped, or 1
    } else if (g.random.chance(0.3)) {
      other[i] = 1;
    }
  }
  if (!other.empty() && g.random.chance(0.25)) {  // leading batch dims left out
    Dims tail;
    const auto first = static_cast<int>(g.random.between(1, other.size()));
    for (int i = first; i < other.size(); ++i) tail.push_back(other[i]);
    other = tail;
  }
  return other;
}

Dims with_matrix(Dims batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

struct Convolution {
  ConvAttributes a;
  Dims x, w, y;
  std::int64_t products = 1;  // summed for one element of y
};

// One spatial dim: filter, dilation, paddings and stride, such that the output stays in `room`.
void draw_spatial(Grower& g, Convolution& c, std::int64_t x, std::int64_t room, bool usual) {
  auto& r = g.random;
  const auto filter = at_least_one(
      std::min<std::int64_t>(r.pick({1, 1, 2, 3, 3, 3, 4, 5, 7}), c.products > 64 ? 1
                                                                  : usual         ? at_least_one(x)
                                                                                  : 7));
  const auto dilation = r.chance(0.2) ? r.between(2, 3) : 1;
  const auto reach = dilation * (filter - 1) + 1;
  auto pre = r.chance(0.5) ? r.between(0, filter + (r.chance(0.1) ? 3 : 0)) : 0;
  auto post = r.chance(0.5) ? (r.chance(0.5) ? pre : r.between(0, filter)) : 0;
  auto stride = r.chance(0.3) ? r.between(2, 4) : 1;
  if (usual && x + pre + post < reach) post = reach - x - pre;  // else the output is empty
  const auto slack = x + pre + post - reach;
  if (slack >= 0) stride = std::max(stride, slack / at_least_one(room) + 1);
  if (x > 0) stride = std::max(stride, -slack);  // an output is empty, and not refused
  c.w.push_back(filter);
  c.a.pre_padding.push_back(pre);
  c.a.post_padding.push_back(post);
  c.a.stride.push_back(stride);
  c.a.dilation.push_back(dilation);
  c.y.push_back(slack < 0 ? 0 : slack / stride + 1);
  c.products *= filter;
}

// Filter and attributes for an image of dims x; absent attributes where they are the defaults.
Convolution draw_convolution(Grower& g, const Dims& x) {
  Convolution c;
  c.x = x;
  const int spatial = x.size() - 2;
  const bool usual = g.random.chance(0.93);
  c.w = {1, 1};
  c.y = {x[0], 1};
  std::int64_t used = at_least_one(x[0]);
  for (int i = 0; i < spatial; ++i) {
    draw_spatial(g, c, x[i + 2], Grower::room(g.most(), used), usual);
    used *= at_least_one(c.y.back());
  }
  if (g.random.chance(0.4)) c.a.groups = g.divisor(x[1]);
  if (x[1] > 0 && g.random.chance(0.1)) c.a.groups = x[1];  // depthwise
  const auto taps = c.products;
  const auto filters_room = [&] {
    c.w[1] = x[1] / c.a.groups;
    c.products = taps * at_least_one(c.w[1]);
    return std::min({Grower::room(g.most(), used), Grower::room(g.most(), c.products),
                     Grower::room(g.options().max_work, used * c.products)});
  };
  if (c.a.groups > filters_room()) c.a.groups = 1;
  const auto most = filters_room();
  c.w[0] = c.a.groups * g.extent_from_one(at_least_one(most / c.a.groups));
  c.y[1] = c.w[0];
  if (g.random.chance(0.2)) c.a.mode = ConvMode::convolution;
  const auto drop = [&](Dims& d, std::int64_t usual_value) {
    if (d == Dims::filled(spatial, usual_value) && g.random.chance(0.7)) d = {};
  };
  drop(c.a.pre_padding, 0);
  drop(c.a.post_padding, 0);
  drop(c.a.stride, 1);
  drop(c.a.dilation, 1);
  return c;
}

Dims image_dims(Grower& g) {
  const int spatial = g.random.chance(0.03) ? static_cast<int>(g.random.between(4, 6))
                                            : static_cast<int>(g.random.between(1, 3));
  Dims d = g.dims(spatial + 2, g.most());
  if (d[0] > 8 && g.random.chance(0.8)) std::swap(d[0], d.back());
  return d;
}

}  // namespace

void grow_matmul(Grower& g) {
  const auto matrix = [](const Dims& d) { return d.size() >= 2 && d.size() <= 6; };
  const TensorId first =
      g.primary(matrix, g.factor_limit(), [&] { return g.dims(g.rank(2, 5), g.most()); });
  const Dims d = g.dim(first);
  const bool is_a = g.random.chance(0.65);
  Dims batch;
  for (int i = 0; i + 2 < d.size(); ++i) batch.push_back(d[i]);
  const auto rows = d[d.size() - 2], columns = d.back();
  // Elements of the larger of the joined batch and what an operand holds of it.
  std::int64_t used = volume(batch) * at_least_one(std::max(rows, columns));
  const Dims other = other_batch(g, batch, is_a, used);
  used /= at_least_one(std::max(rows, columns));
  // A [M, K] wants B [K, N]; B [K, N] wants A [M, K].
  const auto k = is_a ? columns : rows, kept = is_a ? rows : columns;
  const auto most =
      std::min({Grower::room(g.most(), used * at_least_one(kept)),
                Grower::room(g.most(), volume(other) * at_least_one(k)),
                Grower::room(g.options().max_work, used * at_least_one(kept) * at_least_one(k))});
  const auto free = g.extent(most);
  const TensorId second =
      is_a ? g.operand(with_matrix(other, k, free)) : g.operand(with_matrix(other, free, k));
  const TensorId a = is_a ? first : second, b = is_a ? second : first;
  g.add(OpKind::matmul, MatmulAttributes{}, {a, b}, {{}}, sum_magnitude(g, a, b, k));
}

void grow_convolution(Grower& g) {
  const auto image = [](const Dims& d) { return d.size() >= 3 && d.size() <= 5; };
  const OpKind op = g.random.pick(
      {OpKind::conv_fprop, OpKind::conv_fprop, OpKind::conv_dgrad, OpKind::conv_wgrad});
  if (op == OpKind::conv_dgrad) {
    const Convolution c = draw_convolution(g, image_dims(g));
    const TensorId dy = g.operand(c.y), w = g.operand(c.w);
    g.add(op, c.a, {dy, w}, {{true, c.x, DataType::none}},
          sum_magnitude(g, dy, w, volume(c.w) / at_least_one(c.w[1])));
    return;
  }
  const TensorId x = g.primary(image, g.factor_limit(), [&] { return image_dims(g); });
  const Convolution c = draw_convolution(g, g.dim(x));
  if (op == OpKind::conv_wgrad) {
    const TensorId dy = g.operand(c.y);
    g.add(op, c.a, {dy, x}, {{true, c.w, DataType::none}},
          sum_magnitude(g, dy, x, volume(c.y) / at_least_one(c.y[1])));
    return;
  }
  const TensorId w = g.operand(c.w);
  g.add(op, c.a, {x, w}, {{true, g.random.chance(0.2) ? c.y : Dims{}, DataType::none}},
        sum_magnitude(g, x, w, c.products));
}

// Every expert may get any number of rows; the offsets are the values of an input.
void grow_moe(Grower& g) {
  MoeAttributes a;
  a.mode = g.random.pick({MoeMode::none, MoeMode::gather, MoeMode::scatter});
  const TensorId token =
      g.primary([](const Dims& d) { return d.size() == 3 && d[0] == 1; }, g.factor_limit(),
                [&] {
                  const Dims d = g.dims(2, g.most());
                  return Dims{1, d[0], d[1]};
                });
  const auto tokens = g.dim(token)[1], k = g.dim(token)[2];
  const auto experts = g.random.between(1, 8);
  std::int64_t rows = tokens;
  if (a.mode == MoeMode::gather && tokens > 0) {
    a.top_k = g.random.between(1, 3);
    rows = g.random.chance(0.7) ? std::min(tokens * a.top_k, g.most()) : g.extent(g.most());
  }
  const auto n = g.extent(
      std::min({Grower::room(g.most(), experts * at_least_one(k)),
                Grower::room(g.most(), at_least_one(rows)),
                Grower::room(g.options().max_work, at_least_one(rows) * at_least_one(k))}));
  const TensorId weight = g.operand({experts, k, n});
  const TensorId offsets = g.index_input({experts + 1}, g.integer_type());
  TensorId index = kNoTensor;
  if (a.mode != MoeMode::none)
    index = g.index_input(g.random.chance(0.6) ? Dims{rows} : Dims{1, rows, 1}, g.integer_type());
  g.add(OpKind::moe_grouped_matmul, a, {token, weight, offsets, index}, {{}},
        sum_magnitude(g, token, weight, k));
}

}  // namespace sinter::test
