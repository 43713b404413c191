#include "schedule/contraction/narrow_groups.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_walk.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr int kUnit = 8, kWarps = 8, kWidth = 16;  // channels, units, pixels of a multiplication
constexpr int kMostTiles = 4;                      // of a row, or of rows of several images
constexpr int kMostTaps = 9, kMostSlots = 5;       // that leave registers for two thread blocks
constexpr int kStages = 6;
constexpr double kCtas = 2;  // of an SM, by registers and shared memory

// Indices of k: taps, and the channels of a group.
bool read_k(const KernelSpec& spec, ConvolutionRoles& roles, DepthwiseGroups& groups) {
  const ContractionSpec& c = spec.contraction();
  for (int i = 0; i < c.k(); ++i) {
    const KIndex what = c.k_indices[static_cast<std::size_t>(i)];
    if (what == KIndex::filter_tap) {
      roles.taps.push_back(c.first_k() + i);
    } else if (what == KIndex::channels && groups.inner < 0) {
      groups.inner = c.first_k() + i;
    } else {
      return false;
    }
  }
  return groups.inner >= 0;
}

}  // namespace

void place_groups(KernelSpec& spec, int group, const DepthwiseGroups& groups, DepthwiseConfig& e,
                  ConvolutionRoles& roles) {
  put_channel_last(spec, group);
  e.channel = spec.contraction().batch - 1;
  for (int i = 0; i < e.channel; ++i) roles.batch.push_back(i);
  roles.channels = {e.channel, groups.inner};
  roles.side = {groups.outer};
}

std::optional<NarrowGroupsPlan> plan_narrow_groups(const KernelSpec& given,
                                                   const DeviceModel& device) {
  if (!device.has_tma || !device.has_wgmma) return {};
  const ContractionSpec* const old = given.as_contraction();
  if (!old || !is_plain_product(*old) || !given.columns.empty() || old->batch == 0 || old->n != 1 ||
      old->m < 2 || reads_joined_indices(given))
    return {};
  NarrowGroupsPlan plan{given, {}};
  KernelSpec& spec = plan.spec;
  const ContractionSpec& c = spec.contraction();
  NarrowGroupsConfig& e = plan.engine;
  DepthwiseGroups& groups = e.groups;
  ConvolutionRoles roles;
  if (!read_k(spec, roles, groups)) return {};
  groups.outer = c.first_n();
  groups.channels = static_cast<int>(std::min<std::int64_t>(spec.extent[groups.inner], kUnit + 1));
  if (groups.channels < 2 || kUnit % groups.channels != 0 ||
      spec.extent[groups.outer] != groups.channels)
    return {};
  const KernelPort* const image = loaded_port(spec, c.a(), e.image.port);
  const KernelPort* const filter = loaded_port(spec, c.b(), e.other.port);
  if (!image || !filter || image->type != filter->type || !is_16_bit_float(image->type) ||
      !filter->access.windows.empty())
    return {};
  int found = -1;
  for (int i = 0; i < c.batch; ++i)
    if (image->access.stride[i] == groups.channels && filter->access.stride[i] != 0) found = i;
  if (found < 0) return {};
  place_groups(spec, found, groups, e, roles);
  for (int i = c.first_m(); i < c.first_n(); ++i) roles.pixels.push_back(i);
  int image_index = -1;
  std::int64_t offset = 0;
  const auto dims = image_dims(spec, roles, image->access, image_index, offset);
  if (!dims || dims->size() != 2) return {};
  for (const ImageDim& d : *dims)
    if (d.divisor != 1 || d.pixel != 1 || !d.parts.empty()) return {};
  e.down = dims->front();
  e.across = dims->back();
  e.image.offset = image->access.offset + offset;
  const int down_taps = taps_of(spec, e.down), line_taps = taps_of(spec, e.across),
            slots = slots_of(spec, e.down, 1),
            reach = static_cast<int>(std::abs(e.across->tap)) * (line_taps - 1);
  if (down_taps * ((line_taps + 1) / 2 * 2) > kMostTaps + down_taps || slots > kMostSlots ||
      roles.taps.size() !=
          static_cast<std::size_t>((e.down->tap_index >= 0) + (e.across->tap_index >= 0)))
    return {};
  if (!set_map(spec, e, e.image, &groups) || e.image.counted.size() != 1) return {};
  const double planes = elements(spec.extent, 0, e.channel) *
                        elements(spec.extent, c.first_m(), c.first_n() - 2),
               rows = static_cast<double>(spec.extent[e.down->pixel_index]),
               width = static_cast<double>(spec.extent[e.across->pixel_index]),
               number = static_cast<double>(spec.extent[e.channel]);
  if (static_cast<double>(spec.extent[e.image.counted[0]]) != planes ||
      number * rows * width * planes * down_taps * line_taps == 0)
    return {};

  // Tiles side by side, as many images as leave no tile unused.
  const double tiles = std::ceil(width / kWidth), walks = std::ceil(tiles / kMostTiles);
  const int across = static_cast<int>(std::ceil(tiles / walks)), images = kMostTiles / across,
            line = (across * kWidth + reach + 7) / 8 * 8;
  if (line > tma::kMostBox) return {};
  groups.planes = images;
  e.each = kUnit / groups.channels;
  e.lanes = kWarps;
  e.columns = kWidth;
  e.threads = 32 * kWarps;
  e.tiles = {.across = across, .stages = kStages};
  const std::int64_t first =
      e.across->base + std::min<std::int64_t>(0, e.across->tap * (line_taps - 1));
  set_box(e.image, kWarps, line, across * kWidth + reach, first, walks == 1);
  e.packing = choose_packing(spec, groups.outer, std::min(groups.channels, widest_pack(spec)));
  // stmatrix puts them to shared memory.
  if ((e.result = result_in_boxes(spec, e, false, nullptr, &groups)) &&
      info(e.result->map->type).bytes != 2)
    e.result.reset();
  if (e.result) set_result_box(*e.result, kWarps, across * kWidth, images);
  const double blocks = std::ceil(number / (kWarps * e.each)),
               lines = walks * std::ceil(planes / images) * rows;
  const double stage = static_cast<double>(images) * line * kWarps * kUnit * 2,
               results = e.result ? result_bytes(kWarps, across * images * kWidth)
                                  : 2.0 * kStepsBehind * across * images * kWidth *
                                        (kWarps * kUnit + 8) * 4;
  const double shared = kStages * stage + results + 8 * (kStages + kStepsBehind) + kLostToAlignment;
  if (shared > device.shared_per_cta || blocks * lines >= 0x1p31) return {};
  const double ctas = kCtas * (shared + device.shared_reserved) <= device.shared_per_sm ? kCtas : 1,
               at_once = ctas * device.sms;

  // Clocks of a step of a thread block: instructions, roughly, or what shared memory moves.
  constexpr double kStep = 60, kTile = 10, kMma = 6.5, kPack = 22, kIssued = 0.8, kBefore = 4;
  const double drawn = across * images, pairs = (line_taps + 1) / 2,
               products = drawn * down_taps * pairs,
               packs = drawn * kWidth * kUnit * kWarps / (e.packing.width * 32.0 * kWarps),
               code = kStep + drawn * kTile + products +
                      packs * (kPack + element_cost(spec, spec.body) * e.packing.width),
               moved = drawn * kWarps * (pairs * 4 + 4 + 4) + stage / 128;
  const double clocks =
      ctas * std::max({kWarps / 4 * code / kIssued, kWarps / 4 * products * kMma, moved});
  const double image_elements =
      elements(spec.extent, 0, c.batch) * groups.channels *
      (image_index < 0 ? 1 : static_cast<double>(spec.extent[image_index])) *
      static_cast<double>(e.down->extent) * static_cast<double>(e.across->extent);
  const double memory = bytes_of(spec, e, image_elements) /
                        (kWindowsReach * device.memory_bandwidth) *
                        std::max(1.0, kFlightOfSm / ((kStages - 1) * stage * ctas));
  // Thread blocks that begin and end together leave memory idle, those of several rounds do not
  // (128 x 128 x 56 x 56, groups of 4, on an H200: 64.6, 62.2, 60.7 and 61.3 us in one to four
  // rounds), but begin more often (64 x 256 x 28 x 28, groups of 8: 16.7 and 21.1 us in one and
  // two).
  constexpr int kMostRounds = 4;
  constexpr double kEnds = 0.2;
  std::optional<double> least;
  for (int round = 1; round <= kMostRounds; ++round) {
    const double run = std::ceil(lines / std::max(1.0, std::floor(round * at_once / blocks))),
                 grid = blocks * std::ceil(lines / run), waited = memory * (1 + kEnds / round),
                 issued =
                     std::ceil(grid / at_once) * (run + slots + kBefore) * clocks / device.clock,
                 us = overlapped(waited, issued);
    if (least && *least <= us) continue;
    least = us;
    e.run = static_cast<int>(run);
    e.grid = clamp_grid(grid);
  }
  e.microseconds = device.launch_microseconds + *least;
  e.shared_bytes = static_cast<std::uint32_t>(shared);
  e.least_blocks = static_cast<int>(ctas);
  e.wide_index = needs_wide_index(spec);
  return plan;
}

}  // namespace sinter
