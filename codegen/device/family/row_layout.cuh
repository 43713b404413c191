// Where the elements of a rowwise kernel (rowwise.cuh) lie: which rows a block takes, which vectors
// of a row a thread holds, and where these start.
//
// With Config::misaligned, rows start anywhere in memory: a row's vectors start where
// Config::AlignedBy, the access of what moves by packs, is aligned. The first and the last two may
// reach out of the row; the first comes last in order, so that what is special about the ends
// stands in one file. Where columns are reduced, too, a block takes rows of one kind only, which
// start alike. Weights do not start where rows do: they are fetched as aligned pieces and cut out
// of them where they are used (Phase::cut). A phase whose statements read no memory
// (Phase::anywhere) computes the elements outside of the row as well, where a test of each would
// cost more; they do not count.
//
// Where rows lie together, Config::misaligned says that neighbours start anywhere: they are cut out
// of the aligned pieces around them. The last ones along index `outer_rank - 1` end with it, so
// that some of them are also held by the thread before, which alone stores what belongs to them.
#pragma once
#include "sinter/device/core/clipped_pack.cuh"
#include "sinter/device/core/hardware.cuh"
#include "sinter/device/family/block_order.cuh"

namespace sinter::rowwise {

template <template <class, class> class Kind, class Config>
using CoordinatesAs = Kind<typename Config::Index, typename Config::Extent>;
template <class Config>
using CoordinatesOf = Choice<!Config::misaligned, CoordinatesAs<Coordinates, Config>,
                             Choice<Config::rows_fastest, CoordinatesAs<CutCoordinates, Config>,
                                    CoordinatesAs<ClippedCoordinates, Config>>>;

template <class Config>
struct RowLayout {
  using Index = typename Config::Index;
  using Coord = CoordinatesOf<Config>;
  static constexpr int rank = Config::Extent::size, width = Config::width;
  static constexpr bool across = Config::rows_fastest;
  static constexpr SINTER_DEVICE Index product(int from, int to) {
    return Config::Extent::template multiplied<Index>(from, to - from);
  }
  static constexpr bool known_rows = Config::Extent::literals(0, Config::outer_rank);
  static constexpr bool shifted = Config::misaligned && across;
  // Rows that lie side by side, and the numbers that they take.
  static constexpr int line = Config::outer_rank - (across ? 1 : 0);
  static constexpr auto beside =
      number<known_rows>([] { return product(line, Config::outer_rank); });
  static constexpr auto numbers = number<known_rows>(
      [] { return static_cast<Index>(shifted ? (beside + width - 1) / width * width : beside); });
  static constexpr auto rows =
      number<known_rows>([] { return static_cast<Index>(product(0, line) * numbers); });
  // Of any length only where rows lie together; those that stay in registers have
  // Config::held_vectors for each thread, of which the last may lie past the end.
  static constexpr bool known_length =
      Config::Extent::literals(Config::outer_rank, rank - Config::outer_rank);
  static constexpr auto row_length =
      number<known_length>([] { return product(Config::outer_rank, rank); });
  // A long row belongs to a cluster of blocks. Where the hardware has none, the first of them takes
  // the row alone.
  static constexpr int blocks = hardware::has_clusters ? Config::blocks_per_row : 1;
  // Neighbouring rows whose reductions are one.
  static constexpr int group = [] {
    if constexpr (requires { Config::group; })
      return static_cast<int>(Config::group);
    else
      return 1;
  }();
  static constexpr bool resident = Config::register_resident && blocks == Config::blocks_per_row;
  static constexpr Index lanes = Config::threads_per_row * blocks;
  // A thread's vectors are held in shared memory.
  static constexpr bool in_shared = resident && [] {
    if constexpr (requires { Config::held_in_shared; })
      return Config::held_in_shared;
    else
      return false;
  }();
  // Along a row: vectors, how many elements each moves on, and how many a thread has.
  static constexpr Index stride = across ? 1 : width;
  static constexpr bool misaligned = Config::misaligned && !across;
  static constexpr auto vectors = number<known_length>(
      [] { return static_cast<Index>((row_length + (misaligned ? 2 * width - 2 : 0)) / stride); });
  static constexpr int each = [] {
    if constexpr (known_length)
      return static_cast<int>((vectors + lanes - 1) / lanes);
    else if constexpr (resident)
      return Config::held_vectors;
    else
      return 1;
  }();
  // Rows whose reductions a thread keeps: its own, or its neighbours across.
  static constexpr int states = across ? width : 1;
  // Streamed rows: what is left when all threads have taken as many rounds of whole vectors as fit.
  static constexpr Index round = lanes * Config::unroll;

  // Vectors from here on are at the ends of their row, or beside one that is: the first vector,
  // which comes last, before it two that may reach out, and before those a neighbour. Across rows,
  // pieces around the last vector alone can lie past the tensor's end.
  static constexpr Index special = misaligned ? 4 : shifted ? 1 : 0;
  static constexpr auto ends = number<known_length>(
      [] { return static_cast<Index>(special > 0 && vectors <= special ? 0 : vectors - special); });
  static constexpr auto in_rounds = number<known_length>(
      [] { return static_cast<Index>(quotient(static_cast<Index>(ends), round) * round); });
  static constexpr int rest = [] {
    if constexpr (known_length)
      return static_cast<int>((vectors - in_rounds + lanes - 1) / lanes);
    else
      return Config::unroll;
  }();
  static constexpr int streamed = rest > Config::unroll ? rest : Config::unroll;
  static constexpr int held = !resident ? streamed : each > 0 && !in_shared ? each : 1;

  static constexpr bool walks = Config::num_partials > 0;
  static_assert(known_length || (!walks && special == 0));

  // Number of what takes a row: a block or, of a long row, the blocks of a cluster.
  static SINTER_DEVICE Index walker() { return static_cast<Index>(blockIdx.x) / blocks; }

  // Rows of one kind have the same columns' results (Config::kinds, the last indices of the rows)
  // and start at the same distance from where memory is aligned.
  static constexpr SINTER_DEVICE Index count_kinds() {
    Index n = 1;
    if constexpr (requires { Config::kinds; }) n = Config::kinds;
    if constexpr (misaligned && walks) {
      static_assert(Config::outer_rank == 1 && Config::kinds == 1);
      while (n * Config::AlignedBy::Stride::at(0) % width != 0) n *= 2;
    }
    return n;
  }
  static constexpr Index kinds = count_kinds();
  static_assert(Config::threads <= 1024);
  static_assert(!walks || (Config::num_partials % kinds == 0 && blocks == Config::blocks_per_row));
  static constexpr Index block_rows = static_cast<Index>(Config::rows_per_block) * states;

  static SINTER_DEVICE Coord row_start(Index r) {
    Coord c;
    if constexpr (shifted) {
      const Index run = quotient(r, numbers), i = r - run * numbers;
      const Index past = (i & -width) + width - beside;
      unravel<0, line>(run, c);
      c.at[line] = past > 0 ? i - past : i;
    } else {
      unravel<0, Config::outer_rank>(r, c);
    }
    return c;
  }
  // Where this holds, the compiler sees that no row lies past the end, but for those ahead. In a
  // large block a branch around the fetches keeps them together and so saves registers.
  static constexpr bool all_active = known_rows &&
                                     rows % (block_rows * kinds * Config::rows_at_once) == 0 &&
                                     blocks == Config::blocks_per_row;
  static SINTER_DEVICE bool exists(Index r) {
    return (all_active && !Config::ahead && Config::threads <= 256) || r < rows;
  }

  // The first element of vector number i in a row; `whole`: i is known to lie below `ends`.
  static SINTER_DEVICE Coord at(Coord c, Index i, bool whole = false) {
    if constexpr (misaligned) {
      static_assert(Config::outer_rank == rank - 1 && !across);
      const Index vector = !whole && i == vectors - 1 ? 0 : i + 1;
      c.at[rank - 1] = 0;
      c.at[rank - 1] =
          vector * width - (locate<typename Config::AlignedBy>(c).offset & (width - 1));
      c.whole = whole;
      return c;
    }
    unravel<Config::outer_rank, rank - Config::outer_rank>(i * stride, c);
    if constexpr (shifted) c.whole = whole;
    return c;
  }

  // Whether the row has an i-th vector, the k-th of a thread.
  static SINTER_DEVICE bool in_row(int k, Index i) {
    if constexpr (!known_length) return i < vectors;
    return (k + 1) * lanes <= vectors || i < vectors;
  }
  // Whether the k-th vector of every thread lies below `ends`: known when compiling.
  static constexpr SINTER_DEVICE bool whole_at(int k) { return (k + 1) * lanes <= ends; }
  // The same of the k-th vector behind the rounds.
  static constexpr SINTER_DEVICE bool rest_whole_at(int k) {
    return known_length && in_rounds + (k + 1) * lanes <= ends;
  }
};

}  // namespace sinter::rowwise
