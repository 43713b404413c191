// Tiles of permutations.
#include "planner/planned.hpp"
#include "schedule/pointwise/pointwise.hpp"
#include "sinter/operations.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

Tiling tiling_of(const Dims& dim, const Dims& order) {
  Graph g{{.io = bf16}};
  g.output(transpose(g.tensor({.name = "x", .dim = dim}), order), "y");
  const Partition p = for_sm_90a(g);
  REQUIRE(p.kernels.size() == 1);
  return schedule_pointwise(p.kernels[0], device_model("sm_90a")).tiling;
}

}  // namespace

// 77 by 65: in tiles of 64 x 36 three in four would be nearly empty.
TEST_CASE("rows that start anywhere and are hardly longer than a tile take one") {
  const Tiling t = tiling_of({31, 77, 129, 65}, {0, 3, 2, 1});
  REQUIRE(t.on);
  CHECK(t.aligned_by >= 0);
  CHECK(t.tiles == 31 * 129);
  CHECK(t.tile_along >= 77 + 7);
  CHECK(t.tile_across >= 65);
  const Tiling longer = tiling_of({5001, 7003}, {1, 0});
  CHECK(longer.tile_along == 64);
  CHECK(longer.tile_across == 64);
}

// Read line by line, and written where several of the few neighbours are contiguous.
TEST_CASE("few neighbours that are read far apart take tiles") {
  const Tiling t = tiling_of({9, 33, 65, 17, 117}, {4, 3, 2, 1, 0});
  REQUIRE(t.on);
  CHECK(t.tile_along == 9);
  CHECK(t.tile_across == 59);  // half of the line
  CHECK(t.through == 3);       // 33, behind them in the result
  CHECK(t.tile_through > 4);
}
