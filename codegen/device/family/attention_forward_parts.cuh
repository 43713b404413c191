// Parts of the keys of a tile of rows: what one warpgroup has of them, its sums, unscaled, and what
// its softmax knows of the rows, becomes what another one, or the same, goes on with as if it had
// summed all keys. Parts are joined in their order.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/family/attention_softmax.cuh"

namespace sinter::attention {

// Of a part's row: sums of four columns, the largest score, the sum of weights.
struct QuadOfPart {
  float4 sum;
  float largest, total;
};

// Of the first `rows` rows, sums to `to`, a row behind the other; of_row(row, largest, total)
// writes what is one a row.
template <int rows, class Sums, class OfRow>
SINTER_DEVICE void write_part(float* to, Sums& out, const RowSoftmax& softmax,
                              const OfRow& of_row) {
  constexpr int columns = Sums::columns;
  out.each([&](int i, float& x) {
    if (i % 2 != 0 || out.row(i) >= rows) return;
    *reinterpret_cast<float2*>(to + out.row(i) * columns + out.column(i)) =
        float2{x, out.at[i + 1]};
  });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = join_quad(softmax.total[r], [](float a, float b) { return a + b; });
    const int row = out.row(2 * r);
    if (threadIdx.x % 4 == 0 && row < rows) of_row(row, softmax.largest[r], total);
  }
}

// Four columns of a row of `count` parts, which are `known` ones unless that is 0. read(i, row,
// column): QuadOfPart.
template <int columns, int known, class Read, class Scale>
SINTER_DEVICE QuadOfPart add_up_quad(int count, int row, int column, Scale scale,
                                     const Read& read) {
  // Parts whose loads are in flight. (On an H200, 16 of any number and 8: b4 h32 of 8, 8192 keys
  // with lengths 37.6 and 37.2 us; 16 took the compiler 8 % longer.)
  constexpr int most = known > 0 && columns <= 128 ? 16 : 8;
  constexpr int at_once = known > 0 && known < most ? known : most;
  QuadOfPart all{{0, 0, 0, 0}, minus_infinity(), 0};
#pragma unroll 1
  for (int first = 0; first < count; first += at_once) {
    QuadOfPart parts[at_once];
#pragma unroll
    for (int p = 0; p < at_once; ++p) {
      const bool is = first + p < count;
      parts[p] = read(is ? first + p : first, row, column);
      if (!is) parts[p].largest = minus_infinity();
    }
    float now = all.largest;
#pragma unroll
    for (int p = 0; p < at_once; ++p) now = math::maximum(now, parts[p].largest);
    const float factor = scale.of(now), shift = now == minus_infinity() ? 0.0f : now * factor;
    const QuadOfPart earlier = all;
    all = {{0, 0, 0, 0}, now, 0};
    const auto add = [&](const QuadOfPart& part) {
      const float weight = math::fast_exp2(math::fma(part.largest, factor, -shift));
      all.total = math::fma(part.total, weight, all.total);
      all.sum.x = math::fma(part.sum.x, weight, all.sum.x);
      all.sum.y = math::fma(part.sum.y, weight, all.sum.y);
      all.sum.z = math::fma(part.sum.z, weight, all.sum.z);
      all.sum.w = math::fma(part.sum.w, weight, all.sum.w);
    };
    if (first > 0) add(earlier);
#pragma unroll
    for (int p = 0; p < at_once; ++p)
      if (first + p < count) add(parts[p]);
  }
  return all;
}

// Which blocks of rows, those of a warp's sums, a warpgroup joins.
struct BlocksOfRows {
  static constexpr int rows = 16;
  int first = 0, step = 1;
};
// All parts of these rows, by a warpgroup, whose threads meet(). `scale`: ScoreScale;
// `epilogue_tile`: its shared memory.
template <int rows, int known = 0, class Sums, class Read, class Meet, class Scale>
SINTER_DEVICE void add_up_parts(BlocksOfRows joined, int count, Scale scale, float* epilogue_tile,
                                Sums& out, RowSoftmax& softmax, const Read& read,
                                const Meet& meet) {
  constexpr int columns = Sums::columns;
  constexpr int block = BlocksOfRows::rows;
  constexpr int chunk = columns < 128 ? columns : 128, pitch = chunk + 8, quads = chunk / 4;
  static_assert(chunk % 8 == 0 && block * quads % 32 == 0);
  const int thread = static_cast<int>(threadIdx.x % 128);
  float* const numbers =
      epilogue_tile + block * pitch;  // of rows: the largest scores, sums of weights
  out.clear();
  softmax.start();
#pragma unroll 1
  for (int b = joined.first; b < (rows + block - 1) / block; b += joined.step)
    for_each_number<(columns + chunk - 1) / chunk>([&]<int h>() {
#pragma unroll 1
      for (int i = thread; i < block * quads; i += 128) {
        const int row = i / quads, column = h * chunk + i % quads * 4, m = b * block + row;
        if (m >= rows || column >= columns) continue;
        const QuadOfPart all = add_up_quad<columns, known>(count, m, column, scale, read);
        *reinterpret_cast<float4*>(epilogue_tile + row * pitch + i % quads * 4) = all.sum;
        if (i % quads == 0) numbers[row] = all.largest, numbers[block + row] = all.total;
      }
      meet();
      if (thread / 32 == b) {
        out.each([&](int i, float& x) {
          const int column = out.column(i) - h * chunk;
          if (i / 4 * 8 / chunk == h) x = epilogue_tile[(out.row(i) - b * block) * pitch + column];
        });
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = out.row(2 * r) - b * block;
          if (b * block + row >= rows) continue;
          softmax.largest[r] = numbers[row];
          softmax.total[r] = thread % 4 == 0 ? numbers[block + row] : 0.0f;
        }
      }
      meet();
    });
}

}  // namespace sinter::attention
