// Chained products: f(A B) C in one kernel of the tensor cores that take warpgroups.
#include "planned.hpp"
#include "planner/kernel_work.hpp"
#include "planner/planner.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"

namespace sinter {
namespace {

struct Shape {
  std::int64_t m = 64, k = 128, p = 128, n = 128;
};

// How many kernels f(A B) C takes; `f` makes the left operand of the second product.
template <class F>
std::size_t kernels_of(const Shape& s, std::string_view target, const F& f) {
  Graph g{{.io = DataType::bf16}};
  const auto a = g.tensor({.name = "a", .dim = {1, s.m, s.k}}),
             b = g.tensor({.name = "b", .dim = {1, s.k, s.p}}),
             c = g.tensor({.name = "c", .dim = {1, s.p, s.n}});
  g.output(matmul(f(g, matmul(a, b)), c), "y");
  return partition(*lower(g).graph, true, target).kernels.size();
}

const auto kRelu = [](Graph&, const Tensor& x) { return relu(x); };

}  // namespace

TEST_CASE("a product of another's results is one kernel where wgmma keeps them in registers") {
  CHECK(kernels_of({}, "sm_90a", kRelu) == 1);
  CHECK(kernels_of({}, "", kRelu) == 2);
  CHECK(kernels_of({}, "sm_90a", [](Graph&, const Tensor& x) { return x; }) == 1);
  CHECK(kernels_of({.m = 200, .k = 72, .p = 104, .n = 40}, "sm_90a", kRelu) == 1);
}

TEST_CASE("chains that registers do not hold, or that are faster apart, are two kernels") {
  CHECK(kernels_of({.p = 256}, "sm_90a", kRelu) == 2);
  CHECK(kernels_of({.n = 136}, "sm_90a", kRelu) == 2);
  CHECK(kernels_of({.m = 1 << 16}, "sm_90a", kRelu) == 2);
  CHECK(kernels_of({.k = 2048}, "sm_90a", kRelu) == 2);
  // A bias would be waited for once an element.
  CHECK(kernels_of({}, "sm_90a", [](Graph& g, const Tensor& x) {
          return x + g.tensor({.name = "bias", .dim = {1, 1, 128}});
        }) == 2);
  // Somebody else reads what lies between.
  CHECK(kernels_of({}, "sm_90a", [](Graph& g, const Tensor& x) {
          const Tensor y = relu(x);
          g.output(y, "between");
          return y;
        }) == 2);
}

TEST_CASE("a chain's spec has both products, and the second one's left operand is the first") {
  Graph g{{.io = DataType::bf16}};
  const auto a = g.tensor({.name = "a", .dim = {1, 64, 128}}),
             b = g.tensor({.name = "b", .dim = {1, 128, 96}}),
             c = g.tensor({.name = "c", .dim = {1, 96, 80}});
  g.output(relu(matmul(relu(matmul(a, b)), c)), "y");
  const auto p = partition(*lower(g).graph, true, "sm_90a");
  REQUIRE(p.kernels.size() == 1);
  const ContractionSpec& s = p.kernels[0].contraction();
  CHECK(s.chained());
  CHECK_FALSE(s.paired());
  CHECK(p.kernels[0].extent == Dims{1, 64, 80, 96, 128});
  CHECK(s.chained_k == 1);
  const ScheduledKernel kernel = schedule_kernel(p.kernels[0], device_model("sm_90a"), {});
  REQUIRE(kernel.chained());
  CHECK(kernel.chained()->middle == 128);
  CHECK(kernel.chained()->columns == 128);
  CHECK(operations(p.kernels[0]) == 2.0 * 64 * 96 * (128 + 80));
}

}  // namespace sinter
