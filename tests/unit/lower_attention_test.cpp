// The values of attention through its expansion: against a dense loop written from GRAPH_JSON.md's
// table, and the contract on masked rows and columns.
#include <limits>

#include "unit/attention_inputs.hpp"

namespace sinter {
namespace {

using test::Array;
using test::Arrays;
using test::grouped;
using test::integers;
using test::random_array;
using test::run_attention;
using test::run_graph;

// u of every score, by the rng operation itself.
std::vector<double> uniform(const Arrays& in, Dims dim) {
  Graph g;
  const Arrays seeds{{"seed", in.at("seed")}, {"offset", in.at("offset")}};
  const auto t = test::declare_inputs(g, seeds);
  g.output(rng(t.at("seed"), t.at("offset"), dim, {.distribution = Distribution::uniform}), "u",
           {.data_type = f64});
  return run_graph(g, seeds).at("u").values;
}

// One row of attention after GRAPH_JSON.md, for all that does not need a formula of its own.
struct Dense {
  const Arrays& in;
  SdpaAttributes a;
  std::int64_t hq, sq, skv, d, dv;
  std::vector<double> u{};

  Dense(const Arrays& inputs, SdpaAttributes attributes)
      : in(inputs),
        a(attributes),
        hq(in.at("q").dim[1]),
        sq(in.at("q").dim[2]),
        skv(in.at("k").dim[2]),
        d(in.at("q").dim[3]),
        dv(in.at("v").dim[3]) {
    if (a.dropout_probability > 0) u = uniform(in, {in.at("q").dim[0], hq, sq, skv});
  }
  // Element of a four-dimensional input, extents of 1 repeated and heads grouped.
  double at(const char* name, std::int64_t b, std::int64_t h, std::int64_t r,
            std::int64_t c) const {
    const Array& x = in.at(name);
    const auto head = x.dim[1] ? h / (hq / x.dim[1]) : 0;
    const auto i =
        ((std::min(b, x.dim[0] - 1) * x.dim[1] + head) * x.dim[2] + std::min(r, x.dim[2] - 1)) *
            x.dim[3] +
        std::min(c, x.dim[3] - 1);
    return x.values[static_cast<std::size_t>(i)];
  }
  double scale(const char* name, std::int64_t b, std::int64_t h) const {
    return in.contains(name) ? at(name, b, h, 0, 0) : 1;
  }
  bool seen(std::int64_t b, std::int64_t r, std::int64_t c) const {
    double diagonal = static_cast<double>(r);
    if (a.causal_mask_bottom_right)
      diagonal += in.contains("nkv") ? at("nkv", b, 0, 0, 0) - at("nq", b, 0, 0, 0)
                                     : static_cast<double>(skv - sq);
    const auto column = static_cast<double>(c);
    if ((a.causal_mask || a.causal_mask_bottom_right) && column > diagonal) return false;
    if (a.right_bound && column > diagonal + static_cast<double>(*a.right_bound)) return false;
    if (a.left_bound && column <= diagonal - static_cast<double>(*a.left_bound)) return false;
    return !a.padding_mask ||
           (column < at("nkv", b, 0, 0, 0) && static_cast<double>(r) < at("nq", b, 0, 0, 0));
  }
  double score(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) const {
    double s = 0;
    for (std::int64_t i = 0; i < d; ++i) s += at("q", b, h, r, i) * at("k", b, h, c, i);
    s *= a.attn_scale * scale("descale_q", b, h) * scale("descale_k", b, h);
    if (a.softcap > 0) s = a.softcap * std::tanh(s / a.softcap);
    return in.contains("bias") ? s + at("bias", b, h, r, c) : s;
  }
  // O of one row, with Stats behind.
  std::vector<double> row(std::int64_t b, std::int64_t h, std::int64_t r) const {
    std::vector<double> result(static_cast<std::size_t>(dv) + 1, 0);
    double total = in.contains("sink") ? std::exp(at("sink", 0, h, 0, 0)) : 0;
    bool any = false;
    for (std::int64_t c = 0; c < skv; ++c) {
      if (!seen(b, r, c)) continue;
      any = true;
      const double e = std::exp(score(b, h, r, c));
      total += e;
      const auto logical = static_cast<std::size_t>(((b * hq + h) * sq + r) * skv + c);
      if (!u.empty() && u[logical] < a.dropout_probability) continue;
      for (std::int64_t i = 0; i < dv; ++i)
        result[static_cast<std::size_t>(i)] += e * at("v", b, h, c, i);
    }
    double factor = any ? 1 / total / (1 - a.dropout_probability) : 0;
    for (const char* name : {"descale_v", "descale_s", "scale_s"}) factor *= scale(name, b, h);
    for (std::int64_t i = 0; i < dv; ++i) result[static_cast<std::size_t>(i)] *= factor;
    result.back() = any ? std::log(total) : -std::numeric_limits<double>::infinity();
    return result;
  }
};

void check_against_dense(const Arrays& in, SdpaAttributes a) {
  const Dense dense(in, a);
  const Arrays out = run_attention(in, a);
  const auto& o = out.at("o").values;
  const auto& stats = out.at("stats").values;
  std::size_t n = 0;
  double amax = 0;
  for (std::int64_t b = 0; b < in.at("q").dim[0]; ++b)
    for (std::int64_t h = 0; h < dense.hq; ++h)
      for (std::int64_t r = 0; r < dense.sq; ++r, ++n) {
        const auto expected = dense.row(b, h, r);
        INFO("row " << b << ", " << h << ", " << r);
        const auto dv = static_cast<std::size_t>(dense.dv);
        const double scale_o = dense.scale("scale_o", b, h);
        for (std::size_t i = 0; i < dv; ++i) {
          CHECK(std::abs(o[n * dv + i] - expected[i] * scale_o) <= 1e-5);
          amax = std::max(amax, std::abs(expected[i]));
        }
        if (std::isinf(expected[dv]))
          CHECK(stats[n] == expected[dv]);
        else
          CHECK(std::abs(stats[n] - expected[dv]) <= 1e-5);
      }
  if (in.contains("scale_o")) CHECK(std::abs(out.at("amax_o").values[0] - amax) <= 1e-5);
}

TEST_CASE("attention gives what a dense loop after GRAPH_JSON.md gives, mask by mask") {
  check_against_dense(grouped(), {});
  check_against_dense(grouped(), {.attn_scale = 0.5, .causal_mask = true});
  check_against_dense(grouped(), {.causal_mask_bottom_right = true});
  check_against_dense(grouped(), {.left_bound = 2});
  check_against_dense(grouped(), {.right_bound = 1});
  check_against_dense(grouped(), {.left_bound = 1, .right_bound = 0});
  check_against_dense(grouped(), {.left_bound = 0});  // columns right of the diagonal alone
  check_against_dense(grouped(), {.causal_mask_bottom_right = true, .left_bound = 3});
  Arrays in = grouped();
  in["nq"] = integers({2, 1, 1, 1}, {5, 3});
  in["nkv"] = integers({2, 1, 1, 1}, {7, 2});
  check_against_dense(in, {.padding_mask = true});
  check_against_dense(in, {.causal_mask_bottom_right = true, .padding_mask = true});
  check_against_dense(in, {.causal_mask_bottom_right = true, .left_bound = 2});
}

TEST_CASE("attention gives what a dense loop gives with softcap, bias, sink and dropout") {
  Arrays in = grouped();
  in["bias"] = random_array({1, 6, 5, 1}, 31);
  check_against_dense(in, {.attn_scale = 2, .softcap = 1.5});
  in["sink"] = random_array({1, 6, 1, 1}, 32);
  check_against_dense(in, {.attn_scale = 2, .left_bound = 1, .right_bound = 0});
  in["seed"] = integers({1}, {1234}, i64);
  in["offset"] = integers({1}, {8}, i64);
  check_against_dense(in, {.dropout_probability = 0.4});
}

TEST_CASE("attention gives what a dense loop gives with the scales of f8") {
  Arrays in = grouped();
  in["descale_q"] = random_array({1, 1, 1, 1}, 33);
  in["scale_o"] = random_array({1, 1, 1, 1}, 34);
  check_against_dense(in, {.attn_scale = 0.5, .causal_mask = true});
  in["descale_k"] = random_array({1, 6, 1, 1}, 35);
  in["descale_v"] = random_array({2, 1, 1, 1}, 36);
  in["descale_s"] = random_array({1, 1, 1, 1}, 37);
  in["scale_s"] = random_array({2, 6, 1, 1}, 38);
  check_against_dense(in, {.attn_scale = 0.5, .softcap = 1.5});
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
