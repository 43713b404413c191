#include "emit/config_text.hpp"

#include "emit/config_constants.hpp"
#include "emit/spelling.hpp"
#include "plan/access.hpp"
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
    for (const int* port : c->own_ports(*c)) mark(*port);
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (names_ports(s)) mark(s.port), mark(s.port2);
  for (const auto& c : spec.cross_row_reductions) mark(c.port);
  return accessed;
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

}  // namespace

void print_config(TextWriter& out, const EngineText& engine, const ScheduledKernel& kernel,
                  const KernelNames& names) {
  const KernelSpec& spec = kernel.spec;
  const std::vector<const BodyText*> bodies = engine.bodies();
  out.open("struct Config {{");
  out.line("using Index = {};", kernel.launch().wide_index ? "long long" : "int");
  out.line("using Extent = {};", dims_type(spec.extent));
  engine.print_types(out);
  for (const auto& c : config_constants(kernel))
    if (c.flag)
      out.line("static constexpr bool {} = {};", c.name, c.value != 0);
    else
      out.line("static constexpr int {} = {};", c.name, c.value);
  if (const auto bytes = kernel.launch().shared_bytes; bytes > 0)
    out.line("static constexpr int shared_bytes = {};", bytes);
  engine.print_own_config(out);
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
    print_gathers(out, spec, names, attention ? nullptr : kernel.packing());
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
