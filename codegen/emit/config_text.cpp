#include "emit/config_text.hpp"

#include "emit/depthwise_text.hpp"
#include "emit/image_rows_text.hpp"
#include "emit/spelling.hpp"
#include "emit/window_text.hpp"
#include "plan/access.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/gathering.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

void print_window(TextWriter& out, const Window& w, std::size_t number) {
  out.open("struct Window{} {{", number);
  out.line("static constexpr long long base = {}, divisor = {}, extent = {}, stride = {};", w.base,
           w.divisor, w.extent, w.stride);
  out.line("using Coefficient = {};", dims_type(w.coefficient));
  out.close("};");
}

void print_access(TextWriter& out, const Access& a, const std::string& name) {
  if (a.offset == 0 && a.windows.empty() && a.via.empty()) {
    out.line("struct {} : sinter::Strided {{ using Stride = {}; }};", name, dims_type(a.stride));
    return;
  }
  out.open("struct {} : sinter::Strided {{", name);
  if (a.offset != 0) out.line("static constexpr long long offset = {};", a.offset);
  out.line("using Stride = {};", dims_type(a.stride));
  if (!a.via.empty()) out.line("using Via = {};", dims_type(a.via));
  std::string windows;
  for (std::size_t i = 0; i < a.windows.size(); ++i) {
    print_window(out, a.windows[i], i);
    windows += fmt::format("{}Window{}", i ? ", " : "", i);
  }
  if (!windows.empty()) out.line("using Windows = sinter::List<{}>;", windows);
  out.close("};");
}

// The operand's name in the gather's struct; empty where the element does not depend on it.
std::string_view operand_name(OpKind op, std::size_t port) {
  if (op == OpKind::page_gather && port == 1) return "Table";
  if (op == OpKind::block_mask) return "Mask";
  if (op == OpKind::resample_backward) return port == 0 ? "DY" : port == 3 ? "Index" : "";
  return "X";
}

// `index`: of the domain, along which neighbours are packed.
void print_gather(TextWriter& out, const KernelSpec& spec, int number, int index,
                  const GatherPack& pack, const std::string& struct_name) {
  const Gather& g = spec.gathers[static_cast<std::size_t>(number)];
  out.open("struct {} {{", struct_name);
  if (const auto* a = std::get_if<ResampleAttributes>(&g.attributes)) {
    const auto geometry = shapes::resample_geometry(*a, g.output_dim.size());
    out.line("static constexpr auto mode = sinter::ResampleMode::{};",
             name(a->mode.value_or(ResampleMode::maxpool)));
    out.line("static constexpr auto padding = sinter::PaddingMode::{};", name(geometry.padding));
    out.line("using Window = {};", dims_type(geometry.window));
    out.line("using Step = {};", dims_type(geometry.stride));
    out.line("using Pre = {};", dims_type(geometry.pre));
    out.line("static constexpr int along = {};", node_dim(g, index));
    if (g.op == OpKind::resample)
      out.line("static constexpr bool positions = {};", wants_positions(spec, number));
  }
  if (g.resamples() || g.op == OpKind::block_mask || g.op == OpKind::page_gather) {
    Dims indices;
    for (int d = 0; d < g.output_dim.size(); ++d) indices.push_back(g.index(d));
    out.line("using Indices = {};", dims_type(indices));
  }
  for (std::size_t p = 0; p < g.ports.size(); ++p) {
    const auto operand = operand_name(g.op, p);
    if (operand.empty() || !reads_operand(g, static_cast<int>(p))) continue;
    out.open("struct {} {{", operand);
    out.line("static constexpr long long offset = {};",
             spec.ports[static_cast<std::size_t>(g.ports[p])].access.offset);
    out.line("using Dim = {};", dims_type(g.dims[p]));
    out.line("using Stride = {};", dims_type(g.strides[p]));
    if (g.resamples())
      out.line("static constexpr int aligned = {};", pack.together ? pack.aligned[p] : 1);
    out.close("};");
  }
  out.line("using Output = {};", dims_type(g.output_dim));
  out.close("};");
}

// The ports that are reached by an access; a gather finds its way by dims and strides.
std::vector<bool> accessed_ports(const KernelSpec& spec) {
  // Rows of attention backward read more than its bodies say.
  std::vector<bool> accessed(spec.ports.size(), spec.as_attention_backward() != nullptr);
  const auto mark = [&](int port) {
    if (port >= 0) accessed[static_cast<std::size_t>(port)] = true;
  };
  if (const auto* const c = spec.as_contraction())
    mark(c->rows.offsets), mark(c->rows.index), mark(c->pooled.port);
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (names_ports(s)) mark(s.port), mark(s.port2);
  for (const auto& c : spec.columns) mark(c.port);
  return accessed;
}

void add_constants(const KernelSpec&, const PointwiseConfig& s, std::vector<ConfigConstant>& c) {
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

void add_boxes(const DepthwiseConfig& e, std::vector<ConfigConstant>& c) {
  const auto add = [&](const DepthwiseOperand& o, const char* line, const char* box) {
    if (o.map) c.insert(c.end(), {{line, o.line}, {box, static_cast<int>(o.map->box[1])}});
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
  if (e.image_rows > 1) c.push_back({"image_rows", e.image_rows});
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
  c.push_back({"line_units", e.line_units});
  add_channels(e.groups, c);
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const SimtConfig& s, std::vector<ConfigConstant>& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile", s.tile},
                     {"a_k_fastest", s.a_k_fastest, true},
                     {"b_k_fastest", s.b_k_fastest, true},
                     {"n_fastest", s.n_fastest, true},
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

void print_accesses(TextWriter& out, const KernelSpec& spec, const KernelNames& names) {
  const std::vector<bool> accessed = accessed_ports(spec);
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (accessed[i]) print_access(out, spec.ports[i].access, names.access[i]);
}

void print_random_accesses(TextWriter& out, const std::vector<const BodyText*>& bodies) {
  for (const BodyText* body : bodies)
    for (int i = 0; i < body->size(); ++i)
      if (const Statement& s = body->statement(i); s.kind == StatementKind::random)
        print_access(out, s.access, random_access_name(body->name(i)));
}

void print_gathers(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                   const Packing* packing) {
  for (std::size_t i = 0; i < spec.gathers.size(); ++i) {
    const int number = static_cast<int>(i);
    const GatherPack apart,
        &pack = packing && !packing->gathers.empty() ? packing->gathers[i] : apart;
    if (gathered_with(spec, number) == number)
      print_gather(out, spec, number, packing ? packing->dim : -1, pack, names.gather[i]);
  }
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

void print_config(TextWriter& out, const ScheduledKernel& kernel, const KernelNames& names,
                  const std::vector<const BodyText*>& bodies) {
  const KernelSpec& spec = kernel.spec;
  const MmaConfig* const mma = kernel.mma();
  const WgmmaConfig* const wgmma = kernel.wgmma();
  const Packing* const packing = kernel.packing();
  out.open("struct Config {{");
  out.line("using Index = {};", kernel.launch().wide_index ? "long long" : "int");
  out.line("using Extent = {};", dims_type(spec.extent));
  if (spec.as_contraction())
    out.line("using Accumulator = {};", value_type(spec.contraction().accumulate));
  const bool integers = (wgmma && wgmma->integers) || (mma && mma->promote_every > 0);
  if (mma || kernel.warpgroups() || kernel.chained() || kernel.attention())
    out.line("using Sum = {};", integers ? "int" : "float");
  if (mma) out.line("using Number = sinter::{};", name(mma->number));
  for (const auto& c : config_constants(kernel))
    if (c.flag)
      out.line("static constexpr bool {} = {};", c.name, c.value != 0);
    else
      out.line("static constexpr int {} = {};", c.name, c.value);
  if (const auto bytes = kernel.launch().shared_bytes; bytes > 0)
    out.line("static constexpr int shared_bytes = {};", bytes);
  if (wgmma && wgmma->window) print_window(out, *wgmma);
  if (const auto* const rows = kernel.image_rows()) print_image_rows(out, *rows);
  if (const auto* const depthwise = kernel.depthwise()) print_depthwise_axes(out, spec, *depthwise);
  print_accesses(out, spec, names);
  if (const int aligned_by = kernel.aligned_by(); aligned_by >= 0)
    out.line("using AlignedBy = {};", names.access[static_cast<std::size_t>(aligned_by)]);
  print_random_accesses(out, bodies);
  for (const BodyText* body : bodies)
    for (int i = 0; i < body->size(); ++i)
      if (const Statement& s = body->statement(i);
          s.kind == StatementKind::reduce && !s.access.windows.empty())
        print_access(out, s.access,
                     inside_access_name(names.reduction[static_cast<std::size_t>(s.port)]));
  const AttentionConfig* const attention = kernel.attention();
  // Those of scores are printed with the first product.
  if (!attention || attention->v.gather >= 0)
    print_gathers(out, spec, names, attention ? nullptr : packing);
  out.close("};");
}

void print_product_config(TextWriter& out, const KernelSpec& first, bool wide_index,
                          const KernelNames& names, const std::vector<const BodyText*>& bodies) {
  const ContractionSpec& c = first.contraction();
  out.open("struct First {{");
  out.line("using Index = {};", wide_index ? "long long" : "int");
  out.line("using Extent = {};", dims_type(first.extent));
  out.line("static constexpr int batch = {}, m = {}, n = {}, k = {};", c.batch, c.m, c.n, c.k());
  if (bodies.empty())
    print_accesses(out, first, names);
  else  // rows read and write more than the bodies say
    for (std::size_t i = 0; i < first.ports.size(); ++i)
      print_access(out, first.ports[i].access, names.access[i]);
  print_random_accesses(out, bodies);
  if (!bodies.empty()) print_gathers(out, first, names, nullptr);
  out.close("};");
  out.line("using FirstCoord = sinter::Coordinates<First::Index, First::Extent>;");
}

void print_args(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                const std::vector<MapArgument>& maps) {
  out.open("struct Args {{");
  if (!maps.empty()) {
    std::string all;
    for (const MapArgument& m : maps) all += (all.empty() ? "" : ", ") + m.name;
    out.line("sinter::TensorMap {};", all);
  }
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    out.line("{}{}* {};", spec.ports[i].written ? "" : "const ", storage_type(spec.ports[i].type),
             names.port[i]);
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) {
    if (!names.scalar_value[i].empty())
      out.line("{} {};", fits_f32(spec.scalars[i].type) ? "float" : "double",
               names.scalar_value[i]);
    if (!names.scalar_integer[i].empty()) out.line("long long {};", names.scalar_integer[i]);
  }
  out.close("};");
}

}  // namespace sinter
