// y = gelu_tanh(x w + bias) as one graph: describe it, compile it, run it.
#include "common.hpp"

using namespace samples;

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  constexpr int rows = 24, inner = 64, columns = 40;

  sinter::Graph graph({.name = "first_graph"});
  auto x = graph.tensor("x", {rows, inner});
  auto w = graph.tensor("w", {inner, columns});
  auto bias = graph.tensor("bias", {1, columns});
  graph.output(gelu_tanh(matmul(x, w) + bias), "y");

  const auto executable = need(sinter::compile(graph, device));
  std::printf("3 operations, %d kernel(s), %lld bytes of workspace\n", executable.plan().kernels(),
              static_cast<long long>(executable.workspace_bytes()));

  const auto hx = uniform(rows * inner, 1, 1), hw = uniform(inner * columns, 0.25f, 2),
             hbias = uniform(columns, 1, 3);
  const Array<float> dx(device, hx), dw(device, hw), dbias(device, hbias);
  const Array<float> dy(device, rows * columns);
  const Scratch scratch(executable);
  need(executable.execute(nullptr, {{"x", dx}, {"w", dw}, {"bias", dbias}, {"y", dy}}, scratch));
  need(sinter::synchronize(device));

  const auto y = dy.get();
  Check check;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      double sum = hbias[j];
      for (int k = 0; k < inner; ++k) sum += double{hx[i * inner + k]} * hw[k * columns + j];
      check.close("y", y[i * columns + j], gelu_tanh(sum), 2e-5);
    }
  std::printf("y[0][0..3] = %.5f %.5f %.5f %.5f\n", y[0], y[1], y[2], y[3]);
  return check.verdict("01_first_graph");
}
