// execute() launches kernels and does nothing else, so a CUDA graph can capture it and replay it
// with one call. The few driver functions that this takes are opened at run time, so that the
// sample builds without the CUDA toolkit; a real program would include cuda.h.
#include <dlfcn.h>

#include "common.hpp"

using namespace samples;

namespace {

// libcuda, as far as the sample uses it. All handles are pointers; 0 is success.
struct Driver {
  using Handle = void*;
  int (*device_get)(int*, int) = nullptr;
  int (*primary_ctx_retain)(Handle*, int) = nullptr;
  int (*ctx_set_current)(Handle) = nullptr;
  int (*stream_create)(Handle*, unsigned) = nullptr;
  int (*stream_begin_capture)(Handle, int) = nullptr;
  int (*stream_end_capture)(Handle, Handle*) = nullptr;
  int (*graph_get_nodes)(Handle, Handle*, std::size_t*) = nullptr;
  int (*graph_instantiate)(Handle*, Handle, unsigned long long) = nullptr;
  int (*graph_launch)(Handle, Handle) = nullptr;
  int (*stream_synchronize)(Handle) = nullptr;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](auto& function, const char* name) {
      void* symbol = library ? dlsym(library, name) : nullptr;
      if (!symbol) {
        std::fprintf(stderr, "error: libcuda.so.1 has no %s\n", name);
        std::exit(1);
      }
      std::memcpy(&function, &symbol, sizeof symbol);
    };
    find(device_get, "cuDeviceGet");
    find(primary_ctx_retain, "cuDevicePrimaryCtxRetain");
    find(ctx_set_current, "cuCtxSetCurrent");
    find(stream_create, "cuStreamCreate");
    find(stream_begin_capture, "cuStreamBeginCapture_v2");
    find(stream_end_capture, "cuStreamEndCapture");
    find(graph_get_nodes, "cuGraphGetNodes");
    find(graph_instantiate, "cuGraphInstantiateWithFlags");
    find(graph_launch, "cuGraphLaunch");
    find(stream_synchronize, "cuStreamSynchronize");
  }
};

void done(const char* call, int result) {
  if (result == 0) return;
  std::fprintf(stderr, "error: %s failed with CUresult %d\n", call, result);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  if (device.is_cpu()) {
    std::printf("capturing a CUDA graph needs a GPU: nothing to show on the CPU backend\n");
    std::printf("OK 07_graph_capture (nothing checked)\n");
    return 0;
  }
  constexpr int rows = 64, width = 128;
  sinter::Graph graph({.name = "captured"});
  auto x = graph.tensor("x", {rows, width});
  auto w = graph.tensor("w", {width, width});
  graph.output(softmax(matmul(x, w)), "y");
  const auto executable = need(sinter::compile(graph, device));

  auto hx = uniform(rows * width, 1, 1);
  Array<float> dx(device, hx);
  const Array<float> dw(device, uniform(width * width, 0.3f, 2));
  Array<float> dy(device, rows * width);
  const Scratch scratch(executable);
  const auto execute = [&](sinter::Stream stream) {
    need(executable.execute(stream, {{"x", dx}, {"w", dw}, {"y", dy}}, scratch));
  };

  const Driver cuda;
  int ordinal = 0;
  Driver::Handle context, stream, captured, replay;
  done("cuDeviceGet", cuda.device_get(&ordinal, device.ordinal()));
  done("cuDevicePrimaryCtxRetain", cuda.primary_ctx_retain(&context, ordinal));
  done("cuCtxSetCurrent", cuda.ctx_set_current(context));
  done("cuStreamCreate", cuda.stream_create(&stream, 1));  // non-blocking
  constexpr int global_mode = 0;                           // the strictest: no allocation, no sync
  done("cuStreamBeginCapture", cuda.stream_begin_capture(stream, global_mode));
  execute(stream);
  done("cuStreamEndCapture", cuda.stream_end_capture(stream, &captured));
  std::size_t nodes = 0;
  done("cuGraphGetNodes", cuda.graph_get_nodes(captured, nullptr, &nodes));
  done("cuGraphInstantiate", cuda.graph_instantiate(&replay, captured, 0));
  std::printf("%d kernel(s) captured as %zu graph node(s)\n", executable.plan().kernels(), nodes);

  Check check;
  check.that("one node a kernel, nothing else was captured",
             nodes == static_cast<std::size_t>(executable.plan().kernels()));
  for (int round = 0; round < 3; ++round) {  // new numbers in the same memory, then replay
    for (auto& value : hx) value = -0.5f * value + 0.01f * static_cast<float>(round);
    dx.set(hx);
    execute(stream);
    done("cuStreamSynchronize", cuda.stream_synchronize(stream));
    const auto direct = dy.get();
    dy.set(std::vector<float>(rows * width, NAN));
    for (int again = 0; again < 100; ++again)
      done("cuGraphLaunch", cuda.graph_launch(replay, stream));
    done("cuStreamSynchronize", cuda.stream_synchronize(stream));
    const auto replayed = dy.get();
    for (std::size_t i = 0; i < direct.size(); ++i)
      check.that("the replay gives the bits of the direct call", direct[i] == replayed[i]);
  }
  return check.verdict("07_graph_capture");
}
