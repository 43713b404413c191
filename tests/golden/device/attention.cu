// Attention forward by the parts of codegen/device/engine: each consumer has 64 queries, keys and values come in blocks
// of 128, the softmax runs on the first product's sums, and its weights are the second product's left operand.
// y = softmax(q k^T / 8) v for head dimension 64; as large as the design goes, without its overlaps.
#include "sinter/device/engine/pipeline.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
SINTER_WGMMA(128, f32)
SINTER_WGMMA(64, f32)
using namespace sinter;

constexpr int kQueries = 200, kKeys = 300, kBlock = 128, kConsumers = 2;
using TileQ = SharedTile<bf16, Major::k, 64 * kConsumers, 64>;
using TileK = SharedTile<bf16, Major::k, kBlock, 64>;
using TileV = SharedTile<bf16, Major::mn, 64, kBlock>;
using Scores = Mma<Shape<64, kBlock>, Types<bf16, bf16, float>, TileQ, TileK>;
using Outputs = Mma<Shape<64, 64>, Types<bf16, bf16, float>, Registers, TileV>;

struct Args {
  TensorMap map_q, map_k, map_v;
  float* y;
};

struct Rings {
  unsigned start;
  static constexpr int q = 0, k = TileQ::bytes, v = k + 2 * TileK::bytes,
                       barriers = v + 2 * TileV::bytes;
  SINTER_DEVICE Pipeline<1> of_q() const { return {start + barriers}; }
  SINTER_DEVICE Pipeline<2> of_k() const { return {start + barriers + 16}; }
  SINTER_DEVICE Pipeline<2> of_v() const { return {start + barriers + 48}; }
};

constexpr int kBlocks = (kKeys + kBlock - 1) / kBlock;

SINTER_DEVICE void produce(const Args& args, const Rings& rings) {
  PipelineState<2> state;
  rings.of_q().expect({}, TileQ::bytes);
  hopper::load_box(args.map_q, rings.start, rings.of_q().full({}), 0, 0,
                   static_cast<int>(blockIdx.x) * TileQ::extent);
#pragma unroll 1
  for (int i = 0; i < kBlocks; ++i, state.advance()) {
    rings.of_k().acquire(state);
    rings.of_k().expect(state, TileK::bytes);
    hopper::load_box(args.map_k, rings.start + Rings::k + state.stage * TileK::bytes,
                     rings.of_k().full(state), 0, 0, i * kBlock);
    rings.of_v().acquire(state);
    rings.of_v().expect(state, TileV::bytes);
    hopper::load_box(args.map_v, rings.start + Rings::v + state.stage * TileV::bytes,
                     rings.of_v().full(state), 0, 0, i * kBlock);
  }
}

// Weights of a block in place of its scores, for the two rows of a thread. What was summed before is worth `worth`.
SINTER_DEVICE void soften(Scores::Sums& s, int block, float (&largest)[2], float (&total)[2],
                          float (&worth)[2]) {
  constexpr float scale = 0.125f * 1.44269504088896f;
  if (block == kBlocks - 1)
    s.each([&](int i, float& x) {
      if (block * kBlock + s.column(i) >= kKeys) x = -3.4e38f;
    });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto larger = [](float a, float b) { return a > b ? a : b; };
    const float now = join_quad(join_row(s, r, largest[r], larger), larger);
    worth[r] = math::exp2((largest[r] - now) * scale);
    largest[r] = now;
    total[r] *= worth[r];
  }
  s.each([&](int i, float& x) {
    x = math::exp2((x - largest[i / 2 % 2]) * scale);
    total[i / 2 % 2] += x;
  });
}

SINTER_DEVICE void consume(const Args& args, const Rings& rings, int consumer) {
  const unsigned long long q = TileQ::descriptor(rings.start + TileQ::further(consumer * 64)),
                           k = TileK::descriptor(rings.start + Rings::k),
                           v = TileV::descriptor(rings.start + Rings::v);
  PipelineState<2> state;
  float largest[2] = {-3.4e38f, -3.4e38f}, total[2] = {}, worth[2];
  Outputs::Sums out;
  out.clear();
  rings.of_q().wait({});
#pragma unroll 1
  for (int i = 0; i < kBlocks; ++i, state.advance()) {
    Scores::Sums scores;
    rings.of_k().wait(state);
    wgmma::fence(scores);
    Scores::multiply(scores, q, k + state.stage * (TileK::bytes / 16), false);
    wgmma::commit();
    wgmma::wait<0>(scores);
    rings.of_k().release(state);
    soften(scores, i, largest, total, worth);
    out.each([&](int e, float& x) { x *= worth[e / 2 % 2]; });
    auto weights = to_operand<bf16>(scores);
    rings.of_v().wait(state);
    wgmma::fence(out, weights);
    Outputs::multiply(out, weights, v + state.stage * (TileV::bytes / 16), true);
    wgmma::commit();
    wgmma::wait<0>(out, weights);
    rings.of_v().release(state);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) total[r] = join_quad(total[r], [](float a, float b) { return a + b; });
  out.each([&](int e, float& x) {
    const int row = static_cast<int>(blockIdx.x) * TileQ::extent + consumer * 64 + out.row(e);
    if (row < kQueries) args.y[row * 64 + out.column(e)] = x / total[e / 2 % 2];
  });
}

extern "C" __global__ __launch_bounds__(128 * (1 + kConsumers), 1)
void sinter_attention(const __grid_constant__ Args args) {
  const SharedMemory memory;
  const Rings rings{memory.address};
  if (threadIdx.x == 0) {
    rings.of_q().init(1, 4 * kConsumers);
    rings.of_k().init(1, 4 * kConsumers);
    rings.of_v().init(1, 4 * kConsumers);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == 0) {
    hopper::keep_registers<24>();
    if (threadIdx.x == 0) produce(args, rings);
  } else {
    hopper::take_registers<240>();
    consume(args, rings, warpgroup - 1);
  }
}
