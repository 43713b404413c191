// The nodes of what models write out: pieces that several makers of random graphs put together.
#pragma once
#include <initializer_list>
#include <utility>
#include <vector>

#include "support/random_graph_grower.hpp"

namespace sinter::test {

// The nodes of one such piece, whose results have the types that a framework gives them: all the
// graph's intermediate one, or each step rounded to its io type. Now and then any. From kLayersVary
// on most are as models have them, so that planning takes them as one.
class Steps {
 public:
  explicit Steps(Grower& grower)
      : g(grower), rounds_(g.random.chance(0.35)), any_type_(g.random.chance(0.1)) {
    if (g.options().seed < kLayersVary || g.random.chance(0.3)) return;
    g.keep_plain(true);
    rounds_ = any_type_ = false;
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() { g.keep_plain(false); }

  Grower& g;

  TensorId pointwise(PointwiseMode mode, std::vector<TensorId> in, DataType type = DataType::none) {
    return pointwise({.mode = mode}, std::move(in), type);
  }
  TensorId pointwise(PointwiseAttributes a, std::vector<TensorId> in,
                     DataType type = DataType::none) {
    in.resize(3, kNoTensor);
    return one(OpKind::pointwise, a, std::move(in), {}, type);
  }
  TensorId matmul(TensorId a, TensorId b) {
    return one(OpKind::matmul, MatmulAttributes{}, {a, b}, {});
  }
  TensorId reduce(ReductionMode mode, TensorId x, const Dims& kept) {
    ReductionAttributes a;
    a.mode = mode;
    return one(OpKind::reduction, a, {x}, kept);
  }
  TensorId reshape(TensorId x, const Dims& dim) {
    return one(OpKind::reshape, ReshapeAttributes{.dim = dim}, {x}, {});
  }
  TensorId transpose(TensorId x, std::initializer_list<int> permutation) {
    TransposeAttributes a;
    for (int i : permutation) a.permutation.push_back(i);
    return one(OpKind::transpose, a, {x}, {});
  }
  // The elements from `start` to `limit` of one axis.
  TensorId part(TensorId x, int axis, std::int64_t start, std::int64_t limit,
                std::int64_t step = 1) {
    SliceAttributes a;
    const Dims& dim = g.dim(x);
    a.start = Dims::filled(dim.size(), 0);
    a.limit = dim;
    a.start[axis] = start;
    a.limit[axis] = limit;
    if (step != 1) {
      a.step = Dims::filled(dim.size(), 1);
      a.step[axis] = step;
    }
    return one(OpKind::slice, a, {x}, {});
  }
  TensorId joined(std::vector<TensorId> parts, int axis) {
    ConcatenateAttributes a;
    a.axis = axis;
    return one(OpKind::concatenate, a, std::move(parts), {});
  }
  TensorId index(TensorId like, int axis) {
    PointwiseAttributes a;
    a.mode = PointwiseMode::gen_index;
    a.axis = axis;
    return pointwise(a, {like}, f32);
  }
  TensorId number(double value) { return g.scalar(value, f32); }
  TensorId softmax(TensorId x, const Dims& kept, int axis) {
    if (g.random.chance(0.5)) {
      SoftmaxAttributes a;
      a.axis = axis;
      return g.add(OpKind::softmax, a, {x}, {{true, {}, type()}, {false}})[0];
    }
    const TensorId largest = reduce(ReductionMode::max, x, kept);
    const TensorId e = pointwise(PointwiseMode::exp, {pointwise(PointwiseMode::sub, {x, largest})});
    return pointwise(PointwiseMode::div, {e, reduce(ReductionMode::add, e, kept)});
  }
  // (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean of squares + epsilon).
  TensorId normalized(TensorId x, const Dims& kept) {
    const bool centred = g.random.chance(0.7);
    if (centred) x = pointwise(PointwiseMode::sub, {x, reduce(ReductionMode::avg, x, kept)});
    const TensorId square = pointwise(PointwiseMode::mul, {x, x});
    const TensorId variance = reduce(ReductionMode::avg, square, kept);
    const TensorId sum =
        pointwise(PointwiseMode::add, {variance, number(g.random.pick({1e-5, 1e-3, 1.0}))});
    return g.random.chance(0.5)
               ? pointwise(PointwiseMode::mul, {x, pointwise(PointwiseMode::rsqrt, {sum})})
               : pointwise(PointwiseMode::div, {x, pointwise(PointwiseMode::sqrt, {sum})});
  }
  TensorId activation(TensorId x) {
    return pointwise(
        g.random.pick({PointwiseMode::relu_fwd, PointwiseMode::gelu_fwd, PointwiseMode::swish_fwd,
                       PointwiseMode::tanh_fwd, PointwiseMode::gelu_approx_tanh_fwd,
                       PointwiseMode::sigmoid_fwd}),
        {x});
  }
  // What is stored in narrow: the io type.
  TensorId narrowed(TensorId x) {
    return pointwise(PointwiseMode::identity, {x}, is_floating(io()) ? io() : f16);
  }
  DataType io() const { return g.graph().options().io; }

 private:
  DataType type() const {
    if (any_type_) return DataType::none;
    const DataType t = rounds_ ? io() : g.graph().options().intermediate;
    return is_floating(t) && t != f8e8m0 && t != f4e2m1 ? t : f32;
  }
  TensorId one(OpKind op, Attributes a, std::vector<TensorId> in, const Dims& dim,
               DataType as = DataType::none) {
    return g.add(op, std::move(a), std::move(in),
                 {{true, dim, as == DataType::none ? type() : as}})[0];
  }
  bool rounds_, any_type_;
};

}  // namespace sinter::test
