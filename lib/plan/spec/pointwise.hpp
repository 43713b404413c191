// The pointwise family: every index of the domain is independent, the body runs once an element.
#pragma once
#include "plan/spec/body.hpp"

namespace sinter {

struct PointwiseSpec {
  // It reads nothing that the kernel before it writes, writes nothing that that one reads, and
  // other elements than that one, so that both may run at once.
  bool beside_before = false;

  Dims group_ends(int rank) const { return {rank}; }
  int result_rank(int rank) const { return rank; }
};

}  // namespace sinter
