// Softmax along one axis and its gradient.
#include "lower/expansion.hpp"

namespace sinter::lowering {

// Y = exp(x - max) / sum of them, which is 1 or more: one division a row, a product an element.
// Stats = log of the sum of exp(x), from the same numbers. Where the largest is not finite it is
// that itself: -infinity for a row of nothing else, as attention gives, infinity or NaN.
void softmax(Expansion& e) {
  const Tensor x = e.input(0);
  Dims row = x.dim();
  row[positive_axis(e.attributes<SoftmaxAttributes>().axis, row)] = 1;
  const Tensor largest = e.named("max", reduction(x, ReductionMode::max, row));
  const Tensor exponential = e.named("exp", exp(e.named("shifted", x - largest)));
  const Tensor total = e.named("sum", sum(exponential, row));
  if (e.wants(0)) e.result(0, exponential * e.named("inv_sum", reciprocal(total)));
  if (!e.wants(1)) return;
  const Tensor stats = e.named("stats", largest + e.named("log", log(total)));
  // Of a finite row alone is x - x zero.
  const Tensor finite = e.mask("finite", equal(e.named("nothing", largest - largest), 0.0));
  e.result(1, select(finite, stats, largest));
}

// DX = y (dy - sum of y dy).
void softmax_backward(Expansion& e) {
  const Tensor y = e.input(0), dy = e.input(1);
  Dims row = y.dim();
  row[positive_axis(e.attributes<SoftmaxAttributes>().axis, row)] = 1;
  const Tensor dot = e.named("dot", sum(e.named("product", y * dy), row));
  e.result(0, y * e.named("centred", dy - dot));
}

}  // namespace sinter::lowering
