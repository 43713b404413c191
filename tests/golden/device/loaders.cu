// One tile of a product by the parts of codegen/device/engine, whose loaders, swizzles and layouts the test changes.
// Each block of the grid computes it, to a place of its own.
#include "sinter/device/engine/loader/computed.cuh"
#include "sinter/device/engine/loader/gathered_rows.cuh"
#include "sinter/device/engine/loader/paged_rows.cuh"
#include "sinter/device/engine/loader/tma_boxes.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
SINTER_WGMMA(64, f32)
using namespace sinter;

constexpr int kDepth = 200;
using TileA = SharedTile<bf16, Major::k, 64, 64>;
using TileB = SharedTile<bf16, Major::k, 64, 64>;

struct Args {
  TensorMap map_a, map_b;
  const bf16* a;
  const int* table;
  float* y;
};
struct Coord {};
struct Boxes {
  static constexpr bool k_fastest = true;
};
struct BoxesA : Boxes {
  SINTER_DEVICE static void load(const Args& args, Coord, int row, int k, unsigned to, unsigned barrier,
                                 unsigned blocks) {
    hopper::load_box(args.map_a, to, barrier, blocks, k, row);
  }
};
struct BoxesB : Boxes {
  SINTER_DEVICE static void load(const Args& args, Coord, int row, int k, unsigned to, unsigned barrier,
                                 unsigned blocks) {
    hopper::load_box(args.map_b, to, barrier, blocks, k, row);
  }
};
struct Pages {
  SINTER_DEVICE static int page(const Args& args, int number) { return args.table[number]; }
  SINTER_DEVICE static void load(const Args& args, int page, int row, int k, unsigned to,
                                 unsigned barrier) {
    hopper::load_box(args.map_b, to, barrier, 0, k, row, page);
  }
};
struct Elements {
  SINTER_DEVICE static bf16 at(const Args& args, int row, int k) {
    return k < kDepth ? args.a[row * kDepth + k] : bf16{};
  }
};
using TiledA = TmaBoxes<BoxesA, TileA, Coord>;
using TiledB = TmaBoxes<BoxesB, TileB, Coord>;
using Gathered = GatheredRows<TileA, kDepth>;
using Paged = PagedRows<Pages, TileB, 16>;
using Made = Computed<Elements, TileA>;

SINTER_DEVICE TiledA aimed_a(const Args&, TiledA*) { return {{}, 0}; }
SINTER_DEVICE Made aimed_a(const Args&, Made*) { return {0}; }
SINTER_DEVICE Gathered aimed_a(const Args& args, Gathered*) {
  Gathered a;
  a.aim([&](int i, bool& exists) {
    exists = args.table[i] >= 0;
    return args.a + (exists ? args.table[i] : 0) * kDepth;
  });
  return a;
}
using LoadA = TiledA;
using LoadB = TiledB;

extern "C" __global__ __launch_bounds__(256, 1)
void sinter_loaders(const __grid_constant__ Args args) {
  using Product = Mma<Shape<64, 64>, Types<bf16, bf16, float>, TileA, TileB>;
  using Ring = Pipeline<3>;
  constexpr int stage = TileA::bytes + TileB::bytes, barriers = 3 * stage,
                steps = (kDepth + TileA::depth - 1) / TileA::depth;
  const SharedMemory memory;
  const Ring ring{memory.address + barriers};
  Ring::State state;
  if (threadIdx.x == 0) {
    ring.init(kProducers<LoadA, LoadB>, 4);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    constexpr bool by_threads = kLoadedByThreads<LoadA, LoadB>;
    if (!by_threads && threadIdx.x > 0) return;
    const LoadA a = aimed_a(args, static_cast<LoadA*>(nullptr));
    const LoadB b = {};
    if constexpr (by_threads) {
      CopiesInFlight<Ring, 1> copies(ring);
      fill_stages(ring, state, args, a, b, memory.address, StepRange(steps), copies);
      copies.finish();
    } else {
      fill_stages(ring, state, args, a, b, memory.address, StepRange(steps), NoCopies{});
    }
    return;
  }
  Product::Sums sums;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, state.advance()) {
    const unsigned at = memory.address + state.stage * stage;
    ring.wait(state);
    wgmma::fence(sums);
    Product::multiply(sums, TileA::descriptor(at), TileB::descriptor(at + TileA::bytes), step > 0);
    wgmma::commit();
    wgmma::wait<0>(sums);
    ring.release(state);
  }
  float* y = args.y + blockIdx.x * 64 * 64;
  sums.each([&](int i, float& sum) { y[sums.row(i) * 64 + sums.column(i)] = sum; });
}
