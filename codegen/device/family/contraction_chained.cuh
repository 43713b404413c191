// Two products in one kernel of sm_90a: result(batch, m, n) = epilogue of the sum over p of
//
//   f(sum over k of a(batch, m, k) * b(batch, p, k)) * c(batch, n, p)
//
// where the first product's sums never leave the registers: rounded to c's 16-bit type they are the
// second product's left operand, since a thread holds of an accumulator what it must hold of an
// operand (engine/fragment.cuh). p has at most 192 elements, of more the sums would spill; n 256.
//
// One warpgroup produces: one of its threads has TMA fill two pipelines, one with 128 bytes of k of
// A and B a stage, one with 64 elements of p of C. The others consume, 64 rows of the tile each.
//
// A generated file defines
//
//   SINTER_WGMMA(p up to 64, f32) and SINTER_WGMMA(n up to 64, f32), once if they are the same
//   struct Config     of the second product, as contraction_wgmma.cuh's: Index, Extent (batch, m,
//   n, p),
//                     Accumulator, Sum, threads, unroll, width, batch, m, n, k (how many indices
//                     each), products = 1, n_fastest; tile_m = 64 a consumer; stages and stages_c
//                     of the pipelines, producer_registers, consumer_registers
//   struct First      of the first product: Index, Extent (batch, m, p, k), batch, m, n, k
//   struct Args       tensor maps and pointers; OperandA, OperandB, OperandC as in
//   contraction_wgmma.cuh
//                     (load(args, coordinates, row, k, ...): of C, row is n and k is p)
//   struct Middle     float element(args, coordinates of First, float sum): f
//   struct Body       the epilogue, as in contraction_wgmma.cuh
//
// and calls chained::run<Config, First, OperandA, OperandB, OperandC, Middle, Body>(args). The
// launch has Config::threads threads and ChainedShape::shared_bytes bytes of shared memory, and any
// number of CTAs.
#pragma once
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/engine/wgmma.cuh"
#include "sinter/device/family/contraction_epilogue.cuh"
#include "sinter/device/family/contraction_producer.cuh"

namespace sinter::chained {

template <class Config, class First, class A, class B, class C>
struct ChainedShape {
  using P = contraction::Problem<Config>;
  using Q = contraction::Problem<First>;
  static constexpr int up(long long x) { return static_cast<int>(ceil_divide(x, 64) * 64); }
  static constexpr int consumers = Config::threads / 128 - 1;
  static constexpr int middle = up(Q::columns), columns = up(P::columns);
  static_assert(middle <= 192 && columns <= 256,
                "chained products have at most 192 and 256 columns");
  static_assert(Q::columns == P::depth, "the second product sums over the first one's columns");
  static_assert(Config::tile_m == 64 * consumers, "a consumer has 64 rows");
  static_assert(sizeof(typename C::Number) == 2, "sums become operands of 16 bits");

  template <class Operand, int extent>
  using Tile = SharedTile<typename Operand::Number, Operand::k_fastest ? Major::k : Major::mn,
                          extent, 128 / static_cast<int>(sizeof(typename Operand::Number))>;
  using TileA = Tile<A, Config::tile_m>;
  using TileB = Tile<B, middle>;
  using TileC = Tile<C, columns>;
  using FirstProduct =
      Mma<Shape<64, middle>, Types<typename A::Number, typename B::Number, float>, TileA, TileB>;
  using SecondProduct = Mma<Shape<64, columns>,
                            Types<typename C::Number, typename C::Number, float>, Registers, TileC>;
  using Pipe = Pipeline<Config::stages>;
  using PipeC = Pipeline<Config::stages_c>;

  static constexpr int steps = static_cast<int>(ceil_divide(Q::depth, TileA::depth)),
                       parts = middle / TileC::depth;  // of p, a stage each
  static constexpr int tiles_m = static_cast<int>(ceil_divide(P::rows, Config::tile_m)),
                       tiles = static_cast<int>(P::batches) * tiles_m;
  static constexpr int across = columns / contraction::EpilogueTile::columns;

  // Shared memory, from a multiple of 1024 on.
  static constexpr int stage_bytes = TileA::bytes + TileB::bytes;
  static constexpr int stages_c = Config::stages * stage_bytes,
                       epilogue_tiles = stages_c + Config::stages_c * TileC::bytes,
                       pipe = epilogue_tiles +
                              consumers * 4 * static_cast<int>(sizeof(contraction::EpilogueTile)),
                       pipe_c = pipe + Pipe::bytes, end = pipe_c + PipeC::bytes;
  static constexpr int shared_bytes = end + SharedMemory::lost;
  static_assert(shared_bytes == Config::shared_bytes);
};

// One thread of the producer.
template <class S, class A, class B, class C, class Args>
SINTER_DEVICE void produce(const Args& args, unsigned shared, int rows) {
  using TileA = typename S::TileA;
  using TileC = typename S::TileC;
  using Coord = typename S::Q::Coord;
  const typename S::Pipe pipe{shared + S::pipe};
  const typename S::PipeC pipe_c{shared + S::pipe_c};
  typename S::Pipe::State state;
  typename S::PipeC::State state_c;
  for (int tile = static_cast<int>(blockIdx.x); tile < S::tiles;
       tile += static_cast<int>(gridDim.x)) {
    const int batch = tile / S::tiles_m, row = tile % S::tiles_m * rows;
    Coord c;
    S::Q::set_batch(c, batch);
    fill_stages(pipe, state, args, TmaBoxes<A, TileA, Coord>{c, row},
                TmaBoxes<B, typename S::TileB, Coord>{c, 0}, shared, StepRange(S::steps),
                NoCopies{});
    const TmaBoxes<C, TileC, Coord> columns{c, 0};
#pragma unroll 1
    for (int part = 0; part < S::parts; ++part, state_c.advance()) {
      pipe_c.acquire(state_c);
      pipe_c.expect(state_c, TileC::bytes);
      columns.load(args, part, shared + S::stages_c + state_c.stage * TileC::bytes,
                   pipe_c.full(state_c));
    }
  }
}

// A warpgroup's 64 rows of a tile.
template <class Config, class S, class Middle, class Args>
class Consumer {
  using TileA = typename S::TileA;
  using TileC = typename S::TileC;
  using First = typename S::FirstProduct;
  using Second = typename S::SecondProduct;
  const typename S::Pipe pipe_;
  const typename S::PipeC pipe_c_;
  typename S::Pipe::State state_;
  typename S::PipeC::State state_c_;
  const unsigned long long a_, b_, c_;  // descriptors in the first stages

 public:
  SINTER_DEVICE Consumer(unsigned shared, int consumer)
      : pipe_{shared + S::pipe},
        pipe_c_{shared + S::pipe_c},
        a_(TileA::descriptor(shared + TileA::further(consumer * 64))),
        b_(S::TileB::descriptor(shared + TileA::bytes)),
        c_(TileC::descriptor(shared + S::stages_c)) {}

  SINTER_DEVICE void first(typename First::Sums& sums) {
    int previous = 0;
    wgmma::fence(sums);
#pragma unroll 1
    for (int step = 0; step < S::steps; ++step) {
      const int offset = state_.stage * (S::stage_bytes / 16);
      pipe_.wait(state_);
      wgmma::fence(sums);
      First::multiply(sums, a_ + offset, b_ + offset, step > 0);
      wgmma::commit();
      wgmma::wait<1>();
      if (step > 0) pipe_.release_stage(previous);
      previous = state_.stage;
      state_.advance();
    }
    wgmma::wait<0>(sums);
    pipe_.release_stage(previous);
  }
  // f of all sums; those of columns that do not exist become zeros, as c's are there.
  SINTER_DEVICE void middle(const Args& args, typename First::Sums& sums, int batch,
                            int row) const {
    using Q = typename S::Q;
    typename Q::Coord c;
    Q::set_batch(c, batch);
    sums.each([&](int i, float& sum) {
      const int m = row + sums.row(i), p = sums.column(i);
      const bool inside = S::middle == Q::columns || p < Q::columns;
      Q::set_m(c, m < Q::rows ? m : Q::rows - 1);
      Q::set_n(c, inside ? p : 0);
      const float y = Middle::element(args, c, sum);
      sum = inside ? y : 0.0f;
    });
  }
  template <class Operand>
  SINTER_DEVICE void second(typename Second::Sums& sums, Operand& a) {
    wgmma::fence(sums, a);
    for_each_number<S::parts>([&]<int part>() {
      pipe_c_.wait(state_c_);
      wgmma::fence(sums, a);
      Second::template multiply<part * TileC::steps>(
          sums, a, c_ + state_c_.stage * (TileC::bytes / 16), part > 0);
      wgmma::commit();
      wgmma::wait<0>(sums, a);
      pipe_c_.release(state_c_);
      state_c_.advance();
    });
  }
};

template <class Config, class First, class A, class B, class C, class Middle, class Body,
          class Args>
SINTER_DEVICE void run(const Args& args) {
  using S = ChainedShape<Config, First, A, B, C>;
  using contraction::EpilogueTile;
  const SharedMemory memory;
  const unsigned shared = memory.address;
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    A::prefetch(args), B::prefetch(args), C::prefetch(args);
    typename S::Pipe{shared + S::pipe}.init(1, S::consumers * 4);
    typename S::PipeC{shared + S::pipe_c}.init(1, S::consumers * 4);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  if (warpgroup == 0) {
    hopper::keep_registers<Config::producer_registers>();
    if (threadIdx.x == 0) produce<S, A, B, C>(args, shared, Config::tile_m);
    return;
  }
  hopper::take_registers<Config::consumer_registers>();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 - 4, 0);
  EpilogueTile& epilogue_tile =
      reinterpret_cast<EpilogueTile*>(memory.pointer + S::epilogue_tiles)[warp];
  Consumer<Config, S, Middle, Args> consumer(shared, warpgroup - 1);
  const EpilogueTile::Fragment fragment;
  for (int tile = static_cast<int>(blockIdx.x); tile < S::tiles;
       tile += static_cast<int>(gridDim.x)) {
    const int batch = tile / S::tiles_m,
              row = tile % S::tiles_m * Config::tile_m + (warpgroup - 1) * 64;
    typename S::SecondProduct::Sums sums;
    {
      typename S::FirstProduct::Sums first;
      consumer.first(first);
      consumer.middle(args, first, batch, row);
      auto a = to_operand<typename C::Number>(first);
      consumer.second(sums, a);
    }
    contraction::EpilogueCoord<Config> place;
    S::P::set_batch(place.batch, batch);
    place.row = row + warp % 4 * 16, place.row_end = S::P::rows, place.column_end = S::P::columns;
#pragma unroll 1
    for (int part = 0; part < S::across; ++part) {
      contraction::put_tile<0, S::across, 1>(
          epilogue_tile, fragment, contraction::OneBlock<typename S::SecondProduct::Sums>{sums},
          part);
      __syncwarp();
      place.column = part * EpilogueTile::columns;
      contraction::finish<Config, Body>(args, epilogue_tile, place, AllRows{});
      __syncwarp();
    }
  }
}

}  // namespace sinter::chained
