// How the threads of a row combine what each has of its reductions: within a warp, through shared
// memory, through the shared memory of a cluster.
#pragma once
#include "sinter/device/core/hopper.cuh"
#include "sinter/device/family/reductions.cuh"

namespace sinter {

// What a thread has of each reduction, for `count` rows.
template <int count, class R>
struct TotalOf {
  typename Reduction<R>::Partial of[count];
};
template <int count, class All>
struct Totals;
template <int count, class... Rs>
struct Totals<count, Reductions<Rs...>> : TotalOf<count, Rs>... {};

// Room in shared memory for what the rows of a block add up to, taken up by one reduction after the
// other.
inline constexpr int kColumnBytes = 16 << 10;
template <int bytes>
SINTER_DEVICE void* column_memory() {
  __shared__ alignas(16) unsigned char memory[bytes];
  return memory;
}

// So many terms each thread may add up for itself, though others of its row do the same.
inline constexpr int kFewTerms = 32;

// Combines what neighbouring threads of a warp have, so many as a segment of a row takes. All
// threads of the warp must call.
template <class R, int lanes>
SINTER_DEVICE typename Reduction<R>::Partial total_of_lanes(typename Reduction<R>::Partial mine) {
  static_assert(lanes >= 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0);
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    mine = Reduction<R>::combine(mine, __shfl_xor_sync(0xffffffffu, mine, distance));
  return mine;
}

// Threads as `lanes` a row times `rows`. With rows_fastest, neighbouring threads hold neighbouring
// rows; else neighbouring vectors of one row. A long row may be shared by the `blocks` of a
// cluster. The reductions of `group` neighbouring rows are one.
template <int lanes, int rows, bool rows_fastest, int blocks, int group>
struct RowThreads {
  static constexpr int threads = lanes * rows;
  // Lanes of a row in one warp, and how far apart neighbouring ones are there.
  static constexpr int apart = rows_fastest ? rows : 1;
  static constexpr int in_warp = rows_fastest && (rows > 32 || threads % 32 != 0 || 32 % rows != 0)
                                     ? 1
                                 : lanes < 32 / apart ? lanes
                                                      : 32 / apart;
  static constexpr int parts = lanes / in_warp;  // of a row, that meet in shared memory
  int lane, row;
  SINTER_DEVICE RowThreads()
      : lane(static_cast<int>(threadIdx.x / (rows_fastest ? rows : 1u) % lanes) +
             (blocks > 1 ? hardware::cluster_rank() * lanes : 0)),
        row(static_cast<int>(threadIdx.x / (rows_fastest ? 1u : lanes) % rows)) {}

  // Where the other blocks of the cluster announce their totals, in two buffers.
  static SINTER_DEVICE unsigned arrived(int turn) {
    __shared__ unsigned long long barriers[2];
    return hopper::address(&barriers[turn % 2]);
  }
  // At the start. The first total waits until every block of the cluster has come so far: then all
  // have shared memory and barriers.
  static SINTER_DEVICE void arrive() {
    if constexpr (blocks > 1) {
      if (threadIdx.x == 0) {
        hopper::barrier_init(arrived(0), 1);
        hopper::barrier_init(arrived(1), 1);
        hopper::barriers_are_ready();
      }
      hardware::cluster_arrive();
    }
  }

  // Where threads meet. Rows that lie together need so much room that all reductions share it.
  template <class Owner, class Partial, int size>
  static SINTER_DEVICE Partial (&buffer(int turn))[size] {
    __shared__ alignas(16) Partial two[2][size];
    return two[turn % 2];
  }
  template <class R, class Partial, int count>
  static SINTER_DEVICE auto& sums(int turn) {
    return buffer<Choice<rows_fastest, void, R>, Partial, parts * count * rows>(turn);
  }
  // Neighbouring threads read neighbouring words, or a thread reads a run of them as vectors.
  static constexpr int next(int count) { return rows_fastest ? count * rows : 1; }  // part of a sum
  SINTER_DEVICE int at(int part, int i, int count) const {
    return rows_fastest ? (part * count + i) * rows + row : (row * count + i) * parts + part;
  }
  // In a few chains, since each addition waits for the one before.
  template <class R, int count, class Partial, int size>
  static SINTER_DEVICE Partial whole(const Partial (&sums)[size], int first) {
    constexpr int chains = parts < 8 ? 1 : 4;
    Partial chain[chains];
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      const Partial part = sums[first + p * next(count)];
      chain[p % chains] = p < chains ? part : R::combine(chain[p % chains], part);
    }
#pragma unroll
    for (int c = 1; c < chains; ++c) chain[0] = R::combine(chain[0], chain[c]);
    return chain[0];
  }
  // A row of whole warps waits for no other.
  static constexpr bool alone = !rows_fastest && rows > 1 && rows < 16 && lanes % 32 == 0;
  SINTER_DEVICE void meet() const {
    if constexpr (alone)
      hardware::meet<lanes>(row + 1);
    else
      __syncthreads();
  }

  template <class R, int count, class Partial>
  SINTER_DEVICE void exchange(Partial (&mine)[count]) const {
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int distance = in_warp / 2; distance > 0; distance /= 2)
        mine[i] = R::combine(mine[i], __shfl_xor_sync(0xffffffffu, mine[i], distance * apart));
  }
  template <class R, int count, class Partial>
  SINTER_DEVICE void announce(const Partial (&mine)[count], int turn) const {
    if (lane % in_warp == 0)
#pragma unroll
      for (int i = 0; i < count; ++i)
        sums<R, Partial, count>(turn)[at(lane % lanes / in_warp, i, count)] = mine[i];
  }
  template <class R, int count, class Partial>
  SINTER_DEVICE void collect(Partial (&mine)[count], int turn) const {
    auto& shared = sums<R, Partial, count>(turn);
    if constexpr (rows_fastest && parts * count > kFewTerms) {
      // Each sum is made once, by one of the threads.
#pragma unroll 1
      for (int sum = static_cast<int>(threadIdx.x); sum < count * rows; sum += threads)
        shared[sum] = whole<R, count>(shared, sum);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < count; ++i) mine[i] = shared[at(0, i, count)];
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) mine[i] = whole<R, count>(shared, at(0, i, count));
    }
  }

  // Each block of a cluster sends its own to all, and goes on when it has those of all: nobody
  // writes to a buffer that is still read, or to a block that has ended.
  template <class R, class Partial, int count>
  static SINTER_DEVICE Partial (&of_blocks(int turn))[blocks][count] {
    __shared__ Partial two[2][blocks][count];
    return two[turn % 2];
  }
  template <class R, int count, class Partial>
  SINTER_DEVICE void send(const Partial (&mine)[count], int turn) const {
    if (threadIdx.x < blocks)
#pragma unroll
      for (int i = 0; i < count; ++i)
        hopper::send(&of_blocks<R, Partial, count>(turn)[hardware::cluster_rank()][i],
                     arrived(turn), static_cast<int>(threadIdx.x), mine[i]);
  }
  template <class R, int count, class Partial>
  SINTER_DEVICE void receive(Partial (&mine)[count], int turn) const {
    auto& shared = of_blocks<R, Partial, count>(turn);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      mine[i] = shared[0][i];
#pragma unroll
      for (int b = 1; b < blocks; ++b) mine[i] = R::combine(mine[i], shared[b][i]);
    }
  }

  // Rows that lie together, of a cluster or in groups: what the block has of each row is added up
  // by one of its threads, then what a group has, which goes to all blocks of the cluster.
  template <class Partial, int groups>
  static SINTER_DEVICE Partial (&of_groups(int turn))[groups] {
    __shared__ Partial two[2][groups];
    return two[turn % 2];
  }
  template <class R, int count, class Partial>
  SINTER_DEVICE void total_of_groups(Partial (&mine)[count], int turn) const {
    constexpr int block_rows = count * rows, groups = block_rows / group;
    static_assert(block_rows % group == 0 && groups <= threads);
    auto& shared = sums<R, Partial, count>(turn);
    announce<R>(mine, turn);
    __syncthreads();
    for (int sum = static_cast<int>(threadIdx.x); sum < block_rows; sum += threads)
      shared[sum] = whole<R, count>(shared, sum);
    __syncthreads();
    const int own = static_cast<int>(threadIdx.x);
    Partial sum[1];
    if (own < groups) {
      const auto of_row = [&](int r) { return shared[r % count * rows + r / count]; };
      sum[0] = of_row(own * group);
#pragma unroll
      for (int r = 1; r < group; ++r) sum[0] = R::combine(sum[0], of_row(own * group + r));
    }
    if constexpr (blocks > 1) {
      auto& all = of_blocks<R, Partial, groups>(turn);
      if (turn == 0) hardware::cluster_wait();
      if (threadIdx.x == 0) hopper::arrive_and_expect(arrived(turn), static_cast<int>(sizeof(all)));
      if (own < groups)
#pragma unroll
        for (int b = 0; b < blocks; ++b)
          hopper::send(&all[hardware::cluster_rank()][own], arrived(turn), b, sum[0]);
      hopper::wait_for_cluster(arrived(turn), turn / 2 % 2);
      if (own < groups) {
        sum[0] = all[0][own];
#pragma unroll
        for (int b = 1; b < blocks; ++b) sum[0] = R::combine(sum[0], all[b][own]);
      }
    }
    auto& totals = of_groups<Partial, groups>(turn);
    if (own < groups) totals[own] = sum[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < count; ++i) mine[i] = totals[(row * count + i) / group];
  }

  // Combines the lanes' partials of the reductions of a phase, for `count` rows each, always in the
  // same order; every lane gets the totals of its row. Within a warp by exchange, across warps
  // through shared memory, where one barrier serves all reductions. All threads of the block must
  // call; those of a row of whole warps wait for their own alone. `turn` counts the uses of the
  // buffers: two take turns, so that no barrier stands between two calls.
  template <int count, class All, class... Rs>
  SINTER_DEVICE void total(List<Rs...>, Totals<count, All>& mine, int& turn) const {
    (exchange<Reduction<Rs>>(mine.TotalOf<count, Rs>::of), ...);
    if constexpr (rows_fastest && (blocks > 1 || group > 1)) {
      ((total_of_groups<Reduction<Rs>>(mine.TotalOf<count, Rs>::of, turn), ++turn), ...);
      return;
    }
    if constexpr (parts > 1 && rows_fastest) {
      ((announce<Reduction<Rs>>(mine.TotalOf<count, Rs>::of, turn), meet(),
        collect<Reduction<Rs>>(mine.TotalOf<count, Rs>::of, turn), ++turn),
       ...);
      return;
    }
    if constexpr (parts > 1) {
      (announce<Reduction<Rs>>(mine.TotalOf<count, Rs>::of, turn), ...);
      meet();
      (collect<Reduction<Rs>>(mine.TotalOf<count, Rs>::of, turn), ...);
    }
    if constexpr (blocks > 1 && !rows_fastest) {
      static_assert(rows == 1);
      constexpr int bytes = (0 + ... + (blocks * static_cast<int>(sizeof(TotalOf<count, Rs>))));
      if (turn == 0) hardware::cluster_wait();
      if (threadIdx.x == 0) hopper::arrive_and_expect(arrived(turn), bytes);
      (send<Reduction<Rs>>(mine.TotalOf<count, Rs>::of, turn), ...);
      hopper::wait_for_cluster(arrived(turn), turn / 2 % 2);
      (receive<Reduction<Rs>>(mine.TotalOf<count, Rs>::of, turn), ...);
    }
    ++turn;
  }

  // Combines what threads of the same lane hold for different rows, for `count` columns of each
  // lane; the threads of row 0 get the totals. Rows of a warp meet by exchange, those of the warps
  // in shared memory, in `spare_bytes` at `spare` where these are more room. All threads of the
  // block must call.
  template <class R, int spare_bytes, int count, class Partial>
  SINTER_DEVICE void total_of_rows(Partial (&mine)[count], void* spare) const {
    constexpr int together = lanes < 32 && rows > 1 ? 32 / lanes : 1, groups = rows / together;
    constexpr int kFewGroups = 3;  // those of row 0 add them up alone
    static_assert(groups * together == rows);
    if constexpr (together > 1)
#pragma unroll
      for (int i = 0; i < count; ++i)
#pragma unroll
        for (int distance = lanes; distance < 32; distance *= 2)
          mine[i] = R::combine(mine[i], __shfl_xor_sync(0xffffffffu, mine[i], distance));
    if constexpr (groups > 1) {
      constexpr int most = spare_bytes > kColumnBytes ? spare_bytes : kColumnBytes;
      constexpr int fit = most / static_cast<int>(groups * lanes * sizeof(Partial));
      constexpr int some = fit < 1 ? 1 : fit < count ? fit : count;  // columns at a time
      constexpr int length = some * lanes;
      auto* sums = static_cast<Partial*>(spare);
      if constexpr (most == kColumnBytes)
        sums = static_cast<Partial*>(column_memory<groups * length * sizeof(Partial)>());
#pragma unroll
      for (int first = 0; first < count; first += some) {
        __syncthreads();  // nobody reads what was here before
        if (row % together == 0)
#pragma unroll
          for (int i = 0; i < some && first + i < count; ++i)
            sums[row / together * length + i * lanes + lane] = mine[first + i];
        __syncthreads();
        if constexpr (groups <= kFewGroups) {
          if (row == 0)
#pragma unroll
            for (int i = 0; i < some && first + i < count; ++i)
#pragma unroll
              for (int g = 1; g < groups; ++g)
                mine[first + i] = R::combine(mine[first + i], sums[g * length + i * lanes + lane]);
          continue;
        }
#pragma unroll 1
        for (int at = static_cast<int>(threadIdx.x); at < length; at += threads) {
          Partial sum = sums[at];
#pragma unroll 16
          for (int g = 1; g < groups; ++g) sum = R::combine(sum, sums[g * length + at]);
          sums[at] = sum;
        }
        __syncthreads();
        if (row == 0)
#pragma unroll
          for (int i = 0; i < some && first + i < count; ++i)
            mine[first + i] = sums[i * lanes + lane];
      }
    }
  }
};

}  // namespace sinter
