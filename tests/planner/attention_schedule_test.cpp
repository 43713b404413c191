// How many CTAs of attention forward lie on an SM.
#include <algorithm>
#include <utility>

#include "planned.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/scheduled_kernel.hpp"
#include "sinter/sinter.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

namespace sinter::test {
namespace {

struct Heads {
  std::int64_t count, keys, d = 64, queries = 1;
  double softcap = 0;
};

AttentionConfig schedule_of(const Heads& h) {
  Graph g({.name = "attention", .io = bf16, .intermediate = f32});
  const auto tensor = [&](const char* name, std::int64_t rows) {
    return g.tensor({.name = name, .dim = {1, h.count, rows, h.d}});
  };
  const Tensor q = tensor("q", h.queries), k = tensor("k", h.keys), v = tensor("v", h.keys);
  g.output(sdpa(q, k, v, {.attn_scale = 0.125, .softcap = h.softcap}).o, "o");
  const Partition p = for_sm_90a(g);
  for (const KernelSpec& spec : p.kernels)
    if (spec.as_attention())
      return *schedule_kernel(spec, {device_model("sm_90a"), Tuning{}}).attention();
  FAIL("no attention");
  return {};
}

TEST_CASE("heads of few rows have several CTAs on an SM where that is faster") {
  const DeviceModel device = device_model("sm_90a");
  // All at once; two on nearly every SM, where a third would leave others none; several rounds.
  const std::pair<Heads, int> several[] = {{{320, 1500}, 3},    {{160, 1500}, 3}, {{192, 2000}, 3},
                                           {{140, 300, 32}, 3}, {{256, 1024}, 2}, {{1024, 577}, 2}};
  for (const auto& [h, blocks] : several) {
    INFO(h.count << " heads of " << h.keys << " keys");
    const AttentionConfig e = schedule_of(h);
    CHECK(e.least_blocks == blocks);
    CHECK(e.grid ==
          static_cast<std::uint32_t>(std::min<std::int64_t>(h.count, device.sms * blocks)));
  }
  // One on each SM at most; wider heads; scores with a body; many rows.
  for (const Heads& h : {Heads{100, 1500}, Heads{320, 1500, 128}, Heads{320, 1500, 64, 1, 20.0},
                         Heads{160, 2048, 64, 100}}) {
    INFO(h.count << " heads of " << h.d << ", " << h.keys << " keys");
    CHECK(schedule_of(h).least_blocks == 1);
  }
}

}  // namespace
}  // namespace sinter::test
