#include "schedule/contraction/depthwise_walk.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plan/access.hpp"
#include "schedule/contraction/depthwise_search.hpp"

namespace sinter {
namespace {

constexpr int kMostRegisters = 150, kMostRegistersOfGradient = 185;  // of factors, sums, pixels
// What blocks with the taps of one dim of two take of their estimate. (f32 on an H200, with one and
// with both: 5 x 5, 240 channels of 28 x 28 85 us and 35; 7 x 7, 384 channels 147 and 76.)
constexpr double kOneOfTwo = 1.5;
// Taps of one dim that is walked down: of fewer, blocks that begin all at once are faster. (bf16 on
// an H200, across and down: 4 taps 76 and 86 us, 9 31.5 and 25.5, 15 47 and 37, 31 115 and 51.)
constexpr int kFewestDown = 6;

double pixels_of(const KernelSpec& spec, const std::optional<ImageDim>& d) {
  return d ? static_cast<double>(spec.extent[d->pixel_index]) : 1;
}

// How many of them are read.
int read(const KernelSpec& spec, const std::optional<ImageDim>& d, int results) {
  return std::min(seen(spec, d, results), results * taps_of(spec, d));
}

// A thread's block of results and its walk; see the device code.
struct Walk {
  int rows, columns, run;
  int advance, slots;  // rows of the image from block to block, blocks that see one
  int pixels;          // of the rows that come with a block
  double passed;       // the same, with those between that are not read

  Walk(const KernelSpec& spec, const DepthwiseConfig& e, int rows_, int columns_, int run_)
      : rows(rows_), columns(columns_), run(run_) {
    advance = advance_of(e.down, rows);
    slots = slots_of(spec, e.down, rows);
    pixels = std::min(advance, rows * taps_of(spec, e.down)) * read(spec, e.across, columns);
    passed = static_cast<double>(advance) * seen(spec, e.across, columns);
  }
  // Of memory, that a warp has in flight, and its neighbours have not.
  double flight_bytes(const DepthwiseConfig& e, int pixel_bytes) const {
    const double step =
        e.across && e.across->divisor == 1 ? static_cast<double>(e.across->pixel) : 1;
    return 32.0 * e.each * pixel_bytes * advance * columns * step;
  }
  // 32-bit registers of sums, taps and pixels.
  double registers(const DepthwiseConfig& e, int taps, int pixel_bytes) const {
    const double held = e.each * pixel_bytes / 4.0,
                 results = static_cast<double>(slots) * rows * columns;
    return taps * e.each +
           (e.gradient ? (results + rows * columns) * std::max(1.0, held) : results * e.each) +
           2 * pixels * std::max(1.0, held);
  }
};

// What there is of a kernel's parts. A gradient's thread blocks are batch entries and looped taps.
struct Extents {
  double planes, channel_blocks, batches = 1, looped = 1;
};

// Blocks of results down the image, and threads' columns times runs of a plane.
double blocks_down(const KernelSpec& spec, const DepthwiseConfig& e, int rows) {
  return std::ceil(pixels_of(spec, e.down) / rows);
}
double walks_of(const KernelSpec& spec, const DepthwiseConfig& e, const Walk& w) {
  return std::ceil(blocks_down(spec, e, w.rows) / w.run) *
         std::ceil(pixels_of(spec, e.across) / w.columns);
}

double grid_of(const KernelSpec& spec, const DepthwiseConfig& e, const Walk& w, const Extents& x) {
  if (e.gradient) return x.channel_blocks * x.batches * x.looped;
  return x.channel_blocks * std::ceil(x.planes * walks_of(spec, e, w) * e.lanes / e.threads);
}
// Thread blocks that an SM has at once, by registers.
double blocks_at_once(const DepthwiseConfig& e, double registers, double grid,
                      const DeviceModel& device) {
  constexpr double kOwn = 32;  // besides
  const double most = std::floor(device.registers_per_sm / ((registers + kOwn) * e.threads));
  return std::clamp(grid / device.sms, 1.0, std::max(1.0, most));
}

// Instructions a clock of one warp and of an SM; bytes in flight in place of kFlightOfSm; what of
// memory's time, and of the shorter of it and instructions, is seen.
struct Pace {
  double alone, issued, flight, memory, exposed;
};
constexpr Pace kOfElements{0.4, 3, 24e3, 1, 0.2};
// Of lines in packs of 8 bytes and more: twenty convolutions channels first on an H200 take 0.8 to
// 1.2 of what these say, by those of elements 0.45 to 0.95.
constexpr Pace kOfLines{0.5, 4, 6e3, 0.85, 0.26};

bool in_lines(const KernelSpec& spec, const DepthwiseConfig& e, int columns) {
  const int bytes = info(spec.ports[static_cast<std::size_t>(e.image.port)].type).bytes;
  constexpr int kWide = 8;
  return !e.gradient && e.packing.width > 1 && line_pack(spec, e, columns, false) * bytes >= kWide;
}

// Clocks, in rounds of as many thread blocks as registers allow: those in which an SM issues the
// instructions of all of its warps, or one warp its own.
double clocks_of(const KernelSpec& spec, const DepthwiseConfig& e, const Walk& w, const Extents& x,
                 double registers, const Pace& pace, const DeviceModel& device) {
  // Instructions, roughly.
  constexpr double kPixel = 8, kResult = 15, kFixed = 150, kWait = 200, kPacked = 2,
                   kRagged = 1.5;  // of a pixel in a pack; packs that reach further
  const auto divisor = [](const std::optional<ImageDim>& d) {
    return d ? static_cast<double>(d->divisor) : 1;
  };
  const double taps = taps_of(spec, e.down) * taps_of(spec, e.across),
               results = static_cast<double>(w.rows) * w.columns,
               products = results * taps * e.each / (divisor(e.down) * divisor(e.across)),
               pack = line_pack(spec, e, w.columns, false);
  double moves = 2 * (results * (w.slots - 1) + w.pixels),
         load = w.pixels * (pack > 1 ? kPacked + kPixel * kRagged / pack : kPixel + e.each),
         result = kResult;
  if (&pace == &kOfLines) {  // counted in machine code
    constexpr double kConverted = 1.5, kLoaded = 3, kStored = 6;
    moves /= 2;
    load = w.pixels * (kConverted + kLoaded / pack);
    result = kConverted + kStored / e.packing.width;
  }
  double step = products + load + moves * (e.gradient ? 1 : e.each);
  step += results *
          (e.gradient ? kPixel / gradient_pack(spec, e, w.columns) + e.each * w.slots : result);
  if (!e.gradient && x.looped > 1) step = x.looped * (products + load + taps) + results * result;
  // The rows before a run of results, but those in front of the image.
  const double before = (w.slots - 1) * (w.run < blocks_down(spec, e, w.rows) ? 1 : 0.5);
  const double walk = (w.run + before) * step, walks = x.planes * walks_of(spec, e, w);
  const int beside = e.threads / e.lanes, warps = e.threads / 32;
  const double code = e.gradient
                          ? std::ceil(walks / beside) * walk + (warps + 5) * taps * e.each + kFixed
                          : walk + taps * e.each + kFixed;
  const double grid = grid_of(spec, e, w, x),
               at_once = std::ceil(blocks_at_once(e, registers, grid, device));
  // Pixels of looped taps are not loaded ahead.
  const double waited = !e.gradient && x.looped > 1 ? (w.run + before) * x.looped * kWait : 0;
  const auto round = [&](double blocks) {  // of an SM
    return std::max(code / pace.alone + waited, code * blocks * warps / pace.issued);
  };
  const Rounds rounds(grid, at_once, device.sms);
  // The last blocks of many rounds begin as others end.
  constexpr double kMany = 4;
  if (rounds.full >= kMany) return grid / (at_once * device.sms) * round(at_once);
  return rounds.clocks(round);
}

// What memory's time is multiplied by where lines are no whole sectors of 32 bytes, whose ends are
// read, and written in part, with two lines; where pixels are read for each filter of a channel;
// and for what the epilogue reads. (3 x 3 on an H200, of 112, 56 and 28 pixels of bf16 1.3, 1.7
// and 2.4 of memory's time at its best, with one and two tensors beside 28 pixels 2.7 and 2.5.)
double of_lines(const KernelSpec& spec, const DepthwiseConfig& e, const Extents& x) {
  const int line = e.across->pixel_index, filters = index_of_filters(spec.contraction());
  double bytes = 0, moved = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    const bool image = static_cast<int>(i) == e.image.port;
    const double read =
        info(p.type).bytes *
        (image ? x.planes * static_cast<double>(spec.extent[e.channel]) *
                     static_cast<double>(e.across->extent * (e.down ? e.down->extent : 1))
               : static_cast<double>(elements_reached(spec.extent, p.access)));
    const std::int64_t of_line =
        info(p.type).bytes * (image                        ? e.across->extent
                              : p.access.stride[line] == 1 ? spec.extent[line]
                                                           : 0);
    bytes += read;
    constexpr double kPartly = 1.43;
    constexpr std::int64_t kSector = 32;
    const double partly = of_line == 0 ? 0
                                       : static_cast<double>(kSector - std::gcd(of_line, kSector)) /
                                             static_cast<double>(of_line);
    const bool late = !image && !p.written && of_line > 0;
    moved += read * (1 + kPartly * partly) * (late ? kReadLate : 1) *
             (image && filters >= 0 ? static_cast<double>(spec.extent[filters]) : 1);
  }
  return moved / std::max(1.0, bytes);
}

// Microseconds. Bytes in flight keep memory busy, instructions beside it are hidden in part.
double estimate(const KernelSpec& spec, const DepthwiseConfig& e, const Walk& w, const Extents& x,
                double registers, double memory, const Pace& pace, const DeviceModel& device) {
  const int pixel_bytes = info(spec.ports[static_cast<std::size_t>(e.image.port)].type).bytes;
  const double at_once = blocks_at_once(e, registers, grid_of(spec, e, w, x), device),
               flight = at_once * e.threads / 32 * w.flight_bytes(e, pixel_bytes),
               waited = pace.memory * memory * std::max(1.0, pace.flight / flight),
               issued = clocks_of(spec, e, w, x, registers, pace, device) / device.clock;
  return overlapped(waited, issued, pace.exposed);
}

// The largest power of two up to `most` bytes of which `fits` says so.
template <class Fits>
int widest(int bytes, const Fits& fits) {
  int n = 1;
  while (2 * n * bytes <= kMoveBytes && fits(2 * n)) n *= 2;
  return n;
}

}  // namespace

int seen(const KernelSpec& spec, const std::optional<ImageDim>& d, int results) {
  if (!d) return 1;
  const std::int64_t reach = d->tap * (taps_of(spec, d) - 1),
                     low = d->base + std::min<std::int64_t>(0, reach),
                     high = d->base + d->pixel * (results - 1) + std::max<std::int64_t>(0, reach);
  return static_cast<int>(floor_divide(high, d->divisor) + floor_divide(-low, d->divisor)) + 1;
}

int advance_of(const std::optional<ImageDim>& d, int results) {
  if (!d) return results;
  return static_cast<int>(d->divisor > 1 ? results / d->divisor : results * d->pixel);
}

int slots_of(const KernelSpec& spec, const std::optional<ImageDim>& d, int results) {
  const int advance = advance_of(d, results);
  return (seen(spec, d, results) + advance - 1) / advance;
}

int line_pack(const KernelSpec& spec, const DepthwiseConfig& e, int columns, bool in_shared) {
  if (e.lanes > 1 || !e.across || e.across->stride != 1 || !e.across->parts.empty()) return 1;
  const KernelPort& p = spec.ports[static_cast<std::size_t>(e.image.port)];
  const int aligned = alignment(spec, p, e.across->pixel_index, kMoveBytes),
            most = static_cast<int>(e.across->extent & -e.across->extent);  // that divide the line
  return widest(info(p.type).bytes, [&](int n) {
    // Pairs pay with many taps: 14 x 14, 7 x 7 63.5 us and 50 so, 3 x 3 40 and 47.
    // In shared memory they cost what one does.
    if (n == 2 && most == 2 && taps_of(spec, e.across) < 5 && !in_shared) return false;
    return n <= aligned && e.image.offset % n == 0 && e.across->extent % n == 0 &&
           columns * e.across->pixel % (n * e.across->divisor) == 0;
  });
}

int gradient_pack(const KernelSpec& spec, const DepthwiseConfig& e, int columns) {
  if (!e.gradient || e.lanes > 1 || !e.across) return 1;
  const KernelPort& p = spec.ports[static_cast<std::size_t>(e.other.port)];
  const int line = e.across->pixel_index, aligned = alignment(spec, p, line, kMoveBytes);
  if (p.access.stride[line] != 1) return 1;
  return widest(info(p.type).bytes, [&](int n) {
    return n <= aligned && spec.extent[line] % n == 0 && columns % n == 0;
  });
}

double longer_in_groups(const KernelSpec& spec, const std::vector<ImageDim>& looped,
                        const std::vector<ImageDim>& dims, bool lines) {
  constexpr double kLonger = 1.8;
  const bool strided = std::any_of(dims.begin(), dims.end(),
                                   [](const ImageDim& d) { return d.divisor > 1 || d.pixel > 1; });
  const bool channels = !looped.empty(),
             groups = channels || index_of_filters(spec.contraction()) >= 0;
  return (groups && strided) || (channels && lines) ? kLonger : 1;
}

namespace {

// The dims of which a thread's block has all taps at once: the last two, or the last alone, across
// or down, where filters are large.
enum class Way { both, across, down };

// The steps of planning one: for each way the shapes of a block and the parts of the image that are
// walked over.
class WalkSearch {
 public:
  WalkSearch(const KernelSpec& spec, DepthwiseConfig parts, const std::vector<ImageDim>& dims,
             double memory, const DeviceModel& device)
      : spec_(spec),
        e_{std::move(parts)},
        looped_(e_.looped),
        dims_(dims),
        memory_(memory),
        device_(device),
        of_groups_(longer_in_groups(spec, looped_, dims, e_.along_columns)) {}

  std::optional<DepthwiseWalkConfig> make() {
    if (dims_.size() >= 2) try_way(Way::both);
    if (!best_) {
      try_way(Way::across);
      if (!e_.along_columns && taps_of(spec_, dims_.back()) >= kFewestDown) try_way(Way::down);
    }
    if (!best_) return {};
    best_->wide_index = needs_wide_index(spec_);
    return std::move(best_);
  }

 private:
  const KernelSpec& spec_;
  DepthwiseWalkConfig e_;
  const std::vector<ImageDim> looped_;  // whatever the way
  const std::vector<ImageDim>& dims_;
  const double memory_;  // microseconds
  const DeviceModel& device_;
  const double of_groups_;
  Way way_ = Way::both;
  Extents x_{};
  int taps_ = 1;  // at once
  std::optional<double> least_;
  std::optional<DepthwiseWalkConfig> best_;

  int pixel_bytes() const {
    return info(spec_.ports[static_cast<std::size_t>(e_.image.port)].type).bytes;
  }

  void try_way(Way way) {
    way_ = way;
    set_dims();
    set_extents();
    const double shared = (e_.gradient ? 1 : x_.looped) * taps_ * e_.lanes * e_.each * 4;
    const int phases = e_.down ? static_cast<int>(e_.down->divisor) : 1,
              phases_across = e_.across ? static_cast<int>(e_.across->divisor) : 1,
              most_rows = (way == Way::down ? 8 : 4) * phases;
    if (shared > kMostShared || phases > kMostPhases || phases_across > kMostPhases) return;
    e_.shared_bytes = static_cast<std::uint32_t>(shared);
    for (int rows = phases; rows <= most_rows; rows *= 2) {
      if (rows > phases && rows >= 2 * pixels_of(spec_, e_.down)) continue;
      for (int columns = 1; columns <= 8; ++columns) {
        if (columns > 1 && columns >= pixels_of(spec_, e_.across) + 1) continue;
        if (columns % phases_across != 0) continue;
        if (e_.along_columns && columns % e_.packing.width != 0) continue;
        try_block(rows, columns);
      }
    }
  }

  void set_dims() {
    const bool both = way_ == Way::both;
    e_.looped = looped_;
    e_.looped.insert(e_.looped.end(), dims_.begin(), dims_.end() - (both ? 2 : 1));
    e_.across = way_ == Way::down ? std::nullopt : std::optional(dims_.back());
    e_.down = both                ? std::optional(dims_[dims_.size() - 2])
              : way_ == Way::down ? std::optional(dims_.back())
                                  : std::nullopt;
  }

  void set_extents() {
    const ContractionSpec& c = spec_.contraction();
    const int spatial = way_ == Way::both ? 2 : 1, filters = index_of_filters(c);
    const double channels = static_cast<double>(spec_.extent[e_.channel]) *
                            (filters < 0 ? 1 : static_cast<double>(spec_.extent[filters]));
    x_ = {.planes = e_.gradient ? elements(spec_.extent, c.first_k(), spec_.extent.size() - spatial)
                                : elements(spec_.extent, 0, e_.channel) *
                                      elements(spec_.extent, c.first_m(), c.first_n() - spatial),
          .channel_blocks = std::ceil(channels / (e_.lanes * e_.each))};
    if (e_.gradient) x_.batches = elements(spec_.extent, 0, e_.channel);
    for (const ImageDim& d : e_.looped) x_.looped *= taps_of(spec_, d);
    taps_ = taps_of(spec_, e_.down) * taps_of(spec_, e_.across);
  }

  // The image in so many parts that are walked over.
  void try_block(int rows, int columns) {
    const double down = blocks_down(spec_, e_, rows), most_parts = way_ == Way::down ? 128 : 16,
                 products = static_cast<double>(rows) * columns * taps_ * e_.each;
    if (products > kMostUnrolled) return;
    for (double parts = 1; parts <= std::min(down, most_parts); parts *= 2) {
      const Walk w(spec_, e_, rows, columns, static_cast<int>(std::ceil(down / parts)));
      const double registers = w.registers(e_, taps_, pixel_bytes());
      if (registers > (e_.gradient ? kMostRegistersOfGradient : kMostRegisters) ||
          w.passed > kMostUnrolled)
        continue;
      const double walks = x_.planes * walks_of(spec_, e_, w), grid = grid_of(spec_, e_, w, x_);
      if (grid >= 0x1p31 || walks >= 0x1p31) continue;
      const double us = microseconds(w, registers, memory_, kOfElements);
      if (least_ && *least_ <= us) continue;
      least_ = us;
      configure(w, registers, us);
    }
  }

  double microseconds(const Walk& w, double registers, double memory, const Pace& pace) const {
    const double longer = way_ != Way::both && dims_.size() > 1 ? kOneOfTwo : 1;
    return longer * estimate(spec_, e_, w, x_, registers, memory, pace, device_);
  }

  void configure(const Walk& w, double registers, double us) {
    best_ = e_;
    // Of lines, too, the shape is the one that elements would have, as measured.
    if (in_lines(spec_, e_, w.columns))
      us = microseconds(w, registers, of_lines(spec_, e_, x_) * memory_, kOfLines);
    best_->microseconds = (device_.launch_microseconds + us) * of_groups_;
    best_->rows = w.rows;
    best_->columns = w.columns;
    best_->run = w.run;
    best_->grid = clamp_grid(grid_of(spec_, e_, w, x_));
  }
};

}  // namespace

std::optional<DepthwiseWalkConfig> walked_on_ordinary_cores(const KernelSpec& spec,
                                                            DepthwiseConfig parts,
                                                            const std::vector<ImageDim>& dims,
                                                            double memory,
                                                            const DeviceModel& device) {
  return WalkSearch(spec, std::move(parts), dims, memory, device).make();
}

}  // namespace sinter
