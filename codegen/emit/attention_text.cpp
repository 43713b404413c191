#include "emit/attention_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/config_text.hpp"
#include "emit/contraction_text.hpp"
#include "emit/element_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/mask_text.hpp"
#include "emit/spelling.hpp"
#include "emit/tensor_cores_text.hpp"
#include "plan/liveness.hpp"
#include "schedule/attention/forward_parts.hpp"

namespace sinter {
namespace {

constexpr std::string_view kScores = "FirstCoord";

// An operand of one of the kernel's products.
struct PrintedOperand {
  const BoxedOperand& box;
  const KernelSpec& product;
  const Body& body;
  std::string_view config, coordinates;  // of the product
  std::int64_t group = 1;
};

// Loads of whole pages: PagedRows' Operand.
void print_pages(TextWriter& out, const PrintedOperand& o, const KernelNames& names,
                 std::string_view load, std::string_view map) {
  const Gather& g = o.product.gathers[static_cast<std::size_t>(o.box.gather)];
  out.open("struct {} {{", load);
  out.line("using Number = sinter::{};", name(o.box.map.type));
  out.line("static constexpr bool k_fastest = {};", o.box.k_fastest);
  out.line("static constexpr int page_rows = {};", o.box.page);
  out.line(
      "SINTER_DEVICE static void prefetch(const Args& args) {{ sinter::hopper::prefetch(args.{}); "
      "}}",
      map);
  out.line("template <class At>");
  out.open("SINTER_DEVICE static int page(const At& at, int number) {{");
  out.line("return static_cast<int>(sinter::block_of_page<{}::{}>(at.args.{}, at.c, number));",
           o.config, names.gather[static_cast<std::size_t>(o.box.gather)],
           names.port[static_cast<std::size_t>(g.ports[1])]);
  out.close("}");
  out.line("template <class At>");
  out.line(
      "SINTER_DEVICE static void load(const At& at, int page, int row, int column, unsigned to,");
  out.open("                               unsigned barrier) {{");
  out.line(
      "sinter::hopper::load_box(at.args.{}, to, barrier, 0, column, row, "
      "static_cast<int>(at.c.at[{}]){}, page);",
      map, static_cast<int>(AttentionSpec::head), o.group > 1 ? fmt::format(" / {}", o.group) : "");
  out.close("}");
  out.close("};");
}

// By warps: where a row of the operand lies.
void print_copied(TextWriter& out, const PrintedOperand& o, const KernelNames& names) {
  out.line("using Number = sinter::{};",
           o.box.map.type == DataType::f32 ? "attention::SplitF32" : name(o.box.map.type));
  out.line("static constexpr bool k_fastest = {};", o.box.k_fastest);
  if (o.box.source != BoxedOperand::Source::pages)
    return print_line(out, {o.product, names, o.config, o.coordinates}, o.box.port, o.group);
  const auto gather = static_cast<std::size_t>(o.box.gather),
             port = static_cast<std::size_t>(o.box.port);
  out.line("using Pages = {}::{};", o.config, names.gather[gather]);
  out.line("static constexpr int page = {};", o.box.page);
  out.open("SINTER_DEVICE static const {}* line(const Args& args, {} c) {{",
           storage_type(o.product.ports[port].type), o.coordinates);
  if (o.group > 1) out.line("c.at[{}] /= {};", static_cast<int>(AttentionSpec::head), o.group);
  out.line("return sinter::page_line<{}::{}>(args.{}, args.{}, c);", o.config, names.gather[gather],
           names.port[port],
           names.port[static_cast<std::size_t>(o.product.gathers[gather].ports[1])]);
  out.close("}");
}

// What the kernel loads, and single elements.
void print_operand(TextWriter& out, const PrintedOperand& o, const KernelNames& names, char which,
                   bool by_warps) {
  const std::string load = fmt::format("Load{}", which),
                    map = fmt::format("map_{}", static_cast<char>(which - 'A' + 'a'));
  const bool pages = o.box.source == BoxedOperand::Source::pages;
  if (by_warps) {
    out.open("struct Operand{} {{", which);
    print_copied(out, o, names);
  } else {
    if (pages)
      print_pages(out, o, names, load, map);
    else
      print_boxed_operand(out, o.box, load, map, kScores, {AttentionSpec::head, o.group});
    out.open("struct Operand{} : {} {{", which, load);
  }
  if (pages && o.config != "Config") out.line("using Config = {};", o.config);
  out.open("SINTER_DEVICE static float element(const Args& args, {} c) {{", o.coordinates);
  if (o.group > 1) out.line("c.at[{}] /= {};", static_cast<int>(AttentionSpec::head), o.group);
  if (pages) {
    const BodyText text(o.product, names, o.body, nullptr);
    const int last = text.size() - 1;
    print_statements(out, text, live_statements(text.body(), {last}));
    out.line("return {};", text.name(last));
  } else {
    const auto port = static_cast<std::size_t>(o.box.port);
    out.line("return sinter::load<{}::{}, float>(args.{}, c);", o.config, names.access[port],
             names.port[port]);
  }
  out.close("}");
  out.close("};");
}

// The indices of a head's rows and keys. Heads of a group may be rows, too.
std::vector<int> rows_and_keys(const KernelSpec& scores) {
  using A = AttentionSpec;
  std::vector<int> dims{A::query, scores.contraction().first_n()};
  if (scores.extent[A::member] > 1) dims.push_back(A::member);
  return dims;
}

// Number `i` of what a score reads beside its sum: where that of neighbouring keys lies, or a box.
void print_load_beside(TextWriter& out, const AttentionConfig& e, std::size_t i,
                       const KernelNames& names) {
  const KernelSpec& scores = e.scores;
  const LoadBeside& load = e.loads_beside[i];
  const auto p = static_cast<std::size_t>(
      scores.body.statements[static_cast<std::size_t>(load.statement)].port);
  out.open("struct Beside{} {{", i);
  out.line("using Number = {};", storage_type(scores.ports[p].type));
  out.line("static constexpr bool same_rows = {};", load.same_rows);
  if (load.box) {
    print_box_load(out, *load.box, fmt::format("map_beside_{}", i), kScores);
    return out.close("};");
  }
  out.open("SINTER_DEVICE static const Number* at(const Args& args, const FirstCoord& c) {{");
  out.line("return args.{} + sinter::locate<Config::{}>(c).offset;", names.port[p],
           names.access[p]);
  out.close("}");
  out.close("};");
}

// struct NAME { plain, or element(args, c, of_head, acc) }.
void print_element(TextWriter& out, const AttentionConfig& e, const Body& body,
                   const KernelNames& names, std::string_view name) {
  out.open("struct {} {{", name);
  out.line("static constexpr bool plain = {};", body.statements.empty());
  if (name == "Score")
    out.line("static constexpr float scale = {};", literal(e.attention.scale, DataType::f32));
  if (name == "Score" && e.scales_heads) out.line("static constexpr bool scales_heads = true;");
  if (!body.statements.empty()) out.line("using Config = First;");
  std::vector<int> beside;
  if (name == "Score")
    for (const LoadBeside& load : e.loads_beside) beside.push_back(load.statement);
  print_element_functions(out, e.scores, names,
                          {{body, "element", "float acc", name == "Weight", beside}}, "FirstCoord",
                          rows_and_keys(e.scores));
  std::string structs;
  for (std::size_t i = 0; i < beside.size(); ++i) {
    print_load_beside(out, e, i, names);
    structs += fmt::format("{}Beside{}", i > 0 ? ", " : "", i);
  }
  if (!beside.empty()) out.line("using Beside = sinter::List<{}>;", structs);
  out.close("};");
}

int bound(const std::optional<std::int64_t>& x) {
  constexpr std::int64_t kMost = 1 << 30;  // as good as none
  return static_cast<int>(std::clamp(x.value_or(0), -kMost, kMost));
}

void print_length(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                  std::string_view config, int port, std::string_view function,
                  std::int64_t otherwise) {
  out.line("template <class Coord>");
  out.open("SINTER_DEVICE static long long {}(const Args& args, const Coord& c) {{", function);
  if (port >= 0) {
    const auto p = static_cast<std::size_t>(port);
    out.line(
        "return static_cast<long long>(sinter::Format<{}>::fetch(args.{} + "
        "sinter::locate<{}::{}>(c).offset));",
        storage_type(spec.ports[p].type), names.port[p], config, names.access[p]);
  } else {
    out.line("return {};", otherwise);
  }
  out.close("}");
}

// Number i of the offsets of packed sequences.
void print_offset(TextWriter& out, const KernelSpec& spec, const KernelNames& names, int port,
                  std::string_view function) {
  const auto p = static_cast<std::size_t>(port);
  const std::int64_t first = spec.ports[p].access.offset;
  out.open("SINTER_DEVICE static long long {}(const Args& args, int i) {{", function);
  out.line("return static_cast<long long>(sinter::Format<{}>::fetch(args.{} + {}i));",
           storage_type(spec.ports[p].type), names.port[p],
           first > 0 ? fmt::format("{} + ", first) : "");
  out.close("}");
}

}  // namespace

void print_line(TextWriter& out, const LinesOf& of, int number, std::int64_t group) {
  const auto port = static_cast<std::size_t>(number);
  const KernelPort& p = of.spec.ports[port];
  out.open("SINTER_DEVICE static {}{}* line(const Args& args, {} c) {{", p.written ? "" : "const ",
           storage_type(p.type), of.coordinates);
  if (group > 1) out.line("c.at[{}] /= {};", static_cast<int>(AttentionSpec::head), group);
  out.line("return args.{} + sinter::locate<{}::{}>(c).offset;", of.names.port[port], of.config,
           of.names.access[port]);
  out.close("}");
}

void print_bounds(TextWriter& out, const AttentionBand& band, const PackedSequences& sequences,
                  int length_q, int length_kv, const KernelSpec& spec, const KernelNames& names,
                  std::string_view config, RowsAndKeys whole) {
  const bool lengths = length_q >= 0 || length_kv >= 0;
  out.open("struct Bounds {{");
  out.line("static constexpr bool has_left = {}, has_right = {}, bottom_right = {};",
           band.left || band.chunk, band.right || band.chunk, band.bottom_right);
  if (band.chunk) out.line("static constexpr int chunk = {};", *band.chunk);
  out.line("static constexpr bool has_lengths = {}, padding = {}, packed = {};", lengths,
           band.padding, whole.packed);
  out.line("static constexpr int left = {}, right = {};", bound(band.left ? band.left : band.chunk),
           bound(band.right ? band.right : band.chunk));
  if (band.hidden)
    out.line("static constexpr float hidden = {};", literal(*band.hidden, DataType::f32));
  if (lengths) {
    print_length(out, spec, names, config, length_q, "queries", whole.rows);
    print_length(out, spec, names, config, length_kv, "keys", whole.keys);
  }
  if (sequences.count > 0) {
    out.line("static constexpr int sequences = {};", sequences.count);
    print_offset(out, spec, names, sequences.offsets_q, "offset_q");
    print_offset(out, spec, names, sequences.offsets_kv, "offset_kv");
  }
  out.close("};");
}

namespace {

// `First`: what of the scores' product is known when the kernel is compiled.
void print_scores_config(TextWriter& out, const AttentionConfig& e, const KernelNames& names) {
  const BodyText score(e.scores, names, e.scores.body, nullptr),
      weight(e.scores, names, e.weight, nullptr), mask(e.scores, names, e.mask, nullptr);
  print_product_config(out, e.scores, e.wide_index, names, {&score, &weight, &mask});
}

// Operands, bounds, score, weight and what a row reads and writes.
void print_attention(TextWriter& out, const KernelSpec& outputs, const AttentionConfig& e,
                     const KernelNames& names) {
  const AttentionSpec& a = e.attention;
  const ContractionSpec &first = e.scores.contraction(), &second = outputs.contraction();
  print_operand(out, {e.q, e.scores, first.a().body, "First", kScores}, names, 'Q', e.by_warps);
  print_operand(out, {e.k, e.scores, first.b().body, "First", kScores, a.group}, names, 'K',
                e.by_warps);
  print_operand(out, {e.v, outputs, second.b().body, "Config", "Coord", a.group}, names, 'V',
                e.by_warps);
  print_bounds(out, a.band, a.sequences, a.length_q, a.length_kv, e.scores, names, "First",
               {e.scores.extent[AttentionSpec::query], e.scores.extent[AttentionSpec::query + 1],
                e.scores.extent[AttentionSpec::member] > 1});
  const bool masks = !e.mask.statements.empty();
  if (masks) {
    out.open("struct Mask : Bounds {{");
    print_mask(out, {e.scores, names, e.mask, "First", kScores, AttentionSpec::query,
                     e.scores.contraction().first_n()});
    out.close("};");
  }
  if (a.tiles_taken >= 0) {
    out.open("struct CountedTiles : {} {{", masks ? "Mask" : "Bounds");
    out.line("static constexpr bool counts_tiles = true;");
    out.line("SINTER_DEVICE static int* tiles_taken(const Args& args) {{ return args.{}; }}",
             names.port[static_cast<std::size_t>(a.tiles_taken)]);
    out.close("};");
  }
  if (a.parts >= 0) {
    out.open("struct SharedKeys : Bounds {{");
    out.line("static constexpr bool shares_keys = true;");
    out.line("static constexpr int part_rows = {};", e.part_rows);
    out.line("SINTER_DEVICE static float* parts(const Args& args) {{ return args.{}; }}",
             names.port[static_cast<std::size_t>(a.parts)]);
    out.close("};");
  }
  print_element(out, e, e.scores.body, names, "Score");
  print_element(out, e, unrounded(e.weight), names, "Weight");
  out.open("struct Rows {{");
  out.line("static constexpr bool has_sink = {}, has_stats = {};", a.has_sink(), a.stats >= 0);
  out.line("static constexpr bool written_out = {}, zero_dominates = {};", a.written_out,
           a.zero_dominates);
  if (a.adds_stats) out.line("static constexpr bool adds_stats = true;");
  if (a.has_sink()) {
    const auto p = static_cast<std::size_t>(std::max(a.sink, 0));
    out.open("SINTER_DEVICE static float sink(const Args& args, const FirstCoord& c) {{");
    if (a.sink_value)
      out.line("return {};", literal(*a.sink_value, DataType::f32));
    else
      out.line("return sinter::load<First::{}, float>(args.{}, c);", names.access[p],
               names.port[p]);
    out.close("}");
  }
  const auto print_store = [&](int port, std::string_view value) {
    const auto p = static_cast<std::size_t>(port);
    out.line("sinter::store<First::{}>(args.{}, c, {});", names.access[p], names.port[p], value);
  };
  if (a.stats >= 0) {
    out.open("SINTER_DEVICE static void stats(const Args& args, const FirstCoord& c, float x) {{");
    print_store(a.stats, "x");
    out.close("}");
  }
  if (a.totals()) {
    out.line("static constexpr bool stores_totals = true;");
    out.open(
        "SINTER_DEVICE static void totals(const Args& args, const FirstCoord& c, float largest, "
        "float total) {{");
    print_store(a.largest, "largest");
    print_store(a.total, "total");
    out.close("}");
  }
  out.close("};");
  if (!e.result) return;
  out.open("struct Body {{");
  if (info(e.q.map.type).bytes == 1)
    out.line("using Number = sinter::{};", name(e.result->map.type));
  if (const auto& statements = outputs.body.statements; statements.size() > 2) {
    Body scaled = outputs.body;
    scaled.statements.pop_back();  // the store
    std::vector<int> rows_and_columns{AttentionSpec::member, AttentionSpec::query,
                                      second.first_n()};
    print_element_functions(out, outputs, names, {{scaled, "element", "float acc"}}, "Coord",
                            rows_and_columns);
  }
  print_box_store(out, *e.result, "map_o");
  if (a.sequences.count > 0)
    print_line(out, {outputs, names, "Config", "Coord"}, e.result->port, 1);
  out.close("};");
}

class AttentionText : public ContractionText {
 public:
  AttentionText(const ScheduledKernel& kernel, const KernelNames& names)
      : ContractionText(kernel, names), e_(*kernel.attention()) {}

  std::string header() const override {
    return e_.by_warps ? "attention_forward_mma"
           : e_.wide   ? "attention_forward_wide"
                       : "attention_forward";
  }
  std::string_view summary() const override { return "softmax of products times values"; }
  std::vector<std::string> words() const override { return {"attention"}; }
  void print_first(TextWriter& out) const override { print_scores_config(out, e_, names_); }
  std::vector<MapArgument> maps() const override {
    std::vector<MapArgument> maps;
    if (e_.by_warps) return maps;
    add_maps(maps, e_.q, "map_q");
    add_maps(maps, e_.k, "map_k");
    add_maps(maps, e_.v, "map_v");
    if (e_.result) add_maps(maps, *e_.result, "map_o");
    for (std::size_t i = 0; i < e_.loads_beside.size(); ++i)
      if (const auto& box = e_.loads_beside[i].box)
        add_maps(maps, *box, fmt::format("map_beside_{}", i));
    return maps;
  }
  void print_structs(TextWriter& out) const override {
    print_fragment(out, kernel_, names_, body_);
    print_attention(out, spec_, e_, names_);
    if (!e_.result) print_packed_epilogue(out, spec_, names_, body_, {});
  }
  std::string call() const override {
    return fmt::format(
        "sinter::attention::run_{}<Config, First, OperandQ, OperandK, OperandV, {}, Score, "
        "Weight, Rows, Body>(args);",
        e_.by_warps ? "forward_by_warps"
        : e_.wide   ? "wide_forward"
                    : "forward",
        e_.attention.tiles_taken >= 0 ? "CountedTiles"
        : e_.attention.parts >= 0     ? "SharedKeys"
        : !e_.mask.statements.empty() ? "Mask"
                                      : "Bounds");
  }
  std::string_view cluster() const override {
    return e_.key_blocks > 1 ? " SINTER_CLUSTER(Config::key_blocks)" : "";
  }
  bool exchanges_registers() const override { return true; }
  Facts facts() const override {
    Facts facts = {estimated()};
    if (e_.visited_percent > 0) facts.push_back({"visited_percent", e_.visited_percent});
    return facts;
  }

 protected:
  std::string_view sum() const override { return "float"; }

 private:
  const AttentionConfig& e_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const AttentionConfig& e, ConfigConstants& c) {
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

EngineTextPtr engine_text(const AttentionConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<AttentionText>(kernel, names);
}

}  // namespace sinter
