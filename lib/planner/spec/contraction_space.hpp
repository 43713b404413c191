// The iteration space of a contraction node: which indices its operands and its result share, and
// where each of their axes stands among them.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/spec/body_builder.hpp"
#include "sinter/graph.hpp"

namespace sinter {

// What indices are cut into; 0: nothing.
struct ContractionCuts {
  std::int64_t m = 0, n = 0, k = 0;
  bool images_apart = false;  // of a convolution: a batch, and no rows
};

// The iteration space of a contraction: extents of batch, m, n, k indices in this order, and for
// the operands a, b and the result, where each of their axes stands.
struct ContractionSpace {
  Dims extent;
  int batch = 0, m = 0, n = 0;
  std::vector<KIndex> k_indices;
  TensorId a = kNoTensor, b = kNoTensor, c = kNoTensor;
  std::vector<Coordinate> a_at, b_at, c_at;

  int add(int& group, std::int64_t extent);  // gives the index
  int add_k(std::int64_t extent, KIndex what);
  // One index, or two where it is cut.
  Coordinate add_cut(int& group, std::int64_t extent, std::int64_t block);
  Coordinate add_cut_k(std::int64_t extent, std::int64_t block);
  // Index lists grow while the space is built; coordinates are widened at the end.
  void finish();
};

ContractionSpace contraction_space(const Graph& g, const Node& n, const ContractionCuts& cuts = {});

}  // namespace sinter
