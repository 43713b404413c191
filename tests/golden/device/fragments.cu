// Two products in a row by the parts of codegen/device/engine, for every type that sums may become; threads
// write the operands to shared memory themselves, the second one's k in the order that the type asks for.
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
SINTER_WGMMA(64, f32)
using namespace sinter;

using Number = bf16;
constexpr int kDepth = 16, kSwizzle = 128;
using TileA = SharedTile<bf16, Major::k, 64, kDepth, 32>;
using TileB = SharedTile<bf16, Major::k, 64, kDepth, 32>;
using TileC = SharedTile<Number, Major::k, 64, 64, kSwizzle>;

struct Args {
  const float *a, *b, *c;
  float* y;
};

template <class Tile, class At>
SINTER_DEVICE void write_tile(unsigned char* to, const At& at) {
  for (int i = static_cast<int>(threadIdx.x); i < Tile::extent * Tile::depth; i += 128) {
    const int row = i / Tile::depth, k = i % Tile::depth;
    *reinterpret_cast<typename Tile::Number*>(to + Tile::place(row, k)) =
        Tile::Number::encode(at(row, k));
  }
}

extern "C" __global__ __launch_bounds__(128, 1)
void sinter_fragments(const __grid_constant__ Args args) {
  using First = Mma<Shape<64, 64>, Types<bf16, bf16, float>, TileA, TileB>;
  using Second = Mma<Shape<64, 64>, Types<Number, Number, float>, Registers, TileC>;
  const SharedMemory memory;
  constexpr int b = 4096, c = 8192;
  write_tile<TileA>(memory.pointer, [&](int i, int k) { return args.a[i * kDepth + k]; });
  write_tile<TileB>(memory.pointer + b, [&](int i, int k) { return args.b[i * kDepth + k]; });
  write_tile<TileC>(memory.pointer + c,
                    [&](int i, int k) { return args.c[i * 64 + column_of_k<Number>(k)]; });
  hopper::fence_async_proxy();
  __syncthreads();
  First::Sums sums;
  wgmma::fence(sums);
  First::multiply(sums, TileA::descriptor(memory.address), TileB::descriptor(memory.address + b), false);
  wgmma::commit();
  wgmma::wait<0>(sums);
  auto middle = to_operand<Number>(sums);
  Second::Sums y;
  wgmma::fence(y, middle);
  Second::multiply(y, middle, TileC::descriptor(memory.address + c), false);
  wgmma::commit();
  wgmma::wait<0>(y, middle);
  y.each([&](int i, float& sum) { args.y[y.row(i) * 64 + y.column(i)] = sum; });
}
