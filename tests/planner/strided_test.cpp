// Convolutions with strides, whose pixels are joined, and filter gradients: what tiles they have.
#include "planner/images.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

// 32 images of 112 x width by 3 x 3 filters of stride 2.
struct Strided {
  std::int64_t channels, filters, width = 112;
  Dims x{32, channels, 112, width}, w{filters, channels, 3, 3}, y{32, filters, 56, (width + 1) / 2};

  std::vector<KernelSpec> forward() const {
    const Images i;
    i.output(conv_fprop(i.input("x", x), i.input("w", w), padded(1, 2)), "y", y);
    return planned(*i.g).kernels;
  }
  std::vector<KernelSpec> data_gradient() const {
    const Images i;
    i.output(conv_dgrad(i.input("dy", y), i.input("w", w), x, padded(1, 2)), "dx", x);
    return planned(*i.g).kernels;
  }
  std::vector<KernelSpec> filter_gradient() const {
    const Images i;
    i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, padded(1, 2)), "dw", w);
    return planned(*i.g).kernels;
  }
};

ConvolutionWindow window_of(const KernelSpec& spec) {
  const ScheduledKernel k = schedule_kernel(spec, device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  REQUIRE(k.wgmma()->window);
  return *k.wgmma()->window;
}

}  // namespace

TEST_CASE("few channels with a stride are joined along a row, in gradients, too") {
  const Strided l{32, 64};
  const auto data = l.data_gradient(), filter = l.filter_gradient();
  REQUIRE(data.size() == 2);  // the filter's copy and the product
  const ConvolutionWindow of_data = window_of(data[1]);
  CHECK(of_data.axes[0].taps == Dims{2});  // that two neighbouring pixels see
  CHECK(of_data.axes[1].taps == Dims{1, 2});
  REQUIRE(filter.size() == 2);  // the product and the sum of its parts
  const ConvolutionWindow of_filter = window_of(filter[0]);
  CHECK(of_filter.channels == 64);
  CHECK(of_filter.axes[0].step == 1);
}

TEST_CASE("planes of few taps have more stages") {
  const KernelSpec spec = Strided{32, 64, 111}.forward().back();
  const ScheduledKernel k = schedule_kernel(spec, device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  REQUIRE(k.wgmma()->resident);
  CHECK(k.wgmma()->tile.window_stages >= 4);
}

// Of 144 filters in lines of 64 the third is a quarter full.
TEST_CASE("tiles of filter gradients end within a line of the result's gradient") {
  const Images i{.options = {.io = f32}};
  const Dims x{8, 96, 48, 48}, w{144, 96, 3, 3}, y{8, 144, 48, 48};
  i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, padded(1)), "dw", w);
  const auto kernels = planned(*i.g).kernels;
  REQUIRE(kernels.size() == 4);
  const ScheduledKernel k = schedule_kernel(kernels[2], device_model("sm_90a"), {});
  REQUIRE(k.wgmma());
  CHECK(k.wgmma()->tile.n == 160);
}

// A patch of 4 x 4 pixels of 3 channels has rows of 24 bytes, which TMA cannot load.
TEST_CASE("patches of few channels are read as they lie") {
  const auto patches = [](std::int64_t side, std::int64_t filters) {
    Images i;
    const Dims x{64, 3, 224, 224}, w{filters, 3, side, side},
        y{64, filters, 224 / side, 224 / side};
    i.output(conv_fprop(i.input("x", x), i.input("w", w), padded(0, side)), "y", y);
    return engines(*i.g);
  };
  CHECK(patches(4, 96) == Engines{"image_rows"});
  CHECK(patches(4, 128) == Engines{"image_rows"});
  CHECK(patches(16, 768) == Engines{"wgmma"});
}

// Their channels are put together, and then they are what patches with channels last are: a product
// without a window, whose results a last kernel brings to where they lie.
TEST_CASE("data gradients of patches, channels first, are products of whole patches") {
  const Images i{.last = false};
  const Dims x{64, 3, 224, 224}, w{768, 3, 16, 16}, y{64, 768, 14, 14};
  i.output(conv_dgrad(i.input("dy", y), i.input("w", w), x, padded(0, 16)), "dx", x);
  CHECK(engines(*i.g) == Engines{"pointwise", "pointwise", "pointwise", "wgmma", "pointwise"});
}
