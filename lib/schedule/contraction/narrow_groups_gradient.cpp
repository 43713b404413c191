#include "schedule/contraction/narrow_groups_gradient.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/contraction/depthwise_boxes.hpp"
#include "schedule/contraction/depthwise_search.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/narrow_groups.hpp"

namespace sinter {
namespace {

constexpr int kUnit = 8, kWidth = 16;  // channels; columns of an MMA
constexpr int kMostGroup = 32;         // channels
// Of all channels as one group by mma. (3 x 3, 64 x 112 x 112 on an H200, us, on the other engines
// and here: 8 channels 49.7 and 16.5, 16 54.7 and 36.4, 24 76.3 and 82.5, 32 76.3 and 120.7, of
// which 56.9 and 57.6 were estimated.)
constexpr int kMostAlone = 16;
constexpr int kMostTiles = 4;  // side by side
constexpr int kMostTaps = 5;   // of a row or a column
constexpr int kMostStages = 8, kLeastStages = 3;
constexpr int kMostRegisters = 200, kOwnRegisters = 48;

double up(double x, double unit) { return std::ceil(x / unit) * unit; }

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
  // Clocks in which an SM with `warps` of them makes a step of each: those of the MMAs,
  // of other instructions, or of what shared memory moves; estimated, and not measured. But for a
  // step's latency, which ten gradients in groups of 8 to 32 channels showed on an H100: 64 x 1024
  // x 14 x 14 in groups of 32 36.6 us (36 estimated, by joined groups 38.8), 64 x 2048 x 7 x 7 41.5
  // (37; 21.1), 32 x 768 x 14 x 14 23.2 (22; 25.8).
  double clocks(double warps, double stage_bytes_of_all) const {
    constexpr double kFixed = 60;
    const double alone = narrower ? 700 : 340;
    const double products = static_cast<double>(tiles) * units * row_pairs() * columns_taps,
                 loads = static_cast<double>(tiles) * units * column_pairs() + tiles / 2.0,
                 code = (kFixed + products + 3 * loads) / kIssuedByQuarter,
                 moved = 4 * warps * loads + stage_bytes_of_all / 128;
    return std::max({warps / 4 * std::max(products * kClocksOfMma, code), moved, alone});
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

// The fastest configuration of a gradient whose operands, dims and groups are known; what returns a
// bool says whether the engine takes it.
class UnitsGradientSearch {
 public:
  UnitsGradientSearch(const KernelSpec& spec, const NarrowGroupsGradientConfig& parts,
                      double memory, const DeviceModel& device)
      : spec_(spec), e_(parts), memory_(memory), device_(device) {}

  std::optional<NarrowGroupsGradientConfig> make() {
    if (!takes_operands() || !find_extents() || !find_step()) return {};
    e_.packing = e_.groups.inner >= 0
                     ? choose_packing(spec_, e_.groups.inner, std::min(2, widest_pack(spec_)))
                     : choose_packing(spec_, e_.channel, 1);
    const NarrowGroupsGradientConfig without_boxes = e_;
    for (const Lanes& lanes :
         lanes_for(static_cast<int>(std::ceil(channels_ / kUnit)), step_.units)) {
      e_ = without_boxes;
      try_lanes(lanes);
    }
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  NarrowGroupsGradientConfig e_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  double channels_ = 0, images_ = 0, batches_ = 0, width_ = 0;  // tiles of a row
  double walks_ = 0, steps_ = 0;                                // of a row; of a thread block
  Step step_{};
  Fastest<NarrowGroupsGradientConfig> best_;

  bool takes_operands() {
    const ImageDim &down = *e_.down, &across = *e_.across;
    if (!device_.has_tma || !device_.has_wgmma || !are_of_16_bits(spec_, e_) || !is_plain(down) ||
        !is_plain(across) || !across.parts.empty() || taps_of(spec_, down) > kMostTaps ||
        taps_of(spec_, across) > kMostTaps)
      return false;
    e_.each = std::max(1, kUnit / e_.groups.channels);
    e_.rows = 1;
    return set_map(spec_, e_, e_.image, &e_.groups) && set_map(spec_, e_, e_.other, &e_.groups);
  }

  bool find_extents() {
    const std::int64_t pixels = spec_.extent[e_.across->pixel_index];
    channels_ = static_cast<double>(spec_.extent[e_.channel]) * e_.groups.channels;
    images_ = elements(spec_.extent, spec_.contraction().first_k(), spec_.extent.size() - 2);
    batches_ = elements(spec_.extent, 0, e_.channel);
    width_ = std::ceil(static_cast<double>(pixels) / kWidth);
    return channels_ * images_ * batches_ * width_ != 0;
  }

  // Walks of equal numbers of tiles.
  bool find_step() {
    const int group = e_.groups.channels;
    walks_ = std::ceil(width_ / kMostTiles);
    step_ = {taps_of(spec_, e_.down), taps_of(spec_, e_.across), std::max(1, group / kUnit),
             static_cast<int>(std::ceil(width_ / walks_)), group < kUnit};
    e_.columns = step_.tiles * kWidth;
    steps_ = images_ * walks_ * static_cast<double>(rows_met());
    return step_.registers() <= kMostRegisters;
  }
  // Rows of x that meet rows of dy.
  std::int64_t rows_met() const {
    const ImageDim& down = *e_.down;
    const bool part = !down.parts.empty();
    const std::int64_t first = part ? down.base : std::max<std::int64_t>(1 - step_.taps, down.base),
                       met = down.base + spec_.extent[down.pixel_index] + step_.taps - 1;
    return std::max<std::int64_t>(0, (part ? met : std::min(down.extent, met)) - first);
  }

  void try_lanes(const Lanes& lanes) {
    e_.lanes = lanes.warps;
    e_.line_units = lanes.line_units;
    e_.threads = 32 * lanes.warps + 32;
    if (step_.registers() * e_.threads > device_.registers_per_sm) return;
    place_boxes();
    const double grid = std::ceil(channels_ / (e_.lanes * kUnit)) * batches_;
    for (int stages = kMostStages; stages >= kLeastStages; --stages) {
      const double shared = stages * (stage_bytes() + 16) + kLostToAlignment;
      if (shared > device_.shared_per_cta) continue;
      const double ctas = most_ctas(shared);
      if (!best_.improves(estimate(stages, grid, ctas))) continue;
      e_.tiles = {.across = step_.tiles, .stages = stages};
      e_.grid = clamp_grid(grid);
      e_.shared_bytes = static_cast<std::uint32_t>(shared);
      e_.least_blocks = static_cast<int>(ctas);
      best_.config = e_;
    }
  }

  void place_boxes() {
    const ImageDim& across = *e_.across;
    const bool one = walks_ == 1, whole_lines = e_.lanes * kUnit == static_cast<int>(channels_) &&
                                                e_.line_units == e_.lanes;
    const int seen = e_.columns + step_.columns_taps - 1;
    e_.joined = whole_lines ? joined_pixels(spec_, e_, channels_) : 1;
    const auto begins = static_cast<int>(begins_in_line(across.base, e_.joined));
    set_box(e_.image, e_.line_units, static_cast<int>(up(begins + seen + 1, 8)), seen, across.base,
            one);
    set_box(e_.other, e_.line_units,
            static_cast<int>(up(e_.columns, step_.tiles > 1 ? 2 * kWidth : kWidth)), e_.columns, 0,
            one);
    if (e_.joined == 1) return;
    join_pixels(e_.image, e_.joined, across.base);
    join_pixels(e_.other, e_.joined, 0);
  }

  double stage_bytes() const {
    return up(e_.image.line * e_.line_units * kUnit * 2.0, 1024) +
           up(e_.other.line * e_.line_units * kUnit * 2.0, 1024);
  }
  // Thread blocks of an SM.
  double most_ctas(double shared) const {
    return std::max(
        1.0, std::min(std::floor(device_.registers_per_sm /
                                 (static_cast<double>(step_.registers()) * e_.threads)),
                      std::floor(device_.shared_per_sm / (shared + device_.shared_reserved))));
  }

  double estimate(int stages, double grid, double most) const {
    const double stage = stage_bytes();
    const auto clocks = [&](double ctas) {
      constexpr double kBegin = 6000;
      const double lines = static_cast<double>(e_.image.map->box[1] + e_.other.map->box[1]);
      return steps_ * std::max(step_.clocks(ctas * e_.lanes, ctas * stage),
                               ctas * lines * clocks_of_line(e_.line_units * e_.joined)) +
             kBegin;
    };
    const double issued = Rounds(grid, most, device_.sms).clocks(clocks) / device_.clock,
                 flight = (stages - 1) * stage * std::clamp(grid / device_.sms, 1.0, most),
                 // SMs that have a thread block less than others rest.
        each = grid / device_.sms, unlike = std::ceil(each) / each,
                 waited = memory_ * unlike * std::max(1.0, kFlightOfSm / flight);
    return overlapped(waited, issued);
  }
};

// What the reading of a spec needs to begin.
bool may_be_groups_gradient(const KernelSpec& spec, const DeviceModel& device) {
  const ContractionSpec* const c = spec.as_contraction();
  return device.has_tma && device.has_wgmma && c && is_plain_product(*c) &&
         spec.cross_row_reductions.empty() && c->m == 1 && c->n > 0 && c->k() >= 2 &&
         !reads_joined_indices(spec) &&
         std::all_of(c->k_indices.begin(), c->k_indices.end(),
                     [](KIndex k) { return k == KIndex::pixels; });
}

// The steps of reading one, in order; what returns a bool says whether the engine takes it.
class NarrowGroupsGradientSearch {
 public:
  NarrowGroupsGradientSearch(const KernelSpec& given, const DeviceModel& device)
      : plan_{given, {}}, device_(device) {}

  std::optional<NarrowGroupsGradientPlan> make() {
    if (!find_channels() || !find_groups() || !find_dims()) return {};
    const double memory =
        bytes_of(spec_, e_, image_elements()) / (kWindowsReach * device_.memory_bandwidth);
    std::optional<NarrowGroupsGradientConfig> units;
    if (are_units_) units = UnitsGradientSearch(spec_, e_, memory, device_).make();
    std::optional<ChannelsGradientConfig> channels;
    if (all_) channels = plan_channels_gradient(spec_, e_, e_.groups, memory, device_);
    std::optional<RunsGradientConfig> runs;
    if (all_) runs = plan_runs_gradient(spec_, e_, e_.groups, device_);
    double fastest = HUGE_VAL;
    const auto consider = [&](auto& engine) {
      if (!engine || engine->microseconds >= fastest) return;
      fastest = engine->microseconds;
      plan_.engine = *std::move(engine);
    };
    consider(channels);
    consider(units);
    consider(runs);
    if (fastest == HUGE_VAL) return {};
    return std::move(plan_);
  }

 private:
  NarrowGroupsGradientPlan plan_;
  const DeviceModel& device_;
  KernelSpec& spec_ = plan_.spec;
  NarrowGroupsGradientConfig e_;
  bool all_ = false;        // all channels are one group
  bool are_units_ = false;  // which its kernel takes
  ConvolutionRoles roles_;
  int image_index_ = -1;  // tells images apart

  const Access& access(const DepthwiseOperand& o) const {
    return spec_.ports[static_cast<std::size_t>(o.port)].access;
  }

  // The columns are the channels of a group of the image, which lie together, and taps.
  bool find_channels() {
    const ContractionSpec& c = spec_.contraction();
    DepthwiseGroups& groups = e_.groups;
    e_.gradient = true;
    const KernelPort* const image = loaded_port(spec_, c.b(), e_.image.port);
    const KernelPort* const other = loaded_port(spec_, c.a(), e_.other.port);
    if (!image || !other || !other->access.windows.empty()) return false;
    groups.outer = c.first_m();
    for (int i = c.first_n(); i < c.first_k(); ++i) {
      if (groups.inner < 0 && image->access.stride[i] == 1)
        groups.inner = i;
      else
        roles_.taps.push_back(i);
    }
    if (groups.inner < 0) {  // one channel
      groups.inner = spec_.contraction().first_k();
      add_unit_index(spec_, groups.inner);
      ++spec_.contraction().n;
    }
    if (spec_.extent[groups.inner] > kMostGradientChannels) return false;
    groups.channels = static_cast<int>(spec_.extent[groups.inner]);
    are_units_ = groups.channels >= 2 && groups.channels <= kMostGroup &&
                 (kUnit % groups.channels == 0 || groups.channels % kUnit == 0) &&
                 groups.channels != 3 * kUnit && spec_.extent[groups.outer] == groups.channels;
    return true;
  }

  bool find_groups() {
    const ContractionSpec& c = spec_.contraction();
    const int channels = e_.groups.channels;
    int found = -1;
    for (int i = 0; i < c.batch; ++i)
      if (access(e_.image).stride[i] == channels && access(e_.other).stride[i] == channels)
        found = i;
    if (found < 0) {
      if (access(e_.image).stride[e_.groups.outer] != 0) return false;
      all_ = true;
      are_units_ = are_units_ && channels >= kUnit && channels <= kMostAlone;
      found = add_group();
    } else if (!are_units_) {
      return false;
    }
    place_groups(spec_, found, e_.groups, e_, roles_);
    return true;
  }
  // The index that counts groups, where there is one.
  int add_group() {
    const int added = spec_.contraction().batch++;
    add_unit_index(spec_, added);
    for (const int port : {e_.image.port, e_.other.port})
      spec_.ports[static_cast<std::size_t>(port)].access.stride[added] = e_.groups.channels;
    ++e_.groups.outer, ++e_.groups.inner;
    for (int& tap : roles_.taps) ++tap;
    return added;
  }

  bool find_dims() {
    for (int i = spec_.contraction().first_k(); i < spec_.extent.size(); ++i)
      roles_.pixels.push_back(i);
    roles_.pixels_in_k = true;
    std::int64_t offset = 0;
    const auto dims = image_dims(spec_, roles_, access(e_.image), image_index_, offset);
    if (!dims || dims->size() != 2) return false;
    e_.down = dims->front();
    e_.across = dims->back();
    e_.image.offset = access(e_.image).offset + offset;
    return roles_.taps.size() ==
           static_cast<std::size_t>((e_.down->tap_index >= 0) + (e_.across->tap_index >= 0));
  }

  double image_elements() const {
    const std::int64_t rows =
        e_.down->parts.empty() ? e_.down->extent
                               : spec_.extent[e_.down->pixel_index] + taps_of(spec_, e_.down) - 1;
    return elements(spec_.extent, 0, spec_.contraction().batch) * e_.groups.channels *
           (image_index_ < 0 ? 1 : static_cast<double>(spec_.extent[image_index_])) *
           static_cast<double>(rows) * static_cast<double>(e_.across->extent);
  }
};

}  // namespace

std::optional<NarrowGroupsGradientConfig> plan_units_gradient(const KernelSpec& spec,
                                                              const DepthwiseConfig& parts,
                                                              double memory,
                                                              const DeviceModel& device) {
  if (!parts.gradient || !parts.down || !parts.looped.empty()) return {};
  return UnitsGradientSearch(spec, NarrowGroupsGradientConfig{parts}, memory, device).make();
}

std::optional<NarrowGroupsGradientPlan> plan_narrow_groups_gradient(const KernelSpec& spec,
                                                                    const DeviceModel& device) {
  if (!may_be_groups_gradient(spec, device)) return {};
  return NarrowGroupsGradientSearch(spec, device).make();
}

}  // namespace sinter
