// Pooling behind a convolution: which kernel does it, and whether its values are right.
#include "planner/images.hpp"
#include "planner/spec/domain.hpp"

namespace sinter::test {
namespace {

struct PooledLayer {
  Dims x{32, 64, 224, 224};
  std::int64_t filters = 64, window = 2, stride = 2, padding = 0;
  ResampleMode mode = ResampleMode::maxpool;
  DataType io = bf16;
  bool beside = false, last = true;
};

Images pooled(const PooledLayer& l) {
  Images i{.options = {.io = l.io}, .last = l.last};
  const Dims y{l.x[0], l.filters, l.x[2], l.x[3]};
  const auto pool = [&](std::int64_t n) { return (n + 2 * l.padding - l.window) / l.stride + 1; };
  Tensor t =
      relu(conv_fprop(i.input("x", l.x), i.input("w", {l.filters, l.x[1], 3, 3}), padded(1)));
  if (l.beside) i.output(t, "y", y);
  i.output(resample(t, {.mode = l.mode,
                        .window = {l.window, l.window},
                        .stride = {l.stride, l.stride},
                        .pre_padding = {l.padding, l.padding},
                        .post_padding = {l.padding, l.padding}})
               .y,
           "p", {y[0], y[1], pool(y[2]), pool(y[3])});
  return i;
}

}  // namespace

TEST_CASE("windows of 2 x 2 are pooled where the convolution is") {
  for (const PooledLayer& l :
       {PooledLayer{}, PooledLayer{.beside = true},
        PooledLayer{.x = {8, 128, 128, 128}, .filters = 128}, PooledLayer{.io = DataType::f16},
        PooledLayer{.mode = ResampleMode::avgpool_include_padding, .beside = true}}) {
    const Images i = pooled(l);
    const Partition p = planned(*i.g);
    REQUIRE(p.kernels.size() == 1);
    const PooledPixels& pool = p.kernels[0].contraction().pooled;
    CHECK(pool.on());
    CHECK((pool.port != pool.of) == l.beside);
    CHECK(pool.averages == (l.mode != ResampleMode::maxpool));
    CHECK(p.workspace_bytes == 0);
    // Nothing is left of what kept the two apart.
    CHECK(std::none_of(p.cuts.begin(), p.cuts.end(),
                       [](const PlanCut& c) { return c.node.find("resample") == 0; }));
    const ScheduledKernel k = schedule_kernel(p.kernels[0], device_model("sm_90a"), {});
    REQUIRE(k.wgmma());
    CHECK(k.wgmma()->window->blocks.size() > 0);
  }
}

TEST_CASE("other windows, and pixels that are no blocks, are pooled by a kernel of their own") {
  for (const PooledLayer& l :
       {PooledLayer{.window = 3, .padding = 1}, PooledLayer{.window = 3}, PooledLayer{.stride = 1},
        PooledLayer{.mode = ResampleMode::avgpool_include_padding},  // of f32
        PooledLayer{.x = {32, 64, 223, 224}}, PooledLayer{.filters = 60},
        PooledLayer{.x = {32, 512, 14, 14}, .filters = 512}, PooledLayer{.last = false}}) {
    const Images i = pooled(l);
    const Partition p = planned(*i.g);
    CHECK(std::none_of(p.kernels.begin(), p.kernels.end(), [](const KernelSpec& k) {
      return k.as_contraction() && k.contraction().pooled.on();
    }));
  }
}

TEST_CASE("ports of pooled pixels are numbered anew with the others") {
  KernelSpec spec;
  spec.family = ContractionSpec{};
  spec.ports.resize(3);
  PooledPixels& pool = spec.contraction().pooled;
  pool.of = 1, pool.port = 2;
  drop_unused(spec);
  CHECK(spec.ports.size() == 2);
  CHECK((pool.of == 0 && pool.port == 1));
}

TEST_CASE("pooled pixels have the values of the two nodes") {
  using Mode = ResampleMode;
  for (const bool beside : {false, true})
    for (const Mode mode : {Mode::maxpool, Mode::avgpool_exclude_padding}) {
      const Images i = pooled({.x = {2, 8, 6, 10}, .filters = 64, .mode = mode, .beside = beside});
      check_values(*i.g);
    }
}

}  // namespace sinter::test
