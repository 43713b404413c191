// contraction: two products on tensor cores. As the generator is to write it.
#include "sinter/device/family/contraction_chained.cuh"
#include "sinter/ops/pointwise.hpp"
SINTER_WGMMA(128, f32)

struct Config {
  using Index = int;
  using Extent = sinter::Dims<64, 128, 128>;
  using Accumulator = float;
  using Sum = float;
  static constexpr int threads = 256;
  static constexpr int unroll = 2;
  static constexpr int width = 8;
  static constexpr int batch = 0;
  static constexpr int m = 1;
  static constexpr int n = 1;
  static constexpr int k = 1;
  static constexpr int tile_m = 64;
  static constexpr int stages = 4;
  static constexpr int stages_c = 2;
  static constexpr int products = 1;
  static constexpr int producer_registers = 24;
  static constexpr int consumer_registers = 240;
  static constexpr bool n_fastest = true;
  static constexpr int shared_bytes = 0;
  struct YAccess : sinter::Strided { using Stride = sinter::Dims<128, 1, 0>; };
};
struct First {
  using Index = int;
  using Extent = sinter::Dims<64, 128, 128>;
  static constexpr int batch = 0;
  static constexpr int m = 1;
  static constexpr int n = 1;
  static constexpr int k = 1;
  struct BiasAccess : sinter::Strided { using Stride = sinter::Dims<0, 1, 0>; };
};
using Coord = sinter::Coordinates<Config::Index, Config::Extent>;
using FirstCoord = sinter::Coordinates<First::Index, First::Extent>;

struct Args {
  sinter::TensorMap map_a, map_b, map_c;
  const sinter::bf16* bias;
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
  SINTER_DEVICE static void load(const Args& args, const FirstCoord& c, int row, int k, unsigned to,
                                 unsigned barrier, unsigned blocks) {
    sinter::hopper::load_box(args.map_a, to, barrier, blocks, k, row);
  }
};
struct OperandB {
  using Number = sinter::bf16;
  static constexpr bool k_fastest = true;
  SINTER_DEVICE static void prefetch(const Args& args) { sinter::hopper::prefetch(args.map_b); }
  SINTER_DEVICE static void load(const Args& args, const FirstCoord& c, int row, int k, unsigned to,
                                 unsigned barrier, unsigned blocks) {
    sinter::hopper::load_box(args.map_b, to, barrier, blocks, k, row);
  }
};
struct OperandC {
  using Number = sinter::bf16;
  static constexpr bool k_fastest = false;
  SINTER_DEVICE static void prefetch(const Args& args) { sinter::hopper::prefetch(args.map_c); }
  SINTER_DEVICE static void load(const Args& args, const FirstCoord& c, int row, int k, unsigned to,
                                 unsigned barrier, unsigned blocks) {
    sinter::hopper::load_box(args.map_c, to, barrier, blocks, row, k);
  }
};
struct Middle {
  SINTER_DEVICE static float element(const Args& args, const FirstCoord& c, float sum) {
    const float bias = sinter::read<float>(args.bias + sinter::locate<First::BiasAccess>(c).offset);
    const float raised = sinter::op::Add::apply(sum, bias);
    return sinter::op::ReluFwd::apply(raised, 0.0f, 3.0e38f, 0.0f);
  }
};
struct Body {
  using Reductions = sinter::Reductions<>;
  template <int width>
  using Fragment = ::Fragment<width>;
  template <int width>
  SINTER_DEVICE static void fetch(const Args& args, const Coord& c, Fragment<width>& place) {}
  template <int width>
  SINTER_DEVICE static void element(const Args& args, const Coord& c, int e,
                                    const Config::Accumulator (&acc)[Config::products], Fragment<width>& place, Reductions& columns) {
    sinter::put(place.y, e, acc[0]);
  }
  template <int width>
  SINTER_DEVICE static void flush(const Args& args, const Coord& c, const Fragment<width>& place) {
    sinter::flush<Config::YAccess>(args.y, c, place.y);
  }
};

extern "C" __global__ __launch_bounds__(Config::threads, 1)
void sinter_chained(const __grid_constant__ Args args) {
  sinter::chained::run<Config, First, OperandA, OperandB, OperandC, Middle, Body>(args);
}
