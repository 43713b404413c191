#include "schedule/contraction/image_rows.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/stored_rows.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr int kWarps = 4, kPixels = 16;  // of a block, and of a warp
constexpr int kPiece = 8;                // elements of k, and of results, that lie together
constexpr int kMostColumns = 128, kFewestColumns = 32;  // of a block, of many filters
constexpr int kMostOdd = 64;    // of numbers that are no multiple of 16: a block has all of them
constexpr int kMostSteps = 18;  // of k, whose fragments stay in registers
constexpr int kMostStepsOfWords = 24;  // the same of 32 bits, of which a step has half as many
constexpr int kMostPieces = 160;       // of a warp's group of rows: five a lane
constexpr int kStages = 4;             // 4, 6 and 10 take as long

// As ImageRows of the device library.
struct Run {
  std::int64_t step, eights, groups, rows, steps, pieces;
};
Run run_of(const ImageRowsConfig& i) {
  Run r{};
  const std::int64_t start = i.across.base * i.channels, together = 16 / i.image_bytes,
                     begins = start - floor_divide(start, together) * together;
  r.step = i.across.step * i.channels;
  const bool in_pairs = i.image_bytes < 4, uneven = in_pairs && r.step % 2 != 0;
  const std::int64_t skip = !in_pairs || uneven ? 0 : begins % 2;
  r.eights = fill_up(skip + i.across.taps * i.channels, kPiece) / kPiece;
  r.groups = fill_up(i.down.taps, i.down.step) / i.down.step;
  r.rows = i.frames.taps * (r.groups == 1 ? i.down.taps : i.down.step);
  r.steps = in_pairs ? (r.rows * r.eights + 1) / 2 : r.rows * r.eights;
  r.pieces =
      fill_up((kPixels - 1) * r.step + begins - skip + r.eights * kPiece + uneven, together) /
      together;
  if (i.image_bytes == 2 && r.step % kPiece == 0 && begins == skip) {
    const std::int64_t apart = r.step / kPiece | 8;
    r.pieces = fill_up(r.pieces, apart & -apart);
  }
  return r;
}

// A dim of the image whose taps are neighbours, in either order (`d.tap` is 1 or -1).
std::optional<SeenPixels> seen(const KernelSpec& spec, const ImageDim& d) {
  if (d.pixel_index < 0 || d.tap_index < 0 || d.divisor != 1 || std::abs(d.tap) != 1 ||
      d.pixel < 1 || !d.parts.empty())
    return {};
  const std::int64_t taps = spec.extent[d.tap_index];
  return SeenPixels{d.tap < 0 ? d.base - (taps - 1) : d.base, d.pixel, taps};
}

// What the caches bring and take: each pixel once.
double bytes_of(const KernelSpec& spec, const ImageRowsConfig& e) {
  const double images = e.image_index < 0 ? 1 : static_cast<double>(spec.extent[e.image_index]);
  double bytes = e.image_bytes * images *
                 static_cast<double>(e.lines * e.line * std::max<std::int64_t>(1, e.all_frames));
  for (std::size_t p = 0; p < spec.ports.size(); ++p)
    if (static_cast<int>(p) != e.image_port)
      bytes += static_cast<double>(elements_reached(spec.extent, spec.ports[p].access)) *
               info(spec.ports[p].type).bytes;
  return bytes;
}

// Results of a row's neighbouring pixels, whole ones, are one run of memory; columns are read one
// by one.
bool leaves_in_runs(const KernelSpec& spec, const ImageRowsConfig& e) {
  const int n = spec.contraction().first_n();
  if (loads_apart(spec, e.packing)) return false;
  return spec.ports[static_cast<std::size_t>(e.stored_rows)].access.stride[n - 1] == spec.extent[n];
}

// All that the epilogue has of each result is of 32 bits, and pairs of neighbours lie together.
bool leaves_in_words(const KernelSpec& spec) {
  const ContractionSpec& c = spec.contraction();
  if (spec.extent[c.first_n()] % 2 != 0) return false;
  return std::all_of(spec.body.statements.begin(), spec.body.statements.end(),
                     [&](const Statement& s) {
                       if (s.kind == StatementKind::random || s.kind == StatementKind::gather ||
                           s.kind == StatementKind::index || s.kind == StatementKind::inside)
                         return false;
                       if (!is_load(s) && !is_store(s)) return true;
                       const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
                       if (!p.access.windows.empty() || !p.access.via.empty()) return false;
                       return !(p.written || of_whole_tile(spec, p)) ||
                              (info(p.type).bytes == 4 && p.access.stride[c.first_n()] == 1);
                     });
}

// Columns of 64 results of all images, their height, and how many blocks share each.
struct BandProblem {
  double columns, height, tiles;
};
BandProblem bands_of(const KernelSpec& spec, const ImageRowsConfig& e) {
  const ContractionSpec& c = spec.contraction();
  const int x = c.first_n() - 1;
  const double beside = std::ceil(static_cast<double>(spec.extent[x]) / kPixels);
  return {std::ceil(beside * elements(spec.extent, 0, x - 1) / kWarps),
          static_cast<double>(spec.extent[x - 1]),
          std::ceil(static_cast<double>(spec.extent[c.first_n()]) / e.tile.n)};
}
// Blocks of the same filters.
double at_once(const BandProblem& p, const ImageRowsConfig& e, const DeviceModel& device) {
  return std::max(1.0, std::floor(e.least_blocks * device.sms / p.tiles));
}
// Rows of results of a band: as few as leave little for the rows that are loaded in front of them,
// and such that the last round of bands is as full as the others. Few different ones, since each is
// a text of its own. `before`: groups of these.
int band_of(const BandProblem& p, double at_once, double before) {
  constexpr double kRowBefore = 0.3;  // of what a row of results takes
  constexpr int kMost = 32;
  int best = 1;
  double least = 0;
  for (int band = 1; band <= std::min<double>(kMost, p.height); band *= 2) {
    const double rounds = std::ceil(p.columns * std::ceil(p.height / band) / at_once),
                 takes = rounds * (band + kRowBefore * before);
    if (band > 1 && takes >= least) continue;
    least = takes;
    best = band;
  }
  return best;
}
std::uint32_t grid_of(const BandProblem& p, const ImageRowsConfig& e, const DeviceModel& device) {
  return clamp_grid(p.tiles *
                    std::min(p.columns * std::ceil(p.height / e.band), at_once(p, e, device)));
}

// Patches: windows side by side are none of the access, and a row of one is a single index, which
// counts the channels of pixels as wide as a patch. The index that is added, of the filter's one
// tap across; -1: no patches.
int tap_of_patches(KernelSpec& spec, ConvolutionRoles& roles) {
  ContractionSpec& c = spec.contraction();
  int port = -1;
  const KernelPort* const image = loaded_port(spec, c.a(), port);
  if (c.k() != 2 || !image || !image->access.windows.empty()) return -1;
  int channel = c.first_k(), tap = channel + 1;
  if (image->access.stride[channel] != 1) std::swap(channel, tap);
  roles.channels = {channel};
  roles.taps = {tap};
  add_unit_index(spec, spec.extent.size());
  c.k_indices.push_back(KIndex::filter_tap);
  return spec.extent.size() - 1;
}

// Lines of pixels as images of one row, which a filter of one row sees.
void add_row(KernelSpec& spec) {
  ContractionSpec& c = spec.contraction();
  ConvolutionRoles roles;
  int port = -1, image_index = -1;
  std::int64_t offset = 0;
  const KernelPort* const image = loaded_port(spec, c.a(), port);
  if (!add_batch_and_k(c, roles) || roles.pixels_in_k || !image || roles.taps.size() != 1 ||
      roles.channels.size() > 1)
    return;
  for (int i = c.first_m(); i < c.first_n(); ++i) roles.pixels.push_back(i);
  const auto dims = image_dims(spec, roles, image->access, image_index, offset);
  if (!dims || dims->size() != 1 || dims->front().pixel_index != c.first_n() - 1) return;
  // Rows are apart by twice what lies between images, or in one: image_dims() takes indices of like
  // steps together.
  std::int64_t between = dims->front().extent * dims->front().stride;
  if (image_index >= 0) between = std::max(between, image->access.stride[image_index]);
  const std::int64_t apart = 2 * between;
  const auto add = [&](int at) {
    add_unit_index(spec, at);
    spec.ports[static_cast<std::size_t>(port)].access.stride[at] = apart;
  };
  add(c.first_n() - 1);
  ++c.m;
  add(c.first_k());
  c.k_indices.insert(c.k_indices.begin(), KIndex::filter_tap);
  if (!roles.channels.empty()) return;
  add_unit_index(spec, spec.extent.size());
  c.k_indices.push_back(KIndex::channels);
}

// Notes how the image lies, and gives the order of indices that the kernel wants: image, frame of
// a volume, row and column; filter's frame, row, column and channel. Empty where it lies in no way
// that the kernel reads.
std::vector<int> read_image(KernelSpec& spec, ImageRowsConfig& e) {
  add_row(spec);
  ContractionSpec& c = spec.contraction();
  ConvolutionRoles roles;
  if (!add_batch_and_k(c, roles) || roles.pixels_in_k) return {};
  const int unit_tap = tap_of_patches(spec, roles);
  if (roles.taps.size() < (unit_tap < 0 ? 2 : 1) || roles.channels.size() > 1) return {};
  if (roles.channels.empty()) {
    roles.channels = {spec.extent.size()};
    add_unit_index(spec, spec.extent.size());
    c.k_indices.push_back(KIndex::channels);
  }
  for (int i = c.first_m(); i < c.first_n(); ++i) roles.pixels.push_back(i);
  int filter_port = -1;
  const KernelPort* const image = loaded_port(spec, c.a(), e.image_port);
  const KernelPort* const filter = loaded_port(spec, c.b(), filter_port);
  if (!image || !filter || image->alignment < 16) return {};
  const bool bytes = multiplied_as_bytes(image->type, filter->type),
             rounded = image->type == DataType::f32 && c.a().type == DataType::tf32 &&
                       c.b().type == DataType::tf32;
  if (!bytes && (image->type != filter->type || !(is_16_bit_float(image->type) || rounded)))
    return {};
  if (!sums_as_right_in_f32(spec, image->type, filter->type)) return {};
  e.number = bytes ? DataType::f16 : rounded ? DataType::tf32 : image->type;
  e.image_bytes = info(image->type).bytes;
  int image_index = -1;
  std::int64_t offset = 0;
  const auto dims = image_dims(spec, roles, image->access, image_index, offset);
  if (!dims || dims->size() < 2 || roles.pixels.size() > dims->size() + 1) return {};
  const ImageDim& down = (*dims)[dims->size() - 2];
  ImageDim frames, across = dims->back();
  if (unit_tap >= 0) across.tap_index = unit_tap, across.tap = 1;
  const auto rows = seen(spec, down), columns = seen(spec, across);
  const int channel = roles.channels.front();
  e.channels = spec.extent[channel];
  if (e.channels * e.image_bytes % 128 == 0) return {};         // which TMA brings
  if (down.extent == 1 && e.channels % kPiece == 0) return {};  // lines of many: not measured
  if (!rows || !columns || across.stride != e.channels ||
      (e.channels > 1 && image->access.stride[channel] != 1))
    return {};
  e.down = *rows;
  e.across = *columns;
  e.line = across.extent * e.channels;
  e.lines = down.extent;
  e.pitch = down.stride;
  e.offset = image->access.offset + offset;
  e.image_index = image_index < 0 ? -1 : 0;
  e.image_step = image_index < 0 ? 0 : image->access.stride[image_index];
  if (dims->size() == 3) {
    frames = dims->front();
    if (frames.tap_index < 0) {
      frames.tap_index = spec.extent.size();
      frames.tap = 1;
      add_unit_index(spec, spec.extent.size());
      c.k_indices.push_back(KIndex::filter_tap);
    }
    const auto all = seen(spec, frames);
    if (!all) return {};
    e.frames = *all;
    e.all_frames = frames.extent;
    e.frame_pitch = frames.stride;
  }
  for (std::int64_t x : {e.line, e.pitch, e.frame_pitch, e.offset, e.image_step})
    if (x * e.image_bytes % 16 != 0) return {};
  for (const ImageDim* d : {&down, &std::as_const(across), &std::as_const(frames)})
    if (d->tap < 0) {  // of a data gradient
      if (names_index(spec, d->tap_index)) return {};
      reverse_index(spec, d->tap_index);
    }
  std::vector<int> order;
  if (image_index >= 0) order.push_back(image_index);
  if (frames.pixel_index >= 0) order.push_back(frames.pixel_index);
  order.insert(order.end(), {down.pixel_index, across.pixel_index, c.first_n()});
  if (frames.pixel_index >= 0) order.push_back(frames.tap_index);
  order.insert(order.end(), {down.tap_index, across.tap_index, channel});
  if (static_cast<int>(order.size()) != spec.extent.size()) return {};
  return order;
}

// What shared memory moves and what tensor cores multiply, in clocks of a warpgroup's row of
// results, of which there are so many; and what the caches bring. `odd`: results are put together
// element by element.
double estimate(const KernelSpec& spec, const ImageRowsConfig& e, double all, bool odd,
                const DeviceModel& device) {
  const Run run = run_of(e);
  const auto filters = static_cast<std::int64_t>(e.tile.n);
  constexpr double kBusy = 1.3, kRowOfBlock = 150;
  // (On an H100, where memory takes 1.3 times as long: 20 channels of 96 x 96, 20 filters 23.7 us,
  // 10.2 without this; 12 of 128 x 128 20.3 and 11.2; 3 of 224 x 224, 21 filters 54.2 and 29.8.)
  const double apart = odd && e.stored_rows >= 0 ? 1.6 : 1;
  // Of channels that are pieces, 3 x 3, 64 x 112 x 112 on an H200, us, by joined pixels or loaded
  // for each tap, here, estimated without this: 8 to 8 47.4, 17.6, 15.2; 16 to 16 46.6, 28.7, 19.5;
  // 24 to 24 66.5, 39.3, 28.8; 32 to 32 70.0, 48.4, 37.0; 32 to 64 74.7, 82.2, 56.3; 16 to 32 of
  // stride 2 30.1, 19.0, 14.5; 128 x 32 x 32 of 16 to 16 12.0, 9.2, 4.9.
  // Results of 32 bits leave 8 bytes a lane: 64 x 4 x 128 x 128 of i8, 64 of 3 x 3 113.7 us on an
  // H200, 86.1 without this; 32 x 3 x 224 x 224, 64 of 7 x 7, stride 2 45.8 and 36.6. (Those of
  // tf32 are guesses.)
  // Bytes become f16: 64 x 16 x 112 x 112 of f8e4m3, 16 of 3 x 3 24.6 and 19.2; 32 x 3 x 224 x 224,
  // 64 of 7 x 7, stride 2 30.1 and 18.8.
  const double words = e.stored_rows < 0 ? 1.35 : e.image_bytes == 1 ? 1.3 : 1;
  const double pieces = e.channels % kPiece == 0 ? 1.3 : 1;
  // Channels first, sectors of 32 bytes leave here and there: nine on an H200 took 1.04 to 1.55 of
  // what is estimated without this, 1.28 on average.
  const double lines = e.stored_lines ? 1.25 : 1;
  const double products = static_cast<double>(run.groups * run.steps * filters) / 2,
               moved = products / 2 + static_cast<double>(run.steps * 16 + filters * 2),
               clocks = std::max({products, moved, kRowOfBlock}) * kBusy;
  const double issued = std::ceil(all / device.sms) * clocks / device.clock,
               memory = bytes_of(spec, e) / (kWindowsReach * device.memory_bandwidth);
  return device.launch_microseconds + apart * pieces * words * lines * overlapped(memory, issued);
}

}  // namespace

std::optional<ImageRowsPlan> plan_image_rows(const KernelSpec& given, const DeviceModel& device) {
  const ContractionSpec* const old = given.as_contraction();
  if (!device.has_wgmma || !old || !is_single_product(*old) || old->marked_zeros ||
      !given.cross_row_reductions.empty() || old->batch != 0 || old->n != 1 ||
      std::find(old->k_indices.begin(), old->k_indices.end(), KIndex::filter_tap) ==
          old->k_indices.end() ||
      old->promote_accumulators || reads_joined_indices(given))
    return {};
  ImageRowsPlan plan{given, {}};
  KernelSpec& spec = plan.spec;
  ContractionSpec& c = spec.contraction();
  ImageRowsConfig& e = plan.engine;
  const std::vector<int> order = read_image(spec, e);
  if (order.empty()) return {};
  const Run run = run_of(e);
  const std::int64_t all_filters = spec.extent[c.first_n()];
  const bool odd = all_filters % kPiece != 0, fills_up = all_filters % 16 != 0;
  if ((fills_up && all_filters > kMostOdd) ||
      run.groups * run.steps > (e.image_bytes < 4 ? kMostSteps : kMostStepsOfWords) ||
      run.rows * run.pieces > kMostPieces)
    return {};
  std::int64_t filters = std::min<std::int64_t>(fill_up(all_filters, 16), kMostColumns);
  while (!fills_up && all_filters % filters != 0) filters -= 16;
  if (filters < std::min<std::int64_t>(all_filters, kFewestColumns)) return {};

  c.k_indices.assign(c.k_indices.size() - 1, KIndex::filter_tap);
  c.k_indices.push_back(KIndex::channels);
  reorder(spec, order);
  const bool lines = prefers(spec, spec.body, c.first_n(), c.first_n() - 1, is_store);
  if (lines && odd) return {};
  if (elements(spec.extent, 0, spec.extent.size()) == 0) return {};

  sum_in_f32(spec);
  e.tile.m = e.loaded_rows = 64;
  e.tile.n = static_cast<int>(filters);
  e.tile.consumers = 1;
  e.tile.stages = kStages;
  e.threads = 32 * kWarps;
  e.packing = choose_packing(spec, c.first_n(), 8);
  store_as_summed(spec, e, {.rows_exist = false, .bytes_too = !lines, .lines = lines});
  if (lines) {
    if (e.stored_rows < 0 || (all_filters % e.tile.n != 0 && loads_apart(spec, e.packing)))
      return {};
    // Two neighbouring filters' results are computed together, though they leave apart.
    e.packing.ports[static_cast<std::size_t>(e.stored_rows)] = {.kind = PortPack::Kind::pack};
  } else if (e.stored_rows < 0) {
    if (!leaves_in_words(spec)) return {};
    e.packing = choose_packing(spec, c.first_n(), 2);
  } else {
    if (odd) {
      if (!leaves_in_runs(spec, e)) return {};
      e.stored_together = 1;
    }
    if (e.stored_together != (odd ? 1 : 8)) return {};
    if (all_filters % e.tile.n != 0 && loads_apart(spec, e.packing)) return {};
  }
  e.result.reset();
  e.wide_index = needs_wide_index(spec);
  // Zeros of the filter meet pixels beside its taps.
  if (is_floating(spec.ports[static_cast<std::size_t>(e.image_port)].type))
    e.counted.which = CountedProducts::Which::every;

  const BandProblem p = bands_of(spec, e);
  const double all = p.columns * p.height * p.tiles;
  if (all * kWarps * kPixels >= 0x1p31) return {};  // rows of the product are counted in 32 bits
  const double shared =
      static_cast<double>(run.groups * run.steps * 32 * filters + kWarps * kEpilogueTileBytes +
                          kWarps * kStages * run.rows * run.pieces * 16 + kLostToAlignment);
  if (shared > device.shared_per_cta) return {};
  // Registers: sums, fragments, and all else.
  const double kept = static_cast<double>(filters / 2 + run.groups * run.steps * 4) + 48;
  const double by_registers = std::floor(device.registers_per_sm / (32.0 * kWarps) / kept),
               by_memory = std::floor(device.shared_per_sm / (shared + device.shared_reserved));
  e.least_blocks = static_cast<int>(std::clamp(std::min(by_registers, by_memory), 1.0, 6.0));
  e.band = band_of(p, at_once(p, e, device), static_cast<double>(run.groups - 1));
  e.grid = grid_of(p, e, device);
  e.shared_bytes = static_cast<std::uint32_t>(shared);

  e.microseconds = estimate(spec, e, all, odd, device);
  return plan;
}

std::optional<ImageRowsPlan> schedule_as(const ImageRowsConfig& decided, const KernelSpec& given,
                                         const DeviceModel& device) {
  auto plan = plan_image_rows(given, device);
  if (!plan) return {};
  ImageRowsConfig& e = plan->engine;
  if (e.tile.n != decided.tile.n || e.shared_bytes != decided.shared_bytes ||
      e.stored_rows != decided.stored_rows || e.stored_lines != decided.stored_lines ||
      !holds(decided.packing, e.packing))
    return {};
  e.packing = decided.packing;
  e.band = decided.band;
  e.grid = grid_of(bands_of(plan->spec, e), e, device);
  e.wide_index |= decided.wide_index;
  return plan;
}

}  // namespace sinter
