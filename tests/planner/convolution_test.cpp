// Which kernels the planner makes of convolutions, at sizes that models have: engines, copies of
// operands, and what they are fused with. Values are checked on small shapes: corpus graphs
// convolution_*, once more with SINTER_REARRANGE=on.
#include <algorithm>

#include "plan/access.hpp"
#include "planner/images.hpp"

using namespace sinter;
using namespace sinter::test;

TEST_CASE("first layers read pixels as they lie, where rows are whole pieces of 16 bytes") {
  const auto first = [](std::int64_t width, std::int64_t filters, std::int64_t stride) {
    Images i;
    const Dims x{64, 3, 224, width}, w{filters, 3, 3, 3},
        y{64, filters, 224 / stride, (width + stride - 1) / stride};
    i.output(relu(conv_fprop(i.input("x", x), i.input("w", w), padded(1, stride))), "y", y);
    const auto kernels = planned(*i.g).kernels;
    const ScheduledKernel k = schedule_kernel(kernels.back(), device_model("sm_90a"), {});
    return kernels.size() == 1 && k.image_rows() ? k.image_rows()->tile.n : 0;
  };
  CHECK(first(224, 64, 2) == 64);
  CHECK(first(224, 64, 1) == 64);
  CHECK(first(224, 320, 1) == 80);  // in fours
  CHECK(first(222, 64, 2) == 0);
  // Of others the pixels of a warp are one run of memory.
  CHECK(first(224, 21, 2) == 32);
  CHECK(first(224, 84, 2) == 0);
}

TEST_CASE("pixels of 20 channels are read as they lie") {
  Images i;
  const Dims x{32, 20, 96, 96}, w{20, 20, 3, 3};
  i.output(conv_fprop(i.input("x", x), i.input("w", w), padded(1, 1)), "y", x);
  const auto kernels = planned(*i.g).kernels;
  REQUIRE(kernels.size() == 1);
  const ScheduledKernel k = schedule_kernel(kernels.front(), device_model("sm_90a"), {});
  CHECK(k.image_rows());
}

TEST_CASE("filters that fill no tile of rows are the columns of their gradient") {
  Images i;
  const Dims x{128, 64, 55, 55}, w{192, 64, 5, 5}, y{128, 192, 28, 28};
  i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, padded(2, 2)), "dw", w);
  const auto kernels = planned(*i.g).kernels;
  const ScheduledKernel k = schedule_kernel(kernels.front(), device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  CHECK((k.wgmma()->tile.n == 192 && !k.wgmma()->n_fastest));
}

// The product is the last kernel, before that which adds its parts. Rows of other pixels than these
// are whole pieces of 16 bytes.
TEST_CASE("first layers multiply blocks of the image, their data gradients blocks of pixels") {
  const Dims x{256, 3, 224, 224}, w{64, 3, 7, 7}, y{256, 64, 112, 112}, odd{256, 3, 222, 222},
      of_odd{256, 64, 111, 111};
  Images f, d, g;
  f.output(conv_fprop(f.input("x", odd), f.input("w", w), padded(3, 2)), "y", of_odd);
  d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, padded(3, 2)), "dx", x);
  g.output(conv_wgrad(g.input("dy", of_odd), g.input("x", odd), w, padded(3, 2)), "dw", w);
  CHECK(engines(*f.g) == Engines{"pointwise", "pointwise", "wgmma"});
  CHECK(engines(*d.g) == Engines{"pointwise", "wgmma"});
  CHECK(engines(*g.g) == Engines{"pointwise", "wgmma", "rowwise"});
  const auto product = [](const Images& i, std::size_t kernel) {
    auto k = schedule_kernel(planned(*i.g).kernels[kernel], device_model("sm_90a"), {});
    REQUIRE(k.wgmma());
    REQUIRE(k.wgmma()->window);
    return *k.wgmma();
  };
  const WgmmaConfig forward = product(f, 2), data = product(d, 1), filter = product(g, 1);
  CHECK(forward.window->blocks == Dims{7, 7});  // of 16 x 16 pixels
  CHECK(filter.window->blocks == Dims{14, 14});
  CHECK(data.window->axes[0].taps == Dims{5});  // that blocks of 4 pixels see
  CHECK(data.window->axes[0].step == 2);
  CHECK(data.stored_together == 4);
  CHECK(swaps_products(data));
}

TEST_CASE(
    "large images are multiplied in blocks, and their filter gradients in parts of an image") {
  const Dims x{8, 64, 256, 256}, w{64, 64, 3, 3};
  const Images forward, gradient;
  forward.output(conv_fprop(forward.input("x", x), forward.input("w", w), padded(1)), "y", x);
  const auto kernels = planned(*forward.g).kernels;
  REQUIRE(kernels.size() == 1);
  const ScheduledKernel k = schedule_kernel(kernels[0], device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  CHECK(k.wgmma()->tile.block);
  CHECK(k.wgmma()->a.map.box == Dims{64, 10, 34, 1});  // 8 x 32 pixels

  gradient.output(conv_wgrad(gradient.input("dy", x), gradient.input("x", x), w, padded(1)), "dw",
                  w);
  const auto parts = planned(*gradient.g).kernels;
  REQUIRE(parts.size() == 2);
  const ScheduledKernel sums = schedule_kernel(parts[0], device_model("sm_90a"), {});
  REQUIRE(sums.wgmma());
  CHECK(sums.wgmma()->taps_together == 3);
  CHECK(sums.wgmma()->window->axes[1].part.index >= 0);
}

TEST_CASE("one channel, and windows side by side, are few channels, too") {
  // Spectrograms.
  const Dims x{16, 1, 161, 600}, w{32, 1, 41, 11}, y{16, 32, 81, 300};
  const ConvAttributes options{
      .pre_padding = {20, 5}, .post_padding = {20, 5}, .stride = {2, 2}, .dilation = {1, 1}};
  for (const GraphOptions& types :
       {GraphOptions{.io = bf16}, GraphOptions{.io = f32, .compute = tf32}}) {
    Images d{.options = types};
    d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, options), "dx", x);
    CHECK(engines(*d.g) == Engines{"pointwise", "wgmma"});
  }
  // Samples, channels first: the result's gradient has its channels put together, too.
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const Dims samples{16, 1, 16000};
  g->output(conv_dgrad(g->tensor({.name = "dy", .dim = {16, 512, 3199}}),
                       g->tensor({.name = "w", .dim = {512, 1, 10}}), samples, {.stride = {5}}),
            "dx");
  CHECK(engines(*g) == Engines{"pointwise", "pointwise", "wgmma"});
  // Patches: a product with all pixels of a patch as columns.
  const Dims image{32, 3, 224, 224};
  Images p;
  p.output(conv_dgrad(p.input("dy", {32, 768, 14, 14}), p.input("w", {768, 3, 16, 16}), image,
                      padded(0, 16)),
           "dx", image);
  CHECK(engines(*p.g) == Engines{"pointwise", "wgmma"});
  const KernelSpec product = planned(*p.g).kernels.back();
  const ContractionSpec& c = product.contraction();
  CHECK(count(product.extent, c.first_n(), c.first_k()) == std::int64_t{16} * 16 * 3);
}

TEST_CASE("filter gradients, channels first: taps within a stride are columns as channels are") {
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  g->output(
      conv_wgrad(g->tensor({.name = "dy", .dim = {8, 512, 1999}}),
                 g->tensor({.name = "x", .dim = {8, 512, 4000}}), {512, 512, 3}, {.stride = {2}}),
      "dw");
  CHECK(engines(*g) == Engines{"pointwise", "pointwise", "wgmma", "rowwise"});
  const std::vector<KernelSpec> kernels = planned(*g).kernels;
  // The image, as far as taps reach.
  CHECK(count(kernels[0].extent, 0, kernels[0].extent.size()) == std::int64_t{8} * 512 * 3999);
}

// No window bounds their taps, of which those of a row are one index with the channels.
TEST_CASE("first layers without padding are joined with neighbouring pixels, too") {
  const Dims x{32, 3, 299, 299}, w{32, 3, 3, 3}, y{32, 32, 149, 149};
  for (const bool last : {true, false}) {
    Images g{.last = last};
    g.output(conv_wgrad(g.input("dy", y), g.input("x", x), w, padded(0, 2)), "dw", w);
    const KernelSpec copy = planned(*g.g).kernels.front();  // 150 x 150 blocks of 2 x 2 x 4
    CHECK(count(copy.extent, 0, copy.extent.size()) == std::int64_t{32} * 150 * 150 * 16);
  }
  Images f;
  f.output(conv_fprop(f.input("x", x), f.input("w", w), padded(0, 2)), "y", y);
  CHECK(engines(*f.g) == Engines{"pointwise", "pointwise", "wgmma"});
}

TEST_CASE("parts of a filter gradient are images of any number of pixels") {
  const Dims x{64, 64, 49, 49}, w{64, 64, 3, 3};
  Images g;
  g.output(conv_wgrad(g.input("dy", {64, 64, 25, 25}), g.input("x", x), w, padded(1, 2)), "dw", w);
  CHECK(engines(*g.g) == Engines{"wgmma", "rowwise"});
  const Plan plan = Plan::make(*g.g, {.architecture = "sm_90a"}).value();
  // Pixels of the next part's images, which zeros meet, may be infinite.
  CHECK(plan.data().kernels[0].source.find("EveryProduct") != std::string::npos);
}

TEST_CASE("taps of a third dim come one after another") {
  const Dims x{2, 64, 16, 56, 56}, w{64, 64, 3, 3, 3};
  const ConvAttributes options{.pre_padding = {1, 1, 1},
                               .post_padding = {1, 1, 1},
                               .stride = {1, 1, 1},
                               .dilation = {1, 1, 1}};
  const auto last = [](const Dims& d) {
    return Dims{d[1] * d[2] * d[3] * d[4], 1, d[1] * d[3] * d[4], d[1] * d[4], d[1]};
  };
  for (const bool gradient : {false, true}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto input = [&](const char* name, const Dims& d) {
      return g->tensor({.name = name, .dim = d, .stride = last(d)});
    };
    if (gradient)
      g->output(conv_wgrad(input("dy", x), input("x", x), w, options), "dw", {.stride = last(w)});
    else
      g->output(conv_fprop(input("x", x), input("w", w), options), "y", {.stride = last(x)});
    const ScheduledKernel k =
        schedule_kernel(planned(*g).kernels.front(), device_model("sm_90a"), {});
    REQUIRE(k.wgmma());
    CHECK(k.wgmma()->resident);
    const WindowAxis& depth = k.wgmma()->window->axes[2];
    CHECK((gradient ? depth.tap.index >= 0 : depth.apart));
  }
}

TEST_CASE("rows of a filter of many taps are batch entries of its gradient") {
  const Dims w{64, 280, 5, 5};
  Images g;
  g.output(
      conv_wgrad(g.input("dy", {32, 64, 35, 35}), g.input("x", {32, 280, 35, 35}), w, padded(2)),
      "dw", w);
  const ScheduledKernel k =
      schedule_kernel(planned(*g.g).kernels.front(), device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  CHECK(k.wgmma()->resident);
  CHECK(k.wgmma()->window->axes[1].tap.index >= 0);
}

// 37.3 us alone, 30.9 in pairs; of a volume 62.8, 53.5, and with k the fastest 37.7.
TEST_CASE("a filter whose columns end within a line is shared by pairs, or copied along k") {
  Images g;
  const Dims x{32, 88, 40, 40}, volume{1, 96, 16, 48, 48}, w{96, 96, 3, 3, 3};
  g.output(
      conv_dgrad(g.input("dy", {32, 152, 40, 40}), g.input("w", {152, 88, 3, 3}), x, padded(1)),
      "dx", x);
  const auto k = schedule_kernel(planned(*g.g).kernels.front(), device_model("sm_90a"), {});
  CHECK((k.wgmma() && k.wgmma()->tile.cluster_m == 2));
  auto v = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto dy =
                 v->tensor({.name = "dy", .dim = volume, .stride = {3538944, 1, 221184, 4608, 96}}),
             f = v->tensor({.name = "w", .dim = w, .stride = {2592, 1, 864, 288, 96}});
  v->output(conv_dgrad(dy, f, volume, {.pre_padding = {1, 1, 1}, .post_padding = {1, 1, 1}}), "dx",
            {.stride = {3538944, 1, 221184, 4608, 96}});
  CHECK(engines(*v) == Engines{"pointwise", "wgmma"});
}

// In 64 x 64 with pixels that stay 34.0 us, in 128 x 160 whose k is split 16.3.
TEST_CASE("volumes of few pixels and long sums divide k") {
  const Dims x{2, 320, 8, 8, 8}, w{320, 320, 3, 3, 3};
  const auto last = [](const Dims& d) {
    return Dims{d[1] * d[2] * d[3] * d[4], 1, d[1] * d[3] * d[4], d[1] * d[4], d[1]};
  };
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const auto input = [&](const char* name, const Dims& d) {
    return g->tensor({.name = name, .dim = d, .stride = last(d)});
  };
  g->output(conv_fprop(input("x", x), input("w", w),
                       {.pre_padding = {1, 1, 1},
                        .post_padding = {1, 1, 1},
                        .stride = {1, 1, 1},
                        .dilation = {1, 1, 1}}),
            "y", {.stride = last(x)});
  const ScheduledKernel k =
      schedule_kernel(planned(*g).kernels.front(), device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  CHECK_FALSE(k.wgmma()->resident);
  CHECK(k.wgmma()->tile.split > 1);
}

// The image has two frames for each of its gradient, whose parts are frames. (Of the wrong ones.)
TEST_CASE("parts of one result do not stay for the taps of a strided filter gradient") {
  const Dims x{4, 64, 16, 8, 24}, y{4, 64, 8, 8, 24}, w{64, 64, 3, 1, 1};
  const auto last = [](const Dims& d) {
    return Dims{d[1] * d[2] * d[3] * d[4], 1, d[1] * d[3] * d[4], d[1] * d[4], d[1]};
  };
  for (const std::int64_t stride : {1, 2}) {
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const auto input = [&](const char* name, const Dims& d) {
      return g->tensor({.name = name, .dim = d, .stride = last(d)});
    };
    g->output(conv_wgrad(input("dy", stride == 1 ? x : y), input("x", x), w,
                         {.pre_padding = {1, 0, 0},
                          .post_padding = {1, 0, 0},
                          .stride = {stride, 1, 1},
                          .dilation = {1, 1, 1}}),
              "dw", {.stride = last(w)});
    const ScheduledKernel k =
        schedule_kernel(planned(*g).kernels.front(), device_model("sm_90a"), {});
    REQUIRE(k.wgmma());
    CHECK(k.wgmma()->resident == (stride == 1));
  }
}

TEST_CASE("pixels without products of a strided 1 x 1 data gradient are a kernel of their own") {
  const Dims x{256, 256, 56, 56}, y{256, 512, 28, 28};
  Images i;
  i.output(conv_dgrad(i.input("dy", y), i.input("w", {512, 256, 1, 1}), x, padded(0, 2)), "dx", x);
  CHECK(engines(*i.g) == Engines{"wgmma", "pointwise"});
  CHECK(planned(*i.g).kernels[0].extent.back() == 512);
  // It runs beside the products; what comes behind waits for both.
  const Plan plan = Plan::make(*i.g, {.architecture = "sm_90a"}).value();
  CHECK(plan.data().kernels[1].source.find("pointwise::run_beside<") != std::string::npos);
  // Dim by dim, where the others of a pixel are many.
  const Dims wide{64, 64, 60, 60};
  Images third;
  third.output(conv_dgrad(third.input("dy", {64, 256, 20, 20}), third.input("w", {256, 64, 1, 1}),
                          wide, padded(0, 3)),
               "dx", wide);
  CHECK(engines(*third.g) == Engines{"wgmma", "pointwise", "pointwise"});
  // Or, where launches count, stored beside those that have products.
  const Dims small{16, 1024, 14, 14};
  Images s;
  s.output(conv_dgrad(s.input("dy", {16, 2048, 7, 7}), s.input("w", {2048, 1024, 1, 1}), small,
                      padded(0, 2)),
           "dx", small);
  CHECK(engines(*s.g) == Engines{"wgmma"});
}

// Pairs that share an operand took 112.5 us, 104.3 so.
TEST_CASE("tiles of a strided 1 x 1 filter gradient share no operand with their neighbours") {
  Images g;
  const Dims w{512, 256, 1, 1};
  g.output(conv_wgrad(g.input("dy", {256, 512, 28, 28}), g.input("x", {256, 256, 56, 56}), w,
                      padded(0, 2)),
           "dw", w);
  const auto k = schedule_kernel(planned(*g.g).kernels[0], device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  CHECK(k.wgmma()->tile.split == 2);
  CHECK(k.wgmma()->tile.cluster_m * k.wgmma()->tile.cluster_n == 1);
}

TEST_CASE("operands that TMA cannot walk over are copied, of a chain only at its ends") {
  const Dims x{64, 128, 28, 28}, w{128, 128, 3, 3};
  Images i{.last = false};
  i.output(conv_fprop(i.input("x", x), i.input("w", w), padded(1)), "y", x);
  CHECK(engines(*i.g) == Engines{"pointwise", "pointwise", "wgmma"});
  Images chain{.last = false};
  auto z = conv_fprop(chain.input("x", x), chain.input("w", w), padded(1));
  z = conv_fprop(relu(z), chain.input("v", w), padded(1));
  chain.output(z, "y", x);
  // Both filters are copied by one kernel.
  CHECK(engines(*chain.g) == Engines{"pointwise", "pointwise", "wgmma", "wgmma"});
}

TEST_CASE("filter gradients of tf32 and 8 bits read copies in which images lie together") {
  const Dims x{128, 128, 28, 28}, w{128, 128, 3, 3};
  for (const GraphOptions& options :
       {GraphOptions{.io = f32, .compute = tf32}, GraphOptions{.io = f8e4m3},
        GraphOptions{.io = i8, .intermediate = i32, .compute = i32}})
    for (const std::int64_t stride : {1, 2}) {
      INFO(name(options.io) << ", stride " << stride);
      Images g{.options = options};
      const Dims y{128, 128, 28 / stride, 28 / stride};
      g.g->output(conv_wgrad(g.input("dy", y), g.input("x", x), w, padded(1, stride)), "dw",
                  {.stride = channels_last(w), .data_type = options.io == i8 ? i32 : f32});
      const Engines made = engines(*g.g);
      REQUIRE(made.size() >= 3);
      CHECK(Engines(made.begin(), made.begin() + 3) == Engines{"pointwise", "pointwise", "wgmma"});
      // A pixel's images are the fastest index of k.
      CHECK(planned(*g.g).kernels[2].extent.back() == 128);
    }
  // Of few images, those of neighbouring pixels; of numbers that fill no 16 bytes, of each alone.
  for (const std::int64_t images : {12, 14}) {
    const Dims few{images, 128, 56, 56};
    Images g{.options = {.io = f32, .compute = tf32}};
    g.g->output(conv_wgrad(g.input("dy", few), g.input("x", few), w, padded(1)), "dw",
                {.stride = channels_last(w)});
    CHECK(engines(*g.g)[0] == "pointwise");
    const std::int64_t together = planned(*g.g).kernels[2].extent.back();
    CHECK((images % 4 == 0 ? together > images : together == images));
  }
}

TEST_CASE(
    "convolutions of tf32 and 8 bits run on wgmma, data gradients with a filter that is turned") {
  const Dims x{64, 128, 28, 28}, w{128, 128, 3, 3};
  const auto output = [&](const Images& i, const Tensor& t, DataType type) {
    i.g->output(t, "result", {.stride = channels_last(x), .data_type = type});
  };
  for (const GraphOptions& options : {GraphOptions{.io = f32, .compute = tf32},
                                      GraphOptions{.io = f8e4m3}, GraphOptions{.io = f8e5m2}}) {
    INFO(name(options.io));
    Images f{.options = options}, d{.options = options};
    output(f, conv_fprop(f.input("x", x), f.input("w", w), padded(1)), f32);
    CHECK(engines(*f.g) == Engines{"wgmma"});
    output(d, conv_dgrad(d.input("dy", x), d.input("w", w), x, padded(1)), f32);
    CHECK(engines(*d.g) == Engines{"pointwise", "wgmma"});
  }
  Images i{.options = {.io = i8, .intermediate = i32, .compute = i32}};
  output(i, conv_fprop(i.input("x", x), i.input("w", w), padded(1)), i32);
  CHECK(engines(*i.g) == Engines{"wgmma"});
  // f32 that must not be rounded: two kernels write the parts of the factors.
  Images e{.options = {.io = f32}};
  output(e, conv_fprop(e.input("x", x), e.input("w", w), padded(1)), f32);
  CHECK(engines(*e.g) == Engines{"pointwise", "pointwise", "wgmma"});
}

TEST_CASE("the sums of a batch norm are formed where the convolution is") {
  const Dims x{64, 128, 28, 28};
  Images i;
  const auto y = conv_fprop(i.input("x", x), i.input("w", {128, 128, 3, 3}), padded(1));
  i.g->output(reduction(y, ReductionMode::add, {1, 128, 1, 1}), "sum", {.data_type = f32});
  i.g->output(reduction(y * y, ReductionMode::add, {1, 128, 1, 1}), "squares", {.data_type = f32});
  i.output(identity(y), "y", x);
  CHECK(engines(*i.g).front() == "wgmma");
  CHECK(planned(*i.g).kernels[0].cross_row_reductions.size() == 2);
}

TEST_CASE("a prologue that would cost a convolution its engine is a kernel of its own") {
  const Dims x{64, 128, 28, 28};
  Images i;
  const auto dy = relu_backward(i.input("dy", x), i.input("z", x));
  i.output(conv_dgrad(dy, i.input("w", {128, 128, 3, 3}), x, padded(1)), "dx", x);
  CHECK(engines(*i.g) == Engines{"pointwise", "wgmma"});
}

// In one kernel they took the portable engine: the sums of a strided gradient have none else, and
// the filter's channels are not contiguous.
TEST_CASE("sums that would cost a convolution its engine are a kernel of their own") {
  for (const bool last : {true, false}) {
    INFO((last ? "channels last" : "channels first"));
    const Dims x{8, 512, 3000}, dy{8, 512, 1500};
    const Dims strides = last ? Dims{512 * 3000, 1, 512} : Dims{};
    auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
    const ConvAttributes a{.pre_padding = {1}, .post_padding = {1}, .stride = {2}};
    const Tensor of_result = g->tensor({.name = "dy", .dim = dy, .stride = {512 * 1500, 1, 512}});
    const Tensor dx = conv_dgrad(of_result, g->tensor({.name = "w", .dim = {512, 512, 3}}), x, a);
    const Tensor before = gelu_backward(dx, g->tensor({.name = "x", .dim = x, .stride = strides}));
    g->output(before, "before", {.stride = strides});
    g->output(reduction(before, ReductionMode::add, {1, 512, 1}), "db", {.data_type = f32});
    const Engines made = engines(*g);
    CHECK(std::count(made.begin(), made.end(), "wgmma") == 1);
    CHECK(std::count(made.begin(), made.end(), "mma") == 0);
  }
}

// As from causal convolutions whose last results are cut off: zeros beside the gradient.
TEST_CASE("a padded gradient lies as what it is made of") {
  const Dims x{4, 256, 512}, last{256 * 512, 1, 256};
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  const ConvAttributes a{.pre_padding = {3}, .post_padding = {3}, .groups = 256};
  const Tensor dy = relu_backward(g->tensor({.name = "dy", .dim = x, .stride = last}),
                                  g->tensor({.name = "y", .dim = x, .stride = last}));
  const Tensor padded = concatenate({dy, g->tensor({.name = "zeros", .dim = {4, 256, 3}})}, 2);
  const Tensor in = g->tensor({.name = "in", .dim = x, .stride = last});
  g->output(conv_dgrad(padded, g->tensor({.name = "w", .dim = {256, 1, 4}}), x, a), "dx",
            {.stride = last});
  g->output(conv_wgrad(padded, in, {256, 1, 4}, a), "dw");
  const Engines made = engines(*g);
  CHECK(std::count(made.begin(), made.end(), "depthwise") == 2);
  CHECK(std::count(made.begin(), made.end(), "mma") == 0);
}

TEST_CASE("filter gradients of few filters are products with a copy for all taps") {
  const Dims x{8, 320, 64, 64}, w{8, 320, 3, 3}, y{8, 8, 64, 64};
  Images i;
  i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, padded(1)), "dw", w);
  CHECK(engines(*i.g) == Engines{"pointwise", "wgmma", "rowwise", "pointwise"});
  const KernelSpec copy = planned(*i.g).kernels.front();
  CHECK(count(copy.extent, 0, copy.extent.size()) == std::int64_t{8} * 64 * 64 * 9 * 8);
}

TEST_CASE("sums of one product are pointwise") {
  const Dims x{32, 256, 56, 56}, w{256, 1, 1, 1}, y{32, 256, 28, 28};
  for (const std::int64_t stride : {1, 2}) {
    Images f;
    f.output(relu(conv_fprop(f.input("x", x), f.input("w", w), padded(0, stride, 256))), "y",
             stride == 1 ? x : y);
    CHECK(engines(*f.g) == Engines{"pointwise"});
  }
  Images d;
  d.output(conv_dgrad(d.input("dy", x), d.input("w", w), x, padded(0, 1, 256)), "dx", x);
  CHECK(engines(*d.g) == Engines{"pointwise"});
  auto g = Shared<Graph>::make(GraphOptions{.io = bf16});
  g->output(matmul(g->tensor({.name = "a", .dim = {1, 4096, 1}}),
                   g->tensor({.name = "b", .dim = {1, 1, 4096}})),
            "c");
  CHECK(engines(*g) == Engines{"pointwise"});
}

// What is stored by packs is many times the result.
TEST_CASE("parts of a filter gradient lie as the columns of its tiles, channels first, too") {
  const Dims x{32, 64, 56, 56}, w{64, 64, 3, 3};
  Images i{.last = false};
  i.output(conv_wgrad(i.input("dy", x), i.input("x", x), w, padded(1)), "dw", w);
  const auto kernels = planned(*i.g).kernels;
  REQUIRE(kernels.size() == 4);
  const ScheduledKernel k = schedule_kernel(kernels[2], device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  CHECK(k.wgmma()->packing.width == 4);
}

// Their columns fill a multiplication; of few results estimates must promise more, and a residual
// would be read in pieces.
TEST_CASE("blocks of results are columns where filters, or channels of a data gradient, are few") {
  const auto columns = [](const Images& i) {
    const auto kernels = planned(*i.g).kernels;
    const auto product = std::find_if(kernels.begin(), kernels.end(),
                                      [](const KernelSpec& k) { return k.as_contraction(); });
    REQUIRE(product != kernels.end());
    const ContractionSpec& c = product->contraction();
    return count(product->extent, c.first_n(), c.first_k());
  };
  const auto forward = [&](const Dims& x, std::int64_t filters, bool residual) {
    Images i;
    Dims y = x;
    y[1] = filters;
    auto z = conv_fprop(i.input("x", x), i.input("w", {filters, x[1], 3, 3}), padded(1));
    if (residual) z = z + i.input("residual", y);
    i.output(z, "y", y);
    return columns(i);
  };
  CHECK(forward({4, 64, 256, 256}, 3, false) == 48);   // of 4 x 4 results
  CHECK(forward({32, 128, 56, 56}, 32, false) == 64);  // of two in a line
  CHECK(forward({32, 128, 56, 56}, 32, true) == 32);
  CHECK(forward({8, 320, 64, 64}, 4, false) == 4);
  const Dims x{128, 48, 12, 12};
  Images d;
  d.output(
      conv_dgrad(d.input("dy", {128, 768, 12, 12}), d.input("w", {768, 48, 5, 5}), x, padded(2)),
      "dx", x);
  CHECK(columns(d) == 96);
}
