// contraction: sums of products on tensor cores, stored by TMA. As the generator is to write it.
#include "sinter/device/family/contraction_wgmma.cuh"
#include "sinter/ops/pointwise.hpp"
SINTER_WGMMA_NAMED(128, f32)

struct Config {
  using Index = int;
  using Extent = sinter::Dims<200, 200, 136>;
  using Accumulator = float;
  using Sum = float;
  static constexpr int threads = 384;
  static constexpr int unroll = 2;
  static constexpr int width = 8;
  static constexpr int batch = 0;
  static constexpr int m = 1;
  static constexpr int n = 1;
  static constexpr int k = 1;
  static constexpr int tile_m = 128;
  static constexpr int tile_n = 128;
  static constexpr int loaded_rows = 128;
  static constexpr int stages = 2;
  static constexpr int cluster_m = 1;
  static constexpr int cluster_n = 1;
  static constexpr int split = 1;
  static constexpr int group = 8;
  static constexpr int products = 1;
  static constexpr int operand_bytes = 2;
  static constexpr int producer_registers = 40;
  static constexpr int consumer_registers = 232;
  static constexpr bool alternate = false;
  static constexpr bool promote_accumulators = false;
  static constexpr bool prefetch = false;
  static constexpr bool ahead = false;
  static constexpr int rotate = 0;
  static constexpr bool n_fastest = true;
  static constexpr int shared_bytes = 0;
  struct TokenAccess : sinter::Strided { using Stride = sinter::Dims<136, 0, 1>; };
  struct WeightAccess : sinter::Strided { using Stride = sinter::Dims<0, 1, 200>; };
  struct YAccess : sinter::Strided { using Stride = sinter::Dims<200, 1, 0>; };
};
using Coord = sinter::Coordinates<Config::Index, Config::Extent>;

struct Args {
  sinter::TensorMap map_a, map_b, map_y;
  const sinter::bf16* token;
  const sinter::bf16* weight;
  sinter::bf16* y;
};

template <int width>
struct Fragment {
  sinter::Pack<sinter::bf16, width> y;
};
struct OperandA {
  using Number = sinter::bf16;
  static constexpr bool k_fastest = true;
  SINTER_DEVICE static void prefetch(const Args& args) { sinter::hopper::prefetch(args.map_a); }
  SINTER_DEVICE static void load(const Args& args, const Coord& c, int row, int k, unsigned to,
                                 unsigned barrier, unsigned blocks) {
    sinter::hopper::load_box(args.map_a, to, barrier, blocks, k, row);
  }
};
struct OperandB {
  using Number = sinter::bf16;
  static constexpr bool k_fastest = false;
  SINTER_DEVICE static void prefetch(const Args& args) { sinter::hopper::prefetch(args.map_b); }
  SINTER_DEVICE static void load(const Args& args, const Coord& c, int row, int k, unsigned to,
                                 unsigned barrier, unsigned blocks) {
    sinter::hopper::load_box(args.map_b, to, barrier, blocks, row, k);
  }
};
struct Body {
  using Reductions = sinter::Reductions<>;
  template <int width>
  using Fragment = ::Fragment<width>;
  template <int width>
  SINTER_DEVICE static void fetch_columns(const Args& args, const Coord& c, Fragment<width>& place) {}
  static constexpr bool reads_columns = false;
  template <int width>
  SINTER_DEVICE static void element(const Args& args, const Coord& c, int e,
                                    const Config::Accumulator (&acc)[Config::products], Fragment<width>& place, Reductions& columns) {
    const float x = acc[0];
    const float y = sinter::op::Add::apply(x, 3.0f);
    sinter::put(place.y, e, y);
  }
  template <int width>
  SINTER_DEVICE static void flush(const Args& args, const Coord& c, const Fragment<width>& place) {
    sinter::flush<Config::YAccess>(args.y, c, place.y);
  }
  struct TileStore {
    SINTER_DEVICE static void prefetch(const Args& args) { sinter::hopper::prefetch(args.map_y); }
    SINTER_DEVICE static void store(const Args& args, const Coord& c, int row, int column, unsigned from) {
      sinter::hopper::store_box(args.map_y, from, column, row);
    }
  };
  template <int width>
  SINTER_DEVICE static const auto& result(const Fragment<width>& place) { return place.y; }
};

extern "C" __global__ __launch_bounds__(Config::threads, 1)
void sinter_stored(const __grid_constant__ Args args) {
  sinter::contraction::run_on_tensor_cores<Config, OperandA, OperandB, OperandB, Body>(args);
}
