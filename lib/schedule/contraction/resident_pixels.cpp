// Convolutions whose pixels stay in shared memory for all taps.
#include <algorithm>
#include <numeric>
#include <set>

#include "plan/tma_limits.hpp"
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

// Of two or three axes, of which the inner two have taps, without strides and phases.
bool falls_into_blocks(const ConvolutionWindow& w) {
  constexpr std::int64_t kMostOver = 64;
  if (w.axes.size() < 2 || (w.axes[0].taps[0] == 1 && w.axes[1].taps[0] == 1)) return false;
  return std::all_of(w.axes.begin(), w.axes.end(), [](const WindowAxis& axis) {
    return axis.taps.size() == 1 && axis.step == 1 && most_offset(axis) <= kMostOver;
  });
}

// A third axis: its taps see images of their own. So many lines lie between their pixels that those
// of each tap come in turn.
constexpr std::size_t kDepth = 2;
void take_depth_apart(ConvolutionWindow& w) {
  if (w.axes.size() > kDepth && w.axes[kDepth].taps[0] > 1) w.axes[kDepth].apart = true;
}

// The image in blocks of so many pixels, in the width of which the fewest lines are loaded, those
// behind the image's ends included. Where columns have taps, eight pixels are wide: see
// contraction_window_resident.cuh.
void make_blocks(ImplicitGemm& g, std::int64_t pixels) {
  WindowAxis &across = g.window.axes[0], &down = g.window.axes[1];
  const auto blocks = [](std::int64_t extent, std::int64_t run) {
    return (extent + run - 1) / run;
  };
  const std::int64_t over = most_offset(down), beside = most_offset(across);
  const auto lines = [&](std::int64_t width) {
    const std::int64_t height = pixels / width;
    return blocks(across.result, width) * blocks(down.result, height) * width * (height + over);
  };
  std::int64_t width = 8;
  if (beside == 0)
    for (const std::int64_t other : {16, 32})
      if (lines(other) < lines(width)) width = other;
  const std::int64_t height = pixels / width;
  g.window.blocks = {blocks(across.result, width), blocks(down.result, height)};
  across.result = width;
  down.result = height;
  if (g.window.axes.size() > kDepth) {
    g.window.blocks.push_back(g.window.axes[kDepth].result);
    g.window.axes[kDepth].result = 1;
  }
  g.image.source = BoxedOperand::Source::blocks;
  g.image.map.lower = g.image.map.upper = g.image.map.step = {};
  g.image.map.box = {kStageLine / info(g.image.map.type).bytes, width + beside, height + over, 1};
  if (g.window.axes.size() > kDepth) g.image.map.box.push_back(1);
}

}  // namespace

bool has_parts(const ConvolutionWindow& w) {
  return std::any_of(w.axes.begin(), w.axes.end(),
                     [](const WindowAxis& axis) { return axis.part.index >= 0; });
}

std::int64_t block_lines(const BoxedOperand& image) { return image.map.box[1] * image.map.box[2]; }

bool keep_pixels(ImplicitGemm& g, bool image_is_a) {
  const ContractionSpec& c = g.spec.contraction();
  ConvolutionWindow& w = g.window;
  if (!image_is_a || w.taps_of != ConvolutionWindow::Taps::k ||
      !g.spec.cross_row_reductions.empty())
    return false;
  std::int64_t taps = 1;
  for (const WindowAxis& axis : w.axes) {
    if (axis.taps.size() > 1) return false;
    taps *= axis.taps[0];
  }
  if (taps == 1) return false;
  take_depth_apart(w);
  const std::int64_t end = tma::kCornerEnd[w.axes.size() - 1];
  for (std::size_t i = 0; i < w.axes.size(); ++i) {
    WindowAxis& axis = w.axes[i];
    if (axis.apart) continue;  // TMA moves its pixels by the tap's offset
    const int index = c.first_n() - 1 - static_cast<int>(i), d = static_cast<int>(i);
    const std::int64_t extent = g.image.map.dim[d + 1], pitch = pitch_of(axis, extent);
    if (names_index(g.spec, index)) return false;
    if (pitch != axis.result) {
      ResultBound bound{Dims::filled(g.spec.extent.size(), 0), axis.result};
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
      ResultBound bound{Dims::filled(spec.extent.size() + 1, 0), w.channels};
      bound.coefficient[channel] = line;
      bound.coefficient[channel + 1] = 1;
      w.bounds.push_back(std::move(bound));
    }
    split_index(spec, channel, line);  // its line is at `channel` then
  } else if (w.channels < line) {
    ResultBound bound{Dims::filled(spec.extent.size(), 0), spec.extent[channel]};
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
  const auto place_of = [&](int index) {
    return static_cast<int>(std::find(order.begin(), order.end(), index) - order.begin());
  };
  const auto renumber = [&](std::vector<BatchStep>& steps) {
    for (auto& s : steps) s.index = place_of(s.index);
  };
  renumber(g.image.image_steps);
  renumber(g.other.image_steps);
  renumber(g.image.channel_steps);
  renumber(g.other.channel_steps);
  renumber(g.other.row_steps);
  for (WindowAxis& axis : w.axes)
    for (BatchStep* of : {&axis.part, &axis.tap})
      if (of->index >= 0) of->index = place_of(of->index);
  w.taps_of = ConvolutionWindow::Taps::batch;
  w.tap_batch.clear();
}

// Of k, those that tell images apart. A third axis may have none of k.
int image_indices(const ImplicitGemm& g) {
  int n = g.spec.contraction().k();
  for (const WindowAxis& axis : g.window.axes) n -= axis.part.index < 0 || axis.result > 1;
  return n;
}

// What both ways of keeping a filter gradient's pixels want.
bool keeps_gradient(const ImplicitGemm& g, bool image_is_a) {
  using Taps = ConvolutionWindow::Taps;
  const ConvolutionWindow& w = g.window;
  const ContractionSpec& c = g.spec.contraction();
  if (image_is_a || w.taps_of == Taps::k || g.image.k_fastest || !w.bounds.empty() ||
      !g.spec.cross_row_reductions.empty() || c.m != 1 || g.image.image_steps.size() > 1)
    return false;
  std::int64_t taps = 1;
  for (const WindowAxis& axis : w.axes) {
    if (axis.step != 1) return false;
    taps *= axis.taps[0];
  }
  const int images = image_indices(g);
  return taps > 1 && images >= 0 && images <= 1 && channel_indices(g) > 0;
}

// The result's gradient, walked over by pixels in the image's order; its channels are those of all
// groups. Nothing where batch entries move it otherwise.
std::optional<BoxedOperand> walked_result(const ImplicitGemm& g) {
  const KernelSpec& spec = g.spec;
  const Access& a = spec.ports[static_cast<std::size_t>(g.other.port)].access;
  BoxedOperand o = g.other;
  o.of_result = true;
  o.batch.clear();
  o.image_steps = g.image.image_steps;
  const auto moves = [](const std::vector<BatchStep>& steps, int index) {
    return std::any_of(steps.begin(), steps.end(),
                       [&](const BatchStep& s) { return s.index == index; });
  };
  for (int b : g.other.batch) {
    if (moves(o.image_steps, b) ||
        std::any_of(g.window.axes.begin(), g.window.axes.end(),
                    [&](const WindowAxis& axis) { return axis.part.index == b; }))
      continue;
    if (!moves(g.image.channel_steps, b)) return {};
    o.channel_steps.push_back({b, a.stride[b]});
    o.map.dim[0] += a.stride[b] * (spec.extent[b] - 1);
  }
  if (o.map.dim[0] > a.stride[spec.extent.size() - 1]) return {};  // channels of a pixel
  return o;
}

// The taps of an axis, which are the outermost columns or batch entries, become batch entries that
// move the pixels of a tile.
void number_by_batch(ImplicitGemm& g, WindowAxis& axis) {
  ConvolutionWindow& w = g.window;
  ContractionSpec& c = g.spec.contraction();
  if (w.taps_of == ConvolutionWindow::Taps::batch) {
    axis.tap.index = w.tap_batch.front();
    w.tap_batch.erase(w.tap_batch.begin());
  } else {
    std::vector<int> order(static_cast<std::size_t>(g.spec.extent.size()));
    std::iota(order.begin(), order.end(), 0);
    axis.tap.index = c.batch;
    std::rotate(order.begin() + c.batch, order.begin() + c.first_n(),
                order.begin() + c.first_n() + 1);
    reorder(g.spec, order);
    ++c.batch;
    --c.n;
  }
  axis.tap.step = axis.offset_step;
  axis.first += axis.first_offset[0];
  axis.taps = {1};
  axis.first_tap = axis.first_offset = {0};
}

// The taps of outer axes whose pixels do not stay: of a third one, between whose taps lie the lines
// of whole images, and as many as leave those of a tile. False where the pixels' source moves by no
// such tap.
bool number_outer_taps(ImplicitGemm& g, bool blocks) {
  std::vector<WindowAxis>& axes = g.window.axes;
  const auto taps = [&] {
    return std::accumulate(axes.begin(), axes.end(), std::int64_t{1},
                           [](std::int64_t n, const WindowAxis& axis) { return n * axis.taps[0]; });
  };
  for (std::size_t i = axes.size(); i-- > 1;) {
    if (axes[i].taps[0] == 1 || (taps() <= kMostTapsOfTile && !(blocks && i == kDepth))) continue;
    if (!blocks && axes[i].first_offset[0] != 0) return false;  // TMA moves pixels to one side
    number_by_batch(g, axes[i]);
  }
  return true;
}

}  // namespace

bool keep_blocks(ImplicitGemm& g, bool image_is_a) {
  const ContractionSpec& c = g.spec.contraction();
  ConvolutionWindow& w = g.window;
  if (!image_is_a || w.taps_of != ConvolutionWindow::Taps::k ||
      !g.spec.cross_row_reductions.empty() || !w.bounds.empty() || !g.image.image_steps.empty() ||
      !falls_into_blocks(w))
    return false;
  const int row = c.first_n() - 2, column = c.first_n() - 1;
  if (names_index(g.spec, row) || names_index(g.spec, column)) return false;
  const Dims extent = {w.axes[0].result, w.axes[1].result};
  take_depth_apart(w);
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
    ResultBound bound{Dims::filled(g.spec.extent.size(), 0), extent[i]};
    bound.coefficient[row + 1 - i] = run;
    bound.coefficient[row + 3 - i] = 1;
    w.bounds.push_back(std::move(bound));
  }
  return true;
}

bool keep_gradient_pixels(ImplicitGemm& g, bool image_is_a) {
  if (!keeps_gradient(g, image_is_a) || has_parts(g.window) || !number_outer_taps(g, false))
    return false;
  ConvolutionWindow& w = g.window;
  KernelSpec& spec = g.spec;
  ContractionSpec& c = spec.contraction();
  const int rank = static_cast<int>(w.axes.size()), images = c.k() - rank;  // indices
  const bool parts = !g.image.image_steps.empty();
  if (parts && (rank == kMostAxes || images == 0)) return false;

  // The result's gradient, by pixels instead of boxes of joined ones.
  const Access of_result = spec.ports[static_cast<std::size_t>(g.other.port)].access;
  const int bytes = info(g.other.map.type).bytes;
  auto walked = walked_result(g);
  if (!walked) return false;
  BoxedOperand& result = *walked;
  result.source = BoxedOperand::Source::pixels;
  result.map.dim = {result.map.dim[0]};
  result.map.stride = {};
  const int first_k = c.first_k();
  const std::int64_t end = tma::kCornerEnd[static_cast<std::size_t>(rank - 1 + parts)];
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
                 : tma::any_step(result.map.dim[rank] * result.map.stride[rank - 1]);
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
  if (!keeps_gradient(g, image_is_a) || !falls_into_blocks(g.window) || !number_outer_taps(g, true))
    return false;
  KernelSpec& spec = g.spec;
  const ContractionSpec& c = spec.contraction();
  const int bytes = info(g.other.map.type).bytes, first_k = c.first_k(),
            column = first_k + c.k() - 1, line = kStageLine / bytes;
  const Access of_result = spec.ports[static_cast<std::size_t>(g.other.port)].access;
  const bool images = image_indices(g) > 0, parts = !g.image.image_steps.empty();
  auto walked = walked_result(g);
  if (!walked) return false;
  BoxedOperand& result = *walked;
  result.source = BoxedOperand::Source::blocks;
  // Pixels of the result's gradient, those of all parts of an image together.
  Dims pixels, strides;
  for (int i = 0; i < static_cast<int>(g.window.axes.size()); ++i) {
    const WindowAxis& axis = g.window.axes[static_cast<std::size_t>(i)];
    const BatchStep& part = axis.part;
    pixels.push_back(axis.result);
    if (part.index < 0) {
      strides.push_back(of_result.stride[column - i]);
      continue;
    }
    strides.push_back(of_result.stride[part.index] / part.step);
    // The next part's results are as many away as its pixels are. Not so where a part is one pixel
    // of a convolution with a stride, which no index of pixels tells of then.
    if (axis.result == 1 ? part.step != 1
                         : of_result.stride[column - i] * part.step != of_result.stride[part.index])
      return false;
    pixels[i] += part.step * (spec.extent[part.index] - 1);
  }
  std::int64_t count = images ? spec.extent[first_k] : 1,
               step = images  ? of_result.stride[first_k]
                      : parts ? of_result.stride[g.image.image_steps.front().index] /
                                    g.image.image_steps.front().step
                              : strides.back() * pixels.back();
  if (parts) {
    const auto& part = g.image.image_steps.front();
    if (of_result.stride[part.index] != step * part.step) return false;
    count += part.step * (spec.extent[part.index] - 1);
  }
  result.map.dim = {result.map.dim[0]};
  result.map.stride = {};
  for (int i = 0; i < pixels.size(); ++i) {
    result.map.dim.push_back(pixels[i]);
    result.map.stride.push_back(strides[i] * bytes);
  }
  result.map.dim.push_back(count);
  result.map.stride.push_back(step * bytes);
  make_blocks(g, line);
  const WindowAxis &across = g.window.axes[0], &down = g.window.axes[1];
  for (const WindowAxis* axis : {&across, &down})  // blocks end where parts do
    if (axis->part.index >= 0 && axis->part.step % axis->result != 0) return false;
  result.map.box = {line, across.result, down.result, 1};
  if (g.window.axes.size() > kDepth) result.map.box.push_back(1);
  spec.extent[column - 1] = g.window.blocks[1] * down.result;
  spec.extent[column] = g.window.blocks[0] * across.result;
  g.other = std::move(result);
  number_columns_by_lines(g);
  return true;
}

std::int64_t reach_of(const ConvolutionWindow& w) {
  std::int64_t lines = 0, pitch = 1;
  for (const WindowAxis& axis : w.axes) {
    if (axis.apart) continue;
    lines += most_offset(axis) / axis.step * pitch;
    pitch *= axis.result;
  }
  return lines;
}

int planes_of(const ConvolutionWindow& w) {
  int planes = 1;
  for (const WindowAxis& axis : w.axes) {
    if (axis.apart) {
      planes *= static_cast<int>(axis.taps[0]);
      continue;
    }
    std::set<std::int64_t> rests;
    for (std::int64_t t = 0; t < axis.taps[0]; ++t)
      rests.insert((axis.first_offset[0] + t * axis.offset_step) % axis.step);
    planes *= static_cast<int>(rests.size());
  }
  return planes;
}

}  // namespace sinter
