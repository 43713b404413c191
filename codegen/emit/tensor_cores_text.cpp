#include "emit/tensor_cores_text.hpp"

#include <fmt/format.h>

#include "emit/contraction_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "plan/liveness.hpp"

namespace sinter {

void print_wgmma(TextWriter& out, const WgmmaConfig& e) {
  if (e.image_rows) {
    out.line("SINTER_WGMMA({}, f32)", e.tile.n);
    return;
  }
  // Of a filter gradient the columns of some taps; of swapped products a consumer's pixels.
  const int columns = e.taps_each > 0     ? kStageLine / e.operand_bytes * e.taps_together
                      : swaps_products(e) ? rows_of_consumer(e.tile)
                                          : e.tile.n;
  out.line("SINTER_WGMMA_NAMED({}, {})", columns, e.integers ? "s32" : "f32");
}

namespace {

// The coordinates of a batch entry in the map, behind those of rows and columns.
std::string batch_text(const BoxedOperand& o, SharedIndex shared) {
  std::string text;
  for (int i : o.batch) {
    text += fmt::format(", static_cast<int>(c.at[{}])", i);
    if (i == shared.index && shared.group > 1) text += fmt::format(" / {}", shared.group);
  }
  return text;
}

}  // namespace

std::string map_behind(std::string_view map, std::size_t part) {
  return fmt::format("{}_{}", map, part + 1);
}

void print_box_store(TextWriter& out, const BoxedOperand& o, std::string_view map,
                     std::string_view function, std::string_view instruction, SharedIndex shared) {
  out.line("SINTER_DEVICE static void {}(const Args& args, const Coord& c, int row, int column,",
           function);
  out.open("                                unsigned from) {{");
  out.line("sinter::hopper::{}(args.{}, from, column, row{});", instruction, map,
           batch_text(o, shared));
  out.close("}");
}

void print_boxed_operand(TextWriter& out, const BoxedOperand& o, std::string_view struct_name,
                         std::string_view map, std::string_view coordinates, SharedIndex shared) {
  out.open("struct {} {{", struct_name);
  out.line("using Number = sinter::{};", name(o.map.type));
  print_box_load(out, o, map, coordinates, shared);
  out.close("};");
}

void print_box_load(TextWriter& out, const BoxedOperand& o, std::string_view map,
                    std::string_view coordinates, SharedIndex shared) {
  out.line("static constexpr bool k_fastest = {};", o.k_fastest);
  const auto fetched = [](std::string_view of) {
    return fmt::format("sinter::hopper::prefetch(args.{});", of);
  };
  if (o.behind.empty()) {
    out.line("SINTER_DEVICE static void prefetch(const Args& args) {{ {} }}", fetched(map));
  } else {
    out.open("SINTER_DEVICE static void prefetch(const Args& args) {{");
    out.line("{}", fetched(map));
    for (std::size_t i = 0; i < o.behind.size(); ++i) out.line("{}", fetched(map_behind(map, i)));
    out.close("}");
  }
  out.line(
      "SINTER_DEVICE static void load(const Args& args, const {}& c, int row, int k, unsigned "
      "to,",
      coordinates);
  out.open("                               unsigned barrier, unsigned blocks) {{");
  const auto load = [&](const BoxedOperand& part, std::string_view of) {
    const std::string k = part.from > 0 ? fmt::format("k - {}", part.from) : "k";
    out.line("sinter::hopper::load_box(args.{}, to, barrier, blocks, {}{});", of,
             part.k_fastest ? k + ", row" : "row, " + k, batch_text(part, shared));
  };
  for (std::size_t i = o.behind.size(); i-- > 0;) {
    out.open("if (k >= {}) {{", o.behind[i].from);
    load(o.behind[i], map_behind(map, i));
    out.line("return;");
    out.close("}");
  }
  load(o, map);
  out.close("}");
}

void print_chained(TextWriter& out, const ChainedConfig& e, const KernelNames& names) {
  print_boxed_operand(out, e.a, "OperandA", "map_a", "FirstCoord");
  print_boxed_operand(out, e.b, "OperandB", "map_b", "FirstCoord");
  print_boxed_operand(out, e.c, "OperandC", "map_c", "FirstCoord");
  const BodyText middle(e.first, names, e.first.body, nullptr);
  const int last = middle.size() - 1;
  out.open("struct Middle {{");
  out.line("using Config = First;");
  out.open(
      "SINTER_DEVICE static float element(const Args& args, const FirstCoord& c, float acc) {{");
  print_statements(out, middle, live_statements(middle.body(), {last}));
  out.line("return {};", middle.name(last));
  out.close("}");
  out.close("};");
}

void print_scales(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                  const WgmmaConfig& e) {
  std::string types;
  const auto print = [&](const BoxedOperand& o, const Body& body, std::string_view struct_name) {
    if (o.scale >= 0)
      print_value(out, BodyText(spec, names, body, nullptr), o.scale, struct_name,
                  o.one_scale ? "same = true" : "same = false");
    else
      out.line("using {} = sinter::contraction::Unscaled;", struct_name);
    types += fmt::format("{}{}", types.empty() ? "" : ", ", struct_name);
  };
  const ContractionSpec& c = spec.contraction();
  print(e.a, c.a().body, "ScaleA");
  print(e.b, c.b().body, "ScaleB");
  if (e.b2) print(*e.b2, c.b(1).body, "ScaleB2");
  out.line("using Scales = sinter::contraction::BlockScales<{}>;", types);
}

bool loads_by_map(const KernelSpec& spec, const BoxedOperand& o, bool is_a) {
  return o.source != BoxedOperand::Source::shifted && !(is_a && spec.contraction().rows.gathers());
}

void print_operand_by_threads(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                              const BoxedOperand& o, std::string_view struct_name) {
  const auto port = static_cast<std::size_t>(o.port);
  out.open("struct {} {{", struct_name);
  out.line("using Number = sinter::{};", name(o.map.type));
  out.line("static constexpr bool k_fastest = {};", o.k_fastest);
  if (o.source == BoxedOperand::Source::shifted)
    out.line("static constexpr bool begins_anywhere = true;");
  out.line("using Access = Config::{};", names.access[port]);
  out.line("SINTER_DEVICE static const {}* base(const Args& args) {{ return args.{}; }}",
           storage_type(spec.ports[port].type), names.port[port]);
  out.close("};");
}

}  // namespace sinter
