// Arrays and workspace in the memory of a device, for samples, tests and small programs; a program
// with an allocator of its own binds its own pointers. What fails here (no memory, a copy that the
// driver refuses) prints the reason and ends the program, as Result::value() does.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "sinter/compile.hpp"

namespace sinter {

// `count` values of type T. Bind it by name: {"x", array}.
template <class T>
class Array {
 public:
  Array(Device device, std::size_t count)
      : count_(count), memory_(Memory::allocate(device, size()).value()) {}
  Array(Device device, std::size_t count, T value) : Array(device, std::vector<T>(count, value)) {}
  Array(Device device, const std::vector<T>& values) : Array(device, values.size()) { set(values); }
  // Both wait for the device.
  void set(const std::vector<T>& values) { memory_.copy_in(values.data(), size()).value(); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    memory_.copy_out(values.data(), size()).value();
    return values;
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::size_t count() const { return count_; }
  operator const Memory&() const { return memory_; }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(count_ * sizeof(T)); }
  std::size_t count_;
  Memory memory_;
};

// The workspace that an executable asks for. It outlives what is bound to it.
class Scratch {
 public:
  explicit Scratch(const Executable& e)
      : memory_(Memory::allocate(e.device(), e.workspace_bytes()).value()) {}
  operator Workspace() const { return memory_; }

 private:
  Memory memory_;
};

// bf16 is the upper half of an f32, rounded to nearest with ties to even; NaN stays NaN.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::vector<std::uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  bits.reserve(values.size());
  for (float v : values) bits.push_back(to_bf16(v));
  return bits;
}
inline std::vector<float> from_bf16(const std::vector<std::uint16_t>& bits) {
  std::vector<float> values;
  values.reserve(bits.size());
  for (auto b : bits) values.push_back(from_bf16(b));
  return values;
}

}  // namespace sinter
