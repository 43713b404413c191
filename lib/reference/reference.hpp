// The float64 reference: every primitive written once as "what is element i of this node", naive on
// purpose. It is the CPU backend, and, run on values that carry an error bound, the judge of every
// kernel. It shares no schedule with the kernels.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lower/lower.hpp"
#include "sinter/base/result.hpp"

namespace sinter {

// Memory of a tensor as its strides lay it out, by tensor of the lowered graph.
using HostPointers = std::map<TensorId, void*>;

// The CPU backend: computes every output of the lowered graph from the bound inputs, in doubles,
// rounding each tensor to its stored type, on all cores.
Status evaluate(const Graph& lowered, const HostPointers& memory);

// A value with a bound on how far a correct kernel's may lie from it. An infinite error marks a
// value that cannot be judged (ill-conditioned, or behind a jump).
struct Judged {
  double value = 0;
  double error = 0;
};

// The outputs' values and bounds before they are stored: for output `tensor`, the elements with
// these row-major logical indices. Only what they depend on is computed.
Result<std::vector<Judged>> judge(const Graph& lowered, const HostPointers& inputs, TensorId tensor,
                                  std::span<const std::int64_t> elements);

// How a kernel's outputs compare with the reference.
struct Comparison {
  std::int64_t compared = 0;
  std::int64_t wrong = 0;      // outside their bound
  std::int64_t untrusted = 0;  // not judged
  std::int64_t exact = 0;      // bound zero: had to agree bit for bit
  double max_rel_error = 0;    // |y - r| / max(|r|, row scale) over the trusted
  double worst_ratio = 0;      // |y - r| / bound over the trusted; above 1 is wrong
  bool slope_ok = true;        // no systematic scale error (slope.hpp)
  std::string first_wrong;     // tensor, element, seen, expected, bound
  bool ok() const { return wrong == 0 && slope_ok; }
  void merge(const Comparison& other);
};

// Compares what a kernel wrote for output `tensor`. At most `samples` elements are judged, spread
// over the tensor with its corners; 0 means all.
Result<Comparison> compare(const Graph& lowered, const HostPointers& inputs, TensorId tensor,
                           const void* written, std::int64_t samples = 0);

}  // namespace sinter
