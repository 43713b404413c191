#include "emit/contraction_text.hpp"

#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "emit/tensor_cores_text.hpp"
#include "emit/window_text.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

// The reductions of a contraction's results, and how each stores a partial result.
void print_result_reductions(TextWriter& out, const KernelSpec& spec, const KernelNames& names) {
  if (!spec.cross_row_reductions.empty())
    out.line("static_assert(sinter::contraction::kReducedTogether == {});", kReducedTogether);
  for (std::size_t i = 0; i < spec.cross_row_reductions.size(); ++i) {
    const CrossRowReduction& r = spec.cross_row_reductions[i];
    const auto port = static_cast<std::size_t>(r.port);
    out.open("struct {} {{", names.cross_row[i]);
    out.line("static constexpr auto mode = sinter::ReductionMode::{};", sinter::name(r.mode));
    out.line("using Value = {};", value_type(r.arithmetic));
    out.line("static constexpr bool over_m = {}, over_n = {};", r.partial_stride_m > 0,
             r.partial_stride_n > 0);
    out.line("template <class Partial>");
    out.line("SINTER_DEVICE static void store(const Args& args, const Coord& c, Config::Index m,");
    out.open("                                Config::Index n, Partial partial) {{");
    std::string at = "args." + names.port[port];
    if (r.partial_stride_m > 0) at += fmt::format(" + m * {}ll", r.partial_stride_m);
    if (r.partial_stride_n > 0) at += fmt::format(" + n * {}ll", r.partial_stride_n);
    out.line("sinter::store<Config::{}>({}, c, partial);", names.access[port], at);
    out.close("}");
    out.close("};");
  }
}

std::string rows_type(const KernelSpec& spec, const KernelNames& names) {
  const GroupedRows& r = spec.contraction().rows;
  const auto port = [](int i) { return static_cast<std::size_t>(i); };
  const int index = r.index >= 0 ? r.index : r.offsets;  // not read without an index
  return fmt::format("sinter::GroupedRows<sinter::MoeMode::{}, Config::{}, Config::{}, {}, {}>",
                     name(r.mode), names.access[port(r.offsets)], names.access[port(index)],
                     storage_type(spec.ports[port(r.offsets)].type),
                     storage_type(spec.ports[port(index)].type));
}

}  // namespace

ContractionText::ContractionText(const ScheduledKernel& kernel, const KernelNames& names,
                                 const Packing* packing_a, const Packing* packing_b)
    : EngineText(kernel, names),
      c_(kernel.spec.contraction()),
      a_(spec_, names, c_.a().body, packing_a),
      b_(spec_, names, c_.b().body, packing_b) {}

void ContractionText::print_types(TextWriter& out) const {
  out.line("using Accumulator = {};", value_type(c_.accumulate));
  if (!sum().empty()) out.line("using Sum = {};", sum());
}
void ContractionText::print_rows(TextWriter& out) const {
  if (c_.rows.on) out.line("using Rows = {};", rows_type(spec_, names_));
}
std::string ContractionText::rows() const {
  if (!c_.rows.on) return "sinter::AllRows{}";
  const auto port = [&](int i) { return "args." + names_.port[static_cast<std::size_t>(i)]; };
  const std::string offsets = port(c_.rows.offsets),
                    index = c_.rows.index >= 0 ? port(c_.rows.index) : offsets;
  return fmt::format("Rows{{{}, {}}}", offsets, index);
}

// The epilogue of a contraction.
void print_epilogue(TextWriter& out, const BodyText& body) {
  out.open("struct Body {{");
  out.line("const Args& args;");
  out.open("SINTER_DEVICE void apply(const Coord& c, Config::Accumulator acc) const {{");
  print_statements(out, body, live_statements(body.body(), effects(body.body(), 0)));
  out.close("}");
  out.close("};");
}

void print_recomputed(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                      const CountedProducts& counted) {
  if (counted.which == CountedProducts::Which::none) return;
  const ContractionSpec& c = spec.contraction();
  print_operand(out, BodyText(spec, names, c.a().body, nullptr), "ElementA");
  print_operand(out, BodyText(spec, names, c.b().body, nullptr), "ElementB");
}

namespace {

std::string spelled(const CountedProducts& counted) {
  using Which = CountedProducts::Which;
  switch (counted.which) {
    case Which::none:
      return {};
    case Which::unless_zero:
      return "UnlessZero";
    case Which::unless_marked:
      return "UnlessMarked";
    case Which::every:
      return "EveryProduct";
    case Which::where_results_are:
      break;
  }
  return fmt::format("WhereResultsAre<{}>", bounds_of_results(counted.bounds));
}

// Where results are stored, and what differs from row to row is read, in whole rows.
void print_rows(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                const WarpgroupConfig& engine) {
  const auto result = static_cast<std::size_t>(engine.stored_rows);
  if (!engine.result) {
    out.line("static constexpr bool stores_rows = true;");
    out.line("static constexpr int sources = {};", engine.row_sources.size());
    if (engine.stored_together == 1) {
      out.line("static constexpr bool odd_rows = true;");
      out.line("static constexpr bool packed_rows = {};", engine.packed_rows);
    } else if (engine.stored_lines) {
      out.line("static constexpr bool stores_lines = true;");
    } else if (engine.stored_together != 8) {
      out.line("static constexpr int piece = {};", engine.stored_together);
    }
    out.line("using Stored = {};", storage_type(spec.ports[result].type));
    out.open("SINTER_DEVICE static Stored* row(const Args& args, const Coord& c) {{");
    out.line("return args.{} + sinter::locate<Config::{}>(c).offset;", names.port[result],
             names.access[result]);
    out.close("}");
  }
  if (const PooledPixels& pooled = spec.contraction().pooled; pooled.on()) {
    const auto port = static_cast<std::size_t>(pooled.port);
    out.line("static constexpr bool stores_pixels = {}, averages_pixels = {};",
             pooled.port != pooled.of, pooled.averages);
    out.open("SINTER_DEVICE static Stored* pooled_row(const Args& args, const Coord& c) {{");
    out.line("return args.{} + sinter::locate<Config::{}>(c).offset;", names.port[port],
             names.access[port]);
    out.close("}");
  }
  out.line("template <int width>");
  out.open("SINTER_DEVICE static const auto& result(const Fragment<width>& fragment) {{");
  out.line("return fragment.{};", names.port[result]);
  out.close("}");
  if (engine.result) {
    out.open("struct TileStore {{");
    out.line(
        "SINTER_DEVICE static void prefetch(const Args& args) {{ "
        "sinter::hopper::prefetch(args.map_result); }}");
    print_box_store(out, *engine.result, "map_result");
    out.close("};");
    return;
  }
  for (std::size_t i = 0; i < engine.row_sources.size(); ++i) {
    const auto port = static_cast<std::size_t>(engine.row_sources[i]);
    out.line("SINTER_DEVICE static const Stored* source(sinter::Int<{}>, const Args& args,", i);
    out.open("                                          const Coord& c) {{");
    out.line("return args.{} + sinter::locate<Config::{}>(c).offset;", names.port[port],
             names.access[port]);
    out.close("}");
    out.open(
        "SINTER_DEVICE static void set_source(sinter::Int<{}>, Fragment<2>& fragment, unsigned "
        "word) {{",
        i);
    out.line("fragment.{}.set_word(0, word);", names.port[port]);
    out.close("}");
  }
}

}  // namespace

// The epilogue of a contraction where a thread holds packs of neighbours.
void print_packed_epilogue(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                           const BodyText& body, const PackedEpilogue& epilogue) {
  const WarpgroupConfig* const engine = epilogue.stored;
  const std::vector<bool> live = live_statements(body.body(), effects(body.body(), 0));
  print_result_reductions(out, spec, names);
  out.open("struct Body {{");
  out.line("using Reductions = sinter::Reductions<{}>;",
           fmt::join(names.cross_row.begin(), names.cross_row.end(), ", "));
  if (epilogue.counted && epilogue.counted->which != CountedProducts::Which::none)
    out.line("using Recomputed = sinter::contraction::Recomputed<sinter::contraction::{}, {}>;",
             spelled(*epilogue.counted),
             spec.contraction().zero_dominates == ZeroOf::b ? "ElementB, ElementA"
                                                            : "ElementA, ElementB");
  out.line("template <int width>");
  out.line("using Fragment = ::Fragment<width>;");
  const std::set<int> loads = packed_ports(body, live, StatementKind::load);
  print_moves(out, names, body, "fetch", "", loads, "fetch");
  print_draws(out, body, drawn_numbers(body, live));
  if (engine && engine->prefetch) {
    std::set<int> of_tile;
    for (int p : loads)
      if (const auto i = static_cast<std::size_t>(p);
          engine->packing.ports[i].kind == PortPack::Kind::pack &&
          of_whole_tile(spec, spec.ports[i]))
        of_tile.insert(p);
    print_prefetch(out, names, body, of_tile);
  }
  out.line("template <int width>");
  out.line("SINTER_DEVICE static void element(const Args& args, const Coord& c, int e,");
  out.open(
      "                                  const Config::Accumulator (&acc)[Config::products], "
      "Fragment<width>& fragment, Reductions& cross_row) {{");
  print_statements(out, body, live);
  out.close("}");
  print_moves(out, names, body, "flush", "const ", packed_ports(body, live, StatementKind::store),
              "flush");
  if (engine && engine->stored_rows >= 0) {
    std::set<int> columns = loads;
    for (int i : engine->row_sources) columns.erase(i);
    print_moves(out, names, body,
                engine->stored_together == 1 ? "contraction::ColumnsOf<Config>::fetch" : "fetch",
                "", columns, "fetch_columns");
    out.line("static constexpr bool reads_columns = {};", !columns.empty());
    if (engine->stores_sums)
      out.line("using StoredSum = {};",
               storage_type(spec.ports[static_cast<std::size_t>(engine->stored_rows)].type));
    print_rows(out, spec, names, *engine);
  }
  out.close("};");
}

void print_operand(TextWriter& out, const BodyText& body, std::string_view struct_name) {
  print_value(out, body, body.size() - 1, struct_name);
}

void print_value(TextWriter& out, const BodyText& body, int last, std::string_view struct_name,
                 std::string_view constant) {
  out.open("struct {} {{", struct_name);
  if (!constant.empty()) out.line("static constexpr bool {};", constant);
  out.line("const Args& args;");
  out.open("SINTER_DEVICE {} value(const Coord& c) const {{",
           value_type(body.statement(last).arithmetic));
  print_statements(out, body, live_statements(body.body(), {last}));
  out.line("return {};", body.name(last));
  out.close("}");
  out.close("};");
}

}  // namespace sinter
