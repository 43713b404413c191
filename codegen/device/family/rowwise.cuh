// The rowwise family. The first Config::outer_rank indices name a row, the others run along it. A
// block shares Config::threads_per_row threads among each of its rows and takes them through the
// phases of the body, one after another:
//   Phase::row        values that do not depend on the position in the row, by every thread
//   Phase::element    once for every vector of the row; accumulates the phase's reductions
//   the reductions of the phase are combined over the threads of the row
//   Phase::store_row  once a row
// A thread holds Config::width neighbouring elements as one vector. Neighbours lie along the row,
// or, with Config::rows_fastest, across as many rows, whose reductions the thread then keeps apart.
// Where a row's vectors fit in registers (Config::register_resident) they are fetched once and stay
// there from phase to phase, or in shared memory (Config::held_in_shared), where each thread finds
// what it has brought itself; else every phase fetches what it needs. What all rows share (weights)
// is fetched when a phase first needs it, or before the first one with Config::prefetch.
//
// Where a row is short, a thread has several in flight at once (Config::rows_at_once), so that
// enough of memory is: those of so many successive blocks, in numbers of blocks with one each.
//
// A kernel may start while the one before it in the stream still writes what this one reads. The
// first Config::early blocks then ask for their rows to come to the second-level cache: that takes
// nothing from memory yet, and what is still written is written there, too.
// With Config::segment, the last two phases run as one (row_segments.cuh). Layout: row_layout.cuh.
//
// With Config::num_partials, as many blocks (of long rows, clusters) walk over the rows and keep
// what all share (Config::prefetch) and running results of columns, which each writes at its end.
// With Config::ahead the next row is fetched while one is worked on: to registers, or, with
// Config::pipeline_stages, so many rows to shared memory, of which Config::in_flight may still be
// on their way when the next one is taken.
//
// What crosses threads goes through RowThreads::total, which holds all barriers; threads whose row
// lies past the end reach them too, with nothing to add.
#pragma once
#include "sinter/device/core/async_copy.cuh"
#include "sinter/device/family/row_layout.cuh"
#include "sinter/device/family/row_segments.cuh"
#include "sinter/device/family/row_threads.cuh"
#include "sinter/device/family/several_rows.cuh"
#include "sinter/device/family/staged_rows.cuh"

namespace sinter::rowwise {

inline constexpr int kRun = 256;  // terms that a column adds up in one go

struct NoColumns {};

template <class Config, class Args, class Fragment, class RowFragment, class All, class Columns>
struct Rows : RowLayout<Config> {
  using L = RowLayout<Config>;
  using L::rank, L::width, L::across, L::shifted, L::beside, L::numbers, L::rows, L::known_rows,
      L::blocks, L::group, L::resident, L::in_shared, L::lanes, L::misaligned, L::vectors, L::each,
      L::states, L::round, L::ends, L::in_rounds, L::rest, L::held, L::walks, L::kinds,
      L::block_rows, L::all_active, L::walker, L::row_start, L::exists, L::at, L::in_row,
      L::whole_at, L::line;
  using typename L::Index, typename L::Coord;
  static constexpr bool has_columns = !__is_empty(Columns);
  const Args& args;
  RowThreads<Config::threads_per_row, Config::rows_per_block, across, blocks, group> threads;
  Coord row[states];
  RowFragment of_row[states];
  bool active[states];
  All reductions[states];
  Fragment fragment[held];
  Columns columns[has_columns && each > 0 ? each : 1][has_columns ? width : 1];
  int turn = 0;

  SINTER_DEVICE Rows(const Args& a) : args(a) {}

  SINTER_DEVICE Index row_number(Index block, int s) const {
    return (block / kinds * block_rows + threads.row * states + s) * kinds + block % kinds;
  }
  // Whether the thread stores what belongs to its s-th row: not where the thread before holds it.
  SINTER_DEVICE bool stores(int s) const {
    if constexpr (!shifted || numbers == beside) return true;
    const Index last = numbers - width;
    return row[0].at[line] <= last - width || row[s].at[line] >= last;
  }
  SINTER_DEVICE void take(Index block) {
#pragma unroll
    for (int s = 0; s < states; ++s) {
      const Index r = row_number(block, s);
      active[s] = all_active || r < rows;
      row[s] = row_start(active[s] ? r : 0);
    }
  }

  // Runs the phase's elements at the thread's k-th vector, the row's i-th.
  template <class Phase>
  SINTER_DEVICE void visit(Phase (&phase)[states], int k, Index i, Fragment& p, bool whole) {
    const Coord c = at(row[0], i, whole);
    // Weights that stay for all rows have been cut before the first.
    if constexpr (Config::misaligned && !(walks && Config::prefetch)) Phase::cut(p);
    if constexpr (Config::misaligned && !resident) Phase::cut_again(p);
    draw_numbers<Phase, !resident>(args, c, p);
#pragma unroll
    for (int e = 0; e < width; ++e) {
      if constexpr (misaligned)
        if (!Phase::anywhere && !inside_row(c, e)) continue;
      const int s = across ? e : 0;
      const Coord d = neighbour < across ? Config::outer_rank - 1 : rank - 1 > (c, e);
      if constexpr (has_columns)
        phase[s].element(args, d, e, p, reductions[s], columns[k][e]);
      else
        phase[s].element(args, d, e, p, reductions[s]);
    }
    Phase::flush(args, c, p);
  }

  SINTER_DEVICE void fetch_rows(Index block, RowFragment (&to)[states]) {
    if constexpr (!__is_empty(RowFragment))
#pragma unroll
      for (int s = 0; s < states; ++s)
        if (const Index r = row_number(block, s); exists(r)) to[s].fetch(args, row_start(r));
  }
  template <class... Phases>
  SINTER_DEVICE void fetch(Index block, Fragment (&to)[held]) {
    const Index r = row_number(block, 0);
    if (!exists(r)) return;
    const Coord start = row_start(r);
#pragma unroll
    for (int k = 0; k < each; ++k)
      if (const Index i = threads.lane + k * lanes; in_row(k, i)) {
        const Coord c = at(start, i, whole_at(k));
        (Phases::fetch(args, c, to[k]), ...);
      }
  }
  template <class... Phases>
  SINTER_DEVICE void prefetch(Index block) {
    const Index r = row_number(block, 0);
    if (r >= rows) return;
    const Coord start = row_start(r);
#pragma unroll 1
    for (Index i = threads.lane; i < vectors; i += lanes) {
      const Coord c = at(start, i);
      (Phases::prefetch(args, c), ...);
    }
  }
  // A row that starts like all that the thread takes.
  SINTER_DEVICE Coord some_row() const {
    if constexpr (walks)
      return row_start(walker() % kinds);
    else
      return misaligned ? row[0] : row_start(0);
  }
  template <class... Phases>
  SINTER_DEVICE void fetch_weights() {
    const Coord start = some_row();
#pragma unroll
    for (int k = 0; k < each; ++k)
      if (const Index i = threads.lane + k * lanes; in_row(k, i)) {
        const Coord c = at(start, i, whole_at(k));
        (Phases::fetch_weights(args, c, fragment[k]), ...);
      }
  }
  // Before the first phase of a row.
  template <class... Phases>
  SINTER_DEVICE void begin(Index block) {
    take(block);
    fetch_rows(block, of_row);
    if constexpr (in_shared) {
      fill(block, 0);
      wait_for_groups_but<0>();
    } else if constexpr (resident) {
      fetch<Phases...>(block, fragment);
    }
    if constexpr (resident && Config::prefetch) fetch_weights<Phases...>();
  }

  // What a phase fetches itself, for some vectors from the k-th on: loads do not pass the stores of
  // the vectors before. Two weights that are cut out of pieces leave no registers for four. (bf16
  // on an H200, four and two: layernorms 3000 x 7777 50.7 and 29.8 us, 16384 x 1001 36.1 and 21.1.)
  static constexpr bool much = misaligned && !walks && sizeof(Fragment) > 128;
  static constexpr int together = each <= 4 && each > 0 && !much ? each : 2;
  template <class Phase>
  SINTER_DEVICE void fetch_late(int k) {
    constexpr bool rows_too = walks && !Config::ahead;  // not only weights
    if constexpr (rows_too || !Config::prefetch)
#pragma unroll
      for (int n = 0; n < together; ++n) {
        const int j = k + n;
        const Index i = threads.lane + j * lanes;
        if (j >= each || i >= vectors) continue;
        const Coord c = at(row[0], i, whole_at(j));
        if constexpr (rows_too) Phase::fetch(args, c, fragment[j]);
        if constexpr (!Config::prefetch) Phase::fetch_weights(args, c, fragment[j]);
      }
  }

  // All that a phase needs at the row's i-th vector.
  template <class Phase>
  SINTER_DEVICE void fetch_vector(Index i, Fragment& p, bool whole) {
    const Coord c = at(row[0], i, whole);
    Phase::fetch(args, c, p);
    Phase::fetch_weights(args, c, p);
    Phase::refetch(args, c, p);
  }

  // ---- the reductions that a phase accumulates

  template <class Phase>
  using ReductionsOf = typename All::template Of<Phase::number>;

  template <class Phase>
  SINTER_DEVICE void fold_partials() {
#pragma unroll
    for (int s = 0; s < states; ++s) reductions[s].fold_partials(ReductionsOf<Phase>());
  }

  // What the thread has of them, and what all of its row have.
  template <class... Rs>
  SINTER_DEVICE void unfinished(List<Rs...>, Totals<states, All>& totals) const {
#pragma unroll
    for (int s = 0; s < states; ++s)
      ((totals.TotalOf<states, Rs>::of[s] = reductions[s].Reduction<Rs>::unfinished(resident)),
       ...);
  }
  template <class... Rs>
  SINTER_DEVICE void finish(List<Rs...>, const Totals<states, All>& totals) {
#pragma unroll
    for (int s = 0; s < states; ++s)
      (reductions[s].Reduction<Rs>::finish(totals.TotalOf<states, Rs>::of[s]), ...);
  }

  template <class Phase>
  SINTER_DEVICE void run_phase() {
    Phase phase[states];
#pragma unroll
    for (int s = 0; s < states; ++s) reductions[s].start(ReductionsOf<Phase>());
#pragma unroll
    for (int s = 0; s < states; ++s)
      if (active[s]) phase[s].row(args, row[s], of_row[s], reductions[s]);
    if constexpr (Phase::has_elements) {
      if constexpr (in_shared) {
#pragma unroll 4
        for (int k = 0; k < each; ++k) {
          const Index i = threads.lane + k * lanes;
          if (!in_row(k, i) || !active[0]) continue;
          slot(0).take(k * Config::threads + threadIdx.x, fragment[0]);
          visit(phase, k, i, fragment[0], whole_at(k));
        }
      } else if constexpr (resident) {
#pragma unroll
        for (int k = 0; k < each; ++k) {
          const Index i = threads.lane + k * lanes;
          if (!in_row(k, i) || !active[0]) continue;
          if (k % together == 0) fetch_late<Phase>(k);
          if constexpr (Config::recompute) Phase::recompute(fragment[k]);
          visit(phase, k, i, fragment[k], whole_at(k));
        }
      } else if (active[0]) {
        Index from = threads.lane;
#pragma unroll 1
        for (; from < in_rounds; from += round) {
#pragma unroll
          for (int u = 0; u < Config::unroll; ++u)
            fetch_vector<Phase>(from + u * lanes, fragment[u], true);
#pragma unroll
          for (int u = 0; u < Config::unroll; ++u)
            visit(phase, u, from + u * lanes, fragment[u], true);
          fold_partials<Phase>();
        }
        // The rest is in flight at once, too. Where its first vector comes with the launch, it is
        // where the rounds have ended: found again for each vector, one load after the other waits
        // for constant memory.
        if constexpr (L::known_length) from = in_rounds + threads.lane;
#pragma unroll
        for (int u = 0; u < rest; ++u)
          if (const Index i = from + u * lanes; i < vectors)
            fetch_vector<Phase>(i, fragment[u], L::rest_whole_at(u));
#pragma unroll
        for (int u = 0; u < rest; ++u)
          if (const Index i = from + u * lanes; i < vectors)
            visit(phase, u, i, fragment[u], L::rest_whole_at(u));
        fold_partials<Phase>();
      }
    }
    if constexpr (ReductionsOf<Phase>::size > 0) {
      Totals<states, All> totals;
      unfinished(ReductionsOf<Phase>(), totals);
      threads.total(ReductionsOf<Phase>(), totals, turn);
      finish(ReductionsOf<Phase>(), totals);
    }
    if constexpr (requires { Phase::stores_rows; }) {
      if (active[0] && threads.lane == 0) Phase::store_rows(args, row[0], phase);
    } else {
#pragma unroll
      for (int s = 0; s < states; ++s)
        if (active[s] && stores(s) && threads.lane == 0) phase[s].store_row(args, row[s]);
    }
  }

  // ---- the columns

  SINTER_DEVICE void start_columns() {
#pragma unroll
    for (int k = 0; k < each; ++k)
#pragma unroll
      for (int e = 0; e < width; ++e)
        if (in_row(k, threads.lane + k * lanes)) columns[k][e].start(typename Columns::All());
  }
  SINTER_DEVICE void fold_columns() {
#pragma unroll
    for (int k = 0; k < each; ++k)
#pragma unroll
      for (int e = 0; e < width; ++e)
        if (in_row(k, threads.lane + k * lanes))
          columns[k][e].fold_partials(typename Columns::All());
  }

  template <class R>
  SINTER_DEVICE void add_up_columns() {
    // The rows that were in flight have left shared memory.
    void* ring = nullptr;
    if constexpr (Config::pipeline_stages > 0) ring = &slot(0);
    typename Reduction<R>::Partial all[(each > 0 ? each : 1) * width];
#pragma unroll
    for (int k = 0; k < each; ++k)
#pragma unroll
      for (int e = 0; e < width; ++e)
        if (in_row(k, threads.lane + k * lanes)) {
          Reduction<R>& r = columns[k][e];
          r.fold_partials();
          all[k * width + e] = r.folded;
        }
    threads.template total_of_rows<Reduction<R>, Config::pipeline_stages * Config::stage_bytes>(
        all, ring);
#pragma unroll
    for (int k = 0; k < each; ++k)
#pragma unroll
      for (int e = 0; e < width; ++e)
        if (in_row(k, threads.lane + k * lanes))
          columns[k][e].Reduction<R>::folded = all[k * width + e];
  }
  template <class... Rs>
  SINTER_DEVICE void store_columns(List<Rs...>) {
    (add_up_columns<Rs>(), ...);
    // Where a vector takes two accesses of 16 bytes, threads side by side write halves of the same
    // vector at once, so that all sectors of memory are written whole. (The gradients of a
    // layernorm of 4096 x 12288 on an H200: 84.6 -> 81.2 us.)
    constexpr bool halves = Config::threads_per_row % 32 == 0 &&
                            ((width * sizeof(typename Reduction<Rs>::Partial) == 32) && ...);
    if (threads.row != 0) return;
    const Coord start = some_row();
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const Index i = threads.lane + k * lanes;
      if constexpr (halves) {
        (exchange_halves<Rs>(columns[k]), ...);
        const int half = static_cast<int>(i) % 2 * (width / 2);
#pragma unroll
        for (int n = 0; n < 2; ++n)
          if (const Index vector = i - i % 2 + n; in_row(k, vector))
            Columns::template store<width / 2>(
                args, neighbour<rank - 1>(at(start, vector, whole_at(k)), half), walker(),
                columns[k] + n * (width / 2));
      } else if (in_row(k, i)) {
        Columns::template store<width>(args, at(start, i, whole_at(k)), walker(), columns[k]);
      }
    }
  }

  // ---- rows in flight to shared memory: Config::pipeline_stages slots for one row of each thread

  static SINTER_DEVICE auto& slot(int i) {
    using Ahead = typename Fragment::template Ahead<Config::threads * each>;
    static_assert(sizeof(Ahead) == Config::stage_bytes);
    extern __shared__ __align__(16) unsigned char dynamic_memory[];
    return reinterpret_cast<Ahead*>(dynamic_memory)[i];
  }
  SINTER_DEVICE void fill(Index block, int i) {
    if (const Index r = row_number(block, 0); exists(r)) {
      const Coord start = row_start(r);
#pragma unroll
      for (int k = 0; k < each; ++k)
        if (const Index p = threads.lane + k * lanes; in_row(k, p))
          slot(i).fill(args, at(start, p, whole_at(k)), k * Config::threads + threadIdx.x);
    }
    end_group_of_copies();
  }
  // Takes the row of the slot and has it refilled. What a thread reads it brought itself, so that
  // it need not wait for any other. But copies are not ordered with the thread's own reads: the
  // refill might overwrite what is still to be read. Behind the warp's barrier its reads are done.
  SINTER_DEVICE void take_and_refill(Index block, int i) {
    wait_for_groups_but<Config::in_flight>();
#pragma unroll
    for (int k = 0; k < each; ++k)
      if (in_row(k, threads.lane + k * lanes))
        slot(i).take(k * Config::threads + threadIdx.x, fragment[k]);
    __syncwarp();
    fill(block + Config::pipeline_stages * Config::num_partials, i);
    // Loads that follow stay behind the copies: ahead of them they make all wait (114 instead of
    // 103 us for the gradients of an rmsnorm of 16384 x 4096 on an H200).
    __syncwarp();
  }

  // What belongs to a row as a whole is fetched a step ahead, too. A block of one row would wait
  // for it all the same: the compiler moves what all threads share to uniform registers at once.
  // With Config::by_lanes, every lane of a warp fetches it for another one of 32 steps, while those
  // before go on.
  struct RowsAhead {
    RowFragment next[states], later[states];
  };
  SINTER_DEVICE void start_rows(RowsAhead& ahead) {
    if constexpr (Config::by_lanes)
      fetch_rows(walker() + lane_of_warp() * Config::num_partials, ahead.later);
    else
      fetch_rows(walker(), of_row);
  }
  SINTER_DEVICE void take_rows(RowsAhead& ahead, Index block, int steps) {
    if constexpr (Config::by_lanes) {
      if (steps % 32 == 0) {
#pragma unroll
        for (int s = 0; s < states; ++s) ahead.next[s] = ahead.later[s];
        fetch_rows(block + (32 + lane_of_warp()) * Config::num_partials, ahead.later);
      }
#pragma unroll
      for (int s = 0; s < states; ++s) of_row[s] = ahead.next[s].of_lane(steps % 32);
    } else {
      fetch_rows(block + Config::num_partials, ahead.next);
    }
  }
  static SINTER_DEVICE int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }

  template <class... Phases>
  SINTER_DEVICE void walk(List<Phases...>) {
    constexpr auto all = number<known_rows>(
        [] { return ((rows + kinds - 1) / kinds + block_rows - 1) / block_rows * kinds; });
    const Index blocks = all;
    if constexpr (has_columns) start_columns();
    if constexpr (Config::pipeline_stages > 0)
#pragma unroll 1
      for (int i = 0; i < Config::pipeline_stages; ++i)
        fill(walker() + i * Config::num_partials, i);
    if constexpr (Config::prefetch) fetch_weights<Phases...>();
    if constexpr (Config::prefetch && misaligned)
#pragma unroll
      for (int k = 0; k < each; ++k)
        if (in_row(k, threads.lane + k * lanes)) (Phases::cut(fragment[k]), ...);
    RowsAhead rows_ahead;
    if constexpr (Config::ahead) {
      if constexpr (Config::pipeline_stages == 0) fetch<Phases...>(walker(), fragment);
      start_rows(rows_ahead);
    }
    int steps = 0;
#pragma unroll 1
    for (Index block = walker(); block < blocks; block += Config::num_partials) {
      take(block);
      Fragment next[held];
      if constexpr (Config::ahead) {
        if constexpr (Config::pipeline_stages > 0)
          take_and_refill(block, steps % Config::pipeline_stages);
        else
          fetch<Phases...>(block + Config::num_partials, next);
        take_rows(rows_ahead, block, steps);
      } else {
        fetch_rows(block, of_row);
      }
      (run_phase<Phases>(), ...);
      if constexpr (Config::ahead) {
        if constexpr (Config::pipeline_stages == 0)
#pragma unroll
          for (int k = 0; k < held; ++k) fragment[k].advance(next[k]);
        if constexpr (!Config::by_lanes)
#pragma unroll
          for (int s = 0; s < states; ++s) of_row[s] = rows_ahead.next[s];
      }
      ++steps;
      if constexpr (has_columns && (!known_rows || all > Config::num_partials * kRun))
        if (steps % kRun == 0) fold_columns();
    }
    if constexpr (has_columns) store_columns(typename Columns::All());
  }
};

// The rows of a kernel, which calls `start` and then each of its phases, or `walk`. It calls them
// itself: what stands in a function around them all is simplified once more, which takes the
// compiler 5% of its time.
template <class Config, class Args, class Fragment, class RowFragment, class All,
          class Columns = NoColumns>
using RowsOf =
    Several<MaybeSegments<Config, Rows<Config, Args, Fragment, RowFragment, All, Columns>>,
            Config::rows_at_once>;

template <class Config, class... Phases, class Row>
SINTER_DEVICE void start(List<Phases...>, Row& rows) {
  using Index = typename Config::Index;
  constexpr int count = Config::rows_at_once;
  static_assert(count == 1 || (Config::threads_per_row <= 32 && Row::resident && !Row::across &&
                               Config::num_partials == 0));
  rows.threads.arrive();
  // Of blocks that would share a row, but cannot, all but the first have one past the end.
  const bool first = blockIdx.x % Config::blocks_per_row == 0;
  const Index block = Row::blocks == Config::blocks_per_row || first
                          ? static_cast<Index>(block_number<Config>() / Config::blocks_per_row)
                          : Row::rows;
  if constexpr (hardware::kernels_overlap && Config::early > 0 && Row::resident)
    if (blockIdx.x < Config::early) rows.template prefetch<Phases...>(block * count);
  hardware::grid_dependency_wait();
  if constexpr (Config::num_partials == 0) rows.template begin<Phases...>(block * count);
}

}  // namespace sinter::rowwise
