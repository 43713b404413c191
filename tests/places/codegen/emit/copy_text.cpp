// The text of copies: a body whose element() loads and stores.
#include "emit/engine_text.hpp"
#include "emit/fragment_text.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

class CopyText : public EngineText {
 public:
  using EngineText::EngineText;

  std::string header() const override { return "copy"; }
  std::string_view summary() const override { return "one element a thread"; }
  void print_structs(TextWriter& out) const override {
    out.open("struct Body {{");
    out.open("SINTER_DEVICE static void element(const Args& args, const Coord& c) {{");
    print_statements(out, body_, live_statements(body_.body(), effects(body_.body(), 0)));
    out.close("}");
    out.close("};");
  }
  std::string call() const override { return "sinter::copying::run<Config, Body>(args);"; }
};

}  // namespace

void add_constants(const KernelSpec&, const CopyConfig&, ConfigConstants&) {}

EngineTextPtr engine_text(const CopyConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<CopyText>(kernel, names);
}

}  // namespace sinter
