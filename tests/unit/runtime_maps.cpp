// Tensor maps, shared memory and architectures of plans, against the fake driver.
#include <cstring>
#include <utility>
#include <vector>

#include "compile/make_plan.hpp"
#include "plan/plan_data.hpp"
#include "runtime/driver.hpp"
#include "sinter/compile.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/fake_gpu.hpp"
#include "support/fake_machine_code.hpp"
#include "support/temporary_directory.hpp"
#include "target/target.hpp"

using namespace sinter;

namespace {

using Kind = KernelArgument::Kind;

struct alignas(64) Map {
  void* pointer;
  std::uint64_t words[15];
};
struct MapArgs {
  Map x;
  void* y;
  Map workspace;
};
constexpr std::uint64_t kBit21 = std::uint64_t{1} << 21;

PlanTensor tensor(const char* name, std::int64_t elements) {
  PlanTensor t;
  t.name = name;
  t.type = f32;
  t.dim = {elements};
  t.stride = {1};
  t.bytes = 4 * elements;
  t.written = t.name == "y";
  return t;
}

// x: 128 KiB in rows of 256 elements; of the workspace three rows of 8.
PlanData mapped_plan() {
  PlanData d;
  d.tensors = {tensor("x", 32768), tensor("y", 4)};
  d.workspace_bytes = 1024;
  PlanKernel k;
  k.entry = "mapped";
  k.grid = 3;
  k.block = 128;
  k.shared_bytes = 200000;
  k.maps = {{true, 256, {tf32, {8, 3}, {48}, {8, 3}, 32, 64}},
            {false, 0, {f32, {256, 128}, {1024}, {32, 64}, 128, 0}}};
  k.arguments = {{Kind::tensor_map, 1, kTensorMapBytes},
                 {Kind::tensor, 1, 8},
                 {Kind::tensor_map, 0, kTensorMapBytes}};
  k.machine_code["sm_90a"] = fake_machine_code();
  d.kernels = {k};
  return d;
}

Plan map_plan_of(PlanData data) { return Plan(Shared<const PlanData>::make(std::move(data))); }

struct MapFixture {
  MapFixture() {
    fake_gpu().major = 9;
    fake_gpu().minor = 0;
    fake_gpu().launches = 0;
    fake_gpu().argument_bytes = sizeof(MapArgs);
    fake_gpu().shared_allowed = 0;
    fake_gpu().encodings = 0;
  }
  alignas(256) char workspace[1024] = {};
  std::vector<float> memory = std::vector<float>(32768);  // never read, but y may not lie in it
  float* const x = memory.data();
  alignas(16) float y[4] = {};

  Status execute(const Executable& e) {
    return e.execute(nullptr, {{"x", x}, {"y", y}}, {workspace, 1024});
  }
  Diagnostic load_error(PlanData data) {
    const auto e = load(map_plan_of(std::move(data)), Device::gpu(0));
    REQUIRE_FALSE(e);
    return e.error();
  }
};

}  // namespace

TEST_CASE_METHOD(MapFixture, "[child] tensor maps are encoded over the pointers of each call",
                 "[.fake_maps]") {
  const auto e = load(map_plan_of(mapped_plan()), Device::gpu(0));
  REQUIRE(e);
  CHECK(fake_gpu().encodings == 0);
  REQUIRE(execute(*e));
  REQUIRE(fake_gpu().launches == 1);
  CHECK(fake_gpu().encodings == 2);
  MapArgs args;
  std::memcpy(&args, fake_gpu().log[0].arguments, sizeof args);
  CHECK(args.x.pointer == x);
  CHECK(args.y == y);
  CHECK(args.workspace.pointer == workspace + 256 + 64);
  // The fake driver is one of those that set the bit in small maps too.
  CHECK((args.x.words[0] & kBit21) != 0);
  CHECK((args.workspace.words[0] & kBit21) == 0);
  CHECK((args.workspace.words[0] | kBit21) == ~std::uint64_t{0});
  CHECK(args.workspace.words[14] == ~std::uint64_t{0});

  const FakeEncoding& last = fake_gpu().encoding;
  CHECK(last.type == 11);  // TFLOAT32
  CHECK(last.rank == 2);
  CHECK((last.dim[0] == 8 && last.dim[1] == 3));
  CHECK(last.stride[0] == 48);
  CHECK((last.box[0] == 8 && last.box[1] == 3));
  CHECK((last.element_steps[0] == 1 && last.element_steps[1] == 1));
  CHECK(last.swizzle == 1);    // 32 bytes
  CHECK(last.promotion == 2);  // 128 bytes
  CHECK((last.interleave == 0 && last.fill == 0));

  std::vector<float> other(32768);
  REQUIRE(e->execute(nullptr, {{"x", other.data()}, {"y", y}}, {workspace, 1024}));
  std::memcpy(&args, fake_gpu().log[1].arguments, sizeof args);
  CHECK(args.x.pointer == other.data());
}

TEST_CASE_METHOD(
    MapFixture,
    "[child] elements are moved as unsigned integers of their size, f32 as what TMA adds",
    "[.fake_maps]") {
  for (const auto& [type, tag] : {std::pair{i8, 0}, {bf16, 1}, {f32, 7}, {f64, 4}}) {
    PlanData d = mapped_plan();
    d.kernels[0].maps[0].map = {type, {16}, {}, {16}, 0, 0};
    const auto e = load(map_plan_of(std::move(d)), Device::gpu(0));
    REQUIRE(e);
    REQUIRE(execute(*e));
    CHECK(fake_gpu().encoding.type == tag);
    CHECK(fake_gpu().encoding.rank == 1);
    CHECK(fake_gpu().encoding.swizzle == 0);
  }
}

TEST_CASE_METHOD(MapFixture, "[child] a map that cannot be encoded is named with its tensor",
                 "[.fake_maps]") {
  const auto e = load(map_plan_of(mapped_plan()), Device::gpu(0));
  REQUIRE(e);
  Failing fail("cuTensorMapEncodeTiled", 1);
  const auto status = execute(*e);
  REQUIRE_FALSE(status);
  CHECK(status.error().rule == Rule::device_error);
  CHECK(status.error().tensor == "x");
  CHECK(status.error().message().find("kernel mapped") != std::string::npos);
  CHECK(fake_gpu().launches == 0);
}

TEST_CASE_METHOD(MapFixture, "[child] a driver without tensor maps refuses plans that need them",
                 "[.fake_maps]") {
  auto& encode = const_cast<Driver*>(driver().value())->tensor_map_encode_tiled;
  const auto kept = std::exchange(encode, nullptr);
  const Diagnostic d = load_error(mapped_plan());
  CHECK(d.rule == Rule::device_error);
  CHECK(d.seen.find("has no cuTensorMapEncodeTiled") != std::string::npos);
  encode = kept;
}

TEST_CASE_METHOD(MapFixture, "[child] dynamic shared memory is allowed at load and given at launch",
                 "[.fake_maps]") {
  PlanData d = mapped_plan();
  d.kernels.push_back(d.kernels[0]);  // shares the function
  d.kernels[1].shared_bytes = 1000;
  const auto e = load(map_plan_of(d), Device::gpu(0));
  REQUIRE(e);
  CHECK(fake_gpu().shared_allowed == 200000);
  REQUIRE(execute(*e));
  CHECK(fake_gpu().log[0].shared_bytes == 200000);
  CHECK(fake_gpu().log[1].shared_bytes == 1000);
  {
    Failing fail("cuFuncSetAttribute", 1);
    const Diagnostic error = load_error(d);
    CHECK(error.rule == Rule::device_error);
    CHECK(error.message().find("kernel mapped, 200000 bytes") != std::string::npos);
  }
  for (auto& k : d.kernels) k.shared_bytes = 0;
  fake_gpu().shared_allowed = -1;
  REQUIRE(load(map_plan_of(d), Device::gpu(0)));
  CHECK(fake_gpu().shared_allowed == -1);
}

TEST_CASE_METHOD(MapFixture, "[child] a plan for another architecture is refused", "[.fake_maps]") {
  PlanData d = mapped_plan();
  for (const char* fits : {"", "sm_80", "sm_90", "sm_90a"}) {
    d.architecture = fits;
    CHECK(load(map_plan_of(d), Device::gpu(0)));
  }
  for (const char* other : {"sm_100", "sm_100a", "sm_90f", "sm_80a", "anything"}) {
    d.architecture = other;
    const Diagnostic error = load_error(d);
    CHECK(error.rule == Rule::plan_target);
    CHECK(error.attribute == "the plan for " + std::string(other));
    CHECK(error.seen == "a device of target sm_90a");
    CHECK(error.fix == "plan the graph again for sm_90a");
  }
}

TEST_CASE_METHOD(MapFixture, "[child] compile() plans for the device's own engines",
                 "[.fake_maps]") {
  const auto compiled = [](Device device, PlanOptions options = {}) {
    Graph g;
    g.output(exp(g.tensor({.name = "x", .dim = {4}})), "y");
    return compile(g, device, std::move(options));
  };
  fake_gpu().argument_bytes = 0;
  const auto e = compiled(Device::gpu(0));
  if (e)
    CHECK(e->plan().data().architecture == "sm_90a");
  else
    CHECK(e.error().rule == Rule::compiler_missing);
  if (const auto plain = compiled(Device::gpu(0), {.architecture = "sm_80"}))
    CHECK(plain->plan().data().architecture == "sm_80");
  CHECK(compiled(Device::gpu(0), {.architecture = "sm_100a"}).error().rule == Rule::plan_target);
  CHECK(compiled(Device::cpu()).value().plan().data().architecture.empty());
}

TEST_CASE("plans with tensor maps and shared memory run against a driver without a GPU") {
  TemporaryDirectory parent;
  const auto run = run_hidden_cases(
      "fake_maps", {{"SINTER_DRIVER", fake_driver_path()}, {"SINTER_CACHE_DIR", parent / "cache"}});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("an architecture must be a target, and machine code one that it fits") {
  Graph g;
  g.output(exp(g.tensor({.name = "x", .dim = {4}})), "y");
  for (const char* bad : {"sm_9", "sm_90b", "compute_90", "sm_90a --help"}) {
    const auto plan = Plan::make(g, {.architecture = bad});
    REQUIRE_FALSE(plan);
    CHECK(plan.error().rule == Rule::plan_target);
    CHECK(plan.error().allowed == kTargetExamples);
  }
  CHECK(Plan::make(g, {.architecture = "sm90a"}).error().fix == "did you mean 'sm_90a'");
  const auto old = Plan::make(g, {.architecture = "sm_75"});
  REQUIRE_FALSE(old);
  CHECK(old.error().allowed == "sm_80 and later");
  const auto plan = Plan::make(g, {.architecture = "sm_90a"});
  REQUIRE(plan);
  CHECK(plan->data().architecture == "sm_90a");
  CHECK(Plan::make(g).value().data().architecture.empty());
  // One target alone is the architecture, before anything is compiled.
  CHECK(with_architecture({.targets = {"sm_90a"}}).architecture == "sm_90a");
  CHECK(with_architecture({.targets = {"sm_80", "sm_90a"}}).architecture.empty());
  CHECK(with_architecture({.targets = {"sm_90a"}, .architecture = "sm_80"}).architecture ==
        "sm_80");
  CHECK(Plan::make(g, {.targets = {"sm_90b"}}).error().rule == Rule::plan_target);
  const auto other = plan->with_targets({"sm_90a", "sm_100a"});
  REQUIRE_FALSE(other);
  CHECK(other.error().rule == Rule::plan_target);
  CHECK(other.error().seen == "target sm_100a");
  CHECK(Plan::make(g, {.targets = {"sm_80"}, .architecture = "sm_90"}).error().rule ==
        Rule::plan_target);
}

TEST_CASE("code without a letter runs on later targets, other code on its own") {
  CHECK(target_fits("", "sm_80"));
  CHECK(target_fits("sm_80", "sm_86"));
  CHECK(target_fits("sm_80", "sm_120a"));
  CHECK(target_fits("sm_90", "sm_90a"));
  CHECK(target_fits("sm_90a", "sm_90a"));
  CHECK_FALSE(target_fits("sm_90a", "sm_90"));
  CHECK_FALSE(target_fits("sm_90a", "sm_100a"));
  CHECK_FALSE(target_fits("sm_100", "sm_90a"));
  CHECK_FALSE(target_fits("sm_86", "sm_80"));
  for (const char* target : {"sm_90", "sm_90a", "sm_103f", "sm_120a"})
    CHECK(has_dependent_launch(target));
  for (const char* target : {"sm_80", "sm_89", ""}) CHECK_FALSE(has_dependent_launch(target));
}
