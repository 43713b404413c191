// Convolutions in every kind of configuration that planning may choose: pixels loaded for each tap
// or kept for all of them, operands as they come or exchanged, k split or not; on images whose
// lines, pixels and channels end in, before and after a tile's.
#include <fmt/format.h>

#include <array>

#include "gpu/configurations.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

enum class Direction { fprop, dgrad, wgrad };
enum class Epilogue { none, scale, scale_residual };

struct Convolution {
  Direction direction;
  std::int64_t images, channels, filters, height, width, filter;
  std::int64_t stride = 1, dilation = 1, pad = 0;
  Epilogue epilogue = Epilogue::none;
  DataType io = bf16;
  bool one_column = false;  // of the filter
  DataType compute = f32;
  double infinite = 0;  // every so manyth pixel of those that lie one behind another
  Dims taps() const { return {filter, one_column ? 1 : filter}; }
  Dims padding() const { return {pad, one_column ? 0 : pad}; }
};

Dims channels_last(std::int64_t c, std::int64_t h, std::int64_t w) {
  return {c * h * w, 1, c * w, c};
}

Shared<Graph> graph_of(const Convolution& p, const std::string& name) {
  auto g = Shared<Graph>::make(GraphOptions{.name = name,
                                            .io = p.io,
                                            .intermediate = p.compute == i32 ? i32 : f32,
                                            .compute = p.compute});
  // Of 16 bits as wide as the operands, of others 32.
  const DataType results = info(p.io).bytes == 2 ? p.io : p.compute == i32 ? i32 : f32;
  const Dims taps = p.taps(), padding = p.padding();
  const auto result = [&](int i, std::int64_t size) {
    return (size + 2 * padding[i] - p.dilation * (taps[i] - 1) - 1) / p.stride + 1;
  };
  const std::int64_t h = result(0, p.height), w = result(1, p.width);
  const auto tensor = [&](const char* of, std::int64_t n, std::int64_t c, std::int64_t height,
                          std::int64_t width) {
    return g->tensor(
        {.name = of, .dim = {n, c, height, width}, .stride = channels_last(c, height, width)});
  };
  const ConvAttributes options{.pre_padding = padding,
                               .post_padding = padding,
                               .stride = {p.stride, p.stride},
                               .dilation = {p.dilation, p.dilation}};
  const auto pixels = [&](const char* of, std::int64_t n, std::int64_t c, std::int64_t height,
                          std::int64_t width) {
    const Tensor t = tensor(of, n, c, height, width);
    if (p.infinite == 0) return t;
    const auto place = gen_index(t, 2) * static_cast<double>(width) + gen_index(t, 3);
    const Tensor some = t / (place - floor(place / p.infinite) * p.infinite > 0.5);
    return g->output(some, std::string("some_of_") + of,
                     {.stride = channels_last(c, height, width)});
  };
  const auto image = [&] { return pixels("x", p.images, p.channels, p.height, p.width); };
  const auto filter = [&] { return tensor("w", p.filters, p.channels, taps[0], taps[1]); };
  // The filters fastest, as wgmma wants them of a data gradient that has not 16 bits.
  const auto turned_filter = [&] {
    const std::int64_t k = p.filters, r = taps[0], s = taps[1];
    return g->tensor(
        {.name = "w", .dim = {k, p.channels, r, s}, .stride = {1, k * r * s, k * s, k}});
  };
  const auto gradient = [&] {
    const char* const name = "dy";
    return p.direction == Direction::dgrad ? pixels(name, p.images, p.filters, h, w)
                                           : tensor(name, p.images, p.filters, h, w);
  };
  switch (p.direction) {
    case Direction::fprop: {
      auto y = conv_fprop(image(), filter(), options);
      if (p.epilogue != Epilogue::none)
        y = relu(y * g->tensor({.name = "scale", .dim = {1, p.filters, 1, 1}, .data_type = f32}));
      if (p.epilogue == Epilogue::scale_residual)
        y = relu(y + tensor("residual", p.images, p.filters, h, w));
      g->output(y, "y", {.stride = channels_last(p.filters, h, w), .data_type = results});
      break;
    }
    case Direction::dgrad:
      g->output(conv_dgrad(gradient(), info(p.io).bytes == 2 ? filter() : turned_filter(),
                           {p.images, p.channels, p.height, p.width}, options),
                "dx",
                {.stride = channels_last(p.channels, p.height, p.width), .data_type = results});
      break;
    case Direction::wgrad:
      g->output(conv_wgrad(gradient(), image(), {p.filters, p.channels, taps[0], taps[1]}, options),
                "dw", {.stride = channels_last(p.channels, taps[0], taps[1]), .data_type = f32});
      break;
  }
  return g;
}

void run_all(const std::vector<Convolution>& problems) {
  std::vector<GraphSource> all;
  for (const Convolution& p : problems) {
    const std::string name = fmt::format(
        "{} n{} c{} k{} {}x{} by {}x{}", std::array{"fprop", "dgrad", "wgrad"}[int(p.direction)],
        p.images, p.channels, p.filters, p.height, p.width, p.taps()[0], p.taps()[1]);
    all.push_back({name, all.size(), [p, name] { return graph_of(p, name); }, {}});
  }
  run_configurations(all, {.one_of_a_kind = true});
}

// Some pixels are infinite or NaN: every `step`-th of those that lie one behind another.
Shared<Graph> graph_of_nonfinite(std::int64_t filter, std::int64_t stride, double step, DataType io,
                                 std::int64_t of_group = 1) {
  const Dims dim{3, 40, 17, 22}, w{40, of_group, filter, filter};
  auto g = Shared<Graph>::make(GraphOptions{.io = io});
  const auto last = [](const Dims& d) { return channels_last(d[1], d[2], d[3]); };
  const auto x = g->tensor({.name = "x", .dim = dim, .stride = last(dim)});
  const auto place = gen_index(x, 2) * 22.0 + gen_index(x, 3);
  const auto pixels = x / (place - floor(place / step) * step > 0.5);
  g->output(pixels, "pixels", {.stride = last(dim)});
  const std::int64_t pad = filter / 2;
  const auto y = conv_fprop(pixels, g->tensor({.name = "w", .dim = w, .stride = last(w)}),
                            {.pre_padding = {pad, pad},
                             .post_padding = {pad, pad},
                             .stride = {stride, stride},
                             .groups = 40 / of_group});
  const std::int64_t p = (17 - 1) / stride + 1, q = (22 - 1) / stride + 1;
  g->output(y, "y", {.stride = channels_last(40, p, q)});
  if (of_group > 1) return g;
  const auto dy =
      g->tensor({.name = "dy", .dim = {3, 40, p, q}, .stride = channels_last(40, p, q)});
  g->output(conv_wgrad(dy, pixels, w,
                       {.pre_padding = {pad, pad},
                        .post_padding = {pad, pad},
                        .stride = {stride, stride},
                        .groups = 40}),
            "dw", {.data_type = f32});
  return g;
}

// Three dims, 3 taps each, or groups of channels.
struct Volume {
  Direction direction;
  Dims image;  // images, channels, depth, height, width
  std::int64_t filters, groups = 1;
};
Shared<Graph> graph_of_volume(const Volume& v) {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const std::int64_t channels = v.image[1], depth = v.image[2];
  Dims y = v.image, w{v.filters, channels / v.groups, depth > 1 ? 3 : 1, 3, 3};
  y[1] = v.filters;
  const auto tensor = [&](const char* of, const Dims& d) {
    return g->tensor(
        {.name = of,
         .dim = d,
         .stride = {d[1] * d[2] * d[3] * d[4], 1, d[1] * d[3] * d[4], d[1] * d[4], d[1]}});
  };
  const std::int64_t pad = depth > 1 ? 1 : 0;
  const ConvAttributes options{.pre_padding = {pad, 1, 1},
                               .post_padding = {pad, 1, 1},
                               .stride = {1, 1, 1},
                               .dilation = {1, 1, 1},
                               .groups = v.groups};
  switch (v.direction) {
    case Direction::fprop:
      g->output(conv_fprop(tensor("x", v.image), tensor("w", w), options), "y",
                {.stride = {y[1] * y[2] * y[3] * y[4], 1, y[1] * y[3] * y[4], y[1] * y[4], y[1]}});
      break;
    case Direction::dgrad:
      g->output(conv_dgrad(tensor("dy", y), tensor("w", w), v.image, options), "dx",
                {.stride = {channels * depth * v.image[3] * v.image[4], 1,
                            channels * v.image[3] * v.image[4], channels * v.image[4], channels}});
      break;
    case Direction::wgrad:
      g->output(conv_wgrad(tensor("dy", y), tensor("x", v.image), w, options), "dw",
                {.stride = {w[1] * w[2] * w[3] * w[4], 1, w[1] * w[3] * w[4], w[1] * w[4], w[1]},
                 .data_type = f32});
      break;
  }
  return g;
}

constexpr auto fprop = Direction::fprop, dgrad = Direction::dgrad, wgrad = Direction::wgrad;

}  // namespace

TEST_CASE("forward convolutions, each kind of configuration", "[convolution]") {
  run_all({{fprop, 3, 64, 64, 9, 11, 3, 1, 1, 1},
           {fprop, 3, 64, 40, 12, 9, 3, 1, 1, 1, Epilogue::scale, f16},
           {fprop, 2, 72, 136, 7, 7, 3, 1, 2, 2, Epilogue::scale_residual},
           {fprop, 2, 64, 128, 9, 8, 3, 2, 1, 1, Epilogue::scale_residual, f16}});
}

TEST_CASE("data gradients of convolutions, each kind of configuration", "[convolution]") {
  run_all({{dgrad, 2, 64, 72, 8, 10, 3, 1, 1, 1},
           {dgrad, 2, 16, 72, 9, 11, 3, 1, 1, 1},
           {dgrad, 3, 128, 64, 9, 9, 3, 2, 1, 1}});
}

// With SINTER_REARRANGE=last small images, too, join neighbouring pixels: Z in blocks of the image,
// several indices of channels in a line, columns that are blocks of pixels and leave in pieces.
TEST_CASE("first layers, each kind of configuration", "[.][first_layers]") {
  run_all({{fprop, 2, 3, 64, 38, 42, 7, 2, 1, 3, Epilogue::scale},
           {fprop, 3, 32, 72, 13, 18, 3, 2, 1, 1, Epilogue::scale_residual},
           {dgrad, 2, 4, 72, 16, 20, 3, 1, 1, 1, Epilogue::none, f16},
           {wgrad, 3, 3, 40, 18, 20, 7, 2, 1, 3, Epilogue::none, f16}});
}

// With SINTER_REARRANGE=last 8-bit numbers are written as bf16.
TEST_CASE("first layers of 8 bits, each kind of configuration", "[.][first_layers]") {
  constexpr auto none = Epilogue::none, scale = Epilogue::scale;
  run_all({{fprop, 2, 24, 40, 9, 11, 3, 1, 1, 1, scale, f8e4m3},
           {dgrad, 2, 20, 24, 8, 9, 3, 2, 1, 1, none, i8, false, i32},
           {wgrad, 2, 20, 24, 9, 8, 3, 1, 1, 1, none, i8, false, i32}});
}

// With SINTER_REARRANGE=last pixels without products are computed in a kernel of their own.
TEST_CASE("pixels without products", "[.][first_layers]") {
  const Convolution p{dgrad, 2, 72, 64, 10, 14, 1, 2, 1, 0, Epilogue::scale};
  run_as_chosen({{"strided 1x1", 0, [p] { return graph_of(p, "strided 1x1"); }, {}}});
}

// Pixels reach the results whose windows they lie in, and no others.
TEST_CASE("convolutions of infinite pixels, each kind of configuration", "[convolution]") {
  constexpr auto none = Epilogue::none, residual = Epilogue::scale_residual;
  run_all({{fprop, 2, 64, 64, 9, 11, 3, 2, 1, 1, residual, f16, false, f32, 31},
           {dgrad, 2, 64, 72, 8, 10, 3, 1, 1, 1, none, bf16, false, f32, 31}});
}

// Where k runs over the zeros beside the image, pixels of a line meet no result of the one before.
TEST_CASE("filter gradients of infinite pixels, each kind of configuration", "[convolution]") {
  constexpr auto none = Epilogue::none;
  run_all({{wgrad, 3, 64, 64, 9, 11, 3, 1, 1, 1, none, bf16, false, f32, 11},
           {wgrad, 2, 64, 64, 9, 11, 5, 1, 1, 2, none, bf16, false, f32, 37},
           {wgrad, 3, 64, 64, 19, 11, 3, 1, 1, 1, none, bf16, true, f32, 209}});
}

// With SINTER_REARRANGE=last zeros stand beside taps.
TEST_CASE("first layers of infinite pixels, each kind of configuration", "[.][first_layers]") {
  constexpr auto none = Epilogue::none, scale = Epilogue::scale;
  run_all({{fprop, 2, 3, 64, 22, 26, 7, 2, 1, 3, scale, bf16, false, f32, 599},
           {fprop, 2, 32, 72, 9, 14, 3, 2, 1, 1, Epilogue::scale_residual, bf16, false, f32, 1999},
           {dgrad, 2, 4, 72, 10, 12, 3, 1, 1, 1, none, f16, false, f32, 2999},
           {dgrad, 2, 3, 64, 22, 26, 7, 2, 1, 3, none, bf16, false, f32, 2999},
           {wgrad, 3, 3, 40, 18, 20, 7, 2, 1, 3, none, f16, false, f32, 599}});
}

TEST_CASE("forward convolutions with strides, each kind of configuration", "[convolution]") {
  run_all({{fprop, 2, 64, 64, 13, 19, 5, 3, 1, 2, Epilogue::scale},
           {fprop, 2, 72, 40, 14, 12, 4, 2, 3, 3, Epilogue::none, f16}});
}

// Tiles may be blocks of the image, which end in, before and behind them.
TEST_CASE("convolutions along columns, each kind of configuration", "[convolution]") {
  run_all({{fprop, 3, 64, 64, 19, 35, 3, 1, 1, 1, Epilogue::scale, bf16, true},
           {fprop, 2, 72, 40, 16, 8, 4, 1, 2, 0, Epilogue::none, f16, true}});
}

// Lines of 32 or 128 channels, which end within one.
TEST_CASE("convolutions of tf32 and 8 bits, each kind of configuration", "[convolution]") {
  constexpr auto none = Epilogue::none, scale = Epilogue::scale;
  run_all({{fprop, 3, 40, 72, 9, 11, 3, 1, 1, 1, scale, f32, false, tf32},
           {fprop, 2, 64, 40, 8, 9, 3, 2, 1, 1, none, f32, false, tf32},
           {dgrad, 2, 40, 72, 8, 9, 3, 1, 1, 1, none, f32, false, tf32},
           {fprop, 2, 144, 80, 7, 9, 3, 1, 1, 1, scale, f8e4m3},
           {dgrad, 2, 80, 144, 7, 9, 3, 2, 1, 1, none, f8e4m3},
           {fprop, 3, 144, 72, 9, 7, 3, 1, 1, 1, none, i8, false, i32}});
}

TEST_CASE("filter gradients of convolutions, each kind of configuration", "[convolution]") {
  run_all({{wgrad, 5, 64, 64, 9, 11, 3, 1, 1, 1},
           {wgrad, 3, 72, 136, 7, 7, 3, 1, 1, 1},
           {wgrad, 4, 32, 64, 8, 8, 2, 1, 1, 0},
           {wgrad, 3, 64, 72, 9, 9, 3, 2, 1, 1}});
}

// Rows of a filter that has more taps than a tile takes are batch entries.
TEST_CASE("filter gradients of many taps, each kind of configuration", "[convolution]") {
  run_all({{wgrad, 3, 64, 72, 9, 11, 5, 1, 1, 2},
           {wgrad, 2, 72, 64, 8, 9, 7, 1, 1, 3},
           {wgrad, 2, 128, 64, 17, 12, 5, 1, 2, 3}});
}

// Stages may be blocks of the image; several indices of channels may make a line.
TEST_CASE("filter gradients along columns, each kind of configuration", "[convolution]") {
  run_all({{wgrad, 5, 64, 64, 19, 11, 3, 1, 1, 1, Epilogue::none, bf16, true},
           {wgrad, 3, 72, 136, 8, 16, 4, 1, 2, 1, Epilogue::none, f16, true}});
}

// Taps of the third dim see images of their own; groups are batch entries that move the channels.
TEST_CASE("convolutions of volumes and groups, each kind of configuration", "[convolution]") {
  std::vector<GraphSource> all;
  for (const Volume& v :
       {Volume{fprop, {2, 64, 3, 9, 11}, 64}, Volume{dgrad, {1, 72, 4, 8, 10}, 64},
        Volume{wgrad, {2, 64, 3, 9, 11}, 72}, Volume{wgrad, {3, 128, 1, 9, 11}, 128, 2}})
    all.push_back({fmt::format("{} of {}", std::array{"fprop", "dgrad", "wgrad"}[int(v.direction)],
                               to_string(v.image)),
                   all.size(),
                   [v] { return graph_of_volume(v); },
                   {}});
  run_configurations(all, {.one_of_a_kind = true});
}

// Tensor cores multiply such pixels with the zeros of a band, too. With SINTER_DEPTHWISE=mma this
// is their kernel.
TEST_CASE("depthwise convolutions of infinite pixels", "[convolution][depthwise]") {
  std::vector<GraphSource> all;
  for (const DataType io : {bf16, f16})
    for (const std::int64_t filter : {3, 7})
      for (const std::int64_t stride : {1, 2})
        for (const double step : {149.0, 11.0}) {
          const std::string name =
              fmt::format("{} {}x{} / {}, {}", sinter::name(io), filter, filter, stride, step);
          all.push_back(
              {name, all.size(), [=] { return graph_of_nonfinite(filter, stride, step, io); }, {}});
        }
  for (const std::int64_t of_group : {2, 4, 8}) {
    const std::string name = fmt::format("groups of {}", of_group);
    all.push_back(
        {name, all.size(), [=] { return graph_of_nonfinite(3, 1, 149.0, bf16, of_group); }, {}});
  }
  run_as_chosen(all);
}
