// What the fake libcuda records and how it is told to fail. It stands in for the driver through
// SINTER_DRIVER, so that loading and launching can be tested without a GPU.
#pragma once
#include <atomic>
#include <cstddef>

struct FakeLaunch {
  char function[64];
  unsigned grid, block, shared_bytes;
  bool overlaps;  // may start before the kernel ahead of it has ended
  void* stream;
  void* context;  // current at the launch
  unsigned char arguments[512];
};

struct FakeEncoding {  // the last call of cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col
  int type, swizzle, promotion, interleave, fill;
  unsigned rank, box[5], element_steps[5];
  unsigned long long dim[5], stride[4];
  bool walks_pixels;
  int lower[3], upper[3];
};

struct FakeDriver {
  int devices = 2, major = 9, minor = 0, max_threads = 1024;
  int launches = 0, modules = 0, allocations = 0, retained = 0, synchronized = 0;
  std::atomic<int> context_depth = 0;  // of the calling thread's stack, all threads together
  int shared_allowed = 0;              // by the last cuFuncSetAttribute
  int encodings = 0;
  FakeEncoding encoding;
  int calls = 0;                   // of any kind
  std::size_t argument_bytes = 0;  // copied at each launch; also what the "machine code" declares
  std::size_t free_bytes = std::size_t{8} << 30;
  const char* failing_call = nullptr;
  int failing_result = 0;
  FakeLaunch log[64];
};

constexpr float kFakeMicroseconds = 5;  // that each launch takes, as events tell

extern "C" FakeDriver* fake_driver_state();
