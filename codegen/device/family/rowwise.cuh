// The rowwise family. The first Config::kept indices name a row, the others run along it. A block
// holds Config::rows_per_block rows with Config::threads_per_row threads each and takes them
// through the phases of the body, one after another:
//   Phase::row        values that do not depend on the place in the row, by every thread
//   Phase::element    once for every place of the row; accumulates the phase's reductions
//   the reductions of the phase are combined over the threads of the row
//   Phase::store_row  once a row
// What crosses threads goes through RowThreads::total, which holds all barriers; threads whose row
// lies past the end reach them too, with nothing to add.
#pragma once
#include "sinter/device/core/index.cuh"
#include "sinter/device/family/reductions.cuh"

namespace sinter::rowwise {

inline constexpr int kRun = 256;  // elements that a thread adds up in one go

template <class Config>
using Coord = Coordinates<typename Config::Index, typename Config::Extent>;

template <class Config>
struct Shape {
  using Index = typename Config::Index;
  static constexpr int rank = Config::Extent::size;
  static constexpr SINTER_DEVICE Index product(int from, int to) {
    Index p = 1;
    for (int i = from; i < to; ++i) p *= static_cast<Index>(Config::Extent::at(i));
    return p;
  }
  static constexpr Index rows = product(0, Config::kept);
  static constexpr Index columns = product(Config::kept, rank);
};

// Finishes one reduction where this phase accumulated it.
template <class R, int phase, class All, class Threads>
SINTER_DEVICE void finish(All& reductions, const Threads& threads) {
  if constexpr (R::phase == phase) {
    Reduction<R>& r = reductions;
    r.settle();
    r.finish(threads.template total<Reduction<R>>(r.settled));
  }
}
template <class R, int phase, class All>
SINTER_DEVICE void start(All& reductions) {
  if constexpr (R::phase == phase) reductions.Reduction<R>::start();
}
template <class R, int phase, class All>
SINTER_DEVICE void settle(All& reductions) {
  if constexpr (R::phase == phase) reductions.Reduction<R>::settle();
}

template <class Config, int phase, class Phase, class Threads, class... Rs>
SINTER_DEVICE void run_phase(Phase body, const Threads& threads, bool active, Coord<Config>& c,
                             Reductions<Rs...>& reductions) {
  using Index = typename Config::Index;
  (start<Rs, phase>(reductions), ...);
  if (active) {
    body.row(c, reductions);
    if constexpr (Phase::has_elements) {
      constexpr Index columns = Shape<Config>::columns;
      constexpr Index run = columns > kRun * Config::threads_per_row
                                ? static_cast<Index>(kRun) * Config::threads_per_row
                                : columns;
      for (Index from = 0; from < columns; from += run) {
        const Index to = columns - from < run ? columns : from + run;
#pragma unroll Config::unroll
        for (Index i = from + threads.lane; i < to; i += Config::threads_per_row) {
          unravel<Config::kept, Shape<Config>::rank - Config::kept>(i, c);
          body.element(c, reductions);
        }
        (settle<Rs, phase>(reductions), ...);
      }
    }
  }
  (finish<Rs, phase>(reductions, threads), ...);
#pragma unroll
  for (int d = Config::kept; d < Shape<Config>::rank; ++d) c.at[d] = 0;
  if (active && threads.lane == 0) body.store_row(c);
}

template <class Config, int phase, class Threads, class Args, class All>
SINTER_DEVICE void run_all(List<>, const Args&, const Threads&, bool, Coord<Config>&, All&) {}
template <class Config, int phase, class Threads, class Args, class All, class First, class... Rest>
SINTER_DEVICE void run_all(List<First, Rest...>, const Args& args, const Threads& threads,
                           bool active, Coord<Config>& c, All& reductions) {
  run_phase<Config, phase>(First{args}, threads, active, c, reductions);
  run_all<Config, phase + 1>(List<Rest...>{}, args, threads, active, c, reductions);
}

template <class Config, class Phases, class All, class Args>
SINTER_DEVICE void run(const Args& args) {
  using Index = typename Config::Index;
  constexpr Index rows = Shape<Config>::rows;
  const RowThreads<Config::threads_per_row, Config::rows_per_block, Config::rows_fastest> threads;
  const Index step = static_cast<Index>(gridDim.x) * Config::rows_per_block;
  for (Index first = static_cast<Index>(blockIdx.x) * Config::rows_per_block; first < rows;
       first += step) {
    const Index row = first + threads.row;
    Coord<Config> c;
    unravel<0, Config::kept>(row < rows ? row : 0, c);
    All reductions;
    run_all<Config, 0>(Phases{}, args, threads, row < rows, c, reductions);
  }
}

}  // namespace sinter::rowwise
