// The gradients of attention without the scores in memory.
#pragma once
#include <optional>

#include "plan/spec/attention.hpp"

namespace sinter {

// With p(batch, m, n) = exp(score - stats), dp = weight of the sum over e of d_o(batch, m, e)
// v(batch, n, e), ds = the gradient of the scaled sum of score, whose own gradient is
// p (dp - delta):
//
//   dv(batch, n, e) = sum over m of weight(p) d_o
//   dk(batch, n, d) = scale times the sum over m of ds
//   q dq(batch, m, d) = a body of the sum over n of ds k
//   dbias(batch, m, n) = the sum of the score's gradients p (dp - delta) of its elements
//
// of which some may not be wanted. The indices of the domain are batch (entry and head), m, n, d, e
// in this order; KernelSpec::body is empty. A kernel adds what it has of dq's sums to numbers in
// memory, which an earlier one sets to zero and a later one gives to dq's body (planner/split). So
// it does with dbias where several pairs of query and key share an element.
struct AttentionBackwardSpec {
  static constexpr int batch = 2, head = 1, m = 2, n = 3, d = 4, e = 5;
  // Heads of q that share one of k and v: in accesses of these, dk and dv the index of the head
  // counts those.
  std::int64_t group = 1;
  ProductOperand q, k, v, d_o;
  double scale = 1;  // of the sum over d of q k; above 0 where `score` is empty
  // Over (batch, m, n): from the scaled sum (accumulator 0) to the score, and from the scaled sum
  // and the score's gradient (accumulator 1) to the scaled sum's. Empty: the same.
  Body score, gradient;
  // Over (batch, m, n), as AttentionSpec's, and linear: the gradient of a weight is the same body
  // of the gradient (dropout). Empty: itself.
  Body weight;
  // Over (batch, m, d): from dq's sums (an accumulator statement) to where it is stored. Empty
  // where it is not wanted, and once it is another kernel's (`sums`).
  Body dq;
  AttentionBand band;
  PackedSequences sequences;
  // Over (batch, m, n), what is rounded where gradients are written out: the sum over e of d_o v,
  // and p (dp - delta), each from accumulator 0. Empty: itself.
  Body rounded_dp, rounded_ds;
  // As AttentionSpec's: a block mask's bit, which tells all of a tile; or a condition on indices,
  // which tells which tiles hold no pair that is seen. It is part of the score, too, or, with
  // `masks_pairs`, the kernel hides its pairs where they are not all of a tile.
  Body mask;
  bool masks_pairs = false;
  // Ports. Read: as AttentionSpec's; one a row, stats the logarithm of the sum of exp(score), delta
  // the sum over e of d_o times the result (-1: 0, or dv alone is wanted). Written: dq's sums, -1
  // until it is split; dk, dv and dbias, -1 where not wanted.
  int length_q = -1, length_kv = -1, stats = -1, delta = -1, sums = -1, dk = -1, dv = -1;
  int dbias = -1;
  // Read in place of stats, as AttentionSpec writes them: p is exp(score - largest) / total.
  int largest = -1, total = -1;
  bool totals() const { return total >= 0; }
  // Where one tile of keys has all of a row's, `sums` is dq itself, what is summed times this: no
  // zeros come before it, and nothing behind. Else no number.
  std::optional<double> dq_factor;
  // dbias has a number for each query and block of so many keys, what these sum; 0: see above.
  static constexpr int keys_of_block = 16;  // of a warp, or fewer than it has
  bool dbias_of_blocks = false;
  // CTAs that share the queries which a tile of keys meets. Each stores f32 sums of dk and dv as if
  // they were those of further entries, one part's behind another's; a later kernel adds them up.
  int parts = 1;
  // Results have the same bits in each run: dq is summed in one order, by counters that lie behind
  // each head's sums: two integers of each row, and one more of the first head.
  bool deterministic = false;
  // Whether nothing but a scale stands between the products.
  bool plain() const { return score.statements.empty() && weight.statements.empty() && !rounds(); }
  // Whether the score's derivative is 1.
  bool additive() const {
    if (gradient.statements.empty()) return false;
    const Statement& last = gradient.statements.back();
    return last.kind == StatementKind::accumulator && last.dim == 1;
  }
  bool rounds() const { return !rounded_dp.statements.empty() || !rounded_ds.statements.empty(); }
  bool wants_dq() const { return sums >= 0 || !dq.statements.empty(); }

  Dims group_ends(int rank) const { return {m, n, d, e, rank}; }
  int result_rank(int rank) const { return rank; }
  template <class Self>
  static auto own_bodies(Self& s) {
    return std::vector{&s.q.body, &s.k.body,     &s.v.body,     &s.d_o.body, &s.score, &s.gradient,
                       &s.weight, &s.rounded_dp, &s.rounded_ds, &s.dq,       &s.mask};
  }
  template <class Self>
  static auto own_ports(Self& s) {
    return std::vector{&s.length_q,
                       &s.length_kv,
                       &s.sequences.offsets_q,
                       &s.sequences.offsets_kv,
                       &s.stats,
                       &s.largest,
                       &s.total,
                       &s.delta,
                       &s.sums,
                       &s.dk,
                       &s.dv,
                       &s.dbias};
  }
};

}  // namespace sinter
