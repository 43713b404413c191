// Makers of what planning takes together across products: sums of products, chains of two, factors
// that are dequantised, halves of products, pooled convolutions; and of rows that others lie
// across.
#include <algorithm>

#include "support/random_graph_steps.hpp"

namespace sinter::test {
namespace {

using M = PointwiseMode;

// [.., k, n], stored so or as its transpose.
TensorId weights(Steps& s, std::int64_t k, std::int64_t n, int batch_dims) {
  Dims rest = Dims::filled(batch_dims, 1);
  Dims d = rest, turned = rest;
  d.push_back(k), d.push_back(n);
  turned.push_back(n), turned.push_back(k);
  if (s.g.random.chance(0.5)) return s.g.operand(d);
  return batch_dims == 1 ? s.transpose(s.g.operand(turned), {0, 2, 1})
                         : s.transpose(s.g.operand(turned), {1, 0});
}

std::int64_t rows_of(Grower& g, std::int64_t widest) {
  return g.extent_from_one(std::max<std::int64_t>(g.most() / widest, 1));
}

}  // namespace

// x W + z V and more of them, of operands of their own or of one, with biases and factors; and
// low-rank updates x W + s (x A) B.
void grow_sums_of_products(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const int batch_dims = r.chance(0.3) ? 0 : 1;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return batch_dims ? Dims{1, rows, columns} : Dims{rows, columns};
  };
  const auto width = [&] { return r.pick<std::int64_t>({8, 16, 24, 32, 64, 72, 40, 20}); };
  const std::int64_t n = width(), rows = rows_of(g, 72);
  const std::int64_t first = width();
  const TensorId x = g.operand(matrix(rows, first));
  TensorId sum = s.matmul(x, weights(s, first, n, batch_dims));
  if (r.chance(0.3)) sum = s.pointwise(M::add, {sum, g.operand(matrix(1, n))});
  for (auto more = r.between(1, 3); more > 0; --more) {
    TensorId next;
    if (r.chance(0.3)) {
      const std::int64_t rank = r.pick<std::int64_t>({4, 8, 16, 24});
      next = s.matmul(s.matmul(x, weights(s, first, rank, batch_dims)),
                      weights(s, rank, n, batch_dims));
    } else {
      const std::int64_t k = width();
      const bool same = k == first && r.chance(0.5);
      next = s.matmul(same ? x : g.operand(matrix(rows, k)), weights(s, k, n, batch_dims));
    }
    if (r.chance(0.3)) next = s.pointwise(M::add, {next, g.operand(matrix(1, n))});
    if (r.chance(0.3)) next = s.pointwise(M::mul, {next, s.number(r.pick({0.5, 2.0, 0.3}))});
    sum = r.chance(0.9) ? s.pointwise(M::add, {sum, next}) : s.pointwise(M::sub, {sum, next});
  }
  if (r.chance(0.4)) sum = s.activation(sum);
  if (r.chance(0.4)) s.narrowed(sum);
}

// f(A B) C.
void grow_chained(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const auto width = [&] { return r.pick<std::int64_t>({8, 16, 32, 64, 24, 40, 128, 200}); };
  const std::int64_t k = width(), n = width(), p = width();
  const std::int64_t rows = rows_of(g, std::max({k, n, p}));
  const std::int64_t batch = r.chance(0.6) ? 1 : r.between(2, 3);
  TensorId y = s.matmul(g.operand({batch, rows, k}),
                        batch == 1 ? weights(s, k, n, 1) : g.operand({batch, k, n}));
  if (r.chance(0.4)) y = s.pointwise(M::add, {y, g.operand({1, 1, n})});
  if (r.chance(0.7)) y = s.activation(y);
  if (r.chance(0.3)) y = s.pointwise(M::mul, {y, g.operand({1, rows, 1})});
  if (r.chance(0.5)) y = s.narrowed(y);
  y = s.matmul(y, r.chance(0.6) ? weights(s, n, p, 1) : g.operand({batch, n, p}));
  if (r.chance(0.4)) y = s.pointwise(M::add, {y, g.operand({1, 1, p})});
  if (r.chance(0.3)) y = s.pointwise(M::mul, {y, g.operand({1, rows, p})});
  if (r.chance(0.5)) s.narrowed(y);
}

// Products of 8-bit numbers with scales of blocks along k, which one or several of them read.
void grow_dequantized(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t block = r.pick<std::int64_t>({32, 64, 128}), blocks = r.between(1, 3),
                     k = block * blocks;
  const std::int64_t rows = std::min<std::int64_t>(rows_of(g, k), 80);
  const DataType narrow = r.pick({f8e4m3, f8e4m3, f8e5m2, i8}),
                 wide = r.chance(0.6) ? bf16 : r.pick({f16, f32});
  const auto scaled = [&](TensorId x, TensorId scale, const Dims& split, const Dims& joined) {
    TensorId y = s.pointwise(M::mul, {s.reshape(x, split), scale});
    return s.pointwise(M::identity, {s.reshape(y, joined)}, wide);
  };
  const TensorId x = scaled(g.input({rows, k}, narrow), g.input({rows, blocks, 1}, f32),
                            {rows, blocks, block}, {rows, k});
  std::vector<TensorId> made;
  const std::int64_t n = r.pick<std::int64_t>({8, 16, 24, 64, 40});
  for (auto readers = r.between(1, 3); readers > 0; --readers) {
    TensorId w;
    if (r.chance(0.5)) {
      w = s.narrowed(weights(s, k, n, 0));
    } else {
      const bool by_blocks = r.chance(0.6);
      w = scaled(g.input({n, k}, r.chance(0.7) ? narrow : i8),
                 g.input(by_blocks ? Dims{n, blocks, 1} : Dims{n, 1, 1}, f32), {n, blocks, block},
                 {n, k});
      w = s.transpose(w, {1, 0});
    }
    made.push_back(s.matmul(x, w));
    if (r.chance(0.3)) made.back() = s.narrowed(made.back());
  }
  if (made.size() > 1 && r.chance(0.4)) s.pointwise(M::mul, {s.activation(made[0]), made[1]});
}

// Both halves of a product or of rows, met again: gated units with a bias, rotated norms.
void grow_halves(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t n = r.pick<std::int64_t>({8, 16, 24, 32, 64}), rows = rows_of(g, 2 * n);
  TensorId y;
  if (r.chance(0.5)) {
    const std::int64_t k = r.pick<std::int64_t>({16, 32, 40, 64});
    y = s.matmul(g.operand({1, rows, k}), weights(s, k, 2 * n, 1));
    if (r.chance(0.6)) y = s.pointwise(M::add, {y, g.operand({1, 1, 2 * n})});
    if (r.chance(0.3)) y = s.pointwise(M::mul, {y, s.number(0.5)});
    if (r.chance(0.3)) y = s.narrowed(y);
  } else {
    y = s.normalized(g.operand({1, rows, 2 * n}), {1, rows, 1});
    if (r.chance(0.6)) y = s.pointwise(M::mul, {y, g.operand({1, 1, 2 * n})});
  }
  const TensorId left = s.part(y, 2, 0, n), right = s.part(y, 2, n, 2 * n);
  if (r.chance(0.5)) {
    s.pointwise(M::mul, {s.activation(left), right});
  } else {
    const TensorId turned = s.joined({s.pointwise(M::neg, {right}), left}, 2);
    const TensorId cosine = g.operand({1, rows, 2 * n}), sine = g.operand({1, rows, 2 * n});
    y = s.pointwise(M::add,
                    {s.pointwise(M::mul, {y, cosine}), s.pointwise(M::mul, {turned, sine})});
    if (r.chance(0.5)) s.narrowed(y);
  }
}

// A convolution, what follows it, and the largest of each 2 x 2 of its pixels.
void grow_pooled(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t c = r.pick<std::int64_t>({8, 16, 32, 64}),
                     k = r.pick<std::int64_t>({8, 16, 32, 64, 24});
  const auto side = [&](std::int64_t most) {
    return 2 * g.extent_from_one(std::max<std::int64_t>(most / 2, 1)) - (r.chance(0.1) ? 1 : 0);
  };
  const std::int64_t left = g.most() / std::max(c, k), h = side(std::min<std::int64_t>(left, 14)),
                     w = side(std::min<std::int64_t>(std::max<std::int64_t>(left / h, 2), 20)),
                     n = r.between(
                         1, std::max<std::int64_t>(std::min<std::int64_t>(left / (h * w), 3), 1));
  const std::int64_t filter = r.pick<std::int64_t>({1, 3, 3, 5});
  ConvAttributes a;
  a.pre_padding = a.post_padding = {filter / 2, filter / 2};
  const auto nhwc = [&](const Dims& d) {
    return r.chance(0.8) ? g.input(d, DataType::none, {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]})
                         : g.operand(d);
  };
  TensorId y =
      g.add(OpKind::conv_fprop, a, {nhwc({n, c, h, w}), nhwc({k, c, filter, filter})}, {{}})[0];
  if (r.chance(0.6)) y = s.pointwise(M::add, {y, g.operand({1, k, 1, 1})});
  if (r.chance(0.3)) y = s.pointwise(M::add, {y, nhwc({n, k, h, w})});
  if (r.chance(0.7)) y = s.activation(y);
  if (r.chance(0.4)) y = s.narrowed(y);
  ResampleAttributes pool;
  pool.mode = ResampleMode::maxpool;
  pool.window = pool.stride = {2, 2};
  y = g.add(OpKind::resample, pool, {y}, {{}, {false}})[0];
  if (r.chance(0.3)) y = s.pointwise(M::mul, {y, g.operand({1, k, 1, 1})});
  if (r.chance(0.3)) s.narrowed(y);
}

// Rows with reductions that read or write what lies across them.
void grow_across(Grower& g) {
  Steps s(g);
  auto& r = g.random;
  const std::int64_t n = r.pick<std::int64_t>({16, 32, 33, 64, 128, 256}), rows = rows_of(g, n);
  const TensorId turned = s.transpose(g.operand({1, n, rows}), {0, 2, 1});
  TensorId x = r.chance(0.5) ? s.pointwise(M::add, {g.operand({1, rows, n}), turned}) : turned;
  TensorId y = r.chance(0.6) ? s.normalized(x, {1, rows, 1}) : s.softmax(x, {1, rows, 1}, -1);
  if (r.chance(0.4)) y = s.pointwise(M::mul, {y, g.operand({1, 1, n})});
  if (r.chance(0.3)) y = s.pointwise(M::add, {y, turned});
  if (r.chance(0.4)) s.narrowed(y);
  if (r.chance(0.6)) {
    y = s.transpose(y, {0, 2, 1});
    if (r.chance(0.5)) s.narrowed(y);
  }
}

}  // namespace sinter::test
