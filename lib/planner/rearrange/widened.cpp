#include "planner/rearrange/widened.hpp"

#include "plan/access.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Elements from the first that the port reaches to the last; 0 where there are many that it does
// not reach.
std::int64_t span_of(const KernelSpec& spec, const Access& a) {
  constexpr double kMostGaps = 1.1;
  std::int64_t last = 0;
  for (int i = 0; i < a.stride.size(); ++i) {
    if (a.stride[i] < 0) return 0;
    last += a.stride[i] * (spec.extent[i] - 1);
  }
  double reached = 1;
  for (int i = 0; i < a.stride.size(); ++i)
    if (a.stride[i] > 0) reached *= static_cast<double>(spec.extent[i]);
  for (const Window& w : a.windows) {
    if (w.stride < 0) return 0;
    last += w.stride * (w.extent - 1);
    reached *= static_cast<double>(w.extent);
  }
  return static_cast<double>(last + 1) > kMostGaps * reached ? 0 : last + 1;
}

}  // namespace

std::vector<KernelSpec> widened(const KernelSpec& given, Temporaries& temporaries) {
  const ContractionSpec* const c = given.as_contraction();
  if (!c || !is_single_product(*c) || c->marked_zeros || reads_joined_indices(given)) return {};
  KernelSpec spec = given;
  sum_in_f32(spec);
  std::vector<KernelSpec> kernels;
  std::vector<DataType> types;
  for (ProductOperand* const operand : {&spec.contraction().a(), &spec.contraction().b()}) {
    const KernelPort* const port = loaded_as_it_is(given, operand->body);
    if (!port || !multiplied_as_bytes(port->type, port->type) || !port->access.via.empty())
      return {};
    const std::int64_t count = span_of(given, port->access);
    if (count == 0) return {};
    KernelPort load = *port, written;
    load.access = {{1}, port->access.offset, {}, {}};
    KernelSpec copy = copy_kernel(given, load, {count}, port->name + "_bf16", temporaries, written,
                                  {}, DataType::bf16);
    Access read = port->access;
    read.offset = 0;
    read_instead(spec, *operand, written, std::move(read));
    operand->type = DataType::bf16;
    types.push_back(port->type);
    kernels.push_back(std::move(copy));
  }
  if (!sums_as_right_in_f32(given, types[0], types[1])) return {};
  drop_unused(spec);
  simplify_domain(spec);
  kernels.push_back(std::move(spec));
  return kernels;
}

}  // namespace sinter
