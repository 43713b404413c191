#include "planner/split/split_k.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/contraction_spec.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/attention_splits.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/mma.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kMostParts = 256, kMostImageParts = 1024;
constexpr std::int64_t kLeastRun = 16;    // elements of a part that lie together
constexpr std::int64_t kLeastDepth = 64;  // of a part
constexpr std::int64_t kTile = 128 * 128;
// Estimates are rough: of the time without parts, at most so much, and this many microseconds less.
constexpr double kGain = 0.9, kLeastGain = 1.8;
// Of filter gradients parts take less than is estimated, on the same engine. (On an H200, in
// clusters that share a tile and in parts, us: 64 x 512 x 14 x 14 in 8 groups 23.3 and 21.6,
// estimated at 26.6 and 23.2; 64 x 128 x 17 x 17, 192 of 7 x 1, 24.5 and 19.8, at 22.3 and 21.9; 32
// x 192 x 28 x 28, 48 of 3 x 3, 20.0 and 18.2, at 21.4 and 21.4. Of others with little to gain they
// take more: 2 x 2560 x 8 x 8, 1280 of 3 x 3, forward, 22.8 and 24.2.)
constexpr double kGainOfGradients = 1;
// Of few rows on tensor cores, in plans of many extents: these have fewer texts if few and many
// rows have the same kernels. (Keys and values of a decoder block of 4 tokens, 4096 x 1024, on an
// H200: 7.4 us estimated in two kernels and 10.6 in one, but the blocks take 131.7 and 132.6 us.)
constexpr double kGainOfClass = 0.65;
constexpr std::int64_t kFewRows = 64;

int first_k(const KernelSpec& c) { return c.contraction().first_k(); }
std::int64_t results_of(const KernelSpec& c) { return count(c.extent, 0, first_k(c)); }
std::int64_t depth_of(const KernelSpec& c) { return count(c.extent, first_k(c), c.extent.size()); }

bool has_divisible_k(const KernelSpec& c) {
  const ContractionSpec* const space = c.as_contraction();
  if (!space || space->k() == 0 || space->rows.on || space->products.size() > 1 ||
      !c.cross_row_reductions.empty() || reads_joined_indices(c) || joins_products(c))
    return false;
  for (const Body* operand : {&space->a().body, &space->b().body})
    for (const auto& s : operand->statements)
      if (s.kind == StatementKind::index || s.kind == StatementKind::random) return false;
  return results_of(c) > 0 && depth_of(c) >= 2 * kLeastDepth;
}

// How the parts are shared out among the indices of k, the outermost first; empty where they do not
// divide them.
Dims shared_out(const KernelSpec& c, std::int64_t parts) {
  Dims shares;
  for (int i = first_k(c); i < c.extent.size(); ++i) {
    std::int64_t share = std::gcd(parts, c.extent[i]);
    const bool together = std::any_of(c.ports.begin(), c.ports.end(), [&](const KernelPort& p) {
      return !p.written && step(p.access, i) == 1;
    });
    if (together)
      while (share > 1 && (c.extent[i] / share) % kLeastRun != 0) {
        std::int64_t smaller = share - 1;
        while (share % smaller != 0) --smaller;
        share = smaller;
      }
    shares.push_back(share);
    parts /= share;
  }
  return parts == 1 ? shares : Dims{};
}

// The images that a filter's gradient is summed over, the outermost index of k. 0: none, or they
// are one index with their pixels.
std::int64_t images_of(const KernelSpec& c) {
  const ContractionSpec* const space = c.as_contraction();
  return space && space->k() > 1 && space->k_indices.front() == KIndex::pixels
             ? c.extent[first_k(c)]
             : 0;
}

// Whether the index is the fastest of an operand, as the columns of tiles, which leave in packs,
// are.
bool lies_in_operand(const KernelSpec& c, int index) {
  const ContractionSpec& space = c.contraction();
  for (const Body* operand : {&space.a().body, &space.b().body})
    if (const KernelPort* const p = loaded_as_it_is(c, *operand); p && step(p->access, index) == 1)
      return true;
  return false;
}

// Where the sums of a part lie: packed in the order in which the results lie, but of filter
// gradients behind each other where tiles have neighbours, as they are many times the results.
// (Channels first, of 32 x 64 x 56 x 56, 64 filters of 3 x 3, whose taps are the fastest, in 224
// parts on an H200: 123 us, of which copies take about 17.)
Access packed_as_results(const KernelSpec& c) {
  std::vector<int> order(static_cast<std::size_t>(first_k(c)));
  std::iota(order.begin(), order.end(), 0);
  const auto result =
      std::find_if(c.ports.begin(), c.ports.end(), [](const KernelPort& p) { return p.written; });
  if (result != c.ports.end())
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
      return step(result->access, x) > step(result->access, y);
    });
  const auto together =
      std::find_if(order.rbegin(), order.rend(), [&](int i) { return lies_in_operand(c, i); });
  if (images_of(c) > 0 && together != order.rend())
    std::rotate(together.base() - 1, together.base(), order.end());
  Access packed;
  packed.stride = Dims::filled(c.extent.size(), 0);
  std::int64_t stride = 1;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    packed.stride[*i] = stride;
    stride *= c.extent[*i];
  }
  return packed;
}

// The kernel that sums every part for itself. Each index of k that is cut leaves a new one in front
// of all others, which counts its parts. `any_images`: the outermost is cut, and all its numbers
// stay indices, those that are 1 as well, since other plans of the class have others.
KernelSpec sums_of_parts(const KernelSpec& c, const Dims& parts, bool any_images,
                         Temporaries& temporaries) {
  KernelSpec sums = c;
  for (int i = parts.size() - 1; i >= 0; --i) {
    const int d = first_k(sums) + i;  // behind the indices that are new
    if (parts[i] == 1 && !(any_images && i == 0)) continue;
    cut_index(sums, d, parts[i], sums.extent[d] / parts[i]);
    ++sums.contraction().batch;
  }
  const std::int64_t results = results_of(c), n = count(parts, 0, parts.size());
  Access written;
  std::int64_t stride = results * n;
  const int added = sums.contraction().batch - c.contraction().batch;
  for (int i = 0; i < added; ++i) written.stride.push_back(stride /= sums.extent[i]);
  for (std::int64_t s : packed_as_results(c).stride) written.stride.push_back(s);
  const Statement acc = c.body.statements.front();
  const DataType type = c.contraction().accumulate;
  Statement store = statement(StatementKind::store, type, "");
  store.args = {0};
  store.port = static_cast<int>(sums.ports.size());
  sums.ports.push_back(temporaries.add(acc.label + "_parts", type, {n, results}, written));
  sums.body.statements = {acc, store};
  drop_unused(sums);
  if (!any_images) simplify_domain(sums);
  return sums;
}

// The kernel that adds up the parts and runs the epilogue; `written`: the port of `sums_of_parts`.
// `any`: with a loop over as many parts as the launch says.
KernelSpec total_of_parts(const KernelSpec& c, std::int64_t parts, bool any,
                          const KernelPort& written) {
  KernelSpec t;
  const int results = first_k(c);
  t.family = RowwiseSpec{.outer_rank = results, .any_length = any};
  t.nodes = c.nodes;
  t.scalars = c.scalars;
  t.extent = part_of(c.extent, 0, results);
  t.extent.push_back(parts);
  Access read;
  read.stride = part_of(packed_as_results(c).stride, 0, results);
  read.stride.push_back(results_of(c));
  BodyCopy body(c, t, results);
  const int sum = finish_parts(t, body, read_back(written, read), ReductionMode::add,
                               c.contraction().accumulate, parts, c.body.statements.front().label);
  body.set(0, sum);
  for (int i = 0; i < static_cast<int>(c.body.statements.size()); ++i)
    if (is_store(c.body.statements[static_cast<std::size_t>(i)])) body.copy(i);
  for (int i = sum; i < static_cast<int>(t.body.statements.size()); ++i)
    t.body.statements[static_cast<std::size_t>(i)].per_row = true;
  drop_unused(t);
  if (any) t.extent[results] = 2;  // one part is an index, too
  simplify_domain(t);
  if (any) t.extent[t.extent.size() - 1] = parts;
  return t;
}

double microseconds_of_parts(const KernelSpec& c, std::int64_t parts, double of_sums,
                             const DeviceModel& device) {
  const double bytes = static_cast<double>(results_of(c)) * info(c.contraction().accumulate).bytes *
                       static_cast<double>(parts);
  return of_sums + device.copy_microseconds(bytes);
}

// A gradient's images in as many parts as are fastest, of those that divide them; or in one.
// `as`: as which the sums are scheduled, if not each number of parts for itself.
SplitK choose_image_parts(const KernelSpec& c, ImageParts how, const ScheduledKernel* as,
                          const PlanContext& context) {
  const std::int64_t images = images_of(c);
  SplitK best;
  if (how == ImageParts::whole || images == 0 || !has_divisible_k(c)) return best;
  Temporaries none(0);
  for (std::int64_t n = 1; n <= std::min(images, kMostImageParts); ++n) {
    if (images % n != 0 || (n > 1 && how == ImageParts::one)) continue;
    Dims parts = Dims::filled(c.contraction().k(), 1);
    parts[0] = n;
    const KernelSpec sums = sums_of_parts(c, parts, true, none);
    if (!rows_lie_together(total_of_parts(c, n, true, sums.ports.back()))) return {};
    const auto part = as ? schedule_as(*as, sums, context) : schedule_kernel(sums, context);
    if (!part) continue;
    const double us = microseconds_of_parts(c, n, part->microseconds, context.device);
    const bool several =
        as && n > 1 && context.device.overrides.split_elements;  // images in each part
    if (best.parts.empty() || us < best.microseconds || several)
      best = {parts, us, us, part->wgmma() != nullptr, true};
    if (several) break;
  }
  return best;
}

KernelSpec with_images(KernelSpec c, std::int64_t images) {
  c.extent[first_k(c)] = images;
  return c;
}

// As which plans of a class schedule a gradient's sums for which was decided by so many images: by
// one image a part.
ScheduledKernel schedule_of_images(const KernelSpec& c, std::int64_t images, PlanContext context) {
  Dims parts = Dims::filled(c.contraction().k(), 1);
  parts[0] = images;
  Temporaries none(0);
  context.of_class = true;
  return schedule_kernel(sums_of_parts(with_images(c, images), parts, true, none), context);
}

// The same in plans of a class for which was decided by so many images.
SplitK cut_images_as(const KernelSpec& c, std::int64_t images, ImageParts how,
                     const PlanContext& context) {
  if (images_of(c) == 0 || !has_divisible_k(c)) return {};
  const ScheduledKernel as = schedule_of_images(c, images, context);
  return choose_image_parts(c, how, &as, context);
}

// The number of images by which to decide for all plans of a class, of which `c` has about the
// most: what is the fastest for these may take as long for a part of them. So it is the number
// whose schedule is the least slower than others anywhere between. (The 3 x 3 gradient of a
// residual block: 42 us estimated for 17 to 64 images, each alone in a CTA, where 24 take 20 us
// in tiles that share images, as long for 61. Its step on an H100: 4.3 -> 1.3 % over constant
// extents.)
std::int64_t images_of_class(const KernelSpec& c, const PlanContext& context) {
  const std::int64_t most = images_of(c);
  const std::set<std::int64_t> tried{most, most / 2 | 1, most / 4 | 1};
  std::map<std::int64_t, double> fastest;
  std::map<std::int64_t, std::map<std::int64_t, double>> takes;
  for (const std::int64_t by : tried)
    for (const std::int64_t n : tried) {
      const SplitK parts = cut_images_as(with_images(c, n), by, ImageParts::that_divide, context);
      takes[by][n] = parts.parts.empty() ? HUGE_VAL : parts.microseconds;
      const double best = fastest.try_emplace(n, HUGE_VAL).first->second;
      fastest[n] = std::min(best, takes[by][n]);
    }
  std::int64_t chosen = most;
  double least = HUGE_VAL;
  for (auto by = tried.rbegin(); by != tried.rend(); ++by) {
    double slowest = 0;
    for (const auto& [n, us] : takes[*by]) slowest = std::max(slowest, us / fastest[n]);
    if (slowest < least) chosen = *by, least = slowest;
  }
  return chosen;
}

}  // namespace

SplitK choose_split_k(const KernelSpec& c, const PlanContext& context, bool whole_images) {
  const DeviceModel& device = context.device;
  const ScheduledKernel one = schedule_kernel(c, context);
  const double whole = one.microseconds;
  SplitK best{{}, whole, whole, one.warpgroups() != nullptr};
  // Groups that SINTER_DEPTHWISE asks for are not cut in parts for another engine, whatever these
  // would take.
  const bool asked = device.overrides.depthwise == "mma" && one.is_groups_gradient();
  if (asked) best.microseconds = 0;
  if (asked || !has_divisible_k(c)) return best;
  const std::int64_t results = results_of(c), depth = depth_of(c);
  // With so many parts there are a few tiles for every SM; of integers, short sums fit
  // the 32 bits of tensor cores where long ones may not.
  const ContractionSpec& space = c.contraction();
  const bool integers = !is_floating(space.a().type) && !is_floating(space.b().type);
  const std::int64_t useful =
      integers ? depth / kLeastDepth : 4 * device.sms * kTile / std::max(results, kTile / 4);
  const std::int64_t most = std::min({kMostParts, useful, depth / kLeastDepth});
  const std::int64_t images = images_of(c);
  const bool few_rows = std::min(count(c.extent, space.first_m(), space.first_n()),
                                 count(c.extent, space.first_n(), space.first_k())) <= kFewRows;
  const double gain = context.of_class && few_rows && one.warpgroups() ? kGainOfClass : kGain;
  const bool gradient = images > 0 && one.wgmma() && one.wgmma()->window && !context.of_class;
  Temporaries none(0);
  for (std::int64_t n = 2; n <= most; ++n) {
    const std::int64_t step = n < 8 ? 1 : n < 32 ? 4 : n < 64 ? 8 : 32;
    if (n % step != 0 && (images == 0 || whole_images || images % n != 0)) continue;
    const Dims parts = shared_out(c, n);
    if (parts.empty() || (whole_images && parts[0] > 1)) continue;
    const ScheduledKernel part = schedule_kernel(sums_of_parts(c, parts, false, none), context);
    const double us = microseconds_of_parts(c, n, part.microseconds, device);
    const double enough =
        gradient && part.warpgroups() ? kGainOfGradients * whole : gain * whole - kLeastGain;
    if (us < best.microseconds && us < enough)
      best = {parts, us, whole, part.warpgroups() != nullptr};
  }
  return best;
}

bool fits_one_kernel(const KernelSpec& c, const PlanContext& context, Engines engines) {
  const ScheduledKernel one = schedule_kernel(c, context);
  if (one.simt() ||
      (!one.warpgroups() && (engines == Engines::fastest || c.contraction().paired())))
    return false;
  if (c.cross_row_reductions.empty()) return true;
  KernelSpec plain = c;
  plain.cross_row_reductions.clear();  // statements that name them are not looked at here
  const ScheduledKernel without = schedule_kernel(plain, context);
  if ((without.warpgroups() && !one.warpgroups()) || (without.depthwise() && !one.depthwise()))
    return false;
  return choose_split_k(plain, context).parts.empty();
}

namespace {

std::vector<KernelSpec> split_k(KernelSpec c, const FusionState& state, Temporaries& temporaries,
                                std::vector<PlanCut>& cuts) {
  const PlanContext& context = state.context();
  const NodeId node = contraction_of(state, c);
  using Kind = Decisions::Kind;
  context.decisions.decide(Kind::images, node, [&] { return images_of(c); });
  const auto how = static_cast<ImageParts>(context.decisions.decide(
      Kind::image_parts, node, [] { return static_cast<std::int64_t>(ImageParts::whole); }));
  SplitK chosen;
  bool fresh = false;
  // The number of parts; less than 0: parts of images, as decided for so many of these.
  const std::int64_t decided = context.decisions.decide(Kind::split_k, node, [&] {
    fresh = true;
    chosen = choose_split_k(c, context, how != ImageParts::whole);
    SplitK by_images = choose_image_parts(c, how, nullptr, context);
    const std::int64_t parts = count(by_images.parts, 0, by_images.parts.size());
    // (A residual block's step of 17 to 64 images on an H200: 9 to 11 % over constant extents with
    // whole sums, 3 to 10 % so; of 65 to 256 images less than 2 %.)
    if (parts > 1 &&
        (context.device.overrides.split_elements || by_images.microseconds <= chosen.microseconds))
      chosen = std::move(by_images);
    if (!chosen.any_images) return count(chosen.parts, 0, chosen.parts.size());
    return context.device.overrides.split_elements ? -images_of(c) : -images_of_class(c, context);
  });
  if (decided < 0 && (!fresh || -decided != images_of(c)))
    chosen = cut_images_as(c, -decided, how, context);
  if (!fresh && decided > 1) chosen.parts = shared_out(c, decided);
  if (chosen.parts.empty()) return {std::move(c)};
  const std::int64_t parts = count(chosen.parts, 0, chosen.parts.size());
  cuts.push_back({"contraction", state.graph().label(state.node(node)), "",
                  fmt::format("its sums are cut in {} parts side by side, which a second kernel "
                              "adds up: about {:.1f} us in all, {:.1f} us in one",
                              parts, chosen.microseconds, chosen.whole_microseconds)});
  std::vector<KernelSpec> kernels{sums_of_parts(c, chosen.parts, chosen.any_images, temporaries)};
  KernelSpec total = total_of_parts(c, parts, chosen.any_images, kernels[0].ports.back());
  if (chosen.any_images) {
    kernels.push_back(std::move(total));
    return kernels;
  }
  for (auto& k : split(std::move(total), context, temporaries)) kernels.push_back(std::move(k));
  return kernels;
}

}  // namespace

std::vector<KernelSpec> split_depth(KernelSpec spec, const FusionState& state,
                                    Temporaries& temporaries, std::vector<PlanCut>& cuts) {
  using Kernels = std::vector<KernelSpec>;
  return std::visit(Overloaded{[&](const ContractionSpec&) {
                                 return split_k(std::move(spec), state, temporaries, cuts);
                               },
                               [&](const AttentionSpec&) {
                                 return split_keys(std::move(spec), state.context(), temporaries);
                               },
                               [&](const auto&) { return Kernels{std::move(spec)}; }},
                    spec.family);
}

}  // namespace sinter
