// A short list of 64-bit integers with inline storage: extents, strides, paddings, permutations.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

namespace sinter {

inline constexpr int kMaxRank = 8;  // of a tensor that a user declares

class Dims {
 public:
  // Room for kMaxRank and for the ranks that splitting axes makes inside the library. What does not
  // fit is dropped; the length is then 16, which every rank check refuses.
  static constexpr int kCapacity = 16;

  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<std::int64_t> values) {
    for (auto v : values) push_back(v);
  }
  static constexpr Dims filled(int count, std::int64_t value) {
    Dims d;
    for (int i = 0; i < count; ++i) d.push_back(value);
    return d;
  }

  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t& back() { return (*this)[size_ - 1]; }
  constexpr std::int64_t back() const { return (*this)[size_ - 1]; }
  constexpr void push_back(std::int64_t v) {
    if (size_ < kCapacity) (*this)[size_++] = v;
  }
  constexpr void insert(int at, std::int64_t v) {
    push_back(0);
    for (int i = size_ - 1; i > at; --i) (*this)[i] = (*this)[i - 1];
    (*this)[at] = v;
  }
  constexpr std::int64_t* begin() { return values_; }
  constexpr const std::int64_t* begin() const { return values_; }
  constexpr std::int64_t* end() { return values_ + size_; }
  constexpr const std::int64_t* end() const { return values_ + size_; }
  friend constexpr bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::int64_t values_[kCapacity]{};
  int size_ = 0;
};

// Number of elements. Extents are checked when a tensor is declared, so this does not overflow.
constexpr std::int64_t count(const Dims& dim) {
  std::int64_t n = 1;
  for (auto d : dim) n *= d;
  return n;
}

// Row-major strides without gaps. A zero extent counts as one so that no stride is zero.
constexpr Dims packed_strides(const Dims& dim) {
  Dims s = Dims::filled(dim.size(), 1);
  for (int i = dim.size() - 2; i >= 0; --i) s[i] = s[i + 1] * (dim[i + 1] > 0 ? dim[i + 1] : 1);
  return s;
}

// Elements from the first to one past the last that these strides reach; 0 when there is none.
constexpr std::int64_t span_elements(const Dims& dim, const Dims& stride) {
  std::int64_t last = 0;
  for (int i = 0; i < dim.size(); ++i) {
    if (dim[i] == 0) return 0;
    last += (dim[i] - 1) * stride[i];
  }
  return last + 1;
}

inline std::string to_string(const Dims& d) {
  std::string s = "[";
  for (int i = 0; i < d.size(); ++i) {
    if (i) s += ", ";
    s += std::to_string(d[i]);
  }
  s += "]";
  return s;
}

}  // namespace sinter
