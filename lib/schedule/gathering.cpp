#include "schedule/gathering.hpp"

#include <algorithm>
#include <cmath>

#include "schedule/packing.hpp"
#include "schedule/schedule_parts.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kLongestLine = 32;  // elements that a thread holds of one

const ResampleAttributes& attributes(const Gather& g) {
  return std::get<ResampleAttributes>(g.attributes);
}
ResampleMode mode_of(const Gather& g) { return attributes(g).mode.value_or(ResampleMode::maxpool); }
bool forward(const Gather& g) { return g.op == OpKind::resample; }

shapes::ResampleGeometry geometry_of(const Gather& g) {
  return shapes::resample_geometry(attributes(g), g.output_dim.size());
}

// Neighbours along the last spatial axis, and what they read of a line of the operand.
struct Line {
  std::int64_t span = 0;   // from where some start to where the next do; 0: not a whole number
  std::int64_t count = 0;  // elements that they read
};
Line line_of(const Gather& g, int width) {
  const int last = g.output_dim.size() - 1;
  const std::int64_t n = g.output_dim[last], m = g.dims[0][last];
  const auto geometry = geometry_of(g);
  const std::int64_t window = geometry.window[last - 2], step = geometry.stride[last - 2];
  if (!shapes::is_pooling(mode_of(g))) {
    if (n == 0 || width * m % n != 0) return {};
    return {width * m / n, width * m / n + 2 * (forward(g) ? 1 : m / n + 1)};
  }
  if (forward(g)) return {width * step, (width - 1) * step + window};
  const bool edge = geometry.padding == PaddingMode::edge_val_pad &&
                    mode_of(g) != ResampleMode::avgpool_exclude_padding;
  if (edge || width % step != 0) return {};
  return {width / step, (width + window) / step + 2};
}

// How many places an element reads, as codegen/device/gather counts them.
double places(const Gather& g) {
  const auto geometry = geometry_of(g);
  const bool edge = geometry.padding == PaddingMode::edge_val_pad;
  double n = 1;
  for (int d = 0; d < geometry.spatial; ++d) {
    const double to = static_cast<double>(g.output_dim[d + 2]),
                 from = static_cast<double>(g.dims[0][d + 2]),
                 window = static_cast<double>(geometry.window[d]);
    if (!shapes::is_pooling(mode_of(g))) {
      const int two = mode_of(g) == ResampleMode::bilinear ? 2 : 1;
      n *= forward(g) ? two : std::ceil(two * from / std::max(to, 1.0));
    } else if (forward(g)) {
      n *= window;
    } else {
      n *= edge ? from : std::ceil(window / static_cast<double>(geometry.stride[d]));
    }
  }
  return n;
}

}  // namespace

bool reads_operand(const Gather& g, int operand) {
  if (g.ports[static_cast<std::size_t>(operand)] < 0) return false;
  if (g.op != OpKind::resample_backward) return true;
  return operand == 0 || (operand == 3 && mode_of(g) == ResampleMode::maxpool);
}

DataType arithmetic_of(const KernelSpec& spec, int gather) {
  for (const auto& s : spec.body.statements)
    if (s.kind == StatementKind::gather && s.gather == gather) return s.arithmetic;
  return DataType::f32;
}

int gathered_with(const KernelSpec& spec, int i) {
  const Gather& g = spec.gathers[static_cast<std::size_t>(i)];
  for (int j = 0; j < i; ++j) {
    const Gather& other = spec.gathers[static_cast<std::size_t>(j)];
    if (other.op == g.op && other.attributes == g.attributes && other.ports == g.ports &&
        other.dims == g.dims && other.strides == g.strides &&
        arithmetic_of(spec, j) == arithmetic_of(spec, i))
      return j;
  }
  return i;
}

bool wants_positions(const KernelSpec& spec, int gather) {
  for (std::size_t i = 0; i < spec.gathers.size(); ++i)
    if (spec.gathers[i].op == OpKind::resample && spec.gathers[i].output == 1 &&
        gathered_with(spec, static_cast<int>(i)) == gathered_with(spec, gather))
      return true;
  return false;
}

int node_dim(const Gather& g, int index) {
  int dim = 0;
  while (dim + 1 < g.output_dim.size() && g.index(dim) != index) ++dim;
  return dim;
}

bool gathers_together(const KernelSpec& spec, const Gather& g, int index, int width) {
  if (width == 1) return true;
  const int dim = node_dim(g, index);
  const int bytes = info(spec.ports[static_cast<std::size_t>(g.ports[0])].type).bytes;
  if (dim < 2) return g.strides[0][dim] == 1 && width * bytes <= kMoveBytes;
  const Line line = line_of(g, width);
  return dim == g.output_dim.size() - 1 && line.span > 0 && line.span * bytes <= kMoveBytes &&
         line.count <= kLongestLine;
}

int gather_alignment(const KernelSpec& spec, const Gather& g, int operand, int index, int width) {
  const auto i = static_cast<std::size_t>(operand);
  const KernelPort& p = spec.ports[static_cast<std::size_t>(g.ports[i])];
  const int dim = node_dim(g, index), bytes = info(p.type).bytes;
  if (width == 1 || g.strides[i][dim] != 1) return 1;
  const bool edge = dim >= 2 && geometry_of(g).padding == PaddingMode::edge_val_pad;
  if (edge) return 1;
  const std::int64_t span = dim < 2 ? width : line_of(g, width).span;
  const auto fits = [&](std::int64_t n) {
    if (n * bytes > kMoveBytes || n * bytes > p.alignment || span % n != 0) return false;
    if (p.access.offset % n != 0 || g.dims[i][dim] % n != 0) return false;
    for (int d = 0; d < g.dims[i].size(); ++d)
      if (d != dim && g.dims[i][d] > 1 && g.strides[i][d] % n != 0) return false;
    return true;
  };
  int n = 1;
  while (fits(2 * n)) n *= 2;
  return n;
}

int gathered_bytes(const KernelSpec& spec, const Gather& g, int width) {
  int bytes = 0;
  for (std::size_t i = 0; i < g.ports.size(); ++i)
    if (reads_operand(g, static_cast<int>(i)))
      bytes += info(spec.ports[static_cast<std::size_t>(g.ports[i])].type).bytes;
  return static_cast<int>(std::min<double>(places(g), kWrittenOut)) * width * bytes;
}

double resampled_bytes(const KernelSpec& spec) {
  const double results = elements(spec.extent, 0, spec.extent.size());
  double bytes = 0;
  for (std::size_t n = 0; n < spec.gathers.size(); ++n) {
    const Gather& g = spec.gathers[n];
    if (!g.resamples() || gathered_with(spec, static_cast<int>(n)) != static_cast<int>(n)) continue;
    for (std::size_t i = 0; i < g.ports.size(); ++i)
      if (reads_operand(g, static_cast<int>(i)))
        bytes += std::min(elements(g.dims[i], 0, g.dims[i].size()), results * places(g)) *
                 info(spec.ports[static_cast<std::size_t>(g.ports[i])].type).bytes;
  }
  return bytes;
}

int gather_cost(const KernelSpec& spec, int gather) {
  constexpr int kOther = 100;  // of gathers that know no packs
  const Gather& g = spec.gathers[static_cast<std::size_t>(gather)];
  if (!g.resamples()) return kOther;
  if (gathered_with(spec, gather) != gather) return 1;
  const int each = wants_positions(spec, gather) || !forward(g) ? 5 : 3;
  return 4 + each * static_cast<int>(std::min<double>(places(g), kWrittenOut));
}

}  // namespace sinter
