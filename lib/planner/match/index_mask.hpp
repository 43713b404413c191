// Masks that are functions of a score's row and column: which of them are an interval of columns.
#pragma once
#include "plan/spec/attention.hpp"
#include "planner/match/fusion_state.hpp"

namespace sinter {

// Whether a condition of this type can be false: f8e8m0 has no zero, so that all in it is true.
constexpr bool holds_zero(DataType condition) { return condition != DataType::f8e8m0; }

// Narrows `band` by what a condition over [.., rows, columns] says where it is (or, with `wanted`
// false, is not) true: comparisons of row and column indices with constants added, joined by `and`;
// with `chunks` also of floor(index / n). False where it says more than that; what the band then
// leaves is not all seen.
bool narrow_band(const FusionState& state, TensorId condition, bool wanted, AttentionBand& band,
                 bool chunks = true);

// A condition on indices that is no interval of columns: pairs are seen where it is (or, with
// `wanted` false, is not) true.
struct IndexMask {
  TensorId condition = kNoTensor;
  bool wanted = true;
};

// Takes masks by indices from a score: select(condition, x, -inf), or x plus a mask of 0 and -inf.
// Returns the score that `band`, which is narrowed by them, masks, together with `mask`, where one
// may be taken.
TensorId without_index_masks(const FusionState& state, TensorId score, AttentionBand& band,
                             IndexMask* mask = nullptr, bool chunks = true);

// Whether a bias is 0 where a condition on indices is true and -infinity elsewhere, or the other
// way round: such a mask is taken from scores.
bool is_index_mask(const FusionState& state, TensorId bias);

// The same of select(condition, x, a large negative number), which becomes `band.hidden`, where
// each row sees some columns; `band` has no bounds yet. Of a small x, which a softcap bounds, the
// number may be added, and hides as -infinity does: `band.hidden` stays empty. Else the score
// itself.
TensorId without_number_mask(const FusionState& state, TensorId score, AttentionBand& band);

}  // namespace sinter
