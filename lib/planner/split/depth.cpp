#include "planner/split/depth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

constexpr std::int64_t kMostParts = 256;
constexpr std::int64_t kLeastRun = 16;    // elements of a part that lie together
constexpr std::int64_t kLeastDepth = 64;  // of a part
constexpr std::int64_t kTile = 128 * 128;
// Estimates are rough: of the time without parts, at most so much, and this many microseconds less.
constexpr double kGain = 0.9, kLeastGain = 1.8;

int first_k(const KernelSpec& c) { return c.contraction().first_k(); }
std::int64_t results_of(const KernelSpec& c) { return count(c.extent, 0, first_k(c)); }
std::int64_t depth_of(const KernelSpec& c) { return count(c.extent, first_k(c), c.extent.size()); }

bool divisible(const KernelSpec& c) {
  const ContractionSpec* const space = c.as_contraction();
  if (!space || space->k() == 0 || space->rows.on || space->products.size() > 1 ||
      !c.columns.empty() || reads_joined_indices(c))
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

// Where the sums of a part lie: packed in the order in which the results lie.
Access packed_as_results(const KernelSpec& c) {
  std::vector<int> order(static_cast<std::size_t>(first_k(c)));
  std::iota(order.begin(), order.end(), 0);
  const auto result =
      std::find_if(c.ports.begin(), c.ports.end(), [](const KernelPort& p) { return p.written; });
  if (result != c.ports.end())
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
      return step(result->access, x) > step(result->access, y);
    });
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
// of all others, which counts its parts.
KernelSpec sums_of_parts(const KernelSpec& c, const Dims& parts, Temporaries& temporaries) {
  KernelSpec sums = c;
  for (int i = parts.size() - 1; i >= 0; --i) {
    const int d = first_k(sums) + i;  // behind the indices that are new
    if (parts[i] == 1) continue;
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
  simplify_domain(sums);
  return sums;
}

// The kernel that adds up the parts and runs the epilogue; `written`: the port of `sums_of_parts`.
KernelSpec total_of_parts(const KernelSpec& c, std::int64_t parts, const KernelPort& written) {
  KernelSpec t;
  const int results = first_k(c);
  t.family = RowwiseSpec{.outer_rank = results};
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
  simplify_domain(t);
  return t;
}

}  // namespace

DepthParts choose_depth_parts(const KernelSpec& c, const PlanContext& context) {
  const DeviceModel& device = context.device;
  const ScheduledKernel one = schedule_kernel(c, context);
  const double whole = one.microseconds;
  DepthParts best{{}, whole, whole, one.wgmma() != nullptr};
  if (!divisible(c)) return best;
  const std::int64_t results = results_of(c), depth = depth_of(c);
  // With so many parts there are a few tiles for every SM; of integers, short sums fit
  // the 32 bits of tensor cores where long ones may not.
  const ContractionSpec& space = c.contraction();
  const bool integers = !is_floating(space.a().type) && !is_floating(space.b().type);
  const std::int64_t useful =
      integers ? depth / kLeastDepth : 4 * device.sms * kTile / std::max(results, kTile / 4);
  const std::int64_t most = std::min({kMostParts, useful, depth / kLeastDepth});
  Temporaries none(0);
  for (std::int64_t n = 2; n <= most; n += n < 8 ? 1 : n < 32 ? 4 : n < 64 ? 8 : 32) {
    const Dims parts = shared_out(c, n);
    if (parts.empty()) continue;
    const KernelSpec sums = sums_of_parts(c, parts, none);
    const double bytes = static_cast<double>(results) * info(space.accumulate).bytes * n;
    const ScheduledKernel part = schedule_kernel(sums, context);
    const double us =
        part.microseconds + device.launch_microseconds + bytes / device.memory_bandwidth;
    if (us < best.microseconds && us < kGain * whole - kLeastGain)
      best = {parts, us, whole, part.wgmma() != nullptr};
  }
  return best;
}

bool fits_one_kernel(const KernelSpec& c, const PlanContext& context, Engines engines) {
  const ScheduledKernel one = schedule_kernel(c, context);
  if (one.simt() || (!one.wgmma() && (engines == Engines::fastest || c.contraction().paired())))
    return false;
  if (c.columns.empty()) return true;
  KernelSpec plain = c;
  plain.columns.clear();  // statements that name them are not looked at here
  const ScheduledKernel without = schedule_kernel(plain, context);
  if ((without.wgmma() && !one.wgmma()) || (without.depthwise() && !one.depthwise())) return false;
  return choose_depth_parts(plain, context).parts.empty();
}

std::vector<KernelSpec> split_depth(KernelSpec c, const FusionState& state,
                                    Temporaries& temporaries, std::vector<PlanCut>& cuts) {
  if (c.as_attention()) return split_keys(std::move(c), state.context(), temporaries);
  if (!c.as_contraction()) return {std::move(c)};
  DepthParts chosen;
  const std::int64_t n =
      state.context().decisions.decide(Decisions::Kind::depth_parts, contraction_of(state, c), [&] {
        chosen = choose_depth_parts(c, state.context());
        return count(chosen.parts, 0, chosen.parts.size());
      });
  if (n > 1 && chosen.parts.empty()) chosen.parts = shared_out(c, n);  // as decided before
  if (chosen.parts.empty()) return {std::move(c)};
  cuts.push_back({"contraction", state.graph().label(state.node(contraction_of(state, c))), "",
                  fmt::format("its sums are cut in {} parts side by side, which a second kernel "
                              "adds up: about {:.1f} us in all, {:.1f} us in one",
                              count(chosen.parts, 0, chosen.parts.size()), chosen.microseconds,
                              chosen.whole_microseconds)});
  std::vector<KernelSpec> kernels{sums_of_parts(c, chosen.parts, temporaries)};
  KernelSpec total =
      total_of_parts(c, count(chosen.parts, 0, chosen.parts.size()), kernels[0].ports.back());
  for (auto& k : split(std::move(total), state.context(), temporaries))
    kernels.push_back(std::move(k));
  return kernels;
}

}  // namespace sinter
