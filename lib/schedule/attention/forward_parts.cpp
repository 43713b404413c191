#include "schedule/attention/forward_parts.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/attention/forward_tile.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// A product of the kernel as a contraction of its own.
KernelSpec product(KernelSpec spec, ProductOperand a, ProductOperand b) {
  ContractionSpec c;
  c.batch = AttentionSpec::batch;
  c.m = 2;
  c.n = 1;
  c.k_indices = {KIndex::channels};
  c.products = {Product{std::move(a), std::move(b)}};
  spec.family = std::move(c);
  return spec;
}
}  // namespace

KernelSpec scores_of(const KernelSpec& spec) {
  const AttentionSpec& a = spec.attention();
  KernelSpec first = without_index(spec, AttentionSpec::e);
  const AttentionSpec own = first.attention();
  first.body = own.score;
  return product(std::move(first), a.q, a.k);
}
KernelSpec outputs_of(const KernelSpec& spec) {
  return product(without_index(spec, AttentionSpec::d), {}, spec.attention().v);
}

std::int64_t rows_of(const KernelSpec& spec) {
  return spec.extent[AttentionSpec::member] * spec.extent[AttentionSpec::query];
}

std::optional<BoxedOperand> paged(const KernelSpec& spec, const ProductOperand& operand, bool keys,
                                  bool widened) {
  const auto& body = operand.body.statements;
  if (body.empty() || body.size() > 2 || body[0].kind != StatementKind::gather ||
      (body.size() == 2 && body[1].kind != StatementKind::convert))
    return {};
  const Gather& g = spec.gathers[static_cast<std::size_t>(body[0].gather)];
  if (g.op != OpKind::page_gather) return {};
  const KernelPort& p = spec.ports[static_cast<std::size_t>(g.ports[0])];
  const Dims &dim = g.dims[0], &stride = g.strides[0];
  const std::int64_t bytes = info(p.type).bytes;
  if ((p.type != operand.type && !(widened && is_f8(p.type))) || p.alignment < 16 ||
      p.access.offset * bytes % 16 != 0 || (body.size() == 2 && body[1].type != p.type) ||
      (stride[3] != 1 && dim[3] > 1))
    return {};
  BoxedOperand o;
  o.source = BoxedOperand::Source::pages;
  o.gather = body[0].gather;
  o.page = dim[2];
  o.port = g.ports[0];
  o.k_fastest = keys;
  o.map.type = p.type;
  o.map.offset = p.access.offset * bytes;
  o.map.swizzle = 128;
  o.map.dim = {dim[3]};
  for (int i : {2, 1, 0}) {
    const std::int64_t step = dim[i] > 1 ? stride[i] * bytes : tma::kUnit;
    if (!tma::takes_step(step)) return {};
    o.map.dim.push_back(dim[i]);
    o.map.stride.push_back(step);
  }
  for (std::int64_t n : o.map.dim)
    if (n < 1 || n >= tma::kCoordinateEnd) return {};
  return o;
}

void set_swizzled_lines(BoxedOperand& o, int rows, int k) {
  o.map.box = Dims::filled(o.map.dim.size(), 1);
  o.map.box[0] = kLineBytes / info(o.map.type).bytes;
  o.map.box[1] = o.k_fastest ? rows : k;
  if (o.page > 0) o.map.box[1] = std::min(o.map.box[1], o.page);
}

bool rounds_divided(const Body& weight) {
  return !weight.statements.empty() && weight.statements.back().kind == StatementKind::convert &&
         info(weight.statements.back().type).bytes == 2;
}
Body unrounded(Body weight) {
  if (!rounds_divided(weight)) return weight;
  const int value = weight.statements.back().args[0];
  weight.statements.resize(static_cast<std::size_t>(value) + 1);
  if (value == 0) weight.statements.clear();
  return weight;
}

namespace {

// Whether eight neighbouring keys' numbers are loaded at once.
bool loads_neighbours(const KernelSpec& scores, const KernelPort& p) {
  constexpr std::int64_t kTogether = 8;
  const int n = scores.contraction().first_n();
  const Access& a = p.access;
  const std::int64_t bytes = info(p.type).bytes, step = bytes == 1 ? kTogether : 16 / bytes;
  if (scores.extent[n] % kTogether != 0 || p.alignment < 16 || a.offset % step != 0 ||
      a.stride[n] != 1)
    return false;
  for (int j = 0; j < a.stride.size(); ++j)
    if (j != n && scores.extent[j] > 1 && a.stride[j] % step != 0) return false;
  return true;
}

// Whether all rows of a head read the same.
bool same_for_rows(const KernelSpec& scores, const KernelPort& p) {
  const ContractionSpec& c = scores.contraction();
  for (int i = c.first_m(); i < c.first_n(); ++i)
    if (p.access.stride[i] != 0 && scores.extent[i] > 1) return false;
  return true;
}

}  // namespace

std::vector<LoadBeside> loads_beside(const KernelSpec& scores, bool boxes) {
  constexpr std::size_t kMost = 2;  // registers of a thread hold no more
  constexpr std::int64_t kFewRows = 32;
  const ContractionSpec& c = scores.contraction();
  const auto& body = scores.body.statements;
  std::vector<LoadBeside> boxed, loaded;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const Statement& s = body[i];
    if (s.kind != StatementKind::load || s.arithmetic != DataType::f32 || !s.args.empty()) continue;
    const KernelPort& p = scores.ports[static_cast<std::size_t>(s.port)];
    if (info(p.type).bytes > 4 || !p.access.windows.empty() || !p.access.via.empty()) continue;
    LoadBeside load{static_cast<int>(i), {}, same_for_rows(scores, p)};
    // Rows of their own fill a box of 64, however few there are.
    if (boxes && (load.same_rows || count(scores.extent, c.first_m(), c.first_n()) > kFewRows))
      load.box = boxed_port(scores, s.port, c.batch,
                            {c.first_m(), load.same_rows ? c.first_m() : c.first_n()}, c.first_n());
    if (load.box)
      boxed.push_back(std::move(load));
    else if (loads_neighbours(scores, p))
      loaded.push_back(std::move(load));
  }
  boxed.insert(boxed.end(), loaded.begin(), loaded.end());
  if (boxed.size() > kMost) boxed.resize(kMost);
  return boxed;
}

// BoxBeside in attention_neighbours.cuh has the same.
void set_boxes_beside(AttentionConfig& e) {
  constexpr int kRows = 64;  // of a consumer
  for (LoadBeside& load : e.loads_beside) {
    if (!load.box) continue;
    TensorMap& map = load.box->map;
    const int element = info(map.type).bytes, bytes = e.tile_k * element;
    map.box = Dims::filled(map.dim.size(), 1);
    if (load.same_rows) {
      map.swizzle = 0;
      map.box[0] = e.tile_k;
      continue;
    }
    map.swizzle = bytes % 128 == 0 ? 128 : bytes % 64 == 0 ? 64 : 32;
    map.box[0] = map.swizzle / element;
    map.box[1] = kRows;
  }
}

bool loads_alike(const LoadBeside& a, const LoadBeside& b) {
  return a.statement == b.statement && a.same_rows == b.same_rows &&
         a.box.has_value() == b.box.has_value() && (!a.box || a.box->loads_like(*b.box));
}

int bytes_of_boxes(const AttentionConfig& e) {
  constexpr int kLine = 1024;  // of what is the same for all rows: where the next tile may begin
  int bytes = 0;
  for (const LoadBeside& load : e.loads_beside)
    if (load.box)
      bytes += load.same_rows ? e.consumers * kLine
                              : e.tile_q * e.tile_k * info(load.box->map.type).bytes;
  return bytes;
}

PartOfKeys part_of_keys(const AttentionConfig& e, std::int64_t width) {
  constexpr int kFewRows = 16, kThreads = 128;
  const bool by_rows = e.consumers == 1 && e.part_rows <= kFewRows;
  const int columns = up(width, 16);
  return {by_rows, by_rows ? up(e.part_rows * (columns + 2), 4) : kThreads * (columns / 2 + 4)};
}

SharedParts shared_parts(const KernelSpec& spec, const AttentionConfig& e,
                         const DeviceModel& device) {
  const std::int64_t counter = part_of_keys(e, spec.extent[AttentionSpec::e]).floats,
                     floats_of_one = counter + 4, parts = 2LL * device.sms * e.consumers;
  return {parts * floats_of_one, parts, counter, floats_of_one};
}

void share_keys(const KernelSpec& spec, double units, const DeviceModel& device,
                AttentionConfig& e) {
  constexpr double kMostIdle = 0.04;
  const auto heads = static_cast<int>(spec.extent[AttentionSpec::head]);
  e.share_lanes = 1;
  for (int n = 2; n <= std::min(heads, device.sms); ++n)
    if (heads % n == 0 && device.sms % n <= kMostIdle * device.sms) e.share_lanes = n;
  const double most = device.sms / e.share_lanes,
               ctas = std::clamp(std::floor(units / e.share_lanes), 1.0, most);
  e.grid = clamp_grid(ctas * e.share_lanes);
}

bool joins_many_rows(const AttentionConfig& e, const DeviceModel& device) {
  constexpr int kFewestBlocks = 4;
  return e.consumers == 1 && e.part_rows > kJoinedRows && e.key_blocks >= kFewestBlocks &&
         2 * static_cast<int>(e.grid) > device.sms;
}

double microseconds_of_join(const AttentionConfig& e, double items, int width,
                            const DeviceModel& device) {
  // Each of 128 threads reads four columns of a row at a time, of so many parts (PartsOfKeys). (On
  // an H200, us, shares and parts that another kernel joins, h32 of 8, 8192 keys: d128, b4, one
  // query 38.6 and 37.3, four 46.1 and 39.0; d256, b4 74 and 67, b8 h8 of 1 31.9 and 25.5. Clusters
  // of eight blocks and 16 parts, b4, 32 heads of one, 4096 keys, d64: 9.1 and 6.2.)
  constexpr double kCount = 1, kRead = 1.3, kAtOnce = 128 * 4, kCluster = 0.7, kClusterMore = 1.1;
  constexpr double kMeasured = 16;  // parts that kCluster was measured with
  const double parts = std::max(1.0, e.grid / items);
  if (e.attention.parts >= 0 && e.consumers > 1) return kCount + kRead * (1 + std::ceil(parts));
  // Of a cluster, from shared memory, kJoinedRows by each block. (One query of b16, 64 heads of
  // one, d128, 16,384 keys in clusters of six, by one and two warpgroups: 36.6 and 37.6, without
  // the join 34.7 and 34.5; 32 heads 36.0 and 36.4.) What is known of few rows, few blocks and two
  // walks is of joins by one block.
  constexpr double kPart = 0.067;
  if (joins_many_rows(e, device))
    return kCluster + kPart * e.key_blocks * e.alternating *
                          (std::ceil(kJoinedRows * up(width, 16) / kAtOnce) - 1);
  if (e.key_blocks > 1)
    return (kCluster + kClusterMore * (std::ceil(e.part_rows * up(width, 16) / kAtOnce) - 1)) *
           (e.consumers > 1 ? e.key_blocks / kMeasured : 1);
  return kCount + kRead * std::ceil(e.part_rows * up(width, 16) / kAtOnce) *
                      std::ceil(parts / (width <= 128 ? 16 : 8));
}

namespace {

// The share of the keys that no row sees, of a batch entry that is as long as it may be; of those
// that a mask by indices hides from all rows of the band, as samples say.
double unseen_share(const KernelSpec& spec) {
  const AttentionSpec& a = spec.attention();
  const auto rows = static_cast<double>(spec.extent[AttentionSpec::query]),
             keys = static_cast<double>(spec.extent[AttentionSpec::n]);
  if (a.sequences.count > 0) return 0;
  const double shift = a.band.bottom_right ? keys - rows : 0,
               first = a.band.left ? shift - static_cast<double>(*a.band.left) + 1 : 0,
               end = a.band.right ? rows + shift + static_cast<double>(*a.band.right) : keys;
  return 1 - std::max(0.0, std::min(end, keys) - std::max(first, 0.0)) / keys * seen_by_some(spec);
}

}  // namespace

double bytes_of_attention(const KernelSpec& spec, const AttentionConfig& e,
                          const DeviceModel& device) {
  using A = AttentionSpec;
  const std::int64_t group = e.attention.group;
  double bytes = bytes_moved(spec) / group;
  const double keys =
      static_cast<double>(count(spec.extent, 0, A::batch) / group * spec.extent[A::n]);
  if (e.k.page > 0)
    bytes += keys * static_cast<double>(spec.extent[A::d]) * info(e.k.map.type).bytes;
  if (rounds_divided(e.weight)) {  // keys are read again, some from the second-level cache
    const double again = keys * static_cast<double>(spec.extent[A::d]) * info(e.k.map.type).bytes;
    if (again > static_cast<double>(device.l2_bytes) / 2) bytes += again;
  }
  if (e.values_in_keys) {
    if (e.v.page == 0)
      bytes -= static_cast<double>(elements_reached(
                   spec.extent, spec.ports[static_cast<std::size_t>(e.v.port)].access)) *
               info(e.v.map.type).bytes / group;
  } else if (e.v.page > 0)
    bytes += keys * static_cast<double>(spec.extent[A::e]) * info(e.v.map.type).bytes;
  // Keys that no row sees are not loaded.
  const double of_key =
      static_cast<double>(spec.extent[A::d]) * info(e.k.map.type).bytes +
      (e.values_in_keys ? 0 : static_cast<double>(spec.extent[A::e]) * info(e.v.map.type).bytes);
  return std::max(bytes - keys * unseen_share(spec) * of_key, 0.0);
}

// What an SM multiplies, at the share that was measured, one consumer
// without another to overlap with at half of that, twice as many of f8, where the softmax may take
// longer; or what memory brings to so many SMs. (Wide: 66 x 128 heads 576 and 512, 4096 keys, 162
// us estimated, 148 on an H100. f8, b4 h32 s4096, d128 and d64 on an H200: 1,270 and 1,270, 1,464
// and 1,141.)
double microseconds_by_warpgroups(const KernelSpec& spec, const AttentionConfig& e, double items,
                                  const DeviceModel& device) {
  constexpr double kReached = 0.65, kReachedWide = 0.55;
  constexpr double kEnds = 1;  // microseconds of the first and the last tile of many rows
  // Of few rows: what one consumer reaches alone, and one SM of its bandwidth. (On an H200, b4 h32
  // of 8, d128: 8192 keys by 32 CTAs 68 us; b1, 16384 keys by 64 CTAs and by 128 22.4 and 24.4.)
  constexpr double kReachedFew = 0.57, kOfSm = 0.7;
  // Parts of more than 16 rows get less on more than half of the SMs, and the longest one is the
  // last. (On an H200, one query of 64 heads of one, d128, b16, us, by 4, 5, 6 and 8 parts: 16,384
  // keys 41.6, 45.0, 43.6, 40.8; 65,536 keys by 5 and 8 168 and 132. 32 heads, b8, 8192 keys, by 8,
  // 12 and 16 15.7, 17.1, 17.2.)
  constexpr double kOfSmBeside = 0.51;
  // Clusters of more than two blocks lie so that memory brings half as much to each block where
  // there are many, whatever the kernel does with it. (On an H200, h32 of 8, d128, us, by blocks of
  // a cluster: b1, 16,384 keys, 3 38.9, 5 25.6, 6 22.4, 7 29.5, 8 28.3, of which the loads alone
  // 27; b2, 16,384 keys, 3 40.1, 4 53.6, 5 40.9; b4, 8192 keys, 2 34.1, 3 37.4.)
  constexpr double kOfSmAlternating = 0.84, kOfSmInCluster = 0.94, kOfSmCrowded = 0.52;
  constexpr double kCrowded = 0.37;  // of the SMs
  // Nor do those of many rows reach what parts do of the memory's bandwidth. (One query of b16, 64
  // heads of one, d128, 16,384 keys in clusters of 6, 5, 4: 36.6, 43.5, 55.9 us, in parts 38.6, of
  // which the kernel that joins them is 2.7; 65,536 keys in parts 128.7; d64 22.0, parts 23.5.)
  constexpr double kReachedInCluster = 0.94;
  // What a score takes at least, clocks of an SM; of one consumer, which waits for its products.
  // (16 x 64 heads of one, one query, 16,384 keys of 64 elements in 4 parts on an H200: 32.4 us.)
  constexpr double kScore = 0.11, kScoreAlone = 0.17, kScoreF8 = 0.12;
  const AttentionSpec& a = spec.attention();
  const std::int64_t depth = spec.extent[AttentionSpec::d], width = spec.extent[AttentionSpec::e];
  // Scores are computed again for the weights.
  const double scores = rounds_divided(a.weight) ? 2 : 1;
  const bool few = !e.wide && e.consumers == 1, shares = a.parts >= 0, cluster = e.key_blocks > 1;
  const bool many_rows = !e.wide && rows_of(spec) > kConsumerRows,
             counted = many_rows && !cluster && counts_shares(spec);
  const double tiles_k = std::ceil(keys_of_a_row(spec) / a.splits / e.tile_k);
  // Tiles of keys, one behind another.
  const double in_row = shares    ? std::ceil(items * tiles_k / e.grid)
                        : counted ? longest_share(spec, e) / e.tile_k
                        : cluster ? std::ceil(tiles_k / e.key_blocks)
                                  : std::ceil(items / e.grid) * tiles_k;
  const auto part = [](const BoxedOperand& o, std::int64_t elements) {
    return static_cast<double>(elements) * (is_f8(o.map.type) ? 0.5 : 1);
  };
  const double reached = e.wide ? kReachedWide : few && e.alternating == 1 ? kReachedFew : kReached;
  const double clocks = e.tile_q * e.tile_k *
                        std::max(2 * (scores * part(e.k, depth) + part(e.v, width)) /
                                     device.tensor_operations / reached,
                                 is_f8(e.k.map.type)         ? kScoreF8
                                 : few && e.alternating == 1 ? kScoreAlone
                                 : e.wide                    ? 0
                                                             : kScore);  // of a tile
  constexpr std::int64_t kFewRows = 16;
  const bool beside =
      few && a.splits > 1 && rows_of(spec) > kFewRows && 2 * static_cast<int>(e.grid) > device.sms;
  const double bytes = bytes_of_attention(spec, e, device),
               reached_of_sm = e.key_blocks > 2    ? (e.grid > kCrowded * device.sms ? kOfSmCrowded
                                                                                     : kOfSmInCluster)
                               : e.alternating > 1 ? kOfSmAlternating
                               : beside            ? kOfSmBeside
                               : few               ? kOfSm
                                                   : 1,
               of_sm = reached_of_sm * device.sm_bandwidth;
  // Heads that share K and V read them at once where each has a lane of CTAs; other tiles of rows
  // do not.
  const double read_by_tiles =
      shares && !few ? items * tiles_k * e.tile_k * static_cast<double>(depth + width) *
                           info(e.k.map.type).bytes /
                           (e.share_lanes == spec.extent[AttentionSpec::head] ? a.group : 1)
                     : 0;
  // The last round of tiles may leave SMs idle. That of few rows, which wait for memory, counts.
  const double bandwidth =
      device.memory_bandwidth * (joins_many_rows(e, device) ? kReachedInCluster : 1);
  const auto streamed = [&](double ctas) { return ctas / std::min(bandwidth, ctas * of_sm); };
  const double rest = !few || shares || cluster ? 0 : std::fmod(items, e.grid),
               longest =
                   beside ? tiles_k * a.splits / std::ceil(keys_of_a_row(spec) / e.tile_k) : 1,
               memory = rest == 0
                            ? bytes * longest / e.grid * streamed(e.grid)
                            : bytes / items *
                                  (std::floor(items / e.grid) * streamed(e.grid) + streamed(rest));
  return device.kernel_microseconds() + (few ? 0 : kEnds) +
         (shares || cluster ? microseconds_of_join(e, items, static_cast<int>(width), device) : 0) +
         std::max({in_row * clocks * e.least_blocks / device.clock, memory,
                   read_by_tiles / device.memory_bandwidth});
}

}  // namespace sinter
