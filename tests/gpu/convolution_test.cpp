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

struct Problem {
  Direction direction;
  std::int64_t images, channels, filters, height, width, filter;
  std::int64_t stride = 1, dilation = 1, pad = 0;
  bool epilogue = false;
  DataType io = bf16;
};

Dims channels_last(std::int64_t c, std::int64_t h, std::int64_t w) {
  return {c * h * w, 1, c * w, c};
}

Shared<Graph> graph_of(const Problem& p, const std::string& name) {
  auto g = Shared<Graph>::make(GraphOptions{.name = name, .io = p.io});
  const auto result = [&](std::int64_t size) {
    return (size + 2 * p.pad - p.dilation * (p.filter - 1) - 1) / p.stride + 1;
  };
  const std::int64_t h = result(p.height), w = result(p.width);
  const auto tensor = [&](const char* of, std::int64_t n, std::int64_t c, std::int64_t height,
                          std::int64_t width) {
    return g->tensor(
        {.name = of, .dim = {n, c, height, width}, .stride = channels_last(c, height, width)});
  };
  const ConvAttributes options{.pre_padding = {p.pad, p.pad},
                               .post_padding = {p.pad, p.pad},
                               .stride = {p.stride, p.stride},
                               .dilation = {p.dilation, p.dilation}};
  const auto image = [&] { return tensor("x", p.images, p.channels, p.height, p.width); };
  const auto filter = [&] { return tensor("w", p.filters, p.channels, p.filter, p.filter); };
  const auto gradient = [&] { return tensor("dy", p.images, p.filters, h, w); };
  switch (p.direction) {
    case Direction::fprop: {
      auto y = conv_fprop(image(), filter(), options);
      if (p.epilogue) {
        y = y * g->tensor({.name = "scale", .dim = {1, p.filters, 1, 1}, .data_type = f32});
        y = relu(y + tensor("residual", p.images, p.filters, h, w));
      }
      g->output(y, "y", {.stride = channels_last(p.filters, h, w)});
      break;
    }
    case Direction::dgrad:
      g->output(
          conv_dgrad(gradient(), filter(), {p.images, p.channels, p.height, p.width}, options),
          "dx", {.stride = channels_last(p.channels, p.height, p.width)});
      break;
    case Direction::wgrad:
      g->output(
          conv_wgrad(gradient(), image(), {p.filters, p.channels, p.filter, p.filter}, options),
          "dw", {.stride = channels_last(p.channels, p.filter, p.filter), .data_type = f32});
      break;
  }
  return g;
}

void run_all(const std::vector<Problem>& problems) {
  std::vector<GraphSource> all;
  for (const Problem& p : problems) {
    const std::string name = fmt::format(
        "{} n{} c{} k{} {}x{} by {}x{}", std::array{"fprop", "dgrad", "wgrad"}[int(p.direction)],
        p.images, p.channels, p.filters, p.height, p.width, p.filter, p.filter);
    all.push_back({name, all.size(), [p, name] { return graph_of(p, name); }, {}});
  }
  run_configurations(all, {.one_of_a_kind = true});
}

constexpr auto fprop = Direction::fprop, dgrad = Direction::dgrad, wgrad = Direction::wgrad;

}  // namespace

TEST_CASE("forward convolutions, each kind of configuration", "[convolution]") {
  run_all({{fprop, 3, 64, 64, 9, 11, 3, 1, 1, 1},
           {fprop, 2, 72, 136, 7, 7, 3, 1, 2, 2, true},
           {fprop, 2, 64, 128, 9, 8, 3, 2, 1, 1, true, f16}});
}

TEST_CASE("data gradients of convolutions, each kind of configuration", "[convolution]") {
  run_all({{dgrad, 2, 64, 72, 8, 10, 3, 1, 1, 1}, {dgrad, 3, 128, 64, 9, 9, 3, 2, 1, 1}});
}

TEST_CASE("filter gradients of convolutions, each kind of configuration", "[convolution]") {
  run_all({{wgrad, 5, 64, 64, 9, 11, 3, 1, 1, 1},
           {wgrad, 3, 72, 136, 7, 7, 3, 1, 1, 1},
           {wgrad, 4, 32, 64, 8, 8, 2, 1, 1, 0},
           {wgrad, 3, 64, 72, 9, 9, 3, 2, 1, 1}});
}
