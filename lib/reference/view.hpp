// How the element functions read their operands: memory of any storage type, strided, with the
// error bounds beside it where there are any. A view is addressed by the tensor's own coordinates,
// also when it holds only a part of it.
#pragma once
#include <algorithm>
#include <vector>

#include "reference/bounded.hpp"
#include "reference/reference.hpp"
#include "sinter/base/data_type.hpp"
#include "sinter/base/dims.hpp"

namespace sinter::reference {

// Numbers in a row. `e` is empty where all are exact.
struct Line {
  std::vector<double> v, e;
  const double* errors() const { return e.empty() ? nullptr : e.data(); }
};

struct View {
  const void* memory = nullptr;
  DataType type = DataType::f64;
  const double* error = nullptr;  // laid out as `memory`; null: exact
  std::int64_t offset = 0;
  Dims stride;

  std::int64_t at(const Dims& c) const {
    std::int64_t i = offset;
    for (int d = 0; d < stride.size(); ++d) i += c[d] * stride[d];
    return i;
  }
  Judged element(const Dims& c) const;
  // n elements from position `start`, `step` apart.
  void read(std::int64_t start, std::int64_t step, std::int64_t n, double* v) const;
  void read_errors(std::int64_t start, std::int64_t step, std::int64_t n, double* e) const;
  // n elements along `axis` from coordinates c.
  void line(const Dims& c, int axis, std::int64_t n, Line& out) const;

  // As an operand that broadcasts to `rank` dims: axes of extent 1 do not move.
  View broadcast(const Dims& dim, int rank) const;
};

}  // namespace sinter::reference
