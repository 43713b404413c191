// What the samples share: the --device argument, the same numbers on every machine, and a few lines
// to end with. Nothing here is needed to use the library.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "sinter/buffers.hpp"
#include "sinter/sinter.hpp"

namespace samples {

using sinter::Array, sinter::Scratch, sinter::from_bf16, sinter::to_bf16;

// The value, or the diagnostics on stderr and exit code 1.
template <class T>
T need(sinter::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  for (const auto& e : result.errors()) std::fprintf(stderr, "error: %s\n", e.message().c_str());
  std::exit(1);
}

// --device cpu or --device N; Device::current() without it.
inline sinter::Device device_from(int argc, char** argv) {
  auto device = sinter::Device::current();
  if (argc == 3 && std::string_view(argv[1]) == "--device") {
    char* end = nullptr;
    const long ordinal = std::strtol(argv[2], &end, 10);
    const bool cpu = std::string_view(argv[2]) == "cpu";
    if (!cpu && (*argv[2] == 0 || *end != 0 || ordinal < 0 || ordinal > 1023)) argc = 0;
    device = cpu ? sinter::Device::cpu() : sinter::Device::gpu(static_cast<int>(ordinal));
  }
  if (argc != 1 && argc != 3) {
    std::fprintf(stderr, "usage: %s [--device cpu|N]\n", argv[0]);
    std::exit(2);
  }
  if (device.is_cpu())
    std::printf("device: CPU backend\n");
  else
    std::printf("device: GPU %d, %s\n", device.ordinal(), need(device.target()).c_str());
  return device;
}

// The same numbers on every machine: uniform in [-scale, scale).
inline std::vector<float> uniform(std::size_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (auto& v : values) v = scale * (static_cast<float>(generator() >> 8) * 0x1p-23f - 1.0f);
  return values;
}

// gelu in its tanh form, written independently of the library.
inline double gelu_tanh(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

// Counts what a sample checks; `verdict` is what main() returns.
class Check {
 public:
  // `tolerance` is absolute; NaN is never close.
  void close(const char* what, double seen, double expected, double tolerance) {
    ++checked_;
    if (std::abs(seen - expected) <= tolerance) return;
    fail(what);
    std::printf("       seen %.9g, expected %.9g, tolerance %.3g\n", seen, expected, tolerance);
  }
  void that(const char* what, bool holds) {
    ++checked_;
    if (!holds) fail(what);
  }
  int verdict(const char* sample) const {
    if (wrong_ == 0)
      std::printf("OK %s (%d checks)\n", sample, checked_);
    else
      std::printf("FAILED %s: %d of %d checks\n", sample, wrong_, checked_);
    return wrong_ == 0 ? 0 : 1;
  }

 private:
  void fail(const char* what) {
    ++wrong_;
    std::printf("wrong: %s\n", what);
  }
  int checked_ = 0, wrong_ = 0;
};

}  // namespace samples
