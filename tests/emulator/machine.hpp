// What the text of a kernel, compiled for the host, needs of the threads around it. The test
// program runs the threads of a block as fibers, one at a time, and switches where they wait.
#pragma once
#include <cstdint>

namespace emulator {

inline constexpr unsigned kWarp = 32, kWords = 8;

struct Index {
  unsigned x;
};

// What the lanes of a warp show each other.
struct Warp {
  std::uint64_t words[kWarp][kWords];
};

class Machine {
 public:
  Index thread{}, block{}, grid{};  // of the thread that runs
  Warp* warp = nullptr;             // its warp
  // Asynchronous copies are carried out as late as a program may rely on; else at once.
  bool late_copies = true;

  virtual void block_barrier() = 0;
  virtual void warp_barrier() = 0;
  // `valid` bytes, then zeros up to `bytes`.
  virtual void copy(void* to, const void* from, int bytes, int valid) = 0;
  virtual void commit_copies() = 0;
  virtual void wait_for_copies(int groups_left) = 0;  // -1: also those of no group

 protected:
  ~Machine() = default;
};

// What a compiled kernel offers: runs the calling thread through it.
using Kernel = void(Machine& machine, const void* arguments);
inline constexpr const char* kKernelName = "emulator_kernel";

}  // namespace emulator
