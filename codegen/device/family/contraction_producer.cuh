// The producer of a contraction on the tensor cores of sm_90a: it keeps the ring of stages full; see
// contraction_wgmma.cuh.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/family/contraction_tiles.cuh"

namespace sinter::contraction {

// Brings this block's part of an operand; `rows` of the tile's, of which the cluster shares parts.
template <class Operand, int rows, int parts, class Args, class Coord>
SINTER_DEVICE void load_operand(const Args& args, const Coord& c, int row, int k, int rank,
                                unsigned to, unsigned barrier) {
  constexpr int part = rows / parts;
  constexpr unsigned blocks = parts > 1 ? (1u << parts) - 1 : 0;
  const int first = parts > 1 ? rank * part : 0;
  if constexpr (Operand::k_fastest) {
    Operand::load(args, c, row + first, k, to + first * 128, barrier, blocks);
  } else {
    static_assert(part % 64 == 0);
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

// What one thread of the producer does.
template <class Config, class A, class B, class B2, class Args, class Rows>
SINTER_DEVICE void produce(const Args& args, const Rows& rows, unsigned shared, int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  Turn<Config::stages> turn;
  for (TileWalk<Config, Rows> walk(rows); walk.more(); walk.advance()) {
    const TilePlace<Config> place = walk.place(rank);
    typename P::Coord c;
    P::set_batch(c, place.batch);
    const int first_step = S::first_step(rank), end_step = S::end_step(rank),
              count = end_step - first_step;
    int step = first_step + (Config::rotate > 0 ? walk.tile % count * Config::rotate % count : 0);
#pragma unroll 1
    for (int i = 0; i < count; ++i, turn.advance()) {
      const unsigned stage = shared + turn.stage * S::stage_bytes,
                     full = shared + S::full + turn.stage * 8,
                     empty = shared + S::empty + turn.stage * 8;
      hopper::wait(empty, turn.parity ^ 1);
      hopper::arrive_and_expect(full, S::stage_bytes);
      load_operand<A, Config::rows_brought, Config::cluster_n>(args, c, place.row, step * S::step,
                                                               rank, stage, full);
      load_columns<Config, B, B2>(args, c, place.column, step * S::step, rank, stage + S::a_bytes,
                                  full);
      if (++step == end_step) step = first_step;
    }
  }
}

// Rows of A that a table names. The accelerator brings boxes of neighbours only, so that all threads
// of the producer copy: 16 bytes of a step, the same ones of every step and of several rows, to
// where the accelerator would have put them.
template <class Config, class A>
class RowCopies {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static constexpr int chunk = 16, beside = S::line / chunk, apart = 128 / beside;  // rows
  static constexpr int own = Config::rows_brought / apart, each = chunk / Config::operand_bytes;
  static_assert(A::k_fastest && P::depth % each == 0 && Config::rows_brought % apart == 0);

  const int row_ = static_cast<int>(threadIdx.x) / beside,
            column_ = static_cast<int>(threadIdx.x) % beside;
  const char* from_[own];
  bool exists_[own];

 public:
  template <class Args, class Rows>
  SINTER_DEVICE void aim(const Args& args, const Rows& rows, const TilePlace<Config>& place) {
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int row = place.row + row_ + i * apart;
      exists_[i] = row < place.row_end;
      typename P::Coord c;
      P::set_m(c, exists_[i] ? rows.source(static_cast<typename P::Index>(row)) : 0);
      const auto* const from = A::base(args) + locate<typename A::Access>(c).offset;
      from_[i] = reinterpret_cast<const char*>(from) + column_ * chunk;
    }
  }
  // Rows that do not exist, and what lies past the last k, become zeros.
  SINTER_DEVICE void copy(int step, unsigned stage) const {
    static_assert(apart % 8 == 0);  // after which the swizzle repeats
    const unsigned to = stage + row_ * S::line + (column_ ^ (row_ & 7)) * chunk;
    const bool inside = step * S::step + column_ * each < P::depth;
#pragma unroll
    for (int i = 0; i < own; ++i)
      warp_matrix::copy<chunk>(to + i * apart * S::line, from_[i] + step * S::line,
                               inside && exists_[i]);
  }
};

// What all threads of the producer do then. A stage is handed over when the copies of some stages
// after it have been started.
template <class Config, class A, class B, class B2, class Args, class Rows>
SINTER_DEVICE void produce_gathered(const Args& args, const Rows& rows, unsigned shared, int rank) {
  using P = Problem<Config>;
  using S = Shape<Config>;
  static_assert(Config::cluster_n == 1 && Config::split == 1);
  constexpr int most_under_way = Config::stages < 6 ? Config::stages - 2 : 4;
  RowCopies<Config, A> copies;
  Turn<Config::stages> turn, oldest;  // of those under way
  int under_way = 0;
  const auto hand_over = [&] {
    hopper::written_for_multiplications();
    hopper::arrive(shared + S::full + oldest.stage * 8);
    oldest.advance();
  };
  for (TileWalk<Config, Rows> walk(rows); walk.more(); walk.advance()) {
    const TilePlace<Config> place = walk.place(rank);
    typename P::Coord c;
    P::set_batch(c, place.batch);
    copies.aim(args, rows, place);
#pragma unroll 1
    for (int step = 0; step < S::steps; ++step, turn.advance()) {
      const unsigned stage = shared + turn.stage * S::stage_bytes,
                     full = shared + S::full + turn.stage * 8,
                     empty = shared + S::empty + turn.stage * 8;
      hopper::wait(empty, turn.parity ^ 1);
      if (threadIdx.x == 0) {
        hopper::arrive_and_expect(full, S::b_bytes);
        load_columns<Config, B, B2>(args, c, place.column, step * S::step, rank, stage + S::a_bytes,
                                    full);
      }
      copies.copy(step, stage);
      warp_matrix::commit();
      if (under_way == most_under_way) {
        warp_matrix::wait<most_under_way>();
        hand_over();
      } else {
        ++under_way;
      }
    }
  }
  warp_matrix::wait<0>();
  for (; under_way > 0; --under_way) hand_over();
}

}  // namespace sinter::contraction
