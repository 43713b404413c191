// The text of attention's gradients.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emit/attention_text.hpp"
#include "emit/element_text.hpp"
#include "emit/engine_text.hpp"
#include "emit/mask_text.hpp"
#include "emit/spelling.hpp"
#include "emit/tensor_cores_text.hpp"

namespace sinter {
namespace {

using A = AttentionBackwardSpec;

// float element(args, c) of an operand, whose heads are shared by `group` of the others.
void print_element_of(TextWriter& out, const KernelNames& names, int port, std::int64_t group) {
  const auto p = static_cast<std::size_t>(port);
  out.open("SINTER_DEVICE static float element(const Args& args, Coord c) {{");
  if (group > 1) out.line("c.at[{}] /= {};", static_cast<int>(A::head), group);
  out.line("return sinter::load<Config::{}, float>(args.{}, c);", names.access[p], names.port[p]);
  out.close("}");
}

// A line of a tensor, for copies or stores by threads. `multiplied`: the type in which its elements
// are.
void print_lines(TextWriter& out, const KernelSpec& spec, const KernelNames& names, int port,
                 std::int64_t group, DataType multiplied = DataType::none) {
  const std::string_view type = storage_type(spec.ports[static_cast<std::size_t>(port)].type);
  out.line("using Number = {};", multiplied == DataType::f32    ? "sinter::attention::SplitF32"
                                 : multiplied == DataType::tf32 ? "sinter::tf32"
                                                                : type);
  print_line(out, {spec, names, "Config", "Coord"}, port, group);
}

// A gradient of keys: see attention_backward_results.cuh. What TMA stores, threads store, too, of
// packed sequences.
void print_key_gradient(TextWriter& out, const KernelSpec& spec, const KeyGradient& gradient,
                        int port, const KernelNames& names, std::string_view struct_name,
                        std::string_view map, bool wide) {
  const A& a = spec.attention_backward();
  const auto p = static_cast<std::size_t>(port);
  switch (gradient.by) {
    case KeyGradient::By::nothing:
      return out.line("using {} = sinter::attention::NotWanted;", struct_name);
    case KeyGradient::By::lines:
      out.open("struct {} {{", struct_name);
      print_lines(out, spec, names, port, a.group);
      return out.close("};");
    case KeyGradient::By::boxes:
      out.open("struct {} {{", struct_name);
      print_box_store(out, gradient.box, map, "store", "store_box", {A::head, a.group});
      if (a.sequences.count > 0) print_line(out, {spec, names, "Config", "Coord"}, port, a.group);
      return out.close("};");
    case KeyGradient::By::elements:
      out.open("struct {} {{", struct_name);
      out.line("static constexpr bool by_elements = true;");
      out.open("SINTER_DEVICE static void put(const Args& args, Coord c, float x) {{");
      if (a.group > 1) out.line("c.at[{}] /= {};", static_cast<int>(A::head), a.group);
      out.line("sinter::store<Config::{}>(args.{}, c, x);", names.access[p], names.port[p]);
      out.close("}");
      if (a.parts > 1 && !wide) print_line(out, {spec, names, "Config", "Coord"}, port, a.group);
      return out.close("};");
  }
}

// Which blocks a mask hides: Bounds with what attention_backward.cuh says of blocks.
void print_blocks(TextWriter& out, const KernelSpec& spec, const KernelNames& names) {
  const Body& mask = spec.attention_backward().mask;
  if (mask.statements.empty()) {
    out.line("struct Mask : Bounds, sinter::attention::AllBlocks {{}};");
    return;
  }
  out.open("struct Mask : Bounds {{");
  out.line("static constexpr bool has_blocks = true;");
  if (spec.attention_backward().masks_pairs) out.line("static constexpr bool masks_pairs = true;");
  print_mask(out, {spec, names, mask, "Config", "Coord", A::m, A::n});
  out.open("struct Blocks {{");
  out.line("const Args& args;");
  out.line("const Config::Index entry, key;");
  out.open("SINTER_DEVICE bool sees(int head, int row) const {{");
  out.line("Coord c;");
  out.line("c.at[0] = entry, c.at[1] = head, c.at[2] = row, c.at[3] = key;");
  if (is_block_mask(mask)) {
    out.line("return Mask::sees(args, c);");
  } else {
    out.line("const auto rows = sinter::Span::of(row, Config::tile_q, Config::Extent::at({})),",
             int{A::m});
    out.line(
        "           keys = sinter::Span::of(c.at[{0}], Config::tile_k, Config::Extent::at({0}));",
        int{A::n});
    out.line("return seen(args, c, rows, keys).some;");
  }
  out.close("}");
  out.close("};");
  out.open("SINTER_DEVICE static Blocks blocks(const Args& args, const Coord& c, int key) {{");
  out.line("return {{args, c.at[0], key}};");
  out.close("}");
  out.close("};");
}

// Where the gradients of scores go.
void print_bias_gradient(TextWriter& out, const KernelSpec& spec, const BiasGradient& b,
                         const KernelNames& names) {
  const int dbias = spec.attention_backward().dbias;
  if (dbias < 0) {
    out.line("using BiasGradient = sinter::attention::NoBiasGradient;");
    return;
  }
  const auto p = static_cast<std::size_t>(dbias);
  out.open("struct BiasGradient {{");
  out.line("static constexpr bool wanted = true, by_query = {}, by_key = {};", b.by_query,
           b.by_key);
  if (b.of_blocks) out.line("static constexpr bool of_blocks = true;");
  if (b.in_pairs) {
    out.line("static constexpr bool in_pairs = true;");
    print_line(out, {spec, names, "Config", "Coord"}, dbias, 1);
  }
  out.open("SINTER_DEVICE static void put(const Args& args, const Coord& c, float x) {{");
  if (b.of_blocks)
    out.line("sinter::store<Config::{}>(args.{} + c.at[{}] / {}, c, x);", names.access[p],
             names.port[p], int{A::n}, int{A::keys_of_block});
  else
    out.line("sinter::{}<Config::{}>(args.{}, c, x);", b.shared ? "add" : "store", names.access[p],
             names.port[p]);
  out.close("}");
  out.close("};");
}

void print_row_value(TextWriter& out, const KernelNames& names, int port,
                     std::string_view function) {
  if (port < 0)
    return out.line("SINTER_DEVICE static float {}(const Args&, const Coord&) {{ return 0; }}",
                    function);
  const auto p = static_cast<std::size_t>(port);
  out.open("SINTER_DEVICE static float {}(const Args& args, const Coord& c) {{", function);
  out.line("return sinter::load<Config::{}, float>(args.{}, c);", names.access[p], names.port[p]);
  out.close("}");
}

// Operands, bounds, score and its derivative, what belongs to rows, and results.
void print_attention_backward(TextWriter& out, const KernelSpec& spec,
                              const AttentionBackwardConfig& e, const KernelNames& names) {
  const A& a = spec.attention_backward();
  const auto operand = [&](std::string_view struct_name, const BoxedOperand& o,
                           std::string_view map, std::int64_t group) {
    out.open("struct {} {{", struct_name);
    if (e.by_warps) {
      print_lines(out, spec, names, o.port, group, a.q.type);
    } else {
      out.line("using Number = sinter::{};", name(o.map.type));
      print_box_load(out, o, map, "Coord", {A::head, group});
    }
    print_element_of(out, names, o.port, group);
    out.close("};");
  };
  operand("OperandQ", e.q, "map_q", 1);
  operand("OperandK", e.k, "map_k", a.group);
  operand("OperandV", e.v, "map_v", a.group);
  operand("OperandDO", e.d_o, "map_do", 1);
  print_bounds(out, a.band, a.sequences, a.length_q, a.length_kv, spec, names, "Config",
               {spec.extent[A::m], spec.extent[A::n]});
  print_blocks(out, spec, names);
  out.open("struct Score {{");
  out.line("static constexpr bool plain = {};", a.score.statements.empty());
  out.line("static constexpr float scale = {};", literal(a.scale, DataType::f32));
  if (takes_masks(spec)) out.line("static constexpr bool takes_masks = true;");
  if (a.additive()) out.line("static constexpr bool additive = true;");
  const std::string_view factor = a.scale == 1 ? "" : "scale";
  const auto print_functions = [&](const std::vector<ElementFunction>& functions) {
    print_element_functions(out, spec, names, functions, "Coord", {A::m, A::n});
  };
  const auto beside = [&](const Body& body) {
    std::vector<int> loads;
    for (std::size_t i = 0; e.beside && i < body.statements.size(); ++i)
      if (is_load(body.statements[i]) && body.statements[i].port == e.beside->port)
        loads.push_back(static_cast<int>(i));
    return loads;
  };
  print_functions({{a.score, "element", "float acc", false, beside(a.score), factor},
                   {a.gradient, "gradient", "float acc, float acc_gradient", false,
                    beside(a.gradient), factor}});
  if (e.beside) {
    out.open("struct Box {{");
    out.line("using Number = sinter::{};", name(e.beside->map.type));
    print_box_load(out, *e.beside, "map_beside_0", "Coord");
    out.close("};");
  }
  out.close("};");
  out.open("struct Weight {{");
  out.line("static constexpr bool plain = {};", a.weight.statements.empty());
  print_functions({{a.weight, "element", "float acc", true},
                   {a.rounded_dp, "rounded_dp", "float acc"},
                   {a.rounded_ds, "rounded_ds", "float acc"}});
  if (a.rounds()) {
    out.line("static constexpr bool rounds = true;");
    for (const auto& [body, function] :
         {std::pair(&a.rounded_dp, "rounded_dp"), std::pair(&a.rounded_ds, "rounded_ds")})
      if (body->statements.empty())
        out.line(
            "SINTER_DEVICE static float {}(const Args&, const Coord&, const OfHead&, float x) {{ "
            "return x; }}",
            function);
  }
  out.close("};");
  out.open("struct Rows {{");
  if (a.totals()) {
    print_row_value(out, names, a.largest, "largest");
    print_row_value(out, names, a.total, "total");
  } else {
    print_row_value(out, names, a.stats, "stats");
  }
  print_row_value(out, names, a.delta, "delta");
  out.close("};");
  print_bias_gradient(out, spec, e.dbias, names);
  if (a.sums < 0) {
    out.line("using SumsDQ = sinter::attention::NotWanted;");
  } else if (e.by_warps) {
    out.open("struct SumsDQ {{");
    print_lines(out, spec, names, a.sums, 1, a.q.type);
    out.close("};");
  } else {
    out.open("struct SumsDQ {{");
    if (a.dq_factor)
      out.line("static constexpr float factor = {};", literal(*a.dq_factor, DataType::f32));
    print_box_store(out, *e.sums, "map_dq", "add", a.dq_factor ? "store_box" : "add_box");
    if (e.in_order) print_line(out, {spec, names, "Config", "Coord"}, a.sums, 1);
    out.close("};");
  }
  print_key_gradient(out, spec, e.dk, a.dk, names, "ResultDK", "map_dk", e.wide);
  print_key_gradient(out, spec, e.dv, a.dv, names, "ResultDV", "map_dv", e.wide);
}

class AttentionBackwardText : public EngineText {
 public:
  AttentionBackwardText(const ScheduledKernel& kernel, const KernelNames& names)
      : EngineText(kernel, names),
        e_(*kernel.attention_backward()),
        weight_(spec_, names, spec_.attention_backward().weight) {}

  std::string header() const override {
    return e_.by_warps ? "attention_backward_mma"
           : e_.wide   ? "attention_backward_wide"
                       : "attention_backward";
  }
  std::string_view summary() const override { return "gradients of attention"; }
  std::vector<std::string> words() const override { return {"attention_backward"}; }
  std::vector<const BodyText*> bodies() const override { return {&body_, &weight_}; }
  std::vector<MapArgument> maps() const override {
    std::vector<MapArgument> maps;
    if (e_.by_warps) return maps;
    add_maps(maps, e_.q, "map_q");
    add_maps(maps, e_.k, "map_k");
    add_maps(maps, e_.v, "map_v");
    add_maps(maps, e_.d_o, "map_do");
    if (e_.sums) add_maps(maps, *e_.sums, "map_dq");
    if (e_.dk.by == KeyGradient::By::boxes) add_maps(maps, e_.dk.box, "map_dk");
    if (e_.dv.by == KeyGradient::By::boxes) add_maps(maps, e_.dv.box, "map_dv");
    if (e_.beside) add_maps(maps, *e_.beside, "map_beside_0");
    return maps;
  }
  void print_structs(TextWriter& out) const override {
    print_attention_backward(out, spec_, e_, names_);
  }
  std::string call() const override {
    return fmt::format(
        "sinter::attention::run_{}<Config, Mask, OperandQ, OperandK, OperandV, OperandDO, Score, "
        "Weight, Rows, BiasGradient, SumsDQ, ResultDK, ResultDV>(args);",
        e_.by_warps ? "backward_by_warps"
        : e_.wide   ? "wide_backward"
                    : "backward");
  }
  bool exchanges_registers() const override { return true; }
  Facts facts() const override { return {estimated()}; }

 private:
  const AttentionBackwardConfig& e_;
  const BodyText weight_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const AttentionBackwardConfig& e, ConfigConstants& c) {
  c.insert(c.end(), {{"tile_q", e.tile_q},
                     {"tile_k", e.tile_k},
                     {"stages", e.stages},
                     {"group_size", static_cast<int>(spec.attention_backward().group)},
                     {"heads_together", e.heads_together}});
  if (const int parts = spec.attention_backward().parts; parts > 1) c.push_back({"parts", parts});
  if (e.in_order) c.push_back({"in_order", 1, true});
  if (e.entries_first) c.push_back({"entries_first", 1, true});
  if (e.last_keys_first) c.push_back({"last_keys_first", 1, true});
  if (e.last_queries > 0) c.push_back({"last_queries", e.last_queries});
  if (e.windows > 1) c.push_back({"windows", e.windows});
  if (e.blocks_of_round > 0) c.push_back({"blocks_of_round", e.blocks_of_round});
  if (spec.attention_backward().totals()) c.push_back({"row_totals", 1, true});
  if (e.by_warps) return;
  c.insert(c.end(), {{"producer_registers", e.producer_registers},
                     {"consumer_registers", e.consumer_registers}});
  if (e.wide) c.push_back({"stages_do", e.stages_do});
}

EngineTextPtr engine_text(const AttentionBackwardConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<AttentionBackwardText>(kernel, names);
}

}  // namespace sinter
