#include "schedule/contraction/depthwise_walk.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

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
  const double rounds = std::floor(grid / (at_once * device.sms)),
               left = std::ceil((grid - rounds * at_once * device.sms) / device.sms);
  // The last blocks of many rounds begin as others end.
  constexpr double kMany = 4;
  if (rounds >= kMany) return grid / (at_once * device.sms) * round(at_once);
  return rounds * round(at_once) + (left > 0 ? round(left) : 0);
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

std::optional<DepthwiseWalkConfig> walked_on_ordinary_cores(const KernelSpec& spec,
                                                            DepthwiseConfig e,
                                                            const std::vector<ImageDim>& dims,
                                                            double memory,
                                                            const DeviceModel& device) {
  // The last two dims are walked over, or the last alone, down or across, where filters are large.
  const ContractionSpec& c = spec.contraction();
  const int filters = index_of_filters(c);
  const double channels = static_cast<double>(spec.extent[e.channel]) *
                          (filters < 0 ? 1 : static_cast<double>(spec.extent[filters]));
  const int pixel_bytes = info(spec.ports[static_cast<std::size_t>(e.image.port)].type).bytes;
  const std::vector<ImageDim> looped = std::move(e.looped);
  const double of_groups = longer_in_groups(spec, looped, dims, e.along_columns);
  std::optional<double> least;
  std::optional<DepthwiseWalkConfig> best;
  enum class Way { both, across, down };
  for (const Way way : {Way::both, Way::across, Way::down}) {
    const bool both = way == Way::both;
    if (both && dims.size() < 2) continue;
    if (way == Way::across && best) break;
    if (way == Way::down && (e.along_columns || taps_of(spec, dims.back()) < kFewestDown)) continue;
    e.looped = looped;
    e.looped.insert(e.looped.end(), dims.begin(), dims.end() - (both ? 2 : 1));
    e.across = way == Way::down ? std::nullopt : std::optional(dims.back());
    e.down = both               ? std::optional(dims[dims.size() - 2])
             : way == Way::down ? std::optional(dims.back())
                                : std::nullopt;
    const int spatial = both ? 2 : 1, all_taps = taps_of(spec, e.down) * taps_of(spec, e.across);
    Extents x{.planes = e.gradient
                            ? elements(spec.extent, c.first_k(), spec.extent.size() - spatial)
                            : elements(spec.extent, 0, e.channel) *
                                  elements(spec.extent, c.first_m(), c.first_n() - spatial),
              .channel_blocks = std::ceil(channels / (e.lanes * e.each))};
    if (e.gradient) x.batches = elements(spec.extent, 0, e.channel);
    for (const ImageDim& d : e.looped) x.looped *= taps_of(spec, d);
    const double shared = (e.gradient ? 1 : x.looped) * all_taps * e.lanes * e.each * 4;
    if (shared > kMostShared) continue;
    e.shared_bytes = static_cast<std::uint32_t>(shared);
    const int phases = e.down ? static_cast<int>(e.down->divisor) : 1,
              phases_across = e.across ? static_cast<int>(e.across->divisor) : 1;
    if (phases > kMostPhases || phases_across > kMostPhases) continue;
    for (int rows = phases; rows <= (way == Way::down ? 8 : 4) * phases; rows *= 2) {
      if (rows > phases && rows >= 2 * pixels_of(spec, e.down)) continue;
      const double down = blocks_down(spec, e, rows), most_parts = way == Way::down ? 128 : 16;
      for (int columns = 1; columns <= 8; ++columns) {
        if (columns > 1 && columns >= pixels_of(spec, e.across) + 1) continue;
        if (columns % phases_across != 0) continue;
        if (e.along_columns && columns % e.packing.width != 0) continue;
        const double products = static_cast<double>(rows) * columns * all_taps * e.each;
        for (double parts = 1; parts <= std::min(down, most_parts); parts *= 2) {
          const Walk w(spec, e, rows, columns, static_cast<int>(std::ceil(down / parts)));
          const double registers = w.registers(e, all_taps, pixel_bytes);
          if (registers > (e.gradient ? kMostRegistersOfGradient : kMostRegisters) ||
              products > kMostUnrolled || w.passed > kMostUnrolled)
            continue;
          const double walks = x.planes * walks_of(spec, e, w), grid = grid_of(spec, e, w, x);
          if (grid >= 0x1p31 || walks >= 0x1p31) continue;
          const double longer = !both && dims.size() > 1 ? kOneOfTwo : 1,
                       us =
                           longer * estimate(spec, e, w, x, registers, memory, kOfElements, device);
          if (least && *least <= us) continue;
          least = us;
          best = DepthwiseWalkConfig{e};
          // Of lines, too, the shape is the one that elements would have, as measured.
          best->microseconds =
              device.launch_microseconds +
              (in_lines(spec, e, columns)
                   ? longer * estimate(spec, e, w, x, registers, of_lines(spec, e, x) * memory,
                                       kOfLines, device)
                   : us);
          best->microseconds *= of_groups;
          best->rows = rows;
          best->columns = columns;
          best->run = w.run;
          best->grid = clamp_grid(grid);
        }
      }
    }
    if (best && both) break;
  }
  if (!best) return {};
  best->wide_index = needs_wide_index(spec);
  return best;
}

}  // namespace sinter
