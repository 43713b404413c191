// Which kernels' blocks begin at the end of memory.
#include "planner/passes/block_order.hpp"

#include "emit/emit.hpp"
#include "planner/moved.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/operations.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

// A batch norm of an image, channels last: parts of the channels' statistics, these, the image.
void normalise(Graph& g, const Tensor& x, const Dims& dim) {
  const Dims last{dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]};
  const auto s = g.tensor({.name = "s", .dim = {1, dim[1], 1, 1}, .data_type = f32});
  g.output(relu(batchnorm(x, s, s, 1e-5).y), "y", {.stride = last});
}

Tensor image(Graph& g, const Dims& dim) {
  return g.tensor(
      {.name = "x", .dim = dim, .stride = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]}});
}

std::vector<bool> from_end(const std::vector<KernelSpec>& kernels) {
  std::vector<bool> result;
  for (const KernelSpec& spec : kernels) result.push_back(spec.from_end);
  return result;
}

}  // namespace

TEST_CASE("a kernel that reads more than the cache holds begins where the one before it ended") {
  const Dims large{32, 128, 96, 96};  // 75 MB
  {
    Graph g{{.io = bf16}};
    normalise(g, image(g, large), large);
    CHECK(from_end(kernels(g)) == std::vector{false, false, true});
  }
  {  // the statistics begin where the product has written last, the image where they have read last
    Graph g{{.io = bf16}};
    const auto w = g.tensor({.name = "w", .dim = {128, 128, 1, 1}, .stride = {128, 1, 128, 128}});
    const Tensor x = conv_fprop(image(g, large), w);
    g.output(x, "sums", {.stride = {128 * 96 * 96, 1, 128 * 96, 128}});
    normalise(g, x, large);
    CHECK(from_end(kernels(g)) == std::vector{false, true, false, false});
  }
  {  // all of it is in the cache, wherever they begin
    const Dims small{8, 128, 32, 32};
    Graph g{{.io = bf16}};
    normalise(g, image(g, small), small);
    for (const bool end : from_end(kernels(g))) CHECK_FALSE(end);
  }
}

TEST_CASE("blocks begin at the end in plans of fixed extents alone, and say so in their text") {
  const Dims large{32, 128, 96, 96};
  Graph g{{.io = bf16}};
  normalise(g, image(g, large), large);
  std::vector<KernelSpec> found = kernels(g);
  const auto text = [&](std::size_t i) {
    return emit_kernel(schedule_kernel(found[i], device_model("sm_90a"), {}), "").source;
  };
  CHECK(text(0).find("from_end") == std::string::npos);
  CHECK(text(2).find("static constexpr bool from_end = true;") != std::string::npos);
  const Lowered lowered = rewritten(lower(g), device_model());
  for (KernelSpec& spec : found) spec.from_end = false;
  PlanContext context{device_model("sm_90a"), {}};
  context.of_class = true;
  order_blocks(found, *lowered.graph, context);
  for (const bool end : from_end(found)) CHECK_FALSE(end);
}
