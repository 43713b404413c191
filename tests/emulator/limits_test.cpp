// Pointwise modes and softmax over infinities, zeros, NaN and the ends of the types, as planned for
// every type, and as kernels in float and 16 bits.
#include "compile/make_plan.hpp"
#include "emulator/emulator.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/plan_interpreter.hpp"

namespace sinter::test {
namespace {

// Modes with what their attributes change.
std::vector<PointwiseAttributes> all_modes() {
  std::vector<PointwiseAttributes> modes;
  for (int m = 0; m < static_cast<int>(std::size(EnumNames<PointwiseMode>::names)); ++m)
    if (static_cast<PointwiseMode>(m) != PointwiseMode::gen_index)
      modes.push_back({.mode = static_cast<PointwiseMode>(m)});
  using M = PointwiseMode;
  for (const M m : {M::relu_fwd, M::relu_bwd}) {
    modes.push_back({.mode = m, .relu_upper_clip = 6});
    modes.push_back({.mode = m, .relu_lower_clip_slope = 0.25});
    modes.push_back({.mode = m, .relu_lower_clip = -kInfinity});
    modes.push_back({.mode = m, .relu_lower_clip = -kInfinity, .relu_lower_clip_slope = 0.5});
    modes.push_back({.mode = m, .relu_lower_clip = 0x1.cp127, .relu_lower_clip_slope = 0.5});
  }
  for (const M m : {M::swish_fwd, M::swish_bwd})
    for (const double beta : {4.0, -0.5}) modes.push_back({.mode = m, .swish_beta = beta});
  for (const M m : {M::softplus_fwd, M::softplus_bwd})
    for (const double beta : {4.0, -2.0}) modes.push_back({.mode = m, .softplus_beta = beta});
  return modes;
}

void add_mode(Graph& g, const PointwiseAttributes& a, Tensor x, Tensor y, Tensor z,
              const std::string& name) {
  const int arity = info(a.mode).arity;
  g.output(arity == 1   ? pointwise(a, x)
           : arity == 2 ? pointwise(a, x, y)
                        : pointwise(a, x, y, z),
           name);
}

// Every mode has an output of its own.
void modes_of(Graph& g, const std::vector<PointwiseAttributes>& modes) {
  const auto x = g.tensor({.name = "x", .dim = {300}}), y = g.tensor({.name = "y", .dim = {300}}),
             z = g.tensor({.name = "z", .dim = {300}});
  for (std::size_t i = 0; i < modes.size(); ++i)
    add_mode(g, modes[i], x, y, z, std::to_string(i) + "_" + std::string(name(modes[i].mode)));
}

void check(const GraphCase& c, const Status& ran) {
  INFO((ran ? "" : ran.error().message()));
  REQUIRE(ran);
  const Comparison r = c.judge();
  INFO(r.first_wrong);
  CHECK(r.wrong == 0);
  CHECK(r.untrusted * 4 < r.compared);
}

TEST_CASE("all pointwise modes keep their limits in plans of every type", "[limits]") {
  for (const DataType type : {f64, f32, bf16, f16, f8e4m3, f8e5m2}) {
    INFO(info(type).name);
    Graph g({.io = type, .intermediate = type == f64 ? f64 : f32});
    modes_of(g, all_modes());
    REQUIRE(g.check().empty());
    GraphCase c(g, Fill::limits, 1);
    c.clear_outputs();
    interpret_fused(g, {}, c.lowered(), c.memory());
    check(c, Done{});
  }
}

TEST_CASE("kernels keep the limits of activations, their gradients and softmax", "[limits]") {
  for (const DataType type : {f32, bf16}) {
    INFO(info(type).name);
    Graph g({.io = type, .intermediate = f32});
    std::vector<PointwiseAttributes> modes;
    for (const auto& a : all_modes())
      if (a.mode >= PointwiseMode::relu_fwd || a.mode == PointwiseMode::add_square)
        modes.push_back(a);
    modes_of(g, modes);
    const auto rows = g.tensor({.name = "rows", .dim = {4000, 2}});
    const auto [y, stats] = softmax(rows, {.stats = true});
    g.output(y, "softmax");
    g.output(stats, "stats");
    REQUIRE(g.check().empty());
    GraphCase c(g, Fill::limits, 3);
    const auto plan = make_plan(g, {}, {}, nullptr);
    REQUIRE(plan);
    c.clear_outputs();
    check(c, emulate(*plan, c));
  }
}

}  // namespace
}  // namespace sinter::test
