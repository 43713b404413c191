// The text of a contraction on the tensor cores of sm_90a (wgmma).
#include "emit/contraction_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "emit/tensor_cores_text.hpp"
#include "emit/window_text.hpp"

namespace sinter {
namespace {

// The scales of operands that have one for each block of k.
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

void print_operand_of_tiles(TextWriter& out, const KernelSpec& spec, const WgmmaConfig& e,
                            const KernelNames& names, const BoxedOperand& o, bool is_a) {
  const std::string_view struct_name = is_a ? "OperandA" : "OperandB",
                         map = is_a ? "map_a" : "map_b";
  if (!loaded_by_tma(spec, o, is_a))
    print_operand_by_threads(out, spec, names, o, struct_name);
  else if (o.source == BoxedOperand::Source::boxes)
    print_boxed_operand(out, o, struct_name, map);
  else
    print_window_operand(out, spec, o, *e.window, e.resident, struct_name, map);
}

class WgmmaText : public ContractionText {
 public:
  WgmmaText(const ScheduledKernel& kernel, const KernelNames& names)
      : ContractionText(kernel, names), e_(*kernel.wgmma()) {}

  std::string header() const override { return "contraction_wgmma"; }
  std::string_view summary() const override { return "sums of products on tensor cores"; }
  std::vector<std::string> more_headers() const override {
    if (!e_.window) return {};
    return {std::string("family/contraction_window") + (e_.taps_each > 0 ? "_gradient"
                                                        : e_.resident    ? "_resident"
                                                                         : "")};
  }
  std::vector<MapArgument> maps() const override {
    std::vector<MapArgument> maps;
    if (loaded_by_tma(spec_, e_.a, true)) add_maps(maps, e_.a, "map_a");
    if (loaded_by_tma(spec_, e_.b, false)) add_maps(maps, e_.b, "map_b");
    if (e_.b2) add_maps(maps, *e_.b2, "map_b2");
    if (e_.result) add_maps(maps, *e_.result, "map_result");
    return maps;
  }
  void print_own_config(TextWriter& out) const override {
    if (e_.window) print_window(out, e_);
  }
  void print_structs(TextWriter& out) const override {
    print_rows(out);
    print_fragment(out, kernel_, names_, body_);
    print_operand_of_tiles(out, spec_, e_, names_, e_.a, true);
    print_operand_of_tiles(out, spec_, e_, names_, e_.b, false);
    if (e_.b2) print_boxed_operand(out, *e_.b2, "OperandB2", "map_b2");
    if (e_.scaled()) print_scales(out, spec_, names_, e_);
    print_recomputed(out, spec_, names_, e_.counted);
    print_packed_epilogue(out, spec_, names_, body_, {.counted = &e_.counted, .stored = &e_});
  }
  std::string call() const override {
    if (e_.resident)
      return fmt::format("sinter::contraction::{}<Config, OperandA, OperandB, Body>(args);",
                         e_.taps_each > 0 ? "run_filter_gradient" : "run_window");
    return fmt::format(
        "sinter::contraction::run_on_tensor_cores<Config, OperandA, OperandB, {}, Body{}>(args{});",
        c_.paired() ? "OperandB2" : "OperandB", e_.scaled() ? ", Scales" : "",
        c_.rows.on ? ", " + rows() : "");
  }
  std::string_view cluster() const override {
    return cluster_blocks(e_.tile) > 1
               ? " SINTER_CLUSTER(Config::cluster_m * Config::cluster_n * Config::split)"
               : "";
  }
  bool exchanges_registers() const override { return true; }
  Facts facts() const override {
    Facts facts = {estimated()};
    facts.emplace_back("legal_tiles", static_cast<std::int64_t>(
                                          std::get<TileChoice>(kernel_.choice).tiles.size()));
    facts.emplace_back("tuned", kernel_.tuned);
    facts.emplace_back("scaled", e_.scaled());
    if (c_.rows.on) {
      facts.emplace_back("groups", spec_.extent[0]);
      facts.emplace_back("gathered", c_.rows.gathers());
    }
    if (e_.a.source == BoxedOperand::Source::shifted) facts.emplace_back("a_shifted", 1);
    if (e_.b.source == BoxedOperand::Source::shifted) facts.emplace_back("b_shifted", 1);
    return facts;
  }

 protected:
  std::string_view sum() const override { return e_.integers ? "int" : "float"; }

 private:
  const WgmmaConfig& e_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const WgmmaConfig& e, ConfigConstants& c) {
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

EngineTextPtr engine_text(const WgmmaConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<WgmmaText>(kernel, names);
}

}  // namespace sinter
