#include "schedule/contraction/narrow_groups.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_search.hpp"
#include "schedule/contraction/depthwise_walk.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

constexpr int kUnit = 8, kWarps = 8, kWidth = 16;  // channels, units, pixels of an MMA
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

namespace {

// What the search needs to begin.
bool may_be_narrow_groups(const KernelSpec& spec, const DeviceModel& device) {
  const ContractionSpec* const c = spec.as_contraction();
  return device.has_tma && device.has_wgmma && c && is_plain_product(*c) &&
         spec.cross_row_reductions.empty() && c->batch > 0 && c->n == 1 && c->m >= 2 &&
         !reads_joined_indices(spec);
}

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class NarrowGroupsSearch {
 public:
  NarrowGroupsSearch(const KernelSpec& given, const DeviceModel& device)
      : plan_{given, {}}, device_(device) {}

  std::optional<NarrowGroupsPlan> make() {
    if (!find_groups() || !find_dims() || !find_extents() || !place_tiles()) return {};
    place_results();
    if (!fits()) return {};
    choose_walk();
    return std::move(plan_);
  }

 private:
  NarrowGroupsPlan plan_;
  const DeviceModel& device_;
  KernelSpec& spec_ = plan_.spec;
  NarrowGroupsConfig& e_ = plan_.engine;
  ConvolutionRoles roles_;
  int image_index_ = -1;  // tells images apart
  int down_taps_ = 1, line_taps_ = 1, slots_ = 1, reach_ = 0;
  double planes_ = 0, rows_ = 0, width_ = 0, groups_ = 0;  // of results
  double walks_ = 1, blocks_ = 1, lines_ = 0;  // of a row; of all groups; rows of all planes
  double stage_ = 0, ctas_ = 1;                // bytes; of an SM

  bool find_groups() {
    const ContractionSpec& c = spec_.contraction();
    DepthwiseGroups& groups = e_.groups;
    if (!read_k(spec_, roles_, groups)) return false;
    groups.outer = c.first_n();
    groups.channels =
        static_cast<int>(std::min<std::int64_t>(spec_.extent[groups.inner], kUnit + 1));
    if (groups.channels < 2 || kUnit % groups.channels != 0 ||
        spec_.extent[groups.outer] != groups.channels)
      return false;
    const KernelPort* const image = loaded_port(spec_, c.a(), e_.image.port);
    const KernelPort* const filter = loaded_port(spec_, c.b(), e_.other.port);
    if (!image || !filter || image->type != filter->type || !is_16_bit_float(image->type) ||
        !filter->access.windows.empty())
      return false;
    int found = -1;
    for (int i = 0; i < c.batch; ++i)
      if (image->access.stride[i] == groups.channels && filter->access.stride[i] != 0) found = i;
    if (found < 0) return false;
    place_groups(spec_, found, groups, e_, roles_);
    for (int i = c.first_m(); i < c.first_n(); ++i) roles_.pixels.push_back(i);
    return true;
  }

  bool find_dims() {
    const Access& image = spec_.ports[static_cast<std::size_t>(e_.image.port)].access;
    std::int64_t offset = 0;
    const auto dims = image_dims(spec_, roles_, image, image_index_, offset);
    if (!dims || dims->size() != 2) return false;
    for (const ImageDim& d : *dims)
      if (d.divisor != 1 || d.pixel != 1 || !d.parts.empty()) return false;
    e_.down = dims->front();
    e_.across = dims->back();
    e_.image.offset = image.offset + offset;
    down_taps_ = taps_of(spec_, e_.down);
    line_taps_ = taps_of(spec_, e_.across);
    slots_ = slots_of(spec_, e_.down, 1);
    reach_ = static_cast<int>(std::abs(e_.across->tap)) * (line_taps_ - 1);
    return down_taps_ * ((line_taps_ + 1) / 2 * 2) <= kMostTaps + down_taps_ &&
           slots_ <= kMostSlots &&
           roles_.taps.size() ==
               static_cast<std::size_t>((e_.down->tap_index >= 0) + (e_.across->tap_index >= 0));
  }

  // Planes are what one index counts.
  bool find_extents() {
    if (!set_map(spec_, e_, e_.image, &e_.groups) || e_.image.counted.size() != 1) return false;
    const ContractionSpec& c = spec_.contraction();
    planes_ = elements(spec_.extent, 0, e_.channel) *
              elements(spec_.extent, c.first_m(), c.first_n() - 2);
    rows_ = static_cast<double>(spec_.extent[e_.down->pixel_index]);
    width_ = static_cast<double>(spec_.extent[e_.across->pixel_index]);
    groups_ = static_cast<double>(spec_.extent[e_.channel]);
    return static_cast<double>(spec_.extent[e_.image.counted[0]]) == planes_ &&
           groups_ * rows_ * width_ * planes_ * down_taps_ * line_taps_ != 0;
  }

  // Tiles side by side, as many images as leave no tile unused.
  bool place_tiles() {
    const double tiles = std::ceil(width_ / kWidth);
    walks_ = std::ceil(tiles / kMostTiles);
    const int across = static_cast<int>(std::ceil(tiles / walks_)),
              line = (across * kWidth + reach_ + 7) / 8 * 8;
    if (line > tma::kMostBox) return false;
    e_.groups.planes = kMostTiles / across;
    e_.each = kUnit / e_.groups.channels;
    e_.lanes = kWarps;
    e_.columns = kWidth;
    e_.threads = 32 * kWarps;
    e_.tiles = {.across = across, .stages = kStages};
    const std::int64_t first =
        e_.across->base + std::min<std::int64_t>(0, e_.across->tap * (line_taps_ - 1));
    set_box(e_.image, kWarps, line, across * kWidth + reach_, first, walks_ == 1);
    stage_ = static_cast<double>(e_.groups.planes) * line * kWarps * kUnit * 2;
    blocks_ = std::ceil(groups_ / (kWarps * e_.each));
    lines_ = walks_ * std::ceil(planes_ / e_.groups.planes) * rows_;
    return true;
  }

  void place_results() {
    e_.packing =
        choose_packing(spec_, e_.groups.outer, std::min(e_.groups.channels, widest_pack(spec_)));
    e_.result = result_in_boxes(spec_, e_, false, nullptr, &e_.groups);
    // stmatrix puts them to shared memory.
    if (e_.result && info(e_.result->map->type).bytes != 2) e_.result.reset();
    if (e_.result) set_result_box(*e_.result, kWarps, e_.tiles.across * kWidth, e_.groups.planes);
  }

  bool fits() {
    const int tiles = e_.tiles.across * e_.groups.planes;
    const double results = e_.result
                               ? result_bytes(kWarps, tiles * kWidth)
                               : 2.0 * kStepsBehind * tiles * kWidth * (kWarps * kUnit + 8) * 4,
                 shared =
                     kStages * stage_ + results + 8 * (kStages + kStepsBehind) + kLostToAlignment;
    if (shared > device_.shared_per_cta || blocks_ * lines_ >= 0x1p31) return false;
    ctas_ = kCtas * (shared + device_.shared_reserved) <= device_.shared_per_sm ? kCtas : 1;
    e_.shared_bytes = static_cast<std::uint32_t>(shared);
    e_.least_blocks = static_cast<int>(ctas_);
    return true;
  }

  // Of a step of an SM's thread blocks: instructions, roughly, or what shared memory moves.
  double clocks_of_step() const {
    constexpr double kStep = 60, kTile = 10, kPack = 22;
    const double drawn = e_.tiles.across * e_.groups.planes, pairs = (line_taps_ + 1) / 2,
                 products = drawn * down_taps_ * pairs,
                 packs = drawn * kWidth * kUnit * kWarps / (e_.packing.width * 32.0 * kWarps),
                 code = kStep + drawn * kTile + products +
                        packs * (kPack + element_cost(spec_, spec_.body) * e_.packing.width),
                 moved = drawn * kWarps * (pairs * 4 + 4 + 4) + stage_ / 128;
    return ctas_ * std::max({kWarps / 4 * code / kIssuedByQuarter,
                             kWarps / 4 * products * kClocksOfMma, moved});
  }

  double memory_microseconds() const {
    const double image_elements =
        elements(spec_.extent, 0, spec_.contraction().batch) * e_.groups.channels *
        (image_index_ < 0 ? 1 : static_cast<double>(spec_.extent[image_index_])) *
        static_cast<double>(e_.down->extent) * static_cast<double>(e_.across->extent);
    return bytes_of(spec_, e_, image_elements) / (kWindowsReach * device_.memory_bandwidth) *
           std::max(1.0, kFlightOfSm / ((kStages - 1) * stage_ * ctas_));
  }

  // Thread blocks that begin and end together leave memory idle, those of several rounds do not
  // (128 x 128 x 56 x 56, groups of 4, on an H200: 64.6, 62.2, 60.7 and 61.3 us in one to four
  // rounds), but begin more often (64 x 256 x 28 x 28, groups of 8: 16.7 and 21.1 us in one and
  // two).
  void choose_walk() {
    constexpr int kMostRounds = 4;
    constexpr double kEnds = 0.2, kBefore = 4;
    const double memory = memory_microseconds(), clocks = clocks_of_step(),
                 at_once = ctas_ * device_.sms;
    std::optional<double> least;
    for (int round = 1; round <= kMostRounds; ++round) {
      const double run = std::ceil(lines_ / std::max(1.0, std::floor(round * at_once / blocks_))),
                   grid = blocks_ * std::ceil(lines_ / run), waited = memory * (1 + kEnds / round),
                   issued = std::ceil(grid / at_once) * (run + slots_ + kBefore) * clocks /
                            device_.clock,
                   us = overlapped(waited, issued);
      if (least && *least <= us) continue;
      least = us;
      e_.run = static_cast<int>(run);
      e_.grid = clamp_grid(grid);
    }
    e_.microseconds = device_.launch_microseconds + *least;
    e_.wide_index = needs_wide_index(spec_);
  }
};

}  // namespace

std::optional<NarrowGroupsPlan> plan_narrow_groups(const KernelSpec& spec,
                                                   const DeviceModel& device) {
  if (!may_be_narrow_groups(spec, device)) return {};
  return NarrowGroupsSearch(spec, device).make();
}

}  // namespace sinter
