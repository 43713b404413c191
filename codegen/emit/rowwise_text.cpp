// The text of rowwise kernels: reductions, and a struct for each phase.
#include <algorithm>
#include <map>
#include <set>

#include "emit/engine_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "plan/access.hpp"
#include "schedule/rowwise/phases.hpp"

namespace sinter {
namespace {

// `finished`: here; else the kernel behind this one divides an average by its length. `kept`: the
// type in which running results stay, if that is another one.
template <class Reduction>
void print_reduction(TextWriter& out, const Reduction& r, const std::string& name, int phase,
                     bool finished, std::string_view kept = "") {
  out.open("struct {} {{", name);
  out.line("static constexpr auto mode = sinter::ReductionMode::{};", sinter::name(r.mode));
  out.line("using Value = {};", value_type(r.arithmetic));
  if (!kept.empty()) out.line("using Kept = {};", kept);
  out.line("static constexpr int phase = {};", phase);
  if (finished) out.line("static constexpr long long length = {};", r.length);
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

void print_reductions(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                      const BodyText& body) {
  const auto& reductions = spec.rowwise().reductions;
  for (std::size_t i = 0; i < reductions.size(); ++i)
    print_reduction(out, reductions[i], names.reduction[i], reductions[i].phase, true,
                    body.compares_integers(static_cast<int>(i)) ? "int" : "");
  out.line("using Reductions = sinter::Reductions<{}>;",
           fmt::join(names.reduction.begin(), names.reduction.end(), ", "));
  for (std::size_t i = 0; i < spec.cross_row_reductions.size(); ++i)
    print_reduction(out, spec.cross_row_reductions[i], names.cross_row[i], 0, false);
  if (!spec.cross_row_reductions.empty())
    out.line("using CrossRowReductions = sinter::Reductions<{}>;",
             fmt::join(names.cross_row.begin(), names.cross_row.end(), ", "));
}

// What a block writes for neighbouring columns: its partial results, `slot` rows of them further.
void print_column_stores(TextWriter& out, const KernelSpec& spec, const KernelNames& names) {
  out.open("struct CrossRow : CrossRowReductions {{");
  out.line("template <int width>");
  out.open(
      "SINTER_DEVICE static void store(const Args& args, const Coord& c, long long slot, "
      "const CrossRow* columns) {{");
  for (std::size_t i = 0; i < spec.cross_row_reductions.size(); ++i) {
    const auto port = static_cast<std::size_t>(spec.cross_row_reductions[i].port);
    const std::int64_t row = count(spec.extent, spec.rowwise().outer_rank, spec.extent.size());
    out.line("sinter::store_partials<Config::{}, {}, width>(args.{} + slot * {}, c, columns);",
             names.access[port], names.cross_row[i], names.port[port], row);
  }
  out.close("}");
  out.close("};");
}

// What a thread holds of a row as a whole.
void print_row_fragment(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                        const RowwiseConfig& schedule, const BodyText& body) {
  std::set<std::size_t> ports;
  for (int i = 0; i < body.size(); ++i)
    if (body.of_row(i)) ports.insert(static_cast<std::size_t>(body.statement(i).port));
  const std::string_view fetch = "SINTER_DEVICE void fetch(const Args& args, const Coord& c)";
  if (ports.empty()) return out.line("struct RowFragment {{ {} {{}} }};", fetch);
  out.open("struct RowFragment {{");
  for (std::size_t p : ports)
    out.line("sinter::Same<{}> {};", storage_type(spec.ports[p].type), names.port[p]);
  out.open("{} {{", fetch);
  for (std::size_t p : ports)
    out.line("sinter::fetch<Config::{}>(args.{}, c, {});", names.access[p], names.port[p],
             names.port[p]);
  out.close("}");
  if (schedule.by_lanes) {
    std::vector<std::string> values;
    for (std::size_t p : ports)
      values.push_back(fmt::format("sinter::of_lane({}, lane)", names.port[p]));
    out.line("SINTER_DEVICE RowFragment of_lane(int lane) const {{ return {{{}}}; }}",
             fmt::join(values, ", "));
  }
  out.close("};");
}

// What the phases before have put into a vector: ports, statements that draw numbers, and those
// whose values are kept.
struct Known {
  std::set<int> fetched, drawn, kept;
  // Statements' lines: what several phases compute they all have. (A chain of norms has as many
  // phases as reductions, and its printing took a third of its planning.)
  std::map<int, std::string> values, assignments;
};

template <class Print>
void print_once(TextWriter& out, std::map<int, std::string>& lines, int i, const Print& print) {
  const auto [line, made] = lines.try_emplace(i);
  if (made) {
    TextWriter own;
    print(own);
    line->second = std::move(own).text();
  }
  if (!line->second.empty()) out.take(line->second);
}

// Everything that a phase's stores and reduces need. Values of the row become members, where the
// elements and the stores of the row find them. `cross_row`: values are reduced down columns, too.
void print_phase(TextWriter& out, const KernelNames& names, const BodyText& body,
                 const RowwiseConfig& schedule, int number, const PhaseStatements& phase,
                 bool cross_row, Known& known) {
  const Packing& packing = schedule.packing;
  const std::vector<bool>& live = phase.live;
  std::set<int> members, divisors;
  const auto add_members = [&](const std::vector<int>& statements, bool of_segment) {
    for (int i : statements)
      for (int a : body.statement(i).args)
        if (body.statement(a).per_row || (!of_segment && body.of_segment(a))) members.insert(a);
  };
  add_members(phase.of_segment, true);
  add_members(phase.of_element, false);
  add_members(phase.row_stores, false);
  for (int i = 0; i < body.size(); ++i)
    if (const int d = body.divisor(i); d >= 0 && live[static_cast<std::size_t>(i)])
      divisors.insert(d);
  std::set<int> first, weights, again;
  for (int p : packed_ports(body, live, StatementKind::load)) {
    const PortPack& pack = packing.ports[static_cast<std::size_t>(p)];
    (known.fetched.count(p) ? again : pack.weight || pack.late ? weights : first).insert(p);
    known.fetched.insert(p);
  }
  std::vector<int> drawn, drawn_again;
  for (int i : drawn_numbers(body, live))
    (known.drawn.insert(i).second ? drawn : drawn_again).push_back(i);

  out.open("struct Phase{} {{", number);
  out.line("static constexpr int number = {};", number);
  out.line("static constexpr bool has_elements = {};", !phase.of_element.empty());
  for (int i : members)
    out.line("{} {} = 0;", value_type(body.statement(i).arithmetic), body.name(i));
  for (int i : divisors) out.line("{} {};", body.divisor_type(i), body.divisor_name(i));
  const auto print_value = [&](int i) {
    if (members.count(i))
      print_once(out, known.assignments, i, [&](auto& own) { body.print_assignment(own, i); });
    else
      print_once(out, known.values, i, [&](auto& own) { body.print(own, i); });
    if (divisors.count(i)) out.line("{} = {};", body.divisor_name(i), body.name(i));
  };
  print_function(out,
                 "void row(const Args& args, const Coord& c, const RowFragment& of_row, "
                 "const Reductions& reductions)",
                 phase.of_row, print_value);
  if (!phase.of_segment.empty())
    print_function(out,
                   "void segment(const Args& args, const Coord& c, const Reductions& reductions)",
                   phase.of_segment, print_value);
  const auto print = [&](int i) {
    const bool keeps = std::ranges::find(schedule.kept, i) != schedule.kept.end();
    if (known.kept.contains(i)) {
      body.print_kept(out, i);
    } else {
      print_once(out, known.values, i, [&](auto& own) { body.print(own, i); });
      if (keeps) out.line("{} = {};", body.kept(i), body.name(i));
    }
    if (keeps) known.kept.insert(i);
  };
  if (schedule.early > 0) {
    std::set<int> early = first;
    std::erase_if(early, [&](int p) { return !packing.ports[static_cast<std::size_t>(p)].early; });
    print_prefetch(out, names, body, early);
  }
  print_moves(out, names, body, "fetch", "", first, "fetch");
  print_moves(out, names, body, "fetch", "", weights, "fetch_weights");
  print_moves(out, names, body, "fetch", "", again, "refetch");
  print_draws(out, body, drawn, drawn_again);
  if (schedule.aligned_by >= 0) {
    out.line("static constexpr bool anywhere = {};", phase.anywhere);
    std::set<int> fetched = first;
    fetched.insert(weights.begin(), weights.end());
    print_cut(out, names, packing, fetched, "cut");
    print_cut(out, names, packing, again, "cut_again");
  }
  out.line("template <int width>");
  std::vector<std::string> recomputed;
  for (int p : again) recomputed.push_back(names.port[static_cast<std::size_t>(p)]);
  for (int i : drawn_again)
    if (body.statement(i).rng.distribution == Distribution::bernoulli)
      recomputed.push_back("random." + body.name(i));
  if (recomputed.empty()) {
    out.line("SINTER_DEVICE static void recompute(Fragment<width>& fragment) {{}}");
  } else {
    out.open("SINTER_DEVICE static void recompute(Fragment<width>& fragment) {{");
    for (const auto& name : recomputed) out.line("sinter::recompute(fragment.{});", name);
    out.close("}");
  }
  out.line("template <int width>");
  print_function(out,
                 fmt::format("void element(const Args& args, const Coord& c, int e, "
                             "Fragment<width>& fragment, Reductions& reductions{}) const",
                             cross_row ? ", CrossRowReductions& cross_row" : ""),
                 phase.of_element, print);
  print_moves(out, names, body, "flush", "const ", packed_ports(body, live, StatementKind::store),
              "flush");
  print_function(out, "void store_row(const Args& args, const Coord& c) const", phase.row_stores,
                 print);
  if (phase.stores_rows) {
    out.line("static constexpr bool stores_rows = true;");
    out.line("template <class Phase, int rows>");
    out.open(
        "SINTER_DEVICE static void store_rows(const Args& args, const Coord& c, "
        "const Phase (&phase)[rows]) {{");
    for (int i : phase.row_stores) {
      const auto port = static_cast<std::size_t>(body.statement(i).port);
      out.line("sinter::store_rows<Config::{}, {}, &Phase::{}>(args.{}, c, phase);",
               names.access[port], schedule.row_aligned[port], body.name(body.statement(i).args[0]),
               names.port[port]);
    }
    out.close("}");
  }
  out.close("};");
}

class RowwiseText : public EngineText {
 public:
  RowwiseText(const ScheduledKernel& kernel, const KernelNames& names)
      : EngineText(kernel, names), e_(*kernel.rowwise()) {}

  std::string header() const override { return "rowwise"; }
  std::string_view summary() const override { return "rows with reductions along them"; }
  std::vector<std::string> words() const override {
    std::vector<std::string> words;
    for (const auto& r : spec_.rowwise().reductions)
      words.push_back(fmt::format("reduce_{}", name(r.mode)));
    return words;
  }
  std::string_view coordinates() const override {
    return e_.rows_fastest && e_.aligned_by >= 0 ? "Cut" : "";
  }
  void print_structs(TextWriter& out) const override {
    print_reductions(out, spec_, names_, body_);
    print_fragment(out, kernel_, names_, body_);
    print_row_fragment(out, spec_, names_, e_, body_);
    std::string phases;
    Known known;
    const auto statements = phase_statements(body_, e_, spec_.rowwise().phases);
    for (int p = 0; p < spec_.rowwise().phases; ++p) {
      print_phase(out, names_, body_, e_, p, statements[static_cast<std::size_t>(p)],
                  !spec_.cross_row_reductions.empty(), known);
      phases += fmt::format("{}Phase{}", p ? ", " : "", p);
    }
    out.line("using Phases = sinter::List<{}>;", phases);
    if (!spec_.cross_row_reductions.empty()) print_column_stores(out, spec_, names_);
  }
  std::string call() const override {
    std::string text;
    if (!e_.staged.empty()) {
      text = "Args staged = args;\n  ";
      for (std::size_t i = 0; i < e_.staged.size(); ++i) {
        const auto port = static_cast<std::size_t>(e_.staged[i]);
        text += fmt::format("staged.{} = sinter::rowwise::bring_rows<Config, {}>(args.{});\n  ",
                            names_.port[port], i, names_.port[port]);
      }
      text += "sinter::rowwise::rows_have_come();\n  ";
    }
    text += fmt::format(
        "sinter::rowwise::RowsOf<Config, Args, Fragment<Config::width>, RowFragment, Reductions{}> "
        "rows({});\n  sinter::rowwise::start<Config>(Phases{{}}, rows);",
        spec_.cross_row_reductions.empty() ? "" : ", CrossRow",
        e_.staged.empty() ? "args" : "staged");
    const RowwiseSpec& r = spec_.rowwise();
    if (r.num_partials > 0 || e_.persistent_ctas > 0) return text + "\n  rows.walk(Phases{});";
    const int alone =
        r.segment > 0 ? r.phases - 2 : r.phases;  // a segment has the last two at once
    for (int p = 0; p < alone; ++p) text += fmt::format("\n  rows.run_phase<Phase{}>();", p);
    if (r.segment > 0)
      text += fmt::format("\n  rows.run_segments<Phase{}, Phase{}>();", alone, alone + 1);
    return text;
  }
  std::string_view cluster() const override {
    return e_.blocks_per_row > 1 ? " SINTER_CLUSTER(Config::blocks_per_row)" : "";
  }

 private:
  const RowwiseConfig& e_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const RowwiseConfig& s, ConfigConstants& c) {
  const RowwiseSpec& rows = spec.rowwise();
  const std::int64_t ctas = s.persistent_ctas > 0 ? s.persistent_ctas : rows.num_partials;
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
                     {"num_partials", ctas}});
  if (!s.staged.empty()) c.push_back({"staged_rows", 1, true});
  if (s.held_vectors > 0) c.push_back({"held_vectors", s.held_vectors});
  if (rows.group > 1) c.push_back({"group", rows.group});
  if (rows.segment > 0) c.push_back({"segment", rows.segment});
  if (ctas == 0 && s.pipeline_stages > 0)
    c.insert(c.end(), {{"held_in_shared", 1, true},
                       {"pipeline_stages", s.pipeline_stages},
                       {"stage_bytes", s.stage_bytes}});
  if (ctas > 0)
    c.insert(c.end(), {{"pipeline_stages", s.pipeline_stages},
                       {"in_flight", s.in_flight},
                       {"stage_bytes", s.stage_bytes}});
  if (rows.num_partials > 0) c.push_back({"kinds", column_kinds(spec)});
  if (ctas > 0) c.push_back({"by_lanes", s.by_lanes, true});
  if (ctas == 0 && spec.from_end) c.push_back({"from_end", 1, true});
}

EngineTextPtr engine_text(const RowwiseConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<RowwiseText>(kernel, names);
}

}  // namespace sinter
