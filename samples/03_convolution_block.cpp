// The block of a residual network: y = relu(conv(x, w) + bias + residual), all channels-last
// (NHWC): the dims stay [N, C, H, W], the strides say how they lie.
#include "common.hpp"

using namespace samples;

namespace {

constexpr int kN = 2, kC = 8, kH = 9, kW = 7, kK = 12;

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  sinter::Graph graph({.name = "convolution_block"});
  const auto image = sinter::nhwc({kN, kK, kH, kW});
  auto x = graph.tensor("x", sinter::nhwc({kN, kC, kH, kW}));
  auto w = graph.tensor("w", sinter::nhwc({kK, kC, 3, 3}));
  auto bias = graph.tensor("bias", {1, kK, 1, 1});
  auto residual = graph.tensor("residual", image);
  auto y =
      relu(conv_fprop(x, w, {.pre_padding = {1, 1}, .post_padding = {1, 1}}) + bias + residual);
  graph.output(y, "y", {.stride = image.stride});

  const auto executable = need(sinter::compile(graph, device));
  std::printf("4 operations, %d kernel(s)\n", executable.plan().kernels());

  const auto hx = uniform(kN * kC * kH * kW, 1, 1), hw = uniform(kK * kC * 9, 0.3f, 2),
             hbias = uniform(kK, 1, 3), hresidual = uniform(kN * kK * kH * kW, 1, 4);
  const Array<float> dx(device, hx), dw(device, hw), dbias(device, hbias);
  const Array<float> dresidual(device, hresidual), dy(device, kN * kK * kH * kW);
  const Scratch scratch(executable);
  need(executable.execute(
      nullptr, {{"x", dx}, {"w", dw}, {"bias", dbias}, {"residual", dresidual}, {"y", dy}},
      scratch));
  need(sinter::synchronize(device));

  const auto got = dy.get();
  Check check;
  for (int n = 0; n < kN; ++n)
    for (int k = 0; k < kK; ++k)
      for (int h = 0; h < kH; ++h)
        for (int v = 0; v < kW; ++v) {
          const int at = ((n * kH + h) * kW + v) * kK + k;
          double sum = hbias[k] + double{hresidual[at]};
          for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s) {
              const int row = h + r - 1, column = v + s - 1;
              if (row < 0 || row >= kH || column < 0 || column >= kW) continue;
              for (int c = 0; c < kC; ++c)
                sum += double{hx[((n * kH + row) * kW + column) * kC + c]} *
                       hw[((k * 3 + r) * 3 + s) * kC + c];
            }
          check.close("y", got[at], sum > 0 ? sum : 0, 2e-5);
        }
  return check.verdict("03_convolution_block");
}
