// The largest of a wide window is the largest of its lines' largest.
//
//     x -> maxpool 13 x 13  =>  x -> maxpool 1 x 13 -> maxpool 13 x 1
#include <algorithm>

#include "planner/rewrite/pass.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

// What pooling takes: loads, or the bytes that memory moves. (Windows of 13 x 13 over 32 x 256 x 20
// x 20 bf16 on an H200: 29.3 us, 12.3 as lines of 13 and lines of 13.)
double microseconds(double loads, double elements, int bytes, const DeviceModel& device) {
  constexpr double kLoads = 90;  // of an SM in a clock
  return device.kernel_microseconds() + std::max(loads / (kLoads * device.sms * device.clock),
                                                 elements * bytes / device.memory_bandwidth);
}

double elements(const Dims& dim) {
  double n = 1;
  for (const std::int64_t d : dim) n *= static_cast<double>(d);
  return n;
}

bool separate_windows(MovedViews& views, NodeId id) {
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const auto& a = std::get<ResampleAttributes>(n.attributes);
  const TensorId x = n.inputs[0], y = n.outputs[0];
  const bool positions = n.outputs.size() > 1 && n.outputs[1] >= 0;
  const shapes::ResampleGeometry of = shapes::resample_geometry(a, g[x].dim.size());
  const int last = of.spatial - 1;
  if (a.mode.value_or(ResampleMode::nearest) != ResampleMode::maxpool || positions ||
      of.padding != PaddingMode::neg_inf_pad || g.in_region(id) || last < 1 || of.window[last] < 2)
    return false;
  Dims between = g[x].dim;
  between[2 + last] = g[y].dim[2 + last];
  double others = 1;
  for (int i = 0; i < last; ++i) others *= static_cast<double>(of.window[i]);
  const double wide = static_cast<double>(of.window[last]), in = elements(g[x].dim),
               middle = elements(between), out = elements(g[y].dim);
  const int bytes = info(g.type(x)).bytes;
  const DeviceModel& device = views.device;
  constexpr double kGain = 1.25;  // at least, by the estimates
  if (microseconds(out * others * wide, in + out, bytes, device) <
      kGain * (microseconds(middle * wide, in + middle, bytes, device) +
               microseconds(out * others, middle + out, bytes, device)))
    return false;
  // One line of the window, and then what is left of it.
  ResampleAttributes line = a, rest = a;
  line.window = of.window, line.stride = of.stride;
  line.pre_padding = of.pre, line.post_padding = of.post;
  rest.window = of.window, rest.stride = of.stride;
  rest.pre_padding = of.pre, rest.post_padding = of.post;
  for (int i = 0; i < last; ++i) {
    line.window[i] = line.stride[i] = 1;
    line.pre_padding[i] = line.post_padding[i] = 0;
  }
  rest.window[last] = rest.stride[last] = 1;
  rest.pre_padding[last] = rest.post_padding[last] = 0;
  const TensorId lines = g.tensor_like(x, between, g.type(x), "_lines");
  // Its dims lie in the order of those that it is made of.
  if (const auto place = g.location(x)) {
    std::vector<int> order;
    for (int i = between.size() - 1; i >= 0; --i) order.push_back(i);
    std::ranges::stable_sort(order, {}, [&](int i) { return place->stride[i]; });
    g.set_stride(lines, packed_in(order, between));
  }
  g.make(lines, n.op, line, {x}, id);
  g.make(y, n.op, rest, {lines}, id);
  return true;
}

}  // namespace

extern constinit const Pass separate_windows_pass{
    "separate_windows",
    "The largest of a window of two dims is the largest, along one, of the largest along the "
    "other: where windows overlap, far fewer elements are read.",
    [](OpKind op) { return op == OpKind::resample; }, separate_windows};

}  // namespace sinter
