// The gradients of attention that a user, or what differentiated his graph, writes out:
//
//     q, k -> [ first ] -> sums -> scale, bias, masks -> score -> softmax -> P
//     dO, v -> [ dP ]                 dS = P (dP - sum of P dP)            or of a given delta
//     dS -> scale, masks -> dSums     dSums, k -> dQ    dSums^T, q -> dK    P^T, dO -> dV
//     dS -> sums -> dBias
//
// with conversions, transposes and views of the leading dims wherever between.
#pragma once
#include <optional>
#include <vector>

#include "planner/rewrite/rewriter.hpp"

namespace sinter {

// An operand of a product: `t`, with its last two dims exchanged where `swapped`; each entry of its
// last leading dim is that of `group` of the product's.
struct FactorOf {
  TensorId t = kNoTensor;
  bool swapped = false;
  std::int64_t group = 1;
};

// `y` is a gradient, with its last two dims exchanged where `swapped`; kNoTensor: not asked for.
struct GradientAt {
  TensorId y = kNoTensor;
  bool swapped = false;
};

struct WrittenGradients {
  FactorOf q, k, v, d_o;  // [m, d], [n, d], [n, e], [m, e]
  TensorId sums = kNoTensor, score = kNoTensor, p = kNoTensor, dp = kNoTensor, ds = kNoTensor;
  DataType rounded_dp = DataType::f32;  // what dP is rounded to where dS is made of it
  // From the sums to the score and from dS to dSums, each node behind what it reads.
  std::vector<NodeId> between, back;
  // The score is the sum times this before anything else, and dQ and dK have this factor in front
  // or behind their products, which `back` leaves out; 1: `between` and `back` say what there is.
  double scale = 1;
  // P = exp(score - stats), where stats are a tensor, or shift + log(total).
  TensorId stats = kNoTensor, shift = kNoTensor, total = kNoTensor;
  TensorId delta = kNoTensor;  // what dP is reduced by; none: the sum of P dP
  bool has_o = false;          // P v is in the graph
  GradientAt dq, dk, dv;
  TensorId dbias = kNoTensor;  // dS or its sum
  std::int64_t batch = 1, heads = 1;
};

// Those whose dS a node makes.
std::optional<WrittenGradients> written_gradients(const Rewriter& g, NodeId of_ds);

// The pointwise mode that makes a tensor; nothing where none does.
std::optional<PointwiseMode> mode_of(const Rewriter& g, TensorId t);

}  // namespace sinter
