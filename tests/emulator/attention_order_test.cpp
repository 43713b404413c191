// Thread blocks that depend on the order in which they start: those that add to dQ in one order,
// and those that take tiles of packed sequences by a counter; and tiles that masks hide.
#include <limits>

#include "compile/make_plan.hpp"
#include "emulator/emulator.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

namespace sinter::test {
namespace {

// What is wrong with the results, clusters run from either end.
std::string run(Graph& g, const Edit& edit = {}) {
  GraphCase c(g, Fill::normal, 7);
  const auto plan = make_plan(g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  for (const bool last_first : {false, true}) {
    c.clear_outputs();
    if (const Status ran = emulate(*plan, c, edit, last_first); !ran) return ran.error().message();
    if (const Comparison compared = c.judge(); !compared.ok()) return compared.first_wrong;
  }
  return {};
}

struct Backward {
  std::int64_t queries = 200, keys = 330, d = 16;
  SdpaAttributes attributes = {};
  bool block_mask = false;
};
Shared<Graph> graph_of(const Backward& b) {
  auto g = Shared<Graph>::make(GraphOptions{.name = "ordered", .io = bf16, .intermediate = f32});
  const auto input = [&](const char* name, std::int64_t heads, std::int64_t rows) {
    return g->tensor({.name = name, .dim = {1, heads, rows, b.d}});
  };
  const Tensor q = input("q", 2, b.queries), k = input("k", 1, b.keys), v = input("v", 1, b.keys);
  SdpaInputs in;
  if (b.block_mask)
    in.block_mask =
        g->tensor({.name = "blocks", .dim = {1, 2, (b.queries + 127) / 128, 1}, .data_type = u8});
  SdpaAttributes a = b.attributes;
  a.attn_scale = 0.25, a.deterministic = true, a.generate_stats = true;
  const auto r = sdpa(q, k, v, a, in);
  const auto gradients = sdpa_backward(q, k, v, r.o, input("d_o", 2, b.queries), r.stats, a, in);
  g->output(gradients.dq, "dq");
  g->output(gradients.dk, "dk");
  return g;
}

TEST_CASE("dQ in one order: whoever is waited for has started, and adds once") {
  const SdpaAttributes causal{.causal_mask = true},
      window{.causal_mask_bottom_right = true, .left_bound = 90};
  for (const Backward& b :
       {Backward{}, Backward{.attributes = causal}, Backward{.attributes = window},
        Backward{.d = 136, .attributes = window}, Backward{.block_mask = true}})
    CHECK(run(*graph_of(b)) == "");
  const std::string folder = "sinter/device/family/attention_backward_";
  const struct {
    Backward b;
    std::string file, text, instead;
  } all[] = {
      {{},
       "order.cuh",
       "if (threadIdx.x == 0)\n      *number = ",
       "*number = blockIdx.x; if (0) *number = "},
      {{.attributes = window}, "tiles.cuh", "return own - first;", "return own;"},
      {{.block_mask = true}, "tiles.cuh", ".sees(head, row)", ".sees(head, 0)"},
      {{},
       "producer.cuh",
       "hardware::raise_count(counter_of<S, SumsDQ>(args, c, at.row(), consumer));",
       ";"},
  };
  for (const auto& [b, file, text, instead] : all) {
    INFO(file << ": " << text);
    const std::string path = folder + file;
    CHECK(run(*graph_of(b), {path, text, instead}) != "");
  }
}

TEST_CASE("tiles of packed sequences are taken by a counter") {
  auto g = Shared<Graph>::make(GraphOptions{.name = "counted", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t heads) {
    return g->tensor(
        {.name = name, .dim = {1, heads, 260, 16}, .stride = {heads * 4160, 16, heads * 16, 1}});
  };
  SdpaInputs in;
  in.cu_seq_len_q = in.cu_seq_len_kv =
      g->tensor({.name = "offsets", .dim = {13, 1, 1, 1}, .data_type = i32});
  g->output(sdpa(tensor("q", 40), tensor("k", 1), tensor("v", 1),
                 {.attn_scale = 0.25, .causal_mask = true}, in)
                .o,
            "o");
  const auto plan = make_plan(*g, {.architecture = "sm_90a"}, {}, nullptr);
  REQUIRE(plan);
  CHECK(plan->kernels() == 2);  // zero, attention
  CHECK(run(*g) == "");
  const char* const queue = "sinter/device/family/attention_forward_queue.cuh";
  for (const char* text : {"queue_.pipe().acquire(queue_.state(round));",
                           "queue_.pipe().release(queue_.state(round));"}) {
    INFO("without " << text);
    CHECK(run(*g, {queue, text, ""}) != "");
  }
}

TEST_CASE("tiles that a mask hides are visited neither by producers nor by consumers") {
  const char* const walk = "sinter/device/family/attention_key_walk.cuh";
  const auto graph = [](bool blocks) {
    auto g = Shared<Graph>::make(GraphOptions{.name = "masked", .io = bf16, .intermediate = f32});
    const auto tensor = [&](const char* name, std::int64_t rows) {
      return g->tensor({.name = name, .dim = {1, 2, rows, 64}});
    };
    const Tensor q = tensor("q", 200), k = tensor("k", 700), v = tensor("v", 700);
    SdpaInputs in;
    if (blocks) {
      in.block_mask = g->tensor({.name = "blocks", .dim = {1, 2, 2, 1}, .data_type = u8});
    } else {
      const Tensor of_row = g->tensor({.name = "of_row", .dim = {1, 1, 200, 1}}),
                   of_column = g->tensor({.name = "of_column", .dim = {1, 1, 1, 700}});
      const Tensor row = gen_index(of_row, 2), column = gen_index(of_column, 3);
      in.bias = select(logical_or(column < 150.0, column <= row), g->scalar(0, f32),
                       g->scalar(-std::numeric_limits<double>::infinity(), f32));
    }
    g->output(sdpa(q, k, v, {.attn_scale = 0.125}, in).o, "o");
    return g;
  };
  auto blocks = graph(true), indices = graph(false);
  CHECK(run(*blocks) == "");
  CHECK(run(*indices) == "");
  CHECK(run(*blocks, {walk, "seen_ = __ballot_sync(~0u, tile.some);", "seen_ = ~0u;"}) != "");
  CHECK(run(*indices, {walk, "all_ = __ballot_sync(~0u, own.all);", "all_ = ~0u;"}) != "");
}

}  // namespace
}  // namespace sinter::test
