#include "schedule/contraction/depthwise_boxes.hpp"

#include <algorithm>
#include <utility>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"

namespace sinter {
namespace {

using tma::kUnit, tma::kMostDims;

}  // namespace

bool set_map(const KernelSpec& spec, const DepthwiseConfig& parts, DepthwiseOperand& operand,
             const DepthwiseGroups* groups) {
  const KernelPort& p = spec.ports[static_cast<std::size_t>(operand.port)];
  const Access& a = p.access;
  const std::int64_t bytes = info(p.type).bytes;
  const bool image = operand.port == parts.image.port;
  const ImageDim &down = *parts.down, &across = *parts.across;
  TensorMap map;
  map.type = p.type;
  map.offset = (image ? operand.offset : a.offset) * bytes;
  // Channels of groups lie together, group by group.
  const std::int64_t together = groups ? groups->channels : 1;
  const int own = !groups ? -1 : image ? groups->inner : groups->outer;  // -1: one channel a group
  if (p.alignment < kUnit || map.offset < 0 || map.offset % kUnit != 0 || !a.via.empty() ||
      a.stride[parts.channel] != together || (own >= 0 && a.stride[own] != 1))
    return false;
  operand.counted.clear();
  map.dim = {spec.extent[parts.channel] * together};
  const auto add = [&](std::int64_t extent, std::int64_t stride) {
    map.dim.push_back(extent);
    map.stride.push_back(stride * bytes);
  };
  for (const ImageDim* d : {&across, &down})
    if (d->pixel_index < 0)  // one row, wherever the next one would lie
      add(1, map.dim.back() * map.stride.back() / bytes);
    else if (image)
      add(d->extent, d->stride);
    else
      add(spec.extent[d->pixel_index], a.stride[d->pixel_index]);
  for (int i = 0; i < spec.extent.size(); ++i) {
    const auto frames =
        std::find_if(parts.looped.begin(), parts.looped.end(),
                     [&](const ImageDim& d) { return d.pixel_index == i || d.tap_index == i; });
    const bool frame = frames != parts.looped.end() && frames->pixel_index == i;
    if (i == parts.channel || i == own || i == down.pixel_index || i == down.tap_index ||
        i == across.pixel_index || i == across.tap_index ||
        (frames == parts.looped.end() ? a.stride[i] == 0 : !frame))
      continue;
    if (map.dim.size() == kMostDims) return false;
    operand.counted.push_back(i);
    if (frame && image)
      add(frames->extent, frames->stride);
    else
      add(spec.extent[i], a.stride[i]);
  }
  for (std::int64_t stride : map.stride)
    if (!tma::takes_step(stride)) return false;
  operand.map = std::move(map);
  return true;
}

std::int64_t box_pixels(const DepthwiseOperand& operand, int needed, std::int64_t first,
                        bool one_tile) {
  if (!one_tile) return needed;
  return std::clamp<std::int64_t>(operand.map->dim[1] - first, 1, needed);
}

void set_box(DepthwiseOperand& operand, int lanes, int line, int needed, std::int64_t first,
             bool one_tile) {
  TensorMap& map = *operand.map;
  operand.line = line;
  map.swizzle = lanes == 2 || lanes == 4 || lanes == 8 ? lanes * static_cast<int>(kUnit) : 0;
  map.box = Dims::filled(map.dim.size(), 1);
  map.box[0] = lanes * kUnit / info(map.type).bytes;
  map.box[1] = box_pixels(operand, needed, first, one_tile);
}

namespace {

// Whether the port's element is the same for all results of a channel.
bool is_of_channel(const KernelSpec& spec, int port, int channel) {
  const Access& a = spec.ports[static_cast<std::size_t>(port)].access;
  if (!a.windows.empty() || !a.via.empty()) return false;
  for (int i = 0; i < a.stride.size(); ++i)
    if (i != channel && a.stride[i] != 0 && spec.extent[i] != 1) return false;
  return true;
}

}  // namespace

std::optional<DepthwiseOperand> result_in_boxes(const KernelSpec& spec,
                                                const DepthwiseConfig& parts, bool loads,
                                                std::vector<DepthwiseOperand>* beside,
                                                const DepthwiseGroups* groups) {
  DepthwiseOperand result;
  std::vector<DepthwiseOperand> read;
  for (const Statement& s : spec.body.statements) {
    if (is_load(s) && !(loads && is_of_channel(spec, s.port, parts.channel))) {
      if (!beside) return {};
      if (std::none_of(read.begin(), read.end(),
                       [&](const DepthwiseOperand& o) { return o.port == s.port; }))
        read.emplace_back().port = s.port;
    }
    if (s.kind == StatementKind::random || s.kind == StatementKind::gather ||
        s.kind == StatementKind::index || s.kind == StatementKind::inside)
      return {};
    if (!is_store(s)) continue;
    if (result.port >= 0) return {};
    result.port = s.port;
  }
  if (result.port < 0 || read.size() > kMostBeside) return {};
  const auto port = [&](const DepthwiseOperand& o) -> const KernelPort& {
    return spec.ports[static_cast<std::size_t>(o.port)];
  };
  const auto fits = [&](DepthwiseOperand& o) {
    return port(o).access.windows.empty() && set_map(spec, parts, o, groups) &&
           o.counted == parts.image.counted &&
           o.map->dim[0] * info(port(o).type).bytes % kUnit == 0;
  };
  if (!fits(result)) return {};
  bool taken = false;
  for (DepthwiseOperand& o : read) {
    if (!fits(o) || o.map->dim != result.map->dim) return {};
    o.in_place = !taken && info(port(o).type).bytes == info(port(result).type).bytes;
    taken |= o.in_place;
  }
  if (beside) *beside = std::move(read);
  return result;
}

void set_result_box(DepthwiseOperand& result, int lanes, int pixels, int planes) {
  TensorMap& map = *result.map;
  map.swizzle = lanes * static_cast<int>(kUnit);
  map.box = Dims::filled(map.dim.size(), 1);
  map.box[0] = map.swizzle / info(map.type).bytes;
  map.box[1] = pixels;
  map.box[3] = planes;
}

int result_bytes(int lanes, int pixels) {
  constexpr int kRows = 2 * kStepsBehind + 1, kAligned = 1024;
  return kRows * ((pixels * lanes * static_cast<int>(kUnit) + kAligned - 1) / kAligned * kAligned);
}

int line_of_box(int pixels) { return (pixels + 3) / 8 * 8 + 4; }

}  // namespace sinter
