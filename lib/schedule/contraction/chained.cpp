#include "schedule/contraction/chained.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Columns of the first product: sums of more would spill. Of the second one: the epilogue of more,
// which one warpgroup does alone, takes longer than a kernel of its own (2 x 130 x 64 x 64 x 256 on
// an H200: 4.23 us, 2.98 as two kernels).
constexpr std::int64_t kMostMiddle = 192, kMostColumns = 128;
constexpr int kTogether = 64;                // columns, and elements of p in a stage
constexpr int kLine = 128;                   // bytes of k in a stage
constexpr int kEpilogueBytes = 16 * 64 * 4;  // of a warp

int rounded_up(std::int64_t columns) {
  return static_cast<int>((columns + kTogether - 1) / kTogether * kTogether);
}

}  // namespace

std::optional<ChainedPlan> plan_chained(const KernelSpec& spec, const DeviceModel& device) {
  const ContractionSpec& c = spec.contraction();
  if (!device.has_wgmma || !device.has_tma || !c.chained() || c.rows.on ||
      !spec.cross_row_reductions.empty() || !spec.gathers.empty())
    return {};
  const int n = c.first_n(), p = c.first_k(), k = p + 1;
  if (c.m != 1 || c.n != 1 || c.k() != 1 || c.chained_k != 1) return {};
  if (spec.extent[n] > kMostColumns || spec.extent[p] > kMostMiddle) return {};
  if (count(spec.extent, 0, spec.extent.size()) == 0) return {};
  // f runs element by element on what a thread holds: a load would be waited for once for each.
  // (65536 x 256 x 256 x 256 with a bias on an H200: 159 us, 67 as two kernels.)
  if (!is_straight(spec, spec.body, true) || !is_straight(spec, c.products[1].a.body, false))
    return {};

  ChainedPlan plan{without_index(spec, k), {}};
  ContractionSpec& second = plan.spec.contraction();
  second.chained_k = 0;
  second.products = {Product{{}, c.products[1].b}};
  ChainedConfig& e = plan.engine;
  e.first = without_index(spec, n);
  ContractionSpec& first = e.first.contraction();
  e.first.body = first.products[1].a.body;  // its indices are those that are left
  first.chained_k = 0;
  first.products = {c.products[0]};
  const auto a = boxed(e.first, first.a(), first.first_m()),
             b = boxed(e.first, first.b(), first.first_n()),
             right = boxed(plan.spec, second.b(), second.first_n());
  if (!a || !b || !right || a->map.type != b->map.type) return {};
  for (const BoxedOperand* o : {&*a, &*b, &*right})
    if (info(o->map.type).bytes != 2) return {};

  e.a = *a, e.b = *b, e.c = *right;
  e.middle = rounded_up(spec.extent[p]);
  e.columns = rounded_up(spec.extent[n]);
  const std::int64_t rows = spec.extent[n - 1], batches = count(spec.extent, 0, c.batch);
  // Two warpgroups share what is loaded of B and C; one where that leaves SMs idle.
  const std::int64_t tiles_of_one = batches * ((rows + kTogether - 1) / kTogether);
  const int consumers = tiles_of_one > device.sms ? 2 : 1;
  e.tile_m = kTogether * consumers;
  set_box(e.a, e.tile_m);
  set_box(e.b, e.middle);
  set_box(e.c, e.columns);
  e.threads = 128 * (consumers + 1);
  e.stages_c = std::min(2, e.middle / kTogether);
  const auto bytes = [&](int stages) {
    return kLostToAlignment + stages * (e.tile_m + e.middle) * kLine +
           e.stages_c * e.columns * kLine + consumers * 4 * kEpilogueBytes +
           16 * (stages + e.stages_c);
  };
  constexpr int kMostStages = 6;
  e.stages = kMostStages;
  while (e.stages > 1 && bytes(e.stages) > device.shared_per_cta) --e.stages;
  if (e.stages < 2) return {};
  e.shared_bytes = static_cast<std::uint32_t>(bytes(e.stages));
  e.wide_index = needs_wide_index(plan.spec) || needs_wide_index(e.first);
  const std::int64_t tiles = batches * ((rows + e.tile_m - 1) / e.tile_m);
  e.grid = clamp_grid(static_cast<double>(std::min<std::int64_t>(tiles, device.sms)));
  const ContractionSpec& of = plan.spec.contraction();
  e.n_fastest = !prefers(plan.spec, plan.spec.body, of.first_n(), of.first_m(), is_store);
  e.packing = choose_packing(plan.spec, e.n_fastest ? of.first_n() : of.first_m(), 8);

  // What an SM multiplies of its tiles, or what memory brings.
  const double depth = static_cast<double>(spec.extent[k]),
               rounds = std::ceil(static_cast<double>(tiles) / device.sms);
  const double tile = 2.0 * e.tile_m * e.middle * (depth + e.columns);
  e.microseconds = device.kernel_microseconds() +
                   std::max(rounds * tile / device.tensor_operations / device.clock,
                            bytes_moved(spec) / device.memory_bandwidth);
  // What is won is a launch and the way through memory (64 x 128 x 128 x 128 on an H200: 2.70 us,
  // 3.05 as two kernels). A chain is not split along k, and an SM's next tile waits for this one's
  // end, so that long sums and many tiles are left to two kernels.
  constexpr double kShort = 1024;
  if (tiles > device.sms || depth > kShort) return {};
  return plan;
}

}  // namespace sinter
