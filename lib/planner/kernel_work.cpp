#include "planner/kernel_work.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "plan/access.hpp"
#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"

namespace sinter {

std::vector<Traffic> compulsory_traffic(const Graph& lowered, const KernelSpec& spec) {
  // Ports of one tensor show different parts of it, or all of it more than once.
  struct Touched {
    std::int64_t elements = 0;
    int bytes = 0;
  };
  std::map<std::pair<TensorId, bool>, Touched> tensors;
  const ContractionSpec* const c = spec.as_contraction();
  for (const auto& p : spec.ports) {
    std::int64_t elements = std::numeric_limits<std::int64_t>::max(),  // of a temporary
        touched = p.together * elements_reached(spec.extent, p.access);
    if (p.tensor < static_cast<TensorId>(lowered.tensors().size())) {
      const Dims& dim = lowered[p.tensor].dim;
      const Dims stride = lowered.stride(p.tensor);
      elements = 1;
      for (int i = 0; i < dim.size(); ++i) elements *= stride[i] != 0 ? dim[i] : 1;
      if (!spec.gathers.empty() || (c && c->rows.on)) touched = elements;
    }
    Touched& t = tensors[{p.tensor, p.written}];
    const std::int64_t room = elements - t.elements;
    t.elements += std::min(room, touched);
    t.bytes = info(p.type).bytes;
  }
  std::vector<Traffic> traffic;
  for (const auto& [key, t] : tensors)
    traffic.push_back({key.first, key.second, t.elements * t.bytes});
  return traffic;
}

namespace {

// Both products, of what the band leaves.
double operations(const AttentionSpec&, const KernelSpec& spec) {
  const auto extent = [&](int i) { return static_cast<double>(spec.extent[i]); };
  return 2.0 * static_cast<double>(count(spec.extent, 0, AttentionSpec::e)) * keys_of_a_row(spec) *
         (extent(AttentionSpec::d) + extent(AttentionSpec::e));
}
double operations(const AttentionBackwardSpec&, const KernelSpec& spec) {
  return 2.0 * static_cast<double>(count(spec.extent, 0, AttentionBackwardSpec::n)) *
         static_cast<double>(depths_multiplied(spec)) * keys_of_a_row(spec);
}
double operations(const ContractionSpec& c, const KernelSpec& spec) {
  if (c.chained()) {  // columns of the first product are the second one's k
    const auto extent = [&](int i) { return static_cast<double>(spec.extent[i]); };
    const int k = c.first_k();
    return 2.0 * static_cast<double>(count(spec.extent, 0, c.first_n())) * extent(k) *
           (extent(k + 1) + extent(k - 1));
  }
  double n = 2.0 * static_cast<double>(c.products.size());
  for (int i = c.rows.on ? c.batch : 0; i < spec.extent.size(); ++i)
    n *= static_cast<double>(spec.extent[i]);
  return n;
}
double operations(const auto&, const KernelSpec&) { return 0; }

}  // namespace

double operations(const KernelSpec& spec) {
  return std::visit([&](const auto& family) { return operations(family, spec); }, spec.family);
}

}  // namespace sinter
