// The text of convolutions of few channels, whose pixels come as they lie in memory.
#include <fmt/format.h>

#include "emit/contraction_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"

namespace sinter {

namespace {

// Where images begin.
void print_image(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                 const ImageRowsConfig& i) {
  const auto port = static_cast<std::size_t>(i.image_port);
  const std::string step =
      i.image_index < 0 ? "" : fmt::format(" + c.at[{}] * {}ll", i.image_index, i.image_step);
  out.open("struct Image {{");
  out.line("using Element = {};", storage_type(spec.ports[port].type));
  out.open("SINTER_DEVICE static const Element* base(const Args& args, const Coord& c) {{");
  out.line("return args.{} + {}ll{};", names.port[port], i.offset, step);
  out.close("}");
  out.close("};");
}

class ImageRowsText : public ContractionText {
 public:
  ImageRowsText(const ScheduledKernel& kernel, const KernelNames& names)
      : ContractionText(kernel, names), e_(*kernel.image_rows()) {}

  std::string header() const override { return "contraction_image_rows"; }
  std::string_view summary() const override {
    return "sums of products on tensor cores, of few channels";
  }
  void print_own_config(TextWriter& out) const override {
    const auto seen = [](const SeenPixels& s) {
      return fmt::format("sinter::contraction::SeenPixels<{}, {}, {}>", s.base, s.step, s.taps);
    };
    out.line("using Number = sinter::{};", name(e_.number));
    out.line("using ImageRows = sinter::contraction::ImageRows<{}, {}, {}, {}, {},", e_.image_bytes,
             e_.channels, e_.line, e_.lines, e_.pitch);
    const std::string volume = e_.all_frames > 0 ? fmt::format(",\n    {}, {}, {}", seen(e_.frames),
                                                               e_.all_frames, e_.frame_pitch)
                                                 : "";
    out.line("    {}, {}{}>;", seen(e_.down), seen(e_.across), volume);
  }
  void print_structs(TextWriter& out) const override {
    print_fragment(out, kernel_, names_, body_);
    print_image(out, spec_, names_, e_);
    if (e_.counted.which != CountedProducts::Which::none)
      print_recomputed(out, spec_, names_, e_.counted);
    else
      print_operand(out, BodyText(spec_, names_, spec_.contraction().b().body, nullptr),
                    "ElementB");
    print_packed_epilogue(out, spec_, names_, body_, {.counted = &e_.counted, .stored = &e_});
  }
  std::string call() const override {
    return "sinter::contraction::run_image_rows<Config, Image, ElementB, Body>(args);";
  }
  bool exchanges_registers() const override { return true; }
  Facts facts() const override {
    return {estimated(), {"image_rows", 1}, {"legal_tiles", 0}, {"tuned", 0}, {"scaled", 0}};
  }

 protected:
  std::string_view sum() const override { return "float"; }

 private:
  const ImageRowsConfig& e_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const ImageRowsConfig& e, ConfigConstants& c) {
  add_tile(spec, e, 1, c);
  c.push_back({"band", e.band});
}

EngineTextPtr engine_text(const ImageRowsConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<ImageRowsText>(kernel, names);
}

}  // namespace sinter
