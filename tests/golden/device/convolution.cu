// A convolution of channels-last images by the parts of codegen/device/engine: TMA im2col, one warpgroup of producers
// and one that multiplies 64 pixels x 64 outputs, stmatrix and a TMA store. y is 16-bit; 3 x 3 taps, stride 2.
#include "sinter/device/engine/loader/tma_im2col.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
SINTER_WGMMA(64, f32)

struct Window {
  using Result = sinter::Dims<4, 5>;  // w, h
  using First = sinter::Dims<-1, -1>;
  using Step = sinter::Dims<2, 2>;
  using Filter = sinter::Dims<3, 3>;
  using Dilation = sinter::Dims<1, 1>;
  static constexpr int channels = 72;
  static constexpr bool reversed = false;
};
struct Args {
  sinter::TensorMap map_x, map_w, map_y;
};
struct Image {
  template <class... At>
  SINTER_DEVICE static void load_pixels(const Args& args, unsigned to, unsigned barrier,
                                        sinter::hopper::PixelOffsets2 tap, At... at) {
    sinter::hopper::load_pixels(args.map_x, to, barrier, 0, tap, at...);
  }
};
struct Weight {
  SINTER_DEVICE static void load_tap(const Args& args, unsigned to, unsigned barrier, int c, int tap,
                                     int column) {
    sinter::hopper::load_box(args.map_w, to, barrier, 0, c, tap, column);
  }
};

extern "C" __global__ __launch_bounds__(256, 1)
void sinter_convolution(const __grid_constant__ Args args) {
  using namespace sinter;
  using TileX = SharedTile<bf16, Major::k, 64, 64>;
  using TileW = SharedTile<bf16, Major::k, 64, 64>;
  using TileY = SharedTile<bf16, Major::k, 16, 64>;
  using Pixels = TmaIm2col<Image, Window, TileX>;
  using Filters = TmaFilter<Weight, Window, TileW>;
  using Product = Mma<Shape<64, 64>, Types<bf16, bf16, float>, TileX, TileW>;
  using Ring = Pipeline<3>;
  constexpr int stage = TileX::bytes + TileW::bytes, steps = Pixels::Steps::steps,
                staged = 3 * stage, barriers = staged + 4 * TileY::bytes;
  const SharedMemory memory;
  const Ring ring{memory.address + barriers};
  Ring::State state;
  if (threadIdx.x == 0) {
    ring.init(kProducers<Pixels, Filters>, 4);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  const int row = static_cast<int>(blockIdx.x) * 64;
  if (threadIdx.x < 128) {
    Pixels pixels;
    pixels.aim(row);
    fill_stages<2>(ring, state, args, pixels, Filters{0}, memory.address, steps);
    return;
  }
  Product::Sums sums;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, state.advance()) {
    const unsigned at = memory.address + state.stage * stage;
    ring.wait(state);
    wgmma::fence(sums);
    Product::multiply(sums, TileX::descriptor(at), TileW::descriptor(at + TileX::bytes), step > 0);
    wgmma::commit();
    wgmma::wait<0>(sums);
    ring.release(state);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const unsigned slab = memory.address + staged + warp * TileY::bytes;
  const auto y = to_operand<bf16>(sums);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    hopper::put_blocks(slab + TileY::place(lane % 16, j * 16 + lane / 16 * 8), y.at[j]);
  hopper::fence_async_proxy();
  __syncwarp();
  if (lane == 0) {
    hopper::store_box(args.map_y, slab, 0, row + warp * 16);
    hopper::commit_stores();
    hopper::wait_for_stores<0>();
  }
}
