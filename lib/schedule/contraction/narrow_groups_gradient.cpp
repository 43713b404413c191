#include "schedule/contraction/narrow_groups_gradient.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/narrow_groups.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr int kUnit = 8, kWidth = 16;  // channels; columns of a multiplication
constexpr int kMostGroup = 32;         // channels
// Of all channels as one group. (3 x 3, 64 x 112 x 112 on an H200, us, on the other engines and
// here: 8 channels 49.7 and 16.5, 16 54.7 and 36.4, 24 76.3 and 82.5, 32 76.3 and 120.7, of which
// 56.9 and 57.6 were estimated.)
constexpr int kMostAlone = 16;
constexpr int kMostTiles = 4;  // side by side
constexpr int kMostTaps = 5;   // of a row or a column
constexpr int kMostStages = 8, kLeastStages = 3;
constexpr int kMostRegisters = 200, kOwnRegisters = 48;

double up(double x, double unit) { return std::ceil(x / unit) * unit; }

bool plain(const ImageDim& d) { return d.divisor == 1 && d.pixel == 1 && d.tap == 1; }

// As many pixels as fill 128 bytes with all their channels, where rows are whole numbers of these;
// 1: pixels have lines of their own.
int joined_pixels(const KernelSpec& spec, const NarrowGroupsGradientConfig& e, double channels) {
  constexpr int kLine = 64;  // elements
  const auto all = static_cast<std::int64_t>(channels);
  const ImageDim& across = *e.across;
  const Access& other = spec.ports[static_cast<std::size_t>(e.other.port)].access;
  if (all < kUnit || kLine % all != 0 || across.stride != all ||
      other.stride[across.pixel_index] != all)
    return 1;
  const std::int64_t pixels = kLine / all;
  return across.extent % pixels == 0 && spec.extent[across.pixel_index] % pixels == 0
             ? static_cast<int>(pixels)
             : 1;
}

// Pixels of a line of a box before pixel `first`.
std::int64_t begins_in_line(std::int64_t first, int joined) {
  return first - floor_divide(first, joined) * joined;
}

// The operand's map, of lines of `joined` pixels; its box, of pixels until now, begins at pixel
// `first`.
void join_pixels(DepthwiseOperand& o, int joined, std::int64_t first) {
  TensorMap& map = *o.map;
  map.swizzle = 128;
  map.dim[0] *= joined;
  map.dim[1] /= joined;
  map.stride[0] *= joined;
  map.box[0] *= joined;
  map.box[1] = (begins_in_line(first, joined) + map.box[1] + joined - 1) / joined;
}

// What a thread block does in a row of x and dy.
struct Step {
  int taps, columns_taps, units, tiles;  // units of x that a warp multiplies with its own of dy
  bool narrower;                         // groups are, than a unit

  int row_pairs() const { return (taps + 1) / 2; }
  int column_pairs() const { return (columns_taps + 1) / 2; }
  int registers() const {
    return 4 * units * row_pairs() * columns_taps + 4 * row_pairs() * tiles + kOwnRegisters;
  }
  // Clocks in which an SM with `warps` of them makes a step of each: those of the multiplications,
  // of other instructions, or of what shared memory moves; estimated, and not measured. But for a
  // step's latency, which ten gradients in groups of 8 to 32 channels showed on an H100: 64 x 1024
  // x 14 x 14 in groups of 32 36.6 us (36 estimated, by joined groups 38.8), 64 x 2048 x 7 x 7 41.5
  // (37; 21.1), 32 x 768 x 14 x 14 23.2 (22; 25.8).
  double clocks(double warps, double stage_bytes_of_all) const {
    constexpr double kMma = 6.5, kFixed = 60, kIssued = 0.8;
    const double alone = narrower ? 700 : 340;
    const double products = static_cast<double>(tiles) * units * row_pairs() * columns_taps,
                 loads = static_cast<double>(tiles) * units * column_pairs() + tiles / 2.0,
                 code = (kFixed + products + 3 * loads) / kIssued,
                 moved = 4 * warps * loads + stage_bytes_of_all / 128;
    return std::max({warps / 4 * std::max(products * kMma, code), moved, alone});
  }
};

// Warps of a thread block, and units of its lines in shared memory.
struct Lanes {
  int warps, line_units;
};
// 4 and 8 units are swizzled lines; other numbers lie in all banks where they are odd, so that a
// line of all channels has an empty unit where these are even.
std::vector<Lanes> lanes_for(int all_units, int units_of_group) {
  constexpr int kMost = 20;
  std::vector<Lanes> of;
  if (all_units <= 2) return {{all_units, all_units}};
  for (const int n : {4, 8})
    if (n % units_of_group == 0) of.push_back({n, n});
  for (int blocks = 1; blocks <= all_units; ++blocks) {
    const int each = (all_units + blocks - 1) / blocks,
              n = (each + units_of_group - 1) / units_of_group * units_of_group;
    if (n < 3 || n == 4 || n == 8 || n > kMost || (!of.empty() && of.back().warps == n)) continue;
    if (n % 2 == 1 || blocks == 1) of.push_back({n, n | 1});
  }
  return of;
}

// The engine that `parts`, whose groups are known, suggests.
std::optional<NarrowGroupsGradientConfig> plan_gradient(const KernelSpec& spec,
                                                        const NarrowGroupsGradientConfig& parts,
                                                        double memory, const DeviceModel& device) {
  const auto type = [&](const DepthwiseOperand& o) {
    return spec.ports[static_cast<std::size_t>(o.port)].type;
  };
  const ImageDim &down = *parts.down, &across = *parts.across;
  if (!device.has_tma || !device.has_wgmma || type(parts.image) != type(parts.other) ||
      info(type(parts.image)).bytes != 2 || !plain(down) || !plain(across) ||
      !across.parts.empty() || taps_of(spec, down) > kMostTaps || taps_of(spec, across) > kMostTaps)
    return {};
  NarrowGroupsGradientConfig e = parts;
  const int group = e.groups.channels, units = std::max(1, group / kUnit);
  e.each = std::max(1, kUnit / group);
  e.rows = 1;
  if (!set_map(spec, e, e.image, &e.groups) || !set_map(spec, e, e.other, &e.groups)) return {};
  const ContractionSpec& c = spec.contraction();
  const double channels = static_cast<double>(spec.extent[e.channel]) * group,
               images = elements(spec.extent, c.first_k(), spec.extent.size() - 2),
               batches = elements(spec.extent, 0, e.channel),
               width = std::ceil(static_cast<double>(spec.extent[across.pixel_index]) / kWidth);
  if (channels * images * batches * width == 0) return {};
  // Walks of equal numbers of tiles.
  const double walks = std::ceil(width / kMostTiles), tiles = std::ceil(width / walks);
  const Step step{taps_of(spec, down), taps_of(spec, across), units, static_cast<int>(tiles),
                  group < kUnit};
  if (step.registers() > kMostRegisters) return {};
  // Rows of x that meet rows of dy.
  const bool part = !down.parts.empty();
  const std::int64_t first = part ? down.base : std::max<std::int64_t>(1 - step.taps, down.base),
                     met = down.base + spec.extent[down.pixel_index] + step.taps - 1,
                     rows = std::max<std::int64_t>(
                         0, (part ? met : std::min(down.extent, met)) - first);
  const double steps = images * walks * static_cast<double>(rows);
  e.columns = step.tiles * kWidth;
  e.packing = e.groups.inner >= 0
                  ? choose_packing(spec, e.groups.inner, std::min(2, widest_pack(spec)))
                  : choose_packing(spec, e.channel, 1);
  const int joined = joined_pixels(spec, e, channels);
  const DepthwiseOperand image = e.image, other = e.other;
  std::optional<double> least;
  NarrowGroupsGradientConfig best;
  for (const auto& [lanes, line_units] :
       lanes_for(static_cast<int>(std::ceil(channels / kUnit)), units)) {
    e.lanes = lanes;
    e.threads = 32 * lanes + 32;
    if (step.registers() * e.threads > device.registers_per_sm) continue;
    const bool one = walks == 1;
    const int seen = e.columns + step.columns_taps - 1;
    e.image = image, e.other = other;
    e.joined = lanes * kUnit == static_cast<int>(channels) && line_units == lanes ? joined : 1;
    const auto begins = static_cast<int>(begins_in_line(across.base, e.joined));
    set_box(e.image, line_units, static_cast<int>(up(begins + seen + 1, 8)), seen, across.base,
            one);
    set_box(e.other, line_units, static_cast<int>(up(e.columns, tiles > 1 ? 2 * kWidth : kWidth)),
            e.columns, 0, one);
    if (e.joined > 1) {
      join_pixels(e.image, e.joined, across.base);
      join_pixels(e.other, e.joined, 0);
    }
    const double stage = up(e.image.line * line_units * kUnit * 2.0, 1024) +
                         up(e.other.line * line_units * kUnit * 2.0, 1024),
                 grid = std::ceil(channels / (lanes * kUnit)) * batches;
    for (int stages = kMostStages; stages >= kLeastStages; --stages) {
      const double shared = stages * (stage + 16) + kLostToAlignment;
      if (shared > device.shared_per_cta) continue;
      const double most = std::max(
                       1.0,
                       std::min(
                           std::floor(device.registers_per_sm /
                                      (static_cast<double>(step.registers()) * e.threads)),
                           std::floor(device.shared_per_sm / (shared + device.shared_reserved)))),
                   at_once = most * device.sms, rounds = std::floor(grid / at_once),
                   left = std::ceil((grid - rounds * at_once) / device.sms);
      const auto clocks = [&](double ctas) {
        constexpr double kBegin = 6000;
        const double lines = static_cast<double>(e.image.map->box[1] + e.other.map->box[1]);
        return steps * std::max(step.clocks(ctas * lanes, ctas * stage),
                                ctas * lines * clocks_of_line(line_units * e.joined)) +
               kBegin;
      };
      const double issued = (rounds * clocks(most) + (left > 0 ? clocks(left) : 0)) / device.clock,
                   flight = (stages - 1) * stage * std::clamp(grid / device.sms, 1.0, most),
                   // SMs that have a thread block less than others rest.
          each = grid / device.sms, unlike = std::ceil(each) / each,
                   waited = memory * unlike * std::max(1.0, kFlightOfSm / flight),
                   us = overlapped(waited, issued);
      if (least && *least <= us) continue;
      least = us;
      e.tiles = {.across = step.tiles, .stages = stages};
      e.line_units = line_units;
      e.grid = clamp_grid(grid);
      e.shared_bytes = static_cast<std::uint32_t>(shared);
      e.least_blocks = static_cast<int>(most);
      best = e;
    }
  }
  if (!least) return {};
  best.microseconds = device.launch_microseconds + *least;
  best.wide_index = needs_wide_index(spec);
  return best;
}

}  // namespace

std::optional<NarrowGroupsGradientConfig> plan_units_gradient(const KernelSpec& spec,
                                                              const DepthwiseConfig& parts,
                                                              double memory,
                                                              const DeviceModel& device) {
  if (!parts.gradient || !parts.down || !parts.looped.empty()) return {};
  const NarrowGroupsGradientConfig e{parts};
  return plan_gradient(spec, e, memory, device);
}

std::optional<NarrowGroupsGradientPlan> plan_narrow_groups_gradient(const KernelSpec& given,
                                                                    const DeviceModel& device) {
  if (!device.has_tma || !device.has_wgmma) return {};
  const ContractionSpec* const old = given.as_contraction();
  if (!old || !is_plain_product(*old) || !given.columns.empty() || old->m != 1 || old->n == 0 ||
      old->k() < 2 || reads_joined_indices(given) ||
      !std::all_of(old->k_indices.begin(), old->k_indices.end(),
                   [](KIndex k) { return k == KIndex::pixels; }))
    return {};
  NarrowGroupsGradientPlan plan{given, {}};
  KernelSpec& spec = plan.spec;
  ContractionSpec& c = spec.contraction();
  NarrowGroupsGradientConfig& e = plan.engine;
  e.gradient = true;
  const KernelPort* const image = loaded_port(spec, c.b(), e.image.port);
  const KernelPort* const other = loaded_port(spec, c.a(), e.other.port);
  if (!image || !other || !other->access.windows.empty()) return {};

  // The columns are the channels of a group of the image, which lie together, and taps.
  DepthwiseGroups groups;
  ConvolutionRoles roles;
  groups.outer = c.first_m();
  for (int i = c.first_n(); i < c.first_k(); ++i) {
    if (groups.inner < 0 && image->access.stride[i] == 1)
      groups.inner = i;
    else
      roles.taps.push_back(i);
  }
  if (groups.inner < 0 || spec.extent[groups.inner] > kMostGroup ||
      spec.extent[groups.inner] != spec.extent[groups.outer])
    return {};
  groups.channels = static_cast<int>(spec.extent[groups.inner]);
  if (groups.channels < 2 || (kUnit % groups.channels != 0 && groups.channels % kUnit != 0) ||
      groups.channels == 3 * kUnit)
    return {};
  int found = -1;
  for (int i = 0; i < c.batch; ++i)
    if (image->access.stride[i] == groups.channels && other->access.stride[i] == groups.channels)
      found = i;
  if (found < 0) {
    if (groups.channels < kUnit || groups.channels > kMostAlone) return {};
    // All channels are one group.
    if (image->access.stride[groups.outer] != 0) return {};
    found = c.batch++;
    add_unit_index(spec, found);
    for (const int port : {e.image.port, e.other.port})
      spec.ports[static_cast<std::size_t>(port)].access.stride[found] = groups.channels;
    ++groups.outer, ++groups.inner;
    for (int& tap : roles.taps) ++tap;
  }
  place_groups(spec, found, groups, e, roles);
  for (int i = c.first_k(); i < spec.extent.size(); ++i) roles.pixels.push_back(i);
  roles.pixels_in_k = true;
  int image_index = -1;
  std::int64_t offset = 0;
  const auto dims = image_dims(spec, roles, image->access, image_index, offset);
  if (!dims || dims->size() != 2) return {};
  e.down = dims->front();
  e.across = dims->back();
  if (roles.taps.size() !=
      static_cast<std::size_t>((e.down->tap_index >= 0) + (e.across->tap_index >= 0)))
    return {};
  e.image.offset = image->access.offset + offset;
  e.groups = groups;
  const std::int64_t rows = e.down->parts.empty()
                                ? e.down->extent
                                : spec.extent[e.down->pixel_index] + taps_of(spec, e.down) - 1;
  const double image_elements =
      elements(spec.extent, 0, c.batch) * groups.channels *
      (image_index < 0 ? 1 : static_cast<double>(spec.extent[image_index])) *
      static_cast<double>(rows) * static_cast<double>(e.across->extent);
  const double memory =
      bytes_of(spec, e, image_elements) / (kWindowsReach * device.memory_bandwidth);
  auto engine = plan_gradient(spec, e, memory, device);
  if (!engine) return {};
  e = *std::move(engine);
  return plan;
}

}  // namespace sinter
