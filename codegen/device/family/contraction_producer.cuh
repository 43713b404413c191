// The producer of a contraction on the tensor cores of sm_90a: it keeps the pipeline's stages full;
// see contraction_wgmma.cuh.
#pragma once
#include "sinter/device/engine/loader/gathered_rows.cuh"
#include "sinter/device/engine/loader/shifted_rows.cuh"
#include "sinter/device/engine/loader/tma_boxes.cuh"
#include "sinter/device/family/contraction_tiles.cuh"

namespace sinter::contraction {

// What the boxes of a tile bring, where the launch says how much.
template <bool boxed, class Shape, bool rows>
struct LoadedOf : WholeTile {};
template <class Shape>
struct LoadedOf<true, Shape, true> {
  static constexpr auto extent = Shape::tile_rows;
};
template <class Shape>
struct LoadedOf<true, Shape, false> {
  static constexpr auto extent = Shape::tile_columns;
};

// The columns of B in a stage; of two products, of both.
template <class Config, class Operand>
using ColumnBoxes =
    TmaBoxes<Operand, StageTile<Operand, Shape<Config>::loaded_columns / Config::products>,
             typename Problem<Config>::Coord, Config::cluster_m,
             LoadedOf<BoxesColumns<Config>, Shape<Config>, false>, Shape<Config>::loaded_depth>;
template <class First, class Second>
struct BothColumns {
  using Tile = SharedTile<typename First::Tile::Number, First::Tile::major,
                          First::Tile::extent + Second::Tile::extent, First::Tile::depth>;
  static constexpr int threads = 1, tma_bytes = First::tma_bytes + Second::tma_bytes;
  First first;
  Second second;

  template <class Args>
  SINTER_DEVICE void load(const Args& args, int step, unsigned to, unsigned full) const {
    first.load(args, step, to, full);
    second.load(args, step, to + First::Tile::bytes, full);
  }
};
template <class Config, class B, class B2, class Coord>
SINTER_DEVICE auto columns_at(const Coord& c, int column, int rank) {
  const ColumnBoxes<Config, B> first{c, column, rank};
  if constexpr (Config::products > 1) {
    using Second = ColumnBoxes<Config, B2>;
    return BothColumns<ColumnBoxes<Config, B>, Second>{first, Second{c, column, rank}};
  } else {
    return first;
  }
}

// What one thread of the producer does. `first`: the place of the first tile, where it is known.
template <class Config, class A, class B, class B2, class First, class Args, class Rows>
SINTER_DEVICE void produce(const Args& args, const Rows& rows, const First& first, unsigned shared,
                           int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  using RowBoxes =
      TmaBoxes<A, StageTile<A, Config::loaded_rows>, typename P::Coord, Config::cluster_n,
               LoadedOf<BoxesRows<Config>, S, true>, S::loaded_depth>;
  const StagePipeline<Config> pipeline{shared + S::full};
  typename StagePipeline<Config>::State state;
  int unused = Config::stages;  // stages without their columns, where these stay
  const auto fill = [&](const TileCoord<Config>& place, int tile) {
    typename P::Coord c;
    P::set_batch(c, place.batch);
    if constexpr (S::columns_stay) {
      const RowBoxes a{c, place.row, rank};
      const auto b = columns_at<Config, B, B2>(c, place.column, rank);
#pragma unroll 1
      for (int step = 0; step < S::steps(place.batch); ++step, state.advance()) {
        const unsigned to = shared + state.stage * S::stage_bytes, full = pipeline.full(state);
        pipeline.acquire(state);
        pipeline.expect(state, unused > 0 ? a.tma_bytes + b.tma_bytes : a.tma_bytes + 0);
        a.load(args, step, to, full);
        if (unused > 0) b.load(args, step, to + S::a_bytes, full), --unused;
      }
      return;
    }
    const int all = S::steps(place.batch), first_step = S::first_step(all, rank),
              end_step = S::end_step(all, rank), count = end_step - first_step;
    StepRange steps(first_step, end_step,
                    first_step + (Config::rotate > 0 ? tile % count * Config::rotate % count : 0));
    if constexpr (First::known)
      hardware::compute_here(steps.left);  // else the second loop is unrolled
    fill_stages(pipeline, state, args, RowBoxes{c, place.row, rank},
                columns_at<Config, B, B2>(c, place.column, rank), shared, steps, NoCopies{});
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

// An operand whose lines begin anywhere.
template <class Operand>
concept BeginsAnywhere = requires {
  requires Operand::begins_anywhere;
};

// Its loader, of a tile's rows (columns) from `first` on; of others, boxes. `dim`: of the domain,
// that of the rows.
template <class Config, class Operand, int extent, int dim, class Boxes, class Args, class Coord>
SINTER_DEVICE auto lines_at(const Args& args, const Coord& c, int first, const Boxes& boxes) {
  if constexpr (BeginsAnywhere<Operand>) {
    using Access = typename Operand::Access;
    using Extent = typename Config::Extent;
    constexpr int k = Extent::size - 1;
    long long last = Access::offset;
    for (int i = 0; i < Extent::size; ++i) last += (Extent::at(i) - 1) * Access::Stride::at(i);
    const auto* const start = Operand::base(args);
    return ShiftedRows<StageTile<Operand, extent>>{start + locate<Access>(c).offset,
                                                   start + last + 1,
                                                   Access::Stride::at(Operand::k_fastest ? dim : k),
                                                   first,
                                                   static_cast<int>(Extent::at(dim)),
                                                   static_cast<int>(Extent::at(k))};
  } else {
    return boxes;
  }
}

// A place in the sequence of a block's stages.
template <class Config, class A, class B, class Rows>
struct StageCursor {
  using P = Problem<Config>;
  using S = Shape<Config>;
  using RowBoxes = TmaBoxes<A, StageTile<A, Config::loaded_rows>, typename P::Coord>;
  TileWalk<Config, Rows> walk;
  typename StagePipeline<Config>::State state = {};
  int step = 0;

  // Calls f(loader of A, of B, where the stage starts) and goes on to the next one.
  template <class Args, class F>
  SINTER_DEVICE void visit(const Args& args, const F& f) {
    const TileCoord<Config> place = walk.place(0);
    typename P::Coord c{};
    P::set_batch(c, place.batch);
    f(lines_at<Config, A, Config::loaded_rows, P::first_n - 1>(args, c, place.row,
                                                               RowBoxes{c, place.row}),
      lines_at<Config, B, S::loaded_columns, P::first_k - 1>(
          args, c, place.column, ColumnBoxes<Config, B>{c, place.column}),
      state.stage * S::stage_bytes);
    state.advance();
    if (++step == S::steps(place.batch)) step = 0, walk.advance();
  }
};

// What all threads of the producer do where there is such an operand: copies run some stages ahead
// of what is shifted and handed over.
template <class Config, class A, class B, class Args, class Rows>
SINTER_DEVICE void produce_shifted(const Args& args, const Rows& rows, const unsigned char* memory,
                                   unsigned shared) {
  using S = Shape<Config>;
  static_assert(S::cluster == 1 && Config::products == 1);
  constexpr int ahead = Config::stages < 5 ? Config::stages - 1 : 4;
  const StagePipeline<Config> pipeline{shared + S::full};
  StageCursor<Config, A, B, Rows> copied{TileWalk<Config, Rows>(rows)}, shifted = copied;
  const bool first = threadIdx.x == 0;
#pragma unroll 1
  for (int i = 0; shifted.walk.more(); ++i) {
    if (copied.walk.more()) {
      const unsigned full = pipeline.full(copied.state);
      pipeline.acquire(copied.state);
      const int step = copied.step;
      copied.visit(args, [&]<class OfA, class OfB>(const OfA& a, const OfB& b, int stage) {
        if (first) hopper::arrive_and_expect(full, OfA::tma_bytes + OfB::tma_bytes);
        if (OfA::threads > 1 || first) a.load(args, step, shared + stage, full);
        if (OfB::threads > 1 || first) b.load(args, step, shared + stage + S::a_bytes, full);
      });
    }
    warp_matrix::commit();
    if (i + 1 < ahead) continue;
    warp_matrix::wait<ahead - 1>();
    const auto state = shifted.state;
    const int step = shifted.step;
    shifted.visit(args, [&](const auto& a, const auto& b, int stage) {
      if constexpr (BeginsAnywhere<A>) a.finish(step, memory + stage, shared + stage);
      if constexpr (BeginsAnywhere<B>)
        b.finish(step, memory + stage + S::a_bytes, shared + stage + S::a_bytes);
    });
    pipeline.commit(state);
  }
}

// Rows of A that a table names.
template <class Config, class A>
using TableRows =
    GatheredRows<StageTile<A, Config::loaded_rows>, static_cast<int>(Problem<Config>::depth)>;
template <class Config, class A, class Args, class Rows>
SINTER_DEVICE void aim(TableRows<Config, A>& loader, const Args& args, const Rows& rows,
                       const TileCoord<Config>& place) {
  using P = Problem<Config>;
  loader.aim([&](int i, bool& exists) {
    const int row = place.row + i;
    exists = row < place.row_end;
    typename P::Coord c;
    P::set_m(c, exists ? rows.source(static_cast<typename P::Index>(row)) : 0);
    return A::base(args) + locate<typename A::Access>(c).offset;
  });
}

// What all threads of the producer do then.
template <class Config, class A, class B, class B2, class Args, class Rows>
SINTER_DEVICE void produce_gathered(const Args& args, const Rows& rows, unsigned shared, int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(Config::cluster_n == 1 && Config::split == 1);
  TableRows<Config, A> table_rows;
  const StagePipeline<Config> pipeline{shared + S::full};
  typename StagePipeline<Config>::State state;
  CopiesInFlight < StagePipeline<Config>,
      Config::stages<6 ? Config::stages - 2 : 4> copies(pipeline);
  for (TileWalk<Config, Rows> walk(rows); walk.more(); walk.advance()) {
    const TileCoord<Config> place = walk.place(rank);
    typename P::Coord c;
    P::set_batch(c, place.batch);
    aim<Config, A>(table_rows, args, rows, place);
    fill_stages(pipeline, state, args, table_rows, columns_at<Config, B, B2>(c, place.column, rank),
                shared, StepRange(S::steps(place.batch)), copies);
  }
  copies.finish();
}

}  // namespace sinter::contraction
