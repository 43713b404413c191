// The type of the memory is looked at once a line, not once an element.
#include "reference/view.hpp"

#include <cstring>

#include "reference/element.hpp"

namespace sinter::reference {
namespace {

template <class T>
void copy(const void* memory, std::int64_t start, std::int64_t step, std::int64_t n, double* out) {
  const T* p = static_cast<const T*>(memory) + start;
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(p[i * step]);
}

void copy_bf16(const void* memory, std::int64_t start, std::int64_t step, std::int64_t n,
               double* out) {
  const std::uint16_t* p = static_cast<const std::uint16_t*>(memory) + start;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(p[i * step]) << 16;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    out[i] = f;
  }
}

bool aligned_to(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

}  // namespace

Judged View::element(const Dims& c) const {
  const std::int64_t i = at(c);
  return {load_element(type, memory, i), error ? error[i] : 0};
}

void View::read(std::int64_t start, std::int64_t step, std::int64_t n, double* v) const {
  const bool aligned = aligned_to(memory, static_cast<std::size_t>(info(type).bytes));
  if (type == DataType::f64 && aligned) return copy<double>(memory, start, step, n, v);
  if (type == DataType::f32 && aligned) return copy<float>(memory, start, step, n, v);
  if (type == DataType::bf16 && aligned) return copy_bf16(memory, start, step, n, v);
  for (std::int64_t i = 0; i < n; ++i) v[i] = load_element(type, memory, start + i * step);
}

void View::read_errors(std::int64_t start, std::int64_t step, std::int64_t n, double* e) const {
  for (std::int64_t i = 0; i < n; ++i) e[i] = error[start + i * step];
}

void View::line(const Dims& c, int axis, std::int64_t n, Line& out) const {
  const std::int64_t start = at(c), step = stride[axis];
  out.v.resize(static_cast<std::size_t>(n));
  read(start, step, n, out.v.data());
  out.e.resize(error ? static_cast<std::size_t>(n) : 0);
  if (error) read_errors(start, step, n, out.e.data());
}

View View::broadcast(const Dims& dim, int rank) const {
  View b = *this;
  b.stride = Dims::filled(rank, 0);
  for (int i = 0; i < dim.size(); ++i)
    if (dim[i] != 1) b.stride[rank - dim.size() + i] = stride[i];
  return b;
}

}  // namespace sinter::reference
