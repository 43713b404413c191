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

// Elements of one output, as row-major logical indices.
struct JudgeRequest {
  TensorId tensor{};
  std::span<const std::int64_t> elements;
};

// The values and bounds of outputs before they are stored, in the order of the requests, of which
// each names another tensor. Only what the elements depend on is computed, and what several outputs
// share only once.
Result<std::vector<std::vector<Judged>>> judge(const Graph& lowered, const HostPointers& inputs,
                                               std::span<const JudgeRequest> requests);
Result<std::vector<Judged>> judge(const Graph& lowered, const HostPointers& inputs, TensorId tensor,
                                  std::span<const std::int64_t> elements);
// How long that takes, in steps of which one core does about 10^9 a second. A single element can
// cost as much as all of them: the last one of a deep network depends on everything.
double judge_cost(const Graph& lowered, std::span<const JudgeRequest> requests);

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

// What a kernel wrote for an output.
struct Written {
  TensorId tensor{};
  const void* memory = nullptr;
};
// What the reference says of outputs, in their order, to compare with what several kernels wrote.
// At most `samples` elements of each are judged, spread over the tensor with its corners; 0 means
// all.
struct Expected {
  struct Output {
    TensorId tensor{};
    std::vector<std::int64_t> elements;
    std::vector<Judged> judged;
  };
  std::vector<Output> outputs;
};
Result<Expected> expected(const Graph& lowered, const HostPointers& inputs,
                          std::span<const TensorId> outputs, std::int64_t samples);
// `written`: the memory of each.
std::vector<Comparison> compare(const Graph& lowered, const Expected& expected,
                                std::span<const void* const> written);
// Both in one.
Result<std::vector<Comparison>> compare(const Graph& lowered, const HostPointers& inputs,
                                        std::span<const Written> outputs, std::int64_t samples);
Result<Comparison> compare(const Graph& lowered, const HostPointers& inputs, TensorId tensor,
                           const void* written, std::int64_t samples = 0);
// The judge_cost of comparing them.
double compare_cost(const Graph& lowered, std::span<const TensorId> outputs, std::int64_t samples);

}  // namespace sinter
