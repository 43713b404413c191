// The list of passes, and the driver.
#include "planner/rewrite/pass.hpp"

namespace sinter {

// A new pass is a file of its own and two lines here.
extern const Pass share_repeats_pass, sink_concatenation_pass, split_reduction_pass,
    split_reduction_halves_pass, cancel_views_pass, separate_conversion_pass, slice_parts_pass,
    split_product_halves_pass, propagate_reshape_pass, hoist_view_pass, slice_operands_pass,
    sink_view_pass, store_copy_pass, channels_last_pass, propagate_layout_pass,
    layout_for_reshape_pass, clone_dequantize_pass, store_narrow_pass, shape_entries_pass,
    order_softmax_pass, split_sink_pass, attention_gradients_pass, narrow_concatenation_pass,
    round_first_pass, separate_windows_pass, zero_points_pass, read_unconverted_pass,
    roll_rows_pass;

namespace {

constexpr int kMostGrowth = 8, kMostExtra = 256;  // nodes made for each of the graph's, and besides

// Before all others: it knows conversions and views as users write them. Regions that others took
// apart would only cost what they compute again.
const Pass* const kGradients[] = {&attention_gradients_pass};
// At a node, the first that finds something wins, so that the order says what is preferred:
// - a view that is none is cancelled before anything computes through it, and one that rounds is
//   made a conversion before others move it, which want it to hold what it shows;
// - a conversion that rounds nothing is left out (read_unconverted) before what reads it is moved;
// - what repeats a tensor is left out (share_repeats) before anything is computed on it;
// - an attention's products have the dims of its kernels (shape_entries), and its softmax their
//   order (order_softmax, split_sink), before what lies between is moved;
// - a slice is a pair's half (slice_parts, split_product_halves) before it is moved or computed for
//   itself, which leaves the other half alone;
// - a whole row kernel takes over a reshape's dims (propagate_reshape) before its elementwise end
//   is moved for itself (hoist_view);
// - upwards (hoist_view, slice_operands) before downwards (sink_view), and a second store
//   (store_copy) where neither does;
// - operands less their zero points (zero_points) are found behind what moves views away from them.
const Pass* const kMovement[] = {
    &share_repeats_pass,
    &shape_entries_pass,
    &order_softmax_pass,
    &split_sink_pass,
    &sink_concatenation_pass,
    &roll_rows_pass,
    &split_reduction_pass,
    &split_reduction_halves_pass,
    &cancel_views_pass,
    &separate_conversion_pass,
    &read_unconverted_pass,
    &slice_parts_pass,
    &split_product_halves_pass,
    &propagate_reshape_pass,
    &hoist_view_pass,
    &slice_operands_pass,
    &sink_view_pass,
    &store_copy_pass,
    &zero_points_pass,
};
// Behind all that moves, since a layout is taken over from where the operand lies in the end, and
// in a graph of its own, whose nodes come in the order of execution: one that was made by a
// movement would get its layout behind its readers. What convolutions read says itself how it lies.
const Pass* const kLayout[] = {&channels_last_pass, &propagate_layout_pass,
                               &layout_for_reshape_pass};
// Behind what finds the order in which a concatenation lies.
const Pass* const kTypes[] = {&narrow_concatenation_pass};
// Behind both: it asks where operands lie. What it makes must not be joined again.
const Pass* const kScales[] = {&clone_dequantize_pass};
// Behind all others: what it makes is stored as it is.
const Pass* const kStores[] = {&store_narrow_pass};
const Pass* const kRounded[] = {&round_first_pass};
// Behind that: lines are stored in the type of what is read.
const Pass* const kWindows[] = {&separate_windows_pass};

const PassGroup kGroups[] = {
    {.repeated = kGradients, .once = {}, .makes_regions = true},
    {.repeated = kMovement, .once = {}},
    {.repeated = {}, .once = kLayout},
    {.repeated = {}, .once = kTypes},
    {.repeated = {}, .once = kScales, .needs_wgmma = true},
    {.repeated = {}, .once = kStores, .needs_wgmma = true},
    {.repeated = {}, .once = kRounded},
    {.repeated = kWindows, .once = {}},
};

bool has_pass(const PassGroup& group, OpKind op) {
  const auto at = [op](const Pass* p) { return p->at(op); };
  return std::ranges::any_of(group.repeated, at) || std::ranges::any_of(group.once, at);
}

bool run_at(MovedViews& views, NodeId n, std::span<const Pass* const> passes) {
  const Node& node = views.g.node(n);
  if (!views.g.live(n) || node.outputs.empty() || node.outputs[0] < 0) return false;
  for (const Pass* p : passes)
    if (p->at(node.op) && p->run(views, n)) return true;
  return false;
}

}  // namespace

std::span<const PassGroup> rewrite_passes() { return kGroups; }

std::optional<Lowered> run_passes(const Lowered& lowered, const PassGroup& group,
                                  const DeviceModel& device) {
  std::optional<MovedViews> unchanged;
  return run_passes(lowered, group, device, unchanged);
}

std::optional<Lowered> run_passes(const Lowered& lowered, const PassGroup& group,
                                  const DeviceModel& device, std::optional<MovedViews>& unchanged) {
  const auto& nodes = lowered.graph->nodes();
  if (std::ranges::none_of(nodes, [&](const Node& n) { return has_pass(group, n.op); }))
    return std::nullopt;
  if (!unchanged) unchanged.emplace(lowered, device);
  MovedViews& views = *unchanged;
  // Every pass moves a movement past a node, upwards to what lies in memory or downwards to a
  // result, or makes what needs no other; views that were made stay (made_here), and the number of
  // nodes is bounded: nested concatenations would double what reads them again and again.
  const NodeId most = kMostGrowth * views.g.nodes() + kMostExtra;
  bool found = false;
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId n = 0; n < views.g.nodes() && views.g.nodes() <= most; ++n)
      changed |= run_at(views, n, group.repeated);
    found |= changed;
  }
  for (NodeId n = 0; n < views.g.nodes(); ++n) found |= run_at(views, n, group.once);
  if (!found) {
    // What passes made and had no use for is not for the next group.
    if (views.g.nodes() != static_cast<NodeId>(nodes.size())) unchanged.reset();
    return std::nullopt;
  }
  Lowered made = views.g.finish();
  unchanged.reset();
  return made;
}

namespace {

std::ptrdiff_t written_out(const Lowered& lowered) {
  return std::count_if(lowered.regions.begin(), lowered.regions.end(),
                       [](const Region& r) { return r.written_out; });
}

// What the group makes of the graph, where its checks find no fault with that.
std::optional<Lowered> valid_passes(const Lowered& lowered, const PassGroup& group,
                                    const DeviceModel& device, std::optional<MovedViews>& unchanged,
                                    std::string& wrong) {
  auto next = run_passes(lowered, group, device, unchanged);
  if (!next || next->graph->diagnostics().empty()) return next;
  wrong = next->graph->diagnostics().front().message();
  return std::nullopt;
}

// By these groups, one after another; nothing where none finds anything.
std::optional<Lowered> by_groups(const Lowered& lowered, std::span<const PassGroup> groups,
                                 const DeviceModel& device, std::string& wrong) {
  std::optional<Lowered> last;
  std::optional<MovedViews> unchanged;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].needs_wgmma && !device.has_wgmma) continue;
    auto next = valid_passes(last ? *last : lowered, groups[i], device, unchanged, wrong);
    if (!next) continue;
    if (groups[i].makes_regions) {
      const auto made = written_out(*next);
      if (auto behind = by_groups(*next, groups.subspan(i + 1), device, wrong))
        next = std::move(behind);
      if (written_out(*next) == made) return next;
    } else {
      last = std::move(next);
    }
  }
  return last;
}

}  // namespace

Lowered rewritten(Lowered lowered, const DeviceModel& device, bool regions) {
  std::vector<PassGroup> groups;
  for (const PassGroup& group : rewrite_passes())
    if (regions || !group.makes_regions) groups.push_back(group);
  std::string wrong;
  if (auto next = by_groups(lowered, groups, device, wrong)) lowered = *std::move(next);
  lowered.wrong_rewrite = std::move(wrong);
  return lowered;
}

}  // namespace sinter
