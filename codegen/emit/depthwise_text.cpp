// The text of depthwise convolutions, their gradients and those of narrow groups.
#include <fmt/format.h>

#include "emit/contraction_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "schedule/contraction/convolution_dims.hpp"

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
  return ", row" + counted;
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

// What all engines have: Image, and Filter or Gradient.
class DepthwiseText : public ContractionText {
 public:
  // `name`: of the device library's file and of its function that runs.
  DepthwiseText(const ScheduledKernel& kernel, const KernelNames& names, std::string_view name)
      : ContractionText(kernel, names), e_(*kernel.depthwise()), name_(name) {}

  std::string header() const override { return "contraction_depthwise" + name_; }
  std::string_view summary() const override { return "sums of products of each channel"; }
  std::vector<MapArgument> maps() const override {
    std::vector<MapArgument> maps;
    add_map(maps, e_.image, "map_a");
    add_map(maps, e_.other, "map_b");
    return maps;
  }
  void print_own_config(TextWriter& out) const override {
    out.line("using Rows = {};", axis(spec_, e_.down));
    out.line("using Columns = {};", axis(spec_, e_.across));
    std::string looped;
    for (const ImageDim& d : e_.looped)
      looped += fmt::format("{}{}", looped.empty() ? "" : ", ", axis(spec_, d));
    out.line("using Looped = sinter::List<{}>;", looped);
  }
  void print_structs(TextWriter& out) const override {
    print_fragment(out, kernel_, names_, body_);
    print_operand_at(out, spec_, names_, e_.image, "Image", true, plane());
    print_operand_at(out, spec_, names_, e_.other, e_.gradient ? "Gradient" : "Filter", false);
    print_results(out);
    print_packed_epilogue(out, spec_, names_, body_, {});
  }
  std::string call() const override {
    return fmt::format("sinter::depthwise::run{}<Config, {}, Body{}>(args);", name_,
                       e_.gradient ? "Gradient, Image" : "Image, Filter", results());
  }
  Facts facts() const override { return {estimated()}; }

 protected:
  static void add_map(std::vector<MapArgument>& maps, const DepthwiseOperand& o, std::string name) {
    if (o.map) maps.push_back({std::move(name), o.port, *o.map});
  }
  // Elements of a channel of the image, where it comes to shared memory whole.
  virtual std::int64_t plane() const { return 0; }
  // Result, and Beside; which of them, and of void, the kernel has besides the operands.
  virtual void print_results(TextWriter&) const {}
  virtual std::string_view results() const { return {}; }

  const DepthwiseConfig& e_;

 private:
  const std::string name_;
};

class DepthwisePlanesText : public DepthwiseText {
 public:
  DepthwisePlanesText(const ScheduledKernel& kernel, const KernelNames& names)
      : DepthwiseText(kernel, names, kernel.depthwise()->gradient ? "_planes_gradient" : "_planes"),
        planes_(*kernel.as<DepthwisePlanesConfig>()),
        beside_(port_beside_results(kernel.spec, planes_)) {}

 protected:
  std::int64_t plane() const override { return planes_.planes.pixels; }
  void print_results(TextWriter& out) const override {
    if (!planes_.result) return;
    print_planes_beside(out, spec_, names_, planes_.result->port, "Result", "");
    if (beside_ >= 0) print_planes_beside(out, spec_, names_, beside_, "Beside", "const ");
  }
  std::string_view results() const override {
    return beside_ >= 0       ? ", Result, Beside"
           : planes_.result   ? ", Result"
           : planes_.gradient ? ""
                              : ", void";
  }

 private:
  const DepthwisePlanesConfig& planes_;
  const int beside_;
};

// Whose results leave by TMA, and who reads by TMA what lies beside them.
class BoxedResultsText : public DepthwiseText {
 public:
  BoxedResultsText(const ScheduledKernel& kernel, const KernelNames& names, std::string_view name,
                   const std::optional<DepthwiseOperand>& result,
                   std::vector<DepthwiseOperand> beside, bool exchanges_registers)
      : DepthwiseText(kernel, names, name),
        result_(result),
        beside_(std::move(beside)),
        exchanges_registers_(exchanges_registers) {}

  std::vector<MapArgument> maps() const override {
    auto maps = DepthwiseText::maps();
    if (result_) add_map(maps, *result_, "map_result");
    for (std::size_t i = 0; i < beside_.size(); ++i)
      add_map(maps, beside_[i], fmt::format("map_beside_{}", i));
    return maps;
  }
  bool exchanges_registers() const override { return exchanges_registers_; }

 protected:
  void print_results(TextWriter& out) const override {
    if (!result_) return;
    const auto result = static_cast<std::size_t>(result_->port);
    out.open("struct Result {{");
    out.line("using Element = {};", storage_type(spec_.ports[result].type));
    out.line("template <int width>");
    out.open("SINTER_DEVICE static const auto& of(const Fragment<width>& fragment) {{");
    out.line("return fragment.{};", names_.port[result]);
    out.close("}");
    out.line("SINTER_DEVICE static void store(const Args& args, const Coord& c, unsigned from,");
    out.open("                                int channel, int column, int row) {{");
    out.line("sinter::hopper::store_box(args.map_result, from, channel, column{});",
             row_and_counted(*result_));
    out.close("}");
    out.close("};");
    if (beside_.empty()) return;
    std::string all;
    for (std::size_t i = 0; i < beside_.size(); ++i) {
      const DepthwiseOperand& o = beside_[i];
      const auto port = static_cast<std::size_t>(o.port);
      out.open("struct Beside{} {{", i);
      out.line("using Element = {};", storage_type(spec_.ports[port].type));
      out.line("static constexpr bool in_place = {};", o.in_place);
      out.line("template <class Fragment>");
      out.line("SINTER_DEVICE static auto& of(Fragment& fragment) {{ return fragment.{}; }}",
               names_.port[port]);
      print_box_load(out, o, fmt::format("map_beside_{}", i));
      out.close("};");
      all += fmt::format("{}Beside{}", i == 0 ? "" : ", ", i);
    }
    out.line("using Beside = sinter::List<{}>;", all);
  }
  std::string_view results() const override {
    return !beside_.empty() ? ", Result, Beside" : result_ ? ", Result" : "";
  }

 private:
  const std::optional<DepthwiseOperand> result_;
  const std::vector<DepthwiseOperand> beside_;
  const bool exchanges_registers_;
};

void add_walk(const KernelSpec& spec, const DepthwiseConfig& e, ConfigConstants& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"products", 1},
                     {"channel", e.channel},
                     {"lanes", e.lanes},
                     {"each", e.each},
                     {"rows", e.rows},
                     {"columns", e.columns},
                     {"run", e.run},
                     {"along_columns", e.along_columns, true}});
}

// On CUDA cores, where each may have several filters, and lines move in packs.
void add_line_packs(const KernelSpec& spec, const DepthwiseConfig& e, bool in_shared,
                    ConfigConstants& c) {
  if (const int filters = index_of_filters(spec.contraction()); filters >= 0)
    c.push_back({"filters", filters});
  if (const int n = line_pack(spec, e, e.columns, in_shared); n > 1) c.push_back({"line_pack", n});
  if (const int n = gradient_pack(spec, e, e.columns); n > 1) c.push_back({"gradient_pack", n});
}

// `joined`: pixels of a line of the boxes.
void add_boxes(const DepthwiseConfig& e, ConfigConstants& c, int joined = 1) {
  const auto add = [&](const DepthwiseOperand& o, const char* line, const char* box) {
    if (o.map) c.insert(c.end(), {{line, o.line}, {box, static_cast<int>(o.map->box[1]) * joined}});
  };
  add(e.image, "image_line", "image_box");
  add(e.other, "gradient_line", "gradient_box");
}

void add_tiles(const DepthwiseTiles& t, ConfigConstants& c) {
  c.insert(c.end(), {{"across", t.across}, {"stages", t.stages}});
}
void add_channels(const DepthwiseGroups& g, ConfigConstants& c) {
  c.insert(c.end(),
           {{"group", g.channels}, {"inner", g.inner}, {"outer", g.outer}, {"planes", g.planes}});
}

}  // namespace

void add_constants(const KernelSpec& spec, const DepthwiseWalkConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  add_line_packs(spec, e, false, c);
}

void add_constants(const KernelSpec& spec, const DepthwiseRowsConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  c.insert(c.end(),
           {{"across", e.boxes.across}, {"planes", e.boxes.planes}, {"stages", e.boxes.stages}});
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const DepthwisePlanesConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  add_line_packs(spec, e, true, c);
  c.insert(c.end(), {{"units", e.planes.units}, {"images", e.planes.images}});
  if (e.gradient) c.push_back({"stages", e.planes.stages});
}

void add_constants(const KernelSpec& spec, const DepthwiseLinesConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  c.push_back({"across", e.lines.across});
}

void add_constants(const KernelSpec& spec, const DepthwiseMmaConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  if (e.result_rows > 0)
    c.insert(c.end(), {{"result_rows", e.result_rows},
                       {"producer_registers", e.producer_registers},
                       {"consumer_registers", e.consumer_registers}});
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const DepthwiseGradientMmaConfig& e,
                   ConfigConstants& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const NarrowGroupsConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  add_channels(e.groups, c);
  add_boxes(e, c);
}

void add_constants(const KernelSpec& spec, const NarrowGroupsGradientConfig& e,
                   ConfigConstants& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  c.insert(c.end(), {{"line_units", e.line_units}, {"joined", e.joined}});
  add_channels(e.groups, c);
  add_boxes(e, c, e.joined);
}

void add_constants(const KernelSpec& spec, const ChannelsGradientConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  c.push_back({"gradient_group", e.filters});
  add_channels(e.groups, c);
}

void add_constants(const KernelSpec& spec, const RunsGradientConfig& e, ConfigConstants& c) {
  add_walk(spec, e, c);
  add_tiles(e.tiles, c);
  c.insert(c.end(),
           {{"gradient_group", e.filters}, {"filters_together", e.filters_together, true}});
  add_channels(e.groups, c);
}

EngineTextPtr engine_text(const DepthwiseWalkConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names,
                                         kernel.depthwise()->gradient ? "_gradient" : "");
}
EngineTextPtr engine_text(const DepthwiseRowsConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names, "_rows");
}
EngineTextPtr engine_text(const DepthwisePlanesConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwisePlanesText>(kernel, names);
}
EngineTextPtr engine_text(const DepthwiseLinesConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names, "_lines");
}
EngineTextPtr engine_text(const DepthwiseMmaConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  const DepthwiseMmaConfig& e = *kernel.as<DepthwiseMmaConfig>();
  return std::make_unique<BoxedResultsText>(kernel, names, e.image.map ? "_mma_boxes" : "_mma",
                                            e.result, e.beside, e.result_rows > 0);
}
EngineTextPtr engine_text(const DepthwiseGradientMmaConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names, "_gradient_mma");
}
EngineTextPtr engine_text(const NarrowGroupsConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<BoxedResultsText>(kernel, names, "_groups",
                                            kernel.as<NarrowGroupsConfig>()->result,
                                            std::vector<DepthwiseOperand>{}, false);
}
EngineTextPtr engine_text(const NarrowGroupsGradientConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names, "_groups_gradient");
}
EngineTextPtr engine_text(const ChannelsGradientConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names, "_channels_gradient");
}
EngineTextPtr engine_text(const RunsGradientConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<DepthwiseText>(kernel, names, "_runs_gradient");
}

}  // namespace sinter
