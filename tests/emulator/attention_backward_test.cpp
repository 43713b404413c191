// codegen/device/family/attention_backward.cuh in the emulator, judged by gradients that are
// computed here in double from their definition.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emulator/emulator.hpp"
#include "emulator/hand_written.hpp"
#include "runtime/compiler.hpp"
#include "support/can_compile.hpp"
#include "support/dense.hpp"

namespace sinter::test {
namespace {

struct Attention {
  int entries = 1, heads = 1, group = 1, queries = 64, keys = 64, depth = 64, depth_v = 64;
  int left = -1, right = -1;  // bounds, where not negative
  bool bottom_right = false, half = false, plain = true;
  std::vector<int> lengths_q = {}, lengths_k = {};
  bool dbias = false, by_query = true, by_key = true;  // where it is not plain
  bool blocks = false;  // a mask that hides every third block of 128 queries and keys
  int round = 0;        // Config::blocks_of_round, where not zero

  int tile_q() const { return std::max(depth, depth_v) <= 64 ? 128 : 64; }
  int blocks_q() const { return (queries + 127) / 128; }
  int blocks_k() const { return (keys + 127) / 128; }
  int block(int entry, int head, int m, int n) const {
    return ((entry * heads * group + head) * blocks_q() + m / 128) * blocks_k() + n / 128;
  }
  static bool hides(int block) { return block % 3 == 1; }
  bool sees(int entry, int head, int m, int n) const {
    if (blocks && hides(block(entry, head, m, n))) return false;
    const auto e = static_cast<std::size_t>(entry);
    const int rows = lengths_q.empty() ? queries : lengths_q[e],
              columns = lengths_k.empty() ? keys : lengths_k[e];
    const int diagonal = m + (bottom_right ? columns - rows : 0);
    return m < rows && n < columns && (left < 0 || n > diagonal - left) &&
           (right < 0 || n <= diagonal + right);
  }
};

// Bytes of BackwardShape::shared_bytes.
unsigned shared_bytes(const Attention& a) {
  const auto up = [](int x, int to) { return (x + to - 1) / to * to; };
  constexpr int kTileK = 128, kConsumers = 2, kStages = 2;
  const int tile_q = a.tile_q(), lines = 2 * (kTileK + kStages * tile_q),
            columns_of_dq = tile_q == kTileK ? up(a.depth, 32) : 64;
  return static_cast<unsigned>(lines * (up(a.depth, 64) + up(a.depth_v, 64)) +
                               2 * 2 * tile_q * kTileK + kConsumers * columns_of_dq * 64 * 4 +
                               2 * kStages * (tile_q * 4 + 16) + 16 + (a.blocks ? kStages * 8 : 0) +
                               48 + 1023);
}

std::string text_of(const Attention& a) {
  const int tile_q = a.tile_q();
  std::string shapes;
  const int depth = (a.depth + 7) / 8 * 8, depth_v = (a.depth_v + 7) / 8 * 8;
  if (tile_q == 128) {
    shapes += "SINTER_WGMMA(128, f32)\n";
    if (depth != 64) shapes += fmt::format("SINTER_WGMMA_NAMED({}, f32)\n", depth);
  }
  for (const int n : std::set<int>{depth, depth_v})
    if (n != 64) shapes += fmt::format("SINTER_WGMMA_HELD({})\n", n);
  const auto set = [](const char* name, int from, int to) {
    return Change{fmt::format(" {} = {}", name, from), fmt::format(" {} = {}", name, to)};
  };
  const auto flag = [](const char* name, bool to) {
    return Change{fmt::format(" {} = {}", name, !to), fmt::format(" {} = {}", name, to)};
  };
  std::vector<Change> changes = {
      {"// more shapes\n", shapes},
      {"shared_bytes = 0", fmt::format("shared_bytes = {}", shared_bytes(a))}};
  const auto number = [&](const char* name, int from, int to) {
    if (from != to) changes.push_back(set(name, from, to));
  };
  number("kEntries", 1, a.entries), number("kHeads", 1, a.heads), number("kGroup", 1, a.group);
  number("kQueries", 64, a.queries), number("kKeys", 64, a.keys), number("kDepth", 64, a.depth);
  number("kDepthV", 64, a.depth_v), number("kTileQ", 64, tile_q);
  number("left", 0, std::max(a.left, 0)), number("right", 0, std::max(a.right, 0));
  if (a.left >= 0) changes.push_back(flag("has_left", true));
  if (a.right >= 0) changes.push_back(flag("has_right", true));
  if (a.bottom_right) changes.push_back(flag("bottom_right", true));
  if (!a.lengths_q.empty()) changes.push_back(flag("has_lengths", true));
  if (!a.plain) changes.push_back(flag("plain", false));
  if (a.dbias) changes.push_back(flag("wanted", true));
  if (!a.by_query) changes.push_back(flag("by_query", false));
  if (!a.by_key) changes.push_back(flag("by_key", false));
  if (a.blocks) changes.push_back(flag("has_blocks", true));
  if (a.blocks && !a.dbias)
    number("producer_registers", 24, 40), number("consumer_registers", 240, 232);
  if (a.half) changes.push_back({"using Number = bf16;", "using Number = f16;"});
  if (a.round > 0)
    changes.push_back({"int group_size = kGroup;",
                       fmt::format("int group_size = kGroup, blocks_of_round = {};", a.round)});
  return changed(device_text("attention_backward"), changes);
}

constexpr double kScale = 0.125;

// A result and what its parts sum to without their signs.
struct Gradient {
  std::vector<double> sum, size;
  explicit Gradient(std::size_t count) : sum(count), size(count) {}
  void add(std::size_t at, double x) { sum[at] += x, size[at] += std::fabs(x); }
  // factor * x to the `row`th of so many.
  void add_row(std::size_t row, double factor, const double* x, std::size_t count) {
    add_scaled(factor, x, count, &sum[row * count], &size[row * count]);
  }
  // Weights and derivatives are rounded to `digits`, results too but for dQ; f32 and exp2.approx
  // add less than as much again.
  std::string judge(const char* name, const std::vector<double>& got, int digits) const {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double bound =
          std::ldexp(2 * size[i] + std::fabs(sum[i]), -digits) + 1e-6 * (1 + size[i]);
      if (!(std::fabs(got[i] - sum[i]) <= bound))
        return fmt::format("{}[{}] is {}, not {} within {}", name, i, got[i], sum[i], bound);
    }
    return "";
  }
};

std::string run(const Attention& a, const Edit& edit = {}, bool compile = false) {
  const auto size = [](int a0, int a1, int a2, int a3) {
    return static_cast<std::size_t>(a0 * a1 * a2 * a3);
  };
  const int all_heads = a.heads * a.group;
  const std::size_t of_q = size(a.entries, all_heads, a.queries, a.depth),
                    of_do = size(a.entries, all_heads, a.queries, a.depth_v),
                    of_k = size(a.entries, a.heads, a.keys, a.depth),
                    of_v = size(a.entries, a.heads, a.keys, a.depth_v),
                    rows = size(a.entries, all_heads, a.queries, 1);
  Numbers q = small_integers(static_cast<int>(of_q), 1, a.half),
          k = small_integers(static_cast<int>(of_k), 2, a.half),
          v = small_integers(static_cast<int>(of_v), 3, a.half),
          d_o = small_integers(static_cast<int>(of_do), 4, a.half);
  std::vector<float> stats(rows), delta(rows), sums(of_q, 0.0f);
  const int bias_rows = a.by_query ? a.queries : 1, bias_columns = a.by_key ? a.keys : 1;
  const std::size_t of_bias = size(a.entries, all_heads, bias_rows, bias_columns);
  std::vector<float> bias_sums(of_bias, 0.0f);
  std::vector<unsigned char> blocks(size(a.entries, all_heads, a.blocks_q(), a.blocks_k()));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = Attention::hides(static_cast<int>(i)) ? 0 : 1;
  Gradient dq(of_q), dk(of_k), dv(of_v), dbias(of_bias);
  for (int e = 0; e < a.entries; ++e)
    for (int h = 0; h < all_heads; ++h)
      for (int m = 0; m < a.queries; ++m) {
        const std::size_t row = static_cast<std::size_t>((e * all_heads + h) * a.queries + m),
                          key0 = static_cast<std::size_t>((e * a.heads + h / a.group) * a.keys);
        const auto row_of = [](const Numbers& x, std::size_t i, std::size_t count) {
          return &x.values[i * count];
        };
        const auto depth = static_cast<std::size_t>(a.depth),
                   depth_v = static_cast<std::size_t>(a.depth_v);
        std::vector<double> p, dp, slope;
        double total = 0;
        for (int n = 0; n < a.keys; ++n) {
          const std::size_t key = key0 + static_cast<std::size_t>(n);
          const double x = kScale * dot(row_of(q, row, depth), row_of(k, key, depth), depth),
                       t = std::tanh(x / 2);
          p.push_back(a.sees(e, h, m, n) ? std::exp(a.plain ? x : 2 * t) : 0);
          slope.push_back(a.plain ? 1 : 1 - t * t);
          dp.push_back(dot(row_of(d_o, row, depth_v), row_of(v, key, depth_v), depth_v));
          total += p.back();
        }
        stats[row] = static_cast<float>(std::log(total));
        double mean = 0;
        for (std::size_t n = 0; n < p.size(); ++n) {
          p[n] = total > 0 ? p[n] / total : 0;
          mean += p[n] * dp[n];
        }
        if (a.dbias) mean -= 1;  // else what is summed along all keys is nothing
        delta[row] = static_cast<float>(mean);
        for (std::size_t n = 0; n < p.size(); ++n) {
          if (p[n] == 0) continue;
          const double of_score = p[n] * (dp[n] - mean), ds = slope[n] * of_score;
          dbias.add(static_cast<std::size_t>(((e * all_heads + h) * bias_rows + m % bias_rows) *
                                                 bias_columns +
                                             static_cast<int>(n) % bias_columns),
                    of_score);
          dq.add_row(row, kScale * ds, row_of(k, key0 + n, depth), depth);
          dk.add_row(key0 + n, kScale * ds, row_of(q, row, depth), depth);
          dv.add_row(key0 + n, p[n], row_of(d_o, row, depth_v), depth_v);
        }
      }
  // Past the lengths lies NaN.
  if (!a.lengths_q.empty()) {
    const auto poison = [&](Numbers& x, int heads, int count, int width, const auto& lengths) {
      for (int e = 0; e < a.entries; ++e)
        for (int h = 0; h < heads; ++h)
          for (int r = lengths[static_cast<std::size_t>(e)]; r < count; ++r)
            for (int d = 0; d < width; ++d)
              x.bits[static_cast<std::size_t>(((e * heads + h) * count + r) * width + d)] = 0x7fff;
    };
    poison(q, all_heads, a.queries, a.depth, a.lengths_q);
    poison(d_o, all_heads, a.queries, a.depth_v, a.lengths_q);
    poison(k, a.heads, a.keys, a.depth, a.lengths_k);
    poison(v, a.heads, a.keys, a.depth_v, a.lengths_k);
    for (int e = 0; e < a.entries; ++e)
      for (int h = 0; h < all_heads; ++h)
        for (int m = a.lengths_q[static_cast<std::size_t>(e)]; m < a.queries; ++m)
          stats[static_cast<std::size_t>((e * all_heads + h) * a.queries + m)] =
              delta[static_cast<std::size_t>((e * all_heads + h) * a.queries + m)] = std::nanf("");
  }
  std::vector<std::uint16_t> dk_bits(of_k, 0x7fff), dv_bits(of_v, 0x7fff);
  const auto map = [&](const void* tensor, int heads, int count, int width, int lines, int bytes) {
    emulator::BoxMap m =
        box_map(tensor, {width, count, heads, a.entries},
                {1, width, width * count, width * count * heads}, {128 / bytes, lines, 1, 1});
    for (std::int64_t& step : m.step) step = step / 2 * bytes;
    m.bytes = static_cast<std::uint8_t>(bytes);
    return m;
  };
  ArgumentImage arguments;
  arguments.add(map(q.bits.data(), all_heads, a.queries, a.depth, a.tile_q(), 2));
  arguments.add(map(k.bits.data(), a.heads, a.keys, a.depth, 128, 2));
  arguments.add(map(v.bits.data(), a.heads, a.keys, a.depth_v, 128, 2));
  arguments.add(map(d_o.bits.data(), all_heads, a.queries, a.depth_v, a.tile_q(), 2));
  arguments.add(map(sums.data(), all_heads, a.queries, a.depth, 64, 4));
  arguments.add(map(dk_bits.data(), a.heads, a.keys, a.depth, 64, 2));
  arguments.add(map(dv_bits.data(), a.heads, a.keys, a.depth_v, 64, 2));
  for (const void* p :
       {static_cast<const void*>(stats.data()), static_cast<const void*>(delta.data()),
        static_cast<const void*>(sums.data()), static_cast<const void*>(a.lengths_q.data()),
        static_cast<const void*>(a.lengths_k.data()), static_cast<const void*>(bias_sums.data()),
        static_cast<const void*>(blocks.data())})
    arguments.add(p);
  PlanKernel kernel;
  kernel.entry = "sinter_attention_backward";
  kernel.source = text_of(a);
  kernel.grid = static_cast<unsigned>(a.entries * a.heads * ((a.keys + 127) / 128));
  kernel.block = 384;
  kernel.shared_bytes = shared_bytes(a);
  if (compile && test::can_compile()) {
    std::string log;
    const auto code = compile_uncached({kernel.source, kernel.entry, "sm_90a"}, &log);
    if (!code) return code.error().message();
    if (log.find("serialized") != std::string::npos) return log;
    const bool simple =
        a.plain && a.left < 0 && !a.bottom_right && a.lengths_q.empty() && a.depth % 16 == 0;
    if (simple && log.find("spill") != std::string::npos) return log;
  }
  if (auto ran = emulate_kernel(kernel, arguments.bytes(), edit); !ran)
    return ran.error().message();
  const auto decoded = [&](const std::vector<std::uint16_t>& bits) {
    std::vector<double> values;
    for (const std::uint16_t b : bits) {
      const int exponent = b >> 10 & 31;
      const std::uint32_t u = static_cast<std::uint32_t>(b) << 16;
      float f;
      std::memcpy(&f, &u, 4);
      if (a.half)
        f = static_cast<float>((b & 0x8000 ? -1 : 1) *
                               (exponent == 31  ? NAN
                                : exponent == 0 ? std::ldexp(b & 1023, -24)
                                                : std::ldexp(1024 + (b & 1023), exponent - 25)));
      values.push_back(f);
    }
    return values;
  };
  std::vector<double> dq_values;
  for (const float x : sums) dq_values.push_back(kScale * x);
  const int digits = a.half ? 11 : 8;
  std::string wrong = dv.judge("dV", decoded(dv_bits), digits);
  if (wrong.empty()) wrong = dk.judge("dK", decoded(dk_bits), digits);
  if (wrong.empty()) wrong = dq.judge("dQ", dq_values, digits);
  if (wrong.empty() && a.dbias)
    wrong = dbias.judge("dBias", {bias_sums.begin(), bias_sums.end()}, 18);
  return wrong;
}

TEST_CASE("attention backward: tiles of queries and keys, whole and cut") {
  const int extents[][2] = {{1, 1},     {63, 65},   {64, 64},   {65, 63},  {127, 129},
                            {128, 128}, {129, 127}, {200, 300}, {300, 200}};
  for (const int depth : {128, 64})
    for (const int right : {-1, 0})
      for (const auto& [queries, keys] : extents) {
        if (depth == 64 && queries % 2 == 0) continue;
        INFO(queries << " queries, " << keys << " keys, depth " << depth << ", right " << right);
        CHECK(run({.queries = queries,
                   .keys = keys,
                   .depth = depth,
                   .depth_v = depth,
                   .right = right},
                  {}, queries == 200) == "");
      }
}

TEST_CASE("attention backward: groups, bounds, lengths, types and orders") {
  const Attention cases[] = {
      {.entries = 2,
       .heads = 2,
       .group = 3,
       .queries = 70,
       .keys = 130,
       .depth = 128,
       .depth_v = 128,
       .right = 0},
      {.heads = 2,
       .group = 2,
       .queries = 200,
       .keys = 300,
       .depth = 64,
       .right = 0,
       .bottom_right = true,
       .half = true},
      {.queries = 300,
       .keys = 200,
       .depth = 128,
       .depth_v = 128,
       .right = 0,
       .bottom_right = true},  // fully masked rows
      {.queries = 300, .keys = 300, .depth = 128, .depth_v = 128, .left = 70, .right = 0},
      {.queries = 300, .keys = 500, .depth = 64, .left = 10, .right = 20},
      {.queries = 200, .keys = 300, .depth = 96, .depth_v = 72, .right = 5},
      {.queries = 200, .keys = 300, .depth = 40, .depth_v = 32},
      {.queries = 130, .keys = 140, .depth = 128, .depth_v = 64, .half = true},
      {.queries = 130, .keys = 140, .depth = 128, .depth_v = 128, .right = 0, .plain = false},
      {.queries = 200, .keys = 140, .depth = 64, .right = 0},
      {.queries = 300, .keys = 256, .depth = 64, .right = 0},
      {.heads = 2, .group = 2, .queries = 260, .keys = 384, .depth = 64, .right = 70},
      {.queries = 330, .keys = 256, .depth = 128, .depth_v = 128, .right = 5, .bottom_right = true},
      {.queries = 200, .keys = 140, .depth = 128, .depth_v = 128},
      {.queries = 130, .keys = 140, .depth = 64, .plain = false},
      {.entries = 5,
       .queries = 200,
       .keys = 300,
       .depth = 128,
       .depth_v = 128,
       .lengths_q = {200, 0, 65, 130, 7},
       .lengths_k = {300, 300, 0, 129, 250}},
      {.entries = 4,
       .group = 2,
       .queries = 300,
       .keys = 200,
       .depth = 64,
       .right = 0,
       .bottom_right = true,
       .lengths_q = {300, 257, 20, 100},
       .lengths_k = {200, 70, 200, 1}},
      {.entries = 2,
       .queries = 200,
       .keys = 200,
       .depth = 128,
       .depth_v = 128,
       .left = 20,
       .right = 0,
       .lengths_q = {150, 3},
       .lengths_k = {100, 200}},
  };
  for (const Attention& a : cases) {
    INFO("case " << &a - cases);
    CHECK(run(a, {}, true) == "");
  }
}

TEST_CASE("attention backward: tile of queries by tile, heads of the group inside") {
  const Attention cases[] = {
      {.entries = 2,
       .heads = 2,
       .group = 3,
       .queries = 200,
       .keys = 270,
       .depth = 128,
       .depth_v = 128,
       .right = 0,
       .bottom_right = true,
       .round = 2},
      {.group = 4, .queries = 300, .keys = 300, .depth = 64, .right = 0, .half = true, .round = 1},
      {.group = 3,
       .queries = 130,
       .keys = 300,
       .depth = 64,
       .right = 0,
       .plain = false,
       .round = 1},
      {.entries = 4,
       .group = 4,
       .queries = 300,
       .keys = 200,
       .depth = 64,
       .right = 0,
       .bottom_right = true,
       .lengths_q = {300, 257, 20, 100},
       .lengths_k = {200, 70, 200, 1},
       .round = 3},
  };
  for (const Attention& a : cases) {
    INFO("case " << &a - cases);
    CHECK(run(a, {}, true) == "");
    for (const char* const text :
         {"tile = band.from_end ? end - 1 - passed : begin + passed;", "++walked, place(band);"})
      CHECK(run(a, {"sinter/device/family/attention_backward_tiles.cuh", text, ";"}) != "");
  }
}

TEST_CASE("attention backward: the gradient of a bias") {
  const auto with = [](Attention a, bool by_query, bool by_key) {
    a.plain = false, a.dbias = true, a.by_query = by_query, a.by_key = by_key;
    return a;
  };
  const Attention cases[] = {
      {.entries = 2, .heads = 2, .queries = 130, .keys = 140, .depth = 128, .depth_v = 128},
      {.heads = 1, .group = 2, .queries = 100, .keys = 150, .depth = 64, .right = 0},
      {.entries = 2,
       .queries = 200,
       .keys = 200,
       .depth = 64,
       .lengths_q = {150, 3},
       .lengths_k = {100, 200}},
      {.queries = 1, .keys = 3, .depth = 64},
      {.heads = 2, .queries = 260, .keys = 300, .depth = 64, .blocks = true},
  };
  for (const Attention& a : cases)
    for (const bool by_query : {true, false})
      for (const bool by_key : {true, false}) {
        INFO("case " << &a - cases << ", by query " << by_query << ", by key " << by_key);
        CHECK(run(with(a, by_query, by_key), {}, true) == "");
      }
}

TEST_CASE("attention backward: masks of blocks") {
  const Attention cases[] = {
      {.heads = 2, .queries = 300, .keys = 400, .depth = 128, .depth_v = 128},
      {.entries = 2, .group = 3, .queries = 300, .keys = 300, .depth = 64, .right = 0},
      {.heads = 3, .queries = 100, .keys = 100, .depth = 64},  // some heads see nothing
      {.entries = 2,
       .group = 2,
       .queries = 300,
       .keys = 400,
       .depth = 64,
       .lengths_q = {150, 300},
       .lengths_k = {400, 250}},
      {.queries = 300, .keys = 300, .depth = 128, .depth_v = 128, .plain = false},
      // More tiles of queries than a warp looks at at once.
      {.group = 2, .queries = 2200, .keys = 100, .depth = 72, .depth_v = 16},
  };
  for (const Attention& a : cases) {
    INFO("case " << &a - cases);
    Attention masked = a;
    masked.blocks = true;
    CHECK(run(masked, {}, true) == "");
  }
}

TEST_CASE("attention backward: the emulator finds what is left out") {
  constexpr const char *kConsumer = "sinter/device/family/attention_backward.cuh",
                       *kStages = "sinter/device/family/attention_backward_stages.cuh",
                       *kProducer = "sinter/device/family/attention_backward_producer.cuh";
  const Attention a{.queries = 300, .keys = 200, .depth = 128, .depth_v = 128};
  const Edit edits[] = {
      {kConsumer, "wgmma::wait<Wanted::ds ? 1 : 0>(s);", ""},
      {kConsumer, "wgmma::wait<Wanted::dk ? 1 : 0>();", ""},
      {kStages, "pipe_do().wait(state);", ""},
      {kProducer, "hopper::wait_for_stores<0>();", ""},
      {kProducer, "pipe_q.acquire(state_q);", ""},
  };
  for (const Edit& e : edits) {
    INFO("without " << e.text);
    CHECK(run(a, e) != "");
  }
  // Which tiles the diagonal cuts, of which one less is masked.
  for (const int right : {0, 1}) {
    const Attention causal{.queries = 300, .keys = 256, .depth = 64, .right = right};
    CHECK(run(causal, {kConsumer, "at.begin + by_diagonal", "at.begin + by_diagonal - 1"}) != "");
  }
  Attention with_bias = a;
  with_bias.plain = false, with_bias.dbias = true;
  const auto sums = [&](bool by_query, bool by_key, const char* text) {
    INFO("without " << text);
    with_bias.by_query = by_query, with_bias.by_key = by_key;
    CHECK(run(with_bias, {"sinter/device/family/attention_bias_gradient.cuh", text, ""}) != "");
  };
  sums(true, true, "put(i, ds);");
  sums(true, false, "sum = i % 4 < 2 ? ds : sum + ds;");
  sums(true, false, "if (lane() < 4) put(i - 2, all);");
  sums(false, true, "if (lane() % 4 == 0) put(2 * r, all);");
  sums(false, false, "if (lane() == 0) put(0, all);");
  Attention masked = a;
  masked.blocks = true;
  CHECK(run(masked, {"sinter/device/family/attention_backward_tiles.cuh",
                     "        next_seen(band);", ""}) != "");
  masked.right = 0;
  CHECK(run(masked, {kProducer, "walked[0] = at.head, walked[1] = at.tile;",
                     "walked[0] = at.head, walked[1] = 0;"}) != "");
}

}  // namespace
}  // namespace sinter::test
