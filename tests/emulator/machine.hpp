// What the text of a kernel, compiled for the host, needs of the threads around it. The test
// program runs the threads of a cluster's blocks as fibers, one at a time, and switches where they
// wait.
#pragma once
#include <cstdint>

namespace emulator {

inline constexpr unsigned kWarp = 32, kWords = 8, kMostBlocks = 16;

struct Index {
  unsigned x;
};

// What the lanes of a warp show each other: in two places by turns, so that none overwrites what
// others, that it has met since, still look at.
struct Warp {
  using Words = std::uint64_t[kWarp][kWords];
  Words places[2];
  unsigned meetings = 0;
  Words& to_show() { return places[meetings % 2]; }
  // Behind the meeting, and until the next one.
  const Words& shown() const { return places[(meetings + 1) % 2]; }
};

// In place of what the driver encodes of a tensor. Extents and steps innermost first.
struct BoxMap {
  const char* tensor;
  std::int64_t extent[5], step[5];          // elements; bytes
  std::int32_t box[5];                      // im2col: channels, pixels
  std::uint8_t rank, bytes, swizzle, tf32;  // swizzle: bytes of a line, or 0
  // im2col (base_step[0] > 0): base pixels of w, h, d lie from `lower` to extent - 1 + `upper`,
  // `base_step` apart.
  std::int16_t lower[3], upper[3];
  std::uint8_t base_step[3];
};
static_assert(sizeof(BoxMap) <= 128);

struct BoxPlace {
  int at[5];
  int offset[3];  // im2col: of the filter's tap, w, h, d
};
// Where tensor maps put, and products find, what lies at an address: pieces of 16 bytes exchange
// places within eight lines of `swizzle` bytes.
inline unsigned swizzled(unsigned address, unsigned swizzle) {
  return swizzle == 0 ? address : address ^ (address >> 7 & (swizzle / 16 - 1)) << 4;
}
// The bits of a float, to nearest, ties away from zero.
inline std::uint32_t rounded_to_tf32(std::uint32_t x) {
  return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0x1000u) & ~0x1fffu;
}

// A barrier in shared memory whose phase ends with the arrivals and bytes that it expects.
struct Barrier {
  std::uint16_t arrivals, missing;
  std::int32_t bytes_and_parity;  // twice the bytes that are still to come, and the parity
};
static_assert(sizeof(Barrier) == 8);

enum class Number : std::uint8_t { bf16, f16, tf32, e4m3, e5m2, s8, u8 };

// A lane's part of mma.sync: its registers.
struct BlockProduct {
  Number type;
  float* d;  // four sums
  const unsigned* a;
  unsigned b[2];
};

// A lane's part of a product of wgmma, which its warp carries out some time before it waits for it.
struct Product {
  Number type_a, type_b;
  bool a_across, b_across;  // lines of m or n for every k
  bool integers, keep;      // the sums; whether it adds to them
  int bytes, columns;       // of a number; of the sums
  int warp;                 // of the warpgroup
  void* d;
  const unsigned* a_registers;  // the lane's, or null: the left operand is in shared memory
  std::uint64_t a, b;           // descriptors
  const char* anchor;
  unsigned memory;  // where the shared memory of the launch begins, counted from `anchor`
};

class Machine {
 public:
  Index thread{}, block{}, grid{};  // of the thread that runs
  Warp* warp = nullptr;             // its warp
  unsigned rank = 0;                // its block's in the cluster
  // Asynchronous work is carried out as late as a program may rely on; else at once.
  bool late = true;
  // Of each block of the cluster: where its shared memory is counted from.
  char* anchor[kMostBlocks] = {};

  virtual void fault(const char* what) = 0;  // the machine would stop
  virtual void block_barrier() = 0;
  virtual void warp_barrier() = 0;
  // Every lane shows `mine` and gets what `lane` shows.
  virtual void exchange(const void* mine, void* theirs, unsigned lane, unsigned bytes) = 0;

  // ---- what the lanes of a warp do together, all at once when the last of them asks for it
  virtual unsigned ballot(bool mine) = 0;
  virtual void multiply(const BlockProduct& product) = 0;
  // ldmatrix and stmatrix: the lane gives the address of a line.
  virtual void get_blocks(unsigned line, unsigned* blocks, bool transposed) = 0;
  virtual void put_blocks(unsigned line, const unsigned* blocks, bool transposed) = 0;

  // ---- cp.async: `valid` bytes, then zeros up to `bytes`
  virtual void copy(void* to, const void* from, int bytes, int valid) = 0;
  virtual void commit_copies() = 0;
  virtual void wait_for_copies(int groups_left) = 0;  // -1: also those of no group

  // ---- sm_90
  virtual void cluster_arrive() = 0;
  virtual void cluster_wait() = 0;
  virtual void named_barrier(unsigned id, unsigned threads, bool waits) = 0;
  virtual void barrier_arrive(unsigned block, unsigned barrier, int expected_bytes) = 0;
  virtual void barrier_wait(unsigned barrier, int parity) = 0;
  // Copies to the same place in the shared memory of each block, and tells the barrier there.
  virtual void load_box(const BoxMap& map, unsigned to, unsigned barrier, unsigned blocks,
                        BoxPlace place) = 0;
  // From this block's shared memory, by this thread.
  virtual void store_box(const BoxMap& map, unsigned from, BoxPlace place) = 0;
  // The same, of floats that are added to those in memory.
  virtual void add_box(const BoxMap& map, unsigned from, BoxPlace place) = 0;
  virtual void commit_stores() = 0;
  virtual void wait_for_stores(int groups_left) = 0;
  virtual void read(unsigned block, unsigned from, void* to, int bytes) = 0;
  virtual void send(unsigned to, unsigned barrier, unsigned block, const void* from, int bytes) = 0;
  virtual void multiply(const Product& product) = 0;
  virtual void commit_multiplications() = 0;
  virtual void wait_for_multiplications(int groups_left) = 0;

 protected:
  ~Machine() = default;
};

// What a compiled kernel offers. Each block of a cluster has a copy of the library, and so shared
// memory of its own.
using Kernel = void(Machine& machine, const void* arguments);  // runs the calling thread
using Anchor = char*();
// Fills the shared memory that the launch asks for, and a margin behind it, with NaN patterns; says
// whether the margin is still as it was.
using Start = void(unsigned shared_bytes);
using End = bool(unsigned shared_bytes);
inline constexpr const char *kKernelName = "emulator_kernel_", *kAnchorName = "emulator_anchor",
                            *kStartName = "emulator_start", *kEndName = "emulator_end";

}  // namespace emulator
