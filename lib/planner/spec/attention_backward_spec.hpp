// The kernel of attention backward: a region of the lowered graph without the sums along rows of dO
// times O.
#pragma once
#include <optional>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/match/fusion_state.hpp"
#include "planner/match/index_mask.hpp"

namespace sinter {

struct AttentionBackwardNodes {
  const Region* region = nullptr;
  TensorId scaled = kNoTensor, score = kNoTensor;  // the score is a function of the scaled sums
  TensorId probabilities = kNoTensor;
  // Before and after dropout: probabilities and weights, or their gradients where there is no dV.
  TensorId before_dropout = kNoTensor, weights = kNoTensor;
  // Where P is exp(score - largest) / total of its row; `largest` stands at the port of Stats.
  TensorId total = kNoTensor;
  TensorId delta = kNoTensor;  // none where dV alone is wanted, or the sum of P dP
  // Where the region is written out: what P is multiplied by, less delta, to the scores' gradients,
  // and what of these the products of dQ and dK multiply.
  TensorId dp = kNoTensor, of_score = kNoTensor, of_sums = kNoTensor;
  TensorId dq_sums = kNoTensor;  // the product of which dQ is made; none where it is not wanted
  AttentionBand band;
  IndexMask mask;                 // which is part of the score, too
  TensorId unmasked = kNoTensor;  // the score without it
  // Of the region, without those of Delta; also those between them that have no kernel of their
  // own.
  std::vector<NodeId> nodes;
};

// The attention whose last product a node is; nothing where it is none, or where the kernel does
// not have all that its gradients depend on.
std::optional<AttentionBackwardNodes> attention_backward_at(const FusionState& state, NodeId last);

// Nothing where the score cannot be differentiated.
std::optional<KernelSpec> attention_backward_spec(const FusionState& state,
                                                  const AttentionBackwardNodes& attention);

}  // namespace sinter
