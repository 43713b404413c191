// execute() under threads, streams and capture.
#include <thread>

#include "gpu/gpu_support.hpp"
#include "runtime/driver.hpp"
#include "runtime/stream_functions.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

// y = softmax(gelu(x w + b)) in two kernels with a workspace between them.
struct Model {
  Graph graph{{.name = "model", .io = bf16}};
  Model() {
    auto x = graph.tensor({.name = "x", .dim = {96, 80}});
    auto w = graph.tensor({.name = "w", .dim = {80, 112}});
    auto b = graph.tensor({.name = "b", .dim = {1, 112}});
    graph.output(softmax(gelu_tanh(matmul(x, w) + b)), "y");
  }
};

struct Buffers {
  std::vector<Memory> memory;
  std::vector<Binding> bindings;
  Memory* output = nullptr;
};

Buffers buffers_for(const Executable& e, std::uint8_t salt) {
  Buffers b;
  b.memory.reserve(8);
  for (const auto& t : e.plan().tensors()) {
    auto m = Memory::allocate(e.device(), t.bytes);
    REQUIRE(m);
    std::vector<std::uint16_t> host(static_cast<std::size_t>(t.bytes / 2));
    for (std::size_t i = 0; i < host.size(); ++i)  // bf16 between 0.25 and 1, both signs
      host[i] = static_cast<std::uint16_t>(0x3e80 + (i * 2654435761u + salt) % 0x100 +
                                           (i % 3 == 0 ? 0x8000 : 0));
    REQUIRE(m->copy_in(host.data(), t.bytes));
    b.memory.push_back(std::move(*m));
  }
  auto w = Memory::allocate(e.device(), std::max<std::int64_t>(e.workspace_bytes(), 1));
  REQUIRE(w);
  b.memory.push_back(std::move(*w));
  const auto tensors = e.plan().tensors();
  static const char* const names[] = {"x", "w", "b", "y"};
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (const char* n : names)
      if (tensors[i].name == n) {
        b.bindings.emplace_back(n, b.memory[i].data());
        if (tensors[i].written) b.output = &b.memory[i];
      }
  return b;
}

std::vector<std::uint8_t> fetch(const Memory& m) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(m.bytes()));
  REQUIRE(m.copy_out(bytes.data(), m.bytes()));
  return bytes;
}

Workspace workspace(Buffers& b, const Executable& e) {
  return {b.memory.back().data(), e.workspace_bytes()};
}

}  // namespace

TEST_CASE("one executable on many threads and streams gives each its own result", "[execute]") {
  Model model;
  auto e = compile(model.graph, Device::gpu(0));
  for (const auto& d : e.errors()) FAIL(d.message());
  REQUIRE(e->plan().kernels() == 2);
  constexpr int kThreads = 8, kRuns = 200;
  std::vector<Buffers> buffers;
  std::vector<std::vector<std::uint8_t>> expected;
  for (int t = 0; t < kThreads; ++t) {
    buffers.push_back(buffers_for(*e, static_cast<std::uint8_t>(17 * t)));
    REQUIRE(e->execute(nullptr, buffers.back().bindings, workspace(buffers.back(), *e)));
    REQUIRE(synchronize(e->device()));
    expected.push_back(fetch(*buffers.back().output));
  }
  CHECK(expected[0] != expected[1]);
  const auto d = stream_functions(*driver().value());
  REQUIRE(d);
  ContextScope scope;
  REQUIRE(scope.enter(0));
  std::vector<std::thread> threads;
  std::vector<int> bad(kThreads, 0);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      ContextScope own;
      if (!own.enter(0)) bad[static_cast<std::size_t>(t)] = 1;
      CUstream stream = nullptr;
      if (d->stream_create(&stream, CU_STREAM_NON_BLOCKING)) bad[static_cast<std::size_t>(t)] = 1;
      auto& b = buffers[static_cast<std::size_t>(t)];
      for (int i = 0; i < kRuns; ++i)
        if (!e->execute(stream, b.bindings, workspace(b, *e))) bad[static_cast<std::size_t>(t)] = 1;
      if (d->stream_synchronize(stream)) bad[static_cast<std::size_t>(t)] = 1;
      d->stream_destroy(stream);
    });
  for (auto& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t) {
    CHECK(bad[static_cast<std::size_t>(t)] == 0);
    CHECK(fetch(*buffers[static_cast<std::size_t>(t)].output) ==
          expected[static_cast<std::size_t>(t)]);
  }
}

TEST_CASE("execute can be captured in a CUDA graph and replayed", "[execute]") {
  Model model;
  auto e = compile(model.graph, Device::gpu(0));
  for (const auto& d : e.errors()) FAIL(d.message());
  auto b = buffers_for(*e, 3);
  REQUIRE(e->execute(nullptr, b.bindings, workspace(b, *e)));
  REQUIRE(synchronize(e->device()));
  const auto expected = fetch(*b.output);
  const auto d = stream_functions(*driver().value());
  REQUIRE(d);
  ContextScope scope;
  REQUIRE(scope.enter(0));
  CUstream stream = nullptr;
  REQUIRE(d->stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(d->begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) REQUIRE(e->execute(stream, b.bindings, workspace(b, *e)));
  CUgraph graph = nullptr;
  REQUIRE(d->end_capture(stream, &graph) == CUDA_SUCCESS);
  CUgraphExec instance = nullptr;
  REQUIRE(d->graph_instantiate(&instance, graph, 0) == CUDA_SUCCESS);
  std::vector<std::uint8_t> nothing(expected.size(), 0xEE);
  REQUIRE(b.output->copy_in(nothing.data(), b.output->bytes()));
  REQUIRE(d->graph_launch(instance, stream) == CUDA_SUCCESS);
  REQUIRE(d->stream_synchronize(stream) == CUDA_SUCCESS);
  CHECK(fetch(*b.output) == expected);
  d->exec_destroy(instance);
  d->graph_destroy(graph);
  d->stream_destroy(stream);
}

TEST_CASE("mistakes of the caller are refused before anything is launched", "[execute]") {
  Model model;
  auto e = compile(model.graph, Device::gpu(0));
  for (const auto& d : e.errors()) FAIL(d.message());
  auto b = buffers_for(*e, 5);
  const auto rule = [&](std::vector<Binding> bindings, Workspace w) {
    return e->execute(nullptr, bindings, w).error().rule;
  };
  auto missing = b.bindings;
  missing.pop_back();
  CHECK(rule(missing, workspace(b, *e)) == Rule::binding_missing);
  auto unknown = b.bindings;
  unknown.emplace_back("nobody", b.memory[0].data());
  CHECK(rule(unknown, workspace(b, *e)) == Rule::binding_unknown);
  auto null = b.bindings;
  null[0].pointer = nullptr;
  CHECK(rule(null, workspace(b, *e)) == Rule::binding_null);
  auto odd = b.bindings;
  odd[0].pointer = static_cast<char*>(odd[0].pointer) + 1;
  CHECK(rule(odd, workspace(b, *e)) == Rule::binding_alignment);
  CHECK(rule(b.bindings, {}) == Rule::workspace_size);
}
