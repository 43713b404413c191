// Causal grouped-query attention: 8 query heads share 2 key and value heads. Beside the output it
// gives Stats, the logarithm of the sum of exponentials that a backward pass needs.
#include "common.hpp"

using namespace samples;

namespace {

constexpr int kBatch = 2, kQueryHeads = 8, kKeyHeads = 2, kLength = 20, kDepth = 16;

struct Row {
  double stats = 0;
  std::vector<double> o = std::vector<double>(kDepth);
};

// One row of the result, by the definition. `q` points at the query, k and v at their heads.
Row naive_row(const float* q, const float* k, const float* v, int row) {
  std::vector<double> score;
  double largest = -INFINITY, sum = 0;
  for (int j = 0; j <= row; ++j) {
    double s = 0;
    for (int d = 0; d < kDepth; ++d) s += double{q[d]} * k[j * kDepth + d];
    score.push_back(s / std::sqrt(double{kDepth}));
    largest = std::max(largest, score.back());
  }
  for (double s : score) sum += std::exp(s - largest);
  Row result{largest + std::log(sum)};
  for (int j = 0; j <= row; ++j)
    for (int d = 0; d < kDepth; ++d)
      result.o[d] += std::exp(score[j] - result.stats) * v[j * kDepth + d];
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  sinter::Graph graph({.name = "attention"});
  auto q = graph.tensor("q", {kBatch, kQueryHeads, kLength, kDepth});
  auto k = graph.tensor("k", {kBatch, kKeyHeads, kLength, kDepth});
  auto v = graph.tensor("v", {kBatch, kKeyHeads, kLength, kDepth});
  auto [o, stats] = sdpa(
      q, k, v,
      {.attn_scale = 1 / std::sqrt(double{kDepth}), .causal_mask = true, .generate_stats = true});
  graph.output(o, "o");
  graph.output(stats, "stats");

  const auto executable = need(sinter::compile(graph, device));
  std::printf("attention plans to %d kernel(s)\n", executable.plan().kernels());

  constexpr int head = kLength * kDepth;
  const auto hq = uniform(kBatch * kQueryHeads * head, 1, 1),
             hk = uniform(kBatch * kKeyHeads * head, 1, 2),
             hv = uniform(kBatch * kKeyHeads * head, 1, 3);
  const Array<float> dq(device, hq), dk(device, hk), dv(device, hv);
  const Array<float> d_o(device, hq.size()), dstats(device, kBatch * kQueryHeads * kLength);
  const Scratch scratch(executable);
  need(executable.execute(nullptr, {{"q", dq}, {"k", dk}, {"v", dv}, {"o", d_o}, {"stats", dstats}},
                          scratch));
  need(sinter::synchronize(device));

  const auto got = d_o.get(), got_stats = dstats.get();
  Check check;
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kQueryHeads; ++h)
      for (int row = 0; row < kLength; ++row) {
        const int key_head = b * kKeyHeads + h / (kQueryHeads / kKeyHeads);
        const int at = (b * kQueryHeads + h) * kLength + row;
        const auto expected =
            naive_row(&hq[at * kDepth], &hk[key_head * head], &hv[key_head * head], row);
        check.close("stats", got_stats[at], expected.stats, 2e-5);
        for (int d = 0; d < kDepth; ++d)
          check.close("o", got[at * kDepth + d], expected.o[d], 2e-5);
      }
  return check.verdict("04_attention");
}
