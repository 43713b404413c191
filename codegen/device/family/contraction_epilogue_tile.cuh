// A warp's finished sums on their way from registers through shared memory.
#pragma once
#include "sinter/device/family/contraction_space.cuh"

namespace sinter::contraction {

// A sum as a word of an epilogue tile, and back; integers keep their bits.
SINTER_DEVICE float word(float sum) { return sum; }
SINTER_DEVICE float word(int sum) { return __int_as_float(sum); }
template <class Sum>
SINTER_DEVICE Sum sum_of(float word) {
  if constexpr (sizeof(Sum) == sizeof(int) && Sum(1) / 2 == Sum(0))
    return __float_as_int(word);
  else
    return word;
}

// 16 rows x 64 columns of sums in shared memory, four columns a chunk; of several products that
// share their left operand, as many columns of each. Chunks are permuted so that neither the pairs
// of a fragment nor the packs of eight that leave meet in a bank: even chunks lie in the first half
// of a row and odd ones in the second, each turned by the row.
struct EpilogueTile {
  static constexpr int rows = 16, columns = 64;
  float at[rows * columns];

  static SINTER_DEVICE int place(int row, int column) {
    const int half = column >> 2 & 1, chunk = column >> 3 ^ half ^ (row & 3) << 1;
    return row * columns + half * 32 + chunk * 4 + (column & 3);
  }

  // The fragment of mma and wgmma: a thread holds, of every eight columns, two neighbours of row
  // lane / 4 and the same two of the row eight further down. Where the first of them lie.
  struct Fragment {
    int at[columns / 8];
    SINTER_DEVICE Fragment() {
      const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) at[j] = place(lane / 4, j * 8 + lane % 4 * 2);
    }
  };
  // Puts columns `from` of the result and the ones after it, of block number `block` of the sums;
  // of two products, those of the first one, then those of the second. `Sums` tells how many
  // `blocks` there are and the `count` of a block, and does store<block, first, count>(to, at), as
  // HeldSums.
  template <int block, int from, int products, class Sums>
  SINTER_DEVICE void put(const Fragment& fragment, const Sums& sums) {
    static_assert(products <= 2);
    constexpr int each = Sums::count / products, left = (each - from / 2) / 4,
                  most = columns / 8 / products, fours = left < most ? left : most;
    sums.template store<block, from / 2, fours>(at, fragment.at);
    if constexpr (products == 2)
      sums.template store<block, each + from / 2, fours>(at, fragment.at + most);
  }

  // `width` neighbours along the columns or along the rows.
  template <int width, bool along_columns>
  SINTER_DEVICE void get(int row, int column, float (&sums)[width]) const {
    if constexpr (along_columns && width % 4 == 0) {
#pragma unroll
      for (int i = 0; i < width; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(at + place(row, column + i));
        sums[i] = four.x, sums[i + 1] = four.y, sums[i + 2] = four.z, sums[i + 3] = four.w;
      }
    } else if constexpr (along_columns && width == 2) {
      const float2 two = *reinterpret_cast<const float2*>(at + place(row, column));
      sums[0] = two.x, sums[1] = two.y;
    } else {
#pragma unroll
      for (int i = 0; i < width; ++i)
        sums[i] = along_columns ? at[place(row, column + i)] : at[place(row + i, column)];
    }
  }
};

// A warp's sums as arrays: blocks of 16 rows.
template <class Sum, int blocks_, int count_>
struct HeldSums {
  static constexpr int blocks = blocks_, count = count_;
  const Sum (&at)[blocks][count];

  // `fours` times four, from the `first` on: of each four, two neighbours at to[at[i]], and the two
  // eight rows further down.
  template <int block, int first, int fours>
  SINTER_DEVICE void store(float* to, const int* at) const {
#pragma unroll
    for (int i = 0; i < fours; ++i) {
      const Sum* sums = this->at[block] + first + 4 * i;
      float* place = to + at[i];
      *reinterpret_cast<float2*>(place) = {word(sums[0]), word(sums[1])};
      *reinterpret_cast<float2*>(place + 8 * EpilogueTile::columns) = {word(sums[2]),
                                                                       word(sums[3])};
    }
  }
};

// An accumulator as the epilogue takes it.
template <class Accumulator>
struct OneBlock {
  static constexpr int blocks = 1, count = Accumulator::count;
  const Accumulator& sums;
  template <int block, int first, int fours>
  SINTER_DEVICE void store(float* to, const int* at) const {
    sums.template store<first, fours, 8 * EpilogueTile::columns>(to, at);
  }
};

// EpilogueTile number `which` of a warp's sums; registers have no index, so each number is a
// branch, and what the branches have in common comes from outside: it costs time to compile.
template <int number, int across, int products, class Sums>
SINTER_DEVICE void put_tile(EpilogueTile& epilogue_tile, const EpilogueTile::Fragment& fragment,
                            const Sums& sums, int which) {
  if (which == number)
    epilogue_tile
        .put<number / across, number % across*(EpilogueTile::columns / products), products>(
            fragment, sums);
  if constexpr (number + 1 < Sums::blocks * across)
    put_tile<number + 1, across, products>(epilogue_tile, fragment, sums, which);
}

// Where a warp's epilogue tile lies in the result; rows and columns end before `row_end` and
// `column_end`.
template <class Config>
struct EpilogueCoord {
  typename Problem<Config>::Coord batch;
  typename Config::Index row, column, row_end, column_end;
};

}  // namespace sinter::contraction
