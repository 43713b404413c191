#include "emit/depthwise_text.hpp"

#include <fmt/format.h>

#include "emit/contraction_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "schedule/contraction/depthwise_planes.hpp"

namespace sinter {
namespace {

std::string axis(const KernelSpec& spec, const ImageDim& d) {
  std::string parts;
  if (!d.parts.empty()) {
    Dims coefficient = Dims::filled(spec.extent.size(), 0);
    for (const auto& [index, step] : d.parts) coefficient[index] = step;
    parts = ", " + dims_type(coefficient);
  }
  return fmt::format("sinter::depthwise::Axis<{}, {}, {}, {}, {}, {}, {}, {}, {}{}>", d.pixel_index,
                     d.tap_index, d.tap_index < 0 ? 1 : spec.extent[d.tap_index], d.base, d.pixel,
                     d.tap, d.divisor, d.extent, d.stride, parts);
}
std::string axis(const KernelSpec& spec, const std::optional<ImageDim>& d) {
  return d ? axis(spec, *d) : "sinter::depthwise::NoAxis";
}

// Coordinates of a box behind its channel and column.
std::string row_and_counted(const DepthwiseOperand& o) {
  std::string counted;
  for (int i : o.counted) counted += fmt::format(", static_cast<int>(c.at[{}])", i);
  return o.rows_last ? counted + ", row" : ", row" + counted;
}

void print_box_load(TextWriter& out, const DepthwiseOperand& o, std::string_view map) {
  out.line("SINTER_DEVICE static void load(const Args& args, const Coord& c, unsigned to,");
  out.open("                               unsigned barrier, int channel, int column, int row) {{");
  out.line("sinter::hopper::load_box(args.{}, to, barrier, 0, channel, column{});", map,
           row_and_counted(o));
  out.close("}");
}

void print_operand_at(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                      const DepthwiseOperand& o, std::string_view struct_name, bool image,
                      std::int64_t plane = 0) {
  const auto port = static_cast<std::size_t>(o.port);
  out.open("struct {} {{", struct_name);
  out.line("using Access = Config::{};", names.access[port]);
  out.line("using Element = {};", storage_type(spec.ports[port].type));
  if (image) out.line("static constexpr long long offset = {};", o.offset);
  if (plane > 0) out.line("static constexpr int plane = {};", plane);
  out.line("SINTER_DEVICE static const Element* base(const Args& args) {{ return args.{}; }}",
           names.port[port]);
  if (o.map) print_box_load(out, o, image ? "map_a" : "map_b");
  out.close("};");
}

// What lies plane by plane as results do: `of` is its place among what a thread holds.
void print_planes_beside(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                         int number, std::string_view struct_name, std::string_view constant) {
  const auto port = static_cast<std::size_t>(number);
  out.open("struct {} {{", struct_name);
  out.line("using Access = Config::{};", names.access[port]);
  out.line("using Element = {};", storage_type(spec.ports[port].type));
  out.line("SINTER_DEVICE static {}Element* base(const Args& args) {{ return args.{}; }}", constant,
           names.port[port]);
  out.line("template <class Fragment>");
  out.line("SINTER_DEVICE static auto& of(Fragment& fragment) {{ return fragment.{}; }}",
           names.port[port]);
  out.close("};");
}

}  // namespace

void print_depthwise_axes(TextWriter& out, const KernelSpec& spec, const DepthwiseConfig& e) {
  out.line("using Rows = {};", axis(spec, e.down));
  out.line("using Columns = {};", axis(spec, e.across));
  std::string looped;
  for (const ImageDim& d : e.looped)
    looped += fmt::format("{}{}", looped.empty() ? "" : ", ", axis(spec, d));
  out.line("using Looped = sinter::List<{}>;", looped);
}

namespace {

// Of the device library's file and of its function that runs.
std::string_view suffix(const DepthwiseConfig& e) {
  return e.groups && e.gradient   ? "_groups_gradient"
         : e.groups               ? "_groups"
         : e.gradient && e.mma    ? "_gradient_mma"
         : e.mma && e.image.map   ? "_mma_boxes"
         : e.mma                  ? "_mma"
         : e.lines                ? "_lines"
         : e.boxes                ? "_rows"
         : e.planes && e.gradient ? "_planes_gradient"
         : e.planes               ? "_planes"
         : e.gradient             ? "_gradient"
                                  : "";
}

// Image, and Filter or Gradient.
void print_depthwise_operands(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                              const DepthwiseConfig& e) {
  print_operand_at(out, spec, names, e.image, "Image", true, e.planes ? e.planes->pixels : 0);
  print_operand_at(out, spec, names, e.other, e.gradient ? "Gradient" : "Filter", false);
  if (!e.result) return;
  if (e.planes) {
    print_planes_beside(out, spec, names, e.result->port, "Result", "");
    if (const int port = port_beside_results(spec, e); port >= 0)
      print_planes_beside(out, spec, names, port, "Beside", "const ");
    return;
  }
  const auto result = static_cast<std::size_t>(e.result->port);
  out.open("struct Result {{");
  out.line("using Element = {};", storage_type(spec.ports[result].type));
  out.line("template <int width>");
  out.open("SINTER_DEVICE static const auto& of(const Fragment<width>& fragment) {{");
  out.line("return fragment.{};", names.port[result]);
  out.close("}");
  out.line("SINTER_DEVICE static void store(const Args& args, const Coord& c, unsigned from,");
  out.open("                                int channel, int column, int row) {{");
  out.line("sinter::hopper::store_box(args.map_result, from, channel, column{});",
           row_and_counted(*e.result));
  out.close("}");
  out.close("};");
  if (e.beside.empty()) return;
  std::string all;
  for (std::size_t i = 0; i < e.beside.size(); ++i) {
    const DepthwiseOperand& o = e.beside[i];
    const auto port = static_cast<std::size_t>(o.port);
    out.open("struct Beside{} {{", i);
    out.line("using Element = {};", storage_type(spec.ports[port].type));
    out.line("static constexpr bool in_place = {};", o.in_place);
    out.line("template <class Fragment>");
    out.line("SINTER_DEVICE static auto& of(Fragment& fragment) {{ return fragment.{}; }}",
             names.port[port]);
    print_box_load(out, o, fmt::format("map_beside_{}", i));
    out.close("};");
    all += fmt::format("{}Beside{}", i == 0 ? "" : ", ", i);
  }
  out.line("using Beside = sinter::List<{}>;", all);
}

// Which of them, and of void, the kernel has besides the image and the filter, or gradient.
std::string_view depthwise_results(const KernelSpec& spec, const DepthwiseConfig& e) {
  if (!e.beside.empty() || port_beside_results(spec, e) >= 0) return ", Result, Beside";
  return e.result ? ", Result" : e.planes && !e.gradient ? ", void" : "";
}

class DepthwiseText : public ContractionText {
 public:
  DepthwiseText(const ScheduledKernel& kernel, const KernelNames& names)
      : ContractionText(kernel, names), e_(*kernel.depthwise()) {}

  std::string header() const override { return "contraction_depthwise" + std::string(suffix(e_)); }
  std::string_view summary() const override { return "sums of products of each channel"; }
  std::vector<MapArgument> maps() const override {
    std::vector<MapArgument> maps;
    const auto add = [&](const DepthwiseOperand& o, std::string name) {
      if (o.map) maps.push_back({std::move(name), o.port, *o.map});
    };
    add(e_.image, "map_a");
    add(e_.other, "map_b");
    if (e_.result) add(*e_.result, "map_result");
    for (std::size_t i = 0; i < e_.beside.size(); ++i)
      add(e_.beside[i], fmt::format("map_beside_{}", i));
    return maps;
  }
  void print_structs(TextWriter& out) const override {
    print_fragment(out, kernel_, names_, body_);
    print_depthwise_operands(out, spec_, names_, e_);
    print_packed_epilogue(out, spec_, names_, body_, {});
  }
  std::string call() const override {
    return fmt::format("sinter::depthwise::run{}<Config, {}, Body{}>(args);", suffix(e_),
                       e_.gradient ? "Gradient, Image" : "Image, Filter",
                       depthwise_results(spec_, e_));
  }
  bool exchanges_registers() const override { return e_.mma && e_.mma->result_rows > 0; }
  Facts facts() const override { return {estimated()}; }

 private:
  const DepthwiseConfig& e_;
};

}  // namespace

std::unique_ptr<EngineText> depthwise_text(const ScheduledKernel& kernel,
                                           const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names);
}

}  // namespace sinter
