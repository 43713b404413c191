// A rectangular part of a tensor: what is asked of a tensor, computed and kept.
#pragma once
#include <utility>

#include "sinter/base/dims.hpp"

namespace sinter::reference {

struct Box {
  Dims first, size;
  friend bool operator==(const Box&, const Box&) = default;

  static Box whole(const Dims& dim) { return {Dims::filled(dim.size(), 0), dim}; }
  int rank() const { return size.size(); }
  std::int64_t volume() const { return count(size); }
  std::int64_t end(int i) const { return first[i] + size[i]; }
  // Part [begin, end) of axis i of the whole; an empty range gives an empty box.
  void set(int i, std::int64_t begin, std::int64_t end) {
    first[i] = begin;
    size[i] = end > begin ? end - begin : 0;
  }
  void clip(int i, std::int64_t begin, std::int64_t end, std::int64_t extent) {
    set(i, begin < 0 ? 0 : begin, end > extent ? extent : end);
  }
  bool contains(const Box& b) const {
    for (int i = 0; i < rank(); ++i)
      if (b.first[i] < first[i] || b.end(i) > end(i)) return false;
    return true;
  }
};

inline bool operator<(const Box& a, const Box& b) {
  for (int i = 0; i < a.rank(); ++i) {
    if (a.first[i] != b.first[i]) return a.first[i] < b.first[i];
    if (a.size[i] != b.size[i]) return a.size[i] < b.size[i];
  }
  return false;
}

// The coordinates of the row-major element `index` of an array of extents `dim`, and back.
inline Dims coordinates(std::int64_t index, const Dims& dim) {
  Dims c = Dims::filled(dim.size(), 0);
  for (int i = dim.size() - 1; i >= 0; --i) {
    c[i] = index % dim[i];
    index /= dim[i];
  }
  return c;
}
inline std::int64_t row_major(const Dims& c, const Dims& dim) {
  std::int64_t index = 0;
  for (int i = 0; i < dim.size(); ++i) index = index * dim[i] + c[i];
  return index;
}

// The last axis along which the box has more than one element: in row-major order the elements
// along it follow each other.
inline int run_axis(const Box& box) {
  int axis = box.rank() - 1;
  while (axis > 0 && box.size[axis] == 1) --axis;
  return box.size[axis] == 1 ? box.rank() - 1 : axis;
}

// Visits elements [begin, end) of the box, row-major, as runs along `axis`, which is the last one
// or run_axis(): f(coordinates in the tensor, length of the run, position of its first element from
// `begin`).
template <class F>
void for_runs(const Box& box, int axis, std::int64_t begin, std::int64_t end, F&& f) {
  if (begin >= end) return;
  const int last = axis;
  Dims at = coordinates(begin, box.size);
  for (int i = 0; i < box.rank(); ++i) at[i] += box.first[i];
  for (std::int64_t position = begin; position < end;) {
    const std::int64_t room = box.end(last) - at[last];
    const std::int64_t n = room < end - position ? room : end - position;
    f(static_cast<const Dims&>(at), n, position - begin);
    position += n;
    at[last] = box.first[last];
    for (int i = last - 1; i >= 0; --i) {
      if (++at[i] < box.end(i)) break;
      at[i] = box.first[i];
    }
  }
}

template <class F>
void for_runs(const Box& box, std::int64_t begin, std::int64_t end, F&& f) {
  for_runs(box, box.rank() - 1, begin, end, std::forward<F>(f));
}

// Visits every coordinate of the box, row-major.
template <class F>
void for_each(const Box& box, F&& f) {
  for_runs(box, 0, box.volume(), [&](const Dims& at, std::int64_t n, std::int64_t) {
    Dims c = at;
    for (std::int64_t i = 0; i < n; ++i, ++c.back()) f(static_cast<const Dims&>(c));
  });
}

}  // namespace sinter::reference
