// Attention through its expansion on the CPU backend: gradients against central differences with
// every option, and the contract on masked rows and columns.
#include <limits>

#include "unit/gradient_check.hpp"

namespace sinter {
namespace {

using test::Array;
using test::Arrays;
using test::check_gradients;
using test::integers;
using test::random_array;
using test::run_graph;
using test::Tensors;

SdpaInputs optional_inputs(const Tensors& t) {
  const auto get = [&](const char* name) { return t.contains(name) ? t.at(name) : Tensor{}; };
  return {get("bias"),    get("nq"),      get("nkv"),  get("seed"), get("offset"),
          get("table_k"), get("table_v"), get("sink"), get("tiles")};
}

void check_attention(const Arrays& inputs, SdpaAttributes a) {
  check_gradients(
      inputs,
      [&](Graph&, const Tensors& t) {
        return sdpa(t.at("q"), t.at("k"), t.at("v"), a, optional_inputs(t)).o;
      },
      [&](Graph& g, const Tensors& t, Tensor dy) {
        SdpaAttributes with_stats = a;
        with_stats.generate_stats = true;
        const auto f = sdpa(t.at("q"), t.at("k"), t.at("v"), with_stats, optional_inputs(t));
        g.edit(f.stats.id()).data_type = f64;
        auto r =
            sdpa_backward(t.at("q"), t.at("k"), t.at("v"), f.o, dy, f.stats, a, optional_inputs(t));
        Tensors gradients{{"q", r.dq}, {"k", r.dk}, {"v", r.dv}};
        if (t.contains("bias")) gradients["bias"] = r.dbias;
        return gradients;
      });
}

// Six heads of Q share two of K and three of V.
Arrays grouped() {
  return {{"q", random_array({2, 6, 5, 4}, 11)},
          {"k", random_array({2, 2, 7, 4}, 12)},
          {"v", random_array({2, 3, 7, 3}, 13)}};
}

TEST_CASE("the gradients of attention are the slopes of its forward") {
  check_attention(grouped(), {.attn_scale = 0.5});
  check_attention(grouped(), {});
}

TEST_CASE("the gradients of attention follow causal, bottom-right and sliding masks") {
  check_attention(grouped(), {.causal_mask = true});
  check_attention(grouped(), {.attn_scale = 0.7, .causal_mask_bottom_right = true});
  check_attention(grouped(), {.left_bound = 2, .right_bound = 1});
  check_attention(grouped(), {.causal_mask_bottom_right = true, .left_bound = 3});
}

TEST_CASE("the gradients of attention follow lengths, which leave rows without columns") {
  Arrays in = grouped();
  in["nq"] = integers({2, 1, 1, 1}, {5, 3});
  in["nkv"] = integers({2, 1, 1, 1}, {7, 2});
  check_attention(in, {.padding_mask = true});
  check_attention(in, {.causal_mask_bottom_right = true, .padding_mask = true});
}

TEST_CASE("the gradients of attention follow softcap, bias and ALiBi") {
  Arrays in = grouped();
  check_attention(in, {.attn_scale = 0.8, .softcap = 1.5});
  check_attention(in, {.alibi_mask = true});
  for (const Dims& dim : {Dims{1, 6, 1, 7}, Dims{2, 6, 5, 7}, Dims{1, 1, 5, 7}, Dims{1, 1, 1, 7}}) {
    in["bias"] = random_array(dim, 14);
    check_attention(in, {.causal_mask = true, .softcap = 2});
  }
}

TEST_CASE("the gradients of attention follow dropout, the sink and the block mask") {
  Arrays in = grouped();
  in["seed"] = integers({1}, {1234}, i64);
  in["offset"] = integers({1}, {8}, i64);
  check_attention(in, {.attn_scale = 0.6, .dropout_probability = 0.4});
  in["sink"] = random_array({1, 6, 1, 1}, 15);
  check_attention(in, {.left_bound = 3, .dropout_probability = 0.2});
  Arrays tiled{{"q", random_array({1, 1, 2, 3}, 16)},
               {"k", random_array({1, 1, 300, 3}, 17)},
               {"v", random_array({1, 1, 300, 2}, 18)},
               {"tiles", integers({1, 1, 1, 1}, {5}, u8)}};
  check_attention(tiled, {});
}

// ---- values

Arrays run_attention(const Arrays& in, SdpaAttributes a) {
  Graph g;
  Arrays f32_in = in;
  for (auto& [name, x] : f32_in)
    if (x.type == f64) x.type = f32;
  const Tensors t = test::declare_inputs(g, f32_in);
  a.generate_stats = true;
  auto r = sdpa(t.at("q"), t.at("k"), t.at("v"), a, optional_inputs(t));
  g.output(r.o, "o");
  g.output(r.stats, "stats");
  return run_graph(g, f32_in);
}

TEST_CASE("ALiBi adds the slopes of Press et al. times the distance, unscaled") {
  Arrays in = grouped();
  const Arrays alibi = run_attention(in, {.attn_scale = 0.5, .alibi_mask = true});
  const double slopes[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8};
  Array bias{{1, 6, 5, 7}, {}, f64};
  for (double slope : slopes)
    for (int r = 0; r < 5; ++r)
      for (int c = 0; c < 7; ++c) bias.values.push_back(slope * (c - r));
  in["bias"] = bias;
  const Arrays biased = run_attention(in, {.attn_scale = 0.5});
  for (std::size_t i = 0; i < biased.at("o").values.size(); ++i)
    CHECK(alibi.at("o").values[i] == Approx(biased.at("o").values[i]).epsilon(1e-5));
}

// ---- the contract on the edges

TEST_CASE("a row that sees no column gives O = 0 and Stats = -inf") {
  Arrays in = grouped();
  in["nq"] = integers({2, 1, 1, 1}, {5, 3});
  in["nkv"] = integers({2, 1, 1, 1}, {0, 2});
  for (const bool with_sink : {false, true}) {
    if (with_sink) in["sink"] = random_array({1, 6, 1, 1}, 15);
    const Arrays out = run_attention(in, {.padding_mask = true});
    const auto& o = out.at("o").values;
    const auto& stats = out.at("stats").values;
    for (std::size_t row = 0; row < stats.size(); ++row) {
      const bool masked = row < 30 || row % 5 >= 3;  // batch 0 has no keys, batch 1 three rows
      CHECK(std::isinf(stats[row]) == masked);
      for (std::size_t d = 0; d < 3; ++d) CHECK((o[row * 3 + d] == 0) == masked);
    }
  }
}

TEST_CASE("what masked columns and rows hold does not matter") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Arrays in = grouped();
  in["nq"] = integers({2, 1, 1, 1}, {4, 3});
  in["nkv"] = integers({2, 1, 1, 1}, {6, 2});
  const Arrays clean = run_attention(in, {.padding_mask = true});
  const auto spoil = [&](const char* name, std::vector<std::size_t> lengths) {
    Array& x = in[name];
    const auto rows = static_cast<std::size_t>(x.dim[2]), d = static_cast<std::size_t>(x.dim[3]);
    const std::size_t batch = x.values.size() / 2;
    for (std::size_t i = 0; i < x.values.size(); ++i)
      if (i / d % rows >= lengths[i / batch]) x.values[i] = nan;
  };
  spoil("q", {4, 3});
  spoil("k", {6, 2});
  spoil("v", {6, 2});
  const Arrays spoiled = run_attention(in, {.padding_mask = true});
  CHECK(spoiled.at("o").values == clean.at("o").values);
  CHECK(spoiled.at("stats").values == clean.at("stats").values);
}

TEST_CASE("NaN among the seen scores reaches the output") {
  Arrays in = grouped();
  in["q"].values[0] = std::numeric_limits<double>::quiet_NaN();
  const Arrays out = run_attention(in, {.causal_mask = true});
  CHECK(std::isnan(out.at("o").values[0]));
  CHECK(std::isnan(out.at("stats").values[0]));
  CHECK_FALSE(std::isnan(out.at("o").values[3]));
}

TEST_CASE("paged keys give what the gathered keys give") {
  Arrays in{{"q", random_array({2, 4, 3, 4}, 21)},
            {"k", random_array({2, 2, 6, 4}, 22)},
            {"v", random_array({2, 2, 6, 4}, 23)},
            {"nq", integers({2, 1, 1, 1}, {3, 3})},
            {"nkv", integers({2, 1, 1, 1}, {6, 5})}};
  const Arrays plain = run_attention(in, {.padding_mask = true});
  // Blocks of two keys: batch b, page p lies in block table[b][p].
  const std::vector<double> table{5, 0, 3, 1, 4, 2};
  for (const char* name : {"k", "v"}) {
    const Array from = in[name];
    Array to{{6, 2, 2, 4}, std::vector<double>(96), f64};
    for (std::size_t i = 0; i < 96; ++i) {
      const std::size_t b = i / 48, h = i / 24 % 2, key = i / 4 % 6, d = i % 4;
      const auto block = static_cast<std::size_t>(table[b * 3 + key / 2]);
      to.values[((block * 2 + h) * 2 + key % 2) * 4 + d] = from.values[i];
    }
    in[name] = to;
  }
  in["table_k"] = integers({2, 1, 3, 1}, table);
  in["table_v"] = in["table_k"];
  const Arrays paged = run_attention(in, {.padding_mask = true});
  CHECK(paged.at("o").values == plain.at("o").values);
}

}  // namespace
}  // namespace sinter
