// Convolutions of images at sizes that models have, and what the planner makes of them for sm_90a.
#pragma once
#include <string>
#include <vector>

#include "planner/planned.hpp"
#include "planner/rewrite/pass.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/operations.hpp"

namespace sinter::test {

inline Dims channels_last(const Dims& d) {
  Dims stride = Dims::filled(d.size(), 1);
  std::int64_t n = d[1];
  for (int i = d.size() - 1; i >= 2; --i) stride[i] = n, n *= d[i];
  stride[0] = n;
  return stride;
}

// One convolution's tensors; `last`: channels are contiguous.
struct Images {
  GraphOptions options{.io = bf16};
  bool last = true;
  Shared<Graph> g = Shared<Graph>::make(options);

  Tensor input(const char* name, Dims dim) const {
    return g->tensor({.name = name, .dim = dim, .stride = last ? channels_last(dim) : Dims{}});
  }
  void output(const Tensor& t, const char* name, const Dims& dim,
              DataType type = DataType::none) const {
    g->output(t, name, {.stride = last ? channels_last(dim) : Dims{}, .data_type = type});
  }
};

inline ConvAttributes padded(std::int64_t by, std::int64_t stride = 1, std::int64_t groups = 1) {
  return {.pre_padding = {by, by},
          .post_padding = {by, by},
          .stride = {stride, stride},
          .groups = groups};
}

inline Partition planned(Graph& g) {
  REQUIRE(g.check().empty());
  const Lowered l = rewritten(lower(g), device_model("sm_90a"));
  return partition(*l.graph, true, "sm_90a", l.regions);
}

// What runs each kernel, in order.
inline std::vector<std::string> engines(Graph& g) {
  std::vector<std::string> names;
  for (const KernelSpec& spec : planned(g).kernels) {
    const ScheduledKernel k = schedule_kernel(spec, device_model("sm_90a"), {});
    names.push_back(k.wgmma()        ? "wgmma"
                    : k.image_rows() ? "image_rows"
                    : k.depthwise()  ? "depthwise"
                    : k.mma()        ? k.mma()->cuda_cores() ? "fma" : "mma"
                    : k.pointwise()  ? "pointwise"
                    : k.rowwise()    ? "rowwise"
                                     : "?");
  }
  return names;
}
using Engines = std::vector<std::string>;

}  // namespace sinter::test
