#include "schedule/contraction/depthwise_lines.hpp"

#include <algorithm>
#include <cmath>

#include "schedule/contraction/depthwise_search.hpp"
#include "schedule/contraction/depthwise_walk.hpp"

namespace sinter {
namespace {

// Of an MMA: tiles, results of a tile, pixels that they see.
constexpr int kTiles = 16, kWidth = 8, kDepth = 16;
constexpr int kWord = 2;   // pixels
constexpr int kAhead = 5;  // sets of words
constexpr int kOwn = 52;   // registers, at the least, besides
constexpr int kMostRegisters = 168;
constexpr double kMostBlocks = 8;   // of an SM
constexpr int kLinesThreads = 128;  // of a thread block
constexpr double kLinesWarps = kLinesThreads / 32.0;

// The steps of planning one, in order; what returns a bool says whether the engine takes it.
class LinesSearch {
 public:
  LinesSearch(const KernelSpec& spec, const DepthwiseConfig& parts, double memory,
              const DeviceModel& device)
      : spec_(spec), memory_(memory), device_(device) {
    best_.config = DepthwiseLinesConfig{parts};
  }

  std::optional<DepthwiseLinesConfig> make(const std::vector<ImageDim>& dims) {
    if (!takes_dims(dims) || !lies_in_words() || !find_extents()) return {};
    set_threads();
    place_tiles();
    const double even =
        std::ceil(lines_ / std::clamp(std::floor(at_once() / channels_), 1.0, lines_));
    for (const double run : {even, std::ceil(even / rows_) * rows_, rows_}) try_run(run);
    return std::move(best_).finished(spec_, device_);
  }

 private:
  const KernelSpec& spec_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  Fastest<DepthwiseLinesConfig> best_;
  DepthwiseLinesConfig& e_ = best_.config;
  // MMAs of a tile; rows of the filter, of results in the making, of the image a step.
  int chunks_ = 1, taps_ = 1, slots_ = 1, advance_ = 1;
  double channels_ = 0, planes_ = 0, rows_ = 0, tiles_ = 0;  // of results; of a line
  double lines_ = 0;                                         // of all planes
  double blocks_ = 1;                                        // of an SM

  bool takes_dims(const std::vector<ImageDim>& dims) {
    if (!e_.along_columns || e_.gradient || !e_.looped.empty() || dims.size() != 2 ||
        !are_of_16_bits(spec_, e_))
      return false;
    for (const ImageDim& d : dims)
      if (d.divisor != 1 || !d.parts.empty()) return false;
    e_.across = dims.back();
    e_.down = dims.front();
    return true;
  }

  // Whether no word straddles the end of a line.
  bool lies_in_words() const {
    const KernelPort& image = spec_.ports[static_cast<std::size_t>(e_.image.port)];
    const ImageDim &down = *e_.down, &line = *e_.across;
    if (line.stride != 1 || line.extent % kWord != 0 || e_.image.offset % kWord != 0 ||
        down.stride % kWord != 0)
      return false;
    for (int i = 0; i < spec_.extent.size(); ++i)
      if (i != line.pixel_index && i != line.tap_index && i != down.pixel_index &&
          i != down.tap_index && image.access.stride[i] % kWord != 0)
        return false;
    return image.alignment >= kWord * info(image.type).bytes;
  }

  bool find_extents() {
    const ContractionSpec& c = spec_.contraction();
    const auto extent_of = [&](int index) {
      return index < 0 ? 1.0 : static_cast<double>(spec_.extent[index]);
    };
    chunks_ = chunks_of_line();
    taps_ = taps_of(spec_, e_.down);
    slots_ = slots_of(spec_, e_.down, 1);
    advance_ = advance_of(e_.down, 1);
    channels_ = static_cast<double>(spec_.extent[e_.channel]);
    planes_ = elements(spec_.extent, 0, e_.channel) *
              elements(spec_.extent, c.first_m(), c.first_n() - 2);
    rows_ = extent_of(e_.down->pixel_index);
    tiles_ = std::ceil(extent_of(e_.across->pixel_index) / kWidth);
    return registers() <= kMostRegisters && channels_ * rows_ * planes_ * tiles_ != 0;
  }
  int chunks_of_line() const {
    const ImageDim& line = *e_.across;
    const std::int64_t reach = line.tap * (taps_of(spec_, line) - 1),
                       low = line.base + std::min<std::int64_t>(0, reach),
                       high =
                           line.base + line.pixel * (kWidth - 1) + std::max<std::int64_t>(0, reach),
                       seen = high - floor_divide(low, kWord) * kWord + 1;
    return static_cast<int>((seen + kDepth - 1) / kDepth);
  }
  int registers() const {
    return chunks_ * (2 * taps_ + kAhead * advance_ * 4) + slots_ * 4 + kOwn;
  }

  void set_threads() {
    blocks_ = std::min(kMostBlocks, std::floor(static_cast<double>(device_.registers_per_sm /
                                                                   (registers() * kLinesThreads))));
    e_.rows = 1;
    e_.columns = kWidth;
    e_.each = 1;
    e_.lanes = 1;
    e_.packing = choose_packing(spec_, e_.across->pixel_index, kWord);
    e_.threads = kLinesThreads;
    e_.least_blocks = static_cast<int>(blocks_);
    e_.shared_bytes = 0;
  }

  // As many tiles of a line as there are: what lanes load lies together.
  void place_tiles() {
    int across = kTiles;
    while (across > 1 && across >= 2 * tiles_) across /= 2;
    e_.lines = {.across = across};
    lines_ = std::ceil(planes_ / (kTiles / across)) * std::ceil(tiles_ / across) * rows_;
  }

  // Tests: the long walks that few SMs have on small shapes.
  double sms() const { return device_.overrides.depthwise == "mma" ? 1 : device_.sms; }
  double at_once() const { return blocks_ * kLinesWarps * sms(); }  // warps

  void try_run(double run) {
    const double grid = std::ceil(channels_ * std::ceil(lines_ / run) / kLinesWarps);
    if (lines_ >= 0x1p30 || grid * kLinesWarps >= 0x1p31) return;
    if (!best_.improves(estimate(run, grid))) return;
    e_.run = static_cast<int>(run);
    e_.grid = clamp_grid(grid);
  }

  double estimate(double run, double grid) const {
    // Instructions of a step, roughly, and of its wait for memory.
    constexpr double kWordCode = 3.5, kResult = 45, kIssued = 0.6, kWait = 120, kBegin = 4e3;
    const int cost = element_cost(spec_, spec_.body);
    const double words = chunks_ * advance_ * 4,
                 code = words * kWordCode + chunks_ * taps_ + kResult + 2 * cost,
                 before = slots_ - 1;
    const bool whole = std::fmod(run, rows_) == 0;
    const double steps = run + std::ceil(run / rows_) * before + (whole ? 0 : before);
    const auto clocks = [&](double n) {
      return steps * std::max(n * kLinesWarps / 4 * code / kIssued, code + kWait) + kBegin;
    };
    const double issued = Rounds(grid, blocks_, sms()).clocks(clocks) / device_.clock;
    return overlapped(memory_, issued);
  }
};

}  // namespace

std::optional<DepthwiseLinesConfig> plan_depthwise_lines(const KernelSpec& spec,
                                                         const DepthwiseConfig& parts,
                                                         const std::vector<ImageDim>& dims,
                                                         double memory, const DeviceModel& device) {
  return LinesSearch(spec, parts, memory, device).make(dims);
}

}  // namespace sinter
