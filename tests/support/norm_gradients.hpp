// Gradients of norms over the rows of matrices, which many tests plan or run.
#pragma once
#include "sinter/operations.hpp"

namespace sinter::test {

// Of x, dy [rows, columns] and scale [1, columns] in the graph's type, mean and inv_variance
// [rows, 1] in f32; an rmsnorm has no mean.
inline NormGradients norm_gradients(Graph& g, OpKind backward, std::int64_t rows,
                                    std::int64_t columns) {
  const auto x = g.tensor({.name = "x", .dim = {rows, columns}}),
             dy = g.tensor({.name = "dy", .dim = {rows, columns}}),
             scale = g.tensor({.name = "scale", .dim = {1, columns}});
  Tensor mean;
  if (backward != OpKind::rmsnorm_backward)
    mean = g.tensor({.name = "mean", .dim = {rows, 1}, .data_type = f32});
  const auto inv = g.tensor({.name = "inv_variance", .dim = {rows, 1}, .data_type = f32});
  return norm_backward(backward, dy, x, scale, mean, inv);
}

}  // namespace sinter::test
