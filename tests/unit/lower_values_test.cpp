// Values of expansions where GRAPH_JSON.md states a number: running statistics, block scales,
// statistics that are stored narrower than they are used, and empty extents.
#include <cmath>
#include <limits>

#include "unit/gradient_check.hpp"

namespace sinter {
namespace {

using test::Array;
using test::Arrays;
using test::run_graph;
using test::Tensors;

using Values = std::vector<double>;

Arrays run_batchnorm(const Array& x) {
  Graph g({.io = f64});
  const Arrays in{{"x", x},
                  {"scale", {{1, 1, 1}, {2}, f64}},
                  {"mean", {{1, 1, 1}, {10}, f64}},
                  {"var", {{1, 1, 1}, {20}, f64}},
                  {"momentum", {{1, 1, 1, 1}, {0.25}, f64}}};  // more dims than X
  const Tensors t = test::declare_inputs(g, in);
  auto r = batchnorm(t.at("x"), t.at("scale"), Tensor{}, g.scalar(0, f64),
                     {t.at("mean"), t.at("var"), t.at("momentum")});
  g.output(r.y, "y");
  g.output(r.inv_variance, "inv");
  g.output(r.next_running_mean, "next_mean");
  g.output(r.next_running_var, "next_var");
  return run_graph(g, in);
}

TEST_CASE("batchnorm normalises with the biased variance and keeps the unbiased one") {
  const Arrays out = run_batchnorm({{2, 1, 2}, {1, 3, 5, 7}, f64});
  CHECK(out.at("inv").values[0] == Approx(1 / std::sqrt(5.0)));
  CHECK(out.at("y").values[3] == Approx(2 * 3 / std::sqrt(5.0)));
  CHECK(out.at("next_mean").values[0] == Approx(0.75 * 10 + 0.25 * 4));
  CHECK(out.at("next_var").values[0] == Approx(0.75 * 20 + 0.25 * 20 / 3));
}

TEST_CASE("the unbiased variance of one element is not a number") {
  const Arrays out = run_batchnorm({{1, 1, 1}, {3}, f64});
  CHECK(out.at("next_mean").values[0] == Approx(0.75 * 10 + 0.25 * 3));
  CHECK(std::isnan(out.at("next_var").values[0]));
}

TEST_CASE("a statistic stored in a narrow type does not change Y") {
  const Array x{{1, 4}, {1.5, -2.25, 0.75, 3.125}, f32};
  const auto y = [&](DataType stored) {
    Graph g;
    const Arrays in{{"x", x}, {"scale", {{4}, {1, 2, 3, 4}, f32}}};
    const Tensors t = test::declare_inputs(g, in);
    auto r = layernorm(t.at("x"), t.at("scale"), Tensor{}, 1e-5,
                       {.forward_phase = ForwardPhase::training});
    g.output(r.y, "y");
    g.output(r.mean, "mean", {.data_type = stored});
    g.output(r.inv_variance, "inv", {.data_type = stored});
    return run_graph(g, in).at("y").values;
  };
  CHECK(y(f8e5m2) == y(f32));
}

Arrays quantize(const Values& x, DataType y_type, DataType scale_type) {
  Graph g;
  const Arrays in{{"x", {{2, static_cast<std::int64_t>(x.size()) / 2}, x, f32}}};
  auto q = block_scale_quantize(test::declare_inputs(g, in).at("x"), {.block_size = 2}, y_type,
                                scale_type);
  g.output(q.y, "y");
  g.output(q.scale, "scale");
  return run_graph(g, in);
}

TEST_CASE("block scales are rounded up to powers of two for f8e8m0 and to nearest otherwise") {
  const Values x{0, 0, 7, -3.5, 12, 1, -449, 448};
  const Arrays mx = quantize(x, f4e2m1, f8e8m0);
  CHECK(mx.at("scale").values == Values{1, 2, 2, 128});
  CHECK(mx.at("y").values == Values{0, 0, 4, -2, 6, 0.5, -4, 4});
  const Arrays fine = quantize(x, f8e4m3, f32);
  CHECK(fine.at("scale").values[0] == 1);
  CHECK(fine.at("scale").values[1] == static_cast<double>(7.0f / 448.0f));
  CHECK(fine.at("y").values[2] == 448);
}

TEST_CASE("a block scale that underflows is used as stored, and the quotients saturate") {
  const Arrays out = quantize({1e-6, -1e-6, 0, 1e-6}, f8e4m3, f8e4m3);
  CHECK(out.at("scale").values == Values{0, 0});
  CHECK(out.at("y").values[0] == 448);
  CHECK(out.at("y").values[1] == -448);
  CHECK(std::isnan(out.at("y").values[2]));
}

TEST_CASE("dequantizing multiplies each block by its scale along the axis") {
  Graph g;
  const Arrays in{{"x", {{4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, f32}},
                  {"scale", {{2, 2}, {1, 10, 100, 1000}, f32}}};
  const Tensors t = test::declare_inputs(g, in);
  g.output(block_scale_dequantize(t.at("x"), t.at("scale"), {.block_size = 2, .axis = 0}), "y");
  CHECK(run_graph(g, in).at("y").values == Values{1, 20, 3, 40, 500, 6000, 700, 8000});
}

TEST_CASE("softmax counts large scores without overflow and gives the log of their sum") {
  Graph g;
  const Arrays in{{"x", {{1, 2}, {1000, 1000}, f32}}};
  auto r = softmax(test::declare_inputs(g, in).at("x"), {.stats = true});
  g.output(r.y, "y");
  g.output(r.stats, "stats");
  const Arrays out = run_graph(g, in);
  CHECK(out.at("y").values == Values{0.5, 0.5});
  CHECK(out.at("stats").values[0] == Approx(1000 + std::log(2.0)));
}

TEST_CASE("gradients of an empty batch are zeros in SCALE's dims") {
  Graph g;
  const Arrays in{{"x", {{4, 0}, {}, f32}},
                  {"scale", {{1, 3}, {1, 2, 3}, f32}},
                  {"stat", {{4, 1}, {0, 0, 0, 0}, f32}}};
  const Tensors t = test::declare_inputs(g, in);
  auto r = layernorm_backward(t.at("x"), t.at("x"), t.at("scale"), t.at("stat"), t.at("stat"));
  g.output(r.dx, "dx");
  g.output(r.dscale, "dscale");
  g.output(r.dbias, "dbias");
  const Arrays out = run_graph(g, in);
  CHECK(out.at("dx").values.empty());
  CHECK(out.at("dscale").values == Values{0, 0, 0});
  CHECK(out.at("dbias").values == Values{0, 0, 0});
}

}  // namespace
}  // namespace sinter
