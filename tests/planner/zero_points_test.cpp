// Products of quantised operands less their zero points, and which graphs no pass changes.
#include "planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "sinter/operations.hpp"

namespace sinter {
namespace {

struct Case {
  std::int64_t k = 0;
  double zero_of_a = 0;                   // a number
  DataType type_of_zeros = DataType::i8;  // of b's columns
  bool behind = false;
  std::int64_t rows = 5;
};

void check(const Case& c) {
  INFO(c.k << " " << c.zero_of_a << " " << static_cast<int>(c.type_of_zeros));
  Graph g{{.io = f16, .intermediate = i32, .compute = i32}};
  const auto input = [&](const char* name, Dims dim, DataType type) {
    return g.tensor({.name = name, .dim = dim, .data_type = type});
  };
  const Tensor a = input("a", {2, c.rows, c.k}, u8) - g.scalar(c.zero_of_a, i32),
               b = input("b", {1, c.k, 6}, i8) - input("zeros", {1, 1, 6}, c.type_of_zeros);
  g.output(matmul(a, b), "y", {.data_type = i32});
  REQUIRE(g.check().empty());
  const Lowered l = rewritten(lower(g), device_model("sm_90a"));
  REQUIRE(l.wrong_rewrite.empty());
  CHECK((partition(*l.graph, true, "sm_90a", l.regions).kernels.size() > 1) == c.behind);
}

}  // namespace

TEST_CASE("zero points go behind a product where no sum leaves i32 and there are enough terms") {
  check({.k = 128, .zero_of_a = 128, .behind = true});  // sums of either operand, and the product
  check({.k = 200, .zero_of_a = -7, .behind = true});
  check({.k = 127, .zero_of_a = 128});
  check({.k = 200, .zero_of_a = -7, .rows = 1});  // a sum along rows
  // 21,902 times 383 times 256 is the last that i32 holds.
  check({.k = 21902, .zero_of_a = 128, .behind = true});
  check({.k = 21903, .zero_of_a = 128});
  check({.k = 128, .zero_of_a = 256});                      // no zero point of 8 bits
  check({.k = 128, .zero_of_a = 3, .type_of_zeros = i32});  // which may be anything
}

TEST_CASE("a graph in which no pass finds anything is left as it is") {
  Graph g;
  g.output(relu(g.tensor({.name = "x", .dim = {4, 8}})), "y");
  REQUIRE(g.check().empty());
  const Lowered l = lower(g);
  for (const PassGroup& group : rewrite_passes())
    CHECK_FALSE(run_passes(l, group, device_model("sm_90a")));
}

}  // namespace sinter
