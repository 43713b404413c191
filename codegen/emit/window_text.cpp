#include "emit/window_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/spelling.hpp"
#include "schedule/contraction/implicit_gemm.hpp"

namespace sinter {
namespace {

// Coordinates of an operand of a convolution.
std::string window_coordinates(const BoxedOperand& o, const ConvolutionWindow& w) {
  const auto stepped = [](std::string at, const std::vector<BatchStep>& steps) {
    for (const auto& b : steps)
      at += b.step == 1 ? fmt::format(" + static_cast<int>(c.at[{}])", b.index)
                        : fmt::format(" + static_cast<int>(c.at[{}]) * {}", b.index, b.step);
    return at;
  };
  // In plans of a class of extents a part has another number of images in each.
  const auto of_image = [&](std::string at) {
    for (const auto& b : o.image_steps)
      at += fmt::format(" + static_cast<int>(c.at[{}] * sinter::Dims<{}>::at(0))", b.index, b.step);
    return at;
  };
  const std::string channel = stepped("at.channel", o.channel_steps);
  if (o.source == BoxedOperand::Source::images) {
    std::string text;
    for (std::size_t i = 0; i < w.axes.size(); ++i) {
      std::string at = fmt::format("at.at[{}]", i);
      if ((i > 0 || w.axes[i].taps[0] > 1) && !o.of_result)
        at += fmt::format(" + at.offset[{}]", i);
      if (w.axes[i].part.index >= 0) at = stepped(std::move(at), {w.axes[i].part});
      text += (i > 0 ? ", " : "") + at;
      if (i == 0) text += ", " + (o.of_result ? stepped("row", o.channel_steps) : channel);
    }
    return text;
  }
  if (o.source == BoxedOperand::Source::pixels) {
    std::string text = channel;
    for (std::size_t i = 0; i < w.axes.size(); ++i) text += fmt::format(", at.at[{}]", i);
    return text + ", " + of_image("at.image");
  }
  if (o.source == BoxedOperand::Source::blocks) {
    // Behind a block's pixels the number of the block is left.
    std::string text = channel, block = "at.image";
    for (std::size_t i = 0; i < w.axes.size(); ++i) {
      const std::int64_t count = w.blocks[static_cast<int>(i)];
      text += fmt::format(", at.at[{}] + {} % {} * {}", i, block, count, w.axes[i].result);
      std::vector<BatchStep> steps;
      if (w.axes[i].part.index >= 0) steps.push_back(w.axes[i].part);
      if (w.axes[i].tap.index >= 0 && !o.of_result) steps.push_back(w.axes[i].tap);
      text = stepped(std::move(text), steps);
      if (w.axes[i].apart) text += fmt::format(" + at.offset[{}]", i);
      block += fmt::format(" / {}", count);
    }
    return text + ", " + of_image(block);
  }
  const std::string row = stepped("row", o.row_steps);
  std::string text = o.k_fastest ? channel : row;
  for (int i : o.filter_axes) text += fmt::format(", at.tap[{}]", i);
  text += ", " + (o.k_fastest ? row : channel);
  for (int i : o.batch) text += fmt::format(", static_cast<int>(c.at[{}])", i);
  return text;
}

// The number of the tap, where batch entries number it.
std::string tap_of_batch(const ConvolutionWindow& w, const Dims& extent) {
  std::string text;
  for (int i : w.tap_batch)
    text = text.empty() ? fmt::format("static_cast<int>(c.at[{}])", i)
                        : fmt::format("({}) * {} + static_cast<int>(c.at[{}])", text, extent[i], i);
  return text.empty() ? "" : ", " + text;
}

// See PixelOffsets.
std::string offsets_of_pixels(const ConvolutionWindow& w, PixelOffsets by) {
  switch (by) {
    case PixelOffsets::tap:
      return "at.offsets()";
    case PixelOffsets::plane:
      return "at.plane()";
    case PixelOffsets::none:
      return "at.no_offsets()";
    case PixelOffsets::tap_of_batch:
      break;
  }
  std::vector<std::string> along;
  for (std::size_t i = 1; i < w.axes.size(); ++i) {
    const BatchStep& tap = w.axes[i].tap;
    along.push_back(
        tap.index < 0 ? "0" : fmt::format("static_cast<int>(c.at[{}]) * {}", tap.index, tap.step));
  }
  return fmt::format("at.moved({})", fmt::join(along, ", "));
}

}  // namespace

void print_window_operand(TextWriter& out, const KernelSpec& spec, const BoxedOperand& o,
                          const ConvolutionWindow& w, bool resident, std::string_view struct_name,
                          std::string_view map) {
  out.open("struct {} {{", struct_name);
  out.line("using Number = sinter::{};", name(o.map.type));
  out.line("static constexpr bool k_fastest = {};", o.k_fastest);
  if (o.source == BoxedOperand::Source::images)
    out.line("static constexpr int box_rows = {};", o.map.box[1]);
  out.line(
      "SINTER_DEVICE static void prefetch(const Args& args) {{ sinter::hopper::prefetch(args.{}); "
      "}}",
      map);
  out.line(
      "SINTER_DEVICE static void load(const Args& args, const Coord& c, int row, int k, unsigned "
      "to,");
  out.open("                               unsigned barrier, unsigned blocks) {{");
  out.line("const sinter::contraction::WindowPlace<Config::{}> at(c, row, k{});",
           o.of_result ? "ResultWindow" : "Window", tap_of_batch(w, spec.extent));
  if (o.source == BoxedOperand::Source::pixels)
    out.line("sinter::hopper::load_pixels(args.{}, to, barrier, blocks, {}, {});", map,
             offsets_of_pixels(w, pixel_offsets(w, resident, o.of_result)),
             window_coordinates(o, w));
  else
    out.line("sinter::hopper::load_box(args.{}, to, barrier, blocks, {});", map,
             window_coordinates(o, w));
  out.close("}");
  out.close("};");
}

namespace {

// `of_result`: base pixels are those of results. `parts`: the last axis is one of images of a part.
void print_window(TextWriter& out, const ConvolutionWindow& w, int line, std::string_view name,
                  bool of_result, bool parts) {
  using Taps = ConvolutionWindow::Taps;
  std::string axes;
  for (const WindowAxis& a : w.axes) {
    if (parts && &a == &w.axes.back()) {
      axes += fmt::format(",\n      sinter::contraction::Images<{}>", dims_type({a.result}));
      continue;
    }
    const std::string_view kind = a.apart             ? "sinter::contraction::Apart<"
                                  : !w.blocks.empty() ? "sinter::contraction::Blocked<"
                                                      : "";
    axes +=
        fmt::format(",\n      {}sinter::contraction::Axis<{}, {}, {}, {}, {}, {}, {}, {}, {}>{}",
                    kind, a.result, of_result ? 0 : a.first, a.step, a.tap_step, a.offset_step,
                    a.phase_index, dims_type(a.taps), dims_type(a.first_tap),
                    dims_type(a.first_offset), kind.empty() ? "" : ">");
  }
  const std::string_view of = w.taps_of == Taps::k         ? "k"
                              : w.taps_of == Taps::columns ? "columns"
                                                           : "batch";
  out.line("using {} = sinter::contraction::Window<sinter::contraction::TapsOf::{}, {}, {}{}>;",
           name, of, w.channels, line, axes);
}

}  // namespace

void print_window(TextWriter& out, const WgmmaConfig& e) {
  const ConvolutionWindow& w = *e.window;
  const bool images = e.b.source == BoxedOperand::Source::images;
  const int line = images ? static_cast<int>(e.b.map.box[1]) : kStageLine / e.operand_bytes;
  const bool parts = e.a.has_parts() || e.b.has_parts();
  print_window(out, w, line, "Window", false, parts);
  if (e.a.of_result || e.b.of_result) print_window(out, w, line, "ResultWindow", true, parts);
  Dims order;
  for (const std::int64_t phase : deepest_first(w)) order.push_back(phase);
  if (!order.empty()) out.line("using DeepestFirst = {};", dims_type(order));
  if (!w.bounds.empty()) out.line("using Bounds = sinter::List<{}>;", bounds_of_results(w.bounds));
}

std::string bounds_of_results(const std::vector<ResultBound>& bounds) {
  std::string text;
  for (const ResultBound& b : bounds)
    text += fmt::format("{}sinter::contraction::Bound<{}, {}>", text.empty() ? "" : ", ", b.end,
                        dims_type(b.coefficient));
  return text;
}

}  // namespace sinter
