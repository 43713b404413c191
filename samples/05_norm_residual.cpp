// The seam between two transformer layers: h = x + delta, y = layernorm(h). Both are outputs, h to
// be carried on, and the sum is read and written once.
#include "common.hpp"

using namespace samples;

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  constexpr int rows = 17, width = 96;
  constexpr double epsilon = 1e-5;

  sinter::Graph graph({.name = "norm_residual"});
  auto x = graph.tensor("x", {rows, width});
  auto delta = graph.tensor("delta", {rows, width});
  auto scale = graph.tensor("scale", {1, width});
  auto bias = graph.tensor("bias", {1, width});
  auto h = x + delta;
  graph.output(h, "h");
  graph.output(layernorm(h, scale, bias, epsilon), "y");

  const auto executable = need(sinter::compile(graph, device));
  std::printf("add and layernorm plan to %d kernel(s)\n", executable.plan().kernels());

  const auto hx = uniform(rows * width, 2, 1), hdelta = uniform(rows * width, 1, 2),
             hscale = uniform(width, 1, 3), hbias = uniform(width, 1, 4);
  const Array<float> dx(device, hx), ddelta(device, hdelta), dscale(device, hscale);
  const Array<float> dbias(device, hbias), dh(device, rows * width), dy(device, rows * width);
  const Scratch scratch(executable);
  need(executable.execute(
      nullptr,
      {{"x", dx}, {"delta", ddelta}, {"scale", dscale}, {"bias", dbias}, {"h", dh}, {"y", dy}},
      scratch));
  need(sinter::synchronize(device));

  const auto got_h = dh.get(), got_y = dy.get();
  Check check;
  for (int r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int c = 0; c < width; ++c) mean += double{hx[r * width + c]} + hdelta[r * width + c];
    mean /= width;
    for (int c = 0; c < width; ++c) {
      const double centred = double{hx[r * width + c]} + hdelta[r * width + c] - mean;
      variance += centred * centred / width;
    }
    for (int c = 0; c < width; ++c) {
      const int at = r * width + c;
      check.that("h is the sum, exactly rounded", got_h[at] == hx[at] + hdelta[at]);
      const double centred = double{hx[at]} + hdelta[at] - mean;
      check.close("y", got_y[at], centred / std::sqrt(variance + epsilon) * hscale[c] + hbias[c],
                  2e-5);
    }
  }
  return check.verdict("05_norm_residual");
}
