// What stands between the products of attention and of its gradients, step by step: conversions,
// views of the leading dims, transposes of the last two, rows, and what a product multiplies.
#pragma once
#include <optional>

#include "planner/rewrite/written_gradients.hpp"

namespace sinter {

class GradientSteps {
 public:
  // `shares`: keys that are copied for heads are shared by these, whose gradients are summed.
  GradientSteps(const Rewriter& g, bool shares) : g_(g), shares_(shares) {}

 protected:
  static constexpr int kMostSteps = 24;  // of a chain between two products

  bool made(TensorId t, PointwiseMode mode) const { return mode_of(g_, t) == mode; }
  TensorId input(TensorId t, std::size_t i) const { return g_.node(g_.producer(t)).inputs[i]; }
  bool computes_f32(const Node& n) const;
  bool is_real(TensorId t) const;  // a number that f32 holds
  bool in_f32(TensorId t) const;
  std::optional<double> number(TensorId t) const;
  // Nodes that change no number but by rounding.
  bool converts(const Node& n) const;
  bool reshapes(const Node& n) const;    // the leading dims alone
  bool transposes(const Node& n) const;  // the last two dims alone

  // `t` without conversions and views of the leading dims, which round it to `type`: f32 where they
  // do not, none where they do so to several.
  TensorId bare(TensorId t, DataType& type) const;
  // The same where nothing is rounded.
  TensorId bare(TensorId t) const;
  // One number for each row of n: without conversions, views, and what broadcasts it to the rows.
  TensorId row(TensorId t, std::int64_t columns) const;
  bool is_row(TensorId r, TensorId x) const;
  // What `t` sums along rows; kNoTensor where it does not.
  TensorId summed(TensorId t, ReductionMode mode) const;

  // How often each entry of the last leading dim is copied; 1: not at all.
  static std::int64_t repeats(const Dims& from, const Dims& to);
  // What a product multiplies, also as the product broadcasts it; kNoTensor where that is more.
  FactorOf factor_of(const Node& product, std::size_t port, bool swapped) const;
  bool same(const FactorOf& a, const FactorOf& b) const;

  const Rewriter& g_;
  const bool shares_;

 private:
  FactorOf factor(TensorId t, bool swapped) const;
  std::int64_t repeats(const Node& n) const;
};

}  // namespace sinter
