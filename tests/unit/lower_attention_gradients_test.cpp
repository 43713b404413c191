// The gradients of attention against central differences of its forward, with every option.
#include <limits>

#include "unit/attention_inputs.hpp"

namespace sinter {
namespace {

using test::Arrays;
using test::check_gradients;
using test::grouped;
using test::integers;
using test::optional_inputs;
using test::random_array;
using test::Tensors;

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
        detail::GraphEditor(g).edit(f.stats.id()).data_type = f64;
        auto r =
            sdpa_backward(t.at("q"), t.at("k"), t.at("v"), f.o, dy, f.stats, a, optional_inputs(t));
        Tensors gradients{{"q", r.dq}, {"k", r.dk}, {"v", r.dv}};
        if (t.contains("bias")) gradients["bias"] = r.dbias;
        if (t.contains("sink")) gradients["sink"] = r.dsink_token;
        return gradients;
      });
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
  check_attention(in, {.causal_mask_bottom_right = true, .left_bound = 1, .softcap = 1.5});
  Arrays tiled{{"q", random_array({1, 1, 2, 3}, 16)},
               {"k", random_array({1, 1, 300, 3}, 17)},
               {"v", random_array({1, 1, 300, 2}, 18)},
               {"tiles", integers({1, 1, 1, 1}, {5}, u8)}};
  check_attention(tiled, {});
}

// Gradients in f32 for inputs q, k, v, dy with lengths; the forward runs in the same graph.
Arrays run_gradients(Arrays in, SdpaAttributes a) {
  Graph g;
  for (auto& [name, x] : in)
    if (x.type == f64) x.type = f32;
  const Tensors t = test::declare_inputs(g, in);
  SdpaAttributes with_stats = a;
  with_stats.generate_stats = true;
  const auto f = sdpa(t.at("q"), t.at("k"), t.at("v"), with_stats, optional_inputs(t));
  auto r = sdpa_backward(t.at("q"), t.at("k"), t.at("v"), f.o, t.at("dy"), f.stats, a,
                         optional_inputs(t));
  g.output(r.dq, "d_q");
  g.output(r.dk, "d_k");
  g.output(r.dv, "d_v");
  return test::run_graph(g, in);
}

TEST_CASE("what masked rows and columns hold does not reach the gradients") {
  Arrays in = grouped();
  in["dy"] = random_array({2, 6, 5, 3}, 19);
  in["nq"] = integers({2, 1, 1, 1}, {4, 3});
  in["nkv"] = integers({2, 1, 1, 1}, {6, 0});
  for (const double softcap : {0.0, 2.0}) {
    const SdpaAttributes a{.padding_mask = true, .softcap = softcap};
    const Arrays clean = run_gradients(in, a);
    Arrays spoiled = in;
    for (const auto& [name, lengths] :
         {std::pair{"q", std::pair{4, 0}}, {"dy", {4, 0}}, {"k", {6, 0}}, {"v", {6, 0}}}) {
      auto& x = spoiled[name];
      const auto batch = x.values.size() / 2, d = static_cast<std::size_t>(x.dim[3]);
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        const auto length = static_cast<std::size_t>(i < batch ? lengths.first : lengths.second);
        if (i / d % static_cast<std::size_t>(x.dim[2]) >= length)
          x.values[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
    const Arrays gradients = run_gradients(spoiled, a);
    for (const char* name : {"d_q", "d_k", "d_v"}) {
      INFO(name << " softcap " << softcap);
      CHECK(gradients.at(name).values == clean.at(name).values);
      CHECK(gradients.at(name).values.back() == 0);  // batch 1 has no keys
      CHECK(gradients.at(name).values.front() != 0);
    }
  }
}

}  // namespace
}  // namespace sinter
