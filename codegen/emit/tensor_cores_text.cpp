#include "emit/tensor_cores_text.hpp"

#include <fmt/format.h>

#include "emit/spelling.hpp"

namespace sinter {

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

}  // namespace sinter
