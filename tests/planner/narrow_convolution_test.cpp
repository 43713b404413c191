// Which engines convolutions of few channels in eights get, and volumes in groups. Values are
// checked on small shapes: corpus graphs convolution_narrow_image_* and convolution_3d_*_groups*.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "planner/images.hpp"

using namespace sinter;
using namespace sinter::test;

// Of 32 to 64 channels products of other engines are shorter.
TEST_CASE("pixels of 8 to 32 channels are read as they lie, in both directions") {
  const auto reads = [](bool gradient, std::int64_t from, std::int64_t to, std::int64_t stride) {
    Images i;
    const Dims x{64, from, 112, 112}, w{to, from, 3, 3}, y{64, to, 112 / stride, 112 / stride};
    if (gradient)
      i.output(conv_dgrad(i.input("dy", y), i.input("w", w), x, padded(1, stride)), "dx", x);
    else
      i.output(conv_fprop(i.input("x", x), i.input("w", w), padded(1, stride)), "y", y);
    const auto kernels = planned(*i.g).kernels;
    return kernels.size() == 1 &&
           schedule_kernel(kernels.front(), device_model("sm_90a"), {}).image_rows();
  };
  for (const bool gradient : {false, true}) {
    CHECK(reads(gradient, 8, 8, 1));
    CHECK(reads(gradient, 16, 16, 1));
    CHECK(reads(gradient, 24, 24, 1));
    CHECK(reads(gradient, 32, 32, 1));
  }
  CHECK(reads(false, 16, 32, 2));
  CHECK_FALSE(reads(true, 16, 32, 2));  // whose phases have taps of their own
  CHECK_FALSE(reads(false, 32, 64, 1));
}

// An infinite pixel that no result reaches makes no NaN: the copy of dy marks where it has none.
TEST_CASE("filter gradients of few filters leave out what the copy of dy marks") {
  for (const std::int64_t filters : {4, 8}) {
    Images i;
    const Dims x{8, 320, 64, 64}, w{filters, 320, 3, 3}, y{8, filters, 64, 64};
    i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, padded(1)), "dw", w);
    const auto kernels = planned(*i.g).kernels;
    const auto& copy = kernels.front().body.statements;
    CHECK(std::count_if(copy.begin(), copy.end(),
                        [](const Statement& s) { return s.kind == StatementKind::inside; }) == 1);
    const ContractionSpec* const product = kernels.at(1).as_contraction();
    REQUIRE(product);
    CHECK(product->marked_zeros);
    CHECK(product->zero_dominates == ZeroOf::b);
  }
}

// A residual beside scale and bias, and a relu's gradient. Results that are stored one by one have
// no room for them.
TEST_CASE("pixels of few channels are read as they lie beside tensors of the results' shape") {
  const auto reads = [](std::int64_t channels, std::int64_t filters, int residuals) {
    Images i;
    const Dims x{64, channels, 112, 112}, w{filters, channels, 3, 3}, y{64, filters, 112, 112};
    auto z = conv_fprop(i.input("x", x), i.input("w", w), padded(1));
    z = z * i.input("scale", {1, filters, 1, 1}) + i.input("bias", {1, filters, 1, 1});
    for (int n = 0; n < residuals; ++n)
      z = z + i.input(("residual " + std::to_string(n)).c_str(), y);
    i.output(relu(z), "y", y);
    const auto kernels = planned(*i.g).kernels;
    return kernels.size() == 1 &&
           schedule_kernel(kernels.front(), device_model("sm_90a"), {}).image_rows();
  };
  CHECK(reads(16, 16, 1));
  CHECK(reads(32, 32, 1));
  CHECK(reads(24, 24, 2));
  CHECK(reads(3, 64, 1));
  CHECK_FALSE(reads(8, 12, 1));
  CHECK_FALSE(reads(16, 16, 3));
}

TEST_CASE(
    "first layers channels first read a copy of the image, and store 16 results of a filter") {
  const auto engines_of = [](std::int64_t width, std::int64_t filters, std::int64_t stride,
                             bool residual) {
    const Images i{.last = false};
    const Dims x{64, 3, 224, width}, w{filters, 3, 3, 3},
        y{64, filters, 224 / stride, width / stride};
    auto z = conv_fprop(i.input("x", x), i.input("w", w), padded(1, stride));
    if (residual) z = z + i.input("residual", y);
    i.output(relu(z), "y", y);
    return engines(*i.g);
  };
  CHECK(engines_of(224, 64, 1, false) == Engines{"pointwise", "image_rows"});
  CHECK(engines_of(224, 32, 2, false) == Engines{"pointwise", "image_rows"});
  // Rows of results that are no whole pieces, filters that are none, and what else lies so.
  CHECK(engines_of(216, 32, 2, false).back() != "image_rows");
  CHECK(engines_of(224, 36, 2, false).back() != "image_rows");
  CHECK(engines_of(224, 32, 2, true).back() != "image_rows");
}

TEST_CASE("lines of samples are read as they lie, however far apart images are") {
  const auto reads = [](std::int64_t apart) {
    Images i;
    auto x = i.g->tensor({.name = "x", .dim = {8, 1, 24000}, .stride = {apart, 1, 1}});
    const Dims w{32, 1, 7}, y{8, 32, 24000};
    i.output(
        conv_fprop(x, i.input("w", w), {.pre_padding = {3}, .post_padding = {3}, .stride = {1}}),
        "y", y);
    return engines(*i.g) == Engines{"image_rows"};
  };
  for (const std::int64_t apart : {24000, 24008, 32000, 48000, 72000, 96000}) CHECK(reads(apart));
}

TEST_CASE("first layers of 8 bits read pixels as they lie, and store 8, 16 or 32 bits") {
  const auto engine = [](const GraphOptions& options, DataType result) {
    Images i{.options = options};
    const Dims x{64, 3, 224, 224}, w{64, 3, 7, 7}, y{64, 64, 112, 112};
    i.output(conv_fprop(i.input("x", x), i.input("w", w), padded(3, 2)), "y", y, result);
    return engines(*i.g);
  };
  for (const DataType result : {f8e4m3, bf16, f32})
    CHECK(engine({.io = f8e4m3}, result) == Engines{"image_rows"});
  CHECK(engine({.io = bf16}, f8e4m3) == Engines{"image_rows"});
  CHECK(engine({.io = i8, .intermediate = i32, .compute = i32}, i32) == Engines{"image_rows"});
}

TEST_CASE("volumes and lines of pixels of few channels are read as they lie") {
  const auto engine = [](const Dims& x, const Dims& w, const Dims& y, const ConvAttributes& a) {
    Images i;
    i.output(conv_fprop(i.input("x", x), i.input("w", w), a), "y", y);
    return engines(*i.g);
  };
  const ConvAttributes of_volume{.pre_padding = {1, 1, 1}, .post_padding = {1, 1, 1}};
  for (const std::int64_t channels : {1, 4})
    CHECK(engine({2, channels, 64, 128, 128}, {32, channels, 3, 3, 3}, {2, 32, 64, 128, 128},
                 of_volume) == Engines{"image_rows"});
  CHECK(engine({8, 1, 240000}, {32, 1, 7}, {8, 32, 240000},
               {.pre_padding = {3}, .post_padding = {3}}) == Engines{"image_rows"});
  CHECK(engine({8, 1, 160000}, {512, 1, 10}, {8, 512, 31999}, {.stride = {5}}) ==
        Engines{"image_rows"});
}

// Written with channels together first: blocks of 4 x 4 pixels of 3 channels are columns.
TEST_CASE("strided data gradients of few channels, channels first, have blocks as columns") {
  Images i{.last = false};
  const Dims x{128, 3, 64, 64}, w{64, 3, 4, 4}, y{128, 64, 32, 32};
  i.output(conv_dgrad(i.input("dy", y), i.input("w", w), x, padded(1, 2)), "dx", x);
  std::int64_t columns = 0;
  for (const KernelSpec& spec : planned(*i.g).kernels)
    if (const ContractionSpec* const c = spec.as_contraction())
      columns = count(spec.extent, c->first_n(), c->first_k());
  CHECK(columns >= 12);
}

TEST_CASE("filters of all of 8 channels have their gradients as one narrow group") {
  const auto narrow = [](std::int64_t channels) {
    Images i;
    const Dims x{256, channels, 56, 56}, w{channels, channels, 3, 3};
    i.output(conv_wgrad(i.input("dy", x), i.input("x", x), w, padded(1, 1)), "dw", w);
    const auto kernels = planned(*i.g).kernels;
    const ScheduledKernel k = schedule_kernel(kernels.front(), device_model("sm_90a"), {});
    const auto* const groups = k.as<NarrowGroupsGradientConfig>();
    return groups ? groups->joined : 0;
  };
  CHECK(narrow(8) == 8);
  CHECK(narrow(32) == 0);
}

TEST_CASE("filters of up to 64 channels have their gradients by warpgroups that load rows once") {
  const auto stages = [](std::int64_t channels, std::int64_t filters, std::int64_t stride) {
    Images i;
    const Dims x{64, channels, 112, 112}, w{filters, channels, 3, 3},
        y{64, filters, 112 / stride, 112 / stride};
    ConvAttributes by = padded(1, 1);
    by.stride = {stride, stride};
    i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, by), "dw", w);
    const auto kernels = planned(*i.g).kernels;
    const ScheduledKernel k = schedule_kernel(kernels.front(), device_model("sm_90a"), {});
    const auto* const rows = k.as<ChannelsGradientConfig>();
    return rows ? rows->tiles.stages : 0;
  };
  CHECK(stages(16, 16, 1) > 1);
  CHECK(stages(24, 24, 1) > 1);
  CHECK(stages(32, 32, 1) > 1);
  CHECK(stages(16, 32, 2) > 1);
  CHECK(stages(64, 64, 1) == 0);  // more sums than registers
}

TEST_CASE("filters of few channels have their gradients by runs of taps, as pixels lie") {
  const auto runs = [](std::int64_t channels, std::int64_t width, std::int64_t filters,
                       std::int64_t taps, std::int64_t stride, bool last = true) {
    Images i{.last = last};
    const Dims x{64, channels, width, width}, w{filters, channels, taps, taps},
        y{64, filters, width / stride, width / stride};
    i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, padded(taps / 2, stride)), "dw", w);
    const auto kernels = planned(*i.g).kernels;
    const ScheduledKernel k = schedule_kernel(kernels.front(), device_model("sm_90a"), {});
    const auto* const e = k.as<RunsGradientConfig>();
    return e && kernels.size() >= 2 ? e->filters : 0;  // and what adds up the parts
  };
  CHECK(runs(3, 224, 64, 7, 2) == 64);
  CHECK(runs(3, 224, 64, 3, 1) == 64);
  CHECK(runs(3, 640, 48, 3, 2) == 48);
  CHECK(runs(1, 256, 64, 5, 1) == 64);
  CHECK(runs(3, 225, 64, 3, 1) == 0);         // rows are no whole pieces of 16 bytes
  CHECK(runs(3, 224, 64, 7, 2, false) == 0);  // channels first
}

// Of few columns a product takes as long, and of all frames' blocks the filter has more zeros.
TEST_CASE("data gradients of volumes' first layers have blocks of pixels of a frame as columns") {
  Images i;
  const Dims x{8, 3, 16, 112, 112}, w{64, 3, 3, 7, 7}, y{8, 64, 16, 56, 56};
  ConvAttributes by;
  by.stride = {1, 2, 2}, by.pre_padding = by.post_padding = {1, 3, 3};
  i.output(conv_dgrad(i.input("dy", y), i.input("w", w), x, by), "dx", x);
  const auto kernels = planned(*i.g).kernels;
  const ContractionSpec& c = kernels.back().contraction();
  std::int64_t columns = 1;
  for (int n = c.first_n(); n < c.first_k(); ++n) columns *= kernels.back().extent[n];
  CHECK(columns == 48);
  CHECK(engines(*i.g) == Engines{"pointwise", "wgmma"});
}

TEST_CASE("patches are copied for their filter's gradient, with a patch's pixels together") {
  Images i;
  const Dims x{64, 3, 224, 224}, w{768, 3, 16, 16}, y{64, 768, 14, 14};
  i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, padded(0, 16)), "dw", w);
  CHECK(engines(*i.g) == Engines{"pointwise", "wgmma"});
}

// Cut in parts, the sums would be another engine's, or take less.
TEST_CASE("a test gets the gradients of narrow groups that it asks for, with their own estimate") {
  Images i;
  const Dims x{4, 80, 7, 14}, w{80, 16, 3, 3};
  i.output(conv_wgrad(i.input("dy", x), i.input("x", x), w, padded(1, 1, 5)), "dw", w);
  setenv("SINTER_DEPTHWISE", "mma", 1);
  const auto kernels = planned(*i.g).kernels;
  const ScheduledKernel k = schedule_kernel(kernels.front(), device_model("sm_90a"), {});
  unsetenv("SINTER_DEPTHWISE");
  CHECK(kernels.size() == 1);
  CHECK(k.as<NarrowGroupsGradientConfig>());
  CHECK(k.microseconds > 2 * device_model("sm_90a").launch_microseconds);
}

TEST_CASE("volumes in groups are multiplied by warpgroups") {
  const Dims x{8, 128, 8, 28, 28}, w{640, 64, 3, 3, 3}, y{8, 640, 4, 14, 14};
  ConvAttributes by;
  by.stride = {2, 2, 2}, by.pre_padding = by.post_padding = {1, 1, 1}, by.groups = 2;
  Images f, d;
  f.output(conv_fprop(f.input("x", x), f.input("w", w), by), "y", y);
  d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, by), "dx", x);
  CHECK(engines(*f.g) == Engines{"wgmma"});
  CHECK(engines(*d.g) == Engines{"wgmma"});
}

// Of a volume's 16 channels four neighbouring results of a line fill a multiplication, whose other
// dims keep their taps.
TEST_CASE("blocks of results are columns of a volume's data gradient of few channels") {
  const Dims x{2, 16, 16, 16, 96}, w{32, 16, 3, 3, 3}, y{2, 32, 16, 16, 96};
  const ConvAttributes all{.pre_padding = {1, 1, 1}, .post_padding = {1, 1, 1}};
  Images i;
  i.output(conv_dgrad(i.input("dy", y), i.input("w", w), x, all), "dx", x);
  const auto kernels = planned(*i.g).kernels;
  REQUIRE(kernels.size() == 2);
  const ContractionSpec& c = kernels.back().contraction();
  CHECK(count(kernels.back().extent, c.first_n(), c.first_k()) == 64);
}

// bf16 holds them, and lines of 24 bytes are none of TMA's; sums of integers that f32 may round are
// left as they are.
TEST_CASE("convolutions of 8 bits are written as bf16 where that is faster") {
  const auto wide = [](DataType io, const Dims& x, const Dims& w, const ConvAttributes& a) {
    Images i{.options = {
                 .io = io, .intermediate = io == i8 ? i32 : f32, .compute = io == i8 ? i32 : f32}};
    const Dims y{x[0], w[0], x[2], x[3]};
    i.output(conv_fprop(i.input("x", x), i.input("w", w), a), "y", y,
             io == i8 ? i32 : DataType::none);
    const auto kernels = planned(*i.g).kernels;
    const ContractionSpec* const c = kernels.back().as_contraction();
    return c && c->a().type == bf16;
  };
  CHECK(wide(f8e4m3, {32, 24, 56, 56}, {144, 24, 1, 1}, padded(0)));
  CHECK(wide(i8, {32, 384, 28, 28}, {384, 1, 7, 7}, padded(3, 1, 384)));
  CHECK_FALSE(wide(i8, {32, 384, 28, 28}, {384, 1, 33, 33}, padded(16, 1, 384)));
  CHECK_FALSE(wide(f8e4m3, {32, 64, 56, 56}, {64, 64, 3, 3}, padded(1)));
}

TEST_CASE("products of integers that are no sums are pointwise") {
  const Dims x{32, 256, 56, 56}, w{256, 1, 1, 1};
  Images i{.options = {.io = i8, .intermediate = i32, .compute = i32}};
  i.output(conv_dgrad(i.input("dy", x), i.input("w", w), x, padded(0, 1, 256)), "dx", x, i32);
  CHECK(engines(*i.g) == Engines{"pointwise"});
}
