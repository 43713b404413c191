#include "emit/config_text.hpp"

#include "emit/gathering.hpp"
#include "emit/spelling.hpp"
#include "plan/access.hpp"
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
    Dims indices;
    for (int d = 0; d < g.output_dim.size(); ++d) indices.push_back(g.index(d));
    out.line("using Indices = {};", dims_type(indices));
    out.line("static constexpr int along = {};", node_dim(g, index));
    if (g.op == OpKind::resample)
      out.line("static constexpr bool positions = {};", wants_positions(spec, number));
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
  std::vector<bool> accessed(spec.ports.size());
  const auto mark = [&](int port) {
    if (port >= 0) accessed[static_cast<std::size_t>(port)] = true;
  };
  if (const auto* const c = spec.as_contraction()) mark(c->rows.offsets), mark(c->rows.index);
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (names_ports(s)) mark(s.port), mark(s.port2);
  for (const auto& c : spec.columns) mark(c.port);
  return accessed;
}

}  // namespace

std::vector<ConfigConstant> config_constants(const KernelSpec& spec, const Schedule& s) {
  std::vector<ConfigConstant> c = {{"threads", s.threads}};
  if (!spec.as_contraction() || s.tensor_cores || s.mma) {
    c.push_back({"unroll", s.unroll});
    c.push_back({"width", s.packing.width});
  }
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
                       {"skewed", s.skew >= 0, true}});
  if (s.places > 0) c.insert(c.end(), {{"places", s.places}, {"skewed", 1, true}});
  if (const RowwiseSpec* const rows = spec.as_rowwise()) {
    c.insert(c.end(), {{"kept", rows->outer_rank},
                       {"threads_per_row", s.threads_per_row},
                       {"rows_per_block", s.rows_per_block},
                       {"blocks_per_row", s.blocks_per_row},
                       {"rows_at_once", s.rows_at_once},
                       {"rows_fastest", s.rows_fastest, true},
                       {"resident", s.resident, true},
                       {"prefetch", s.prefetch, true},
                       {"ahead", s.ahead, true},
                       {"renew", s.renew, true},
                       {"early", s.early},
                       {"skewed", s.skew >= 0, true},
                       {"slots", rows->num_partials}});
    if (rows->num_partials > 0)
      c.insert(c.end(), {{"ring", s.ring},
                         {"under_way", s.under_way},
                         {"slot_bytes", s.slot_bytes},
                         {"kinds", column_kinds(spec)},
                         {"by_lanes", s.by_lanes, true}});
  } else if (const ContractionSpec* const space = spec.as_contraction()) {
    c.insert(c.end(),
             {{"batch", space->batch}, {"m", space->m}, {"n", space->n}, {"k", space->k()}});
    if (!spec.columns.empty()) c.push_back({"totals", static_cast<int>(spec.columns.size())});
    if (s.tensor_cores) {
      const TensorCores& e = *s.tensor_cores;
      c.insert(c.end(), {{"tile_m", e.tile.m},
                         {"tile_n", e.tile.n},
                         {"rows_brought", e.rows_brought},
                         {"stages", e.tile.stages},
                         {"cluster_m", e.tile.cluster_m},
                         {"cluster_n", e.tile.cluster_n},
                         {"split", e.tile.split},
                         {"group", e.tile.group},
                         {"products", e.b2 ? 2 : 1},
                         {"operand_bytes", e.operand_bytes},
                         {"producer_registers", e.producer_registers},
                         {"consumer_registers", e.consumer_registers},
                         {"alternate", e.tile.alternate, true},
                         {"settle", e.settle, true},
                         {"prefetch", e.prefetch, true},
                         {"ahead", e.ahead, true},
                         {"rotate", e.rotate},
                         {"n_fastest", e.n_fastest, true}});
      return c;
    }
    if (s.mma) {
      const MmaTile& t = s.mma->tile;
      c.insert(c.end(), {{"tile_m", t.m},
                         {"tile_n", t.n},
                         {"tile_k", t.line / info(s.mma->number).bytes},
                         {"warps_m", t.warps_m},
                         {"warps_n", t.warps_n},
                         {"stages", t.stages},
                         {"group", s.mma->group},
                         {"settle", s.mma->settle},
                         {"products", 1},
                         {"n_fastest", s.mma->n_fastest, true}});
      return c;
    }
    c.insert(c.end(), {{"tile", s.tile},
                       {"a_k_fastest", s.a_k_fastest, true},
                       {"b_k_fastest", s.b_k_fastest, true},
                       {"n_fastest", s.n_fastest, true},
                       {"annihilating_zero", space->zero_dominates == ZeroOf::a, true}});
  }
  return c;
}

void print_config(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                  const Schedule& schedule, const std::vector<const BodyText*>& bodies) {
  out.open("struct Config {{");
  out.line("using Index = {};", schedule.wide_index ? "long long" : "int");
  out.line("using Extent = {};", dims_type(spec.extent));
  if (const ContractionSpec* const c = spec.as_contraction())
    out.line("using Accumulator = {};", value_type(c->accumulate));
  const bool integers = (schedule.tensor_cores && schedule.tensor_cores->integers) ||
                        (schedule.mma && schedule.mma->settle > 0);
  if (schedule.mma || schedule.tensor_cores)
    out.line("using Sum = {};", integers ? "int" : "float");
  if (schedule.mma) out.line("using Number = sinter::{};", name(schedule.mma->number));
  for (const auto& c : config_constants(spec, schedule))
    if (c.flag)
      out.line("static constexpr bool {} = {};", c.name, c.value != 0);
    else
      out.line("static constexpr int {} = {};", c.name, c.value);
  const std::vector<bool> accessed = accessed_ports(spec);
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (accessed[i]) print_access(out, spec.ports[i].access, names.access[i]);
  if (schedule.skew >= 0)
    out.line("using Skew = {};", names.access[static_cast<std::size_t>(schedule.skew)]);
  for (const BodyText* body : bodies)
    for (int i = 0; i < body->size(); ++i)
      if (const Statement& s = body->statement(i); s.kind == StatementKind::random)
        print_access(out, s.access, random_access_name(body->name(i)));
      else if (s.kind == StatementKind::reduce && !s.access.windows.empty())
        print_access(out, s.access,
                     inside_access_name(names.reduction[static_cast<std::size_t>(s.port)]));
  for (std::size_t i = 0; i < spec.gathers.size(); ++i) {
    const int number = static_cast<int>(i);
    const GatherPack apart,
        &pack = schedule.packing.gathers.empty() ? apart : schedule.packing.gathers[i];
    if (gathered_with(spec, number) == number)
      print_gather(out, spec, number, schedule.packing.dim, pack, names.gather[i]);
  }
  out.close("};");
}

void print_args(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                const Schedule& schedule) {
  out.open("struct Args {{");
  if (const auto& e = schedule.tensor_cores)
    out.line("sinter::TensorMap {}map_b{};", spec.contraction().rows.gathers() ? "" : "map_a, ",
             e->b2 ? ", map_b2" : "");
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
