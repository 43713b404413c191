// What the samples share: the --device argument, arrays in device memory, and a few lines to end
// with. Nothing here is needed to use the library; a program with its own allocator has its own.
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

#include "sinter/sinter.hpp"

namespace samples {

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

// `count` values of type T in the memory of a device.
template <class T>
class Array {
 public:
  Array(sinter::Device device, std::size_t count)
      : count_(count),
        memory_(need(sinter::Memory::allocate(device, static_cast<std::int64_t>(size())))) {}
  Array(sinter::Device device, const std::vector<T>& values) : Array(device, values.size()) {
    set(values);
  }
  void set(const std::vector<T>& values) {
    need(memory_.copy_in(values.data(), static_cast<std::int64_t>(size())));
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    need(memory_.copy_out(values.data(), static_cast<std::int64_t>(size())));
    return values;
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  operator const sinter::Memory&() const { return memory_; }

 private:
  std::size_t size() const { return count_ * sizeof(T); }
  std::size_t count_;
  sinter::Memory memory_;
};

// The scratch memory that a plan asks for.
class Scratch {
 public:
  explicit Scratch(const sinter::Executable& e)
      : memory_(need(sinter::Memory::allocate(e.device(), e.workspace_bytes()))) {}
  operator sinter::Workspace() const { return memory_; }

 private:
  sinter::Memory memory_;
};

// The same numbers on every machine: uniform in [-scale, scale).
inline std::vector<float> uniform(std::size_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (auto& v : values) v = scale * (static_cast<float>(generator() >> 8) * 0x1p-23f - 1.0f);
  return values;
}

// bf16 is the upper half of an f32, rounded to nearest with ties to even. (No NaN comes here.)
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::vector<std::uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (float v : values) bits.push_back(to_bf16(v));
  return bits;
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
