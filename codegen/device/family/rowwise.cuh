// The rowwise family. The first Config::kept indices name a row, the others run along it. A block
// shares Config::threads_per_row threads among each of its rows and takes them through the phases of
// the body, one after another:
//   Phase::row        values that do not depend on the place in the row, by every thread
//   Phase::element    once for every place of the row; accumulates the phase's reductions
//   the reductions of the phase are combined over the threads of the row
//   Phase::store_row  once a row
// A thread holds Config::width neighbouring elements as one place. Neighbours lie along the row, or,
// with Config::rows_fastest, across as many rows, whose reductions the thread then keeps apart.
// Where a row's places fit in registers (Config::resident) they are fetched once and stay there from
// phase to phase; else every phase fetches what it needs.
//
// What crosses threads goes through RowThreads::total, which holds all barriers; threads whose row
// lies past the end reach them too, with nothing to add.
#pragma once
#include "sinter/device/core/pack.cuh"
#include "sinter/device/family/reductions.cuh"

namespace sinter::rowwise {

template <class Config, class Args, class Place, class All>
struct Rows {
  using Index = typename Config::Index;
  using Coord = Coordinates<Index, typename Config::Extent>;
  static constexpr int rank = Config::Extent::size, width = Config::width;
  static constexpr bool across = Config::rows_fastest;
  static constexpr SINTER_DEVICE Index product(int from, int to) {
    Index p = 1;
    for (int i = from; i < to; ++i) p *= static_cast<Index>(Config::Extent::at(i));
    return p;
  }
  static constexpr Index rows = product(0, Config::kept);
  static constexpr Index columns = product(Config::kept, rank);
  static constexpr Index lanes = Config::threads_per_row;
  // Along a row: places, how many elements each moves on, and how many a thread has.
  static constexpr Index stride = across ? 1 : width;
  static constexpr Index places = columns / stride;
  static constexpr int each = static_cast<int>((places + lanes - 1) / lanes);
  // Rows whose reductions a thread keeps: its neighbours across, or those it takes at once.
  static constexpr int groups = across ? 1 : Config::rows_per_thread;
  static constexpr int states = across ? width : groups;
  static constexpr int held = Config::resident ? groups * each : Config::unroll;

  const Args& args;
  RowThreads<Config::threads_per_row, Config::rows_per_block, across> threads;
  Coord row[states];
  bool active[states];
  All reductions[states];
  Place place[held];
  int turn = 0;

  SINTER_DEVICE Rows(const Args& a) : args(a) {}

  SINTER_DEVICE void take(Index block) {
    constexpr Index block_rows = static_cast<Index>(Config::rows_per_block) * states;
#pragma unroll
    for (int s = 0; s < states; ++s) {
      const Index r = block * block_rows + (across ? threads.row * width + s
                                                   : threads.row + s * Config::rows_per_block);
      active[s] = r < rows;
      unravel<0, Config::kept>(active[s] ? r : 0, row[s]);
    }
  }

  // The first element of the thread's place number i in the rows of group g.
  SINTER_DEVICE Coord at(int g, Index i) const {
    Coord c = row[g];
    unravel<Config::kept, rank - Config::kept>(i * stride, c);
    return c;
  }

  template <class Phase>
  SINTER_DEVICE void visit(Phase (&phase)[states], int g, Index i, Place& p) {
    const Coord c = at(g, i);
#pragma unroll
    for (int e = 0; e < width; ++e) {
      const int s = across ? e : g;
      phase[s].element(args, neighbour<across ? Config::kept - 1 : rank - 1>(c, e), e, p,
                       reductions[s]);
    }
    Phase::flush(args, c, p);
  }

  // Calls f(g, i, place) for all places of the thread, where they stay in registers.
  template <class F>
  SINTER_DEVICE void for_held(const F& f) {
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
      for (int k = 0; k < each; ++k) {
        const Index i = threads.lane + k * lanes;
        if (active[g] && (places % lanes == 0 || i < places)) f(g, i, place[g * each + k]);
      }
  }

  template <class Phase>
  SINTER_DEVICE void stream(Phase (&phase)[states]) {
    if (!active[0]) return;
    constexpr Index round = lanes * Config::unroll, whole = places - places % round;
#pragma unroll 1
    for (Index from = threads.lane; from < whole; from += round) {
#pragma unroll
      for (int u = 0; u < Config::unroll; ++u) {
        Phase::fetch(args, at(0, from + u * lanes), place[u]);
        Phase::refetch(args, at(0, from + u * lanes), place[u]);
      }
#pragma unroll
      for (int u = 0; u < Config::unroll; ++u) visit(phase, 0, from + u * lanes, place[u]);
      settle(phase);
    }
    if constexpr (whole != places) {
#pragma unroll 1
      for (Index i = whole + threads.lane; i < places; i += lanes) {
        Phase::fetch(args, at(0, i), place[0]);
        Phase::refetch(args, at(0, i), place[0]);
        visit(phase, 0, i, place[0]);
      }
    }
  }

  // ---- the reductions that a phase accumulates

  template <class F, class... Rs>
  SINTER_DEVICE void for_reductions(Reductions<Rs...>&, const F& f) {
    (f(static_cast<Rs*>(nullptr)), ...);
  }
  template <class Phase>
  SINTER_DEVICE void settle(Phase (&)[states]) {
    for_reductions(reductions[0], [&]<class R>(R*) {
      if constexpr (R::phase == Phase::number)
#pragma unroll
        for (int s = 0; s < states; ++s) reductions[s].Reduction<R>::settle();
    });
  }

  template <class Phase>
  SINTER_DEVICE void run_phase() {
    Phase phase[states];
    for_reductions(reductions[0], [&]<class R>(R*) {
      if constexpr (R::phase == Phase::number)
#pragma unroll
        for (int s = 0; s < states; ++s) reductions[s].Reduction<R>::start();
    });
#pragma unroll
    for (int s = 0; s < states; ++s)
      if (active[s]) phase[s].row(args, row[s], reductions[s]);
    if constexpr (Phase::has_elements) {
      if constexpr (Config::resident) {
        if constexpr (!Config::prefetch)
          for_held([&](int g, Index i, Place& p) { Phase::fetch(args, at(g, i), p); });
        for_held([&](int g, Index i, Place& p) { visit(phase, g, i, p); });
      } else {
        stream(phase);
      }
      settle(phase);
    }
    for_reductions(reductions[0], [&]<class R>(R*) {
      if constexpr (R::phase == Phase::number) {
        typename Reduction<R>::Partial all[states];
#pragma unroll
        for (int s = 0; s < states; ++s) all[s] = reductions[s].Reduction<R>::settled;
        threads.template total<Reduction<R>>(all, turn);
#pragma unroll
        for (int s = 0; s < states; ++s) reductions[s].Reduction<R>::finish(all[s]);
      }
    });
#pragma unroll
    for (int s = 0; s < states; ++s)
      if (active[s] && threads.lane == 0) phase[s].store_row(args, row[s]);
  }
};

template <class Config, class Place, class All, class... Phases, class Args>
SINTER_DEVICE void run(List<Phases...>, const Args& args) {
  Rows<Config, Args, Place, All> rows(args);
  rows.take(static_cast<typename Config::Index>(blockIdx.x));
  if constexpr (Config::resident && Config::prefetch)
    rows.for_held([&](int g, typename Config::Index i, Place& p) {
      (Phases::fetch(args, rows.at(g, i), p), ...);
    });
  (rows.template run_phase<Phases>(), ...);
}

}  // namespace sinter::rowwise
