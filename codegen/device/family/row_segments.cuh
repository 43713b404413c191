// Reductions of each segment of a row: Config::segment neighbouring elements. The last phase but
// one accumulates them and the last goes on with them. As the threads that have a segment are
// neighbours in a warp, a thread runs both at one vector after the other: no phase of the whole
// row, no barrier.
#pragma once
#include "sinter/device/core/pack.cuh"
#include "sinter/device/family/row_threads.cuh"

namespace sinter::rowwise {

// Rows (rowwise.cuh) with such reductions.
template <class Config, class Row>
struct RowsOfSegments : Row {
  using Row::active, Row::args, Row::each, Row::fragment, Row::lanes, Row::of_row, Row::vectors,
      Row::reductions, Row::resident, Row::round, Row::row, Row::threads, Row::width;
  using Row::Row;
  using typename Row::Index, typename Row::Coord;
  template <class Phase>
  using ReductionsOf = typename Row::template ReductionsOf<Phase>;

  template <class... Rs>
  SINTER_DEVICE void total_of_segment(List<Rs...>) {
    (reductions[0].Reduction<Rs>::finish(
         total_of_lanes<Rs, Config::segment / width>(reductions[0].Reduction<Rs>::partial)),
     ...);
  }
  template <class Phase, class Fragment>
  SINTER_DEVICE void elements(const Phase& phase, const Coord& c, Fragment& p) {
    draw_numbers<Phase, !resident>(args, c, p);
#pragma unroll
    for (int e = 0; e < width; ++e)
      phase.element(args, neighbour<Row::rank - 1>(c, e), e, p, reductions[0]);
  }
  // Both phases at the row's i-th vector, if the thread has it; all threads of the warp come here.
  template <class Phase, class Next, class Fragment>
  SINTER_DEVICE void visit_segment(const Phase& phase, Next& next, Index i, Fragment& p,
                                   bool here) {
    const Coord c = Row::at(row[0], i, true);
    reductions[0].start(ReductionsOf<Phase>());
    if (here) elements(phase, c, p);
    total_of_segment(ReductionsOf<Phase>());
    if (!here) return;
    next.segment(args, c, reductions[0]);
    elements(next, c, p);
    Phase::flush(args, c, p);
    Next::flush(args, c, p);
  }
  template <class Phase, class Next>
  SINTER_DEVICE void run_segments() {
    static_assert(!Row::across && !Row::misaligned && Row::known_length);
    static_assert(Config::segment % width == 0 && lanes % (Config::segment / width) == 0);
    Phase phase;
    Next next;
    if (active[0]) {
      phase.row(args, row[0], of_row[0], reductions[0]);
      next.row(args, row[0], of_row[0], reductions[0]);
    }
    if constexpr (resident) {
#pragma unroll
      for (int k = 0; k < each; ++k) {
        const Index i = threads.lane + k * lanes;
        if (k % Row::together == 0 && active[0]) {
          Row::template fetch_late<Phase>(k);
          Row::template fetch_late<Next>(k);
        }
        if constexpr (Config::recompute) Phase::recompute(fragment[k]);
        visit_segment(phase, next, i, fragment[k], Row::in_row(k, i) && active[0]);
      }
    } else {
#pragma unroll 1
      for (Index first = 0; first < vectors; first += round) {
        const Index from = first + threads.lane;
#pragma unroll
        for (int u = 0; u < Config::unroll; ++u)
          if (const Index i = from + u * lanes; i < vectors && active[0]) {
            Row::template fetch_vector<Phase>(i, fragment[u], true);
            Row::template fetch_vector<Next>(i, fragment[u], true);
          }
#pragma unroll
        for (int u = 0; u < Config::unroll; ++u) {
          const Index i = from + u * lanes;
          visit_segment(phase, next, i, fragment[u], i < vectors && active[0]);
        }
      }
    }
    if (active[0] && threads.lane == 0) {
      phase.store_row(args, row[0]);
      next.store_row(args, row[0]);
    }
  }
};

template <class Config, class Row>
struct WithSegments {
  using Type = Row;
};
template <class Config, class Row>
requires requires { Config::segment; }
struct WithSegments<Config, Row> {
  using Type = RowsOfSegments<Config, Row>;
};
template <class Config, class Row>
using MaybeSegments = typename WithSegments<Config, Row>::Type;

}  // namespace sinter::rowwise
