#include <thread>
#include <vector>

#include "runtime/driver.hpp"
#include "runtime/free_memory.hpp"
#include "sinter/compile.hpp"
#include "support/catch.hpp"
#include "support/fake_gpu.hpp"

using namespace sinter;

TEST_CASE("a missing driver is reported with every path that was tried") {
  DriverSearch search;
  const auto opened = open_driver({"/nowhere/libcuda.so.1", "libcuda-nowhere.so"}, &search);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().rule == Rule::device_missing);
  CHECK(opened.error().seen.find("/nowhere/libcuda.so.1") != std::string::npos);
  CHECK(opened.error().seen.find("libcuda-nowhere.so") != std::string::npos);
  CHECK(search.tried.size() == 2);
  CHECK(search.path.empty());
}

TEST_CASE("a library that is no driver is reported with what it lacks") {
  const auto opened = open_driver({"libm.so.6"});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().rule == Rule::device_missing);
  CHECK(opened.error().seen.find("has no cuInit") != std::string::npos);
}

TEST_CASE("[child] without a driver the CPU works and a GPU is a typed error", "[.no_driver]") {
  CHECK(Device::current() == Device::cpu());
  CHECK(Device::cpu().target().value().empty());
  CHECK(synchronize(Device::cpu()));
  for (const auto& error : {Device::gpu(0).target().error(), synchronize(Device::gpu(0)).error(),
                            Memory::allocate(Device::gpu(0), 8).error()})
    CHECK(error.rule == Rule::device_missing);
}

TEST_CASE("a process without a driver keeps to the CPU") {
  const auto run = run_hidden_cases("no_driver", {{"SINTER_DRIVER", "/nowhere/libcuda.so"}});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("[child] a driver without a device names the call and the code", "[.no_device]") {
  const auto error = Device::gpu(0).target().error();
  CHECK(error.rule == Rule::device_missing);
  CHECK(error.seen.find("cuInit: CUDA_ERROR_NO_DEVICE") != std::string::npos);
  CHECK(driver_search().version == 13000);
  CHECK(Device::current() == Device::cpu());
}

TEST_CASE("a driver that finds no device is not used") {
  const auto run = run_hidden_cases(
      "no_device", {{"SINTER_DRIVER", fake_driver_path()}, {"FAKE_DRIVER_INIT", "100"}});
  INFO(run.output);
  CHECK(run.passed);
}

TEST_CASE("host memory is aligned to 256 bytes and its copies are checked") {
  auto memory = Memory::allocate(Device::cpu(), 10);
  REQUIRE(memory);
  CHECK(reinterpret_cast<std::uintptr_t>(memory->data()) % 256 == 0);
  const char text[10] = "123456789";
  char back[10] = {};
  CHECK(memory->copy_in(text, 10));
  CHECK(memory->copy_out(back, 10));
  CHECK(std::string(back) == text);
  CHECK(memory->copy_in(text, 11).error().rule == Rule::memory_size);
  CHECK_FALSE(memory->copy_in(text, -1));
  CHECK_FALSE(memory->copy_out(back, 11));
  CHECK(memory->copy_in(nullptr, 1).error().rule == Rule::binding_null);
  CHECK(memory->copy_in(nullptr, 0));
  CHECK(Memory::allocate(Device::cpu(), -1).error().rule == Rule::memory_size);
  CHECK(Memory::allocate(Device::cpu(), std::int64_t{1} << 62).error().rule == Rule::memory_size);
  CHECK(Memory::allocate(Device::cpu(), std::int64_t{1} << 47).error().rule == Rule::memory);
  auto empty = Memory::allocate(Device::cpu(), 0);
  REQUIRE(empty);
  CHECK(empty->data() != nullptr);
  Memory moved = std::move(*memory);
  CHECK(memory->data() == nullptr);
  *empty = std::move(moved);
  CHECK(empty->bytes() == 10);
}

TEST_CASE("[child] targets follow the compute capability", "[.fake_gpu]") {
  const auto target = [](int major, int minor) {
    fake_gpu().major = major;
    fake_gpu().minor = minor;
    return Device::gpu(0).target().value();
  };
  CHECK(target(8, 0) == "sm_80");
  CHECK(target(8, 9) == "sm_89");
  CHECK(target(9, 0) == "sm_90a");
  CHECK(target(10, 0) == "sm_100a");
  CHECK(target(10, 3) == "sm_103a");
  CHECK(target(12, 0) == "sm_120a");
  CHECK(Device::gpu(2).target().error().rule == Rule::device_missing);
  CHECK(Device::gpu(-1).target().error().rule == Rule::device_missing);
  CHECK_FALSE(Device::gpu(-1).is_cpu());
}

TEST_CASE("[child] calls leave the caller's context current", "[.fake_gpu]") {
  auto& gpu = fake_gpu();
  CHECK(Device::current() == Device::gpu(0));
  const int depth = gpu.context_depth;
  {
    ContextScope second;
    REQUIRE(second.enter(1));
    CHECK(Device::current() == Device::gpu(1));
    auto memory = Memory::allocate(Device::gpu(0), 16);
    REQUIRE(memory);
    CHECK(memory->copy_in("0123456789abcde", 16));
    CHECK(synchronize(Device::gpu(0)));
    CHECK(Device::current() == Device::gpu(1));
    CHECK(gpu.context_depth == depth + 1);
  }
  CHECK(gpu.context_depth == depth);
  CHECK(gpu.allocations == 0);
}

TEST_CASE("[child] primary contexts are retained once a device, from any thread", "[.fake_gpu]") {
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 16; ++t)
      threads.emplace_back([t] { (void)synchronize(Device::gpu(t % 2)).ok(); });
  }
  CHECK(fake_gpu().retained == 2);
}

TEST_CASE("[child] copies to and from a GPU wait for its work on both sides", "[.fake_gpu]") {
  auto memory = Memory::allocate(Device::gpu(0), 4);
  REQUIRE(memory);
  const int before = fake_gpu().synchronized;
  CHECK(memory->copy_in("abc", 4));
  CHECK(fake_gpu().synchronized == before + 2);
  char back[4] = {};
  CHECK(memory->copy_out(back, 4));
  CHECK(std::string(back) == "abc");
}

TEST_CASE("[child] the memory that is free is the driver's word", "[.fake_gpu]") {
  fake_gpu().free_bytes = 12345;
  CHECK(free_memory(Device::gpu(1)).value() == 12345);
  CHECK(fake_gpu().allocations == 0);
  CHECK(free_memory(Device::cpu()).value() > 1 << 20);
}

TEST_CASE("[child] every failing driver call becomes an error that names it", "[.fake_gpu]") {
  auto memory = Memory::allocate(Device::gpu(0), 4);
  REQUIRE(memory);
  const auto failure = [&](const char* call, auto action, Rule rule = Rule::device_error) {
    Failing fail(call, CUDA_ERROR_OUT_OF_MEMORY);
    const auto result = action();
    REQUIRE_FALSE(result);
    CHECK(result.error().rule == rule);
    const std::string expected = std::string(call) + ": CUDA_ERROR_OUT_OF_MEMORY (out of memory)";
    CHECK(result.error().seen.substr(0, expected.size()) == expected);
  };
  const Device gpu = Device::gpu(0);
  char bytes[4] = {};
  failure("cuMemGetInfo", [&] { return free_memory(gpu); });
  failure(
      "cuMemAlloc", [&] { return Memory::allocate(gpu, 4); }, Rule::memory);
  failure("cuMemcpyHtoD", [&] { return memory->copy_in(bytes, 4); });
  failure("cuMemcpyDtoH", [&] { return memory->copy_out(bytes, 4); });
  failure("cuCtxSynchronize", [&] { return synchronize(gpu); });
  failure("cuCtxPushCurrent", [&] { return synchronize(gpu); });
  failure("cuDeviceGetAttribute", [&] { return gpu.target(); });
  CHECK(synchronize(gpu));
  {
    Failing unknown("cuCtxSynchronize", 12345);  // a code that the driver has no name for
    CHECK(synchronize(gpu).error().seen == "cuCtxSynchronize: 12345 (no text)");
  }
  CHECK(fake_gpu().context_depth == 0);
}
