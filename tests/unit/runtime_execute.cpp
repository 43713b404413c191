// Loading and launching against the fake driver: what is launched, with which bytes, and what is
// refused before anything is launched.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "plan/plan_data.hpp"
#include "runtime/driver.hpp"
#include "sinter/compile.hpp"
#include "support/catch.hpp"
#include "support/fake_gpu.hpp"
#include "support/fake_machine_code.hpp"
#include "support/temporary_directory.hpp"
#include "target/device_model.hpp"

using namespace sinter;

namespace {

using Kind = KernelArgument::Kind;

struct Args {
  void* x;
  void* workspace;
  float scale;
  void* y;
};

PlanKernel kernel(std::string entry) {
  PlanKernel k;
  k.entry = std::move(entry);
  k.source = "extern \"C\" __global__ void " + k.entry + "() {}";
  k.grid = 70000;
  k.block = 256;
  const float scale = 2.5F;
  std::int64_t bits = 0;
  std::memcpy(&bits, &scale, sizeof scale);
  k.arguments = {{Kind::tensor, 0, 8},
                 {Kind::workspace, 256, 8},
                 {Kind::scalar, bits, 4},
                 {Kind::tensor, 1, 8}};
  k.machine_code["sm_90a"] = fake_machine_code();
  return k;
}

PlanData two_kernels() {
  PlanData d;
  for (const char* name : {"x", "y"}) {
    PlanTensor t;
    t.name = name;
    t.type = f32;
    t.dim = {4};
    t.stride = {1};
    t.bytes = 16;
    t.written = t.name == "y";
    d.tensors.push_back(t);
  }
  d.workspace_bytes = 1024;
  d.kernels = {kernel("first"), kernel("second")};
  return d;
}

Plan plan_of(PlanData data) { return Plan(Shared<const PlanData>::make(std::move(data))); }

struct Fixture {
  Fixture() {
    fake_gpu().major = 9;
    fake_gpu().minor = 0;
    fake_gpu().launches = 0;
    fake_gpu().argument_bytes = sizeof(Args);
    fake_gpu().max_threads = 1024;
  }
  alignas(256) char workspace[1024] = {};
  float x[4] = {}, y[4] = {};
  int stream_object = 0;
  Stream stream = &stream_object;

  // Of two_kernels(), bound to x, y and the workspace.
  void check_arguments(const FakeLaunch& launch) {
    Args args;
    std::memcpy(&args, launch.arguments, sizeof args);
    CHECK(args.x == x);
    CHECK(args.workspace == workspace + 256);
    CHECK(args.scale == 2.5F);
    CHECK(args.y == y);
  }
  Diagnostic load_error(PlanData data) {
    const auto e = load(plan_of(std::move(data)), Device::gpu(0));
    REQUIRE_FALSE(e);
    return e.error();
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "[child] execute launches each kernel with its argument struct",
                 "[.fake_gpu]") {
  const auto e = load(plan_of(two_kernels()), Device::gpu(1));
  REQUIRE(e);
  CHECK(e->workspace_bytes() == 1024);
  CHECK(e->device() == Device::gpu(1));
  const int depth = fake_gpu().context_depth;
  REQUIRE(e->execute(stream, {{"y", y}, {"x", x}}, {workspace, 1024}));
  CHECK(fake_gpu().context_depth == depth);
  REQUIRE(fake_gpu().launches == 2);
  CHECK(std::string(fake_gpu().log[0].function) == "first");
  for (int i = 0; i < 2; ++i) {
    const FakeLaunch& launch = fake_gpu().log[i];
    CHECK(launch.grid == 70000);
    CHECK(launch.block == 256);
    CHECK(launch.shared_bytes == 0);
    CHECK(launch.stream == stream);
    ContextScope scope;
    REQUIRE(scope.enter(1));
    CHECK(launch.context == scope.context());
    check_arguments(launch);
  }
}

TEST_CASE_METHOD(Fixture, "[child] kernels that take turns overlap where device and driver can",
                 "[.fake_gpu]") {
  PlanData d = two_kernels();
  d.kernels[1].grid_dependency_wait = true;
  d.kernels[1].shared_bytes = 4096;
  for (auto& k : d.kernels) k.machine_code["sm_89"] = fake_machine_code();
  const auto second_overlaps = [&] {
    fake_gpu().launches = 0;
    const auto e = load(plan_of(d), Device::gpu(0));
    REQUIRE(e);
    REQUIRE(e->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024}));
    REQUIRE(fake_gpu().launches == 2);
    CHECK_FALSE(fake_gpu().log[0].overlaps);
    const FakeLaunch& second = fake_gpu().log[1];
    CHECK(std::string(second.function) == "second");
    CHECK(second.grid == 70000);
    CHECK(second.block == 256);
    CHECK(second.shared_bytes == 4096);
    CHECK(second.stream == stream);
    return second.overlaps;
  };
  CHECK(second_overlaps());
  {
    Failing fail("cuLaunchKernelEx", CUDA_ERROR_OUT_OF_MEMORY);
    const auto e = load(plan_of(d), Device::gpu(0));
    const auto status = e->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024});
    REQUIRE_FALSE(status);
    CHECK(status.error().message().find("kernel second") != std::string::npos);
  }
  fake_gpu().major = 8, fake_gpu().minor = 9;
  CHECK_FALSE(second_overlaps());
  fake_gpu().major = 9, fake_gpu().minor = 0;
  auto& launch_ex = const_cast<Driver*>(driver().value())->launch_kernel_ex;
  const auto kept = std::exchange(launch_ex, nullptr);
  CHECK_FALSE(second_overlaps());
  launch_ex = kept;
}

TEST_CASE_METHOD(Fixture,
                 "[child] a bound executable launches the same, and outlives what it is of",
                 "[.fake_gpu]") {
  auto e = load(plan_of(two_kernels()), Device::gpu(0));
  REQUIRE(e);
  CHECK(e->bind({{"x", x}}, {workspace, 1024}).error().rule == Rule::binding_missing);
  CHECK(e->bind({{"x", x}, {"y", y}}).error().rule == Rule::workspace_size);
  const auto bound = e->bind({{"y", y}, {"x", x}}, {workspace, 1024});
  REQUIRE(bound);
  CHECK(fake_gpu().launches == 0);
  REQUIRE(e->execute(stream, {{"y", y}, {"x", x}}, {workspace, 1024}));
  e = Diagnostic{};
  for (int call = 1; call <= 2; ++call) {
    REQUIRE(bound->execute(stream));
    REQUIRE(fake_gpu().launches == 2 + 2 * call);
  }
  for (int i = 2; i < 6; ++i) {
    const FakeLaunch &launch = fake_gpu().log[i], &first = fake_gpu().log[i % 2];
    CHECK(std::string(launch.function) == first.function);
    CHECK(launch.grid == first.grid);
    CHECK(launch.stream == stream);
    check_arguments(launch);
  }
}

TEST_CASE_METHOD(Fixture, "[child] nothing is launched when a binding or the workspace is wrong",
                 "[.fake_gpu]") {
  const auto e = load(plan_of(two_kernels()), Device::gpu(0));
  REQUIRE(e);
  const Workspace w{workspace, 1024};
  char* odd = reinterpret_cast<char*>(x) + 1;
  const auto rule = [](const Status& s) { return s ? Rule::last_ : s.error().rule; };
  CHECK(rule(e->execute(stream, {{"x", x}}, w)) == Rule::binding_missing);
  CHECK(rule(e->execute(stream, {{"x", x}, {"y", y}, {"z", y}}, w)) == Rule::binding_unknown);
  CHECK(rule(e->execute(stream, {{"x", x}, {"x", x}, {"y", y}}, w)) == Rule::binding_repeated);
  CHECK(rule(e->execute(stream, {{"x", static_cast<void*>(nullptr)}, {"y", y}}, w)) ==
        Rule::binding_null);
  CHECK(rule(e->execute(stream, {{"x", odd}, {"y", y}}, w)) == Rule::binding_alignment);
  CHECK(rule(e->execute(stream, {{"x", x}, {"y", y}})) == Rule::workspace_size);
  CHECK(rule(e->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1023})) == Rule::workspace_size);
  CHECK(rule(e->execute(stream, {{"x", x}, {"y", y}}, {workspace + 8, 1024})) ==
        Rule::workspace_alignment);
  CHECK(rule(e->execute(stream, {{"x", x}, {"y", y}}, {nullptr, 1024})) == Rule::workspace_null);
  CHECK(rule(e->execute(stream, {{"x", workspace}, {"y", y}}, w)) == Rule::workspace_overlap);
  CHECK(rule(e->execute(stream, {{"x", x}, {"y", x}}, w)) == Rule::binding_overlap);
  CHECK(fake_gpu().launches == 0);
  CHECK(rule(e->execute(stream, {{"x", x}, {"y", y}}, w)) == Rule::last_);
  CHECK(fake_gpu().launches == 2);
}

TEST_CASE_METHOD(Fixture, "[child] a plan without kernels, and an empty grid, launch nothing",
                 "[.fake_gpu]") {
  PlanData none = two_kernels();
  none.kernels.clear();
  const auto nothing = load(plan_of(none), Device::gpu(0));
  REQUIRE(nothing);
  CHECK(nothing->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024}));
  CHECK(fake_gpu().launches == 0);
  PlanData empty = two_kernels();
  empty.kernels[0].grid = 0;
  const auto one = load(plan_of(empty), Device::gpu(0));
  REQUIRE(one);
  CHECK(one->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024}));
  CHECK(fake_gpu().launches == 1);
}

TEST_CASE_METHOD(Fixture,
                 "[child] kernels with one text share a module, which goes with its owners",
                 "[.fake_gpu]") {
  const int before = fake_gpu().modules;
  {
    PlanData d = two_kernels();
    d.kernels.push_back(d.kernels[0]);
    auto e = load(plan_of(std::move(d)), Device::gpu(0));
    REQUIRE(e);
    CHECK(fake_gpu().modules == before + 2);
    Executable copy = *e;
    e = Diagnostic{};
    CHECK(fake_gpu().modules == before + 2);
    REQUIRE(copy.execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024}));
    CHECK(fake_gpu().launches == 3);
  }
  CHECK(fake_gpu().modules == before);
}

TEST_CASE_METHOD(Fixture, "[child] hundreds of tensors bind", "[.fake_gpu]") {
  for (const int count : {512, 513, 2000}) {
    PlanData d;
    std::vector<Binding> bindings;
    std::vector<float> memory(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      PlanTensor t;
      t.name = "tensor" + std::to_string(i);
      t.type = f32;
      t.bytes = 4;
      t.alignment = 4;
      d.tensors.push_back(t);
    }
    d.kernels = {kernel("k")};
    d.kernels[0].arguments = {{Kind::tensor, count - 1, 8}, {Kind::tensor, 0, 8}};
    fake_gpu().argument_bytes = 16;
    const Plan plan = plan_of(std::move(d));
    for (int i = count; i-- > 0;)
      bindings.emplace_back(plan.data().tensors[static_cast<std::size_t>(i)].name,
                            &memory[static_cast<std::size_t>(i)]);
    const auto e = load(plan, Device::gpu(0));
    REQUIRE(e);
    fake_gpu().launches = 0;
    REQUIRE(e->execute(stream, bindings));
    void* arguments[2];
    std::memcpy(arguments, fake_gpu().log[0].arguments, sizeof arguments);
    CHECK(arguments[0] == &memory.back());
    CHECK(arguments[1] == &memory.front());
    bindings.pop_back();
    CHECK_FALSE(e->execute(stream, bindings));
  }
}

TEST_CASE_METHOD(Fixture, "[child] a damaged plan is refused at load", "[.fake_gpu]") {
  const auto with = [](auto change) {
    PlanData d = two_kernels();
    change(d.kernels[1]);
    return d;
  };
  for (const PlanData& bad : {
           with([](auto& k) { k.block = 0; }),
           with([](auto& k) { k.block = 1025; }),
           with([](auto& k) { k.grid = 1U << 31; }),
           with([](auto& k) { k.shared_bytes = most_shared_bytes() + 1; }),
           with([](auto& k) { k.arguments[0].value = 2; }),
           with([](auto& k) { k.arguments[1].value = 2048; }),
           with([](auto& k) { k.arguments.pop_back(); }),  // not what the machine code takes
           with([](auto& k) { k.arguments.clear(); }),
           with([](auto& k) { k.machine_code["sm_90a"].resize(63); }),
           with([](auto& k) { k.machine_code["sm_90a"][0] = 'x'; }),
       })
    CHECK(load_error(bad).rule == Rule::plan_format);
  fake_gpu().max_threads = 128;
  CHECK(load_error(two_kernels()).rule == Rule::plan_format);
}

TEST_CASE_METHOD(Fixture, "[child] failing driver calls at load and launch are typed errors",
                 "[.fake_gpu]") {
  for (const char* call : {"cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute",
                           "cuDeviceGetAttribute", "cuCtxPushCurrent"}) {
    Failing fail(call, CUDA_ERROR_OUT_OF_MEMORY);
    const Diagnostic d = load_error(two_kernels());
    CHECK(d.rule == Rule::device_error);
    CHECK(d.seen.find(call) != std::string::npos);
  }
  const auto e = load(plan_of(two_kernels()), Device::gpu(0));
  REQUIRE(e);
  {
    Failing fail("cuLaunchKernel", CUDA_ERROR_OUT_OF_MEMORY);
    const auto status = e->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024});
    REQUIRE_FALSE(status);
    CHECK(status.error().message().find("kernel first") != std::string::npos);
  }
  CHECK(e->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024}));
  CHECK(load(plan_of(two_kernels()), Device::gpu(2)).error().rule == Rule::device_missing);
}

TEST_CASE_METHOD(Fixture, "[child] threads execute one plan at once", "[.fake_gpu]") {
  const auto e = load(plan_of(two_kernels()), Device::gpu(0));
  REQUIRE(e);
  Failing fail("cuLaunchKernel", CUDA_ERROR_OUT_OF_MEMORY);  // the log is not for threads
  std::atomic<int> errors{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i)
          if (!e->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024})) ++errors;
      });
  }
  CHECK(errors == 8000);
  CHECK(e->execute(stream, {{"x", x}}, {}).error().rule == Rule::binding_missing);
}

TEST_CASE_METHOD(Fixture, "[child] without machine code for the device the kernels are compiled",
                 "[.fake_gpu]") {
  PlanData d = two_kernels();
  for (auto& k : d.kernels) k.machine_code.clear();
  const auto e = load(plan_of(d), Device::gpu(0));
  if (e) {
    CHECK(e->execute(stream, {{"x", x}, {"y", y}}, {workspace, 1024}));
    CHECK(fake_gpu().launches == 2);
    d.kernels[1].source = "no kernel";
    const Diagnostic error = load_error(d);
    CHECK(error.rule == Rule::compiler_error);
    CHECK(error.attribute == "kernel second for sm_90a:");
  } else {
    CHECK(e.error().rule == Rule::compiler_missing);
    CHECK(e.errors().back().rule == Rule::plan_target);
  }
}

TEST_CASE_METHOD(Fixture, "[child] numbers of each call stand in the argument structs",
                 "[.fake_gpu]") {
  PlanData d = two_kernels();
  for (const auto& [name, type] : {std::pair{"lr", bf16}, std::pair{"seed", i64}}) {
    PlanTensor t;
    t.name = name;
    t.type = type;
    t.by_value = true;
    d.tensors.push_back(t);
  }
  d.kernels[1].arguments = {{Kind::tensor, 1, 8},
                            {Kind::integer, 3, 8},
                            {Kind::number, 2, 8},
                            {Kind::number, 2, 4},
                            {Kind::number, 3, 4}};
  fake_gpu().argument_bytes = 32;
  const auto check = [&](int launch, double lr, std::int64_t seed) {
    struct {
      void* y;
      std::int64_t seed;
      double lr;
      float narrow_lr, narrow_seed;
    } args;
    std::memcpy(&args, fake_gpu().log[launch].arguments, sizeof args);
    CHECK(args.y == y);
    CHECK(args.seed == seed);
    CHECK(args.lr == lr);
    CHECK(args.narrow_lr == static_cast<float>(lr));
    CHECK(args.narrow_seed == static_cast<float>(seed));
  };
  const std::int64_t seed = (std::int64_t{1} << 53) + 1;
  const auto e = load(plan_of(d), Device::gpu(0));
  REQUIRE(e);
  const Workspace w{workspace, 1024};
  REQUIRE(e->execute(stream, {{"x", x}, {"y", y}, {"lr", 1.001}, {"seed", seed}}, w));
  check(1, 1.0, seed);  // bf16 has 8 bits
  const auto bound = e->bind({{"x", x}, {"y", y}, {"lr", 0.5}, {"seed", 7}}, w);
  REQUIRE(bound);
  REQUIRE(bound->execute(stream));
  check(3, 0.5, 7);
  REQUIRE(bound->execute(stream, {{"lr", 0.25f}}));
  check(5, 0.25, 7);
  REQUIRE(bound->execute(stream));
  check(7, 0.5, 7);
  CHECK_FALSE(bound->execute(stream, {{"x", y}}));
  CHECK(fake_gpu().launches == 8);
  d.tensors[2].by_value = false;
  CHECK(load_error(d).rule == Rule::plan_format);
}

// What a call costs the host besides the driver: see the figures with -s.
TEST_CASE_METHOD(Fixture, "[child] a bound call looks nothing up", "[.fake_gpu]") {
  constexpr int kTensors = 300, kCalls = 200, kRounds = 5;
  PlanData d = two_kernels();
  d.workspace_bytes = 0;
  d.kernels.resize(1);
  d.tensors.clear();
  std::vector<float> memory(kTensors);
  for (int i = 0; i < kTensors; ++i) {
    PlanTensor t;
    t.name = "layers." + std::to_string(i) + ".weight";
    t.type = f32;
    t.bytes = t.alignment = 4;
    t.written = i % 3 == 0;
    d.tensors.push_back(t);
  }
  d.kernels[0].arguments = {{Kind::tensor, 0, 8}, {Kind::tensor, 1, 8}};
  fake_gpu().argument_bytes = 16;
  const Plan plan = plan_of(std::move(d));
  const auto e = load(plan, Device::gpu(0));
  REQUIRE(e);
  std::vector<Binding> by_name, by_index;
  for (int i = 0; i < kTensors; ++i) {
    float* const at = &memory[static_cast<std::size_t>(i)];
    by_name.emplace_back(plan.data().tensors[static_cast<std::size_t>(i)].name, at);
    by_index.emplace_back(Index{i}, at);
  }
  const auto bound = e->bind(by_name);
  REQUIRE(bound);
  const auto cost = [&](const auto& call) {
    double best = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      int launched = 0;
      for (int i = 0; i < kCalls; ++i) launched += call().ok();
      const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
      REQUIRE(launched == kCalls);
      best = std::min(best, us.count() / kCalls);
    }
    return best;
  };
  const double named = cost([&] { return e->execute(stream, by_name); });
  const double indexed = cost([&] { return e->execute(stream, by_index); });
  const double once = cost([&] { return bound->execute(stream); });
  INFO("us a call of 300 tensors: by name " << named << ", by index " << indexed << ", bound "
                                            << once);
  CHECK(once < named / 4);
}

TEST_CASE("plans load and run against a driver without a GPU") {
  TemporaryDirectory parent;
  const auto run = run_hidden_cases(
      "fake_gpu", {{"SINTER_DRIVER", fake_driver_path()}, {"SINTER_CACHE_DIR", parent / "cache"}});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("plans that hold machine code load and run where NVRTC is missing") {
  TemporaryDirectory parent;
  const auto run = run_hidden_cases("fake_gpu", {{"SINTER_DRIVER", fake_driver_path()},
                                                 {"SINTER_NVRTC", "/nowhere/libnvrtc.so"},
                                                 {"SINTER_CACHE_DIR", parent / "cache"}});
  INFO(run.output);
  CHECK(run.passed);
}
