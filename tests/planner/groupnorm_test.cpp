// Group norms between convolutions: where images lie, and what is stored.
#include "plan/access.hpp"
#include "planner/images.hpp"
#include "planner/moved.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

constexpr std::int64_t kGroups = 32;

// The index of the domain along which neighbours lie.
int inner_index(const KernelSpec& spec, const KernelPort& p) {
  for (int i = 0; i < spec.extent.size(); ++i)
    if (p.access.stride[i] == 1 && spec.extent[i] > 1) return i;
  return -1;
}

}  // namespace

// The norm's own reshapes are moved behind it; the convolution behind them still sees how its image
// lies.
TEST_CASE("a convolution behind a norm of groups gives its channels last, as it gets them") {
  const Dims dim{8, 320, 32, 32};
  Images i;
  Graph& g = *i.g;
  const auto x = i.input("x", dim), s = g.tensor({.name = "s", .dim = {1, 320, 1, 1}});
  const auto layer = [&](const Tensor& t, const char* name) {
    const auto sums = conv_fprop(t, i.input(name, {320, 320, 3, 3}), padded(1));
    return swish(groupnorm(sums, s, s, 1e-5, {.groups = kGroups}).y);
  };
  i.output(layer(layer(x, "w"), "v") + x, "y", dim);
  int images = 0;
  for (const KernelSpec& spec : kernels(g, "sm_90a"))
    for (const KernelPort& p : spec.ports) {
      if (elements_reached(spec.extent, p.access) != count(dim)) continue;
      ++images;
      const int inner = inner_index(spec, p);
      REQUIRE(inner >= 0);
      CHECK(spec.extent[inner] % 10 == 0);  // channels of a group, or all
    }
  CHECK(images >= 7);
}

// Its channels are summed up whatever their groups, in which alone the norm's statistics are known.
TEST_CASE("gradients of a norm of groups are computed in groups, whoever computed what they read") {
  const Dims dim{8, 320, 32, 32};
  Images i;
  Graph& g = *i.g;
  const auto statistics = [&](const char* name) {
    return g.tensor({.name = name, .dim = {8, kGroups, 1, 1}, .data_type = f32});
  };
  const auto above = conv_dgrad(i.input("dy", dim), i.input("w", {320, 320, 3, 3}), dim, padded(1));
  const auto dy = swish_backward(above, i.input("active", dim));
  const auto r =
      groupnorm_backward(dy, i.input("x", dim), g.tensor({.name = "s", .dim = {1, 320, 1, 1}}),
                         statistics("mean"), statistics("inv"), kGroups);
  i.output(r.dx, "dx", dim);
  g.output(r.dscale, "dscale", {.data_type = f32});
  g.output(r.dbias, "dbias", {.data_type = f32});
  int images = 0;
  for (const KernelSpec& spec : kernels(g, "sm_90a"))
    for (const KernelPort& p : spec.ports)
      images += elements_reached(spec.extent, p.access) == count(dim);
  // `active` and what the product's kernel gives; that and x, twice; dx.
  CHECK(images == 7);
}

// (Measured: see hold_groups() in lib/planner/split/split.cpp.)
TEST_CASE("many groups of few channels are normalised in three kernels, few by clusters") {
  struct Case {
    Dims dim;
    std::size_t kernels;
  };
  const Case cases[] = {{{8, 960, 64, 64}, 3},
                        {{8, 1920, 32, 32}, 3},
                        {{8, 960, 32, 32}, 3},
                        {{16, 1280, 16, 16}, 1},
                        {{64, 320, 32, 32}, 1}};
  for (const auto& [dim, of_all] : cases) {
    CAPTURE(dim[0], dim[1], dim[2]);
    Images i;
    const auto s = i.g->tensor({.name = "s", .dim = {1, dim[1], 1, 1}});
    i.output(swish(groupnorm(i.input("x", dim), s, s, 1e-5, {.groups = kGroups}).y), "y", dim);
    CHECK(kernels(*i.g, "sm_90a").size() == of_all);
  }
}
