// Puts a generated file together: constants, arguments, the body, and one call of the family's
// template. Loops, barriers, shared memory and index arithmetic are the templates' business.
#include "emit/emit.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <set>

#include "emit/config_text.hpp"
#include "emit/mma_text.hpp"
#include "emit/spelling.hpp"
#include "emit/tensor_cores_text.hpp"
#include "plan/access.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

// What each family file of the device library is called by.
struct FamilyText {
  std::string_view header, what;
};
FamilyText family_text(Family f, const Schedule& schedule) {
  switch (f) {
    case Family::pointwise:
      if (schedule.tiling.on) return {"tiled", "every element on its own, turned around in tiles"};
      return {"pointwise", "every element on its own"};
    case Family::rowwise:
      return {"rowwise", "rows with reductions along them"};
    default:
      if (schedule.tensor_cores) return {"contraction_wgmma", "sums of products on tensor cores"};
      if (schedule.mma) return {"contraction_mma", "sums of products on tensor cores"};
      return {"contraction_simt", "sums of products"};
  }
}

bool uses(const KernelSpec& spec, StatementKind kind) {
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (s.kind == kind) return true;
  return false;
}

void print_includes(TextWriter& out, const KernelSpec& spec, const Schedule& schedule) {
  if (schedule.tensor_cores) print_multiplication(out, *schedule.tensor_cores);
  out.line("#include \"sinter/device/family/{}.cuh\"", family_text(spec.family, schedule).header);
  std::set<std::string> gathers;
  for (const auto& g : spec.gathers) gathers.insert(std::string(name(g.op)));
  for (const auto& g : gathers) out.line("#include \"sinter/device/gather/{}.cuh\"", g);
  if (uses(spec, StatementKind::random)) out.line("#include \"sinter/device/core/philox.cuh\"");
  if (uses(spec, StatementKind::pointwise)) out.line("#include \"sinter/ops/pointwise.hpp\"");
}

// All live statements in order.
void print_statements(TextWriter& out, const BodyText& body, const std::vector<bool>& live) {
  for (int i = 0; i < body.size(); ++i)
    if (live[static_cast<std::size_t>(i)]) body.print(out, i);
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

// What the threads of a block have under way to shared memory, inside of struct Place.
void print_ahead(TextWriter& out, const KernelNames& names, const std::vector<int>& ports) {
  out.line("template <int count>");
  out.open("struct Ahead {{");
  const auto print = [&](auto&& line) {
    for (int p : ports) line(names.port[static_cast<std::size_t>(p)], p);
  };
  print([&](const std::string& name, int) {
    out.line("sinter::PacksAhead<decltype(Place::{0}), count> {0};", name);
  });
  out.open("SINTER_DEVICE void bring(const Args& args, const Coord& c, int number) {{");
  print([&](const std::string& name, int p) {
    out.line("sinter::bring<Config::{1}>(args.{0}, c, {0}, number);", name,
             names.access[static_cast<std::size_t>(p)]);
  });
  out.close("}");
  out.open("SINTER_DEVICE void take(int number, Place& place) const {{");
  print([&](const std::string& name, int) {
    out.line("sinter::take({0}, number, place.{0});", name);
  });
  out.close("}");
  out.close("};");
}

// What a thread holds at one place of the domain.
void print_place(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                 const Schedule& schedule) {
  const Packing& packing = schedule.packing;
  out.line("template <int width>");
  out.open("struct Place {{");
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const PortPack& pack = packing.ports[i];
    const auto type = storage_type(spec.ports[i].type);
    const int full = 16 / info(spec.ports[i].type).bytes;
    if (pack.kind == PortPack::Kind::same)
      out.line("sinter::Same<{}> {};", type, names.port[i]);
    else if (pack.kind == PortPack::Kind::pack)
      out.line(
          "sinter::Pack<{}, width{}> {};", type,
          pack.aligned < std::min(full, packing.width) ? fmt::format(", {}", pack.aligned) : "",
          names.port[i]);
    else if (pack.kind == PortPack::Kind::staged)
      out.line("sinter::Pack<{}, width> {};", type, names.port[i]);
  }
  if (schedule.ring > 0) {
    print_ahead(out, names, ports_of_rows(spec, packing));
  } else if (spec.slots > 0) {
    out.open("SINTER_DEVICE void advance(const Place& next) {{");
    for (int p : ports_of_rows(spec, packing))
      out.line("{0} = next.{0};", names.port[static_cast<std::size_t>(p)]);
    out.close("}");
  }
  out.close("};");
}

// A function that moves packs between memory and a place: `ports` through `verb`.
void print_moves(TextWriter& out, const KernelNames& names, std::string_view verb,
                 std::string_view constness, const std::set<int>& ports,
                 std::string_view function) {
  out.line("template <int width>");
  const std::string signature = fmt::format(
      "SINTER_DEVICE static void {}(const Args& args, const Coord& c, "
      "{}Place<width>& place)",
      function, constness);
  if (ports.empty()) return out.line("{} {{}}", signature);
  out.open("{} {{", signature);
  for (int p : ports) {
    const auto i = static_cast<std::size_t>(p);
    out.line("sinter::{}<Config::{}>(args.{}, c, place.{});", verb, names.access[i], names.port[i],
             names.port[i]);
  }
  out.close("}");
}

// The ports of the packed loads or stores among the statements; those that pass through a tile, or
// those that do not.
std::set<int> packed_ports(const BodyText& body, const std::vector<bool>& live, StatementKind kind,
                           bool staged = false) {
  std::set<int> ports;
  for (int i = 0; i < body.size(); ++i)
    if (live[static_cast<std::size_t>(i)] && body.packed(i) && body.statement(i).kind == kind &&
        body.staged(i) == staged)
      ports.insert(body.statement(i).port);
  return ports;
}

// The tiles of a block in shared memory.
void print_tiles(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                 const Schedule& schedule) {
  out.open("struct Staged {{");
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const PortPack& pack = schedule.packing.ports[i];
    if (pack.kind != PortPack::Kind::staged) continue;
    const auto type = storage_type(spec.ports[i].type);
    if (schedule.skew >= 0)
      out.line("sinter::SkewedTile<Config, Config::{}, {}> {};", names.access[i], type,
               names.port[i]);
    else
      out.line("sinter::Tile<Config, Config::{}, {}, {}> {};", names.access[i], type, pack.aligned,
               names.port[i]);
  }
  out.close("};");
}

// The functions of a body that move its tiles: the loaded ones from memory and to a place, the
// stored ones back.
void print_tile_moves(TextWriter& out, const KernelNames& names, const std::set<int>& loads,
                      const std::set<int>& stores) {
  const auto print = [&](std::string_view generic, std::string_view function,
                         std::string_view parameters, const std::set<int>& ports,
                         std::string_view move) {
    if (ports.empty()) return;
    out.line("template <{}>", generic);
    out.open("SINTER_DEVICE static void {}({}) {{", function, parameters);
    for (int p : ports)
      out.line("staged.{0}.{1}.{0}{2};", names.port[static_cast<std::size_t>(p)],
               move.substr(0, move.find('@')), move.substr(move.find('@') + 1));
    out.close("}");
  };
  print("class Corner", "stage", "const Args& args, const Corner& corner, Staged& staged", loads,
        "load(args@, corner)");
  print("class Spot, int width", "gather",
        "const Staged& staged, const Spot& spot, Place<width>& place", loads, "read(spot, place@)");
  print("class Spot, int width", "scatter",
        "Staged& staged, const Spot& spot, const Place<width>& place", stores,
        "write(spot, place@)");
  print("class Corner", "unstage", "const Args& args, const Corner& corner, const Staged& staged",
        stores, "store(args@, corner)");
}

void print_pointwise(TextWriter& out, const KernelNames& names, const BodyText& body) {
  const std::vector<bool> live = live_statements(body.body(), effects(body.body(), 0));
  const auto loads = packed_ports(body, live, StatementKind::load),
             stores = packed_ports(body, live, StatementKind::store);
  out.open("struct Body {{");
  out.line("template <int width>");
  out.line("using Place = ::Place<width>;");
  print_moves(out, names, "fetch", "", loads, "fetch");
  out.line("template <int width>");
  out.open(
      "SINTER_DEVICE static void element(const Args& args, const Coord& c, int e, "
      "Place<width>& place) {{");
  std::vector<int> computed, copied;
  for (int i : effects(body.body(), 0)) (body.copied(i) ? copied : computed).push_back(i);
  print_statements(out, body, live_statements(body.body(), computed));
  for (int i : copied) body.print(out, i);
  out.close("}");
  print_moves(out, names, "flush", "const ", stores, "flush");
  print_tile_moves(out, names, packed_ports(body, live, StatementKind::load, true),
                   packed_ports(body, live, StatementKind::store, true));
  out.close("};");
}

// The reductions of a contraction's results, and how each stores a partial result.
void print_result_reductions(TextWriter& out, const KernelSpec& spec, const KernelNames& names) {
  for (std::size_t i = 0; i < spec.columns.size(); ++i) {
    const ColumnReduction& r = spec.columns[i];
    const auto port = static_cast<std::size_t>(r.port);
    out.open("struct {} {{", names.column[i]);
    out.line("static constexpr auto mode = sinter::ReductionMode::{};", sinter::name(r.mode));
    out.line("using Value = {};", value_type(r.arithmetic));
    out.line("static constexpr bool over_m = {}, over_n = {};", r.slot_m > 0, r.slot_n > 0);
    out.line("template <class Partial>");
    out.line("SINTER_DEVICE static void store(const Args& args, const Coord& c, Config::Index m,");
    out.open("                                Config::Index n, Partial partial) {{");
    std::string at = "args." + names.port[port];
    if (r.slot_m > 0) at += fmt::format(" + m * {}", r.slot_m);
    if (r.slot_n > 0) at += fmt::format(" + n * {}", r.slot_n);
    out.line("sinter::store<Config::{}>({}, c, partial);", names.access[port], at);
    out.close("}");
    out.close("};");
  }
}

// The epilogue of a contraction where a thread holds packs of neighbours.
void print_packed_epilogue(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                           const BodyText& body, const TensorCores* engine) {
  const std::vector<bool> live = live_statements(body.body(), effects(body.body(), 0));
  print_result_reductions(out, spec, names);
  out.open("struct Body {{");
  out.line("using Reductions = sinter::Reductions<{}>;",
           fmt::join(names.column.begin(), names.column.end(), ", "));
  out.line("template <int width>");
  out.line("using Place = ::Place<width>;");
  const std::set<int> loads = packed_ports(body, live, StatementKind::load);
  print_moves(out, names, "fetch", "", loads, "fetch");
  if (engine && engine->prefetch) {
    out.open("SINTER_DEVICE static void prefetch(const Args& args, const Coord& c) {{");
    for (int p : loads)
      if (const auto i = static_cast<std::size_t>(p);
          engine->packing.ports[i].kind == PortPack::Kind::pack &&
          of_whole_tile(spec, spec.ports[i]))
        out.line("sinter::prefetch<Config::{}>(args.{}, c);", names.access[i], names.port[i]);
    out.close("}");
  }
  out.line("template <int width>");
  out.line("SINTER_DEVICE static void element(const Args& args, const Coord& c, int e,");
  out.open(
      "                                  const Config::Accumulator (&acc)[Config::products], "
      "Place<width>& place, Reductions& columns) {{");
  print_statements(out, body, live);
  out.close("}");
  print_moves(out, names, "flush", "const ", packed_ports(body, live, StatementKind::store),
              "flush");
  out.close("};");
}

// One operand of a contraction: its last statement is the value.
void print_operand(TextWriter& out, const BodyText& body, std::string_view struct_name) {
  const int last = body.size() - 1;
  out.open("struct {} {{", struct_name);
  out.line("const Args& args;");
  out.open("SINTER_DEVICE {} value(const Coord& c) const {{",
           value_type(body.statement(last).arithmetic));
  print_statements(out, body, live_statements(body.body(), {last}));
  out.line("return {};", body.name(last));
  out.close("}");
  out.close("};");
}

template <class Reduction>
void print_reduction(TextWriter& out, const Reduction& r, const std::string& name, int phase) {
  out.open("struct {} {{", name);
  out.line("static constexpr auto mode = sinter::ReductionMode::{};", sinter::name(r.mode));
  out.line("using Value = {};", value_type(r.arithmetic));
  out.line("static constexpr int phase = {};", phase);
  out.line("static constexpr long long length = {};", r.length);
  out.close("};");
}

void print_reductions(TextWriter& out, const KernelSpec& spec, const KernelNames& names) {
  for (std::size_t i = 0; i < spec.reductions.size(); ++i)
    print_reduction(out, spec.reductions[i], names.reduction[i], spec.reductions[i].phase);
  out.line("using Reductions = sinter::Reductions<{}>;",
           fmt::join(names.reduction.begin(), names.reduction.end(), ", "));
  for (std::size_t i = 0; i < spec.columns.size(); ++i)
    print_reduction(out, spec.columns[i], names.column[i], 0);
  if (!spec.columns.empty())
    out.line("using ColumnReductions = sinter::Reductions<{}>;",
             fmt::join(names.column.begin(), names.column.end(), ", "));
}

// What a block writes for one column: its partial results, `slot` rows of them further.
void print_column_stores(TextWriter& out, const KernelSpec& spec, const KernelNames& names) {
  out.open("struct Columns : ColumnReductions {{");
  out.open("SINTER_DEVICE void store(const Args& args, const Coord& c, long long slot) const {{");
  for (std::size_t i = 0; i < spec.columns.size(); ++i) {
    const auto port = static_cast<std::size_t>(spec.columns[i].port);
    const std::int64_t row = count(spec.extent, spec.kept, spec.extent.size());
    out.line("sinter::store<Config::{}>(args.{} + slot * {}, c, partial<{}>());",
             names.access[port], names.port[port], row, names.column[i]);
  }
  out.close("}");
  out.close("};");
}

template <class Print>
void print_function(TextWriter& out, std::string_view signature, const std::vector<int>& statements,
                    const Print& print) {
  if (statements.empty()) return out.line("SINTER_DEVICE {} {{}}", signature);
  out.open("SINTER_DEVICE {} {{", signature);
  for (int i : statements) print(i);
  out.close("}");
}

// What a thread holds of a row as a whole.
void print_row_place(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                     const BodyText& body) {
  std::set<std::size_t> ports;
  for (int i = 0; i < body.size(); ++i)
    if (body.of_row(i)) ports.insert(static_cast<std::size_t>(body.statement(i).port));
  const std::string_view fetch = "SINTER_DEVICE void fetch(const Args& args, const Coord& c)";
  if (ports.empty()) return out.line("struct RowPlace {{ {} {{}} }};", fetch);
  out.open("struct RowPlace {{");
  for (std::size_t p : ports)
    out.line("sinter::Same<{}> {};", storage_type(spec.ports[p].type), names.port[p]);
  out.open("{} {{", fetch);
  for (std::size_t p : ports)
    out.line("sinter::fetch<Config::{}>(args.{}, c, {});", names.access[p], names.port[p],
             names.port[p]);
  out.close("}");
  out.close("};");
}

// Everything that a phase's stores and reduces need. Values of the row become members, where the
// elements and the stores of the row find them. `fetched`: the ports of the phases before.
void print_phase(TextWriter& out, const KernelNames& names, const BodyText& body,
                 const Schedule& schedule, int phase, bool columns, std::set<int>& fetched) {
  const Packing& packing = schedule.packing;
  const std::vector<bool> live = live_statements(body.body(), effects(body.body(), phase));
  std::vector<int> row, element, row_stores;
  std::set<int> members;
  for (int i = 0; i < body.size(); ++i) {
    if (!live[static_cast<std::size_t>(i)]) continue;
    const Statement& s = body.statement(i);
    const bool store = s.kind == StatementKind::store;
    const bool of_row = s.per_row && (store || !acts(s));
    (!of_row ? element : store ? row_stores : row).push_back(i);
    if (!of_row || store)
      for (int a : s.args)
        if (body.statement(a).per_row) members.insert(a);
  }
  std::set<int> first, weights, again;
  for (int p : packed_ports(body, live, StatementKind::load)) {
    const bool weight = packing.ports[static_cast<std::size_t>(p)].weight;
    (fetched.count(p) ? again : weight ? weights : first).insert(p);
    fetched.insert(p);
  }

  out.open("struct Phase{} {{", phase);
  out.line("static constexpr int number = {};", phase);
  out.line("static constexpr bool has_elements = {};", !element.empty());
  for (int i : members)
    out.line("{} {} = 0;", value_type(body.statement(i).arithmetic), body.name(i));
  print_function(
      out,
      "void row(const Args& args, const Coord& c, const RowPlace& of_row, "
      "const Reductions& reductions)",
      row, [&](int i) { members.count(i) ? body.print_assignment(out, i) : body.print(out, i); });
  const auto print = [&](int i) { body.print(out, i); };
  const bool skewed = schedule.skew >= 0;
  const std::string_view fetch = skewed ? "fetch_clipped" : "fetch",
                         flush = skewed ? "flush_clipped" : "flush";
  print_moves(out, names, fetch, "", first, "fetch");
  print_moves(out, names, fetch, "", weights, "fetch_weights");
  print_moves(out, names, fetch, "", again, "refetch");
  out.line("template <int width>");
  if (again.empty()) {
    out.line("SINTER_DEVICE static void renew(Place<width>& place) {{}}");
  } else {
    out.open("SINTER_DEVICE static void renew(Place<width>& place) {{");
    for (int p : again)
      out.line("sinter::renew(place.{});", names.port[static_cast<std::size_t>(p)]);
    out.close("}");
  }
  out.line("template <int width>");
  print_function(out,
                 fmt::format("void element(const Args& args, const Coord& c, int e, "
                             "Place<width>& place, Reductions& reductions{}) const",
                             columns ? ", ColumnReductions& columns" : ""),
                 element, print);
  print_moves(out, names, flush, "const ", packed_ports(body, live, StatementKind::store), "flush");
  print_function(out, "void store_row(const Args& args, const Coord& c) const", row_stores, print);
  out.close("};");
}

std::string rows_type(const KernelSpec& spec, const KernelNames& names) {
  const GroupedRows& r = spec.rows;
  const auto port = [](int i) { return static_cast<std::size_t>(i); };
  const int index = r.index >= 0 ? r.index : r.offsets;  // not read without an index
  return fmt::format("sinter::GroupedRows<sinter::MoeMode::{}, Config::{}, Config::{}, {}, {}>",
                     name(r.mode), names.access[port(r.offsets)], names.access[port(index)],
                     storage_type(spec.ports[port(r.offsets)].type),
                     storage_type(spec.ports[port(index)].type));
}

// The call of the family's template.
std::string call(const KernelSpec& spec, const KernelNames& names, const Schedule& schedule) {
  switch (spec.family) {
    case Family::pointwise:
      if (schedule.tiling.on) return "sinter::tiled::run<Config, Body, Staged>(args);";
      return "sinter::pointwise::run<Config, Body>(args);";
    case Family::rowwise:
      return fmt::format(
          "sinter::rowwise::run<Config, Place<Config::width>, RowPlace, Reductions{}>(Phases{{}}, "
          "args);",
          spec.columns.empty() ? "" : ", Columns");
    default:
      break;
  }
  if (schedule.tensor_cores)
    return fmt::format(
        "sinter::contraction::run_on_tensor_cores<Config, OperandA, OperandB, {}, Body>(args);",
        spec.two_products() ? "OperandB2" : "OperandB");
  std::string rows = "sinter::AllRows{}";
  if (spec.rows.on) {
    const std::string offsets = "args." + names.port[static_cast<std::size_t>(spec.rows.offsets)];
    const std::string index = spec.rows.index >= 0
                                  ? "args." + names.port[static_cast<std::size_t>(spec.rows.index)]
                                  : offsets;
    rows = fmt::format("Rows{{{}, {}}}", offsets, index);
  }
  if (schedule.mma)
    return fmt::format(
        "sinter::contraction::run_by_warps<Config, OperandA, OperandB, Body>(args, {});", rows);
  return fmt::format(
      "sinter::contraction::run<Config>(OperandA{{args}}, OperandB{{args}}, Body{{args}}, {});",
      rows);
}

// At most four words on what the kernel does, from its body.
std::string entry_stem(const KernelSpec& spec) {
  std::vector<std::string> words;
  const auto add = [&words](std::string_view word) {
    if (words.size() < 4 && std::find(words.begin(), words.end(), word) == words.end())
      words.emplace_back(word);
  };
  if (spec.family == Family::contraction) add(spec.rows.on ? "grouped_contraction" : "contraction");
  for (const auto& r : spec.reductions) add(fmt::format("reduce_{}", name(r.mode)));
  for (const auto& s : spec.body.statements) {
    if (s.kind == StatementKind::pointwise) add(name(s.mode));
    if (s.kind == StatementKind::random) add("rng");
    if (s.kind == StatementKind::gather)
      add(name(spec.gathers[static_cast<std::size_t>(s.gather)].op));
  }
  if (words.empty()) words.emplace_back("copy");
  return fmt::format("sinter_{}", fmt::join(words, "_"));
}

void use_tensor_cores(const TensorCores& e, Schedule& s) {
  s.tensor_cores = e;
  s.threads = e.threads;
  s.grid = e.grid;
  s.packing = e.packing;
  s.unroll = e.unroll;
}

void use_mma(const Mma& e, Schedule& s) {
  s.mma = e;
  s.threads = e.threads();
  s.grid = static_cast<std::uint32_t>(std::clamp(e.tiles, 1.0, 0x1p31 - 1));
  s.packing = e.packing;
  s.unroll = e.unroll;
  s.least_blocks = e.blocks;
}

std::string_view cluster_of(const Schedule& s) {
  if (s.blocks_per_row > 1) return " SINTER_CLUSTER(Config::blocks_per_row)";
  if (s.tensor_cores && cluster_blocks(s.tensor_cores->tile) > 1)
    return " SINTER_CLUSTER(Config::cluster_m * Config::cluster_n * Config::split)";
  return "";
}

}  // namespace

EmittedKernel emit_kernel(const KernelSpec& given, std::string_view architecture,
                          const Tuning& tuning) {
  std::optional<TensorCorePlan> engine;
  if (architecture == "sm_90a") engine = plan_tensor_cores(given, tuning);
  std::optional<MmaPlan> mma;
  if (!engine) mma = plan_mma(given);
  const KernelSpec& spec = engine ? engine->spec : mma ? mma->spec : given;
  const KernelNames names(spec);
  Schedule schedule = choose_schedule(spec, architecture);
  if (engine) use_tensor_cores(engine->engine, schedule);
  if (mma) use_mma(mma->engine, schedule);
  const bool packs = spec.family != Family::contraction || schedule.tensor_cores || schedule.mma;
  const BodyText body(spec, names, spec.body, packs ? &schedule.packing : nullptr),
      a(spec, names, spec.a, schedule.mma ? &schedule.mma->a.packing : nullptr),
      b(spec, names, spec.b, schedule.mma ? &schedule.mma->b.packing : nullptr);

  TextWriter out;
  out.line("// {}: {}. Generated by sinter.", name(spec.family),
           family_text(spec.family, schedule).what);
  print_includes(out, spec, schedule);
  out.blank();
  print_config(out, spec, names, schedule, {&body, &a, &b});
  out.line("using Coord = sinter::Coordinates<Config::Index, Config::Extent>;");
  out.blank();
  print_args(out, spec, names, schedule);
  out.blank();
  switch (spec.family) {
    case Family::pointwise:
      print_place(out, spec, names, schedule);
      if (schedule.tiling.on) print_tiles(out, spec, names, schedule);
      print_pointwise(out, names, body);
      break;
    case Family::rowwise: {
      print_reductions(out, spec, names);
      print_place(out, spec, names, schedule);
      print_row_place(out, spec, names, body);
      std::string phases;
      std::set<int> fetched;
      for (int p = 0; p < spec.phases; ++p) {
        print_phase(out, names, body, schedule, p, !spec.columns.empty(), fetched);
        phases += fmt::format("{}Phase{}", p ? ", " : "", p);
      }
      out.line("using Phases = sinter::List<{}>;", phases);
      if (!spec.columns.empty()) print_column_stores(out, spec, names);
      break;
    }
    case Family::contraction:
      if (schedule.tensor_cores) {
        print_place(out, spec, names, schedule);
        print_boxed_operand(out, schedule.tensor_cores->a, "OperandA", "map_a");
        print_boxed_operand(out, schedule.tensor_cores->b, "OperandB", "map_b");
        if (const auto& b2 = schedule.tensor_cores->b2)
          print_boxed_operand(out, *b2, "OperandB2", "map_b2");
        print_packed_epilogue(out, spec, names, body, &*schedule.tensor_cores);
        break;
      }
      if (spec.rows.on) out.line("using Rows = {};", rows_type(spec, names));
      if (schedule.mma) {
        print_place(out, spec, names, schedule);
        print_mma_operand(out, spec, names, a, schedule.mma->a, "OperandA");
        print_mma_operand(out, spec, names, b, schedule.mma->b, "OperandB");
        print_packed_epilogue(out, spec, names, body, nullptr);
        break;
      }
      print_operand(out, a, "OperandA");
      print_operand(out, b, "OperandB");
      print_epilogue(out, body);
      break;
  }
  out.blank();

  EmittedKernel kernel;
  if (engine) kernel.choice = engine->choice;
  // The digest stands for the whole text, so that a profiler's line leads to one kernel.
  const std::string tail = call(spec, names, schedule);
  const std::string digested = out.text() + tail;
  kernel.entry =
      fmt::format("{}_{:08x}", entry_stem(spec),
                  static_cast<std::uint32_t>(XXH3_64bits(digested.data(), digested.size()) >> 32));
  const std::string blocks = schedule.tensor_cores ? ", 1"
                             : schedule.least_blocks > 1
                                 ? fmt::format(", {}", schedule.least_blocks)
                                 : "";
  out.line("extern \"C\" __global__ __launch_bounds__(Config::threads{}){}", blocks,
           cluster_of(schedule));
  out.open("void {}(const __grid_constant__ Args args) {{", kernel.entry);
  out.line("{}", tail);
  out.close("}");

  kernel.source = out.text();
  kernel.grid = schedule.grid;
  kernel.shared_bytes = static_cast<std::uint32_t>(schedule.ring * schedule.slot_bytes);
  if (schedule.tensor_cores) kernel.shared_bytes = schedule.tensor_cores->shared_bytes;
  if (schedule.mma) kernel.shared_bytes = schedule.mma->shared_bytes;
  kernel.block = static_cast<std::uint32_t>(schedule.threads);
  for (const auto& c : config_constants(spec, schedule))
    kernel.config.emplace_back(c.name, c.value);
  if (mma) {  // for explain
    const MmaOperand &left = mma->engine.a, &right = mma->engine.b;
    kernel.config.emplace_back("a_copied", left.copied);
    kernel.config.emplace_back("a_width", left.packing.width);
    kernel.config.emplace_back("b_copied", right.copied);
    kernel.config.emplace_back("b_width", right.packing.width);
  }
  if (const auto& e = schedule.tensor_cores) {
    const auto add_map = [&](const BoxedOperand& o) {
      kernel.arguments.push_back({.index = o.port, .map = o.map});
    };
    add_map(e->a);
    add_map(e->b);
    if (e->b2) add_map(*e->b2);
  }
  for (auto& a : kernel_arguments(spec, names)) kernel.arguments.push_back(std::move(a));
  return kernel;
}

}  // namespace sinter
