// The attention family: softmax(q k^T) v without the scores in memory.
#pragma once
#include <cstdint>
#include <optional>

#include "plan/spec/contraction.hpp"

namespace sinter {

// Which columns of the scores a row sees: diagonal - left < column <= diagonal + right.
struct AttentionBand {
  std::optional<std::int64_t> left, right;  // none: no bound
  bool bottom_right = false;  // the diagonal ends in the last row and column, else begins in the
                              // first
  bool padding = false;       // rows and columns past the lengths are not seen
};

// result(batch, m, e) = sum over n of weight(batch, m, n) v(batch, n, e), where weight is f of the
// softmax over n of score(sum over d of q(batch, m, d) k(batch, n, d)). The indices of the domain
// are batch (entry and head), m, e, n, d in this order. KernelSpec::body is the epilogue, run once
// an element of (batch, m, e), whose accumulator is the sum.
struct AttentionSpec {
  static constexpr int batch = 2, head = 1, m = 2, e = 3, n = 4, d = 5;
  // Heads of q that share one of k and v: in their accesses the index of the head counts those.
  std::int64_t group = 1;
  ProductOperand q, k, v;
  // Over (batch, m, n), from the sum over d (an accumulator statement) to the score. Empty: the
  // score is the sum times `scale`, which is above 0.
  Body score;
  double scale = 1;
  // Over (batch, m, n), from a weight of the softmax (an accumulator statement) to what is
  // multiplied (dropout). Empty: itself.
  Body weight;
  AttentionBand band;
  // Ports; -1: none. Of integers, one a batch entry: the lengths that the band counts. One a head:
  // a score that takes part in the softmax and has no value. Written, one a row: the logarithm of
  // the sum of exp(score).
  int length_q = -1, length_kv = -1, sink = -1, stats = -1;
};

}  // namespace sinter
