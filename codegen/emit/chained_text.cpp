// The text of two chained products on the tensor cores of sm_90a.
#include "emit/config_text.hpp"
#include "emit/contraction_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/tensor_cores_text.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

// The operands of chained products, and what lies between these.
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

class ChainedText : public ContractionText {
 public:
  ChainedText(const ScheduledKernel& kernel, const KernelNames& names)
      : ContractionText(kernel, names), e_(*kernel.chained()) {}

  std::string header() const override { return "contraction_chained"; }
  std::string_view summary() const override { return "two products on tensor cores"; }
  void print_first(TextWriter& out) const override {
    print_product_config(out, e_.first, e_.wide_index, names_, {});
  }
  std::vector<MapArgument> maps() const override {
    std::vector<MapArgument> maps;
    add_maps(maps, e_.a, "map_a");
    add_maps(maps, e_.b, "map_b");
    add_maps(maps, e_.c, "map_c");
    return maps;
  }
  void print_structs(TextWriter& out) const override {
    print_fragment(out, kernel_, names_, body_);
    print_chained(out, e_, names_);
    print_packed_epilogue(out, spec_, names_, body_, {});
  }
  std::string call() const override {
    return "sinter::chained::run<Config, First, OperandA, OperandB, OperandC, Middle, Body>(args);";
  }
  bool exchanges_registers() const override { return true; }
  Facts facts() const override { return {estimated()}; }

 protected:
  std::string_view sum() const override { return "float"; }

 private:
  const ChainedConfig& e_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const ChainedConfig& e, ConfigConstants& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile_m", e.tile_m},
                     {"stages", e.stages},
                     {"stages_c", e.stages_c},
                     {"products", 1},
                     {"producer_registers", e.producer_registers},
                     {"consumer_registers", e.consumer_registers},
                     {"n_fastest", e.n_fastest, true}});
}

EngineTextPtr engine_text(const ChainedConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<ChainedText>(kernel, names);
}

}  // namespace sinter
