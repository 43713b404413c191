// Which kernels the planner makes of depthwise convolutions and of those in groups, at sizes that
// models have. Values are checked on small shapes: corpus graphs convolution_depthwise_* and those
// of groups, with SINTER_DEPTHWISE=mma, rows, planes and ordinary.
#include <string>

#include "planner/images.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

// Of an image and a square filter; `last`: channels are contiguous.
ScheduledKernel depthwise_schedule(DataType io, const Dims& x, std::int64_t filter,
                                   std::int64_t stride, bool gradient, bool last,
                                   DataType results = DataType::none) {
  Images i{.last = last, .g = Shared<Graph>::make(GraphOptions{.io = io})};
  const Dims w{x[1], 1, filter, filter}, y{x[0], x[1], x[2] / stride, x[3] / stride};
  const ConvAttributes a = padded(filter / 2, stride, x[1]);
  if (gradient)
    i.output(conv_dgrad(i.input("dy", y), i.input("w", w), x, a), "dx", x, results);
  else
    i.output(conv_fprop(i.input("x", x), i.input("w", w), a), "y", y, results);
  const auto kernels = planned(*i.g).kernels;
  REQUIRE(kernels.size() == 1);
  const auto k = schedule_kernel(kernels[0], device_model("sm_90a"), {});
  REQUIRE(k.depthwise());
  return k;
}

// Of their filter's gradient, the first kernel; one dim where `x` has one.
ScheduledKernel depthwise_gradient(const Dims& x, std::int64_t filter, std::int64_t stride,
                                   std::int64_t dilation, bool last) {
  Images i{.last = last};
  Dims w{x[1], 1}, y{x[0], x[1]};
  ConvAttributes a{.groups = x[1]};
  for (int d = 2; d < x.size(); ++d) {
    const std::int64_t pad = filter / 2 * dilation;
    w.push_back(filter), y.push_back(x[d] / stride);
    a.pre_padding.push_back(pad), a.post_padding.push_back(pad);
    a.stride.push_back(stride), a.dilation.push_back(dilation);
  }
  i.output(conv_wgrad(i.input("dy", y), i.input("x", x), w, a), "dw", w);
  return schedule_kernel(planned(*i.g).kernels.front(), device_model("sm_90a"), {});
}

}  // namespace

// Each was measured beside the others: tools/benchmarks/decisions/depthwise.md.
TEST_CASE("engines of depthwise convolutions by size, stride and layout") {
  const auto forward = [](const Dims& x, std::int64_t filter, std::int64_t stride, bool last) {
    return depthwise_schedule(bf16, x, filter, stride, false, last);
  };
  CHECK(forward({256, 960, 7, 7}, 3, 1, true).as<DepthwiseMmaConfig>());
  CHECK(forward({64, 384, 14, 14}, 3, 1, true).as<DepthwiseMmaConfig>());
  CHECK(forward({128, 144, 56, 56}, 3, 1, true).as<DepthwiseRowsConfig>());
  CHECK(forward({64, 192, 28, 28}, 3, 2, true).as<DepthwiseRowsConfig>());
  CHECK(forward({64, 672, 14, 14}, 5, 2, true).as<DepthwiseWalkConfig>());
  CHECK(forward({128, 512, 14, 14}, 3, 2, true).as<DepthwiseWalkConfig>());
  CHECK(forward({64, 240, 28, 28}, 5, 2, true).as<DepthwiseRowsConfig>());
  CHECK(forward({64, 672, 14, 14}, 5, 1, false).as<DepthwiseLinesConfig>());
  CHECK(forward({64, 672, 14, 14}, 5, 2, false).as<DepthwisePlanesConfig>());
  CHECK(forward({64, 1152, 7, 7}, 5, 1, false).as<DepthwisePlanesConfig>());

  const auto data = [](const Dims& x, std::int64_t filter, std::int64_t stride) {
    return depthwise_schedule(bf16, x, filter, stride, true, false).as<DepthwisePlanesConfig>();
  };
  CHECK(data({64, 96, 112, 112}, 3, 2));
  CHECK(data({128, 144, 56, 56}, 3, 2));
  CHECK_FALSE(data({128, 144, 56, 56}, 3, 1));
  CHECK(data({64, 240, 28, 28}, 5, 2));
  CHECK_FALSE(data({64, 144, 56, 56}, 5, 2));

  const auto planes = [](const Dims& x, std::int64_t filter, std::int64_t stride,
                         std::int64_t dilation) {
    return depthwise_gradient(x, filter, stride, dilation, false).as<DepthwisePlanesConfig>();
  };
  CHECK(planes({64, 96, 112, 112}, 3, 2, 1));
  CHECK(planes({64, 144, 56, 56}, 3, 1, 2));
  CHECK_FALSE(planes({128, 144, 56, 56}, 3, 1, 1));
  CHECK_FALSE(planes({64, 144, 56, 56}, 5, 2, 1));
  CHECK(planes({16, 512, 1500}, 31, 1, 1));
  CHECK(planes({16, 512, 1500}, 9, 1, 1));
  CHECK_FALSE(planes({4, 2048, 4096}, 5, 1, 1));
  CHECK(depthwise_gradient({8, 192, 56, 56}, 7, 1, 1, true).as<DepthwiseGradientMmaConfig>());
  CHECK(depthwise_gradient({64, 1152, 7, 7}, 5, 1, 1, true).as<DepthwiseWalkConfig>());
}

TEST_CASE("what an epilogue reads counts for the engines of depthwise convolutions") {
  const auto chosen = [](const Dims& x, std::int64_t filter, bool last, const Dims& bias,
                         int tensors) {
    Images i{.last = last};
    const Dims w{x[1], 1, filter, filter};
    Tensor y = conv_fprop(i.input("x", x), i.input("w", w), padded(filter / 2, 1, x[1]));
    if (!bias.empty()) y = add(y, i.input("b", bias));
    for (const char* name : {"r", "s"})
      if (tensors-- > 0) y = add(y, i.input(name, x));
    i.output(y, "y", x);
    return schedule_kernel(planned(*i.g).kernels[0], device_model("sm_90a"), {});
  };
  // A bias of each image leaves no boxes of results.
  CHECK(chosen({64, 240, 28, 28}, 5, true, {}, 0).as<DepthwiseMmaConfig>());
  CHECK(chosen({64, 240, 28, 28}, 5, true, {64, 240, 1, 1}, 0).as<DepthwiseRowsConfig>());
  CHECK(chosen({64, 384, 28, 28}, 7, true, {64, 384, 1, 1}, 0).as<DepthwiseMmaConfig>());
  // Channels first: loads to registers wait for what else is read, and read the ends of lines
  // twice.
  for (const int tensors : {0, 1, 2})
    CHECK(chosen({64, 384, 28, 28}, 3, false, {}, tensors).as<DepthwisePlanesConfig>());
  CHECK(chosen({64, 144, 56, 56}, 3, false, {}, 2).as<DepthwisePlanesConfig>());
  CHECK(chosen({64, 240, 28, 28}, 5, false, {}, 0).as<DepthwiseWalkConfig>());
  CHECK(chosen({64, 32, 112, 112}, 3, false, {}, 0).as<DepthwiseWalkConfig>());
}

TEST_CASE("depthwise convolutions have an engine of their own, whatever lies together") {
  for (const bool last : {true, false})
    for (const std::int64_t stride : {1, 2}) {
      const std::int64_t out = 56 / stride;
      const Dims x{32, 96, 56, 56}, w{96, 1, 3, 3}, y{32, 96, out, out};
      INFO("channels last " << last << ", stride " << stride);
      Images f{.last = last};
      f.output(conv_fprop(f.input("x", x), f.input("w", w), padded(1, stride, 96)), "y", y);
      CHECK(engines(*f.g) == Engines{"depthwise"});
      Images d{.last = last};
      d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, padded(1, stride, 96)), "dx", x);
      CHECK(engines(*d.g) == Engines{"depthwise"});
      Images g{.last = last};
      g.output(conv_wgrad(g.input("dy", y), g.input("x", x), w, padded(1, stride, 96)), "dw", w);
      const Engines made = engines(*g.g);
      CHECK(made.front() == "depthwise");
      CHECK((made.size() == 1 || made == Engines{"depthwise", "rowwise"}));
    }
}

// As products of a column each these took 20 to 80 times as long.
TEST_CASE("several filters of a channel, 8-bit numbers and f32 in narrow groups run as depthwise") {
  struct Case {
    DataType io;
    bool last;
    std::int64_t channels, filters, in_group;
  };
  for (const Case& t :
       {Case{f8e4m3, true, 256, 256, 1}, Case{i8, true, 256, 256, 1}, Case{bf16, true, 128, 256, 1},
        Case{bf16, false, 128, 256, 1}, Case{f32, true, 64, 256, 1}, Case{f32, false, 64, 192, 1},
        Case{f32, true, 128, 128, 4}, Case{f32, true, 128, 256, 4},
        Case{f32, false, 256, 128, 8}}) {
    INFO(name(t.io) << ", " << t.channels << " to " << t.filters << " in groups of " << t.in_group
                    << (t.last ? ", channels last" : ", channels first"));
    const Dims x{64, t.channels, 28, 28}, w{t.filters, t.in_group, 3, 3}, y{64, t.filters, 28, 28};
    const ConvAttributes a = padded(1, 1, t.channels / t.in_group);
    const GraphOptions options{.io = t.io};
    Images f{.last = t.last, .g = Shared<Graph>::make(options)};
    f.output(conv_fprop(f.input("x", x), f.input("w", w), a), "y", y);
    CHECK(engines(*f.g) == Engines{"depthwise"});
    Images d{.last = t.last, .g = Shared<Graph>::make(options)};
    d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, a), "dx", x);
    CHECK(engines(*d.g) == Engines{"depthwise"});
    if (t.io == i8) continue;  // sums of so many products of integers f32 would round
    Images g{.last = t.last, .g = Shared<Graph>::make(options)};
    g.output(conv_wgrad(g.input("dy", y), g.input("x", x), w, a), "dw", w);
    CHECK(engines(*g.g).front() == "depthwise");
  }
}

TEST_CASE("large depthwise convolutions of 16-bit numbers run on tensor cores") {
  const auto on_tensor_cores = [](DataType io, const Dims& x, std::int64_t filter,
                                  std::int64_t stride, bool gradient) {
    return depthwise_schedule(io, x, filter, stride, gradient, true).as<DepthwiseMmaConfig>() !=
           nullptr;
  };
  const Dims wide{64, 384, 28, 28}, flat{128, 144, 56, 56};
  for (const DataType io : {bf16, f16})
    for (const bool gradient : {false, true}) {
      CHECK(on_tensor_cores(io, wide, 7, 1, gradient));
      CHECK_FALSE(on_tensor_cores(io, flat, 3, 1, gradient));  // few taps: CUDA cores are faster
    }
  CHECK(on_tensor_cores(bf16, wide, 7, 2, false));
  CHECK_FALSE(on_tensor_cores(bf16, wide, 7, 2, true));  // phases
  CHECK_FALSE(on_tensor_cores(f32, wide, 7, 1, false));
  CHECK_FALSE(on_tensor_cores(bf16, {64, 385, 28, 28}, 7, 1, false));  // no pairs of channels
  CHECK_FALSE(on_tensor_cores(bf16, {1, 64, 14, 14}, 7, 1, false));    // too few walks
}

// By the few threads that store, f32 took twice as long.
TEST_CASE("results of depthwise convolutions on tensor cores leave in boxes, whatever their type") {
  for (const DataType results : {bf16, f32, f8e4m3})
    for (const bool gradient : {false, true}) {
      INFO(name(results));
      const ScheduledKernel k =
          depthwise_schedule(bf16, {64, 96, 56, 56}, 7, 1, gradient, true, results);
      const auto* const e = k.as<DepthwiseMmaConfig>();
      REQUIRE(e);
      REQUIRE(e->result);
      CHECK(e->result->map->swizzle == e->lanes * e->each * info(results).bytes);
      CHECK(e->result->map->box[0] == e->lanes * e->each);
    }
}

// Of four neither pixels nor results move by TMA.
TEST_CASE("what the epilogue of a depthwise convolution reads comes to where the results wait") {
  for (const int count : {0, 1, 2, 3, 4}) {
    INFO(count << " tensors");
    Images i;
    const Dims x{64, 384, 28, 28};
    Tensor y = conv_fprop(i.input("x", x), i.input("w", {384, 1, 7, 7}), padded(3, 1, 384));
    y = y + i.input("bias", {1, 384, 1, 1});
    for (int n = 0; n < count; ++n) y = y + i.input(("r" + std::to_string(n)).c_str(), x);
    i.output(relu(y), "y", x);
    const auto kernels = planned(*i.g).kernels;
    REQUIRE(kernels.size() == 1);
    const auto k = schedule_kernel(kernels[0], device_model("sm_90a"), {});
    const auto* const e = k.as<DepthwiseMmaConfig>();
    REQUIRE(e);
    CHECK(e->result.has_value() == (count < 4));
    CHECK(e->image.map.has_value() == (count < 4));
    const auto& beside = e->beside;
    REQUIRE(beside.size() == (count < 4 ? static_cast<std::size_t>(count) : 0));
    for (std::size_t n = 0; n < beside.size(); ++n) CHECK(beside[n].in_place == (n == 0));
  }
}

TEST_CASE("what a depthwise convolution reads is computed apart, what follows is its epilogue") {
  Images i;
  const Dims x{32, 96, 56, 56};
  const auto y = conv_fprop(relu(i.input("x", x)), i.input("w", {96, 1, 7, 7}), padded(3, 1, 96));
  i.output(relu(y + i.input("bias", {1, 96, 1, 1})), "y", x);
  CHECK(engines(*i.g) == Engines{"pointwise", "depthwise"});
}

TEST_CASE("pixels of a stride are joined where their channels fill half a line, without a copy") {
  const auto forward = [](const Dims& x, std::int64_t stride, std::int64_t filter = 3) {
    Images i;
    const Dims w{64, x[1], filter, filter};
    const auto out = [&](std::int64_t n) { return (n + 2 - filter) / stride + 1; };
    const auto y = conv_fprop(i.input("x", x), i.input("w", w), padded(1, stride));
    i.output(relu(y + i.input("bias", {1, 64, 1, 1})), "y", {x[0], 64, out(x[2]), out(x[3])});
    return engines(*i.g);
  };
  const Engines joined{"pointwise", "wgmma"}, as_it_is{"wgmma"};
  CHECK(forward({64, 32, 112, 112}, 2) == joined);
  CHECK(forward({64, 24, 111, 112}, 2, 5) == joined);
  CHECK(forward({64, 32, 112, 111}, 2) == as_it_is);  // the last pixel of a row has no other one
  CHECK(forward({64, 32, 112, 112}, 1) == as_it_is);
  CHECK(forward({64, 64, 112, 112}, 2) == as_it_is);  // whole lines
  CHECK(forward({1, 32, 14, 14}, 2) == as_it_is);     // a copy costs more than it saves
}

TEST_CASE("groups of 2, 4 and 8 channels have an engine of their own") {
  const Dims x{64, 128, 56, 56};
  for (const std::int64_t channels : {2, 4, 8})
    for (const std::int64_t stride : {1, 2}) {
      INFO("groups of " << channels << ", stride " << stride);
      const Dims w{128, channels, 3, 3}, y{64, 128, 56 / stride, 56 / stride};
      const ConvAttributes a = padded(1, stride, 128 / channels);
      Images f, d;
      f.output(relu(conv_fprop(f.input("x", x), f.input("w", w), a)), "y", y);
      d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, a), "dx", x);
      for (const Images& i : {f, d})
        CHECK((engines(*i.g) == Engines{"depthwise"}) == (stride == 1));
    }
  // Which reads channels that are contiguous, and bf16.
  const Dims small{64, 256, 28, 28}, w{256, 8, 3, 3};
  Images first{.last = false}, bytes{.options = {.io = f8e4m3}};
  for (const Images* i : {&first, &bytes})
    i->output(conv_fprop(i->input("x", small), i->input("w", w), padded(1, 1, 32)), "y", small);
  CHECK(engines(*first.g) == Engines{"pointwise", "depthwise", "pointwise"});
  CHECK(engines(*bytes.g) == Engines{"pointwise", "pointwise", "depthwise"});
}

TEST_CASE("filter gradients of large depthwise convolutions run on tensor cores of sm_90a") {
  const auto on_tensor_cores = [](DataType io, std::int64_t filter, std::string_view target) {
    Images i{.g = Shared<Graph>::make(GraphOptions{.io = io})};
    const Dims x{64, 384, 28, 28}, w{384, 1, filter, filter};
    i.output(conv_wgrad(i.input("dy", x), i.input("x", x), w, padded(filter / 2, 1, 384)), "dw", w);
    const auto k = schedule_kernel(planned(*i.g).kernels[0], device_model(target), {});
    REQUIRE(k.depthwise());
    return k.as<DepthwiseGradientMmaConfig>() || k.as<NarrowGroupsGradientConfig>();
  };
  for (const DataType io : {bf16, f16}) {
    CHECK(on_tensor_cores(io, 7, "sm_90a"));
    CHECK(on_tensor_cores(io, 5, "sm_90a"));
    CHECK_FALSE(on_tensor_cores(io, 3, "sm_90a"));  // few taps
    CHECK_FALSE(on_tensor_cores(io, 9, "sm_90a"));  // more than eight rows
    CHECK_FALSE(on_tensor_cores(io, 7, "sm_80"));
  }
  CHECK_FALSE(on_tensor_cores(f32, 7, "sm_90a"));
  Images first{.last = false};
  const Dims x{64, 768, 14, 14}, w{768, 1, 7, 7};
  first.output(conv_wgrad(first.input("dy", x), first.input("x", x), w, padded(3, 1, 768)), "dw",
               w);
  CHECK(engines(*first.g) == Engines{"pointwise", "pointwise", "depthwise", "rowwise"});
}

// A row of each plane with the zeros in front of it, and a row of its results.
TEST_CASE("boxes of depthwise convolutions on tensor cores have few lines") {
  const auto box = [](const Dims& x, std::int64_t filter, int lines, int results, int planes) {
    const auto k = depthwise_schedule(bf16, x, filter, 1, false, true);
    const auto* const e = k.as<DepthwiseMmaConfig>();
    REQUIRE(e);
    REQUIRE(e->image.map);
    CHECK(e->image.line == lines);
    CHECK(e->image.map->box[1] == lines);
    CHECK(e->image.map->box[3] == planes);
    CHECK(e->result->map->box[1] == results);
  };
  box({64, 384, 28, 28}, 7, 36, 28, 4);
  box({64, 768, 14, 14}, 7, 20, 14, 8);
  box({64, 768, 7, 7}, 7, 12, 8, 16);
  box({64, 672, 14, 14}, 5, 20, 14, 8);
  box({64, 96, 56, 56}, 7, 60, 56, 2);
}

TEST_CASE("depthwise convolutions of small filters take pixels from boxes on sm_90a") {
  for (const std::int64_t stride : {1, 2}) {
    INFO("stride " << stride);
    const Dims x{128, 144, 56, 56}, w{144, 1, 3, 3}, y{128, 144, 56 / stride, 56 / stride};
    const ConvAttributes a = padded(1, stride, 144);
    Images f, d;
    f.output(conv_fprop(f.input("x", x), f.input("w", w), a), "y", y);
    d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, a), "dx", x);
    for (const Images* i : {&f, &d})
      for (const bool boxes : {true, false}) {
        const auto k = schedule_kernel(planned(*i->g).kernels[0],
                                       device_model(boxes ? "sm_90a" : "sm_80"), {});
        REQUIRE(k.depthwise());
        CHECK((k.as<DepthwiseRowsConfig>() != nullptr) == boxes);
        // Pieces of whole sectors of the cache.
        CHECK(k.depthwise()->lanes * k.depthwise()->each % 16 == 0);
      }
  }
}

TEST_CASE("depthwise convolutions of volumes take pixels from boxes, a frame each") {
  for (const std::int64_t channels : {112, 108}) {  // of which TMA loads the first
    INFO(channels << " channels");
    const Dims x{8, channels, 16, 40, 40}, w{channels, 1, 3, 3, 3};
    ConvAttributes a{.pre_padding = {1, 1, 1}, .post_padding = {1, 1, 1}, .groups = channels};
    a.stride = a.dilation = {1, 1, 1};
    Images f, d;
    f.output(conv_fprop(f.input("x", x), f.input("w", w), a), "y", x);
    d.output(conv_dgrad(d.input("dy", x), d.input("w", w), x, a), "dx", x);
    for (const Images* i : {&f, &d}) {
      const auto k = schedule_kernel(planned(*i->g).kernels[0], device_model("sm_90a"), {});
      REQUIRE(k.depthwise());
      CHECK((k.as<DepthwiseRowsConfig>() != nullptr) == (channels == 112));
    }
  }
}

TEST_CASE("depthwise convolutions of small images, channels first, take whole planes") {
  // 37 planes of 98 bytes end within a piece of 16.
  for (const std::int64_t channels : {512, 37})
    for (const std::int64_t side : {7, 14})
      for (const std::int64_t stride : {1, 2}) {
        INFO(channels << " channels of " << side << ", stride " << stride);
        const std::int64_t of_result = (side - 1) / stride + 1;
        const Dims x{128, channels, side, side}, w{channels, 1, 3, 3},
            y{128, channels, of_result, of_result};
        Images f{.last = false}, d{.last = false}, g{.last = false};
        const ConvAttributes a = padded(1, stride, channels);
        f.output(add(conv_fprop(f.input("x", x), f.input("w", w), a), f.input("r", y)), "y", y);
        d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, a), "dx", x);
        g.output(conv_wgrad(g.input("dy", y), g.input("x", x), w, a), "dw", w);
        for (const Images* i : {&f, &d, &g}) {
          if (channels != 512 && i != &f) continue;  // whose image, or sum of images, may end there
          const auto k = schedule_kernel(planned(*i->g).kernels[0], device_model("sm_90a"), {});
          REQUIRE(k.depthwise());
          CHECK((k.as<DepthwisePlanesConfig>() != nullptr) == (channels == 512));
        }
      }
}

TEST_CASE("depthwise convolutions of many taps, channels first, run on tensor cores") {
  const auto in_lines = [](DataType io, const Dims& x, std::int64_t filter, std::int64_t stride,
                           bool gradient) {
    return depthwise_schedule(io, x, filter, stride, gradient, false).as<DepthwiseLinesConfig>() !=
           nullptr;
  };
  for (const DataType io : {bf16, f16})
    for (const bool gradient : {false, true}) {
      CHECK(in_lines(io, {64, 384, 28, 28}, 7, 1, gradient));
      CHECK_FALSE(in_lines(io, {128, 144, 56, 56}, 3, 1, gradient));  // few taps
      CHECK_FALSE(in_lines(io, {64, 384, 28, 27}, 7, 1, gradient));   // words of two lines
    }
  CHECK_FALSE(in_lines(bf16, {64, 384, 28, 28}, 7, 2, true));  // phases
  CHECK_FALSE(in_lines(f32, {64, 384, 28, 28}, 7, 1, false));
}

TEST_CASE("depthwise convolutions of 8-bit floats and many taps are multiplied as bf16") {
  for (const std::int64_t taps : {7, 3}) {
    Images f{.options = {.io = DataType::f8e4m3}};
    const Dims x{64, 384, 28, 28}, w{384, 1, taps, taps};
    f.output(conv_fprop(f.input("x", x), f.input("w", w), padded(taps / 2, 1, 384)), "y", x);
    const auto kernels = planned(*f.g).kernels;
    REQUIRE(kernels.size() == (taps == 7 ? 3 : 1));
    const auto k = schedule_kernel(kernels.back(), device_model("sm_90a"), {});
    REQUIRE(k.depthwise());
    CHECK((k.as<DepthwiseMmaConfig>() != nullptr) == (taps == 7));
  }
}

TEST_CASE("groups of few channels are joined, with zeros between them in the filter") {
  const Dims x{64, 128, 56, 56}, w{128, 16, 3, 3};
  Images f;
  f.output(conv_fprop(f.input("x", x), f.input("w", w), padded(1, 1, 8)), "y", x);
  CHECK(engines(*f.g) == Engines{"pointwise", "wgmma"});
  const auto kernels = planned(*f.g).kernels;
  CHECK(kernels[0].extent == Dims{2, 4, 16 * 3 * 3, 4, 16});  // (a, k and taps, b, c)
  // A filter's gradient with a stride: without, units of 8 channels are multiplied as they lie.
  for (const std::int64_t stride : {1, 2}) {
    INFO("stride " << stride);
    Images g;
    const Dims narrow{128, 4, 3, 3}, y{64, 128, 56 / stride, 56 / stride};
    g.output(conv_wgrad(g.input("dy", y), g.input("x", x), narrow, padded(1, stride, 32)), "dw",
             narrow);
    const Engines made = engines(*g.g);
    CHECK(made.front() == (stride == 1 ? "depthwise" : "wgmma"));
    CHECK(made.back() == (stride == 1 ? "rowwise" : "pointwise"));
  }
}

TEST_CASE("groups that fill no line run as they lie, channels first once they lie side by side") {
  const auto forward = [](std::int64_t c, std::int64_t channels, bool last) {
    Images i{.last = last};
    const Dims x{64, c, 28, 28}, w{c, channels, 3, 3};
    const Tensor y = conv_fprop(i.input("x", x), i.input("w", w), padded(1, 1, c / channels));
    i.output(relu(y), "y", x);
    return engines(*i.g);
  };
  CHECK(forward(224, 56, true) == Engines{"wgmma"});
  CHECK(forward(432, 16, true) == Engines{"pointwise", "wgmma"});  // 27 groups in threes
  CHECK(forward(512, 16, false) == Engines{"pointwise", "pointwise", "wgmma"});
}

TEST_CASE("strided data gradients of groups, channels first, are not stored phase by phase") {
  const Dims x{64, 256, 28, 28}, w{256, 8, 3, 3}, y{64, 256, 14, 14};
  Images d{.last = false};
  d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, padded(1, 2, 32)), "dx", x);
  CHECK(engines(*d.g) == Engines{"pointwise", "pointwise", "wgmma", "pointwise"});
}

TEST_CASE("strided data gradients, channels first, are not stored phase by phase") {
  const auto gradient = [](const Dims& x, const Dims& y, std::int64_t filter, int groups) {
    Images d{.last = false};
    const Dims w{y[1], x[1] / groups, filter, filter};
    d.output(conv_dgrad(d.input("dy", y), d.input("w", w), x, padded(filter / 2, 2, groups)), "dx",
             x);
    return engines(*d.g);
  };
  const Engines brought{"pointwise", "pointwise", "wgmma", "pointwise"};
  CHECK(gradient({32, 128, 56, 56}, {32, 256, 28, 28}, 3, 1) == brought);
  CHECK(gradient({64, 1024, 14, 14}, {64, 1024, 7, 7}, 3, 32) == brought);
  // A launch takes longer than stores of few results.
  CHECK(gradient({4, 128, 28, 28}, {4, 256, 14, 14}, 3, 1) ==
        Engines{"pointwise", "pointwise", "wgmma"});
}
