// The switch over primitives, and the bound of a finished sum.
#include <algorithm>
#include <cmath>

#include "reference/job.hpp"

namespace sinter::reference {

void evaluate_part(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e) {
  switch (job.node->op) {
    case OpKind::pointwise:
      return evaluate_pointwise(job, begin, end, v, e);
    case OpKind::matmul:
    case OpKind::conv_fprop:
    case OpKind::conv_dgrad:
    case OpKind::conv_wgrad:
    case OpKind::moe_grouped_matmul:
      return evaluate_contraction(job, begin, end, v, e);
    case OpKind::reduction:
      return evaluate_reduction(job, begin, end, v, e);
    case OpKind::resample:
    case OpKind::resample_backward:
      return evaluate_resample(job, begin, end, v, e);
    case OpKind::rng:
      return evaluate_rng(job, begin, end, v, e);
    default:
      return evaluate_layout(job, begin, end, v, e);
  }
}

double cost_per_element(const Graph& graph, const Node& node, bool judging) {
  const auto in = [&](std::size_t i) -> const Dims& { return graph[node.inputs[i]].dim; };
  switch (node.op) {
    case OpKind::matmul:
      return 4.0 * static_cast<double>(in(0).back()) + 10;
    case OpKind::moe_grouped_matmul:
      return 4.0 * static_cast<double>(in(0)[2]) + 10;
    case OpKind::conv_fprop:
    case OpKind::conv_dgrad: {
      const Dims& w = in(1);
      return 8.0 * static_cast<double>(count(w)) /
                 static_cast<double>(
                     std::max<std::int64_t>(node.op == OpKind::conv_fprop ? w[0] : w[1], 1)) +
             10;
    }
    case OpKind::conv_wgrad:
      return 8.0 * static_cast<double>(count(in(0))) /
                 static_cast<double>(std::max<std::int64_t>(in(0)[1], 1)) +
             10;
    case OpKind::reduction:
      return 4.0 * static_cast<double>(count(in(0))) /
                 static_cast<double>(std::max<std::int64_t>(count(graph[node.outputs[0]].dim), 1)) +
             10;
    case OpKind::pointwise:
      return judging ? 60 : 10;
    default:
      return 20;
  }
}

double summation_growth(const Sums& sum, std::int64_t n) {
  const auto k = static_cast<double>(n);
  // q n / s^2 is 1 for equal magnitudes, and 4/3 for uniform ones.
  const bool nearly_equal = !(sum.q * k > 1.1 * sum.s * sum.s);
  return nearly_equal || sum.alike ? k : std::min(k, 4 * std::sqrt(k) + 8);
}

Judged finish_sum(const Sums& sum, double growth, double unit, const Precision& precision) {
  if (!(sum.p < kUntrusted)) return {sum.v, kUntrusted};
  if (!std::isfinite(sum.v)) return {sum.v, sum.p == 0 ? 0 : kUntrusted};
  if (!(sum.s + sum.p <= precision.largest)) return {sum.v, kUntrusted};
  // Below eta the terms themselves may vanish.
  if (sum.p == 0 && sum.s <= precision.integers * unit && unit >= precision.eta) return {sum.v, 0};
  return {sum.v, sum.p + growth * (precision.u * (sum.s + sum.p) + precision.eta)};
}

}  // namespace sinter::reference
