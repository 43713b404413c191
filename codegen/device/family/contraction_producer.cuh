// The producer of a contraction on the tensor cores of sm_90a: it keeps the pipeline's stages full;
// see contraction_wgmma.cuh.
#pragma once
#include "sinter/device/engine/loader/gathered_rows.cuh"
#include "sinter/device/family/contraction_tiles.cuh"

namespace sinter::contraction {

// Of whose rows a box has not all: the rows of several taps of a filter gradient.
template <class Operand>
concept InSeveralBoxes = requires {
  Operand::box_rows;
};
template <class Operand, int all>
SINTER_DEVICE constexpr int rows_of_box() {
  if constexpr (InSeveralBoxes<Operand>)
    return Operand::box_rows;
  else
    return all;
}

// Brings this block's part of an operand; `rows` of the tile's, of which the cluster shares parts.
template <class Operand, int rows, int parts, class Args, class Coord>
SINTER_DEVICE void load_operand(const Args& args, const Coord& c, int row, int k, int rank,
                                unsigned to, unsigned barrier) {
  constexpr int part = rows / parts;
  constexpr unsigned blocks = parts > 1 ? (1u << parts) - 1 : 0;
  const int first = parts > 1 ? rank * part : 0;
  if constexpr (Operand::k_fastest) {
    constexpr int box = rows_of_box<Operand, part>();
    static_assert(part % box == 0);
#pragma unroll
    for (int i = first; i < first + part; i += box)
      Operand::load(args, c, row + i, k, to + i * 128, barrier, blocks);
  } else {
    static_assert(part % 64 == 0 || parts == 1);
#pragma unroll
    for (int i = first; i < first + part; i += 64)
      Operand::load(args, c, row + i, k, to + i * 128, barrier, blocks);
  }
}

// A block's part of B for a step of k; of two products, of both.
template <class Config, class B, class B2, class Args, class Coord>
SINTER_DEVICE void load_columns(const Args& args, const Coord& c, int column, int k, int rank,
                                unsigned to, unsigned full) {
  using S = Shape<Config>;
  load_operand<B, S::columns, Config::cluster_m>(args, c, column, k, rank, to, full);
  if constexpr (Config::products > 1)
    load_operand<B2, S::columns, Config::cluster_m>(args, c, column, k, rank,
                                                    to + S::columns * S::line, full);
}

// What one thread of the producer does. `first`: the place of the first tile, where it is known.
template <class Config, class A, class B, class B2, class First, class Args, class Rows>
SINTER_DEVICE void produce(const Args& args, const Rows& rows, const First& first, unsigned shared,
                           int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  const StagePipeline<Config> pipeline{shared + S::full};
  typename StagePipeline<Config>::State state;
  const auto fill = [&](const TilePlace<Config>& place, int tile) {
    typename P::Coord c;
    P::set_batch(c, place.batch);
    const int steps = S::steps(place.batch), first_step = S::first_step(steps, rank),
              end_step = S::end_step(steps, rank), count = end_step - first_step;
    int step = first_step + (Config::rotate > 0 ? tile % count * Config::rotate % count : 0);
    int left = count;
    if constexpr (First::known) hardware::compute_here(left);  // else the second loop is unrolled
#pragma unroll 1
    for (; left > 0; --left, state.advance()) {
      const unsigned stage = shared + state.stage * S::stage_bytes, full = pipeline.full(state);
      pipeline.acquire(state);
      pipeline.expect(state, S::stage_bytes);
      load_operand<A, Config::loaded_rows, Config::cluster_n>(args, c, place.row, step * S::step,
                                                              rank, stage, full);
      load_columns<Config, B, B2>(args, c, place.column, step * S::step, rank, stage + S::a_bytes,
                                  full);
      if (++step == end_step) step = first_step;
    }
  };
  TileWalk<Config, Rows> walk(rows);
  if constexpr (First::known) {
    // Outside of the loop: as a case of it the compiler takes coordinates for ones that threads
    // differ in, and each copy waits for them (0.2 us of 3.6 where 13 stages are filled, H200).
    if (!walk.more()) return;
    fill(first.place, walk.tile);
    walk.advance();
  }
  for (; walk.more(); walk.advance()) fill(walk.place(rank), walk.tile);
}

// Rows of A that a table names.
template <class Config, class A>
using TableRows =
    GatheredRows<StageTile<A, Config::loaded_rows>, static_cast<int>(Problem<Config>::depth)>;
template <class Config, class A, class Args, class Rows>
SINTER_DEVICE void aim(TableRows<Config, A>& loader, const Args& args, const Rows& rows,
                       const TilePlace<Config>& place) {
  using P = Problem<Config>;
  loader.aim([&](int i, bool& exists) {
    const int row = place.row + i;
    exists = row < place.row_end;
    typename P::Coord c;
    P::set_m(c, exists ? rows.source(static_cast<typename P::Index>(row)) : 0);
    return A::base(args) + locate<typename A::Access>(c).offset;
  });
}

// What all threads of the producer do then. A stage is handed over when the copies of some stages
// after it have been started.
template <class Config, class A, class B, class B2, class Args, class Rows>
SINTER_DEVICE void produce_gathered(const Args& args, const Rows& rows, unsigned shared, int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(Config::cluster_n == 1 && Config::split == 1);
  constexpr int most_in_flight = Config::stages < 6 ? Config::stages - 2 : 4;
  TableRows<Config, A> copies;
  const StagePipeline<Config> pipeline{shared + S::full};
  typename StagePipeline<Config>::State state, oldest;  // of those in flight
  int in_flight = 0;
  const auto hand_over = [&] {
    pipeline.commit(oldest);
    oldest.advance();
  };
  for (TileWalk<Config, Rows> walk(rows); walk.more(); walk.advance()) {
    const TilePlace<Config> place = walk.place(rank);
    typename P::Coord c;
    P::set_batch(c, place.batch);
    aim<Config, A>(copies, args, rows, place);
#pragma unroll 1
    for (int step = 0; step < S::steps(place.batch); ++step, state.advance()) {
      const unsigned stage = shared + state.stage * S::stage_bytes, full = pipeline.full(state);
      pipeline.acquire(state);
      if (threadIdx.x == 0) {
        pipeline.expect(state, S::b_bytes);
        load_columns<Config, B, B2>(args, c, place.column, step * S::step, rank, stage + S::a_bytes,
                                    full);
      }
      copies.load(args, step, stage, full);
      warp_matrix::commit();
      if (in_flight == most_in_flight) {
        warp_matrix::wait<most_in_flight>();
        hand_over();
      } else {
        ++in_flight;
      }
    }
  }
  warp_matrix::wait<0>();
  for (; in_flight > 0; --in_flight) hand_over();
}

}  // namespace sinter::contraction
