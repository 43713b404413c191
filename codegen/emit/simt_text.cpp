// The text of a contraction on CUDA cores, or in f64 on tensor cores, that loads its operands
// element by element.
#include "emit/contraction_text.hpp"

namespace sinter {
namespace {

class SimtText : public ContractionText {
 public:
  using ContractionText::ContractionText;

  std::string header() const override { return "contraction_simt"; }
  std::string_view summary() const override { return "sums of products"; }
  void print_structs(TextWriter& out) const override {
    print_rows(out);
    print_operand(out, a_, "OperandA");
    print_operand(out, b_, "OperandB");
    print_epilogue(out, body_);
  }
  std::string call() const override {
    return fmt::format(
        "sinter::contraction::run<Config>(OperandA{{args}}, OperandB{{args}}, Body{{args}}, {});",
        rows());
  }
};

}  // namespace

void add_constants(const KernelSpec& spec, const SimtConfig& s, ConfigConstants& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile", s.tile},
                     {"a_k_fastest", s.a_k_fastest, true},
                     {"b_k_fastest", s.b_k_fastest, true},
                     {"n_fastest", s.n_fastest, true},
                     {"tensor_cores", s.tensor_cores, true},
                     {"zero_dominates", spec.contraction().zero_dominates == ZeroOf::a, true}});
  if (spec.contraction().marked_zeros) c.push_back({"marked_zeros", 1, true});
}

EngineTextPtr engine_text(const SimtConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<SimtText>(kernel, names);
}

}  // namespace sinter
