// Batches of matmuls: which are rows or columns of one product, and which stay apart.
#include <algorithm>
#include <limits>

#include "compile/make_plan.hpp"
#include "plan/access.hpp"
#include "planner/planned.hpp"
#include "sinter/operations.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

const std::vector kAlone{Family::contraction};

// The rows and columns of one product, and how many products the kernel computes.
struct Layout {
  std::int64_t products, rows, columns;
  bool operator==(const Layout&) const = default;
};
Layout shape_of(const KernelSpec& s) {
  const int m = s.contraction().batch, n = m + s.contraction().m;
  return {count(s.extent, 0, m), count(s.extent, m, n), count(s.extent, n, n + s.contraction().n)};
}

}  // namespace

TEST_CASE("batches that share an operand are rows of one product, or its columns") {
  struct Case {
    Dims a, b;
    std::vector<Dims> side_inputs;
    Layout shape;
    Dims a_stride{}, c_stride{};
  };
  for (const Case& c : {
           Case{{16, 1, 64}, {1, 64, 96}, {}, {1, 16, 96}},
           Case{{16, 4, 64}, {1, 64, 96}, {}, {1, 64, 96}},
           Case{{3, 7, 5, 64}, {64, 96}, {{1, 96}, {3, 7, 5, 96}}, {1, 105, 96}},
           Case{{3, 7, 5, 64}, {3, 1, 64, 96}, {}, {3, 35, 96}},
           // Queries of grouped heads: batch, head of K, heads that share it.
           Case{{2, 12, 1, 64}, {2, 3, 64, 96}, {}, {6, 4, 96}},
           // Rows of one number are adjacent: the batch is the inner part of the index.
           Case{{16, 4, 64}, {1, 64, 96}, {}, {1, 64, 96}, {64, 1024, 1}, {96, 1536, 1}},
           // What tells batches from rows keeps them apart, but for one row.
           Case{{16, 4, 64}, {1, 64, 96}, {}, {16, 4, 96}, {64, 1024, 1}},
           Case{{16, 4, 64}, {1, 64, 96}, {}, {16, 4, 96}, {320, 64, 1}},
           Case{{16, 4, 64}, {1, 64, 96}, {{16, 1, 96}}, {16, 4, 96}},
           Case{{16, 4, 64}, {1, 64, 96}, {{1, 4, 96}}, {16, 4, 96}},
           Case{{16, 4, 64}, {1, 64, 96}, {{16, 4, 1}}, {1, 64, 96}},
           Case{{16, 1, 64}, {1, 64, 96}, {{16, 1, 1}, {1, 1, 96}}, {1, 16, 96}},
           Case{{16, 4, 64}, {16, 64, 96}, {}, {16, 4, 96}},
           Case{{1, 40, 64}, {16, 64, 1}, {}, {1, 40, 16}},
           Case{{1, 40, 64}, {16, 64, 8}, {}, {1, 40, 128}, {}, {8, 128, 1}},
           Case{{1, 40, 64}, {16, 64, 8}, {}, {16, 40, 8}},
       }) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    Dims b_stride = packed_strides(c.b);  // columns of B lie one behind another
    const int rank = c.b.size();
    b_stride[rank - 2] = 1;
    b_stride[rank - 1] = c.b[rank - 2];
    auto y = matmul(g->tensor({.name = "a", .dim = c.a, .stride = c.a_stride}),
                    g->tensor({.name = "b", .dim = c.b, .stride = b_stride}));
    for (const Dims& dim : c.side_inputs) y = y + g->tensor({.dim = dim});
    g->output(y, "y", {.stride = c.c_stride});
    for (const char* architecture : {"sm_90a", ""}) {
      const auto p = partition(*lower(*g).graph, true, architecture);
      INFO(to_string(c.a) << " times " << to_string(c.b));
      REQUIRE(families(p) == kAlone);
      CHECK(shape_of(p.kernels[0]) == c.shape);
    }
    check_values(*g);
  }
}

TEST_CASE("totals of each batch keep batches apart, those of all rows do not") {
  for (const auto& [total, shape] : {std::pair{Dims{1, 1, 96}, Layout{1, 64, 96}},
                                     {Dims{16, 4, 1}, Layout{1, 64, 96}},
                                     {Dims{16, 1, 96}, Layout{16, 4, 96}}}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto y = matmul(g->tensor({.name = "a", .dim = {16, 4, 64}}),
                          g->tensor({.name = "b", .dim = {1, 64, 96}}));
    g->output(reduction(y, ReductionMode::add, total), "total", {.data_type = f32});
    g->output(y, "y");
    const auto p = for_sm_90a(*g);
    REQUIRE(p.kernels[0].cross_row_reductions.size() == 1);
    CHECK(shape_of(p.kernels[0]) == shape);
    check_values(*g);
  }
}

TEST_CASE("a gated pair with one row in each of many batches is one kernel") {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto x = g->tensor({.name = "x", .dim = {16, 1, 64}}),
             gate = g->tensor({.name = "gate", .dim = {1, 64, 96}}),
             up = g->tensor({.name = "up", .dim = {1, 64, 96}});
  g->output(swish(matmul(x, gate)) * matmul(x, up), "y");
  const auto p = for_sm_90a(*g);
  REQUIRE(families(p) == kAlone);
  CHECK(p.kernels[0].contraction().paired());
  CHECK(shape_of(p.kernels[0]) == Layout{1, 16, 96});
  check_values(*g);
}

TEST_CASE("indices that are values keep batches apart from rows") {
  for (const std::int64_t rows : {1, 4}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto y = matmul(g->tensor({.name = "a", .dim = {16, rows, 64}}),
                          g->tensor({.name = "b", .dim = {1, 64, 96}}));
    g->output(y + gen_index(y, 0), "y");
    const auto p = for_sm_90a(*g);
    REQUIRE(families(p) == kAlone);
    CHECK(shape_of(p.kernels[0]) == (rows == 1 ? Layout{1, 16, 96} : Layout{16, 4, 96}));
    check_values(*g);
  }
}

TEST_CASE("many products of tiny matrices are sums for each element") {
  const auto family = [](std::int64_t batches, std::int64_t n, std::int64_t k) {
    const auto g = Shared<Graph>::make(GraphOptions{.io = f32});
    const auto a = g->tensor({.name = "a", .dim = {batches, 4, k}}),
               b = g->tensor({.name = "b", .dim = {batches, k, n}});
    g->output(relu(matmul(a, b) + 1.0), "y");
    if (batches < 2000) check_values(*g);
    const auto of = families(for_sm_90a(*g));
    return of.size() == 1 ? of[0] : Family::pointwise;
  };
  CHECK(family(1030, 4, 4) == Family::rowwise);
  CHECK(family(1025, 16, 32) == Family::rowwise);
  CHECK(family(100000, 4, 40) == Family::contraction);
  CHECK(family(100000, 20, 4) == Family::contraction);
  CHECK(family(1000, 4, 4) == Family::contraction);
}

TEST_CASE("a domain of more than 64 bits has the largest number of elements") {
  constexpr std::int64_t large = std::int64_t{1} << 40;
  CHECK(count({large, 3, 5}, 1, 3) == 15);
  CHECK(count({large, large, 3}, 0, 3) == std::numeric_limits<std::int64_t>::max());
  CHECK(count({large, large, large, large}, 0, 4) == std::numeric_limits<std::int64_t>::max());
  CHECK(count({large, large, 0}, 0, 3) == 0);
}
