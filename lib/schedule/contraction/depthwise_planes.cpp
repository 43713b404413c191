#include "schedule/contraction/depthwise_planes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plan/access.hpp"
#include "schedule/contraction/depthwise_walk.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kPiece = kPieceOfPlanes;
constexpr std::int64_t kWellMoved = 8;  // bytes, that threads load and store well from lines

// Images and results that are no wider. Of those of 28 and 56 pixels, with packs of 8 and 16 bytes,
// loads to registers are as fast or faster. (H200, so and by loads: 64 x 240 x 28 x 28, 5 x 5 35.8
// us and 24.4, 64 x 384 x 28 x 28, 7 x 7 134 and 71; 128 x 144 x 56 x 56, 3 x 3 96 and 88.)
constexpr int kMostPixels = 32, kMostResults = 16;
// Filters of so many taps gain nothing but on the smallest images. (64 x 768 x 14 x 14, 7 x 7 53 us
// and 50 by loads.)
constexpr int kManyTaps = 49, kSmallest = 8;

bool is_of_channel(const KernelSpec& spec, int port, int channel, int filters) {
  const Access& a = spec.ports[static_cast<std::size_t>(port)].access;
  if (!a.windows.empty() || !a.via.empty()) return false;
  for (int i = 0; i < a.stride.size(); ++i)
    if (i != channel && i != filters && a.stride[i] != 0 && spec.extent[i] != 1) return false;
  return true;
}

// Whether the body loads from port `beside` what lies as the results of `port` do, and can wait
// where they will.
bool lies_as_results(const KernelSpec& spec, const DepthwiseConfig& e, int beside, int port) {
  const KernelPort &b = spec.ports[static_cast<std::size_t>(beside)],
                   &r = spec.ports[static_cast<std::size_t>(port)];
  return b.together == 1 && b.alignment >= kPiece && b.access.windows.empty() &&
         b.access.via.empty() && b.access.stride == r.access.stride &&
         b.access.offset * info(b.type).bytes % kPiece == 0 &&
         info(b.type).bytes == info(r.type).bytes &&
         e.packing.ports[static_cast<std::size_t>(beside)].kind == PortPack::Kind::pack;
}

// The port whose results are a function of the sums, of numbers of their channel and of one number
// that lies as they do; -1: no such.
int port_of_results(const KernelSpec& spec, const DepthwiseConfig& e, int filters) {
  int port = -1, beside = -1;
  for (const Statement& s : spec.body.statements) {
    if (is_load(s) && !is_of_channel(spec, s.port, e.channel, filters)) {
      if (beside >= 0 && beside != s.port) return -1;
      beside = s.port;
    }
    if (s.kind == StatementKind::random || s.kind == StatementKind::gather ||
        s.kind == StatementKind::index || s.kind == StatementKind::inside)
      return -1;
    if (!is_store(s)) continue;
    if (port >= 0) return -1;
    port = s.port;
  }
  if (port < 0 || !spec.ports[static_cast<std::size_t>(port)].access.windows.empty() ||
      e.packing.ports[static_cast<std::size_t>(port)].kind != PortPack::Kind::pack ||
      (beside >= 0 && !lies_as_results(spec, e, beside, port)))
    return -1;
  return port;
}

// Bytes that the epilogue reads as results leave registers, where these do not wait in planes.
double bytes_beside(const KernelSpec& spec, const DepthwiseConfig& e) {
  double bytes = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    if (!p.written && static_cast<int>(i) != e.image.port &&
        p.access.stride[e.across->pixel_index] == 1)
      bytes += info(p.type).bytes * static_cast<double>(elements_reached(spec.extent, p.access));
  }
  return bytes;
}

}  // namespace

std::int64_t channels_of_pieces(const KernelSpec& spec, const KernelPort& p, std::int64_t offset,
                                int channel, const std::vector<int>& walked,
                                std::int64_t elements) {
  const Access& a = p.access;
  const std::int64_t bytes = info(p.type).bytes;
  if (!a.via.empty() || p.together != 1 || p.alignment < kPiece || offset * bytes % kPiece != 0 ||
      (spec.extent[channel] > 1 && a.stride[channel] != elements) ||
      spec.extent[channel] * elements * bytes % kPiece != 0)
    return 0;
  for (int i = 0; i < spec.extent.size(); ++i)
    if (i != channel && std::find(walked.begin(), walked.end(), i) == walked.end() &&
        a.stride[i] * bytes % kPiece != 0)
      return 0;
  return kPiece / std::gcd(kPiece, elements * bytes);
}

int port_beside_results(const KernelSpec& spec, const DepthwisePlanesConfig& e) {
  if (!e.result) return -1;
  const int filters = index_of_filters(spec.contraction());
  for (const Statement& s : spec.body.statements)
    if (is_load(s) && !is_of_channel(spec, s.port, e.channel, filters)) return s.port;
  return -1;
}

std::optional<DepthwisePlanesConfig> plan_depthwise_planes(const KernelSpec& spec,
                                                           const DepthwiseConfig& parts,
                                                           const std::vector<ImageDim>& dims,
                                                           double memory,
                                                           const DeviceModel& device) {
  const ContractionSpec& c = spec.contraction();
  if (!parts.along_columns || dims.size() > 2 || parts.looped.size() > 1) return {};
  DepthwisePlanesConfig e{parts};
  e.packing = choose_packing(spec, dims.back().pixel_index, 8);
  e.across = dims.back();
  e.down = dims.size() > 1 ? std::optional(dims.front()) : std::nullopt;
  const int filters = index_of_filters(c);
  const KernelPort& image = spec.ports[static_cast<std::size_t>(e.image.port)];
  std::int64_t plane = e.across->extent;
  if (e.across->stride != 1 || (e.down && e.down->stride != plane)) return {};
  if (e.down) plane *= e.down->extent;
  e.planes.pixels = plane;
  std::vector<int> walked;
  for (const ImageDim& d : dims) {
    if (!d.parts.empty() || d.divisor > kMostPhases) return {};
    walked.push_back(d.pixel_index);
    if (d.tap_index >= 0) walked.push_back(d.tap_index);
  }
  for (const ImageDim& d : e.looped) {
    if (d.stride != plane || d.pixel_index >= 0) return {};
    e.planes.pixels *= spec.extent[d.tap_index];
    walked.push_back(d.tap_index);
  }
  const std::int64_t of_pixels =
      channels_of_pieces(spec, image, e.image.offset, e.channel, walked, e.planes.pixels);
  if (of_pixels == 0) return {};
  const std::int64_t all_units = spec.extent[e.channel],
                     of_group = filters < 0 ? 1 : spec.extent[filters];
  const auto results_of = [&](const std::optional<ImageDim>& d) {
    return d ? spec.extent[d->pixel_index] : 1;
  };
  const std::int64_t results = results_of(e.down) * results_of(e.across);
  std::int64_t least_units = of_pixels;
  int result_bytes = 4;
  if (const int port = port_of_results(spec, e, filters); port >= 0) {
    const KernelPort& p = spec.ports[static_cast<std::size_t>(port)];
    const Access& a = p.access;
    std::vector<int> within{e.across->pixel_index};
    bool runs = a.stride[e.across->pixel_index] == 1 &&
                (!e.down || a.stride[e.down->pixel_index] == results_of(e.across)) &&
                (filters < 0 || a.stride[filters] == results);
    if (e.down) within.push_back(e.down->pixel_index);
    if (filters >= 0) within.push_back(filters);
    const std::int64_t pieces =
        runs ? channels_of_pieces(spec, p, a.offset, e.channel, within, results * of_group) : 0;
    if (pieces > 0) {
      e.result = DepthwiseOperand{.port = port};
      least_units = std::lcm(least_units, pieces);
      result_bytes = info(p.type).bytes;
    }
  }
  const double images =
      elements(spec.extent, 0, e.channel) *
      elements(spec.extent, c.first_m(), c.first_n() - static_cast<int>(dims.size()));
  if (images * static_cast<double>(all_units * results) == 0) return {};
  double looped = 1;
  for (const ImageDim& d : e.looped) looped *= taps_of(spec, d);
  const int taps = taps_of(spec, e.down) * taps_of(spec, e.across),
            all_taps = static_cast<int>(looped) * taps,
            phases = e.down ? static_cast<int>(e.down->divisor) : 1,
            phases_across = static_cast<int>(e.across->divisor),
            unit_columns = std::lcm(phases_across, e.packing.width),
            image_bytes = info(image.type).bytes;

  // For tests also of what is left.
  const bool asked = device.overrides.depthwise == "planes";
  const int across = static_cast<int>(results_of(e.across)),
            down = static_cast<int>(results_of(e.down));
  const bool narrow = across * result_bytes % kWellMoved != 0 ||
                      e.across->extent * image_bytes % kWellMoved != 0,
             small = across <= kMostResults && e.across->extent <= kMostPixels &&
                     (taps < kManyTaps || across <= kSmallest);
  e.narrow = narrow;
  const bool phased = phases_across > 1 && across <= kMostPixels;
  if (!asked && (narrow ? !e.result || !(small || phased) : !e.looped.empty())) return {};

  // Whole lines of the smallest images, else 8 columns; few rows.
  constexpr int kColumns = 8, kRows = 8;
  const int wanted = across <= kColumns ? across : kColumns;
  e.rows = phases;
  e.columns = (wanted + unit_columns - 1) / unit_columns * unit_columns;
  const int blocks_across = (across + e.columns - 1) / e.columns,
            blocks_down = (down + e.rows - 1) / e.rows, runs = (down + kRows - 1) / kRows;
  e.run = (blocks_down + runs - 1) / runs;
  const int runs_down = (blocks_down + e.run - 1) / e.run;

  // 64 x 1536 x 7 x 7, 7 x 7: 29.7 us with 128 threads, 26.0 with 256; 256 x 960 x 7 x 7, 3 x
  // 3 23.2 and 23.7, 27.3 with 64.
  const double of_unit = static_cast<double>(of_group) * runs_down * blocks_across;
  const auto shared_of = [&](std::int64_t units, std::int64_t together) {
    const auto whole = [](double bytes) { return std::ceil(bytes / kPiece) * kPiece; };
    const double of_block = static_cast<double>(units * together);
    return whole(of_block * static_cast<double>(e.planes.pixels) * image_bytes) +
           whole(static_cast<double>(units * of_group * (all_taps | 1)) * 4) +
           whole(of_block * static_cast<double>(of_group * results) * result_bytes);
  };
  std::vector<std::int64_t> widths{all_units};
  for (std::int64_t units = least_units; units < all_units; units *= 2) widths.push_back(units);
  const auto choose = [&](int threads) {
    double most = -1;
    e.threads = threads;
    for (const std::int64_t units : widths)
      for (std::int64_t together = 1; together <= 16; together *= 2) {
        if (together > 1 && static_cast<double>(together) > images) break;
        if (shared_of(units, together) > device.shared_per_cta) break;
        const double items = static_cast<double>(units * together) * of_unit,
                     fills = items <= threads
                                 ? items
                                 : threads - 0.5 * std::log2(items / threads) - 0.5 * threads;
        const auto used = [](double all, double of_block) {
          return all / (std::ceil(all / of_block) * of_block);
        };
        const double busy = fills *
                            used(static_cast<double>(all_units), static_cast<double>(units)) *
                            used(images, static_cast<double>(together));
        // Of as many threads about 64 channels, whose filters leave room for other thread blocks.
        const auto unlike = [](std::int64_t n) {
          return std::abs(std::log2(static_cast<double>(n) / 64));
        };
        if (busy < most || (busy == most && unlike(units) >= unlike(e.planes.units))) continue;
        most = busy;
        e.planes.units = static_cast<int>(units);
        e.planes.images = static_cast<int>(together);
      }
    return std::ceil(static_cast<double>(all_units) / e.planes.units) *
           std::ceil(images / e.planes.images) * (most < 0 ? 0 : 1);
  };
  double grid = choose(taps_of(spec, e.down) > 5 ? 256 : 128);
  for (int threads = e.threads / 2; threads >= 64 && grid < 2 * device.sms; threads /= 2)
    grid = choose(threads);
  if (grid == 0 || grid >= 0x1p31) return {};
  // A thread block copies, computes and stores one after another. (960 x 7 x 7, 3 x 3 in 15 thread
  // blocks 4.1 us and 1.6 by loads; 8 x 512 x 14 x 14 in 256 3.2 and 3.1.)
  if (grid < device.sms && !asked) return {};
  e.grid = clamp_grid(grid);
  e.shared_bytes = static_cast<std::uint32_t>(shared_of(e.planes.units, e.planes.images));

  // Clocks of an SM that issues the instructions of its thread blocks, counted in machine code.
  constexpr double kIssued = 3.8, kItem = 60, kPixel = 1.5, kPack = 1.5, kMove = 1.4, kStep = 15,
                   kLoop = 30, kFactor = 30, kMoved = 31, kBegin = 800;
  constexpr int kTurned = 3;  // slots whose sums do not move
  const int advance = advance_of(e.down, e.rows), slots = slots_of(spec, e.down, e.rows);
  if (static_cast<double>(advance) * seen(spec, e.across, e.columns) > kMostUnrolled) return {};
  const double pixels = static_cast<double>(advance) * seen(spec, e.across, e.columns),
               block = static_cast<double>(e.rows) * e.columns, steps = e.run + slots - 1,
               products = block * taps / (phases * phases_across),
               loads = pixels * (kPixel + kPack / line_pack(spec, e, e.columns, true)),
               item =
                   kItem + steps * (looped * (products + loads + (looped > 1 ? taps + kLoop : 0)) +
                                    block * (1 + kPack / e.packing.width) +
                                    (slots > kTurned ? kMove * block * (slots - 1) : 0) + kStep),
               per_thread = std::ceil(static_cast<double>(e.planes.units * e.planes.images) *
                                      of_unit / e.threads),
               code = e.threads / 32.0 * per_thread * item +
                      (e.shared_bytes / kPiece * kMoved +
                       static_cast<double>(e.planes.units * of_group) * all_taps * kFactor) /
                          32,
               issued = (std::ceil(grid / device.sms) * code / kIssued + kBegin) / device.clock;
  // A thread block copies, computes and stores one after another: as many of these are hidden as
  // there are others.
  constexpr double kStreams = 0.86, kOwn = 10;
  const double registers = slots * block + taps + pixels + kOwn,
               ctas = std::clamp(
                   std::min(
                       std::floor(device.shared_per_sm / (e.shared_bytes + device.shared_reserved)),
                       std::floor(device.registers_per_sm / (e.threads * registers))),
                   1.0, std::max(1.0, grid / device.sms)),
               late =
                   e.result ? 0 : bytes_beside(spec, e) / (kWindowsReach * device.memory_bandwidth),
               waited = kStreams * (memory + (kReadLate - 1) * late);
  e.microseconds = longer_in_groups(spec, e.looped, dims, false) *
                   (device.launch_microseconds + overlapped(waited, issued, 1 / ctas));
  e.wide_index = needs_wide_index(spec);
  return e;
}

}  // namespace sinter
