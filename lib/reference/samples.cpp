// Positions are picked axis by axis and combined, so that every axis has its edges among them.
#include "reference/samples.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "reference/box.hpp"

namespace sinter::reference {
namespace {

// Up to n distinct positions on an axis: the ends, then tile edges, then random ones.
std::vector<std::int64_t> pick(std::int64_t extent, std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> all;
  if (extent <= n) {
    for (std::int64_t i = 0; i < extent; ++i) all.push_back(i);
    return all;
  }
  std::set<std::int64_t> chosen;
  const auto take = [&](std::int64_t i, std::int64_t limit) {
    if (i >= 0 && i < extent && static_cast<std::int64_t>(chosen.size()) < limit) chosen.insert(i);
  };
  take(0, n);
  take(extent - 1, n);
  for (const std::int64_t tile : {128, 64, 256, 32, 16, 8})
    for (const std::int64_t edge : {tile, extent / tile * tile}) {
      take(edge - 1, n / 2);
      take(edge, n / 2);
    }
  while (static_cast<std::int64_t>(chosen.size()) < n)
    chosen.insert(
        static_cast<std::int64_t>((seed = mix(seed)) % static_cast<std::uint64_t>(extent)));
  return {chosen.begin(), chosen.end()};
}

// Up to n distinct rows, a row being the axes of `dim`; first and last row are among them.
std::vector<std::int64_t> pick_rows(const Dims& dim, std::int64_t n, std::uint64_t seed) {
  const std::int64_t rows = count(dim);
  if (dim.size() <= 1 || rows <= n) return pick(rows, n, seed);
  std::vector<std::vector<std::int64_t>> axes;
  for (auto extent : dim) axes.push_back(pick(extent, n, seed = mix(seed)));
  std::set<std::int64_t> chosen{0};
  if (n > 1) chosen.insert(rows - 1);
  // Positions are combined at random; a few extra draws make up for repetitions.
  for (std::int64_t i = 0; i < 4 * n && static_cast<std::int64_t>(chosen.size()) < n; ++i) {
    Dims c;
    for (const auto& axis : axes) c.push_back(axis[(seed = mix(seed)) % axis.size()]);
    chosen.insert(row_major(c, dim));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace

std::vector<std::int64_t> sample_elements(const Dims& dim, std::int64_t most, std::uint64_t seed) {
  const std::int64_t n = count(dim);
  std::vector<std::int64_t> elements;
  if (most <= 0 || n <= most) {
    for (std::int64_t i = 0; i < n; ++i) elements.push_back(i);
    return elements;
  }
  Dims outer;
  for (int i = 0; i < dim.size() - 1; ++i) outer.push_back(dim[i]);
  const std::int64_t rows = count(outer), columns = dim.back();
  auto r = std::max<std::int64_t>(std::llround(std::sqrt(static_cast<double>(most))), 1);
  r = std::min(r, rows);
  const std::int64_t c = std::min(std::max<std::int64_t>(most / r, 1), columns);
  r = std::min(std::max<std::int64_t>(most / c, 1), rows);
  const auto chosen_columns = pick(columns, c, mix(seed));
  for (const auto row : pick_rows(outer, r, seed))
    for (const auto column : chosen_columns) elements.push_back(row * columns + column);
  return elements;
}

}  // namespace sinter::reference
