#include "emit/config_constants.hpp"

#include "emit/depthwise_text.hpp"
#include "emit/image_rows_text.hpp"
#include "emit/window_text.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/contraction/convolution_dims.hpp"

namespace sinter {
namespace {

void add_constants(const KernelSpec& spec, const PointwiseConfig& s,
                   std::vector<ConfigConstant>& c) {
  if (s.tiling.on)
    c.insert(c.end(), {{"along", s.tiling.along},
                       {"across", s.tiling.across},
                       {"tile_along", s.tiling.tile_along},
                       {"tile_across", s.tiling.tile_across},
                       {"through", s.tiling.through},
                       {"tile_through", s.tiling.tile_through},
                       {"lanes", s.tiling.lanes},
                       {"staged_loads", s.tiling.loads, true},
                       {"staged_stores", s.tiling.stores, true},
                       {"misaligned", s.aligned_by >= 0, true}});
  if (s.places > 0) c.insert(c.end(), {{"places", s.places}, {"misaligned", 1, true}});
  if (spec.from_end && !s.tiling.flat) c.push_back({"from_end", 1, true});
}

void add_constants(const KernelSpec& spec, const RowwiseConfig& s, std::vector<ConfigConstant>& c) {
  const RowwiseSpec& rows = spec.rowwise();
  const std::int64_t walkers = s.walkers > 0 ? s.walkers : rows.num_partials;
  c.insert(c.end(), {{"outer_rank", rows.outer_rank},
                     {"threads_per_row", s.threads_per_row},
                     {"rows_per_block", s.rows_per_block},
                     {"blocks_per_row", s.blocks_per_row},
                     {"rows_at_once", s.rows_at_once},
                     {"rows_fastest", s.rows_fastest, true},
                     {"register_resident", s.resident, true},
                     {"prefetch", s.prefetch, true},
                     {"ahead", s.ahead, true},
                     {"recompute", s.recompute, true},
                     {"early", s.early},
                     {"misaligned", s.aligned_by >= 0, true},
                     {"num_partials", walkers}});
  if (!s.staged.empty()) c.push_back({"staged_rows", 1, true});
  if (s.held_places > 0) c.push_back({"held_places", s.held_places});
  if (rows.group > 1) c.push_back({"group", rows.group});
  if (rows.segment > 0) c.push_back({"segment", rows.segment});
  if (walkers == 0 && s.pipeline_stages > 0)
    c.insert(c.end(), {{"held_in_shared", 1, true},
                       {"pipeline_stages", s.pipeline_stages},
                       {"stage_bytes", s.slot_bytes}});
  if (walkers > 0)
    c.insert(c.end(), {{"pipeline_stages", s.pipeline_stages},
                       {"in_flight", s.in_flight},
                       {"stage_bytes", s.slot_bytes}});
  if (rows.num_partials > 0) c.push_back({"kinds", column_kinds(spec)});
  if (walkers > 0) c.push_back({"by_lanes", s.by_lanes, true});
  if (walkers == 0 && spec.from_end) c.push_back({"from_end", 1, true});
}

// The groups of a contraction's indices.
void add_groups(const KernelSpec& spec, std::vector<ConfigConstant>& c) {
  const ContractionSpec& of = spec.contraction();
  c.insert(c.end(), {{"batch", of.batch}, {"m", of.m}, {"n", of.n}, {"k", of.k()}});
  if (!spec.columns.empty()) c.push_back({"totals", static_cast<int>(spec.columns.size())});
}

void add_tile(const KernelSpec& spec, const WarpgroupConfig& e, int products,
              std::vector<ConfigConstant>& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile_m", e.tile.m},
                     {"tile_n", e.tile.n},
                     {"loaded_rows", e.loaded_rows},
                     {"stages", e.tile.stages},
                     {"cluster_m", e.tile.cluster_m},
                     {"cluster_n", e.tile.cluster_n},
                     {"split", e.tile.split},
                     {"group", e.tile.group},
                     {"products", products},
                     {"operand_bytes", e.operand_bytes},
                     {"producer_registers", e.producer_registers},
                     {"consumer_registers", e.consumer_registers},
                     {"alternate", e.tile.alternate, true},
                     {"promote_accumulators", e.promote_accumulators, true},
                     {"prefetch", e.prefetch, true},
                     {"ahead", e.ahead, true},
                     {"rotate", e.rotate},
                     {"n_fastest", e.n_fastest, true}});
}

void add_constants(const KernelSpec& spec, const ImageRowsConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_tile(spec, e, 1, c);
  c.push_back({"band", e.band});
}

void add_constants(const KernelSpec& spec, const WgmmaConfig& e, std::vector<ConfigConstant>& c) {
  add_tile(spec, e, e.b2 ? 2 : 1, c);
  const int columns = loaded_columns(e.tile.n, e.b.k_fastest, e.operand_bytes);
  if (e.taps_each == 0 && columns != e.tile.n) c.push_back({"loaded_columns", columns});
  if (e.loaded_depth > 0) c.push_back({"loaded_depth", e.loaded_depth});
  if (e.tile.boxed_m > 0) c.push_back({"boxed_rows", e.tile.boxed_m});
  if (e.tile.boxed_n > 0) c.push_back({"boxed_columns", e.tile.boxed_n});
  if (e.tile.boxed()) c.push_back({"boxed_tiles", e.boxed_tiles});
  if (e.through_ring) c.push_back({"through_ring", true, true});
  if (e.taps_each > 0)
    c.insert(c.end(), {{"taps_each", e.taps_each}, {"taps_together", e.taps_together}});
  else if (e.resident)
    c.insert(c.end(),
             {{"window_stages", e.tile.window_stages}, {"swap_products", swaps_products(e), true}});
}

void add_constants(const KernelSpec& spec, const MmaConfig& e, std::vector<ConfigConstant>& c) {
  add_groups(spec, c);
  const MmaTile& t = e.tile;
  c.insert(c.end(), {{"tile_m", t.m},
                     {"tile_n", t.n},
                     {"tile_k", t.line / info(e.number).bytes},
                     {"warps_m", t.warps_m},
                     {"warps_n", t.warps_n},
                     {"stages", t.stages},
                     {"group", e.group},
                     {"promote_every", e.promote_every},
                     {"products", 1},
                     {"n_fastest", e.n_fastest, true}});
  if (t.held_steps > 1) c.push_back({"held_steps", t.held_steps});
  if (t.split > 1) c.push_back({"split", t.split});
}

void add_walk(const KernelSpec& spec, const DepthwiseConfig& e, std::vector<ConfigConstant>& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"products", 1},
                     {"channel", e.channel},
                     {"lanes", e.lanes},
                     {"each", e.each},
                     {"rows", e.rows},
                     {"columns", e.columns},
                     {"run", e.run},
                     {"along_columns", e.along_columns, true}});
}

// On CUDA cores, where each may have several filters, and lines move in packs.
void add_line_packs(const KernelSpec& spec, const DepthwiseConfig& e, bool in_shared,
                    std::vector<ConfigConstant>& c) {
  if (const int filters = index_of_filters(spec.contraction()); filters >= 0)
    c.push_back({"filters", filters});
  if (const int n = line_pack(spec, e, e.columns, in_shared); n > 1) c.push_back({"line_pack", n});
  if (const int n = gradient_pack(spec, e, e.columns); n > 1) c.push_back({"gradient_pack", n});
}

// `joined`: pixels of a line of the boxes.
void add_boxes(const DepthwiseConfig& e, std::vector<ConfigConstant>& c, int joined = 1) {
  const auto add = [&](const DepthwiseOperand& o, const char* line, const char* box) {
    if (o.map) c.insert(c.end(), {{line, o.line}, {box, static_cast<int>(o.map->box[1]) * joined}});
  };
  add(e.image, "image_line", "image_box");
  add(e.other, "gradient_line", "gradient_box");
}

void add_constants(const KernelSpec& spec, const DepthwiseWalkConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  add_line_packs(spec, e, false, c);
}

void add_constants(const KernelSpec& spec, const DepthwiseRowsConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  c.insert(c.end(),
           {{"across", e.boxes.across}, {"planes", e.boxes.planes}, {"stages", e.boxes.stages}});
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const DepthwisePlanesConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  add_line_packs(spec, e, true, c);
  c.insert(c.end(), {{"units", e.planes.units}, {"images", e.planes.images}});
  if (e.gradient) c.push_back({"stages", e.planes.stages});
}

void add_constants(const KernelSpec& spec, const DepthwiseLinesConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  c.push_back({"across", e.lines.across});
}

void add_tiles(const DepthwiseTiles& t, std::vector<ConfigConstant>& c) {
  c.insert(c.end(), {{"across", t.across}, {"stages", t.stages}});
}
void add_channels(const DepthwiseGroups& g, std::vector<ConfigConstant>& c) {
  c.insert(c.end(),
           {{"group", g.channels}, {"inner", g.inner}, {"outer", g.outer}, {"planes", g.planes}});
}

void add_constants(const KernelSpec& spec, const DepthwiseMmaConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  if (e.result_rows > 0)
    c.insert(c.end(), {{"result_rows", e.result_rows},
                       {"producer_registers", e.producer_registers},
                       {"consumer_registers", e.consumer_registers}});
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const DepthwiseGradientMmaConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const NarrowGroupsConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  add_channels(e.groups, c);
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const NarrowGroupsGradientConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  c.insert(c.end(), {{"line_units", e.line_units}, {"joined", e.joined}});
  add_channels(e.groups, c);
  add_boxes(e, c, e.joined);
}

void add_constants(const KernelSpec& spec, const SimtConfig& s, std::vector<ConfigConstant>& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile", s.tile},
                     {"a_k_fastest", s.a_k_fastest, true},
                     {"b_k_fastest", s.b_k_fastest, true},
                     {"n_fastest", s.n_fastest, true},
                     {"tensor_cores", s.tensor_cores, true},
                     {"zero_dominates", spec.contraction().zero_dominates == ZeroOf::a, true}});
  if (has_marked_zeros(spec.contraction())) c.push_back({"marked_zeros", 1, true});
}

void add_constants(const KernelSpec& spec, const ChainedConfig& e, std::vector<ConfigConstant>& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile_m", e.tile_m},
                     {"stages", e.stages},
                     {"stages_c", e.stages_c},
                     {"products", 1},
                     {"producer_registers", e.producer_registers},
                     {"consumer_registers", e.consumer_registers},
                     {"n_fastest", e.n_fastest, true}});
}

void add_constants(const KernelSpec& spec, const AttentionConfig& e,
                   std::vector<ConfigConstant>& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile_q", e.tile_q},
                     {"tile_k", e.tile_k},
                     {"stages", e.stages},
                     {"heads_together", e.heads_together},
                     {"splits", e.attention.splits},
                     {"products", 1}});
  if (e.least_blocks > 1) c.push_back({"blocks", e.least_blocks});
  if (bytes_of_boxes(e) > 0) c.push_back({"box_stages", e.box_stages});
  if (rounds_divided(e.weight)) c.push_back({"key_walks", 2});
  if (e.attention.parts >= 0) {
    const PartOfKeys part = part_of_keys(e, spec.extent[AttentionSpec::e]);
    c.insert(c.end(), {{"share_lanes", e.share_lanes},
                       {"parts_by_rows", part.by_rows, true},
                       {"part_floats", part.floats}});
  }
  if (e.key_blocks > 1)
    c.insert(
        c.end(),
        {{"key_blocks", e.key_blocks}, {"alternating", e.alternating}, {"part_rows", e.part_rows}});
  if (e.key_warps > 1) c.push_back({"key_warps", e.key_warps});
  if (!e.by_warps)
    c.insert(c.end(), {{"producer_registers", e.producer_registers},
                       {"consumer_registers", e.consumer_registers},
                       {"ping_pong", e.ping_pong, true}});
  c.insert(c.end(),
           {{"store_boxes", e.result.has_value(), true}, {"n_fastest", e.n_fastest, true}});
  if (e.wide) c.push_back({"values_in_keys", e.values_in_keys, true});
}

void add_constants(const KernelSpec& spec, const AttentionBackwardConfig& e,
                   std::vector<ConfigConstant>& c) {
  c.insert(c.end(), {{"tile_q", e.tile_q},
                     {"tile_k", e.tile_k},
                     {"stages", e.stages},
                     {"group_size", static_cast<int>(spec.attention_backward().group)},
                     {"heads_together", e.heads_together}});
  if (const int parts = spec.attention_backward().parts; parts > 1) c.push_back({"parts", parts});
  if (e.in_order) c.push_back({"in_order", 1, true});
  if (e.blocks_of_round > 0) c.push_back({"blocks_of_round", e.blocks_of_round});
  if (spec.attention_backward().totals()) c.push_back({"row_totals", 1, true});
  if (e.by_warps) return;
  c.insert(c.end(), {{"producer_registers", e.producer_registers},
                     {"consumer_registers", e.consumer_registers}});
  if (e.wide) c.push_back({"stages_do", e.stages_do});
}

}  // namespace

std::vector<ConfigConstant> config_constants(const ScheduledKernel& kernel) {
  const KernelSpec& spec = kernel.spec;
  std::vector<ConfigConstant> c = {{"threads", kernel.launch().threads}};
  if (const Packing* const packing = kernel.packing()) {
    c.push_back({"unroll", kernel.unroll()});
    c.push_back({"width", packing->width});
  }
  std::visit([&](const auto& config) { add_constants(spec, config, c); }, kernel.config);
  return c;
}

}  // namespace sinter
