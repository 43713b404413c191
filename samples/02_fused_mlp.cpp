// A transformer's feed-forward block in bf16: y = x + gelu(x w1 + b1) w2 + b2. The weights lie as
// [out, in], as linear layers keep them: a stride makes them [in, out] without a copy. The same
// graph is planned fused and one kernel a node, and both must agree with a plain loop.
#include "common.hpp"

using namespace samples;

namespace {

constexpr int kTokens = 32, kWidth = 48, kHidden = 96;

void describe(sinter::Graph& graph) {
  auto x = graph.tensor("x", {kTokens, kWidth});
  auto w1 = graph.tensor("w1", sinter::transposed({kWidth, kHidden}));
  auto b1 = graph.tensor("b1", {1, kHidden});
  auto w2 = graph.tensor("w2", sinter::transposed({kHidden, kWidth}));
  auto b2 = graph.tensor("b2", {1, kWidth});
  auto hidden = gelu_tanh(matmul(x, w1) + b1);
  graph.output(x + (matmul(hidden, w2) + b2), "y");
}

std::vector<double> naive(const std::vector<std::vector<std::uint16_t>>& in) {
  const auto at = [&](int tensor, int i) -> double { return from_bf16(in[tensor][i]); };
  std::vector<double> y;
  for (int t = 0; t < kTokens; ++t) {
    std::vector<double> hidden;
    for (int h = 0; h < kHidden; ++h) {
      double sum = at(2, h);
      for (int c = 0; c < kWidth; ++c) sum += at(0, t * kWidth + c) * at(1, h * kWidth + c);
      hidden.push_back(gelu_tanh(sum));
    }
    for (int c = 0; c < kWidth; ++c) {
      double sum = at(4, c);
      for (int h = 0; h < kHidden; ++h) sum += hidden[h] * at(3, c * kHidden + h);
      y.push_back(at(0, t * kWidth + c) + sum);
    }
  }
  return y;
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  // Stored tensors are bf16; values between the operations are f32 unless they feed a product.
  sinter::Graph graph({.name = "mlp", .io = sinter::bf16});
  describe(graph);

  const std::vector<std::vector<std::uint16_t>> in = {
      to_bf16(uniform(kTokens * kWidth, 1, 1)), to_bf16(uniform(kHidden * kWidth, 0.2f, 2)),
      to_bf16(uniform(kHidden, 0.5f, 3)), to_bf16(uniform(kWidth * kHidden, 0.2f, 4)),
      to_bf16(uniform(kWidth, 0.5f, 5))};
  std::vector<Array<std::uint16_t>> arrays;
  for (const auto& values : in) arrays.emplace_back(device, values);
  const auto expected = naive(in);

  Check check;
  int kernels[2] = {};
  for (const bool fuse : {true, false}) {
    const auto executable = need(sinter::compile(graph, device, {.fuse = fuse}));
    kernels[fuse] = executable.plan().kernels();
    const Array<std::uint16_t> dy(device, kTokens * kWidth);
    const Scratch scratch(executable);
    need(executable.execute(nullptr,
                            {{"x", arrays[0]},
                             {"w1", arrays[1]},
                             {"b1", arrays[2]},
                             {"w2", arrays[3]},
                             {"b2", arrays[4]},
                             {"y", dy}},
                            scratch));
    need(sinter::synchronize(device));
    const auto y = dy.get();
    // The result is rounded to 8 bits; before a product the hidden values may be, too.
    for (std::size_t i = 0; i < y.size(); ++i)
      check.close("y", from_bf16(y[i]), expected[i], 0.02 + 0x1p-8 * std::abs(expected[i]));
  }
  std::printf("6 operations: %d kernels fused, %d unfused\n", kernels[true], kernels[false]);
  check.that("fusion saves kernels", kernels[true] < kernels[false]);
  return check.verdict("02_fused_mlp");
}
