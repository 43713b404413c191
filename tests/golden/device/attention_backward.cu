// Attention backward as a generated file would call it; the test changes the constants.
#include "sinter/device/family/attention_backward.cuh"
SINTER_WGMMA(64, f32)
SINTER_WGMMA_NAMED(64, f32)
SINTER_WGMMA_HELD(64)
// more shapes
using namespace sinter;

constexpr int kEntries = 1, kHeads = 1, kGroup = 1, kQueries = 64, kKeys = 64, kDepth = 64,
              kDepthV = 64, kTileQ = 64;
using Number = bf16;

struct Config {
  using Index = int;
  using Extent = Dims<kEntries, kHeads * kGroup, kQueries, kKeys, kDepth, kDepthV>;
  static constexpr int group_size = kGroup;
  static constexpr int threads = 384, tile_q = kTileQ, tile_k = 128, stages = 2, heads_together = 2;
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr int shared_bytes = 0;
};
using Coord = Coordinates<int, Config::Extent>;

struct Args {
  TensorMap map_q, map_k, map_v, map_do, map_dq, map_dk, map_dv;
  const float *stats, *delta;
  float* dq;
  const int *lengths_q, *lengths_k;
  float* dbias;
  const unsigned char* blocks;  // one a batch entry, head and block of 128 queries and keys
};

template <TensorMap Args::*map, bool of_queries>
struct Operand {
  using Number = ::Number;
  static constexpr bool k_fastest = true;
  SINTER_DEVICE static void prefetch(const Args& args) { hopper::prefetch(args.*map); }
  SINTER_DEVICE static void load(const Args& args, const Coord& c, int row, int k, unsigned to,
                                 unsigned barrier, unsigned blocks) {
    hopper::load_box(args.*map, to, barrier, blocks, k, row, of_queries ? c.at[1] : c.at[1] / kGroup,
                     c.at[0]);
  }
  // Read where gradients are NaN, as none are here.
  SINTER_DEVICE static float element(const Args&, const Coord&) { return 0; }
  SINTER_DEVICE static void store(const Args& args, const Coord& c, int row, int column,
                                  unsigned from) {
    hopper::store_box(args.*map, from, column, row, c.at[1] / kGroup, c.at[0]);
  }
};
struct Bounds {
  static constexpr bool has_left = false, has_right = false, bottom_right = false,
                        has_lengths = false, padding = has_lengths, packed = false;
  static constexpr int left = 0, right = 0;
  SINTER_DEVICE static long long queries(const Args& args, const Coord& c) {
    return args.lengths_q[c.at[0]];
  }
  SINTER_DEVICE static long long keys(const Args& args, const Coord& c) {
    return args.lengths_k[c.at[0]];
  }
};
struct Mask : Bounds {
  static constexpr bool has_blocks = false;
  static constexpr int mask_block = 128;
  struct Blocks {
    const Args& args;
    const int entry, key;
    SINTER_DEVICE bool sees(int head, int row) const {
      constexpr int rows = (kQueries + 127) / 128, columns = (kKeys + 127) / 128;
      return args.blocks[((entry * kHeads * kGroup + head) * rows + row / 128) * columns +
                         key / 128] != 0;
    }
  };
  SINTER_DEVICE static Blocks blocks(const Args& args, const Coord& c, int key) {
    return {args, c.at[0], key};
  }
};
// Where it is not plain: 2 tanh(x / 2).
struct Score {
  static constexpr bool plain = true;
  static constexpr float scale = 0.125f;
  struct OfHead {};
  SINTER_DEVICE static OfHead of_head(const Args&, const Coord&) { return {}; }
  SINTER_DEVICE static float element(const Args&, const Coord&, const OfHead&, float x) {
    return 2.0f * math::tanh(x * scale * 0.5f);
  }
  SINTER_DEVICE static float gradient(const Args&, const Coord&, const OfHead&, float x, float dy) {
    const float t = math::tanh(x * scale * 0.5f);
    return dy * (1.0f - t * t);
  }
};
struct Weight {
  static constexpr bool plain = true;
  struct OfHead {};
  SINTER_DEVICE static OfHead of_head(const Args&, const Coord&) { return {}; }
  SINTER_DEVICE static float element(const Args&, const Coord&, const OfHead&, float x) { return x; }
};
struct Rows {
  SINTER_DEVICE static int at(const Coord& c) {
    return (c.at[0] * kHeads * kGroup + c.at[1]) * kQueries + c.at[2];
  }
  SINTER_DEVICE static float stats(const Args& args, const Coord& c) { return args.stats[at(c)]; }
  SINTER_DEVICE static float delta(const Args& args, const Coord& c) { return args.delta[at(c)]; }
};
struct BiasGradient {
  static constexpr bool wanted = false, by_query = true, by_key = true;
  SINTER_DEVICE static void put(const Args& args, const Coord& c, float x) {
    constexpr int rows = by_query ? kQueries : 1, columns = by_key ? kKeys : 1;
    hardware::add(args.dbias + ((c.at[0] * kHeads * kGroup + c.at[1]) * rows + c.at[2] % rows) *
                                   columns + c.at[3] % columns, x);
  }
};
struct SumsDQ {
  SINTER_DEVICE static void add(const Args& args, const Coord& c, int row, int column,
                                unsigned from) {
    hopper::add_box(args.map_dq, from, column, row, c.at[1], c.at[0]);
  }
};

extern "C" __global__ __launch_bounds__(Config::threads, 1)
void sinter_attention_backward(const __grid_constant__ Args args) {
  attention::run_backward<Config, Mask, Operand<&Args::map_q, true>, Operand<&Args::map_k, false>,
                          Operand<&Args::map_v, false>, Operand<&Args::map_do, true>, Score, Weight,
                          Rows, BiasGradient, SumsDQ, Operand<&Args::map_dk, false>, Operand<&Args::map_dv, false>>(
      args);
}
