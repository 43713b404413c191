// Convolutions whose pixels stay in shared memory for all taps.
#include <algorithm>
#include <numeric>
#include <set>

#include "schedule/contraction/implicit_gemm.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

// The largest offset of a tap, of the first phase.
std::int64_t most_offset(const WindowAxis& axis) {
  return std::max(axis.first_offset[0],
                  axis.first_offset[0] + (axis.taps[0] - 1) * axis.offset_step);
}

// Neighbouring lines of pixels share the zeros between them: positions of a line, so that what a
// tap reads past its end is zero and lies at the start of the next. With a stride positions are
// those of a plane, whose pixels leave the same rest. `extent`: pixels of the image.
std::int64_t pitch_of(const WindowAxis& axis, std::int64_t extent) {
  const std::int64_t reach = most_offset(axis) / axis.step, apart = axis.result + reach;
  const auto zeros_meet = [&](std::int64_t pitch) {
    for (std::int64_t t = 0; t < axis.taps[0]; ++t) {
      const std::int64_t offset = axis.first_offset[0] + t * axis.offset_step,
                         last = axis.result - 1 + offset / axis.step, rest = offset % axis.step,
                         over = axis.first + axis.step * pitch + rest,
                         next = axis.first + axis.step * (last - pitch) + rest;
      if (last >= pitch && (over < extent || next >= 0)) return false;
    }
    return true;
  };
  std::int64_t pitch = axis.result;
  while (pitch < apart && !zeros_meet(pitch)) ++pitch;
  return pitch;
}

// Of two axes only the rows have taps, without strides and phases.
bool taps_down_only(const ConvolutionWindow& w) {
  if (w.axes.size() != 2 || w.axes[0].taps[0] != 1 || w.axes[1].taps[0] == 1) return false;
  return std::all_of(w.axes.begin(), w.axes.end(), [](const WindowAxis& axis) {
    return axis.taps.size() == 1 && axis.step == 1;
  });
}

// The image in blocks of so many pixels, in the width of which the fewest lines are loaded, those
// behind the image's ends included.
void make_blocks(ImplicitGemm& g, std::int64_t pixels) {
  WindowAxis &across = g.window.axes[0], &down = g.window.axes[1];
  const auto blocks = [](std::int64_t extent, std::int64_t run) {
    return (extent + run - 1) / run;
  };
  const std::int64_t over = most_offset(down);
  const auto lines = [&](std::int64_t width) {
    const std::int64_t height = pixels / width;
    return blocks(across.result, width) * blocks(down.result, height) * width * (height + over);
  };
  std::int64_t width = 8;
  for (const std::int64_t other : {16, 32})
    if (lines(other) < lines(width)) width = other;
  const std::int64_t height = pixels / width;
  g.window.blocks = {blocks(across.result, width), blocks(down.result, height)};
  across.result = width;
  down.result = height;
  g.image.source = BoxedOperand::Source::blocks;
  g.image.map.lower = g.image.map.upper = g.image.map.step = {};
  g.image.map.box = {kStageLine / info(g.image.map.type).bytes, width, height + over, 1};
}

}  // namespace

bool keep_pixels(ImplicitGemm& g, bool image_is_a) {
  const ContractionSpec& c = g.spec.contraction();
  ConvolutionWindow& w = g.window;
  if (!image_is_a || w.taps_of != ConvolutionWindow::Taps::k || !g.spec.columns.empty())
    return false;
  std::int64_t taps = 1;
  for (const WindowAxis& axis : w.axes) {
    if (axis.taps.size() > 1) return false;
    taps *= axis.taps[0];
  }
  if (taps == 1) return false;
  const std::int64_t end = kCornerEnd[w.axes.size() - 1];
  for (std::size_t i = 0; i < w.axes.size(); ++i) {
    WindowAxis& axis = w.axes[i];
    const int index = c.first_n() - 1 - static_cast<int>(i), d = static_cast<int>(i);
    const std::int64_t extent = g.image.map.dim[d + 1], pitch = pitch_of(axis, extent);
    if (names_index(g.spec, index)) return false;
    if (pitch != axis.result) {
      ConvolutionWindow::Bound bound{Dims::filled(g.spec.extent.size(), 0), axis.result};
      bound.coefficient[index] = 1;
      w.bounds.push_back(std::move(bound));
    }
    g.spec.extent[index] = axis.result = pitch;
    g.image.map.upper[d] = axis.first + (pitch - 1) * axis.step + 1 - extent;
    if (g.image.map.upper[d] < -end || g.image.map.upper[d] >= end) return false;
  }
  return true;
}

namespace {

// Of a filter gradient, whose channels are the innermost columns: their indices. 0: lines cannot be
// made of them. Taps are the other columns, or batch entries.
int channel_indices(const ImplicitGemm& g) {
  const ContractionSpec& c = g.spec.contraction();
  const ConvolutionWindow& w = g.window;
  int n = c.n;
  if (w.taps_of == ConvolutionWindow::Taps::columns)
    for (const WindowAxis& axis : w.axes) n -= axis.taps[0] > 1;
  if (n < 2) return n;
  const std::int64_t line = kStageLine / info(g.image.map.type).bytes,
                     inner = w.channels / g.spec.extent[c.first_k() - n];
  return w.channels <= line && line % inner == 0 ? n : 0;
}

// Its columns become lines of channels, taps, channels. Several indices of channels become one
// line, which the outermost of them fills up.
void number_columns_by_lines(ImplicitGemm& g) {
  ConvolutionWindow& w = g.window;
  KernelSpec& spec = g.spec;
  ContractionSpec& c = spec.contraction();
  const int line = kStageLine / info(g.image.map.type).bytes, channels = channel_indices(g);
  int channel = c.first_k() - channels;
  if (channels == 1) {
    if (w.channels % line != 0) {
      ConvolutionWindow::Bound bound{Dims::filled(spec.extent.size() + 1, 0), w.channels};
      bound.coefficient[channel] = line;
      bound.coefficient[channel + 1] = 1;
      w.bounds.push_back(std::move(bound));
    }
    split_index(spec, channel, line);  // its line is at `channel` then
  } else if (w.channels < line) {
    ConvolutionWindow::Bound bound{Dims::filled(spec.extent.size(), 0), spec.extent[channel]};
    bound.coefficient[channel] = 1;
    w.bounds.push_back(std::move(bound));
    spec.extent[channel] *= line;
    spec.extent[channel] /= w.channels;
  }
  std::vector<int> order, of_taps;
  for (int i = 0; i < c.batch; ++i)
    (std::find(w.tap_batch.begin(), w.tap_batch.end(), i) != w.tap_batch.end() ? of_taps : order)
        .push_back(i);
  const int batch = static_cast<int>(order.size());
  for (int i = c.first_m(); i < c.first_n(); ++i) order.push_back(i);
  for (int i = c.first_n(); i < channel; ++i) of_taps.push_back(i);
  if (channels == 1) order.push_back(channel++);
  order.insert(order.end(), of_taps.begin(), of_taps.end());
  for (int i = channel; i < spec.extent.size(); ++i) order.push_back(i);
  c.n = c.first_k() - c.first_n() + (batch == c.batch ? 0 : static_cast<int>(w.tap_batch.size()));
  c.batch = batch;
  reorder(spec, order);
  for (auto& b : w.bounds) {
    Dims r;
    for (int i : order) r.push_back(b.coefficient[i]);
    b.coefficient = r;
  }
  const auto renumber = [&](std::vector<BoxedOperand::BatchStep>& steps) {
    for (auto& s : steps)
      s.index = static_cast<int>(std::find(order.begin(), order.end(), s.index) - order.begin());
  };
  renumber(g.image.image_steps);
  renumber(g.other.image_steps);
  w.taps_of = ConvolutionWindow::Taps::batch;
  w.tap_batch.clear();
}

// What both ways of keeping a filter gradient's pixels want.
bool keeps_gradient(const ImplicitGemm& g, bool image_is_a) {
  using Taps = ConvolutionWindow::Taps;
  const ConvolutionWindow& w = g.window;
  const ContractionSpec& c = g.spec.contraction();
  if (image_is_a || w.taps_of == Taps::k || !w.bounds.empty() || !g.spec.columns.empty() ||
      c.m != 1 || g.image.image_steps.size() > 1 || !g.image.channel_steps.empty())
    return false;
  std::int64_t taps = 1;
  for (const WindowAxis& axis : w.axes) {
    if (axis.step != 1) return false;
    taps *= axis.taps[0];
  }
  const int images = c.k() - static_cast<int>(w.axes.size());  // indices
  return taps > 1 && images >= 0 && images <= 1 && (g.image.image_steps.empty() || images == 1) &&
         channel_indices(g) > 0;
}

}  // namespace

bool keep_blocks(ImplicitGemm& g, bool image_is_a) {
  const ContractionSpec& c = g.spec.contraction();
  ConvolutionWindow& w = g.window;
  if (!image_is_a || w.taps_of != ConvolutionWindow::Taps::k || !g.spec.columns.empty() ||
      !w.bounds.empty() || !g.image.image_steps.empty() || !taps_down_only(w))
    return false;
  const int row = c.first_n() - 2, column = c.first_n() - 1;
  if (names_index(g.spec, row) || names_index(g.spec, column)) return false;
  const Dims extent = {w.axes[0].result, w.axes[1].result};
  make_blocks(g, kBlockPixels);
  const std::int64_t width = w.axes[0].result, height = w.axes[1].result;
  // Blocks, outermost first, then rows and columns of a block.
  split_index(g.spec, row, height);
  split_index(g.spec, column + 1, width);
  std::vector<int> order(static_cast<std::size_t>(g.spec.extent.size()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(row) + 1], order[static_cast<std::size_t>(row) + 2]);
  reorder(g.spec, order);
  for (int i = 0; i < 2; ++i) {
    const std::int64_t run = w.axes[static_cast<std::size_t>(i)].result;
    if (extent[i] % run == 0) continue;
    ConvolutionWindow::Bound bound{Dims::filled(g.spec.extent.size(), 0), extent[i]};
    bound.coefficient[row + 1 - i] = run;
    bound.coefficient[row + 3 - i] = 1;
    w.bounds.push_back(std::move(bound));
  }
  return true;
}

bool keep_gradient_pixels(ImplicitGemm& g, bool image_is_a) {
  if (!keeps_gradient(g, image_is_a)) return false;
  ConvolutionWindow& w = g.window;
  KernelSpec& spec = g.spec;
  ContractionSpec& c = spec.contraction();
  const int rank = static_cast<int>(w.axes.size()), images = c.k() - rank;  // indices
  const bool parts = !g.image.image_steps.empty();
  if (parts && rank == kMostAxes) return false;

  // The result's gradient, by pixels instead of boxes of joined ones.
  const Access of_result = spec.ports[static_cast<std::size_t>(g.other.port)].access;
  const int bytes = info(g.other.map.type).bytes;
  BoxedOperand result = g.other;
  result.source = BoxedOperand::Source::pixels;
  result.of_result = true;
  result.batch.clear();
  result.image_steps = g.image.image_steps;
  result.map.dim = {g.other.map.dim[0]};
  result.map.stride = {};
  const int first_k = c.first_k();
  const std::int64_t end = kCornerEnd[static_cast<std::size_t>(rank - 1 + parts)];
  for (int i = 0; i < rank; ++i) {
    WindowAxis& axis = w.axes[static_cast<std::size_t>(i)];
    const int index = first_k + c.k() - 1 - i;
    const std::int64_t extent = g.image.map.dim[i + 1], pixels = axis.result,
                       pitch = pitch_of(axis, extent);
    result.map.dim.push_back(pixels);
    result.map.stride.push_back(of_result.stride[index] * bytes);
    result.map.lower.push_back(0);
    result.map.upper.push_back(pitch - pixels);
    result.map.step.push_back(1);
    spec.extent[index] = axis.result = pitch;
    g.image.map.upper[i] = axis.first + pitch - extent;
    for (const BoxedOperand* o : {&g.image, &result})
      if (o->map.lower[i] < -end || o->map.upper[i] < -end || o->map.upper[i] >= end) return false;
  }
  // Images of a part are a dim of their own, so that a part's last stage reads no other part's.
  const std::int64_t each = images > 0 ? spec.extent[first_k] : 1;
  const std::int64_t result_step =
      images > 0 ? of_result.stride[first_k] * bytes
                 : (result.map.dim[rank] * result.map.stride[rank - 1] + 15) / 16 * 16;
  result.map.dim.push_back(each);
  result.map.stride.push_back(result_step);
  if (parts) {
    const auto& part = g.image.image_steps.front();
    const std::int64_t count = spec.extent[part.index];
    if (part.step != each || of_result.stride[part.index] != of_result.stride[first_k] * each)
      return false;
    for (BoxedOperand* o : {&g.image, &result}) {
      o->map.dim[rank + 1] = each;
      o->map.dim.push_back(count);
      o->map.stride.push_back(o->map.stride[rank] * each);
      o->map.lower.push_back(0);
      o->map.upper.push_back(1);
      o->map.step.push_back(1);
      o->image_steps = {{part.index, 1}};
    }
    WindowAxis of_images;
    of_images.result = each + 1;
    w.axes.push_back(of_images);
  }
  g.other = std::move(result);

  number_columns_by_lines(g);
  return true;
}

bool keep_gradient_blocks(ImplicitGemm& g, bool image_is_a) {
  if (!keeps_gradient(g, image_is_a) || !taps_down_only(g.window)) return false;
  KernelSpec& spec = g.spec;
  const ContractionSpec& c = spec.contraction();
  const int bytes = info(g.other.map.type).bytes, first_k = c.first_k(),
            column = first_k + c.k() - 1, line = kStageLine / bytes;
  const Access of_result = spec.ports[static_cast<std::size_t>(g.other.port)].access;
  const bool images = c.k() > 2, parts = !g.image.image_steps.empty();
  std::int64_t count = images ? spec.extent[first_k] : 1,
               step = images ? of_result.stride[first_k]
                             : of_result.stride[column - 1] * g.window.axes[1].result;
  BoxedOperand result = g.other;
  result.source = BoxedOperand::Source::blocks;
  result.of_result = true;
  result.batch.clear();
  result.image_steps = g.image.image_steps;
  if (parts) {
    const auto& part = g.image.image_steps.front();
    if (of_result.stride[part.index] != step * part.step) return false;
    count += part.step * (spec.extent[part.index] - 1);
  }
  result.map.dim = {g.other.map.dim[0], g.window.axes[0].result, g.window.axes[1].result, count};
  result.map.stride = {of_result.stride[column] * bytes, of_result.stride[column - 1] * bytes,
                       step * bytes};
  make_blocks(g, line);
  const WindowAxis &across = g.window.axes[0], &down = g.window.axes[1];
  result.map.box = {line, across.result, down.result, 1};
  spec.extent[column - 1] = g.window.blocks[1] * down.result;
  spec.extent[column] = g.window.blocks[0] * across.result;
  g.other = std::move(result);
  number_columns_by_lines(g);
  return true;
}

std::int64_t reach_of(const ConvolutionWindow& w) {
  std::int64_t lines = 0, pitch = 1;
  for (const WindowAxis& axis : w.axes) {
    lines += most_offset(axis) / axis.step * pitch;
    pitch *= axis.result;
  }
  return lines;
}

int planes_of(const ConvolutionWindow& w) {
  int planes = 1;
  for (const WindowAxis& axis : w.axes) {
    std::set<std::int64_t> rests;
    for (std::int64_t t = 0; t < axis.taps[0]; ++t)
      rests.insert((axis.first_offset[0] + t * axis.offset_step) % axis.step);
    planes *= static_cast<int>(rests.size());
  }
  return planes;
}

}  // namespace sinter
