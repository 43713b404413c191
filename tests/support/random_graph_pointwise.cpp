// Makers of pointwise operations, reductions, softmax, random numbers and block scaling.
#include <algorithm>
#include <cmath>

#include "support/random_graph_grower.hpp"

namespace sinter::test {
namespace {

using M = PointwiseMode;

// The rare modes have poles, jumps or steep slopes; chains of them leave little that can be judged.
constexpr std::pair<M, double> kModes[] = {
    {M::add, 8},           {M::sub, 5},
    {M::mul, 7},           {M::max, 3},
    {M::min, 3},           {M::relu_fwd, 5},
    {M::tanh_fwd, 3},      {M::sigmoid_fwd, 4},
    {M::gelu_fwd, 3},      {M::swish_fwd, 4},
    {M::elu_fwd, 2},       {M::gelu_approx_tanh_fwd, 3},
    {M::identity, 3},      {M::abs, 2},
    {M::neg, 2},           {M::softplus_fwd, 2},
    {M::add_square, 2},    {M::gen_index, 1.5},
    {M::binary_select, 3}, {M::erf, 1},
    {M::sin, 1},           {M::cos, 1},
    {M::exp, 1},           {M::ceil, 0.8},
    {M::floor, 0.8},       {M::round, 0.8},
    {M::sqrt, 0.8},        {M::rsqrt, 0.8},
    {M::reciprocal, 0.8},  {M::log, 0.8},
    {M::tan, 0.5},         {M::div, 1.2},
    {M::pow, 0.8},         {M::mod, 0.8},
    {M::atan2, 0.8},       {M::logical_and, 0.8},
    {M::logical_or, 0.8},  {M::logical_not, 0.8},
    {M::cmp_eq, 0.8},      {M::cmp_neq, 0.8},
    {M::cmp_gt, 0.8},      {M::cmp_ge, 0.8},
    {M::cmp_lt, 0.8},      {M::cmp_le, 0.8},
    {M::relu_bwd, 1.5},    {M::tanh_bwd, 1},
    {M::sigmoid_bwd, 1},   {M::elu_bwd, 1},
    {M::gelu_bwd, 1},      {M::softplus_bwd, 1},
    {M::swish_bwd, 1.5},   {M::gelu_approx_tanh_bwd, 1},
};
constexpr std::pair<M, double> kExactModes[] = {
    {M::add, 8},       {M::sub, 5},      {M::mul, 6},           {M::max, 3},
    {M::min, 3},       {M::relu_fwd, 5}, {M::abs, 3},           {M::neg, 3},
    {M::identity, 3},  {M::relu_bwd, 1}, {M::add_square, 2},    {M::binary_select, 3},
    {M::gen_index, 1}, {M::floor, 0.5},  {M::round, 0.5},       {M::ceil, 0.5},
    {M::cmp_eq, 0.5},  {M::cmp_lt, 0.5}, {M::logical_and, 0.5}, {M::logical_not, 0.5},
};

bool multiplies(M m) { return m == M::mul || m == M::add_square; }

// What the mode's result may grow to, from the operands' magnitudes.
double result_magnitude(M m, const std::vector<double>& x, const Dims& dim, std::int64_t axis) {
  switch (m) {
    case M::add:
    case M::sub:
      return x[0] + x[1];
    case M::mul:
      return x[0] * x[1];
    case M::add_square:
      return x[0] + x[1] * x[1];
    case M::max:
    case M::min:
    case M::binary_select:
      return std::max(x[0], x[1]);
    case M::gen_index:
      return static_cast<double>(dim[static_cast<int>(axis)]);
    case M::cmp_eq:
    case M::cmp_lt:
    case M::logical_and:
    case M::logical_not:
      return 1;
    default:
      return x[0];
  }
}

void draw_parameters(Random& random, PointwiseAttributes& a) {
  switch (a.mode) {
    case M::relu_fwd:
    case M::relu_bwd:
      if (random.chance(0.4)) a.relu_lower_clip_slope = random.pick({0.01, 0.25, -0.5, 1.0});
      if (random.chance(0.3)) a.relu_lower_clip = random.pick({-1.0, -0.25, 0.125});
      if (random.chance(0.3)) a.relu_upper_clip = random.pick({0.5, 1.0, 6.0});
      break;
    case M::elu_fwd:
    case M::elu_bwd:
      a.elu_alpha = random.pick({1.0, 0.5, 1.5});
      break;
    case M::swish_fwd:
    case M::swish_bwd:
      a.swish_beta = random.pick({1.0, 1.702, 0.5});
      break;
    case M::softplus_fwd:
    case M::softplus_bwd:
      a.softplus_beta = random.pick({1.0, 2.0, 0.5});
      break;
    default:
      break;
  }
}

// Operands with a domain: kept inside it more often than not.
void enter_domain(Grower& g, M m, std::vector<TensorId>& in) {
  const bool guard = g.random.chance(0.65);
  switch (m) {
    case M::sqrt:
    case M::rsqrt:
    case M::reciprocal:
    case M::log:
      if (guard) in[0] = g.positive(in[0]);
      break;
    case M::div:
    case M::mod:
      if (guard) in[1] = g.positive(in[1]);
      break;
    case M::pow:
      if (guard) in[0] = g.positive(in[0]);
      if (guard) in[1] = g.scalar(g.random.pick({2.0, 3.0, 0.5, -1.0}), f32);
      break;
    default:
      break;
  }
}

// Dims that the operands' joined dims broadcast to.
Dims enlarged(Grower& g, Dims d) {
  for (int i = 0; i < d.size(); ++i)
    if (d[i] == 1 && g.random.chance(0.5))
      d[i] = g.extent_from_one(Grower::room(g.most(), volume(d)));
  if (d.size() < kMaxRank && g.random.chance(0.5))
    d.insert(0, g.extent_from_one(Grower::room(g.most(), volume(d))));
  return d;
}

Dims joined(const Grower& g, const std::vector<TensorId>& in) {
  Dims out = g.dim(in[0]), next;
  for (std::size_t i = 1; i < in.size(); ++i) {
    detail::broadcast(out, g.dim(in[i]), next);
    out = next;
  }
  return out;
}

// Extent of each axis, or 1 where it is reduced.
Dims kept(Grower& g, const Dims& x) {
  Dims y = x;
  const double p = g.random.real(0, 1);
  for (int i = 0; i < x.size(); ++i) {
    if (p < 0.2)
      y[i] = 1;  // all
    else if (p < 0.5)
      y[i] = i + 1 == x.size() ? 1 : x[i];  // the last
    else if (g.random.chance(0.5))
      y[i] = 1;
  }
  return y;
}

}  // namespace

void grow_pointwise(Grower& g) {
  PointwiseAttributes a;
  a.mode = g.exact() ? g.random.weighted(kExactModes) : g.random.weighted(kModes);
  const double limit = multiplies(a.mode) ? g.factor_limit() : g.term_limit();
  std::vector<TensorId> in{
      g.primary([](const Dims&) { return true; }, limit, [&] { return g.dims(); })};
  const int arity = info(a.mode).arity;
  while (static_cast<int>(in.size()) < arity)
    in.push_back(g.random.chance(0.08) ? in[0] : g.partner(joined(g, in), limit));
  if (arity == 2 && g.random.chance(0.3)) std::swap(in[0], in[1]);
  if (!g.exact()) {
    draw_parameters(g.random, a);
    enter_domain(g, a.mode, in);
  }
  const Dims dim = joined(g, in);
  std::int64_t axis = 0;
  if (a.mode == M::gen_index) {
    axis = g.random.below(dim.size());
    a.axis = g.random.chance(0.3) ? axis - dim.size() : axis;
  }
  std::vector<double> magnitudes;
  for (TensorId t : in) magnitudes.push_back(g.magnitude(t));
  Result out;
  if (a.mode != M::gen_index && g.random.chance(0.05))
    out.dim = enlarged(g, dim);
  else if (g.random.chance(0.1))
    out.dim = dim;
  in.resize(3, kNoTensor);
  g.add(OpKind::pointwise, a, in, {out}, result_magnitude(a.mode, magnitudes, dim, axis));
}

void grow_reduction(Grower& g) {
  using R = ReductionMode;
  static constexpr std::pair<R, double> modes[] = {
      {R::add, 4},   {R::avg, 2},   {R::max, 2},   {R::min, 1.5},         {R::amax, 1.5},
      {R::norm1, 1}, {R::norm2, 1}, {R::mul, 0.7}, {R::mul_no_zeros, 0.7}};
  static constexpr std::pair<R, double> exact_modes[] = {
      {R::add, 4}, {R::max, 2}, {R::min, 1.5}, {R::amax, 1.5}, {R::norm1, 1}, {R::mul, 0.7}};
  ReductionAttributes a;
  a.mode = g.exact() ? g.random.weighted(exact_modes) : g.random.weighted(modes);
  a.deterministic = !g.random.chance(0.1);
  const bool product = a.mode == R::mul || a.mode == R::mul_no_zeros;
  const double limit = g.exact() && product ? 1 : g.factor_limit();
  const TensorId x = g.primary([](const Dims&) { return true; }, limit, [&] { return g.dims(); });
  const Dims dim = g.dim(x), y = kept(g, dim);
  double magnitude = g.magnitude(x);
  if (a.mode == R::add || a.mode == R::norm1) {
    magnitude *= static_cast<double>(volume(dim) / volume(y));
  }
  // A maximum over nothing is infinite, which f8 and integers cannot hold.
  Result out{true, y, DataType::none};
  if (g.exact() && count(dim) == 0) out.type = f32;
  g.add(OpKind::reduction, a, {x}, {out}, magnitude);
}

void grow_softmax(Grower& g) {
  const TensorId x =
      g.primary([](const Dims&) { return true; }, g.term_limit(), [&] { return g.dims(); });
  SoftmaxAttributes a;
  const int rank = g.dim(x).size();
  if (g.random.chance(0.5)) a.axis = g.random.between(-rank, rank - 1);
  g.add(OpKind::softmax, a, {x}, {{}, {g.random.chance(0.3)}});
}

void grow_softmax_backward(Grower& g) {
  const TensorId y =
      g.primary([](const Dims&) { return true; }, g.term_limit(), [&] { return g.dims(); });
  const TensorId dy = g.operand(g.dim(y));
  SoftmaxAttributes a;
  const int rank = g.dim(y).size();
  if (g.random.chance(0.5)) a.axis = g.random.between(-rank, rank - 1);
  g.add(OpKind::softmax_backward, a, {y, dy}, {{}});
}

void grow_rng(Grower& g) {
  RngAttributes a;
  a.distribution =
      g.random.pick({Distribution::bernoulli, Distribution::uniform, Distribution::normal});
  if (a.distribution == Distribution::bernoulli && g.random.chance(0.7))
    a.probability = g.random.pick({0.0, 1.0, 0.1, 0.9, 1e-7});
  if (a.distribution == Distribution::uniform && g.random.chance(0.5)) {
    a.minimum = g.random.pick({-1.0, -0.5, 0.0});
    a.maximum = g.random.pick({0.0, 1.0, 3.0});
  }
  if (a.distribution == Distribution::normal && g.random.chance(0.5)) {
    a.mean = g.random.pick({-1.0, 0.0, 2.5});
    a.stddev = g.random.pick({0.0, 0.5, 2.0});
  }
  const TensorId seed = g.seed();
  const TensorId offset = g.random.chance(0.05) ? seed : g.seed();
  g.add(OpKind::rng, a, {seed, offset}, {{true, g.dims(), DataType::none}});
}

namespace {

// An axis, from either end, and a block size that divides its extent.
BlockScaleAttributes block_attributes(Grower& g, const Dims& dim) {
  BlockScaleAttributes a;
  const auto axis = g.random.chance(0.6) ? dim.size() - 1 : g.random.below(dim.size());
  const auto extent = dim[static_cast<int>(axis)];
  a.axis = g.random.chance(0.5) ? axis : axis - dim.size();
  a.block_size = extent == 0 ? 32 : g.divisor(extent);
  for (const std::int64_t usual : {16, 32})
    if (extent > 0 && extent % usual == 0 && g.random.chance(0.4)) a.block_size = usual;
  return a;
}

constexpr std::pair<DataType, double> kBlockTypes[] = {
    {f8e4m3, 4}, {f8e5m2, 2}, {f4e2m1, 4}, {f16, 0.5}, {i8, 0.5}};
constexpr std::pair<DataType, double> kScaleTypes[] = {
    {f8e8m0, 4}, {f32, 3}, {f8e4m3, 2}, {f16, 0.5}, {bf16, 0.5}};

}  // namespace

void grow_block_scale_quantize(Grower& g) {
  const TensorId x =
      g.primary([](const Dims&) { return true; }, g.term_limit(), [&] { return g.dims(); });
  const auto a = block_attributes(g, g.dim(x));
  g.add(OpKind::block_scale_quantize, a, {x},
        {{true, {}, g.random.weighted(kBlockTypes)}, {true, {}, g.random.weighted(kScaleTypes)}});
}

void grow_block_scale_dequantize(Grower& g) {
  const bool fresh = g.random.chance(0.6);
  const TensorId x =
      fresh ? g.input(g.dims(), g.random.weighted(kBlockTypes))
            : g.primary([](const Dims&) { return true; }, g.term_limit(), [&] { return g.dims(); });
  const Dims dim = g.dim(x);
  const auto a = block_attributes(g, dim);
  Dims scale = dim;
  scale[static_cast<int>(a.axis < 0 ? a.axis + dim.size() : a.axis)] /= a.block_size;
  const TensorId s =
      g.random.chance(0.5) ? g.input(scale, g.random.weighted(kScaleTypes)) : g.operand(scale);
  g.add(OpKind::block_scale_dequantize, a, {x, s}, {{}});
}

}  // namespace sinter::test
