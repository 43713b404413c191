// Products whose k ends in the first stage: boxes have what multiplications read of it.
#include "planner/planned.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/scheduled.hpp"
#include "target/device_model.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

KernelSpec product(std::int64_t k, bool columns_fastest = false, DataType type = bf16) {
  Graph g{{.io = type, .intermediate = f32}};
  const Dims step = columns_fastest ? Dims{4096, 1} : Dims{1, k};
  const auto a = g.tensor({.name = "a", .dim = {4096, k}}),
             b = g.tensor({.name = "b", .dim = {k, 4096}, .stride = step});
  g.output(matmul(a, b), "y", {.data_type = DataType::bf16});
  const auto found = for_sm_90a(g).kernels;
  REQUIRE(found.size() == 1);
  return found[0];
}

WgmmaConfig engine(const KernelSpec& spec) {
  const ScheduledKernel kernel = scheduled(spec, "sm_90a");
  REQUIRE(kernel.wgmma());
  return *kernel.wgmma();
}

}  // namespace

TEST_CASE("boxes of a short k have whole multiplications of it") {
  for (const auto& [k, loaded] : {std::pair{8, 16}, {24, 32}, {40, 48}, {48, 48}}) {
    INFO("k " << k);
    const WgmmaConfig e = engine(product(k)), columns = engine(product(k, true));
    CHECK((e.loaded_depth == loaded && columns.loaded_depth == loaded));
    CHECK((e.a.map.box[0] == loaded && e.b.map.box[0] == loaded));
    const BoxedOperand& b = columns.b.k_fastest ? columns.a : columns.b;
    CHECK((!b.k_fastest && b.map.box[0] == 64 && b.map.box[1] == loaded));
  }
  for (const int k : {56, 64, 72}) {  // a whole line, and more
    const WgmmaConfig e = engine(product(k));
    CHECK((e.loaded_depth == 0 && e.a.map.box[0] == 64));
  }
  CHECK(engine(product(48, false, DataType::f8e4m3)).loaded_depth == 64);
}

TEST_CASE("a short k's boxes are another plan's where they bring all of its k") {
  const DeviceModel device = device_model("sm_90a");
  const WgmmaConfig decided = engine(product(24));
  const auto shorter = schedule_as(decided, product(16), device);
  REQUIRE(shorter);
  CHECK(shorter->engine.a.map.box[0] == 32);
  CHECK_FALSE(schedule_as(decided, product(40), device));
}
