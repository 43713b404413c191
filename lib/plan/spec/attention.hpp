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
  // Rows see columns of their own chunk alone: those with the same index / chunk. Forward alone.
  std::optional<std::int64_t> chunk = {};
  bool bounded() const { return left || right || chunk; }
  // The score of columns that a row does not see, where that is a number and not -infinity. Each
  // row sees some. Forward alone.
  std::optional<double> hidden = {};
};

// Sequences that lie one behind another in the rows of q and in those of k and v, of one batch
// entry: of `count` + 1 integers each, offsets number i and i + 1 are the first row of sequence i
// and the one behind it. A row sees keys of its own sequence alone, and the band counts both from
// the sequence's first ones. Rows of no sequence see nothing.
struct PackedSequences {
  std::int64_t count = 0;               // 0: none
  int offsets_q = -1, offsets_kv = -1;  // ports, whose elements are contiguous
};

// result(batch, m, e) = sum over n of weight(batch, m, n) v(batch, n, e), where weight is f of the
// softmax over n of score(sum over d of q(batch, m, d) k(batch, n, d)). The indices of the domain
// are batch (entry and head), m (member of a group of heads, and query), e, n, d in this order.
// KernelSpec::body is the epilogue, run once an element of (batch, m, e), whose accumulator is the
// sum.
//
// Heads of q that share one of k and v are either heads of their own, whose index divided by
// `group` is that of k and v in their accesses; or, where there are few queries, rows of one
// product: then `head` counts those of k and v, `member` the heads of q that share one, and `group`
// is 1.
struct AttentionSpec {
  static constexpr int batch = 2, head = 1, member = 2, query = 3, e = 4, n = 5, d = 6;
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
  // Over (batch, m, n): whether a pair that the band shows is seen, 1 or 0: a bit of a block mask
  // (a gather and its conversion), or a condition that has intervals (plan/condition_range.hpp).
  // Empty: it is. Tiles of keys of which a tile of rows sees nothing are not visited.
  Body mask;
  PackedSequences sequences;
  // The softmax is max, exp(x - max), sum, quotient as they stand: a row of -inf alone gives NaN,
  // not 0, and stats are the largest score where that is not finite, or NaN where the logarithm and
  // the largest score are added as they are.
  bool written_out = false, adds_stats = false;
  // Weights may be rounded to f8 (GRAPH_JSON.md, scales of sdpa).
  bool f8_weights = false;
  // A weight of zero makes its product zero, whatever v holds.
  bool zero_dominates = true;
  // Ports; -1: none. Of integers, one a batch entry: the lengths that the band counts. One a head:
  // a score that takes part in the softmax and has no value. Written, one a row: the logarithm of
  // the sum of exp(score).
  int length_q = -1, length_kv = -1, sink = -1, stats = -1;
  // Written in place of stats, one a row: the largest score, 0 of a row that sees nothing unless it
  // is written out, and the sum of exp(score - largest). Any number near the largest may stand for
  // it. Of splits each part's.
  int largest = -1, total = -1;
  bool totals() const { return total >= 0; }
  std::optional<double> sink_value = {};  // in place of a sink that is read
  bool has_sink() const { return sink >= 0 || sink_value; }
  // A port of one integer, which starts as zero: how many tiles of rows are taken. CTAs take one as
  // they become free, where sequences or a mask make tiles unlike. -1: each takes them in steps of
  // the grid.
  int tiles_taken = -1;
  // Parts of the keys that are summed side by side. Then the body stores results and `stats`
  // logarithms of one part each, those of part i as if it were batch entry
  // i * entries + entry, and another kernel combines them.
  int splits = 1;
  // The port of what CTAs that have equal shares of all keys hand each other: f32 sums of parts,
  // and how many of a tile of rows are there. -1: no shares.
  int parts = -1;

  Dims group_ends(int rank) const { return {member, e, n, d, rank}; }
  int result_rank(int) const { return n; }
  template <class Self>
  static auto own_bodies(Self& s) {
    return std::vector{&s.q.body, &s.k.body, &s.v.body, &s.score, &s.weight, &s.mask};
  }
  template <class Self>
  static auto own_ports(Self& s) {
    return std::vector{&s.length_q,
                       &s.length_kv,
                       &s.sequences.offsets_q,
                       &s.sequences.offsets_kv,
                       &s.sink,
                       &s.stats,
                       &s.largest,
                       &s.total,
                       &s.tiles_taken,
                       &s.parts};
  }
};

}  // namespace sinter
